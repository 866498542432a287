"""The contract of every store, on the memory store, a real Redis 7.0 and a real Valkey 9."""

import asyncio
import os
import time
from typing import Any

import pytest

from proxy.store import Committed, Ledger, Store
from proxy.store.contract import MAX_IN_FLIGHT
from proxy.store.redis import RedisStore
from tests.servers import Server
from tests.stores import SERVERS, TTL, call, cost, effective, limited, refused, settle, tightened, until_expired, write

# Secret and reachability


async def test_secret_is_32_bytes_and_stays(store: Store) -> None:
    """The key of every fingerprint is made once."""
    first = await store.secret()

    assert len(first) == 32
    assert await store.secret() == first


@pytest.mark.parametrize("kind", SERVERS)
async def test_secret_is_shared_by_replicas(servers: dict[str, Server], kind: str) -> None:
    """Two processes on one server agree, also when both ask first."""
    replicas = [RedisStore(servers[kind].url, os.urandom, timeout=5.0) for _ in range(4)]
    secrets = await asyncio.gather(*(replica.secret() for replica in replicas))
    await asyncio.gather(*(replica.close() for replica in replicas))

    assert len(set(secrets)) == 1


async def test_ping_answers(store: Store) -> None:
    """A store that is there says so by saying nothing."""
    await store.ping()


# Records


async def test_a_new_session_has_no_record(store: Store, session: bytes) -> None:
    """Opening creates the ledger, and its start, but no record."""
    opened = await store.open(session, call("a"), TTL)

    assert (opened.record, opened.version) == (None, 0)
    assert opened.ledger == Ledger(reserved_steps=1, reserved_tokens=1500, started_at=opened.now)
    assert abs(opened.now - time.time()) < 60


async def test_a_record_is_read_back_as_written(store: Store, session: bytes) -> None:
    """Any bytes, up to the size of the largest record, and an empty one."""
    for version, record in enumerate([bytes(range(256)) * 64, b""]):
        committed = await write(store, session, record, version)
        opened = await store.open(session, call("a"), TTL)

        assert committed == Committed(False, record, version + 1)
        assert (opened.record, opened.version) == (record, version + 1)


async def test_a_conflict_replaces_nothing_and_shows_what_stands(store: Store, session: bytes) -> None:
    """The second writer of one version gets the first one's record, and its settlement still counts."""
    await write(store, session, b"first", 0)
    conflict = await store.commit(session, record=b"second", version=0, settlements=[cost("a")], links=(), ttl=TTL)
    opened = await store.open(session, call("b"), TTL)

    assert conflict == Committed(True, b"first", 1)
    assert (opened.record, opened.ledger.steps) == (b"first", 1)
    assert await write(store, session, b"second", 1) == Committed(False, b"second", 2)


async def test_a_version_of_a_lost_session_conflicts(store: Store, session: bytes) -> None:
    """Whoever loaded a session that is gone learns that nothing stands there."""
    assert await write(store, session, b"late", 7) == Committed(True, None, 0)


async def test_a_commit_sent_again_is_no_conflict(store: Store, session: bytes) -> None:
    """After a lost reply the same commit changes nothing more."""
    await write(store, session, b"zero", 0)
    first = await store.commit(session, record=b"one", version=1, settlements=[cost("a")], links=(), ttl=TTL)
    again = await store.commit(session, record=b"one", version=1, settlements=[cost("a")], links=(), ttl=TTL)
    opened = await store.open(session, call("b"), TTL)

    assert first == again == Committed(False, b"one", 2)
    assert (opened.version, opened.ledger.steps) == (2, 1)


async def test_settling_alone_leaves_the_record(store: Store, session: bytes) -> None:
    """Without a record there is no version to miss."""
    await write(store, session, b"record", 0)

    assert await settle(store, session, cost("a")) == Committed(False, None, 1)
    assert (await store.open(session, call("b"), TTL)).record == b"record"


async def test_one_of_many_concurrent_writers_wins(store: Store, session: bytes) -> None:
    """Compare-and-set, not last-write-wins."""
    outcomes = await asyncio.gather(*(write(store, session, bytes([i]), 0) for i in range(20)))
    winners = [outcome for outcome in outcomes if not outcome.conflict]

    assert len(winners) == 1
    assert {outcome.record for outcome in outcomes} == {winners[0].record}


# Links


async def test_find_takes_the_first_known_link(store: Store, session: bytes) -> None:
    """The order of the question decides, not that of the commits."""
    other, one, two, unknown = (os.urandom(8) for _ in range(4))
    await write(store, session, b"r", 0, links=[one])
    await write(store, other, b"r", 0, links=[two])

    assert await store.find([unknown, one, two]) == session
    assert await store.find([two, one]) == other
    assert await store.find([unknown]) is None
    assert await store.find([]) is None


async def test_a_link_points_where_it_was_last_pointed(store: Store, session: bytes) -> None:
    """The newest session with that answer is meant."""
    link, newer = os.urandom(8), os.urandom(16)
    await write(store, session, b"r", 0, links=[link])
    await write(store, newer, b"r", 0, links=[link])

    assert await store.find([link]) == newer


async def test_a_session_and_its_links_expire(store: Store, session: bytes) -> None:
    """After its ttl a session is as if it had never been."""
    link = os.urandom(8)
    await store.commit(session, record=b"r", version=0, settlements=[cost("a")], links=[link], ttl=0.05)
    await until_expired(store, os.urandom(16), 0.1)

    assert await store.find([link]) is None
    opened = await store.open(session, call("b"), TTL)
    assert (opened.record, opened.version, opened.ledger.steps) == (None, 0, 0)


async def test_use_keeps_a_session_alive(store: Store, session: bytes) -> None:
    """Opening and committing renew the life of all a session has; a shorter ttl takes none away."""
    await write(store, session, b"r", 0, ttl=0.5)
    await store.open(session, call("a"), TTL)
    await store.open(session, call("a"), 0.5)
    await settle(store, session, cost("b"), ttl=0.5)
    await until_expired(store, os.urandom(16), 0.7)
    opened = await store.open(session, call("c"), TTL)

    assert (opened.record, opened.ledger.steps, opened.ledger.reserved_steps) == (b"r", 1, 2)


# Leases and settlements


async def test_settling_replaces_the_reservation_by_the_cost(store: Store, session: bytes) -> None:
    """What was held is given back, what was spent is charged."""
    await store.open(session, call("a"), TTL)
    await settle(store, session, cost("a", input_tokens=700, output_tokens=30))
    ledger = (await store.open(session, call("b", body_bytes=0), TTL)).ledger

    assert (ledger.steps, ledger.input_tokens, ledger.output_tokens, ledger.tokens) == (1, 700, 30, 730)
    assert ledger.reserved_steps == 1


@pytest.mark.parametrize("output", [10**12, 2**53, 2**60])
async def test_a_call_that_wants_more_than_can_be_counted_breaks_no_ledger(store: Store, session: bytes, output: int) -> None:
    """What it may cost is beyond what the store's numbers hold; calls beside it and after it are served, and nothing stays held."""
    for lease in ("a", "b"):
        opened = await store.open(session, call(lease, output=output, input_price=600_000_000, output_price=600_000_000), TTL)
        assert refused(opened) is None
        assert opened.ledger.reserved_tokens >= 10**12
    await settle(store, session, cost("a", body_bytes=0), cost("b", body_bytes=0))
    ledger = (await store.open(session, call("c"), TTL)).ledger

    assert (ledger.steps, ledger.reserved_steps, ledger.reserved_tokens, ledger.reserved_cost) == (2, 1, 1500, 0)


async def test_a_settlement_counts_once(store: Store, session: bytes) -> None:
    """However often, in one commit or many, alone or with others."""
    for lease in ("a", "live"):
        await store.open(session, call(lease), TTL)
    for _ in range(3):
        await settle(store, session, cost("a", input_tokens=0), cost("a"), cost("b", input_tokens=0))
    ledger = (await store.open(session, call("c"), TTL)).ledger

    assert (ledger.steps, ledger.output_tokens, ledger.reserved_steps, ledger.reserved_tokens) == (2, 100, 2, 3000)


async def test_one_lease_settles_in_each_session_it_was_opened_in(store: Store, session: bytes) -> None:
    """Sessions share nothing, lease names included."""
    other = os.urandom(16)
    await settle(store, session, cost("a"))
    await settle(store, other, cost("a"))

    assert (await store.open(other, call("b"), TTL)).ledger.steps == 1


async def test_an_expired_lease_gives_back_what_it_held(store: Store, session: bytes) -> None:
    """A crashed caller holds nothing for longer than its lease; its late settlement is charged all the same, once."""
    limits = limited(steps=1)
    await store.open(session, call("crashed", expires_in=0.05, **limits), TTL)
    await until_expired(store, os.urandom(16), 0.1)
    opened = await store.open(session, call("next", **limits), TTL)
    for _ in range(2):
        await settle(store, session, cost("crashed"))
    last = await store.open(session, call("last", **limits), TTL)

    assert (opened.refused, opened.step, opened.in_flight) == (None, 1, ())
    assert opened.ledger == Ledger(reserved_steps=1, reserved_tokens=1500, started_at=opened.ledger.started_at)
    assert (refused(last), last.ledger.steps) == ("steps", 1)


async def test_an_open_sent_again_reserves_once(store: Store, session: bytes) -> None:
    """After a lost reply the same lease replaces its own reservation."""
    for _ in range(3):
        opened = await store.open(session, call("a", **limited(steps=1)), TTL)

    assert (opened.refused, opened.step, opened.in_flight) == (None, 1, ())
    assert (opened.ledger.reserved_steps, opened.ledger.reserved_tokens) == (1, 1500)


async def test_in_flight_shows_the_other_live_leases(store: Store, session: bytes) -> None:
    """Their tags, whole (they are hashes), the newest few of them, and none that is settled."""
    tags = [2**63 - 1 - i for i in range(MAX_IN_FLIGHT + 4)]
    for i, tag in enumerate(tags):
        opened = await store.open(session, call(f"lease-{i}", tag=tag), TTL)
        assert sorted(opened.in_flight) == sorted(tags[:i][-MAX_IN_FLIGHT:])
    await settle(store, session, *(cost(f"lease-{i}") for i in range(1, len(tags))))

    assert (await store.open(session, call("last"), TTL)).in_flight == (tags[0],)


# Limits


async def test_steps_are_refused_beyond_the_limit(store: Store, session: bytes) -> None:
    """Settled and reserved steps count; the last one allowed says that it is; a refusal reserves nothing."""
    limits = limited(steps=2)
    first = await store.open(session, call("a", **limits), TTL)
    await settle(store, session, cost("a"))
    second = await store.open(session, call("b", **limits), TTL)
    third = await store.open(session, call("c", tag=3, **limits), TTL)

    assert [(one.step, one.last is not None, refused(one)) for one in (first, second, third)] == [
        (1, False, None),
        (2, True, None),
        (3, False, "steps"),
    ]
    assert third.ledger == second.ledger
    assert third.in_flight == (1,)


async def test_a_call_that_was_not_completed_gives_its_step_back(store: Store, session: bytes) -> None:
    """A settlement of no steps pays tokens only."""
    limits = limited(steps=1)
    await store.open(session, call("a", **limits), TTL)
    await settle(store, session, cost("a", steps=0))
    opened = await store.open(session, call("b", **limits), TTL)

    assert (opened.refused, opened.step, opened.ledger.input_tokens) == (None, 1, 100)


@pytest.mark.parametrize(
    ("tokens", "granted", "last"),
    [
        (None, None, False),
        (2600, 500, False),  # one more of 1000 + 100 fits behind 1000 + 500
        (2599, 500, True),
        (1500, 500, True),
        (1499, 200, True),  # not the whole: the modest output
        (1200, 200, True),
        (1199, 199, True),  # not even that: what there is
        (1100, 100, True),
    ],
)
async def test_tokens_are_granted_as_far_as_they_reach(
    store: Store, session: bytes, tokens: int | None, granted: int | None, last: bool
) -> None:
    """The output granted, and whether another call of this size would fit."""
    opened = await store.open(session, call("a", **limited(tokens=tokens)), TTL)

    assert (opened.refused, opened.output, opened.last is not None) == (None, granted, last)
    assert opened.ledger.reserved_tokens == 1000 + (500 if granted is None else granted)


@pytest.mark.parametrize("tokens", [1099, 1, 0])
async def test_tokens_too_few_for_an_answer_are_refused(store: Store, session: bytes, tokens: int) -> None:
    """Below the floor nothing is granted and nothing held."""
    opened = await store.open(session, call("a", **limited(tokens=tokens)), TTL)

    assert (refused(opened), opened.output, opened.last) == ("tokens", None, None)
    assert (opened.ledger.reserved_steps, opened.ledger.reserved_tokens) == (0, 0)


async def test_the_input_estimate_follows_the_session(store: Store, session: bytes) -> None:
    """The most tokens per byte of any settled call, with a margin, lower the bound of as many bytes; those beyond may be anything."""
    await settle(store, session, cost("a", input_tokens=100, body_bytes=1000), cost("b", input_tokens=0, body_bytes=1000))
    await settle(store, session, cost("c", input_tokens=50, body_bytes=0))
    opened = await store.open(session, call("d", body_bytes=2000, input_bound=2000, output=0), TTL)
    bounded = await store.open(session, call("e", body_bytes=2000, input_bound=10, output=0), TTL)

    assert opened.ledger.reserved_tokens == 111 + 1000 + 512  # ceil(1000 * 0.1 * 1.1) is 111 in binary floating point; the rest is new
    assert bounded.ledger.reserved_tokens - opened.ledger.reserved_tokens == 10


async def test_what_is_no_text_comes_on_top_of_any_estimate(store: Store, session: bytes) -> None:
    """Bytes say nothing about a picture that stands behind an address."""
    await settle(store, session, cost("a", input_tokens=100, body_bytes=1000))
    opened = await store.open(session, call("b", body_bytes=1000, input_bound=1000, output=0, attached=5000), TTL)

    assert opened.ledger.reserved_tokens == 111 + 512 + 5000


async def test_the_deadline_counts_from_the_first_request(store: Store, session: bytes) -> None:
    """It is asked before steps and tokens."""
    limits = limited(steps=0, tokens=0, deadline=0.05)
    early = await store.open(session, call("a", **limits), TTL)
    await until_expired(store, os.urandom(16), 0.1)
    late = await store.open(session, call("b", **limits), TTL)

    assert (refused(early), refused(late)) == ("steps", "deadline")
    assert late.ledger.started_at == early.now


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"deadline": 0.0}, "deadline"),
        *(({unit: 0}, unit) for unit in ("steps", "input", "output", "tokens", "cost")),
        ({"steps": 0, "tokens": 0, "deadline": 0.0}, "deadline"),
    ],
)
async def test_a_limit_of_zero_allows_nothing(store: Store, session: bytes, limits: dict[str, Any], kind: str) -> None:
    """Not even a call that costs nothing."""
    opened = await store.open(session, call("a", steps=0, input_bound=0, output=0, modest=0, floor=0, **limited(**limits)), TTL)

    assert (refused(opened), effective(opened)) == (kind, {"deadline": None} | limits)


async def test_limits_are_tightened_for_good(store: Store, session: bytes) -> None:
    """What a request asks only ever lowers, stays for the session, also from a refused request, and never raises the policy's."""
    policy = limited(steps=100, deadline=500.0)
    first = await store.open(session, call("a", **policy, **tightened(steps=50, tokens=9000, deadline=900.5)), TTL)
    looser = await store.open(session, call("b", **policy, **tightened(steps=60)), TTL)
    third = await store.open(session, call("c", **policy, **tightened(steps=1, tokens=10_000, deadline=0.0)), TTL)
    after = await store.open(session, call("d", **limited(steps=0)), TTL)

    assert effective(first) == effective(looser) == {"steps": 50, "tokens": 9000, "deadline": 500.0}
    assert (refused(third), effective(third)) == ("deadline", {"steps": 1, "tokens": 9000, "deadline": 0.0})
    assert effective(after) == {"steps": 0, "tokens": 9000, "deadline": 0.0}


@pytest.mark.parametrize(("limits", "granted"), [({"steps": 50}, 50), ({"tokens": 60_000}, 40), ({"steps": 7, "tokens": 60_000}, 7)])
async def test_concurrent_opens_never_exceed_the_limits(store: Store, session: bytes, limits: dict[str, int], granted: int) -> None:
    """A budget is a ceiling, however many ask at once."""
    calls = (call(f"lease-{i}", modest=500, floor=500, **limited(**limits)) for i in range(200))
    answers = await asyncio.gather(*(store.open(session, one, TTL) for one in calls))
    allowed = [answer for answer in answers if answer.refused is None]

    assert len(allowed) == granted
    assert sorted(answer.step for answer in allowed) == list(range(1, granted + 1))
    assert max(answer.ledger.reserved_tokens for answer in answers) == granted * 1500
