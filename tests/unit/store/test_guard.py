"""The guard: deadlines, quick failure, one probe, recovery, the secret, and settlements that survive an outage."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged
from proxy.store import Account, Amendment, Committed, GuardedStore, Listing, Mark, Opened, Page, Reservation, Settlement
from proxy.store.contract import SETTLED_SECONDS, PartUnavailable
from proxy.store.memory import MemoryStore

FALLBACK = b"f" * 32
RESERVATION = Reservation("lease", 1, body_bytes=10, input_bound=10, output=10, modest=5, floor=1, expires_in=60.0)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Moody(MemoryStore):
    """A memory store that first does whatever `mood` does, on every call, and counts the calls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, lambda size: b"s" * size)
        self.calls = 0
        self.closed = False
        self.mood: Callable[[], Awaitable[None]] = content

    async def _meet(self) -> None:
        self.calls += 1
        await self.mood()

    async def secret(self) -> bytes:
        await self._meet()
        return await super().secret()

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        await self._meet()
        return await super().find(links)

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        await self._meet()
        return await super().open(session, reservation, ttl)

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
        listing: Listing | None = None,
    ) -> Committed:
        await self._meet()
        return await super().commit(session, record=record, version=version, settlements=settlements, links=links, ttl=ttl, listing=listing)

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        await self._meet()
        return await super().renew(session, lease, accounts, expires_in)

    async def ping(self) -> None:
        await self._meet()

    async def close(self) -> None:
        self.closed = True


async def content() -> None:
    return None


async def silent() -> None:
    await asyncio.Event().wait()


async def dead() -> None:
    raise ConnectionRefusedError("redis://user:hunter2@10.0.0.1")


class Guarded:
    """A guarded moody store, and what it told."""

    def __init__(self, timeout: float = 5.0, retry_after: float = 1.0) -> None:
        self.time = Time()
        self.inner = Moody(self.time)
        self.changes: list[StoreChanged] = []
        self.store = GuardedStore(
            self.inner, timeout=timeout, clock=self.time, on_change=self.changes.append, fallback_secret=FALLBACK, retry_after=retry_after
        )

    async def fall(self) -> None:
        self.inner.mood = dead
        with pytest.raises(StoreUnavailable):
            await self.store.ping()

    async def settle(self, *leases: str, session: bytes = b"session") -> Committed:
        settlements = [Settlement(lease, 1, 100, 10, 1000) for lease in leases]
        return await self.store.commit(session, record=None, version=0, settlements=settlements, links=(), ttl=3600.0)

    async def steps(self, session: bytes = b"session") -> int:
        """The settled steps in the store behind, once everything that was ready to run has run."""
        for _ in range(20):
            await asyncio.sleep(0)
        return (await MemoryStore.open(self.inner, session, RESERVATION, 3600.0)).ledger.steps


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


async def test_answers_pass_through(guarded: Guarded) -> None:
    """A store that answers is not noticed."""
    opened = await guarded.store.open(b"session", RESERVATION, 60.0)
    await guarded.store.commit(b"session", record=b"r", version=0, settlements=(), links=[b"link"], ttl=60.0)

    assert (opened.step, await guarded.store.find([b"link"])) == (1, b"session")
    assert await guarded.store.renew(b"session", RESERVATION.lease, (), 60.0)
    amended = await guarded.store.amend(Account(b"session"), Amendment(mark=Mark.PAUSED), 60.0)
    assert amended is not None and amended.mark is Mark.PAUSED
    assert [look and look.mark for look in await guarded.store.peek([Account(b"session")])] == [Mark.PAUSED]
    assert await guarded.store.page(tenant="nobody") == Page((), "")
    assert await guarded.store.usage(b"team", ["2026-11-29"]) == []
    assert guarded.store.up
    assert guarded.changes == []


async def test_a_silent_store_costs_one_deadline() -> None:
    """The first call waits for the timeout; the next ones fail without asking."""
    guarded = Guarded(timeout=0.01)
    guarded.inner.mood = silent

    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.01 s \(store\.timeout\); ask again"):
        await guarded.store.ping()
    with pytest.raises(StoreUnavailable, match="is away"):
        await guarded.store.ping()

    assert guarded.inner.calls == 1
    assert guarded.changes == [StoreChanged(up=False, cause="TimeoutError")]


async def test_a_crowd_waits_for_its_turn() -> None:
    """So many at once, and none of the others on a deadline."""
    guarded = Guarded(timeout=5)
    under_way: list[int] = [0]
    most = 0

    async def counted() -> None:
        nonlocal most
        under_way[0] += 1
        most = max(most, under_way[0])
        await asyncio.sleep(0)
        under_way[0] -= 1

    guarded.inner.mood = counted
    await asyncio.gather(*(guarded.store.ping() for _ in range(200)))

    assert (most, guarded.inner.calls, guarded.changes) == (64, 200, [])


async def test_a_crowd_before_a_silent_store_is_sent_away_together() -> None:
    """Whoever still waits for a turn then does not pay a deadline of its own."""
    guarded = Guarded(timeout=0.02)
    guarded.inner.mood = silent
    outcomes = await asyncio.gather(*(guarded.store.ping() for _ in range(300)), return_exceptions=True)

    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert guarded.inner.calls == 64


async def test_messages_hold_no_address(guarded: Guarded) -> None:
    """What a client is told names the kind of failure only."""
    guarded.inner.mood = dead

    for _ in range(2):
        with pytest.raises(StoreUnavailable) as failure:
            await guarded.store.find([b"link"])
        assert "ConnectionRefusedError" in failure.value.message
        assert "again" in failure.value.message, "what to do"
        assert "hunter2" not in failure.value.message
        assert "10.0.0.1" not in failure.value.message


@pytest.mark.parametrize("error", [ValueError("malformed"), StoreUnavailable("gone"), KeyError("field")])
async def test_any_failure_is_store_unavailable(guarded: Guarded, error: Exception) -> None:
    """Whatever an implementation raises, callers see one exception."""

    async def fail() -> None:
        raise error

    guarded.inner.mood = fail
    with pytest.raises(StoreUnavailable):
        await guarded.store.ping()
    assert not guarded.store.up


async def test_a_part_that_is_away_is_no_store_that_is_away(guarded: Guarded) -> None:
    """Whoever needs it is told, whoever does not is served; also when it is all that a probe finds."""

    async def partly() -> None:
        raise PartUnavailable("a part of the session store is away")

    guarded.inner.mood = partly
    with pytest.raises(PartUnavailable):
        await guarded.store.ping()
    assert (guarded.store.up, guarded.changes) == (True, [])

    await guarded.fall()
    guarded.inner.mood = partly
    guarded.time.now += 1.0
    with pytest.raises(PartUnavailable):
        await guarded.store.ping()
    assert [change.up for change in guarded.changes] == [False, True]


async def test_one_probe_at_a_time(guarded: Guarded) -> None:
    """After `retry_after` one call goes through, the others still fail at once, and its success lets all through."""
    await guarded.fall()
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    guarded.inner.mood = wait
    guarded.time.now += 1.0
    probe = asyncio.create_task(guarded.store.ping())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await guarded.store.ping()
    gate.set()
    await probe
    await guarded.store.ping()

    assert guarded.inner.calls == 3
    assert guarded.changes == [StoreChanged(up=False, cause="ConnectionRefusedError"), StoreChanged(up=True)]


async def test_a_failed_probe_starts_the_wait_again(guarded: Guarded) -> None:
    """The store going away is told once, however long it stays away."""
    await guarded.fall()
    guarded.time.now += 1.0
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await guarded.store.ping()

    assert guarded.inner.calls == 2
    assert len(guarded.changes) == 1


async def test_a_clock_set_back_does_not_keep_the_store_away(guarded: Guarded) -> None:
    """A wait measured across a jump of the clock is over."""
    await guarded.fall()
    guarded.inner.mood = content
    guarded.time.now -= 3600.0
    await guarded.store.ping()

    assert guarded.store.up


async def test_cancellation_is_not_a_failure(guarded: Guarded) -> None:
    """A caller that goes away says nothing about the store, also when its call was the probe."""
    guarded.inner.mood = silent
    call = asyncio.create_task(guarded.store.ping())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert guarded.store.up

    await guarded.fall()
    guarded.inner.mood = silent
    guarded.time.now += 1.0
    probe = asyncio.create_task(guarded.store.ping())
    await asyncio.sleep(0)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    guarded.inner.mood = content
    await guarded.store.ping()

    assert guarded.store.up


async def test_the_secret_is_read_once(guarded: Guarded) -> None:
    """Fingerprints cost no round trip."""
    assert [await guarded.store.secret() for _ in range(3)] == [b"s" * 32] * 3
    assert guarded.inner.calls == 1


async def test_the_fallback_secret_serves_while_the_store_is_away(guarded: Guarded) -> None:
    """Judging goes on without a store, and with the shared secret as soon as it can be had."""
    guarded.inner.mood = dead
    away = await guarded.store.secret()
    guarded.inner.mood = content
    guarded.time.now += 1.0

    assert (away, await guarded.store.secret()) == (FALLBACK, b"s" * 32)


async def test_the_secret_is_read_again_after_an_outage(guarded: Guarded) -> None:
    """A store that came back without its data may have another one by now."""
    await guarded.store.secret()
    await guarded.fall()
    assert await guarded.store.secret() == b"s" * 32
    guarded.inner._secret = b"t" * 32
    guarded.inner.mood = content
    guarded.time.now += 1.0
    await guarded.store.ping()

    assert await guarded.store.secret() == b"t" * 32


async def test_one_slow_call_does_not_lose_a_store_and_two_tries_do(guarded: Guarded) -> None:
    """What serves a request is an answer and the secret; readiness follows the second failure, and the first where nothing ever served."""
    assert await guarded.store.serves()
    assert not guarded.store.lost

    guarded.inner.mood = dead
    assert not await guarded.store.serves()
    assert not guarded.store.lost
    guarded.time.now += 1.0
    assert not await guarded.store.serves()
    assert guarded.store.lost

    guarded.inner.mood = content
    guarded.time.now += 1.0
    assert await guarded.store.serves()
    assert not guarded.store.lost


async def test_a_store_that_never_served_is_lost_at_once(guarded: Guarded) -> None:
    """A fresh process has nothing to go on with."""
    guarded.inner.mood = dead
    assert not await guarded.store.serves()
    assert guarded.store.lost


async def test_settlements_survive_an_outage(guarded: Guarded) -> None:
    """What failed commits would have charged is charged when the store is back, once."""
    await guarded.fall()
    for lease in ("a", "b"):
        with pytest.raises(StoreUnavailable):
            await guarded.settle(lease)
    guarded.inner.mood = content
    guarded.time.now += 1.0
    await guarded.settle("b", "c")

    assert await guarded.steps() == 3


async def test_accounts_are_charged_after_an_outage_too(guarded: Guarded) -> None:
    """What is owed to a team is delivered with what is owed to the session."""
    team = Account(b"team", (), team=True)
    await guarded.fall()
    with pytest.raises(StoreUnavailable):
        await guarded.store.commit(
            b"session", record=b"r", version=0, settlements=[Settlement("a", 1, 100, 10, 1000, accounts=(team,))], links=(), ttl=60.0
        )
    guarded.inner.mood = content
    guarded.time.now += 1.0
    await guarded.store.ping()
    await guarded.store.close()
    (look,) = await guarded.inner.peek([team])

    assert look is not None
    assert (look.ledger.steps, look.ledger.tokens) == (1, 110)


async def test_a_cancelled_commit_is_settled_later(guarded: Guarded) -> None:
    """A client that leaves during the commit has still spent what it spent."""
    guarded.inner.mood = silent
    commit = asyncio.create_task(guarded.settle("a"))
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    guarded.inner.mood = content
    await guarded.store.ping()

    assert await guarded.steps() == 1


async def test_deliveries_resume_after_a_second_outage(guarded: Guarded) -> None:
    """A settlement stays owed until the store took it."""
    await guarded.fall()
    with pytest.raises(StoreUnavailable):
        await guarded.settle("a")

    answers = iter([content, dead])

    async def once() -> None:
        await next(answers)()

    guarded.inner.mood = once
    guarded.time.now += 1.0
    await guarded.store.ping()
    assert await guarded.steps() == 0
    assert not guarded.store.up

    guarded.inner.mood = content
    guarded.time.now += 1.0
    await guarded.store.ping()

    assert await guarded.steps() == 1


async def test_what_is_owed_is_delivered_where_nobody_else_asks() -> None:
    """A process without another request tries it by itself, until the store has it, and then no more."""
    guarded = Guarded(retry_after=0.01)
    guarded.inner.mood = dead
    with pytest.raises(StoreUnavailable):
        await guarded.settle("a")
    calls = guarded.inner.calls

    async def until(calls: int) -> None:
        async with asyncio.timeout(10):
            while guarded.inner.calls < calls:
                guarded.time.now += 1.0
                await asyncio.sleep(0.001)

    await until(calls + 2)
    assert not guarded.store.up
    guarded.inner.mood = content
    await until(guarded.inner.calls + 1)

    assert await guarded.steps() == 1
    assert guarded.store.up
    await guarded.store.close()


async def test_a_settlement_too_old_to_be_recognised_is_dropped(guarded: Guarded) -> None:
    """Later than the store remembers settled leases, sending one could charge it twice."""
    await guarded.fall()
    with pytest.raises(StoreUnavailable):
        await guarded.settle("a")
    guarded.inner.mood = content
    guarded.time.now += SETTLED_SECONDS
    await guarded.store.ping()

    assert await guarded.steps() == 0


async def test_closing_delivers_what_is_owed(guarded: Guarded) -> None:
    """A shutdown after the store came back loses no spending."""
    await guarded.fall()
    with pytest.raises(StoreUnavailable):
        await guarded.settle("a")
    guarded.inner.mood = content
    guarded.time.now += 1.0
    await guarded.store.close()

    assert guarded.inner.closed
    assert await guarded.steps() == 1


async def test_closing_does_not_wait_for_a_silent_store() -> None:
    """A shutdown takes one deadline at most."""
    guarded = Guarded(timeout=0.01)
    guarded.inner.mood = silent
    with pytest.raises(StoreUnavailable):
        await guarded.settle("a")
    guarded.time.now += 1.0
    await guarded.store.close()

    assert guarded.inner.closed
