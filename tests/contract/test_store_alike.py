"""The same answers from every store: any history of opens and commits reads the same in memory and on a server."""

import asyncio
import itertools
import os
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.store import Ceiling, Committed, Opened, Refusal, Reservation, Settlement, Store, Unit
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
)
_commits = st.tuples(st.none() | st.sampled_from([b"", b"one", b"two"]), _small, st.lists(_settlements, max_size=3))
_histories = st.lists(_opens | _commits, max_size=25)


def comparable(answer: Opened | Committed) -> Opened | Committed:
    """Without what depends on the store's clock, and on ties in it."""
    if isinstance(answer, Committed):
        return answer
    ledger = msgspec.structs.replace(answer.ledger, started_at=0.0)
    late = answer.refused if answer.refused is None or answer.refused.ceiling is not None else Refusal(answer.refused.kind, 0, 0)
    return msgspec.structs.replace(answer, now=0.0, ledger=ledger, refused=late, in_flight=tuple(sorted(answer.in_flight)))


async def played(store: Store, session: bytes, history: list[Reservation | tuple[bytes | None, int, list[Settlement]]]) -> list[object]:
    answers: list[object] = []
    for step in history:
        if isinstance(step, Reservation):
            answer: Opened | Committed = await store.open(session, step, TTL)
        else:
            record, version, settlements = step
            answer = await store.commit(session, record=record, version=version, settlements=settlements, links=(), ttl=TTL)
        answers.append(comparable(answer))
    return answers


@pytest.mark.parametrize("kind", SERVERS)
def test_every_store_gives_the_same_answers(servers: dict[str, Server], kind: str) -> None:
    """Any history of opens and commits reads the same in memory and on a server."""
    with asyncio.Runner() as runner:
        memory = MemoryStore(time.time, os.urandom)
        server = RedisStore(servers[kind].url, os.urandom, connect_timeout=5.0)
        names = itertools.count()

        @given(_histories)
        @settings(max_examples=150, deadline=None, database=None)
        def same(history: list[Reservation | tuple[bytes | None, int, list[Settlement]]]) -> None:
            session = os.urandom(12) + next(names).to_bytes(4)
            assert runner.run(played(server, session, history)) == runner.run(played(memory, session, history))

        same()
        runner.run(server.close())
