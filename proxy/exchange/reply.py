"""The way back to the client: one response, whole or streamed, with Lastcall's own header fields."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from proxy.client import Client, Fields

T = TypeVar("T")

KEEP_ALIVE_SECONDS = 10.0  # clients' idle watchdogs begin at a minute
FREE_STATUS_SECONDS = 50.0  # for which a status may wait for a decision
ANSWER_SECONDS = 540.0  # clients' libraries give up on an answer after ten minutes, and ask again


class Reply:
    """One response. keep_alive: bytes that a client ignores in a stream. fields: Lastcall's own, asked for when the header goes out."""

    first_byte: float | None = None
    _opening: tuple[int, Fields] | None = None
    _yields = False

    def __init__(self, client: Client, keep_alive: bytes, clock: Callable[[], float], fields: Callable[[], Fields]) -> None:
        self._client = client
        self._keep_alive_bytes = keep_alive
        self._clock = clock
        self._fields = fields
        self._began = self._written = clock()

    @property
    def status(self) -> int | None:
        """The HTTP status sent, None while it is still free."""
        return self._client.status

    def prepare(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> None:
        """Says how a stream begins; sent with its first bytes, or by `open`. The first word stands."""
        if self._opening is None:
            self._opening = (status, fields)

    async def open(self) -> None:
        """Sends status and header of a stream, once."""
        if self._opening is not None:
            (status, fields), self._opening = self._opening, None
            await self._client.start(status, [*fields, *self._fields()])

    def let_begin(self) -> None:
        """What was begun beside goes first, as far as it comes without waiting, before any more bytes."""
        self._yields = True

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Sends a piece of a stream; the last one with more=False."""
        if self._yields:
            await self._yield()
        if self._opening is not None:
            await self.open()
        self._written = self._clock()
        if self.first_byte is None:
            self.first_byte = self._written
        await self._client.write(data, more=more)

    async def whole(self, status: int, fields: Fields, body: bytes) -> None:
        """Sends a complete response."""
        if self._yields:
            await self._yield()
        if self.first_byte is None:
            self.first_byte = self._clock()
        await self._client.whole(status, [*fields, *self._fields()], body)

    async def _yield(self) -> None:
        self._yields = False
        await asyncio.sleep(0)

    def _keep_alive_due(self) -> float:
        """In how many seconds the client should hear something: what came and is held does not put that off."""
        return self._written + KEEP_ALIVE_SECONDS - self._clock()

    async def _keep_alive(self) -> None:
        """Lets a client that waits in a stream know that there is more to come. One that has had no status is not made to wait for ever."""
        self._written = self._clock()
        if self.status is None and self._written - self._began >= FREE_STATUS_SECONDS:
            await self.open()
        if self.status is not None:
            await self._client.write(self._keep_alive_bytes)

    async def outlast(self, work: Awaitable[T]) -> T:
        """What the work comes to; a client in a stream hears something meanwhile. Cancelled with the caller."""
        coming = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({coming}, timeout=max(self._keep_alive_due(), 0)))[0]:
                await self._keep_alive()
        finally:
            coming.cancel()
        return coming.result()

    async def outlast_own(self, work: Awaitable[T]) -> T | None:
        """The same of work that the client did not ask for; None when that takes longer than clients wait for an answer."""
        left = self._began + ANSWER_SECONDS - self._clock()
        try:
            async with asyncio.timeout(max(left, 0)) as limit:
                return await self.outlast(work)
        except TimeoutError:
            if not limit.expired():
                raise
            return None
