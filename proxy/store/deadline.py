"""How long an answer is waited for, by a process that may be too busy to hear it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.waits import Waits

LONGEST = 5
"""Times the seconds of a deadline: so long may a call take in the end, where the process had no time to listen."""

_TICK = 0.001  # event loops count milliseconds
_LATE = 0.003  # a tick that is later than that was kept waiting by this process's own work
_QUIET = 50  # ticks on time, one after the other: what lay in the sockets has been read then, and what it led to sent and answered

_Answer = TypeVar("_Answer")
_Task = asyncio.Task[Any]


class Deadline:
    """The time that any call has, and then a moment in which this process listened and no call was answered.

    A crowd of requests keeps the event loop busy while answers lie in the sockets, in one piece or in a thousand small ones between which
    a call gets on by a step at a time; and a store that has a crowd before it answers one after the other. That is no silence of the
    store's. So a call whose time is over is given up once the loop has had time for a moment and nobody was answered, and after `LONGEST`
    times its time in any case.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits: Waits[_Task] = Waits(seconds, self._doubt)
        self._doubts: dict[_Task, _Doubt] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # in which calls are made, and whose ticks are counted
        self._ticking = False
        self._next = 0.0

    async def kept(self, call: Awaitable[_Answer]) -> _Answer:
        """The call's answer. Raises `TimeoutError` when it does not come in time. A task waits for one at a time."""
        loop = self._loop
        task = None if loop is None else asyncio.current_task(loop)
        if loop is None or task is None:  # the first call, or the first in another loop
            loop, task = self._begin_in_this_loop()
        cancelling = task.cancelling()
        self._waits.begin(task, loop)
        try:
            answer = await call
        except asyncio.CancelledError as error:
            doubt = self._doubts.get(task)
            if doubt is not None and doubt.over and task.uncancel() <= cancelling:
                raise TimeoutError from error
            raise
        finally:
            self._waits.end(task)
            if self._doubts:
                self._doubts.pop(task, None)
        for other in self._doubts.values() if self._doubts else ():
            other.quiet = 0
        return answer

    def _begin_in_this_loop(self) -> tuple[asyncio.AbstractEventLoop, _Task]:
        self._doubts.clear()
        self._loop, self._ticking = asyncio.get_running_loop(), False
        task = asyncio.current_task(self._loop)
        assert task is not None
        return self._loop, task

    def _doubt(self, task: _Task, late: float) -> None:
        loop = asyncio.get_running_loop()
        self._doubts[task] = _Doubt(loop.time() + (LONGEST - 1) * self._seconds)
        if not self._ticking:
            self._ticking = True
            self._tick_soon(loop)

    def _tick_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = loop.time() + _TICK
        loop.call_at(self._next, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        on_time = now - self._next <= _LATE
        waiting = [(task, doubt) for task, doubt in self._doubts.items() if not doubt.ending]
        for task, doubt in waiting:
            doubt.quiet = doubt.quiet + 1 if on_time else 0
            doubt.ending = doubt.quiet >= _QUIET or now >= doubt.until
            if doubt.ending:  # what has come to its end by the loop's next turn has come in time
                loop.call_soon(self._end, task, doubt)
        self._ticking = bool(waiting)
        if self._ticking:
            self._tick_soon(loop)

    def _end(self, task: _Task, doubt: "_Doubt") -> None:
        if self._doubts.get(task) is doubt:
            doubt.over = True
            task.cancel()


@dataclass(slots=True)
class _Doubt:
    """Of a call whose time is over. until: when it is given up in any case. quiet: ticks on time since then, and since another call was
    answered. ending, over: it is about to be given up, and has been."""

    until: float
    quiet: int = 0
    ending: bool = False
    over: bool = False
