"""How long an answer is waited for, by a process that may be too busy to hear it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from proxy.waits import Waits

_BUSY_SECONDS = 0.02  # a timer that is later than that was kept waiting by this process's own work
_MOST_PUT_OFF = 4

_Answer = TypeVar("_Answer")


class Deadline:
    """The time that any call has, in which this process had the time to hear an answer.

    A crowd of requests can keep the event loop busy for longer than that while answers lie in the sockets: that is no silence of the
    store's. A deadline that is looked at too late is therefore put off, a few times at most.
    """

    def __init__(self, seconds: float) -> None:
        self._waits = Waits(seconds, _look)

    async def kept(self, call: Awaitable[_Answer]) -> _Answer:
        """The call's answer. Raises `TimeoutError` when it does not come in time."""
        async with asyncio.timeout(None) as scope:
            waiting = _Waiting(self._waits, scope)
            self._waits.begin(waiting)
            try:
                return await call
            finally:
                self._waits.end(waiting)


class _Waiting:
    """A call under way, and how often its deadline was put off."""

    __slots__ = ("among", "put_off", "scope")

    def __init__(self, among: "Waits[_Waiting]", scope: asyncio.Timeout) -> None:
        self.among = among
        self.scope = scope
        self.put_off = 0


def _look(waiting: _Waiting, late: float) -> None:
    if late > _BUSY_SECONDS and waiting.put_off < _MOST_PUT_OFF:
        waiting.put_off += 1
        waiting.among.begin(waiting)
    else:
        waiting.scope.reschedule(asyncio.get_running_loop().time())
