"""The client's connection: what is written together goes out together, and no request head grows without end.

uvicorn writes a response's head and its body apart, two system calls that each wake the client. Here what is written in one turn of the
event loop leaves in one. Nothing is held any longer than that. Its parser keeps a request head, or the fields behind a chunked
body, however long they get; here there is an end to that, and those fields are not taken for headers. Nor is any other protocol
begun.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HELD_BYTES = 65_536  # more than this is not worth joining
_HEAD_BYTES = 65_536
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 57\r\nconnection: close\r\n\r\nThe request head is larger than 64 KiB: send less in it.\n"
)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol over a `GatheringTransport`; what `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._fruitless = 0  # bytes that neither ended a head nor added to a body
        self._in_head = True
        super().connection_made(GatheringTransport(transport, asyncio.get_running_loop()))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._fruitless += len(data)
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            if data.find(b"pgrade:", 0, end) >= 0:  # the parser would drop the body; a server may ignore it (RFC 9110 section 7.8)
                data = _UPGRADE.sub(b"", data[:end]) + data[end:]
        super().data_received(data)
        if self._fruitless > _HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:  # else an answer is under way, or about to be
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._fruitless = 0
        self._in_head = False
        super().on_headers_complete()
        self.headers = []  # what comes behind a chunked body is no part of the head (RFC 9110 section 6.5.1)

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._fruitless = 0
        super().on_body(body)


class GatheringTransport:
    """A transport that gathers the writes of one turn of the loop; in all else the one it is made around."""

    __slots__ = ("_held", "_loop", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
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
