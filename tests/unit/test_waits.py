"""Waits: who waits for too long is told of once, and one timer does for all. Limits and turns: as asyncio has them."""

import asyncio
import time
from collections.abc import Callable

import pytest

from proxy.waits import Limit, Turns, Waits


class Told:
    """What was told of, and an event that is set once that are so many."""

    def __init__(self, most: int) -> None:
        self.names: list[str] = []
        self.late: list[float] = []
        self.enough = asyncio.Event()
        self._most = most

    def __call__(self, name: str, late: float) -> None:
        self.names.append(name)
        self.late.append(late)
        if len(self.names) == self._most:
            self.enough.set()


async def test_those_that_wait_too_long_are_told_of_in_their_order() -> None:
    """Each once, none before its time."""
    told = Told(2)
    waits = Waits(0.02, told)
    began = asyncio.get_running_loop().time()

    waits.begin("a")
    waits.begin("b")
    await told.enough.wait()

    assert told.names == ["a", "b"]
    assert asyncio.get_running_loop().time() - began >= 0.02
    assert min(told.late) >= 0


async def test_whoever_waits_no_more_is_not_told_of() -> None:
    """Nor is it an error to end what never began."""
    told = Told(1)
    waits = Waits(0.01, told)

    waits.begin("a")
    waits.begin("b")
    waits.end("a")
    waits.end("c")
    await told.enough.wait()

    assert told.names == ["b"]


async def test_the_one_that_has_waited_longest_can_be_taken() -> None:
    """It waits no more, and is not told of."""
    told = Told(1)
    waits = Waits(0.01, told)

    waits.begin("a")
    waits.begin("b")
    waits.begin("c")
    waits.begin("a")

    assert [waits.take(), waits.take()] == ["b", "c"]
    await told.enough.wait()
    assert told.names == ["a"]
    assert waits.take() is None


async def test_a_wait_that_begins_anew_has_all_its_time_again() -> None:
    """It takes its turn behind those that began before."""
    told = Told(2)
    waits = Waits(0.01, told)

    waits.begin("a")
    waits.begin("b")
    waits.begin("a")
    await told.enough.wait()

    assert told.names == ["b", "a"]


async def test_a_wait_can_begin_anew_when_it_is_over() -> None:
    """From within what is told."""
    told = Told(2)

    def again(name: str, late: float) -> None:
        told(name, late)
        if not told.enough.is_set():
            waits.begin(name)

    waits = Waits(0.005, again)
    waits.begin("a")
    await told.enough.wait()

    assert told.names == ["a", "a"]


async def test_a_busy_process_knows_how_late_it_is() -> None:
    """So that a silence can be told from its own work."""
    told = Told(1)
    waits = Waits(0.01, told)

    waits.begin("a")
    time.sleep(0.06)  # noqa: ASYNC251 - what keeps the loop busy
    await told.enough.wait()

    assert told.late[0] >= 0.03


async def test_all_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what they are for."""
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_later = loop.call_later

    def counted(delay: float, callback: Callable[..., object], *given: object) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, callback, *given)

    monkeypatch.setattr(loop, "call_later", counted)
    waits = Waits(60.0, Told(1))

    for name in "abc":
        waits.begin(name)
        waits.end(name)

    assert timers == [60.0]


class Timers:
    """A loop's clock and timers, in the test's hand as long as nothing is awaited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._set: list[tuple[float, Callable[[], object]]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_later", self._later)

    def _later(self, delay: float, callback: Callable[..., object], *given: object) -> object:
        self._set.append((self.now + delay, lambda: callback(*given)))
        return object()

    def run(self) -> None:
        """Runs the next timer at its time."""
        self.now, callback = self._set.pop(0)
        callback()


async def test_one_that_begins_anew_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is due a moment later is told of then."""
    told: list[tuple[str, float]] = []

    def again(name: str, late: float) -> None:
        told.append((name, late))
        waits.begin(name)

    with monkeypatch.context() as patched:
        timers, waits = Timers(patched), Waits(10.0, again)
        waits.begin("a")
        timers.now = 1.0
        waits.begin("b")
        for _ in range(3):
            timers.run()

    assert told == [("a", 0.0), ("b", 0.0), ("a", 0.0)]


async def test_a_fault_in_what_is_told_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told of at the next look, which comes soon."""
    told: list[str] = []

    def faulty(name: str, _: float) -> None:
        told.append(name)
        if name == "a":
            raise RuntimeError

    with monkeypatch.context() as patched:
        timers, waits = Timers(patched), Waits(10.0, faulty)
        for name in "ab":
            waits.begin(name)
        with pytest.raises(RuntimeError):
            timers.run()
        timers.run()

    assert told == ["a", "b"]
    assert timers.now < 10.1


def test_what_waited_in_another_loop_is_forgotten() -> None:
    """A loop that has ended ends nobody's wait, and keeps none from ending in the next."""
    told = Told(1)
    waits = Waits(0.01, told)

    async def begun(name: str) -> None:
        waits.begin(name)

    async def over(name: str) -> None:
        waits.begin(name)
        await told.enough.wait()

    asyncio.run(begun("a"))
    asyncio.run(over("b"))

    assert told.names == ["b"]


async def test_a_limit_ends_what_is_done_within_it() -> None:
    """As a time-out, and the task goes on as if nothing had been."""
    limit = Limit()

    with pytest.raises(TimeoutError), limit:
        limit.end()
        limit.end()
        await asyncio.Event().wait()

    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_limit_leaves_alone_what_was_done_in_time() -> None:
    """Also what was done in the very turn in which its time was over, and errors of the work's own."""
    with Limit() as early:
        await asyncio.sleep(0)
    early.end()
    with Limit() as last:
        last.end()
    with pytest.raises(ValueError, match="own"), Limit():
        raise ValueError("own")
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_cancellation_is_no_time_out() -> None:
    """Whoever cancels the task means the task, even when the limit's time is over in the same instant."""
    within = asyncio.Event()

    async def limited() -> None:
        with Limit() as limit:
            within.set()
            limit.end()
            await asyncio.Event().wait()

    task = asyncio.create_task(limited())
    await within.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_turns_are_taken_one_after_the_other() -> None:
    """Never more at once than there are; who came first is first."""
    turns, order, under_way = Turns(2), list[int](), set[int]()

    async def take(number: int) -> None:
        await turns.take()
        order.append(number)
        under_way.add(number)
        assert len(under_way) <= 2
        await asyncio.sleep(0)
        under_way.remove(number)
        turns.give()

    await asyncio.gather(*(take(number) for number in range(9)))

    assert order == list(range(9))


async def test_a_turn_that_nobody_takes_is_the_next_ones() -> None:
    """Whether whoever waited for it left before or after it came."""
    turns = Turns(1)
    await turns.take()
    before, after, last = (asyncio.create_task(turns.take()) for _ in range(3))
    await asyncio.sleep(0)

    before.cancel()
    turns.give()
    after.cancel()
    await asyncio.wait({before, after})

    assert before.cancelled()
    assert after.cancelled()
    await asyncio.wait_for(last, 5)
    turns.give()
    await asyncio.wait_for(turns.take(), 5)


async def test_whoever_goes_ahead_waits_for_those_alone_that_go_ahead_too() -> None:
    """Among themselves who came first is first."""
    turns, order = Turns(1), list[str]()
    await turns.take()

    async def take(name: str, *, ahead: bool) -> None:
        await turns.take(ahead=ahead)
        order.append(name)
        turns.give()

    waiting = [asyncio.create_task(take(name, ahead=name[0] == "a")) for name in ("b1", "a1", "b2", "a2")]
    await asyncio.sleep(0)
    turns.give()
    await asyncio.gather(*waiting)

    assert order == ["a1", "a2", "b1", "b2"]
