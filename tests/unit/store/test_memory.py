"""The memory store's bounds: bytes, sessions, links, and what an idle session weighs. Its answers: see the contract suite."""

import gc
import tracemalloc
from typing import Any

import pytest

from proxy.store import Account, Ceiling, Reservation, Settlement, Unit
from proxy.store import memory as module
from proxy.store.contract import SETTLED_SECONDS
from proxy.store.memory import MemoryStore

TTL = 100.0


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def store_at(clock: Time, *, max_bytes: int = 2**30, max_sessions: int = 1000) -> MemoryStore:
    return MemoryStore(clock, bytes, max_bytes=max_bytes, max_sessions=max_sessions)


async def write(store: MemoryStore, session: bytes, record: bytes = b"r", *links: bytes) -> None:
    await store.commit(session, record=record, version=0, settlements=(), links=links, ttl=TTL)


async def known(store: MemoryStore, *links: bytes) -> list[bytes]:
    return [link for link in links if await store.find([link]) is not None]


def reservation(lease: str, expires_in: float = 60.0, **limits: Any) -> Reservation:
    return Reservation(lease, 7, 4000, 1000, 500, 200, 100, expires_in, **limits)


async def test_the_least_recently_used_session_goes_first() -> None:
    """Being opened is being used; with a session go its links."""
    store = store_at(Time(), max_sessions=2)
    await write(store, b"a", b"r", b"link-a")
    await write(store, b"b", b"r", b"link-b")
    await store.open(b"a", reservation("x"), TTL)
    await write(store, b"c", b"r", b"link-c")

    assert await known(store, b"link-a", b"link-b", b"link-c") == [b"link-a", b"link-c"]
    assert set(store._links) == {b"link-a", b"link-c"}


async def test_records_are_bounded_by_bytes() -> None:
    """Growing one session pushes others out, never itself; what is gone is no longer counted."""
    store = store_at(Time(), max_bytes=39_000)
    for name in (b"a", b"b", b"c"):
        await write(store, name, bytes(10_000), name)
    assert await known(store, b"a", b"b", b"c") == [b"a", b"b", b"c"]
    await store.commit(b"c", record=bytes(16_000), version=1, settlements=(), links=(), ttl=TTL)
    assert await known(store, b"a", b"b", b"c") == [b"b", b"c"]
    await store.commit(b"c", record=bytes(60_000), version=2, settlements=(), links=(), ttl=TTL)

    assert await known(store, b"a", b"b", b"c") == [b"c"]
    assert store._bytes == store._sessions[b"c"].weight


async def test_dead_sessions_leave_when_others_come() -> None:
    """Nobody has to ask for a session for it to be freed."""
    clock = Time()
    store = store_at(clock)
    for i in range(10):
        await write(store, b"old-%d" % i, b"r", b"link-%d" % i)
    clock.now += TTL
    await write(store, b"new")

    assert list(store._sessions) == [b"new"]
    assert store._links == {}


async def test_each_dead_session_leaves_in_its_time() -> None:
    """Also where the one before it left long ago, or was used meanwhile."""
    clock = Time()
    store = store_at(clock)
    seen: list[set[bytes]] = []
    for name in (b"a", b"b", b"a", b"c", b"d"):
        await write(store, name)
        seen.append(set(store._sessions))
        clock.now += TTL / 2

    assert seen == [{b"a"}, {b"a", b"b"}, {b"a", b"b"}, {b"a", b"c"}, {b"c", b"d"}]


async def test_a_dead_session_begins_anew() -> None:
    """At its expiry, also when nobody else has come meanwhile."""
    clock = Time()
    store = store_at(clock)
    await write(store, b"a", b"r", b"link")
    clock.now += TTL
    assert await store.find([b"link"]) is None
    opened = await store.open(b"a", reservation("x"), TTL)

    assert (opened.record, opened.version, opened.ledger.started_at) == (None, 0, clock.now)


async def test_a_session_keeps_its_newest_links() -> None:
    """What a session weighs does not grow with its length."""
    store = store_at(Time())
    links = [b"link-%d" % i for i in range(3 * module._LINKS_PER_SESSION)]
    for link in links:
        await store.commit(b"a", record=None, version=0, settlements=(), links=[link, link], ttl=TTL)

    assert await known(store, *links) == links[-module._LINKS_PER_SESSION :]


async def test_a_link_that_moved_survives_its_first_session() -> None:
    """The death of a session takes only links that still point at it."""
    store = store_at(Time(), max_sessions=2)
    await write(store, b"a", b"r", b"link")
    await write(store, b"b", b"r", b"link")
    await write(store, b"c")

    assert await store.find([b"link"]) == b"b"


async def test_settled_leases_are_forgotten_in_time() -> None:
    """As long as a settlement may be sent again it counts once; after that it is not kept."""
    clock = Time()
    store = store_at(clock)
    for seconds in (0.0, SETTLED_SECONDS - 1, 1.0):
        clock.now += seconds
        await store.commit(b"a", record=None, version=0, settlements=[Settlement("x", 1, 1, 1, 1)], links=(), ttl=10_000.0)
    opened = await store.open(b"a", reservation("y"), TTL)

    assert opened.ledger.steps == 2
    assert len(store._settled) == 1


async def test_a_settlement_is_applied_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are remembered the oldest makes room for a new one, not for itself sent again."""
    monkeypatch.setattr(module, "_MAX_SETTLED", 3)
    store = store_at(Time())
    settled = [Settlement(lease, 1, 1, 1, 1) for lease in ("one", "two", "three")]
    for settlement in (*settled, *settled):
        await store.commit(b"s", record=b"r", version=0, settlements=[settlement], links=(), ttl=TTL)
    (seen,) = await store.peek([Account(b"s")])
    assert seen is not None
    assert seen.ledger.steps == 3
    await store.commit(b"s", record=b"r", version=0, settlements=[Settlement("four", 1, 1, 1, 1)], links=(), ttl=TTL)

    assert [lease for _, lease in store._settled] == ["two", "three", "four"]


async def test_leases_expire_by_the_clock() -> None:
    """To the instant: at its expiry a lease holds nothing."""
    clock = Time()
    store = store_at(clock)
    limits: dict[str, Any] = {"ceilings": (Ceiling(Unit.STEPS, 1),), "deadline": 60.5}
    await store.open(b"a", reservation("x", 60.0, **limits), TTL)
    clock.now += 59.9
    before = await store.open(b"a", reservation("y", 60.0, **limits), TTL)
    clock.now += 0.1
    after = await store.open(b"a", reservation("z", 60.0, **limits), TTL)
    clock.now += 0.5
    late = await store.open(b"a", reservation("z", 60.0, **limits), TTL)

    assert [answer.refused and answer.refused.kind for answer in (before, after, late)] == ["steps", None, "deadline"]


async def test_an_idle_session_weighs_little_more_than_its_record() -> None:
    """A 2 KB record after ten calls costs under 8 KB while their leases are remembered, and then no more than the store reckons."""
    store = store_at(Time(), max_sessions=10_000)
    sessions = 400
    gc.collect()
    tracemalloc.start()
    try:
        for i in range(sessions):
            key = i.to_bytes(16)
            for step in range(10):
                lease = f"{i:08x}-{step:08x}-0123456789abcdef"
                await store.open(key, reservation(lease), 3600.0)
                await store.commit(
                    key,
                    record=bytes(2048),
                    version=step,
                    settlements=[Settlement(lease, 1, 1000, 100, 4000)],
                    links=[i.to_bytes(8) + step.to_bytes(8)],
                    ttl=3600.0,
                )
        gc.collect()
        fresh = tracemalloc.get_traced_memory()[0] / sessions
        store._settled.clear()
        gc.collect()
        idle = tracemalloc.get_traced_memory()[0] / sessions
    finally:
        tracemalloc.stop()

    assert fresh < 8 * 1024
    assert idle < store._bytes / sessions < 5 * 1024


async def test_a_teams_usage_is_kept_for_its_newest_days() -> None:
    """As many as its ledger is kept for; what came late for an older one goes first."""
    store = store_at(Time())
    team = Account(b"team", (), team=True)
    days = [f"{2000 + i // 300}-{i % 300:03}" for i in range(module._USAGE_DAYS + 1)]
    for day in days[::-1]:
        paid = Settlement(day, 1, 1, 1, 1, accounts=(team,), model="gpt-4o", day=day)
        await store.commit(b"a", record=None, version=0, settlements=[paid], links=(), ttl=TTL)

    assert [row.day for row in await store.usage(b"team", days)] == days[1:]
