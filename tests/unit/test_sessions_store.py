"""Sessions and their store: what the ledger said, what is written, lost races, answers still on their way, and a store that is away."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.errors import StoreUnavailable
from proxy.events import NudgeEnded, StoreFailed, StoreOperation
from proxy.identity import Identity, Tighten
from proxy.models import Allowance, Reason, ToolCall
from proxy.policy import Budgets, Policy
from proxy.sessions import Sessions
from proxy.state import Nudge, load
from proxy.store import Settlement
from proxy.store.contract import PartUnavailable
from tests.in_process import ids, looping, request
from tests.sessions import CHAT, FIRST, LS, World, calls, says

# ---- budgets


def limited(**limits: Any) -> Policy:
    return Policy(budgets=Budgets(**limits))


RANDOM = {"id": "call_9fJ2kQx81LbV", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
HISTORY = [*FIRST, {"role": "assistant", "tool_calls": [RANDOM]}, {"role": "tool", "tool_call_id": RANDOM["id"], "content": "a.txt"}]


async def test_without_limits_nothing_is_said() -> None:
    """No budget, no word; the step counts all the same."""
    session = await World().open()

    assert (session.spending.refused, session.spending.last, session.step) == (None, None, "1")


@pytest.mark.parametrize(
    ("policy", "tighten", "steps", "refused", "last", "limit", "spent"),
    [
        (limited(steps=3), None, 1, None, None, None, None),
        (limited(steps=3), None, 2, None, Reason.STEP_BUDGET, 3, 2),
        (limited(steps=3), None, 3, Reason.STEP_BUDGET, None, 3, 3),
        (limited(steps=0), None, 0, Reason.STEP_BUDGET, None, 0, 0),
        (limited(steps=9), Tighten(steps=2), 1, None, Reason.STEP_BUDGET, 2, 1),
        (limited(tokens=26), None, 2, Reason.TOKEN_BUDGET, None, 26, 26),
        (limited(), Tighten(tokens=10), 0, Reason.TOKEN_BUDGET, None, 10, 0),
        (limited(tokens=1300), None, 1, None, Reason.TOKEN_BUDGET, 1300, 13),
        (limited(steps=9, tokens=1300), None, 1, None, Reason.TOKEN_BUDGET, 1300, 13),
        (limited(tokens=900_000), None, 1, None, None, None, None),
    ],
)
async def test_what_the_ledger_said_is_put_as_a_reason(
    policy: Policy,
    tighten: Tighten | None,
    steps: int,
    refused: Reason | None,
    last: Reason | None,
    limit: float | None,
    spent: float | None,
) -> None:
    """Refused, or the last call that fits, with the limit and what was spent of it, in its unit."""
    world = World()
    for _ in range(steps):
        await world.commit(await world.open(name="a", max_tokens=1000), says("done"))
    session = await world.open(name="a", policy=policy, tighten=tighten, max_tokens=1000)

    spending = session.spending
    said = spending.refused or spending.last
    assert (spending.refused and said and said.reason, spending.last and said and said.reason) == (refused, last)
    assert (said and said.limit, said and said.spent) == (limit, spent)


async def test_a_deadline_counts_from_the_sessions_first_request() -> None:
    """In seconds."""
    world = World()
    await world.commit(await world.open(name="a"), says("done"))
    world.clock.now += 61.25
    late = await world.open(name="a", policy=limited(deadline=60.0))

    assert late.spending.refused == Allowance(Reason.DEADLINE, "deadline", 60.0, 61.25)


async def test_a_step_is_shown_with_its_limit() -> None:
    """As the response header says it."""
    world = World()
    await world.commit(await world.open(name="a"), says("done"))

    assert (await world.open(name="a", policy=limited(steps=50))).step == "2/50"


async def test_a_further_call_is_reserved_under_a_lease_of_its_own() -> None:
    """In the same session."""
    world = World()
    session = await world.open(name="a")
    first = session.lease
    opened = await world.sessions.reserve(session)

    assert opened is not None
    assert opened.step == 2
    assert set(world.entry(session).book.leases) == {first, session.lease}


# ---- committing


async def test_what_an_exchange_came_to_is_written_once() -> None:
    """Record, settlement and links in one call; the lease ends."""
    world = World()
    session = await world.open(name="a")
    await world.commit(session, calls(LS))

    ((record, settlements, links),) = world.store.commits
    assert record is not None
    assert (len(settlements), len(links)) == (1, 1)
    entry = world.entry(session)
    assert (entry.book.life.steps, entry.book.life.input, entry.book.life.output, entry.book.leases) == (1, 10, 3, {})


async def test_a_lost_race_is_run_again_on_what_stands_there() -> None:
    """Both results stand in the record in the end, and both settlements in the ledger, once."""
    world = World()
    one = await world.open(name="a", lane="one")
    other = await world.open(name="a", lane="two")
    assert one.opened is not None
    assert other.opened is not None
    assert one.opened.version == other.opened.version
    await world.commit(one, calls(LS))
    await world.commit(other, calls(LS))

    entry = world.entry(one)
    record = load(entry.record, one.keys.secret_id())
    assert {lane.name for lane in record.lanes} == {one.asker.lane, other.asker.lane}
    assert len(record.given) == 2
    assert (entry.book.life.steps, entry.book.life.input) == (2, 20)
    assert [len(settlements) for _, settlements, _ in world.store.commits] == [1, 1, 0]


async def test_many_writers_converge() -> None:
    """However many commit at the same time."""
    world = World()
    opened = [await world.open(name="a", lane=f"lane {number}") for number in range(6)]
    await asyncio.gather(*(world.commit(session, calls(LS), sessions=world.process()) for session in opened))

    entry = world.entry(opened[0])
    assert entry.book.life.steps == 6
    assert len(load(entry.record, opened[0].keys.secret_id()).lanes) == 6


async def test_a_crowd_of_writers_in_one_process_loses_no_record() -> None:
    """They take turns after a first lost race: otherwise all but one of them lose each of the next, and most give up."""
    world = World()
    opened = [await world.open([{"role": "user", "content": f"task {number}"}], name="a") for number in range(50)]
    world.store.distant = True
    await asyncio.gather(*(world.commit(session, calls(LS)) for session in opened))

    entry = world.entry(opened[0])
    assert (entry.book.life.steps, entry.book.leases) == (50, {})
    assert len(load(entry.record, opened[0].keys.secret_id()).given) == 50
    assert len(world.store.commits) < 3 * 50


async def test_a_record_that_is_always_lost_is_given_up_and_its_settlement_is_not() -> None:
    """After a bounded number of tries."""
    world = World()
    session = await world.open(name="a")
    world.store.contended = True
    session.settlements.append(Settlement(session.lease, 1, 10, 3, 0))
    _, task = world.sessions.commit(session, world.result(says("done")), [says("done")])

    assert await task is False
    assert len(world.store.commits) == 16
    assert world.entry(session).book.life.steps == 1


async def test_a_nudged_run_that_ends_in_an_answer_has_recovered() -> None:
    """It is told to the caller at once."""
    world = World()
    session = await world.open(looping(3), name="a")
    nudge = Nudge(2, -1, 5, 0, Reason.REPEATED_CALL, "ls", 3, [1])

    assert await world.commit(session, says("done"), nudge=nudge) == NudgeEnded("recovered")


async def test_an_answer_not_yet_in_the_store_is_waited_for() -> None:
    """A fast client comes back before the commit is through: this process knows, and waits."""
    world = World(patience=5)
    first = await world.open()
    world.store.gate = asyncio.Event()
    _, task = world.sessions.commit(first, world.result(calls(LS)), [calls(LS)])
    coming = asyncio.create_task(world.open(looping(1)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not coming.done()
    world.store.gate.set()
    second = await coming

    assert second.key == first.key
    assert second.opened is not None
    assert second.opened.version == 1
    assert await task
    assert world.sessions._linked._under_way == {}
    assert world.sessions._committing == {}


async def test_a_commit_that_does_not_come_is_waited_for_only_so_long() -> None:
    """Then the request goes on without it."""
    world = World(patience=0.01)
    first = await world.open(name="a")
    world.store.gate = asyncio.Event()
    _, task = world.sessions.commit(first, world.result(calls(LS)), [calls(LS)])
    second = await world.open(looping(1), name="a")

    assert second.opened is not None
    assert second.opened.version == 0
    world.store.gate.set()
    await task


async def test_an_answer_on_its_way_to_the_store_leads_to_the_session_that_gave_it_last() -> None:
    """Though another gave the same before: two runs of one task are two sessions."""
    world = World()
    one, other = await world.open(), await world.open()
    assert one.key != other.key
    await world.commit(one, calls(LS))
    world.store.gate = asyncio.Event()
    _, task = world.sessions.commit(other, world.result(calls(LS)), [calls(LS)])
    goes_on = asyncio.create_task(world.open(looping(1)))
    await asyncio.sleep(0)
    world.store.gate.set()
    await task

    assert (await goes_on).key == other.key


async def test_the_newest_commit_of_a_session_is_the_one_waited_for() -> None:
    """An older one that ends does not take its place away."""
    world = World()
    one, other = await world.open(name="a"), await world.open(name="a")
    gates = asyncio.Event(), asyncio.Event()
    world.store.gate = gates[0]
    _, first = world.sessions.commit(one, world.result(says("a")), [says("a")])
    await asyncio.sleep(0)
    world.store.gate = gates[1]
    _, second = world.sessions.commit(other, world.result(says("b")), [says("b")])
    gates[0].set()
    await first
    await asyncio.sleep(0)
    assert world.sessions._committing[one.key] is second
    gates[1].set()
    await second
    await asyncio.sleep(0)

    assert world.sessions._committing == {}


async def test_a_shutdown_waits_for_commits_under_way() -> None:
    """And for nothing when there are none."""
    world = World(patience=5)
    await world.sessions.drain()
    session = await world.open()
    world.store.gate = asyncio.Event()
    _, task = world.sessions.commit(session, world.result(says("a")), [says("a")])
    draining = asyncio.create_task(world.sessions.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    world.store.gate.set()
    await draining

    assert isinstance(task, asyncio.Task)
    assert task.done()


async def test_a_store_in_this_process_takes_a_commit_at_once() -> None:
    """It waits for nothing: what was said is written before the call returns."""
    world = World()
    sessions = Sessions(world.store, ttl=3600, closed=False, patience=1, new_id=ids(), wall=world.clock, on_failure=world.failures.append)
    session = await world.open(sessions=sessions)
    session.settlements.append(Settlement(session.lease, 1, 10, 3, 0))
    _, done = sessions.commit(session, world.result(says("hi")), [says("hi")])

    assert world.entry(session).book.life.steps == 1
    assert await done
    assert (await world.open([*FIRST, {"role": "assistant", "content": "hi"}], sessions=sessions)).key == session.key


async def test_a_store_in_this_process_gives_up_a_record_that_is_always_lost() -> None:
    """As any other would."""
    world = World()
    world.store.contended = True
    sessions = Sessions(world.store, ttl=3600, closed=False, patience=1, new_id=ids(), wall=world.clock, on_failure=world.failures.append)
    session = await world.open(sessions=sessions)
    _, done = sessions.commit(session, world.result(says("hi")), [says("hi")])

    assert not await done


# ---- the store away


async def test_a_store_that_is_away_is_done_without() -> None:
    """Failure mode open: judged from history alone, nothing reserved, and a session all the same."""
    world = World()
    world.store.down = True
    session = await world.open(looping(4))

    assert session.opened is None
    assert session.key
    assert session.label.startswith("lc-")
    assert (session.step, session.spending.refused, session.spending.last) == ("5", None, None)
    assert len(session.place.trail.steps) == 4
    assert session.asker.began == world.clock.now


async def test_a_named_session_keeps_its_name_while_the_store_is_away() -> None:
    """The label is what people see of it."""
    world = World()
    world.store.down = True

    assert (await world.open(name="build-7")).label == "build-7"


@pytest.mark.parametrize("name", ["a", None])
async def test_a_store_that_is_away_refuses_in_failure_mode_closed(name: str | None) -> None:
    """Whichever call found it away."""
    world = World(closed=True)
    world.store.down = True

    with pytest.raises(StoreUnavailable, match=r"look at store\.url"):
        await world.open(looping(1), name=name)


async def test_a_request_refused_half_way_keeps_nothing_reserved() -> None:
    """A store that goes away between two questions of one request: what the first reserved is given back once it is there again."""
    world = World(closed=True)

    async def away(links: Sequence[bytes]) -> bytes | None:
        raise OSError("away")

    world.store.find = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await world.open(HISTORY, name="a")
    world.clock.now += 2
    session = await world.open(name="a")
    await world.commit(session, says("done"))
    await world.guard.close()

    entry = world.entry(session)
    assert (entry.book.leases, entry.book.life.steps) == ({}, 1)


def test_failures_name_their_operation() -> None:
    """One event for each call that failed, with the cause's name alone."""

    async def failing(operation: StoreOperation, fail: Callable[[World], Any]) -> None:
        world = World()
        await world.guard.secret()
        await fail(world)
        assert world.failures == [StoreFailed(operation, "OSError")]

    async def find(world: World) -> None:
        world.store.down = True
        assert (await world.open(looping(1))).opened is None

    async def open_(world: World) -> None:
        world.store.down = True
        assert (await world.open()).opened is None

    async def reserve(world: World) -> None:
        session = await world.open()
        world.store.down = True
        assert await world.sessions.reserve(session) is None

    async def commit(world: World) -> None:
        session = await world.open()
        world.store.down = True
        _, task = world.sessions.commit(session, world.result(says("a")), [says("a")])
        assert await task is False

    async def run() -> None:
        await failing(StoreOperation.FIND, find)
        await failing(StoreOperation.OPEN, open_)
        await failing(StoreOperation.OPEN, reserve)
        await failing(StoreOperation.COMMIT, commit)

    asyncio.run(run())


async def test_reserving_for_a_further_call_fails_as_the_failure_mode_says() -> None:
    """Closed: no reservation, no call."""
    world = World(closed=True)
    session = await world.open(name="a")
    world.store.down = True

    with pytest.raises(StoreUnavailable):
        await world.sessions.reserve(session)


async def test_what_was_settled_while_the_store_was_away_arrives_later() -> None:
    """Once it is back, once."""
    world = World()
    session = await world.open(name="a")
    world.store.down = True
    await world.commit(session, says("done"))
    world.store.down = False
    world.clock.now += 2
    await world.open(name="b")
    for _ in range(5):
        await asyncio.sleep(0)

    assert world.entry(session).book.life.steps == 1


async def test_a_degraded_exchange_overwrites_no_record() -> None:
    """It knew nothing of the session: its settlement goes in, its record does not."""
    world = World()
    await world.commit(await world.open(looping(1), name="a"), calls(ToolCall("c1", "ls", "{}")))
    world.store.down = True
    degraded = await world.open(looping(2), name="a")
    before = world.entry(degraded).record
    world.store.down = False
    world.clock.now += 2
    await world.commit(degraded, says("done"))

    entry = world.entry(degraded)
    assert degraded.opened is None
    assert entry.record == before is not None
    assert entry.book.life.steps == 2


async def test_a_fault_while_a_session_is_opened_gives_its_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: a cancelled request, or a mistake of ours."""
    world = World()
    monkeypatch.setattr("proxy.sessions.Records.load", _broken)
    with pytest.raises(RuntimeError):
        await world.open(name="a")
    await world.sessions.drain()

    (entry,) = world.store._sessions.values()
    assert (entry.book.leases, entry.book.life.held_steps) == ({}, 0)


async def test_what_a_faulted_exchange_spent_is_settled() -> None:
    """Its calls are, whatever becomes of the record; sent twice it counts once, and a store that is away hears of it later."""
    world = World()
    session = await world.open(name="a")
    session.settlements.append(Settlement(session.lease, 1, 10, 3, 0))
    world.store.down = True
    world.sessions.give_up(session)
    world.sessions.give_up(session)
    await world.sessions.drain()
    world.store.down = False
    world.clock.now += 2
    await world.guard.ping()
    await world.guard.close()

    entry = world.entry(session)
    assert (entry.book.life.steps, entry.book.life.input, entry.book.leases) == (1, 10, {})
    assert not world.sessions._leases.holds(session.lease)


def _broken(*_: object) -> None:
    raise RuntimeError("a mistake of ours")


async def test_a_store_that_goes_away_while_a_parent_is_looked_up_leaves_no_lease() -> None:
    """Nothing is renewed for a request that was refused."""
    world = World(closed=True)

    async def away(accounts: object) -> list[Any]:
        raise OSError("away")

    world.store.peek = away  # type: ignore[method-assign]
    identity = Identity("key", "child", "header", None, False, Tighten(), parent="parent")
    with pytest.raises(StoreUnavailable):
        await world.sessions.open(identity, CHAT.parse(request()), Policy())

    assert world.sessions._leases._held == {}


async def test_without_the_shared_secret_the_store_is_not_asked() -> None:
    """In a cluster the secret alone may be out of reach: what a secret of the process's own keys would begin every budget anew."""
    world = World(closed=True)

    async def lost() -> bytes:
        raise PartUnavailable("a part of the session store is away")

    world.store.secret = lost  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await world.open(name="a", policy=limited(steps=1))
    opened = await world.open(name="a", policy=limited(steps=1), sessions=world.process())

    assert opened.spending.refused is None
    assert (len(world.store._sessions), world.store.finds) == (0, [])
