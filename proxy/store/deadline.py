"""How long an answer is waited for, by a process that may be too busy to hear it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

_BUSY_SECONDS = 0.02  # a timer that is later than that was kept waiting by this process's own work
_MOST_PUT_OFF = 4


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Raises `TimeoutError` after that long, in which this process had the time to hear an answer.

    A crowd of requests can keep the event loop busy for longer than a deadline while answers lie in the sockets: that is no silence of the
    store's. A deadline that is looked at too late is therefore put off by as much, a few times at most.
    """
    loop = asyncio.get_running_loop()
    waiting: asyncio.TimerHandle

    def look(put_off: int) -> None:
        nonlocal waiting
        late = loop.time() - waiting.when()
        if late > _BUSY_SECONDS and put_off < _MOST_PUT_OFF:
            waiting = loop.call_later(min(late, seconds), look, put_off + 1)
        else:
            scope.reschedule(loop.time())

    async with asyncio.timeout(None) as scope:
        waiting = loop.call_later(seconds, look, 0)
        try:
            yield
        finally:
            waiting.cancel()
