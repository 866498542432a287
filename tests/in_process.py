"""A whole proxy inside the test: the real exchange, sessions and store, an upstream that follows a script, clocks that stand still.

`Proxy` is asked through plain ASGI, as a server would: the client may leave at any point, and what it was sent is kept message by message.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from proxy.app import Front
from proxy.asgi import Message
from proxy.bill import Bills
from proxy.config import Config
from proxy.events import Event, ExchangeEnded, StoreChanged, UnjudgedEnded
from proxy.exchange import Setting, Way
from proxy.policy import Policy
from proxy.prices import Prices
from proxy.reload import InForce
from proxy.sessions import Sessions
from proxy.store import GuardedStore
from proxy.store.memory import MemoryStore
from proxy.telemetry import Telemetry
from proxy.tenants import Tenant, Tenants
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Body, Response, Upstream

CHAT = "/v1/chat/completions"
NOON = 1_700_000_000.0
Piece = bytes | Exception | asyncio.Event
"""A part of a scripted body: bytes, a failure, or something to wait for first."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def ids() -> Callable[[], str]:
    """Deterministic ids, each another."""
    numbers = count(1)
    return lambda: f"{next(numbers):024x}"


# ---- upstreams


class ScriptedResponse(Response):
    """An answer made up of pieces. closed: whether the exchange gave it back."""

    def __init__(self, *pieces: Piece, status: int = 200, kind: bytes = b"application/json", headers: RawHeaders = ()) -> None:
        self.status = status
        self.reason = ""
        self.headers = [(b"content-type", kind), *headers]
        self.closed = False
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            match piece:
                case bytes():
                    yield piece
                case asyncio.Event():
                    await piece.wait()
                case _:
                    raise piece

    async def read(self, limit: int | None = None) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        self.closed = True


Answer = Response | Exception | Callable[[], Awaitable[Response]]


class Slow:
    """An answer that is given when the test says so. asked: set once the upstream has the request."""

    def __init__(self, answer: Response) -> None:
        self.asked = asyncio.Event()
        self.done = asyncio.Event()
        self._answer = answer

    async def __call__(self) -> Response:
        self.asked.set()
        await self.done.wait()
        return self._answer


@dataclass
class Sent:
    """One request as the upstream got it."""

    method: str
    path: str
    query: bytes
    headers: RawHeaders
    body: bytes
    plain: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ScriptedUpstream(Upstream):
    """Gives its answers in order; the last one again and again when `endless`."""

    def __init__(self, *answers: Answer, endless: bool = False) -> None:
        self.answers = list(answers)
        self.sent: list[Sent] = []
        self._endless = endless

    async def send(
        self, method: str, path: str, query: bytes, headers: RawHeaders, body: Body, *, plain: bool, within: float | None = None
    ) -> Response:
        data = body if isinstance(body, bytes) else b"".join([piece async for piece in body]) if body is not None else b""
        self.sent.append(Sent(method, path, query, headers, data, plain))
        answer = self.answers[0] if self._endless and len(self.answers) == 1 else self.answers.pop(0)
        match answer:
            case Response():
                return answer
            case Exception():
                raise answer
            case _:
                return await answer()

    async def close(self) -> None:
        return None


# ---- what is said


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def called(name: str, arguments: str, id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def looping(times: int, *, name: str = "ls", arguments: str = "{}", result: str = "a.txt", task: str = "list it") -> list[dict[str, Any]]:
    """A history in which one call was made `times` times, always with the same result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for turn in range(times):
        messages.append({"role": "assistant", "content": None, "tool_calls": [called(name, arguments, f"c{turn}")]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": result})
    return messages


def request(messages: Sequence[dict[str, Any]] | None = None, **members: Any) -> bytes:
    """A chat request that offers the tools `ls` and `cat`."""
    body = {"model": "gpt-5", "messages": messages or [{"role": "user", "content": "hi"}], "tools": [tool("ls"), tool("cat")]}
    return json.dumps({key: value for key, value in (body | members).items() if value is not None}).encode()


LS = called("ls", "{}", "n0")
CAT = called("cat", '{"path": "a.txt"}', "n1")
USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


def answer(text: str | None = None, *calls: dict[str, Any], usage: dict[str, int] | None = USAGE, choices: int = 1) -> ScriptedResponse:
    """A whole answer, the same in each choice."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    finish = "tool_calls" if calls else "stop"
    body: dict[str, Any] = {
        "id": "chatcmpl-up",
        "object": "chat.completion",
        "created": 1_600_000_000,
        "model": "gpt-5-up",
        "choices": [{"index": index, "message": message, "finish_reason": finish} for index in range(choices)],
        "x_unknown": [1.0, None],
    }
    return ScriptedResponse(json.dumps(body | ({"usage": usage} if usage else {})).encode())


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(value: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    """One chunk of a stream."""
    head = {"id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 1_600_000_000, "model": "gpt-5-up"}
    return event(head | {"choices": [{"index": index, "delta": value, "finish_reason": finish}]})


def begins(name: str, arguments: str = "{}", *, position: int = 0, id: str | None = None) -> bytes:
    """A chunk that makes a whole call."""
    call = {"index": position, **called(name, arguments, id or f"n{position}")}
    return delta({"tool_calls": [call]})


OPENING = delta({"role": "assistant", "content": ""})
USAGE_EVENT = event({"id": "chatcmpl-up", "choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"


def stream(*pieces: Piece) -> ScriptedResponse:
    """A streamed answer in exactly these pieces."""
    return ScriptedResponse(*pieces, kind=b"text/event-stream; charset=utf-8")


def text_stream(text: str = "hello") -> list[bytes]:
    return [OPENING, delta({"content": text}), delta({}, "stop"), USAGE_EVENT, DONE]


def call_stream(name: str = "ls", arguments: str = "{}") -> list[bytes]:
    return [OPENING, begins(name, arguments), delta({}, "tool_calls"), USAGE_EVENT, DONE]


# ---- asking


@dataclass
class Conversation:
    """One request on its way through ASGI. sent: every message the server was given, in order.

    pieces: the request body as it arrives. gone: set when the client has left; a server also says so after a complete response.
    watch: called before each message that is sent, and may set `gone`.
    """

    pieces: Sequence[bytes] = (b"",)
    watch: Callable[[Message], None] = lambda _: None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._coming = iter(self._requests())

    def _requests(self) -> Iterator[Message]:
        for position, piece in enumerate(self.pieces, start=1):
            yield {"type": "http.request", "body": piece, "more_body": position < len(self.pieces)}

    async def receive(self) -> Message:
        if not self.gone.is_set() and (message := next(self._coming, None)) is not None:
            return message
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.watch(message)
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.gone.set()
        await asyncio.sleep(0)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode("latin-1") for name, value in self.sent[0]["headers"]}

    @property
    def lastcall(self) -> dict[str, str]:
        """The response headers that Lastcall sets, without their prefix."""
        return {name.removeprefix("x-lastcall-"): value for name, value in self.headers.items() if name.startswith("x-lastcall-")}

    @property
    def writes(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of every data event but the terminator."""
        found = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line.startswith(b"data: ")]
        return [json.loads(data) for data in found if data != b"[DONE]"]

    @property
    def streamed(self) -> bool:
        return self.headers["content-type"].startswith("text/event-stream")

    @property
    def deltas(self) -> list[Any]:
        return [choice["delta"] for one in self.events for choice in one.get("choices", ())]

    @property
    def text(self) -> str:
        """What the assistant says, streamed or whole."""
        if self.streamed:
            return "".join(one.get("content") or "" for one in self.deltas)
        text: str = self.json["choices"][0]["message"]["content"]
        return text

    @property
    def calls(self) -> list[str]:
        """The names of the calls a streamed answer makes."""
        return [call["function"]["name"] for one in self.deltas for call in one.get("tool_calls") or ()]

    @property
    def notice(self) -> Any:
        """The `lastcall` object, wherever it stands."""
        return self.events[-1].get("lastcall") if self.streamed else self.json.get("lastcall")

    @property
    def ended(self) -> bool:
        return bool(self.sent) and self.sent[-1]["type"] == "http.response.body" and not self.sent[-1].get("more_body", False)


class Recorder(Telemetry):
    """Real telemetry that also keeps its events."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        super().__init__(CollectorRegistry(), models=("gpt-*",), log=lambda _: None, clock=lambda: NOON)

    def emit(self, event: Event) -> None:
        self.seen.append(event)
        super().emit(event)

    @property
    def exchanges(self) -> list[ExchangeEnded]:
        return [event for event in self.seen if isinstance(event, ExchangeEnded)]

    @property
    def unjudged(self) -> list[UnjudgedEnded]:
        return [event for event in self.seen if isinstance(event, UnjudgedEnded)]


class OneRule(Tenants):
    """Everybody's rules as a test made them, without a configuration."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(Config(), zone=UTC, prices=Prices({}, {}))
        self._everybody = _Ruled(policy)


class _Ruled(Tenant):
    def __init__(self, policy: Policy) -> None:
        super().__init__("", None, Config(), zone=UTC, prices=Prices({}, {}))
        self._rules = policy

    def policy(self, model: str) -> Policy:
        return self._rules


class Proxy:
    """Everything `app` makes, on a store in memory."""

    def __init__(self, *answers: Answer, policy: Policy | None = None, endless: bool = False, closed: bool = False, **setting: Any) -> None:
        self.clock = Clock()
        self.upstream = ScriptedUpstream(*answers, endless=endless)
        self.telemetry = Recorder()
        self.store = MemoryStore(self.clock, lambda size: b"\x07" * size)
        self.guard = GuardedStore(
            self.store, timeout=0.25, clock=self.clock, on_change=self._changed, fallback_secret=b"\x09" * 32, retry_after=1.0
        )
        new_id = ids()
        self.sessions = Sessions(
            self.guard,
            ttl=3600,
            closed=closed,
            patience=0.25,
            new_id=new_id,
            wall=self.clock,
            on_failure=self.telemetry.emit,
        )
        settings: dict[str, Any] = {
            "tenants": OneRule(policy or Policy()),
            "sessions": self.sessions,
            "bills": Bills(self.guard, ttl=3600, closed=closed, new_id=new_id, on_failure=self.telemetry.emit),
            "ways": [Way("main", self.upstream, lambda dialect, model: model != "unserved")],
            "telemetry": self.telemetry,
            "session_headers": (),
            "max_body": 1 << 20,
            "clock": self.clock,
            "wall": self.clock,
            "new_id": new_id,
        }
        self.setting = Setting(**(settings | setting))
        self.front = Front(lambda: InForce(self.setting))

    def _changed(self, event: StoreChanged) -> None:
        self.telemetry.emit(event)

    async def run(self, conversation: Conversation, path: str = CHAT, *, method: str = "POST", query: bytes = b"", **headers: str) -> None:
        """Takes a conversation to its end. headers: names with `_` for `-`."""
        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": fields,
        }
        await self.front(scope, conversation.receive, conversation.send)

    async def ask(self, body: bytes, path: str = CHAT, *, method: str = "POST", query: bytes = b"", **headers: Any) -> Conversation:
        conversation = Conversation((body,))
        await self.run(conversation, path, method=method, query=query, **headers)
        return conversation

    @property
    def ended(self) -> ExchangeEnded:
        """The one exchange there was."""
        (only,) = self.telemetry.exchanges
        return only

    def ledger(self) -> tuple[int, int, int]:
        """Steps, tokens and live leases of all sessions together."""
        sessions = self.store._sessions.values()
        return (
            sum(session.book.life.steps for session in sessions),
            sum(session.book.life.input + session.book.life.output for session in sessions),
            sum(len(session.book.leases) for session in sessions),
        )
