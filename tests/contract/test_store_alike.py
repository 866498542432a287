"""The same answers from every store: any history of opens, renewals, commits and amendments reads the same in memory and on a server.

Three sessions and two teams; a session may pay for another one, and a team for all.
"""

import asyncio
import itertools
import os
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.store import Account, Amendment, Ceiling, Kind, Mark, Opened, Peeked, Reservation, Settlement, Stopped, Store, Unit
from proxy.store.memory import MemoryStore
from proxy.store.redis import RedisStore
from tests.servers import Server
from tests.stores import SERVERS, TTL, call

_small = st.integers(0, 4)
_SIZES = {Unit.STEPS: 8, Unit.INPUT: 6000, Unit.OUTPUT: 3000, Unit.TOKENS: 9000, Unit.COST: 9000}
_windows = st.sampled_from([("", None), ("day 1", 4e9), ("hour 1", 4e9), ("week 1", 4e9 + 0.5)])


def _ceiling(unit: Unit) -> st.SearchStrategy[Ceiling]:
    return st.builds(lambda limit, window: Ceiling(unit, limit, *window), st.integers(0, _SIZES[unit]), _windows)


_ceilings = st.lists(st.sampled_from(list(Unit)).flatmap(_ceiling), max_size=4, unique_by=lambda one: (one.unit, one.window)).map(
    lambda some: tuple(sorted(some, key=lambda one: list(Unit).index(one.unit)))
)
_deadlines = st.none() | st.just(0.0) | st.just(1e6)
_leases = st.sampled_from([f"lease-{i}" for i in range(8)])
_sessions = st.sampled_from([b"session 0", b"session 1", b"session 2"])
_accounts = st.lists(
    st.builds(Account, _sessions, st.none() | _ceilings, _deadlines)
    | st.builds(
        Account,
        st.sampled_from([b"team 0", b"team 1"]),
        _ceilings,
        calls=st.none() | st.integers(0, 5),
        sessions=st.none() | st.integers(0, 3),
        member=st.just(b"") | st.just(b"eldest"),
        team=st.just(True),
    ),
    max_size=3,
    unique_by=lambda one: one.key,
).map(tuple)
_opens = st.builds(
    call,
    _leases,
    tag=st.integers(-(2**63), 2**63 - 1),
    body_bytes=st.integers(0, 5000),
    input_bound=st.integers(0, 3000),
    output=st.integers(0, 600),
    modest=st.integers(0, 300),
    floor=st.integers(0, 150),
    ceilings=_ceilings,
    deadline=_deadlines,
    tighten=st.just(()) | _ceilings,
    tighten_deadline=st.none() | _deadlines,
    attached=st.just(0) | st.integers(0, 2000),
    steps=st.integers(0, 1),
    input_price=st.sampled_from([0, 300, 1001]),
    output_price=st.sampled_from([0, 7, 2500]),
    accounts=_accounts,
)
_settlements = st.builds(
    Settlement,
    _leases,
    st.integers(0, 1),
    st.integers(0, 3000),
    st.integers(0, 600),
    st.integers(0, 5000),
    st.integers(0, 3000),
    st.lists(st.sampled_from(["day 1", "hour 1", "never opened"]), unique=True).map(tuple),
    _accounts,
    st.sampled_from(["gpt-4o", "_other"]),
    st.sampled_from(["", "2026-11-29", "2026-11-30"]),
    st.sampled_from([None, "", "cycle"]),
)
_amendments = st.tuples(
    _accounts,
    st.builds(
        Amendment,
        st.booleans(),
        st.booleans(),
        _ceilings,
        _deadlines,
        st.none() | st.just(Mark.NONE) | st.sampled_from(Mark),
        st.none() | st.binary(max_size=3),
    ),
)
_renewals = st.tuples(_leases, _accounts)
_commits = st.tuples(st.none() | st.sampled_from([b"", b"one", b"two"]), _small, st.lists(_settlements, max_size=3))
_Accounts = tuple[Account, ...]
_Step = Reservation | tuple[str, _Accounts] | tuple[_Accounts, Amendment] | tuple[bytes | None, int, list[Settlement]]
_histories = st.lists(st.tuples(_sessions, _opens | _opens | _commits | _commits | _renewals | _amendments), max_size=25)


def comparable(answer: Opened | Peeked, world: bytes) -> Opened | Peeked:
    """Without what depends on the store's clock, and on ties in it."""
    ledger = msgspec.structs.replace(answer.ledger, started_at=0.0)
    fallen = None if answer.fallen is None else Stopped(answer.fallen.session.removeprefix(world), answer.fallen.reason)
    if isinstance(answer, Peeked):
        return msgspec.structs.replace(answer, ledger=ledger, fallen=fallen, now=0.0, expires_at=0.0, stamp=b"")
    refused = answer.refused
    if refused is not None and refused.kind is Kind.DEADLINE:
        refused = msgspec.structs.replace(refused, spent=0)
    tags = tuple(sorted(answer.in_flight))
    ends_at = None if answer.ends_at is None else 0.0
    return msgspec.structs.replace(answer, ledger=ledger, fallen=fallen, now=0.0, refused=refused, in_flight=tags, ends_at=ends_at)


async def amended(store: Store, account: Account, amendment: Amendment) -> Peeked:
    """A ledger after a change that goes with any."""
    found = await store.amend(account, amendment, TTL)
    assert found is not None
    return found


async def played(store: Store, world: bytes, history: list[tuple[bytes, _Step]]) -> list[object]:
    """The answers to a history in a world of its own."""

    def here(accounts: _Accounts, session: bytes) -> _Accounts:
        """A session does not pay for itself twice."""
        return tuple(msgspec.structs.replace(one, key=world + one.key) for one in accounts if one.key != session)

    answers: list[object] = []
    for session, step in history:
        key = world + session
        if isinstance(step, Reservation):
            wanted = msgspec.structs.replace(step, accounts=here(step.accounts, session))
            answers.append(comparable(await store.open(key, wanted, TTL), world))
        elif isinstance(step[0], str):
            answers.append(await store.renew(key, step[0], here(step[1], session), 600.0))
        elif isinstance(step[0], tuple):
            for account in (Account(key), *here(step[0], session)):
                answers.append(comparable(await amended(store, account, step[1]), world))
        else:
            record, version, settlements = step
            charged = [msgspec.structs.replace(one, accounts=here(one.accounts, session)) for one in settlements]
            answers.append(await store.commit(key, record=record, version=version, settlements=charged, links=(), ttl=TTL))
    ledgers = [Account(world + one) for one in (b"session 0", b"session 1", b"session 2")]
    ledgers += [Account(world + one, (Ceiling(Unit.TOKENS, 9000, "day 1"),), team=True) for one in (b"team 0", b"team 1")]
    answers += [one and comparable(one, world) for one in await store.peek(ledgers)]
    for team in (b"team 0", b"team 1"):
        answers.append(await store.usage(world + team, ["2026-11-29", "2026-11-30", "2026-12-01"]))
    return answers


@pytest.mark.parametrize("kind", SERVERS)
def test_every_store_gives_the_same_answers(servers: dict[str, Server], kind: str) -> None:
    """Any history of opens and commits reads the same in memory and on a server."""
    with asyncio.Runner() as runner:
        memory = MemoryStore(time.time, os.urandom)
        server = RedisStore(servers[kind].url, os.urandom, timeout=5.0)
        names = itertools.count()

        @given(_histories)
        @settings(max_examples=150, deadline=None, database=None)
        def same(history: list[tuple[bytes, _Step]]) -> None:
            world = os.urandom(12) + next(names).to_bytes(4)
            assert runner.run(played(server, world, history)) == runner.run(played(memory, world, history))

        same()
        runner.run(server.close())
