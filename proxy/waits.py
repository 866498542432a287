"""What may wait for so long and no longer: one timer for all that wait equally long, since a timer for each costs more than their work."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting", bound=Hashable)

_SOON = 0.001  # event loops count milliseconds


class Waits(Generic[Waiting]):
    """Those that wait now. seconds: for how long each may. due: told of one that has, and by how many seconds too late; it waits no more.

    Goes by the running event loop; whatever waited in another one is forgotten.
    """

    __slots__ = ("_due", "_loop", "_seconds", "_timer", "_waiting")

    def __init__(self, seconds: float, due: Callable[[Waiting, float], object]) -> None:
        self._seconds = seconds
        self._due = due
        self._waiting: dict[Waiting, float] = {}  # until when, the soonest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, one: Waiting) -> None:
        """It waits from now on; one that did so already begins anew."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._waiting.clear()
            self._loop, self._timer = loop, None
        self._waiting.pop(one, None)
        self._waiting[one] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def end(self, one: Waiting) -> None:
        """It waits no more, if it did."""
        self._waiting.pop(one, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        try:
            while self._waiting:
                one, until = next(iter(self._waiting.items()))
                if until > now:
                    break
                del self._waiting[one]
                self._due(one, now - until)
        finally:  # not before: one that begins anew in between is not the next
            soonest = next(iter(self._waiting.values()), None)
            self._timer = None if soonest is None else loop.call_later(max(soonest - now, _SOON), self._look, loop)
