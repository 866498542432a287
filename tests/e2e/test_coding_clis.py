"""Coding agents from npm against a scripted model: each is nudged once, ends by itself, and works undisturbed where it works.

Optional: `make e2e-clients` installs them and says where. docs/clients.md tells what each showed.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from proxy import mock
from proxy.nudge import NUDGE_MARK, STOP_MARK
from tests.clients.coding_clis import CLIS, Cli, Run, run
from tests.running import Proxy, running

INSTALLED = os.environ.get("LASTCALL_CLIENTS", "")
DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
PROMPT = "Repair a.txt, please."
VOLATILE = re.compile(
    r"""
      [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12} | (?:call|toolu|fco?|msg|rs|resp|ses|prt)_[\w-]+ | [0-9a-f]{64}
    | \bcch=\w+
    | Chunk\ ID:\ [0-9a-f]+ | Wall\ time:\ [\d.]+ | PGID:\ \d+ | \b[0-9a-f]{7,40}\b | \d+:\d\d:\d\d[^"\\]{0,24}
    """,
    re.VERBOSE,
)
LOOKED = "The other one has looked."
pytestmark = pytest.mark.skipif(not INSTALLED, reason="`make e2e-clients` runs them")


class Upstream:
    """The model's endpoint. served: what it was asked since it began to play a script."""

    def __init__(self) -> None:
        self.url = ""
        self.play(mock.Script())

    def play(self, script: mock.Script, sender: Cli | None = None) -> None:
        """sender: whose sub-agents the script is for; whoever can send them out sends one out."""
        self.served: list[mock.Served] = []
        self._script, self._sender = script, sender

    def is_sender(self, body: bytes) -> bool:
        """Whether a request comes from an agent that can send out others."""
        return self._sender is not None and any(self._sender.delegates in _names(tool) for tool in json.loads(body).get("tools") or ())

    def _played(self, body: bytes) -> mock.Script:
        if self._sender is None or not self.is_sender(body):
            return self._script
        call = self._sender.sends(results_of(json.loads(body)))
        return mock.Script((mock.Step(text=LOOKED) if call is None else mock.Step(name=call[0], arguments=call[1]),))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", scope["type"] == "http"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return whole.pop() if whole else await receive()

        await mock.build(self._played(body), on_served=self.served.append)(scope, again, send)

    @property
    def turns(self) -> list[mock.Served]:
        """The agent's own requests; titles and the like offer no tools."""
        return [one for one in self.served if json.loads(one.body).get("tools")]

    @property
    def nudges(self) -> list[int]:
        return [one.body.count(f"{NUDGE_MARK} ".encode()) for one in self.turns]

    @property
    def told(self) -> str:
        """What no turn before was told, for a count of nudges that is not the one expected: a result that differs is news."""
        known: set[str] = set()
        lines = []
        for at, (turn, nudges) in enumerate(zip(self.turns, self.nudges, strict=True), 1):
            new = [result for result in results_of(json.loads(turn.body)) if result not in known]
            known.update(new)
            lines.append(f"turn {at}, {nudges} nudges: {re.sub(' {2,}', ' ', str(new))}")
        return "\n".join(lines)


@pytest.fixture(scope="module")
def model() -> Iterator[Upstream]:
    upstream = Upstream()
    server = uvicorn.Server(uvicorn.Config(upstream, log_level="critical", timeout_graceful_shutdown=3))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        upstream.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield upstream
        server.should_exit = True
        thread.join()


@pytest.fixture(params=sorted(CLIS))
def cli(request: pytest.FixtureRequest) -> Cli:
    return CLIS[request.param]


@contextlib.asynccontextmanager
async def proxied(model: Upstream, on_stop: str = "wrap_up") -> AsyncIterator[Proxy]:
    async with running(f"{model.url}/v1", f"policy: {{on_stop: {on_stop}}}") as proxy:
        yield proxy


def at_work(cli: Cli, home: Path, url: str) -> Run:
    """The agent, asked to repair a file in a fresh repository. The same path each time, so that requests can be compared."""
    shutil.rmtree(home, ignore_errors=True)
    work = home / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text("alpha is broken\n")
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    return run(cli, Path(INSTALLED), home, url, PROMPT)


def actions(proxy: Proxy) -> list[str]:
    """What was done with the agent's turns; the first one of a session that is a title has a lane of its own."""
    return [one["action"] for one in proxy.exchanges() if one["action"] != "allow"]


async def test_a_loop_is_nudged_once_and_ends_with_an_answer(cli: Cli, model: Upstream, tmp_path: Path) -> None:
    """After six upstream turns, and the agent takes it for an end like any other."""
    model.play(mock.Script((mock.Step(name=cli.shell, arguments=cli.call("git status")),)))
    async with proxied(model) as proxy:
        ended = await _in_thread(at_work, cli, tmp_path / "home", proxy.url)
    assert ended.status == 0
    assert STOP_MARK in ended.shown
    assert model.nudges == [0, 0, 0, 1, 1, 1], model.told
    assert actions(proxy) == ["nudge", "stop"]


async def test_an_error_ends_the_run_at_once_with_its_reason(cli: Cli, model: Upstream, tmp_path: Path) -> None:
    """One request, exit status 1, the message shown."""
    model.play(mock.Script((mock.Step(name=cli.shell, arguments=cli.call("git status")),)))
    async with proxied(model, "error") as proxy:
        ended = await _in_thread(at_work, cli, tmp_path / "home", proxy.url)
    assert ended.status == 1
    assert re.search(rf"Stopped by Lastcall: {cli.shell} was asked for 5 times", ended.shown)
    assert [one["status"] for one in proxy.exchanges() if one["status"] != 200] == [400]
    assert model.nudges == [0, 0, 0, 1, 1], model.told


async def test_parallel_calls_in_a_loop_end_too(cli: Cli, model: Upstream, tmp_path: Path) -> None:
    """Two in each message."""
    calls = tuple(mock.Call(cli.shell, cli.call(command)) for command in ("git status", "cat a.txt"))
    model.play(mock.Script((mock.Step(calls=calls),)))
    async with proxied(model) as proxy:
        ended = await _in_thread(at_work, cli, tmp_path / "home", proxy.url)
    assert (ended.status, STOP_MARK in ended.shown) == (0, True)
    assert model.nudges == [0, 0, 0, 1, 1, 1], model.told


async def test_work_passes_as_if_nothing_stood_between(cli: Cli, model: Upstream, tmp_path: Path) -> None:
    """Read, edit, test, edit, test, answer: no nudge, and the model is asked what it is asked without the proxy."""
    commands = ("cat a.txt", "echo alpha is better > a.txt", "grep -c fine a.txt", "echo alpha is fine > a.txt", "grep -c fine a.txt")
    steps = [mock.Step(name=cli.shell, arguments=cli.call(command)) for command in commands]
    seen = []
    async with proxied(model) as proxy:
        for url in (model.url, proxy.url):
            model.play(mock.Script((*steps, mock.Step(text="a.txt is fine now."))))
            ended = await _in_thread(at_work, cli, tmp_path / "home", url)
            assert (ended.status, "a.txt is fine now." in ended.shown) == (0, True)
            assert (tmp_path / "home" / "work" / "a.txt").read_text() == "alpha is fine\n"
            seen.append([comparable(one.body) for one in model.turns])
    assert len(seen[0]) in (5, 6)  # some begin with a turn of the model's that never was, and the script counts it
    assert seen[0] == seen[1]
    assert actions(proxy) == []


async def test_a_sub_agent_in_a_loop_ends_and_the_one_that_sent_it_goes_on(cli: Cli, model: Upstream, tmp_path: Path) -> None:
    """Nudged and stopped by itself: its conclusion is what the other gets, which is neither."""
    model.play(mock.Script((mock.Step(name=cli.shell, arguments=cli.call("git status")),)), cli)
    async with proxied(model) as proxy:
        ended = await _in_thread(at_work, cli, tmp_path / "home", proxy.url)
    assert (ended.status, LOOKED in ended.shown) == (0, True)
    senders = [one.body for one in model.turns if model.is_sender(one.body)]
    nudges = [nudges for nudges, one in zip(model.nudges, model.turns, strict=True) if one.body not in senders]
    assert nudges == [0, 0, 0, 1, 1, 1], model.told
    assert NUDGE_MARK.encode() not in b"".join(senders)
    assert STOP_MARK.encode() in senders[-1]
    assert actions(proxy) == ["nudge", "stop"]
    places = [(one["session"], one["lane"]) for one in proxy.exchanges()]
    sent_out = next(place for place, one in zip(places, proxy.exchanges(), strict=True) if one["action"] == "nudge")
    assert (places.count(sent_out), places[-1] != sent_out, places[-1] in places[:2]) == (5, True, True)
    # Two have a lane of the session, the others' have sessions of their own.
    assert (cli in (CLIS["claude"], CLIS["codex"])) is (sent_out[0] == places[-1][0])


@pytest.mark.parametrize("name", sorted(CLIS))
def test_the_versions_in_the_docs_are_those_that_run(name: str) -> None:
    """docs/clients.md says of which versions all this is true."""
    package = CLIS[name].package
    version = json.loads((Path(INSTALLED) / "node_modules" / package / "package.json").read_text())["version"]
    assert re.search(rf"^\| `{re.escape(package)}` \| {re.escape(version)} \|", DOCS.read_text(), re.MULTILINE)


def _names(tool: dict[str, Any]) -> tuple[Any, Any]:
    """A tool's name, by either of the ways to write it."""
    return tool.get("name"), tool.get("function", {}).get("name")


def results_of(body: dict[str, Any]) -> list[str]:
    """The results that a history holds, in whichever dialect."""
    if "input" in body:
        return [str(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"]
    blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
    results = [message for message in body["messages"] if message["role"] == "tool"]
    return [str(one["content"]) for one in (*results, *(block for block in blocks if block["type"] == "tool_result"))]


def comparable(body: bytes) -> Any:
    """A request without ids, clocks and process numbers, and without the usage that Lastcall asks streams for."""
    return {name: steady(value) for name, value in json.loads(body).items() if name != "stream_options"}


def steady(value: Any) -> Any:
    match value:
        case str():
            return VOLATILE.sub("#", value)
        case list():
            return [steady(one) for one in value]
        case dict():
            return {name: steady(one) for name, one in value.items()}
        case _:
            return value


async def _in_thread(*work: Any) -> Run:
    return await asyncio.to_thread(*work)
