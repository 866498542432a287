"""How bytes leave for a client: what is written together goes out together.

uvicorn writes a response's head and its body apart, two system calls that each wake the client. Here what is written in one turn of the
event loop leaves in one. Nothing is held any longer than that.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HELD_BYTES = 65_536  # more than this is not worth joining


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol over a `GatheringTransport`; what `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheringTransport(transport, asyncio.get_running_loop()))  # type: ignore[arg-type]


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
        """Hands on what is held."""
        held, self._held, self._size = self._held, [], 0
        if held:
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
