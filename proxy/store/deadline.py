"""How long an answer is waited for, by a process that may be too busy to hear it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from proxy.waits import Limit, Waits

LONGEST = 5
"""Times the seconds of a deadline: so long may a call take in the end, where the process had no time to listen."""

_TICK = 0.001  # event loops count milliseconds
_LATE = 0.003  # a tick that is later than that was kept waiting by this process's own work
_QUIET = 50  # ticks on time, one after the other: what lay in the sockets has been read then, and what it led to sent and answered

_Answer = TypeVar("_Answer")


class Deadline:
    """The time that any call has, and then a moment in which this process listened and no call was answered.

    A crowd of requests keeps the event loop busy while answers lie in the sockets, in one piece or in a thousand small ones between which
    a call gets on by a step at a time; and a store that has a crowd before it answers one after the other. That is no silence of the
    store's. So a call whose time is over is given up once the loop has had time for a moment and nobody was answered, and after `LONGEST`
    times its time in any case.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits = Waits(seconds, self._doubt)
        self._doubted: set[_Waiting] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # whose ticks are counted
        self._ticking = False
        self._next = 0.0

    async def kept(self, call: Awaitable[_Answer]) -> _Answer:
        """The call's answer. Raises `TimeoutError` when it does not come in time."""
        with _Waiting() as waiting:
            self._waits.begin(waiting)
            try:
                answer = await call
            finally:
                self._waits.end(waiting)
                self._doubted.discard(waiting)
            for other in self._doubted:
                other.quiet = 0
            return answer

    def _doubt(self, waiting: "_Waiting", late: float) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._doubted.clear()
            self._loop, self._ticking = loop, False
        waiting.until = loop.time() + (LONGEST - 1) * self._seconds
        self._doubted.add(waiting)
        if not self._ticking:
            self._ticking = True
            self._tick_soon(loop)

    def _tick_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = loop.time() + _TICK
        loop.call_at(self._next, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        on_time = now - self._next <= _LATE
        for waiting in list(self._doubted):
            waiting.quiet = waiting.quiet + 1 if on_time else 0
            if waiting.quiet >= _QUIET or now >= waiting.until:
                self._doubted.discard(waiting)
                waiting.end()
        self._ticking = bool(self._doubted)
        if self._ticking:
            self._tick_soon(loop)


class _Waiting(Limit):
    """A call under way. until: when it is given up in any case, once its time is over. quiet: ticks on time since then,
    and since another call was answered."""

    until = 0.0
    quiet = 0
