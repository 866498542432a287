"""A model endpoint that keeps what it was asked and what it sent, to the byte, and answers as a test says.

A test gives it a `Model`: a function from what was asked to a `Reply`. `looping`, `saying` and `reply` make the usual ones.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Asked:
    """One request as it arrived. target: path and query, as sent."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def nudges(self) -> int:
        return self.body.count(b"[lastcall] ")

    @property
    def tools_off(self) -> bool:
        return bool(self.json.get("tool_choice") == "none")

    @property
    def turn(self) -> int:
        """How many assistant messages the history holds."""
        return sum(message["role"] == "assistant" for message in self.json["messages"])

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


class Cut(Exception):
    """Raised by the pieces of a reply where the connection is to break."""


@dataclass(frozen=True)
class Reply:
    """What is sent: a whole body, or pieces as they come."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


Model = Callable[[Asked], Reply]


@dataclass(frozen=True)
class Says:
    """An assistant message. calls: (name, arguments as text)."""

    text: str | None = None
    calls: tuple[tuple[str, str], ...] = ()


READ_A = Says(calls=(("read_file", '{"path": "a.txt"}'),))
DONE = Says("a.txt holds one line.")
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, "vendor_tokens": 1}
STREAM = (("Content-Type", "text/event-stream; charset=utf-8"), ("X-Request-Id", "req-7"))
WHOLE = (("Content-Type", "application/json"), ("X-Request-Id", "req-7"))


def looping(turn: Callable[[Asked], Says] = lambda _: READ_A, concluding: Says = DONE) -> Model:
    """A model that says what `turn` tells, and `concluding` once it may call no tool."""
    return lambda asked: saying(concluding if asked.tools_off else turn(asked), asked)


def saying(says: Says, asked: Asked) -> Reply:
    """A completion, streamed if that was asked for."""
    if asked.json.get("stream"):
        return Reply(pieces(chunks(says, asked)), headers=STREAM)
    return Reply(completion(says), headers=WHOLE)


def completion(says: Says) -> bytes:
    """A whole answer, laid out as no serialiser of Lastcall's would, with members nobody knows."""
    message: dict[str, Any] = {"role": "assistant", "content": says.text, "reasoning_content": "é…"}
    if says.calls:
        message["tool_calls"] = [_call(name, arguments) for name, arguments in says.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if says.calls else "stop"}
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": 1700000000, "model": "gpt-4o-2024"}
    return json.dumps(head | {"vendor": {"x": [1.50]}, "choices": [choice], "usage": USAGE}, indent=1).encode()


def chunks(says: Says, asked: Asked) -> list[bytes]:
    """The same as events, in small pieces; usage when it was asked for."""
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk", "created": 1700000000, "model": "gpt-4o-2024"}

    def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: " + json.dumps(head | {"choices": choices, "vendor": "ü", **more}).encode() + b"\n\n"

    events = [b": hello\n\n", event({"role": "assistant", "content": ""})]
    events += [event({"content": word + " "}) for word in (says.text or "").split()]
    for index, (name, arguments) in enumerate(says.calls):
        call = _call(name, "")
        events.append(event({"tool_calls": [{"index": index, **call}]}))
        events += [
            event({"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 7]}}]})
            for at in range(0, len(arguments), 7)
        ]
    events.append(event({}, "tool_calls" if says.calls else "stop"))
    if (asked.json.get("stream_options") or {}).get("include_usage"):
        events.append(event(None, usage=USAGE))
    return [*events, b"data: [DONE]\n\n"]


async def pieces(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Parts that are all there at once."""
    for part in parts:
        yield part


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{uuid.uuid4().hex[:16]}", "type": "function", "function": {"name": name, "arguments": arguments}}


def halting(go_on: asyncio.Event, says: Says = DONE) -> Model:
    """A model whose stream stops after its first three events until it may go on."""

    async def waiting(asked: Asked) -> AsyncIterator[bytes]:
        parts = chunks(says, asked)
        yield b"".join(parts[:3])
        await go_on.wait()
        yield b"".join(parts[3:])

    return lambda asked: Reply(waiting(asked), headers=STREAM)


@dataclass
class Upstream:
    """The endpoint. asked: every request; sent: the body bytes of every answer, in the same order.

    broken_off: requests whose caller left before the answer's end.
    """

    model: Model = field(default_factory=looping)
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    broken_off: list[Asked] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], object], within: float = 10.0) -> None:
        """Waits for something that a request or a hang-up brings about."""
        async with asyncio.timeout(within):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = [(name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in request.raw_headers]
        asked = Asked(request.method, request.raw_path, headers, body)
        number = len(self.asked)
        self.asked.append(asked)
        self.sent.append(b"")
        self._changed.set()
        try:
            return await self._answer(request, self.model(asked), number)
        except (asyncio.CancelledError, ConnectionError):
            self.broken_off.append(asked)
            raise
        finally:
            self._changed.set()

    async def _answer(self, request: web.BaseRequest, reply: Reply, number: int) -> web.StreamResponse:
        if isinstance(reply.body, bytes):
            self.sent[number] = reply.body
            return web.Response(body=reply.body, status=reply.status, headers=reply.headers)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        try:
            async for piece in reply.body:
                self.sent[number] += piece
                await response.write(piece)
        except Cut:
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response


@asynccontextmanager
async def upstream_running(model: Model | None = None) -> AsyncIterator[Upstream]:
    """The endpoint on a free loopback port."""
    upstream = Upstream(model or looping())
    runner = web.ServerRunner(web.Server(upstream, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield upstream
    finally:
        await runner.cleanup()
