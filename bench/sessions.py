"""What an operator's looks at 10,000 live sessions take, and whether so many make a request's own store calls dearer.

The desk and the store as in the proxy, without HTTP: Redis on loopback, the in-process store in this process. A request's calls are made in
turn of a store without other sessions and of the full one, so that what else the machine does falls on both.
"""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from proxy.config import load
from proxy.desk import Desk
from proxy.prices import Prices
from proxy.store import Listing, Reservation, Settlement, Store, open_store
from proxy.tenants import Tenants

SESSIONS = 10_000
_TEAMS = 10
_RECORD_BYTES = 4_000  # of a session of some 30 calls
_TIMES = 50
_TTL = 3_600.0


@dataclass(frozen=True)
class Look:
    """One kind of look. median, worst: seconds. store: `memory` or `redis`."""

    store: str
    what: str
    median: float
    worst: float


@dataclass(frozen=True)
class _Setting:
    """As much of a setting as looks need."""

    tenants: Tenants
    wall: Callable[[], float] = time.time


def looks(urls: dict[str, tuple[str, str]], sessions: int = SESSIONS, times: int = _TIMES) -> list[Look]:
    """Every kind of look at every store. urls: by name, of two empty stores of one kind, the second to be filled."""
    return [look for name, pair in urls.items() for look in asyncio.run(_at(name, pair, sessions, times))]


async def _at(name: str, urls: tuple[str, str], sessions: int, times: int) -> list[Look]:
    empty, store = [open_store(url, clock=time.time, random_bytes=os.urandom, timeout=5.0) for url in urls]
    for number in range(sessions):
        await _commit(store, number.to_bytes(16), f"run {number:05}", f"team{number % _TEAMS}")
    found = await _side_by_side(name, (empty, store), sessions, times)
    desk = _desk(store)
    middle = (await desk.page(after="", count=200, team=None, search="")).next or ""
    for _ in range(sessions // 400 - 1):
        middle = (await desk.page(after=middle, count=200, team=None, search="")).next or ""
    found += [await _timed(name, what, work, times) for what, work in _asked(desk, middle, sessions)]
    await empty.close()
    await store.close()
    return found


async def _side_by_side(name: str, stores: Sequence[Store], sessions: int, times: int) -> list[Look]:
    work = [_request(store, itertools.count()) for store in stores]
    taken: list[list[float]] = [[] for _ in work]
    for turn in range(2 * times):  # the first half warms up
        for one, found in zip(work, taken, strict=True):
            start = time.perf_counter()
            await one()
            if turn >= times:
                found.append(time.perf_counter() - start)
    what = ("a request's calls of the store, no other session", f"the same, {sessions:,} sessions")
    return [Look(name, said, statistics.median(each), max(each)) for said, each in zip(what, taken, strict=True)]


def _asked(desk: Desk, middle: str, sessions: int) -> Sequence[tuple[str, Callable[[], Awaitable[object]]]]:
    rare, eldest = f"run {sessions // 2:05}", f"run {0:05}"
    return [
        ("list, the newest 50", lambda: desk.page(after="", count=50, team=None, search="")),
        ("list, 50 from the middle on", lambda: desk.page(after=middle, count=50, team=None, search="")),
        ("list, 50 of one team in ten", lambda: desk.page(after="", count=50, team="team3", search="")),
        ("search, every tenth matches", lambda: desk.page(after="", count=50, team=None, search="7")),
        ("search, one matches", lambda: desk.page(after="", count=50, team=None, search=rare)),
        ("search, none matches", lambda: desk.page(after="", count=50, team=None, search="nobody")),
        ("show, by name, the longest unused", lambda: desk.show(eldest, None)),
        ("show, by key", lambda: desk.show((sessions // 2).to_bytes(16).hex(), None)),
    ]


def _desk(store: Store) -> Desk:
    teams = {f"team{number}": {"keys": [f"sha256:{number:064x}"]} for number in range(_TEAMS)}
    setting: Any = _Setting(Tenants(load(repr({"teams": teams}), {}), zone=UTC, prices=Prices({}, {})))
    return Desk(store, lambda: setting, ttl=_TTL, emit=lambda _: None)


def _request(store: Store, names: "itertools.count[int]") -> Callable[[], Awaitable[object]]:
    """What a request of one session asks of the store."""

    async def work() -> None:
        number = next(names)
        lease = f"lease {number}"
        await store.open(b"session of bench", Reservation(lease, 1, 4_000, 1_000, 500, 200, 100, 60.0), _TTL)
        await _commit(store, b"session of bench", "bench", "", version=number, lease=lease)

    return work


async def _commit(store: Store, session: bytes, name: str, team: str, *, version: int = 0, lease: str = "first") -> None:
    settlement = Settlement(lease, 1, 900, 100, 4_000)
    record = session * (_RECORD_BYTES // len(session))
    listing = Listing(team, name)
    await store.commit(session, record=record, version=version, settlements=(settlement,), links=(), ttl=_TTL, listing=listing)


async def _timed(store: str, what: str, work: Callable[[], Awaitable[object]], times: int) -> Look:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - start)
    return Look(store, what, statistics.median(taken), max(taken))
