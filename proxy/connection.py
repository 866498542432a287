"""The client's connection: what is written together goes out together, no request head grows without end, no client is waited for so.

uvicorn writes a response's head and its body apart, two system calls that each wake the client. Here what is written in one turn of the
event loop leaves in one. Nothing is held any longer than that. Its parser keeps a request head, or the fields behind a chunked
body, however long they get; here there is an end to that, and those fields are not taken for headers. Nor is any other protocol
begun.

uvicorn also waits for ever: for the rest of a request, and for a client to take its answer. Here each connection is looked at now and
then, which costs a request nothing, and ended when its client has let it wait for longer than `client_timeout`. Whoever moves
`_LEAST_RATE` is not slow, whatever the size.
"""

import asyncio
import re
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

_HELD_BYTES = 65_536  # more than this is not worth joining
_HEAD_BYTES = 65_536
_MOST_QUEUED = 16  # requests sent before the answer to an earlier one; hardly any client sends even one
_MOST_FIELDS = 1000  # of a head
_LEAST_RATE = 500  # bytes a second
_LOOKS = 4  # within one time-out
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 57\r\nconnection: close\r\n\r\nThe request head is larger than 64 KiB: send less in it.\n"
)


_SLOW = (
    b'{"error":{"message":"The rest of the request did not come within server.client_timeout: send it sooner, or raise the limit.",'
    b'"type":"invalid_request_error","code":"lastcall_request_timeout","param":null}}'
)
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
    len(_SLOW),
    _SLOW,
)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol over a `GatheringTransport`; what `uvicorn.Config(http=…)` takes, by way of `functools.partial`.

    client_timeout: seconds that a client may let its connection wait; it is noticed within half as much again.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        client_timeout: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._client_timeout = client_timeout
        self._in_head = True
        self._fruitless = 0  # bytes that neither ended a head nor added to a body
        self._brought = 0  # bytes of the request that is on its way
        self._waiting: tuple[float, int] | None = None  # since when, and where things stood then
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fruitless += len(data)
        self._brought += len(data)
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            if data.find(b"pgrade:", 0, end) >= 0:  # the parser would drop the body; a server may ignore it (RFC 9110 section 7.8)
                data = _UPGRADE.sub(b"", data[:end]) + data[end:]
        super().data_received(data)
        if self._fruitless > _HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:  # else an answer is under way, or about to be
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What follows cannot be read. Within an answer, or before those that are due, there is no place to say so."""
        if self.pipeline or (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        # A request of 20 bytes is kept as a KiB, a field of four as some 200 bytes.
        if len(self.pipeline) >= _MOST_QUEUED or len(self.headers) > _MOST_FIELDS:
            raise OverflowError
        self._fruitless = 0
        self._in_head = False
        super().on_headers_complete()
        self.headers = []  # what comes behind a chunked body is no part of the head (RFC 9110 section 6.5.1)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._brought = 0
        self._waiting = None
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._fruitless = 0
        super().on_body(body)

    def resume_writing(self) -> None:
        self._waiting = None
        super().resume_writing()

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(self._client_timeout / _LOOKS, self._look)

    def _look(self) -> None:
        """Ends a connection that its client has let wait too long."""
        blocked = self.flow.write_paused or self.transport.is_closing()
        if not blocked and not self._owes_request():
            self._waiting = None
        else:
            now = self.loop.time()
            moved = -self.transport.get_write_buffer_size() if blocked else self._brought
            since, before = self._waiting = self._waiting or (now, moved)
            if now - since > self._client_timeout + max(moved - before, 0) / _LEAST_RATE:
                self._give_up(blocked)
                return
        self._look_later()

    def _owes_request(self) -> bool:
        """Whether there is more of a request to come. Between two of them that is `timeout_keep_alive`'s business."""
        if self.flow.read_paused:  # it is the proxy that does not read on
            return False
        if not self._in_head or self.cycle is None:
            return True
        return self._brought > 0 and bool(self.cycle.response_complete)  # before that, line ends behind a body are nothing

    def _give_up(self, blocked: bool) -> None:
        if not blocked and (self._in_head or not self.cycle.response_started):
            if self._brought:  # else it was opened in advance, and whoever uses it next would take this for an answer
                self.transport.write(_TOO_SLOW)
            self.transport.close()
            self._look_later()
        else:
            self.transport.abort()


class GatheringTransport:
    """A transport that gathers the writes of one turn of the loop; in all else the one it is made around."""

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

    def flush(self) -> None:
        """Hands on what is held; a connection lost meanwhile takes it with it."""
        held, self._held, self._size = self._held, [], 0
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
