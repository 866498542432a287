"""Calls that wait for room: what others hold of a budget is mostly given back when they end, and then those that wait can go on.

One queue for each ceiling that is in the way, of a session, of one above it or of a team. Its first is asked for again as soon as a call of
this process that holds of it has ended, and now and then, since others end too and leases run out; those behind it as long as they are
granted, or are smaller than whoever was not. So room is found at once, and a crowd costs the store a few calls, however large it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from proxy.errors import StoreUnavailable
from proxy.store import Ceiling, Opened, Reservation

PATIENCE = 10.0  # seconds that a call waits at most: well under any client's time-out
LOOK_SECONDS = 0.25  # between two looks for what nobody here was told of
MOST_WAITING = 1_000  # calls of a process: the bodies of so many are in memory

_Place = tuple[bytes, str, str]  # a ledger, the unit and the window of a ceiling


class _Waiting:
    """A call. need: the least that it takes of the ceiling. until: on the event loop's clock."""

    __slots__ = ("answer", "asked", "need", "session", "until")

    def __init__(self, session: bytes, asked: Reservation, until: float) -> None:
        self.session = session
        self.asked = asked
        self.until = until
        self.need = 0
        self.answer: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()


class _Queue:
    """Those that wait for one ceiling, in their order. stirred: something of it has come free."""

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.stirred = asyncio.Event()
        self.work: asyncio.Task[None] | None = None


class Room:
    """All of a process. ask: reserves in the store; give_back: ends a reservation that nobody wants any more, and never raises."""

    def __init__(
        self,
        ask: Callable[[bytes, Reservation], Awaitable[Opened]],
        give_back: Callable[[bytes, Reservation], Awaitable[object]],
        *,
        patience: float = PATIENCE,
        look: float = LOOK_SECONDS,
    ) -> None:
        self._ask = ask
        self._give_back = give_back
        self._patience = patience
        self._look = look
        self._waiting = 0
        self._queues: dict[bytes, dict[_Place, _Queue]] = {}  # by ledger

    async def wait(
        self, session: bytes, asked: Reservation, opened: Opened, within: AbstractContextManager[object], waited: float = 0.0
    ) -> Opened:
        """The answer to a call that was refused for what others hold: granted, or why not. within: what ends the wait before its time;
        it may be granted all the same. waited: seconds that the call has waited already.

        Raises `StoreUnavailable`. Not longer than the session's own time.
        """
        patience = self._patience - waited
        if opened.ends_at is not None:
            patience = min(patience, opened.ends_at - opened.now)
        if self._waiting >= MOST_WAITING:
            patience = 0.0
        one = _Waiting(session, asked, asyncio.get_running_loop().time() + patience)
        if patience <= 0:
            return await self._ask(session, _at_once(asked))
        self._waiting += 1
        try:
            self._put(one, opened)
            with within:
                return await one.answer
        finally:
            self._waiting -= 1

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for any."""
        return bool(self._queues)

    def stir(self, ledgers: Iterable[bytes]) -> None:
        """Something of these was given back."""
        for ledger in ledgers:
            for queue in self._queues.get(ledger, {}).values():
                queue.stirred.set()

    def close(self) -> None:
        """Nobody waits any more."""
        for queue in [queue for queues in self._queues.values() for queue in queues.values()]:
            if queue.work is not None:
                queue.work.cancel()
            for one in queue.waiting:
                one.answer.cancel()
        self._queues.clear()

    def _put(self, one: _Waiting, opened: Opened) -> None:
        """To the end of the queue for what refused it."""
        place = self._place(one, opened)
        queues = self._queues.setdefault(place[0], {})
        queue = queues.get(place)
        if queue is None:
            queue = queues[place] = _Queue()
            queue.work = asyncio.create_task(self._serve(place, queue))
        queue.waiting.append(one)

    @staticmethod
    def _place(one: _Waiting, opened: Opened) -> _Place:
        refused = opened.refused
        assert refused is not None and refused.ceiling is not None
        one.need = refused.need
        ceiling: Ceiling = refused.ceiling
        ledger = one.session if refused.account < 0 else one.asked.accounts[refused.account].key
        return ledger, ceiling.unit, ceiling.window

    async def _serve(self, place: _Place, queue: _Queue) -> None:
        """Until nobody waits there any more."""
        loop = asyncio.get_running_loop()
        try:
            while queue.waiting:
                soonest = min(one.until for one in queue.waiting)
                try:
                    async with asyncio.timeout(min(self._look, max(soonest - loop.time(), 0.0))):
                        await queue.stirred.wait()
                except TimeoutError:
                    pass
                queue.stirred.clear()
                await self._round(place, queue, loop.time())
        finally:
            queues = self._queues.get(place[0], {})
            queues.pop(place, None)
            if not queues:
                self._queues.pop(place[0], None)
            for one in queue.waiting:
                one.answer.cancel()

    async def _round(self, place: _Place, queue: _Queue, now: float) -> None:
        """Asks for those whose time is over, for good, and for the others as far as there may be room."""
        over = [one for one in queue.waiting if one.until <= now]
        await asyncio.gather(*(self._try(one, _at_once(one.asked)) for one in over))
        queue.waiting = [one for one in queue.waiting if not one.answer.done()]
        least: int | None = None
        for one in list(queue.waiting):
            if least is not None and one.need >= least:
                continue
            opened = await self._try(one, one.asked)
            if opened is None:
                queue.waiting.remove(one)
            elif self._place(one, opened) == place:
                least = one.need if least is None else min(least, one.need)
            else:
                queue.waiting.remove(one)
                self._put(one, opened)

    async def _try(self, one: _Waiting, asked: Reservation) -> Opened | None:
        """Asks for one. None if it has its answer; else the answer that it goes on waiting with."""
        if one.answer.done():
            return None
        try:
            opened = await self._ask(one.session, asked)
        except StoreUnavailable as error:
            if not one.answer.done():
                one.answer.set_exception(error)
            return None
        refused = opened.refused
        if refused is not None and refused.held and asked.patient and not one.answer.done():
            return opened
        if not one.answer.done():
            one.answer.set_result(opened)
        elif refused is None:
            await self._give_back(one.session, asked)
        return None


def _at_once(asked: Reservation) -> Reservation:
    """The same of a call that waits no longer: it takes what there is, if that is enough for an answer at all."""
    return msgspec.structs.replace(asked, patient=False)
