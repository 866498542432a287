"""One request on a client's connection and the response to it, as ASGI has them: what has come is received, what is sent leaves.

uvicorn's own does this for any application and on any terms, and every request pays for that: it copies a body twice more than it must,
looks at each field of a response some six times, and makes objects that few requests have a use for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[object]]

EXTENSION = "lastcall"
"""The name by which a scope has its `Cycle`: what it can do at once takes ASGI several messages and tasks."""

_HELD_BYTES = 65_536  # more than this is not worth joining
_LENGTH = b"\r\ncontent-length: "
_FAULT = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21")]
_log = logging.getLogger("uvicorn.error")


class GatheringTransport:
    """A transport that gathers the writes of one turn of the loop; in all else the one it is made around.

    Those of all connections leave one after the other at its end, which takes the system less time than each by itself: whoever is waiting
    for several of them is woken once.
    """

    __slots__ = ("_held", "_loop", "_size", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # asked for by every response
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > _HELD_BYTES:
            self.flush()

    def write_last(self, data: bytes) -> None:
        """Writes at once what nothing follows in this turn, and what is held."""
        if self._held:
            self._held.append(data)
            self.flush()
        elif not self.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        """Hands on what is held; a connection lost meanwhile takes it with it."""
        held, self._held, self._size = self._held, [], 0
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Cycle:
    """One request and its response. The pieces of the request's body wait here until they are received.

    keep_alive: whether the connection is of use afterwards. headers: of the request, as text. on_response: told when the last byte of the
    response is on its way; on_loss: when the connection is lost before that. task: in which the application answers, once it does.
    """

    keep_alive = False
    headers: Mapping[str, str] = {}
    on_loss: Callable[[], object] | None = None
    task: asyncio.Task[None] | None = None
    disconnected = False
    response_started = False
    response_complete = False
    _size = 0  # of the pieces, in bytes
    _came_whole = False
    _news = False  # whether there is anything to receive
    _notice: asyncio.Event | None = None  # for whoever had to wait for some
    _bidden = False  # whether the client was told, if it wants to be, to go on
    _tasks: Collection[asyncio.Task[None]] = ()  # those under way, its own among them
    _left: int | None = 0  # bytes of the response's body to come, None where they come in chunks

    def __init__(self, scope: Scope, transport: GatheringTransport, flow: FlowControl, on_response: Callable[[], None]) -> None:
        # Not the scope, which leads back to this.
        self._fields = scope["headers"]
        self._bodiless = scope["method"] == "HEAD"
        self._transport = transport
        self._flow = flow
        self._on_response = on_response
        self._pieces: list[bytes] = []

    def begin(self, app: App, scope: Scope, tasks: set[asyncio.Task[None]], loop: asyncio.AbstractEventLoop) -> None:
        """Has the application answer, in a task. tasks: those under way, of which it is one until its end."""
        self.task = task = loop.create_task(self._run(app, scope, tasks))
        self._tasks = tasks
        tasks.add(task)

    async def _run(self, app: App, scope: Scope, tasks: set[asyncio.Task[None]]) -> None:
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the connection needs its end
            _log.error("Exception in ASGI application\n", exc_info=error)
            await self._fail()
        else:
            if not (self.response_complete or self.disconnected):
                _log.error("ASGI callable returned without %s response.", "completing" if self.response_started else "starting")
                await self._fail()
        finally:
            tasks.discard(self.task)  # here, since a callback of the task costs a turn of the loop

    async def _fail(self) -> None:
        if self.response_started:
            self._transport.close()
            return
        self.keep_alive = False
        await self.send({"type": "http.response.start", "status": 500, "headers": _FAULT})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    # ---- the request

    def add(self, piece: bytes) -> None:
        """A piece of the body has come."""
        if self.response_complete:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        self._tell()

    def complete(self) -> None:
        """The body is whole."""
        self._came_whole = True
        self._tell()

    def lose(self) -> None:
        """The connection is gone."""
        self.disconnected = not self.response_complete
        if self.disconnected and self.on_loss is not None:
            self.on_loss()
        self._tell()

    def _tell(self) -> None:
        self._news = True
        if self._notice is not None:
            self._notice.set()

    def at_once(self) -> bytes | None:
        """The whole body, where all of it is here and nothing of it was received; None otherwise."""
        if not self._came_whole or not self._pieces or self.disconnected:
            return None
        self._news = False
        self._flow.resume_reading()  # else it would not be seen that the client leaves
        return self._taken()

    def _taken(self) -> bytes:
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def receive(self) -> Message:
        if not (self.disconnected or self.response_complete):
            self._flow.resume_reading()
            if not self._news:
                await self._some_news()
            self._news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._taken(), "more_body": not self._came_whole}

    async def _some_news(self) -> None:
        if not (self._bidden or self._came_whole or self.response_started):
            self._bidden = True
            if any([name == b"expect" and value.lower() == b"100-continue" for name, value in self._fields]):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # whose body comes unbidden needs none (RFC 9110 section 10.1.1)
        if self._notice is None:
            self._notice = asyncio.Event()
        self._notice.clear()
        await self._notice.wait()

    # ---- the response

    async def send(self, message: Message) -> None:
        """Raises `RuntimeError` for what is no response, or one that no client could tell from another."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            status: int = message["status"]
            self._transport.write(self._framed(status, self._begun(status, message.get("headers", ()))))
        elif kind == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"the ASGI message {kind!r} is not due")

    def whole(self, status: int, fields: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Sends a complete response, its length among the fields; False where that has to wait, or is not due."""
        if self._flow.write_paused or self.disconnected or self.response_started:
            return False
        self._end(self._begun(status, fields) + (b"\r\n" if self._bodiless else b"\r\n" + body))
        return True

    def _begun(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The head's lines. fields: names in lower case; none about the connection or the coding in which a body is transferred."""
        lines = [*map(b": ".join, fields), b""]
        together = b"".join(lines)
        if b"\r" in together or b"\n" in together:
            raise RuntimeError("a header field has a line break in it")
        self.response_started = True
        return STATUS_LINE[status] + b"\r\n".join(lines) + (b"" if self.keep_alive else b"connection: close\r\n")

    def _framed(self, status: int, head: bytes) -> bytes:
        """The whole head, which says where the body ends."""
        length = head.find(_LENGTH)
        if length >= 0:
            length += len(_LENGTH)
            self._left = int(head[length : head.index(b"\r", length)])
        elif not self._bodiless and status not in (204, 304):
            self._left = None
            head += b"transfer-encoding: chunked\r\n"
        return head + b"\r\n"

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self._bodiless:
            body, self._left = b"", 0
        elif self._left is None:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("a response is not as long as its content-length")
        if more:
            self._transport.write(body)
            return
        self._end(body)

    def _end(self, data: bytes) -> None:
        self.response_complete = True
        if self._notice is not None:
            self._notice.set()
        if len(self._tasks) > 1:  # others may have something to write in this turn
            self._transport.write(data)
        else:
            self._transport.write_last(data)
        if not self.keep_alive:
            self._transport.close()
        self._on_response()
