"""Random work on sessions, an ancestor and two teams, foretold by a plain model of ledgers, on every store.

The model knows lists of what was charged and what is held, and adds them up anew each time: no counters, no scripts, no undo. What it says
before each call must be what the store says: whether the call is granted, else by which limit of whom; and how much of every ceiling is
used. So no ceiling is passed by what is settled and held (but for what settlements charge beyond their hold), a refusal holds nothing
anywhere, a lease holds nothing once it is over, and in the end every ledger has exactly the sum of its settlements.
"""

import asyncio
import itertools
import os
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.store import Account, Ceiling, Opened, Reservation, Settlement, Store, Unit
from proxy.store.contract import windows_of
from proxy.store.memory import MemoryStore
from proxy.store.redis import RedisStore
from tests.servers import Server
from tests.stores import SERVERS, TTL

SESSIONS, ANCESTOR, TEAMS = (b"one", b"two", b"three"), b"ancestor", (b"red", b"blue")
FOREVER = 4e9
Amounts = dict[Unit, int]


def amounts(steps: int, read: int, written: int, cost: int) -> Amounts:
    return {Unit.STEPS: steps, Unit.INPUT: read, Unit.OUTPUT: written, Unit.TOKENS: read + written, Unit.COST: cost}


@dataclass
class Ledger:
    """charged: what was settled, and in which windows. held: by lease. there: sessions that count."""

    charged: list[tuple[tuple[str, ...], Amounts]] = field(default_factory=list)
    held: dict[str, tuple[tuple[str, ...], Amounts]] = field(default_factory=dict)
    there: set[bytes] = field(default_factory=set)

    def used(self, ceiling: Ceiling) -> tuple[int, int]:
        def total(entries: Any) -> int:
            return sum(amount[ceiling.unit] for windows, amount in entries if not ceiling.window or ceiling.window in windows)

        return total(self.charged), total(self.held.values())


@dataclass
class Made:
    """A call that was granted. over: its lease is."""

    session: bytes
    wanted: Reservation
    over: bool


class Model:
    def __init__(self, world: bytes) -> None:
        self.world = world
        self.ledgers: dict[bytes, Ledger] = {world + key: Ledger() for key in (*SESSIONS, ANCESTOR, *TEAMS)}
        self.made: list[Made] = []

    def paying(self, session: bytes, wanted: Reservation) -> list[tuple[int, Ledger, tuple[Ceiling, ...], Account | None]]:
        """Every ledger that is asked, by its account's place."""
        own = (-1, self.ledgers[session], wanted.ceilings, None)
        return [own, *((at, self.ledgers[one.key], one.ceilings or (), one) for at, one in enumerate(wanted.accounts))]

    def refusal(self, session: bytes, wanted: Reservation) -> tuple[int, str] | None:
        """Which limit of whom will say no: the first that is used up, else the first of which too much is held, or too many are there."""
        need = held_by(wanted)
        passing: list[tuple[int, str]] = []
        for place, ledger, ceilings, account in self.paying(session, wanted):
            full = [(ceiling, *ledger.used(ceiling)) for ceiling in ceilings if not self.fits(ledger, ceiling, wanted)]
            over = [ceiling for ceiling, spent, held in full if not held or spent + need[ceiling.unit] > ceiling.limit]
            if over:
                return place, over[0].unit
            if full:
                passing.append((place, full[0][0].unit))
            elif account is not None and account.calls is not None and len(ledger.held) >= account.calls:
                return place, "calls"
            elif account is not None and account.sessions is not None and crowded(ledger, session, account.sessions):
                return place, "sessions"
        return passing[0] if passing else None

    def fits(self, ledger: Ledger, ceiling: Ceiling, wanted: Reservation) -> bool:
        need = held_by(wanted)[ceiling.unit]
        return ceiling.limit > 0 and (free(wanted, ceiling.unit) or sum(ledger.used(ceiling)) + need <= ceiling.limit)

    def grant(self, session: bytes, wanted: Reservation) -> None:
        for _, ledger, ceilings, account in self.paying(session, wanted):
            ledger.held[wanted.lease] = windows_of(ceilings), held_by(wanted)
            if account is not None and account.sessions is not None:
                ledger.there.add(session)

    def let_go(self, session: bytes, wanted: Reservation) -> None:
        for _, ledger, _, _ in self.paying(session, wanted):
            ledger.held.pop(wanted.lease, None)

    def charge(self, made: Made, cost: Amounts) -> None:
        self.let_go(made.session, made.wanted)
        for _, ledger, ceilings, _ in self.paying(made.session, made.wanted):
            ledger.charged.append((windows_of(ceilings), cost))


def crowded(ledger: Ledger, session: bytes, most: int) -> bool:
    return most <= 0 or (session not in ledger.there and len(ledger.there) >= most)


def free(wanted: Reservation, unit: Unit) -> bool:
    """Whether the call takes nothing under a ceiling of that unit, nor could its answer."""
    if unit is Unit.COST:
        return wanted.output_price == 0 and held_by(wanted)[unit] == 0
    return unit in (Unit.STEPS, Unit.INPUT) and held_by(wanted)[unit] == 0


def held_by(wanted: Reservation) -> Amounts:
    read, written = wanted.input_bound + wanted.attached, wanted.output
    cost = -(-read * wanted.input_price // 1000) - (-written * wanted.output_price // 1000) + wanted.beside
    return amounts(wanted.steps, read, written, cost)


# What happens: a call of a session, or the end of one of those made, by its number

_windows = st.sampled_from([("", None), ("day 1", FOREVER), ("day 2", FOREVER)])
_limits = st.lists(
    st.builds(
        lambda unit, limit, window: Ceiling(unit, limit * (1 if unit is Unit.STEPS else 300), *window),
        st.sampled_from(Unit),
        st.integers(0, 12),
        _windows,
    ),
    max_size=3,
    unique_by=lambda one: (one.unit, one.window),
).map(tuple)
_accounts = st.tuples(
    st.none() | st.builds(Account, st.just(ANCESTOR), _limits),
    *(
        st.none()
        | st.builds(
            Account, st.just(team), _limits, calls=st.none() | st.integers(0, 4), sessions=st.none() | st.integers(0, 3), team=st.just(True)
        )
        for team in TEAMS
    ),
).map(lambda some: tuple(one for one in some if one is not None))


@st.composite
def _calls(draw: st.DrawFn) -> tuple[bytes, Reservation]:
    output = draw(st.integers(0, 400))
    life = draw(st.sampled_from([600.0, 600.0, 600.0, 0.0]))
    wanted = Reservation(
        *("", draw(st.integers(0, 9)), 0, draw(st.integers(0, 400)), output, output, output, life),
        ceilings=draw(_limits),
        attached=draw(st.integers(0, 50)),
        steps=draw(st.sampled_from([1, 1, 0])),
        input_price=draw(st.sampled_from([0, 900, 1700])),
        output_price=draw(st.sampled_from([0, 1100])),
        beside=draw(st.sampled_from([0, 0, 500])),
        accounts=draw(_accounts),
    )
    return draw(st.sampled_from(SESSIONS)), wanted


_ends = st.tuples(st.integers(0, 30), st.integers(0, 1), st.integers(0, 600), st.integers(0, 600), st.integers(0, 900))
_work = st.lists(_calls() | _calls() | _ends, max_size=30)
_Step = tuple[bytes, Reservation] | tuple[int, int, int, int, int]


async def worked(store: Store, model: Model, work: list[_Step]) -> None:
    for number, step in enumerate(work):
        if isinstance(step[1], Reservation):
            await called(store, model, model.world + step[0], in_world(step[1], model.world, f"lease-{number}"))
        elif model.made:
            made = model.made.pop(step[0] % len(model.made))
            await ended(store, model, made, amounts(*step[1:]))
    for made in model.made:
        await ended(store, model, made, amounts(0, 0, 0, 0))
    await compare(store, model)


def in_world(wanted: Reservation, world: bytes, lease: str) -> Reservation:
    accounts = tuple(msgspec.structs.replace(one, key=world + one.key) for one in wanted.accounts)
    return msgspec.structs.replace(wanted, lease=lease, accounts=accounts)


async def called(store: Store, model: Model, session: bytes, wanted: Reservation) -> None:
    foretold = model.refusal(session, wanted)
    opened = await store.open(session, wanted, TTL)
    assert (None if opened.refused is None else (opened.refused.account, str(opened.refused.kind))) == foretold
    if foretold is None:
        model.grant(session, wanted)
        model.made.append(Made(session, wanted, wanted.expires_in == 0))
        assert opened.output in (None, wanted.output)
    told(model, session, wanted, opened)
    if foretold is None and wanted.expires_in > 0:
        assert (await store.open(session, wanted, TTL)).standings == opened.standings  # sent again, it holds once
    if wanted.expires_in == 0:
        model.let_go(session, wanted)


def told(model: Model, session: bytes, wanted: Reservation, opened: Opened) -> None:
    """Every standing is what the model adds up; no ceiling is passed by what this call was granted."""
    expected = [(at, one, *ledger.used(one)) for at, ledger, ceilings, _ in model.paying(session, wanted) for one in ceilings]
    assert [(one.account, one.ceiling, one.spent, one.reserved) for one in opened.standings] == expected
    if opened.refused is None:
        assert all(spent + held <= one.limit or free(wanted, one.unit) for _, one, spent, held in expected)


async def ended(store: Store, model: Model, made: Made, cost: Amounts) -> None:
    wanted, windows = made.wanted, windows_of(made.wanted.ceilings)
    steps, read, written = (cost[unit] for unit in (Unit.STEPS, Unit.INPUT, Unit.OUTPUT))
    settlement = Settlement(wanted.lease, steps, read, written, 0, cost[Unit.COST], windows, wanted.accounts)
    for _ in range(2):  # a settlement that is sent again counts once
        await store.commit(made.session, record=None, version=0, settlements=[settlement], links=(), ttl=TTL)
    model.charge(made, cost)


async def compare(store: Store, model: Model) -> None:
    """Nothing is held any more, and every ledger has the sum of its settlements."""
    every = tuple(Ceiling(unit, 10**9, window) for unit in Unit for window in ("", "day 1", "day 2"))
    keys = list(model.ledgers)
    looks = await store.peek([Account(key, every, team=key.removeprefix(model.world) in TEAMS) for key in keys])
    for key, look in zip(keys, looks, strict=True):
        if look is None:
            assert not model.ledgers[key].charged
            continue
        assert look.calls == 0
        assert [(one.spent, one.reserved) for one in look.standings] == [model.ledgers[key].used(one) for one in every]
        assert all(one.reserved == 0 for one in look.standings)


@pytest.mark.parametrize("kind", ["memory", *SERVERS])
def test_ledgers_do_what_a_plain_model_foretells(servers: dict[str, Server], kind: str) -> None:
    """See above."""
    with asyncio.Runner() as runner:
        store: Store = MemoryStore(time.time, os.urandom) if kind == "memory" else RedisStore(servers[kind].url, os.urandom, timeout=5.0)
        names = itertools.count()

        @given(_work)
        @settings(max_examples=120, deadline=None, database=None)
        def as_foretold(work: list[_Step]) -> None:
            runner.run(worked(store, Model(os.urandom(12) + next(names).to_bytes(4)), work))

        as_foretold()
        runner.run(store.close())
