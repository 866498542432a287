"""The client's side of an exchange: its headers, its body, what it is sent, and noticing that it has gone. Plain ASGI."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from types import TracebackType
from typing import Any

from proxy.asgi import Message, Receive, Scope, Send
from proxy.codings import CODINGS, CodingError, Decoder
from proxy.errors import BadRequest
from proxy.waits import Waits

Fields = Iterable[tuple[bytes, bytes]]

_UNWATCHED_SECONDS = 0.02  # quicker exchanges are over before a client could leave; watching costs a task
_MOST_NAMES = 256  # of fields, remembered: clients send the same few with every request
_MOST_CODINGS = 2  # each one is a pass over the whole body
_MOST_PIECES = 64  # that data of one coding may consist of


class ClientGone(Exception):
    """The client closed its connection before it had its answer."""


class Client:
    """One request and the way back. `status` is what was sent, None before anything was; `ended`: so was the last byte.

    unwatched: what it shares with the other clients of a server.
    """

    __slots__ = (
        "_gathered",
        "_head",
        "_more",
        "_receive",
        "_send",
        "_task",
        "_unwatched",
        "_watch",
        "ended",
        "fields",
        "gone",
        "headers",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, unwatched: "Waits[Client] | None" = None) -> None:
        self.fields: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = {_name(name): value.decode("latin-1") for name, value in reversed(self.fields)}
        self.status: int | None = None
        self.gone = False
        self.ended = False
        self._more = True
        # HTTP/1.0 knows no chunks: an answer whose length nobody states is gathered and sent with it.
        self._gathered: list[bytes] | None = [] if scope.get("http_version") == "1.0" else None
        self._receive = receive
        self._send = send
        self._head: Message = {}
        self._unwatched = unwatched or unwatched_clients()
        self._watch: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None

    async def body(self, limit: int) -> bytes:
        """The whole body, decoded. Raises `BadRequest` (413, 415, 400) or `ClientGone`. limit: bytes, before and after decoding."""
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
        self._task = asyncio.current_task()
        self._unwatched.begin(self)
        return self

    def begin_watching(self) -> None:
        """From now on it is noticed when the client leaves."""
        self._watch = asyncio.create_task(self._notice())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unwatched.end(self)
        if self._watch is not None:
            self._watch.cancel()
        if self.gone and kind is asyncio.CancelledError and self._task is not None and self._task.uncancel() <= 0:
            raise ClientGone from None

    async def _notice(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.ended:  # a server says so too once the response is complete
            return
        self.gone = True
        if self._task is not None:
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
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.ended = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


@lru_cache(_MOST_NAMES)
def _name(name: bytes) -> str:
    return name.decode("latin-1").lower()


def unwatched_clients() -> Waits[Client]:
    """Those whose exchanges have just begun: of most it need not be noticed when they leave."""
    return Waits(_UNWATCHED_SECONDS, lambda client, _: client.begin_watching())


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
