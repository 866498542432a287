"""What `serve` starts, with what: upstreams from the configuration, one process or several, metrics on a port of their own."""

import asyncio
import os
import signal
import socket
from typing import Any, cast

import pytest
import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import SecretStr

from proxy import app as root
from proxy.app import SOURCE_VARIABLE, from_environment, serve
from proxy.config import UpstreamConfig, dump, load
from proxy.errors import ConfigError
from proxy.source import Source, load_source
from proxy.telemetry import DIRECTORY_VARIABLE
from proxy.workers import CONFIG_VARIABLE
from tests.servers import free_port

SOURCE = Source(None, {("server", "port"): 0})
OWN_PORT = "server: {metrics_port: 9100}"

# ---- upstreams from the configuration


@pytest.mark.parametrize(("key", "sent"), [("passthrough", None), (SecretStr("sk-1"), "sk-1"), ("${KEY}", "sk-2")])
def test_a_target_has_the_key_that_was_configured(key: Any, sent: str | None) -> None:
    """`passthrough` is none of its own."""
    if key == "${KEY}":
        key = load("upstreams: {a: {base_url: http://h/v1, api_key: '${KEY}'}}", {"KEY": "sk-2"}).upstreams["a"].api_key
    config = UpstreamConfig.model_construct(base_url="http://h/v1", api_key=key)

    target = root._target("a", config, {"http_proxy": "http://proxy:3128"})

    assert (target.api_key, target.proxy, target.name) == (sent, "http://proxy:3128", "a")


def test_a_configured_proxy_comes_before_the_environments() -> None:
    """The file is nearer."""
    config = UpstreamConfig(base_url="http://h/v1", proxy="http://mine:1")

    assert root._target("a", config, {"http_proxy": "http://proxy:3128"}).proxy == "http://mine:1"


def test_an_upstream_serves_what_its_globs_name() -> None:
    """In its dialects only; letter case counts."""
    serves = root._serves(UpstreamConfig(base_url="http://h/v1", models=("gpt-*", "o3"), dialects=("chat", "messages")))
    anything = root._serves(UpstreamConfig(base_url="http://h/v1"))

    assert [serves("chat", model) for model in ("gpt-5", "o3", "GPT-5", "o3-mini", "")] == [True, True, False, False, False]
    assert [serves("messages", "o3"), serves("responses", "o3")] == [True, False]
    assert [anything("chat", "whatever"), anything("chat", ""), anything("responses", "x")] == [True, True, True]


# ---- serving


class Ran:
    """The servers that uvicorn was asked to run, and the environment they were to run in. A server ends when it is told to."""

    def __init__(self) -> None:
        self.servers: list[Any] = []
        self.environ: dict[str, str] = {}
        self.listened: list[str] = []
        self.ends: BaseException | None = None

    def serve(self, text: str) -> None:
        serve(load(text, {}), SOURCE, on_listening=self.listened.append)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()

    class Server:
        def __init__(self, config: uvicorn.Config) -> None:
            self.config = config
            self.told = asyncio.Event()
            ran.servers.append(self)

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "should_exit":
                self.told.set()

        async def serve(self, sockets: list[socket.socket]) -> None:
            (self.listener,) = sockets
            with self.listener:
                if self is not ran.servers[0]:
                    await self.told.wait()
            if ran.ends:
                raise ran.ends

    class Supervisor:
        def __init__(self, options: uvicorn.Config, sockets: list[socket.socket], **reloads: Any) -> None:
            self.config = options
            self.reloads = reloads
            (self.listener,) = sockets
            ran.servers.append(self)

        failed = False

        def run(self) -> None:
            self.listener.close()
            ran.environ = dict(os.environ)

    monkeypatch.setattr(uvicorn, "Server", Server)
    monkeypatch.setattr(root, "Workers", Supervisor)
    monkeypatch.setattr(uvloop, "run", asyncio.run)
    monkeypatch.setenv(DIRECTORY_VARIABLE, "")
    monkeypatch.setenv(SOURCE_VARIABLE, "")
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    monkeypatch.delenv(SOURCE_VARIABLE)
    return ran


def test_one_worker_is_served_in_this_process(ran: Ran) -> None:
    """Where it listens is what the file says; nothing of a request is logged by the server."""
    port = free_port()
    ran.serve(f"server: {{host: 0.0.0.0, port: {port}}}")

    (server,) = ran.servers
    assert isinstance(server.config.app, FastAPI)
    assert ran.listened == [f"http://0.0.0.0:{port}"]
    assert (server.config.access_log, server.config.server_header) == (False, False)
    assert server.config.timeout_graceful_shutdown >= 60


def test_an_interrupt_is_an_ordinary_end(ran: Ran) -> None:
    """Ctrl-C, once the server has ended: neither a traceback nor a word."""
    ran.ends = KeyboardInterrupt()
    ran.serve("server: {port: 0}")

    assert len(ran.servers) == 1


def test_workers_are_handed_the_configuration_and_a_place_for_metrics(ran: Ran) -> None:
    """By environment; the folder is gone afterwards, and a worker makes the same application of it."""
    text = "{server: {workers: 2, port: 0}, store: {url: 'redis://127.0.0.1:1/0'}}"
    ran.serve(text)

    (supervisor,) = ran.servers
    options = supervisor.config
    assert (options.app, options.factory, options.workers) == ("proxy.app:from_environment", True, 2)
    assert not os.path.exists(ran.environ[DIRECTORY_VARIABLE])
    assert load_source(ran.environ[SOURCE_VARIABLE]) == SOURCE
    assert dump(supervisor.reloads["config"]) == dump(load(text, {}))


def test_a_worker_that_cannot_start_is_no_success(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started it is told so by the exit status, and not that it has ended well."""
    monkeypatch.setattr("proxy.app.Workers.failed", True)
    with pytest.raises(ConfigError, match="a worker could not start"):
        ran.serve("{server: {workers: 2, port: 0}, store: {url: 'redis://127.0.0.1:1/0'}}")


def test_a_store_that_cannot_be_had_stops_it_before_it_listens(ran: Ran) -> None:
    """By its URL alone: nobody connects yet."""
    with pytest.raises(ConfigError, match=r"store\.url: not a usable Redis URL"):
        ran.serve("store: {url: 'redis://127.0.0.1:1/0?bogus=1'}")
    assert (ran.servers, ran.listened) == ([], [])


def test_a_worker_takes_its_configuration_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold secrets: no child of the worker inherits it."""
    monkeypatch.setenv(CONFIG_VARIABLE, dump(load(OWN_PORT, {})))
    monkeypatch.setenv(SOURCE_VARIABLE, SOURCE.dumped())
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)

    app = from_environment()

    assert "/metrics" not in {getattr(route, "path", "") for route in app.routes}
    assert not {CONFIG_VARIABLE, SOURCE_VARIABLE} & set(os.environ)


def test_a_worker_listens_to_the_interrupt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes its application once it can end in good order."""
    monkeypatch.setenv(CONFIG_VARIABLE, dump(load("", {})))
    monkeypatch.setenv(SOURCE_VARIABLE, SOURCE.dumped())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    from_environment()

    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("key", ["port", "metrics_port"])
def test_a_port_in_use_stops_it_before_anything_is_said(ran: Ran, key: str) -> None:
    """Neither of the two is taken for granted."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"port": free_port(), "metrics_port": free_port()} | {key: other.getsockname()[1]}
        with pytest.raises(ConfigError, match=f":{ports[key]}: another program uses that port"):
            ran.serve(f"server: {ports}")
    assert (ran.servers, ran.listened) == ([], [])


def test_an_authority_that_cannot_be_read_stops_it_before_it_listens(ran: Ran) -> None:
    """A fault of the file, not a crash of the server."""
    with pytest.raises(ConfigError, match=r"upstreams\.a\.ca_file"):
        ran.serve("upstreams: {a: {base_url: 'https://h/v1', ca_file: /nowhere/ca.pem}}")
    assert (ran.servers, ran.listened) == ([], [])


def test_metrics_can_have_a_port_of_their_own(ran: Ran) -> None:
    """Two servers on one loop; when one ends, so does the other."""
    port, metrics_port = free_port(), free_port()
    ran.serve(f"server: {{port: {port}, metrics_port: {metrics_port}}}")

    metrics = ran.servers[1]
    assert ran.listened == [f"http://127.0.0.1:{port}"]
    assert metrics.told.is_set()
    paths = [{getattr(route, "path", "") for route in cast(FastAPI, server.config.app).routes} for server in ran.servers]
    assert ("/metrics" in paths[0], paths[1]) == (False, {"/metrics"})
