"""What may wait for so long and no longer, or must wait for its turn, at less cost than the work that is waited for.

One timer serves all that wait equally long. What asyncio has for a time-out and for a number of turns takes many times as long.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, Self, TypeVar

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

    def begin(self, one: Waiting, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """It waits from now on; one that did so already begins anew.

        loop: the running one, where it is at hand: to ask for it is a system call.
        """
        loop = loop or asyncio.get_running_loop()
        if loop is not self._loop:
            self._waiting.clear()
            self._loop, self._timer = loop, None
        if one in self._waiting:
            del self._waiting[one]
        self._waiting[one] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def end(self, one: Waiting) -> None:
        """It waits no more, if it did."""
        self._waiting.pop(one, None)

    def take(self) -> Waiting | None:
        """The one that has waited longest, and waits no more; None where none waits."""
        for one in self._waiting:
            del self._waiting[one]
            return one
        return None

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


class Limit:
    """A block that can be told that its time is over: it is cancelled then, and ends with `TimeoutError`, as under `asyncio.timeout`.

    Used as a context once, within a task.
    """

    _task: asyncio.Task[object] | None = None
    _cancelling = 0
    _over = False

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task()
        if task is not None:
            self._cancelling = task.cancelling()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._over and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """The time is over. What has come to its end by the loop's next turn has come in time."""
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        if self._task is not None and not self._over:
            self._over = True
            self._task.cancel()


class Turns:
    """So many at once, and the others one after the other. most: how many."""

    __slots__ = ("_ahead", "_free", "_waiting")

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ahead: deque[asyncio.Future[None]] = deque()

    def take_free(self) -> bool:
        """Takes a turn if there is one for which nobody waits; whether there was."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self, *, ahead: bool = False) -> None:
        """Returns when it is the caller's turn, which lasts until it calls `give`. ahead: before all that wait without it."""
        if self.take_free():
            return
        turn = asyncio.get_running_loop().create_future()
        (self._ahead if ahead else self._waiting).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()  # it had come meanwhile, and is somebody else's now
            raise

    def give(self) -> None:
        """A turn is over: the next one's."""
        while waiting := self._ahead or self._waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
