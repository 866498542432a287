"""What `serve` starts, with what: upstreams from the configuration, one process or several, metrics on a port of their own."""

import asyncio
import os
from typing import Any, cast

import pytest
import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import SecretStr

from proxy import app as root
from proxy.app import CONFIG_VARIABLE, from_environment, serve
from proxy.config import UpstreamConfig, dump, load
from proxy.errors import ConfigError
from proxy.telemetry import DIRECTORY_VARIABLE

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
    assert [anything("chat", "whatever"), anything("chat", ""), anything("responses", "x")] == [True, True, False]


# ---- serving


class Ran:
    """What uvicorn was asked to do."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.environ: dict[str, str] = {}

    def __call__(self, app: Any, **options: Any) -> None:
        self.calls.append((app, options))
        self.environ = dict(os.environ)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()
    monkeypatch.setattr(uvicorn, "run", ran)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    return ran


def test_one_worker_is_served_in_this_process(ran: Ran) -> None:
    """Where it listens is what the file says; nothing of a request is logged by the server."""
    serve(load("server: {host: 0.0.0.0, port: 4010}", {}))

    ((app, options),) = ran.calls
    assert isinstance(app, FastAPI)
    assert (options["host"], options["port"], options["access_log"], options["server_header"]) == ("0.0.0.0", 4010, False, False)
    assert options["timeout_graceful_shutdown"] >= 60


def test_workers_are_handed_the_configuration_and_a_place_for_metrics(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """By environment; the folder is gone afterwards, and a worker makes the same application of it."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, "")
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    config = load("{server: {workers: 2}, store: {url: 'redis://127.0.0.1:1/0'}}", {})
    serve(config)

    ((app, options),) = ran.calls
    assert (app, options["factory"], options["workers"]) == ("proxy.app:from_environment", True, 2)
    assert not os.path.exists(ran.environ[DIRECTORY_VARIABLE])
    assert ran.environ[CONFIG_VARIABLE] == dump(config)


def test_a_worker_takes_its_configuration_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold secrets: no child of the worker inherits it."""
    monkeypatch.setenv(CONFIG_VARIABLE, dump(load(OWN_PORT, {})))
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)

    app = from_environment()

    assert "/metrics" not in {getattr(route, "path", "") for route in app.routes}
    assert CONFIG_VARIABLE not in os.environ


def test_metrics_of_several_workers_have_no_port_of_their_own(ran: Ran) -> None:
    """An error that names the key and the way out."""
    config = load("{server: {workers: 2, metrics_port: 9100}, store: {url: 'redis://127.0.0.1:1/0'}}", {})

    with pytest.raises(ConfigError, match=r"server\.metrics_port"):
        serve(config)
    assert ran.calls == []


def test_metrics_can_have_a_port_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers on one loop; when one ends, so does the other."""
    started: list[Any] = []

    class Server:
        def __init__(self, config: uvicorn.Config) -> None:
            self.config = config
            self.told = asyncio.Event()
            started.append(self)

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "should_exit":
                self.told.set()

        async def serve(self) -> None:
            if self is not started[0]:
                await self.told.wait()

    monkeypatch.setattr(uvicorn, "Server", Server)
    monkeypatch.setattr(uvloop, "run", asyncio.run)

    serve(load(OWN_PORT, {}))

    api, metrics = started
    assert (api.config.port, metrics.config.port) == (4000, 9100)
    assert metrics.told.is_set()
    paths = [{getattr(route, "path", "") for route in cast(FastAPI, server.config.app).routes} for server in started]
    assert ("/metrics" in paths[0], paths[1]) == (False, {"/metrics"})
