"""Leases of calls that last are renewed, and no others."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from proxy.errors import StoreUnavailable
from proxy.leases import Leases
from proxy.purse import LEASE_SECONDS
from proxy.room import PATIENCE
from proxy.store import Account, Ceiling, Kind, Ledger, Opened, Refusal, Reservation, Store, Unit
from tests.stores import TTL, call


def granted(lease: str) -> Reservation:
    return call(lease, expires_in=LEASE_SECONDS)


class World:
    """A store that only renews, and time in the test's hand. lapsed: leases that ran out. meanwhile: done while it is asked."""

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.reserved: list[Reservation] = []
        self.away = False
        self.lapsed: set[str] = set()
        self.meanwhile: Callable[[], object] = lambda: None
        self.waiting: list[tuple[float, Callable[[], object]]] = []
        self.leases = Leases(cast(Store, self), TTL, self._later)

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        assert (session, accounts, expires_in) == (b"s", (), LEASE_SECONDS)
        self.meanwhile()
        if lease in self.lapsed:
            return False
        self.renewed.append(lease)
        return True

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> None:
        assert (session, ttl) == (b"s", TTL)
        self.lapsed.discard(reservation.lease)
        self.reserved.append(reservation)

    def _later(self, seconds: float, work: Callable[[], object]) -> Any:
        self.waiting.append((seconds, work))
        return asyncio.get_running_loop().call_soon(lambda: None)

    async def tick(self) -> list[str]:
        """A third of a lease's life passes; what was renewed in it."""
        (_, work), self.waiting = self.waiting[0], self.waiting[1:]
        work()
        for _ in range(12):
            await asyncio.sleep(0)
        renewed, self.renewed = self.renewed, []
        return renewed


async def test_a_call_that_lasts_keeps_its_lease() -> None:
    """Until it is settled."""
    world = World()
    world.leases.hold(b"s", granted("a"))
    assert await world.tick() == []
    world.leases.hold(b"s", granted("b"))
    assert await world.tick() == ["a"]
    assert await world.tick() == ["a", "b"]
    world.leases.let_go("a")
    assert await world.tick() == ["b"]
    world.leases.let_go("b")
    assert await world.tick() == []
    assert world.waiting == []


async def test_waiting_begins_again_with_the_next_call() -> None:
    """A process without calls does nothing."""
    world = World()
    world.leases.hold(b"s", granted("a"))
    world.leases.let_go("a")
    await world.tick()
    world.leases.hold(b"s", granted("b"))
    assert [seconds for seconds, _ in world.waiting] == [LEASE_SECONDS / 3]


async def test_a_store_that_is_away_is_asked_again() -> None:
    """The next third of the life is in time."""
    world = World()
    world.leases.hold(b"s", granted("a"))
    await world.tick()
    world.away = True
    assert await world.tick() == []
    world.away = False
    assert await world.tick() == ["a"]


async def test_many_are_renewed_a_few_at_a_time() -> None:
    """All of them."""
    world = World()
    for number in range(150):
        world.leases.hold(b"s", granted(str(number)))
    await world.tick()
    world.waiting[0][1]()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(world.renewed) == 150


async def test_after_the_end_nothing_is_renewed() -> None:
    """A shutdown."""
    world = World()
    world.leases.close()
    world.leases.hold(b"s", granted("a"))
    await world.tick()
    world.leases.close()
    assert await world.tick() == []


async def test_one_that_ran_out_is_reserved_anew() -> None:
    """After a pause, or an outage of the store, that was longer than its life; and renewed from then on."""
    world = World()
    world.leases.hold(b"s", granted("a"))
    world.leases.hold(b"s", granted("b"))
    await world.tick()
    world.lapsed.add("a")

    assert await world.tick() == ["b"]
    assert world.reserved == [call("a", expires_in=LEASE_SECONDS, again=True)]
    assert await world.tick() == ["a", "b"]


async def test_one_that_is_settled_meanwhile_is_not_reserved_again() -> None:
    """Nobody would ever end it."""
    world = World()
    world.leases.hold(b"s", granted("a"))
    await world.tick()
    world.lapsed.add("a")
    world.meanwhile = lambda: world.leases.let_go("a")
    await world.tick()

    assert world.reserved == []


async def test_a_call_that_is_asked_for_again_waits_no_longer_in_all() -> None:
    """When it came is told with the first answer: on the store's clock, and never later than any answer."""
    asked: list[bool] = []
    full = Refusal(Kind.TOKENS, 100, 0, 100, Ceiling(Unit.TOKENS, 100), need=10)

    class Full:
        now = 1000.0

        async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
            asked.append(reservation.patient)
            return Opened(None, 0, self.now, Ledger(), (), None, full, 1, None, None, ())

    store = Full()
    leases = Leases(cast(Store, store), TTL)
    wanted = call("a", patient=True)
    assert (await leases.reserve(b"s", wanted, came=1000.0 - PATIENCE))[1] == 1000.0 - PATIENCE
    store.now = 500.0
    assert (await leases.reserve(b"s", call("a"), came=1000.0))[1] == 500.0
    assert asked == [True, False, False]
    waiting = asyncio.create_task(leases.reserve(b"s", wanted))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    leases.close()
    await asyncio.gather(waiting, return_exceptions=True)
