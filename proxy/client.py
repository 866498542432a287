"""The client's side of an exchange: its headers, its body, what it is sent, and noticing that it has gone.

Plain ASGI; what the server can do at once (`proxy.asgi`), as Lastcall's own can, is not asked for in messages.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from proxy.asgi import EXTENSION, Cycle, Message, Receive, Scope, Send
from proxy.codings import CODINGS, CodingError, Decoder
from proxy.errors import BadRequest

Fields = Iterable[tuple[bytes, bytes]]

_MOST_CODINGS = 2  # each one is a pass over the whole body
_MOST_PIECES = 64  # that data of one coding may consist of


class ClientGone(Exception):
    """The client closed its connection before it had its answer."""


class Client:
    """One request and the way back. `status` is what was sent, None before anything was; `ended`: so was the last byte."""

    status: int | None = None
    gone = False
    ended = False
    _more = True
    _head: Message  # of an answer that is gathered
    _watch: asyncio.Task[None] | None = None
    _task: asyncio.Task[Any] | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.fields: list[tuple[bytes, bytes]] = scope["headers"]
        self._cycle: Cycle | None = scope.get("extensions", {}).get(EXTENSION)
        self.headers: Mapping[str, str] = _texts(self.fields) if self._cycle is None else self._cycle.headers
        # HTTP/1.0 knows no chunks: an answer whose length nobody states is gathered and sent with it.
        self._gathered: list[bytes] | None = [] if scope.get("http_version") == "1.0" else None
        self._receive = receive
        self._send = send

    async def body(self, limit: int) -> bytes:
        """The whole body, decoded. Raises `BadRequest` (413, 415, 400) or `ClientGone`. limit: bytes, before and after decoding."""
        body = None if self._cycle is None else self._cycle.at_once()
        if body is not None:
            self._more = False
        else:
            declared = self.headers.get("content-length", "")
            if declared.isdecimal() and int(declared[:20]) > limit:
                raise _too_large(limit)
            body = await self._piece()
        if self._more or len(body) > limit:
            body = await self._rest(body, limit)
        coding = self.headers.get("content-encoding")
        return body if coding is None else _decoded(body, coding, limit)

    async def _rest(self, start: bytes, limit: int) -> bytes:
        pieces = [start]
        size = len(start)
        while size <= limit and self._more:
            pieces.append(await self._piece())
            size += len(pieces[-1])
        if size > limit:
            raise _too_large(limit)
        return b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives, undecoded. Raises `ClientGone`."""
        while self._more:
            piece = await self._piece()
            if piece:
                yield piece

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
            raise ClientGone
        self._more = message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    # While the body has been read, `receive` only ever reports that the client left: used as a context, this cancels the block
    # then and raises `ClientGone` at its end, in the way of `asyncio.timeout`.

    def __enter__(self) -> "Client":
        self._task = (None if self._cycle is None else self._cycle.task) or asyncio.current_task()
        if self._cycle is None or self._more:  # what is left of a body stands before the news that its client left
            self._watch = asyncio.create_task(self._notice())
        else:
            self._cycle.on_loss = self._leave
            if self._cycle.disconnected:  # in the loop's next turn: a block in which nothing is awaited ends before
                asyncio.get_running_loop().call_soon(self._leave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._watch is not None:
            self._watch.cancel()
        if self._cycle is not None:
            self._cycle.on_loss = None
        if self.gone and kind is asyncio.CancelledError and task is not None and task.uncancel() <= 0:
            raise ClientGone from None

    async def _notice(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self.ended:  # a server says so too once the response is complete
            return
        if self._task is not None:
            self.gone = True
            self._task.cancel()

    async def start(self, status: int, fields: Fields) -> None:
        """Sends status and header; the body follows by `write`."""
        self.status = status
        headers = list(fields)
        head: Message = {"type": "http.response.start", "status": status, "headers": headers}
        if self._gathered is None or status in (204, 304) or any(name == b"content-length" for name, _ in headers):
            self._gathered = None
            await self._send(head)
        else:
            self._head = head

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Sends a piece of the body; the last one with more=False."""
        if self._gathered is not None:
            self._gathered.append(data)
            if more:
                return
            data, self._gathered = b"".join(self._gathered), None
            self._head["headers"].append((b"content-length", b"%d" % len(data)))
            await self._send(self._head)
        self.ended = not more
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def whole(self, status: int, fields: Fields, body: bytes) -> None:
        """Sends a complete response."""
        self.status = status
        self._gathered = None
        headers = [*fields, (b"content-length", b"%d" % len(body))]
        if self._cycle is not None and self._cycle.whole(status, headers, body):
            self.ended = True
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.ended = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _texts(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(fields)}


def _too_large(limit: int) -> BadRequest:
    return BadRequest(
        f"the request body is larger than {limit} bytes, the limit server.max_body sets; send less or raise it",
        status=413,
        code="lastcall_body_too_large",
    )


def _decoded(body: bytes, coding: str, limit: int) -> bytes:
    names = [name for part in coding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if len(names) > _MOST_CODINGS:
        raise BadRequest(
            f"content-encoding names {len(names)} codings; use one, or {_MOST_CODINGS} at most", status=415, code="lastcall_bad_encoding"
        )
    for name in reversed(names):
        if name not in CODINGS:
            raise BadRequest(
                f"content-encoding {name[:40]!r} is not understood; use gzip, deflate, zstd or none",
                status=415,
                code="lastcall_bad_encoding",
            )
        body = _undone(body, name, limit)
    return body


def _undone(body: bytes, coding: str, limit: int) -> bytes:
    decoder = Decoder(coding, _MOST_PIECES)
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in decoder.feed(body):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
        decoder.end()
    except CodingError as error:
        raise BadRequest(f"the request body is {error}") from error
    return b"".join(pieces)
