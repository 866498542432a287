"""Real client libraries, unchanged but for `base_url`: each runs its own agent loop, and the loop ends by itself.

The model is scripted, the rest is real: the library, its tools, the proxy and the endpoint behind it, over loopback.
"""

import asyncio
import contextlib
import importlib
import json
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import uvicorn

from proxy import mock
from proxy.nudge import NUDGE_MARK, STOP_MARK
from tests.clients import Agent, Endpoint, Workshop
from tests.running import Proxy, running

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
LOOPBACK = {"127.0.0.1", "localhost"}
MODES = {
    "openai_sdk": ("sync", "sync stream=True", "sync .stream()", "async", "async stream=True", "async .stream()"),
    "anthropic_sdk": ("sync", "sync stream=True", "sync .stream()", "async", "async stream=True", "async .stream()"),
    "openai_responses": (
        *("sync", "sync stream=True", "sync .stream()", "async", "async stream=True", "async .stream()"),
        *("sync chained", "async chained .stream()"),
    ),
    "langchain_loop": ("invoke", "stream", "ainvoke", "astream", "invoke responses", "stream responses", "invoke chained"),
    "agents_sdk": ("run", "run_streamed"),
    "agents_responses": ("run", "run_streamed", "run chained", "run_streamed chained"),
    "pydantic_agent": ("run", "run_stream", "iter", "run responses", "iter responses"),
    "litellm_loop": ("completion", "completion stream=True", "acompletion", "acompletion stream=True"),
}
# What a library does the same in all its modes is tried in a plain and in a streamed one.
FEW = {
    "openai_sdk": ("sync", "async .stream()"),
    "anthropic_sdk": ("sync", "async .stream()"),
    "openai_responses": ("async", "async chained .stream()"),
    "langchain_loop": ("ainvoke", "stream"),
    "agents_sdk": ("run", "run_streamed"),
    "agents_responses": ("run", "run_streamed chained"),
    "pydantic_agent": ("run_stream", "iter responses"),
    "litellm_loop": ("completion", "acompletion stream=True"),
}
MARKS = {
    # litellm has pydantic make a schema of its own TypedDicts, about which pydantic warns; nothing of it is ours.
    "litellm_loop": pytest.mark.filterwarnings(
        "ignore:Item '.*' on TypedDict class 'ChatCompletion.*' is using the `ReadOnly` qualifier:UserWarning"
    ),
}


def agents(modes: Mapping[str, tuple[str, ...]]) -> list[Any]:
    """Module and mode of each agent, as parameters."""
    return [pytest.param((module, mode), marks=MARKS.get(module, ()), id=f"{module} {mode}") for module, of in modes.items() for mode in of]


in_few_modes = pytest.mark.parametrize("client", agents(FEW), indirect=True)
READ = mock.Step(name="read_file", arguments={"path": "a.txt"})
READ_BOTH = mock.Step(calls=(READ, mock.Call("read_file", {"path": "b.txt"})))
LOOPS = mock.Script((READ,))
WORK = (
    mock.Step(name="edit_file", arguments={"path": "a.txt", "text": "alpha is better"}),
    mock.Step(name="run_tests", arguments={}),
    mock.Step(name="edit_file", arguments={"path": "a.txt", "text": "alpha is fine"}),
    mock.Step(name="run_tests", arguments={}),
    mock.Step(text="Both tests pass now."),
)
STOPPED = ["allow", "allow", "allow", "nudge", "stop"]
Run = Callable[[Endpoint, Workshop], str]


class Upstream:
    """The model's endpoint. It plays one script at a time; `served` is what it was asked since the script began."""

    def __init__(self) -> None:
        self.url = ""
        self.play(LOOPS)

    def play(self, script: mock.Script) -> None:
        self.served: list[mock.Served] = []
        self._app = mock.build(script, on_served=self.served.append)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    @property
    def nudges(self) -> list[int]:
        """How many nudges each request held."""
        return [one.body.count(f"{NUDGE_MARK} ".encode()) for one in self.served]


class Lastcall:
    """A running proxy, and what passed through it since `endpoint` was last asked for."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def endpoint(self, **headers: str) -> Endpoint:
        self._proxy.log.clear()
        return Endpoint(self._proxy.v1, headers)

    def exchanges(self) -> list[dict[str, Any]]:
        """The log lines of all exchanges: of the last one too, whose line is written when the client has its answer."""
        deadline = time.monotonic() + 10
        while b"\nlastcall_in_flight 0.0" not in urlopen(f"{self._proxy.url}/metrics", timeout=10).read():
            assert time.monotonic() < deadline, "an exchange is still under way"
            time.sleep(0.005)
        return self._proxy.exchanges()

    def told(self, key: str) -> list[Any]:
        """One field of each exchange."""
        return [exchange[key] for exchange in self.exchanges()]


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """A server on a free loopback port, in a thread, for as long as the block lasts. Gives its base URL."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=3))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server ended before it had started"
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """No proxy of this machine comes between, what the libraries send home is off, and a look-up beyond loopback fails, even if hidden."""
    asked: set[Any] = set()
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **options: Any) -> Any:
        asked.add(host.decode() if isinstance(host, bytes) else host)
        if not asked <= LOOPBACK:
            raise socket.gaierror(f"{host!r} is not loopback")
        return real(host, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "OPENAI_BASE_URL",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_AUTH_TOKEN",
            "OPENAI_ORG_ID",
            "OPENAI_PROJECT_ID",
        ):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"):
            patch.setenv(name, "false")
        patch.setattr(socket, "getaddrinfo", look_up)
        yield
    assert asked <= LOOPBACK


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    upstream = Upstream()
    with serving(upstream) as upstream.url:
        yield upstream


@pytest.fixture
def model(server: Upstream) -> Upstream:
    """Asks for the same call for ever, until a test gives it another script."""
    server.play(LOOPS)
    return server


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of every asynchronous agent: libraries that keep connections for the process expect one."""
    with asyncio.Runner() as runner:
        yield runner
        for module in filter(None, (sys.modules.get(f"tests.clients.{module}") for module in MODES)):
            runner.run(module.close())


@pytest.fixture(scope="module")
def lastcall(server: Upstream, runner: asyncio.Runner) -> Iterator[dict[str, Lastcall]]:
    """A proxy for each `on_stop`, shared by all agents: whose request is whose is the proxy's business."""
    stack = contextlib.AsyncExitStack()
    try:
        yield {
            on_stop: Lastcall(runner.run(stack.enter_async_context(running(server.url, f"policy: {{on_stop: {on_stop}}}"))))
            for on_stop in ("wrap_up", "message", "error")
        }
    finally:
        runner.run(stack.aclose())


@pytest.fixture(params=agents(MODES))
def client(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Module and mode of an agent."""
    module, mode = request.param
    return module, mode


@pytest.fixture
def nudged(client: tuple[str, str]) -> Callable[[int], list[int]]:
    """How many nudges each of so many requests holds: one from the fourth on, where the client sends its history each time."""
    chained = "chained" in client[1]
    return lambda requests: [0, 0, 0, 1, *([0 if chained else 1] * (requests - 4))]


@pytest.fixture
def agent(client: tuple[str, str], runner: asyncio.Runner) -> Run:
    """Runs the agent to its end."""
    module, mode = client
    found: Agent = importlib.import_module(f"tests.clients.{module}").AGENTS[mode]

    def run(endpoint: Endpoint, workshop: Workshop) -> str:
        outcome = found(endpoint, workshop)
        return outcome if isinstance(outcome, str) else runner.run(outcome)

    return run


@pytest.fixture
def error(client: tuple[str, str]) -> type[Exception]:
    """What the client library raises for HTTP 400."""
    kind: type[Exception] = importlib.import_module(f"tests.clients.{client[0]}").ERROR
    return kind


def test_wrap_up_ends_the_loop_with_an_answer(
    agent: Run, nudged: Callable[[int], list[int]], model: Upstream, lastcall: dict[str, Lastcall]
) -> None:
    """Nudged once, from the request after the third result on; stopped in place of the fifth call; six upstream calls in all."""
    text = wrapped_up(agent, nudged, model, lastcall["wrap_up"])
    assert text.endswith("\n\nThis is what I know: alpha is broken")
    assert "The model gave no closing answer." not in text


@in_few_modes
def test_a_model_that_ignores_tool_choice_ends_as_soon(
    agent: Run, nudged: Callable[[int], list[int]], model: Upstream, lastcall: dict[str, Lastcall]
) -> None:
    """The last words are Lastcall's own."""
    model.play(mock.Script((READ,), ignores_none=True))
    text = wrapped_up(agent, nudged, model, lastcall["wrap_up"])
    assert text.endswith("The model gave no closing answer. Send a new message to go on.")


def wrapped_up(agent: Run, nudged: Callable[[int], list[int]], model: Upstream, proxy: Lastcall) -> str:
    """What the agent ends with."""
    workshop = Workshop()
    text = agent(proxy.endpoint(), workshop)
    assert workshop.executed == ["read_file"] * 4
    assert model.nudges == nudged(6)
    assert proxy.told("action") == STOPPED
    assert text.startswith(STOP_MARK)
    return text


@in_few_modes
def test_message_ends_the_loop_without_a_further_call(
    agent: Run, nudged: Callable[[int], list[int]], model: Upstream, lastcall: dict[str, Lastcall]
) -> None:
    """The final text is Lastcall's own."""
    workshop, proxy = Workshop(), lastcall["message"]
    text = agent(proxy.endpoint(), workshop)
    assert workshop.executed == ["read_file"] * 4
    assert model.nudges == nudged(5)
    assert proxy.told("action") == STOPPED
    assert text.startswith(f"{STOP_MARK} Lastcall stopped this run: read_file ")
    assert "The model gave no closing answer." in text


def test_error_ends_the_loop_with_the_librarys_own_exception(
    agent: Run, nudged: Callable[[int], list[int]], error: type[Exception], model: Upstream, lastcall: dict[str, Lastcall]
) -> None:
    """It carries the reason, and the client does not ask again."""
    workshop, proxy = Workshop(), lastcall["error"]
    with pytest.raises(error, match=r"Stopped by Lastcall: read_file .* 5 times"):
        agent(proxy.endpoint(), workshop)
    assert workshop.executed == ["read_file"] * 4
    assert model.nudges == nudged(5)
    assert proxy.told("action") == STOPPED
    assert proxy.told("status") == [200, 200, 200, 200, 400]


@in_few_modes
def test_a_model_that_heeds_the_nudge_answers_by_itself(agent: Run, model: Upstream, lastcall: dict[str, Lastcall]) -> None:
    """The agent gets the model's answer and nothing else."""
    model.play(mock.Script((READ,), heeds_nudge=True))
    workshop, proxy = Workshop(), lastcall["wrap_up"]
    assert agent(proxy.endpoint(), workshop) == "This is what I know: alpha is broken"
    assert workshop.executed == ["read_file"] * 3
    assert model.nudges == [0, 0, 0, 1]
    assert proxy.told("action") == STOPPED[:4]


@in_few_modes
def test_repeated_parallel_calls_end_too(
    agent: Run, nudged: Callable[[int], list[int]], model: Upstream, lastcall: dict[str, Lastcall]
) -> None:
    """Two calls in each message, both in a loop."""
    model.play(mock.Script((READ_BOTH,)))
    workshop, proxy = Workshop(), lastcall["wrap_up"]
    assert agent(proxy.endpoint(), workshop).startswith(STOP_MARK)
    assert workshop.executed == ["read_file"] * 8
    assert model.nudges == nudged(6)
    assert proxy.told("action") == STOPPED


def test_work_passes_as_if_nothing_stood_between(agent: Run, model: Upstream, lastcall: dict[str, Lastcall]) -> None:
    """Read, edit, test, edit, test, answer: the upstream sees what it sees without the proxy, but for the usage of streams."""
    check_work_passes(agent, model, lastcall, READ)


@in_few_modes
def test_work_with_parallel_calls_passes(agent: Run, model: Upstream, lastcall: dict[str, Lastcall]) -> None:
    """The same with two calls in the first message."""
    check_work_passes(agent, model, lastcall, READ_BOTH)


def check_work_passes(agent: Run, model: Upstream, lastcall: dict[str, Lastcall], first: mock.Step) -> None:
    seen = []
    for endpoint in (Endpoint(model.url), lastcall["wrap_up"].endpoint()):
        model.play(mock.Script((first, *WORK)))
        workshop = Workshop()
        assert agent(endpoint, workshop) == "Both tests pass now."
        assert workshop.executed[-4:] == ["edit_file", "run_tests"] * 2
        assert model.nudges == [0] * 6
        seen.append([comparable(one.body) for one in model.served])
    assert seen[0] == seen[1]
    assert lastcall["wrap_up"].told("action") == ["allow"] * 6


@in_few_modes
def test_a_header_names_the_session(agent: Run, model: Upstream, lastcall: dict[str, Lastcall]) -> None:
    """All exchanges of the run are in the session that the client was set up with."""
    proxy = lastcall["message"]
    name = f"run-{uuid.uuid4()}"
    agent(proxy.endpoint(**{"x-lastcall-session": name}), Workshop())
    assert proxy.told("session") == [name] * 5


@in_few_modes
def test_two_runs_of_one_prompt_are_two_sessions(agent: Run, model: Upstream, lastcall: dict[str, Lastcall]) -> None:
    """Without a header each run is a session of its own, and neither counts for the other."""
    proxy = lastcall["message"]
    endpoint = proxy.endpoint()
    for _ in range(2):
        workshop = Workshop()
        agent(endpoint, workshop)
        assert workshop.executed == ["read_file"] * 4
    sessions = proxy.told("session")
    assert [len(set(sessions[:5])), len(set(sessions[5:])), len(set(sessions))] == [1, 1, 2]


@pytest.mark.parametrize(
    "distribution",
    ["openai", "anthropic", "langchain-openai", "openai-agents", "pydantic-ai-slim", "litellm"],
)
def test_the_versions_in_the_docs_are_those_that_run(distribution: str) -> None:
    """docs/clients.md says of which versions all this is true."""
    row = rf"^\| `{distribution.removesuffix('-slim')}`[^|]*\| {re.escape(version(distribution))} \|"
    assert re.search(row, DOCS.read_text(), re.MULTILINE)


def comparable(body: bytes) -> Any:
    """A request without what differs by design: the model makes new call ids each time, Lastcall asks for the usage of streams."""
    ids: dict[str, str] = {}
    text = re.sub(
        r"(?:call|toolu|fc|msg|resp_\d+t)_[0-9a-f]{24}", lambda match: ids.setdefault(match.group(), f"call {len(ids)}"), body.decode()
    )
    return {name: value for name, value in json.loads(text).items() if name != "stream_options"}
