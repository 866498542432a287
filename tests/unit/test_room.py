"""Calls that wait for room go on when others give it back, in their order, and for so long and no longer."""

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec
import pytest

from proxy.errors import StoreUnavailable
from proxy.room import Room
from proxy.store import Account, Ceiling, Kind, Ledger, Opened, Refusal, Reservation, Unit
from tests.stores import call

CEILING = Ceiling(Unit.TOKENS, 100)
TEAM = Account(b"team", (CEILING,), team=True)
LONG = 30.0  # seconds that no test takes


def opened(refused: Refusal | None = None, ends_at: float | None = None) -> Opened:
    return Opened(None, 0, 1000.0, Ledger(), (), None, refused, 1, None, None, (), ends_at)


class Budget:
    """One ledger's, of 100 tokens, all held at first. asked: who asked, with "!" for those that wait no longer."""

    def __init__(self, *, patience: float = LONG, look: float = LONG) -> None:
        self.free = 0
        self.spent = 0
        self.account = 0
        self.away = False
        self.asked: list[str] = []
        self.given_back: list[str] = []
        self.gate: asyncio.Event | None = None
        self.room = Room(self.ask, self.give_back, patience=patience, look=look)

    async def ask(self, session: bytes, asked: Reservation) -> Opened:
        self.asked.append(asked.lease + ("" if asked.patient else "!"))
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise StoreUnavailable("away")
        need = asked.input_bound
        if need <= self.free:
            self.free -= need
            return opened()
        return opened(self.refusal(need))

    def refusal(self, need: int) -> Refusal:
        return Refusal(Kind.TOKENS, 100, self.spent, 100 - self.spent, CEILING, self.account, need=need)

    async def give_back(self, session: bytes, asked: Reservation) -> None:
        self.given_back.append(asked.lease)

    def wait(
        self, lease: str, need: int = 10, within: contextlib.AbstractContextManager[object] | None = None, **more: float
    ) -> "asyncio.Task[Opened]":
        asked = msgspec.structs.replace(call(lease, input_bound=need, accounts=(TEAM,), patient=True))
        first = opened(self.refusal(need), **more)
        return asyncio.create_task(self.room.wait(b"session", asked, first, within or contextlib.nullcontext()))

    async def stir(self, free: int = 0, ledger: bytes = b"team") -> None:
        await asyncio.sleep(0)
        self.free += free
        self.room.stir([ledger, b"unknown"])
        for _ in range(20):
            await asyncio.sleep(0)


async def test_room_that_is_given_back_is_taken_in_the_order_of_coming() -> None:
    """One is asked for after another, until one is not granted; nobody asks before."""
    budget = Budget()
    waiting = [budget.wait(name) for name in "abc"]
    await budget.stir(ledger=b"another")
    assert budget.asked == []
    await budget.stir(free=20)
    assert [one.done() for one in waiting] == [True, True, False]
    await budget.stir(free=10)

    assert [(await one).refused for one in waiting] == [None] * 3
    assert budget.asked == ["a", "b", "c", "c"]
    await budget.stir()
    assert budget.room._queues == {}


async def test_a_large_call_does_not_keep_small_ones_waiting() -> None:
    """Whoever takes as much or more is not asked for in vain."""
    budget = Budget()
    large, same, small = budget.wait("large", 50), budget.wait("same", 50), budget.wait("small", 10)
    await budget.stir(free=20)
    assert (large.done(), same.done(), (await small).refused) == (False, False, None)
    assert budget.asked == ["large", "small"]
    await budget.stir(free=90)
    assert ((await large).refused, (await same).refused) == (None, None)


async def test_what_is_used_up_meanwhile_is_no_room_to_wait_for() -> None:
    """Whoever waits is told at once."""
    budget = Budget()
    waiting = [budget.wait(name) for name in "ab"]
    budget.spent = 95
    await budget.stir()
    answers = [await one for one in waiting]

    assert [one.refused and one.refused.held for one in answers] == [False, False]


async def test_a_call_waits_so_long_and_no_longer() -> None:
    """Then it takes what there is, or is told what is held. Those that came later have theirs."""
    budget = Budget(patience=0.05)
    first = await asyncio.wait_for(budget.wait("a"), LONG)
    budget.free = 10
    second = await asyncio.wait_for(budget.wait("b"), LONG)

    assert first.refused is not None and first.refused.held
    assert second.refused is None
    assert budget.asked == ["a!", "b!"]


async def test_a_call_waits_no_longer_than_its_session_lasts() -> None:
    """A session whose time is over is told so."""
    budget = Budget()
    await asyncio.wait_for(budget.wait("a", ends_at=1000.05), LONG)
    await asyncio.wait_for(budget.wait("b", ends_at=1000.0), LONG)
    assert budget.asked == ["a!", "b!"]


async def test_the_store_is_looked_at_now_and_then() -> None:
    """Other processes give back too, and leases run out."""
    budget = Budget(look=0.01)
    waiting = budget.wait("a")
    async with asyncio.timeout(LONG):
        while len(budget.asked) < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
        budget.free = 10
        assert (await waiting).refused is None


async def test_a_call_that_finds_another_limit_in_its_way_waits_for_that() -> None:
    """Of the session, say, once the team's has room."""
    budget = Budget()
    waiting = budget.wait("a")
    budget.account = -1
    await budget.stir()
    await budget.stir(free=10)
    assert not waiting.done()
    await budget.stir(ledger=b"session")
    assert (await waiting).refused is None


async def test_whoever_leaves_holds_nothing() -> None:
    """Neither one that waits nor one that is just being granted."""
    budget = Budget()
    before, during = budget.wait("before"), budget.wait("during")
    await asyncio.sleep(0)
    before.cancel()
    budget.gate = asyncio.Event()
    await budget.stir(free=10)
    during.cancel()
    await asyncio.sleep(0)
    budget.gate.set()
    await budget.stir()

    assert (budget.asked, budget.given_back) == (["during"], ["during"])
    assert before.cancelled() and during.cancelled()
    assert budget.room._queues == {}


async def test_what_ends_a_wait_is_told_in_its_own_way() -> None:
    """As of a client that hung up."""
    left: list[type[BaseException] | None] = []

    class Gone(Exception):
        pass

    @contextlib.contextmanager
    def client() -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError as error:
            left.append(type(error))
            raise Gone from None

    budget = Budget()
    waiting = budget.wait("a", within=client())
    await budget.stir()
    waiting.cancel()
    with pytest.raises(Gone):
        await waiting
    assert left == [asyncio.CancelledError]


async def test_a_store_that_is_away_keeps_nobody_waiting() -> None:
    """Each is told; one that left meanwhile is none's business."""
    budget = Budget()
    waiting = [budget.wait(name) for name in "ab"]
    budget.away = True
    budget.gate = asyncio.Event()
    await budget.stir()
    waiting[0].cancel()
    budget.gate.set()
    await budget.stir()

    assert waiting[0].cancelled()
    with pytest.raises(StoreUnavailable):
        await waiting[1]


async def test_more_than_so_many_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bodies are in memory."""
    monkeypatch.setattr("proxy.room.MOST_WAITING", 1)
    budget = Budget()
    first = budget.wait("a")
    second = await asyncio.wait_for(budget.wait("b"), LONG)
    assert (first.done(), budget.asked, second.refused is not None) == (False, ["b!"], True)
    await budget.stir(free=10)
    assert (await first).refused is None


async def test_after_the_end_nobody_waits() -> None:
    """A shutdown."""
    budget = Budget()
    first = budget.wait("a")
    await budget.stir()
    second = budget.wait("b")
    await asyncio.sleep(0)
    budget.room.close()
    for waiting in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert budget.room._queues == {}


async def test_a_fault_keeps_nobody_waiting() -> None:
    """Whatever it is, and whether it meets one that waits on or one whose time is over: all are let go."""
    for patience in (LONG, 0.02):
        budget = Budget(patience=patience)
        waiting = [budget.wait(name) for name in "ab"]
        await asyncio.sleep(0)
        (queue,) = budget.room._queues[b"team"].values()
        assert queue.work is not None
        budget.room._ask = None  # type: ignore[assignment]
        if patience == LONG:
            await budget.stir()
        with pytest.raises(TypeError):
            await asyncio.wait_for(queue.work, LONG)
        for one in waiting:
            with pytest.raises(asyncio.CancelledError):
                await one
