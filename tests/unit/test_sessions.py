"""Sessions on a store in memory, its clock and ids in the test's hand: found again, opened, reserved for, committed, and done without."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.engine import Result
from proxy.errors import StoreUnavailable
from proxy.events import NudgeEnded, StoreChanged, StoreFailed, StoreOperation
from proxy.identity import Identity, Tighten
from proxy.models import Choice, Reason, ToolCall
from proxy.policy import Budgets, Canonical, Policy, Scope
from proxy.sessions import Session, Sessions
from proxy.state import Nudge, load
from proxy.store import Committed, GuardedStore, Opened, Reservation, Settlement
from proxy.store.memory import MemoryStore
from tests.in_process import Clock, ids, looping, request

CHAT = DIALECTS["/chat/completions"]
ENOUGH = Policy()
LONG = "The configuration of the exporter lives in three files below the folder etc"
FIRST: list[dict[str, Any]] = [{"role": "user", "content": "list it"}]
LS = ToolCall("c0", "ls", "{}")


class Faulty(MemoryStore):
    """A store that can be away, slow to commit, or always contended."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, lambda size: b"\x07" * size)
        self.down = False
        self.contended = False
        self.gate: asyncio.Event | None = None
        self.finds: list[Sequence[bytes]] = []
        self.commits: list[tuple[bytes | None, Sequence[Settlement], Sequence[bytes]]] = []

    def _check(self) -> None:
        if self.down:
            raise OSError("away")

    async def secret(self) -> bytes:
        self._check()
        return await super().secret()

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        self._check()
        self.finds.append(links)
        return await super().find(links)

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        self._check()
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
    ) -> Committed:
        if self.gate is not None:
            await self.gate.wait()
        self._check()
        self.commits.append((record, settlements, links))
        done = await super().commit(
            session, record=None if self.contended else record, version=version, settlements=settlements, links=links, ttl=ttl
        )
        return Committed(True, None, 7) if self.contended else done


class World:
    """A process's sessions and the store below them."""

    def __init__(self, *, closed: bool = False, patience: float = 0.25) -> None:
        self.clock = Clock()
        self.store = Faulty(self.clock)
        self.failures: list[StoreFailed] = []
        self.changes: list[StoreChanged] = []
        self._ids = ids()
        self.guard = GuardedStore(
            self.store, timeout=5, clock=self.clock, on_change=self.changes.append, fallback_secret=b"\x09" * 32, retry_after=1.0
        )
        self.sessions = self.process(closed=closed, patience=patience)

    def process(self, *, closed: bool = False, patience: float = 0.25) -> Sessions:
        """Another process on the same store."""
        return Sessions(
            self.guard,
            ttl=3600,
            closed=closed,
            patience=patience,
            random_hex=self._ids,
            wall=self.clock,
            on_failure=self.failures.append,
        )

    async def open(
        self,
        messages: Sequence[dict[str, Any]] = FIRST,
        *,
        policy: Policy = ENOUGH,
        sessions: Sessions | None = None,
        name: str | None = None,
        caller: str = "key",
        lane: str | None = None,
        retry: bool = False,
        tighten: Tighten | None = None,
        **members: Any,
    ) -> Session:
        identity = Identity(caller, name, "header" if name else "derived", lane, retry, tighten or Tighten())
        parsed = CHAT.parse(request(messages, **members))
        return await (sessions or self.sessions).open(identity, parsed, policy)

    async def commit(self, session: Session, *choices: Choice, sessions: Sessions | None = None, **result: Any) -> NudgeEnded | None:
        """Settles one step of 10 + 3 tokens and commits what the client was given."""
        session.settlements.append(Settlement(session.lease, 1, 10, 3, len(session.request.body)))
        ended, task = (sessions or self.sessions).commit(session, self.result(*choices, **result), choices)
        assert await task is not self.store.down
        return ended

    def result(self, *choices: Choice, **members: Any) -> Result:
        settled: dict[str, Any] = {"ended": self.clock.now, "full": True, "calls": choices[0].calls if choices else ()}
        return Result(**(settled | members))

    def entry(self, session: Session) -> Any:
        """What the store holds of a session."""
        return self.store._sessions[session.key]


def says(text: str) -> Choice:
    return Choice(text, (), "stop")


def calls(*made: ToolCall) -> Choice:
    return Choice("", made, "tool_calls")


# ---- named


async def test_a_name_finds_its_session_again() -> None:
    """Whatever the history says; the label is the name."""
    world = World()
    one = await world.open(name="build-7")
    await world.commit(one, says("done"))
    other = await world.open([{"role": "user", "content": "something else"}], name="build-7")

    assert (one.key, one.label, one.named) == (other.key, "build-7", True)
    assert other.opened is not None
    assert (other.opened.ledger.steps, other.opened.step) == (1, 2)


async def test_a_name_belongs_to_its_caller() -> None:
    """Two tenants with one name share nothing."""
    world = World()
    one = await world.open(name="build-7", caller="key-a")
    await world.commit(one, says("done"))
    other = await world.open(name="build-7", caller="key-b")

    assert one.key != other.key
    assert other.opened is not None
    assert other.opened.record is None


async def test_a_named_session_goes_on_under_a_refreshed_key() -> None:
    """It is known by the answers it carries; the reservation made under the new key is given back."""
    world = World()
    one = await world.open(name="build-7", caller="old-token")
    await world.commit(one, calls(LS))
    later = await world.open(looping(1), name="build-7", caller="new-token")

    assert later.key == one.key
    assert later.opened is not None
    assert later.opened.step == 2
    assert sorted(len(entry.leases) for entry in world.store._sessions.values()) == [0, 1]
    assert set(world.entry(later).leases) == {later.lease}


async def test_a_refreshed_key_without_the_sessions_answers_begins_anew() -> None:
    """The name alone proves nothing, nor do answers that another session gave."""
    world = World()
    one = await world.open(name="build-7", caller="old-token")
    await world.commit(one, calls(LS))
    named_otherwise = await world.open(looping(1), name="build-8", caller="new-token")
    carrying_nothing = await world.open(name="build-7", caller="new-token")

    assert one.key not in (named_otherwise.key, carrying_nothing.key)


async def test_a_named_session_whose_record_went_is_opened_once() -> None:
    """Its own links lead to itself: nothing is released, nothing opened twice."""
    world = World()
    one = await world.open(name="build-7")
    session = await world.open(looping(1), name="build-7")
    links = [session.keys.chain(session.scope, session.history.seed, [m.answer for m in session.history.messages])]
    await world.store.commit(one.key, record=None, version=0, settlements=[], links=links, ttl=60)
    before = len(world.store.commits)
    again = await world.open(looping(1), name="build-7")

    assert again.key == one.key
    assert len(world.store.commits) == before


# ---- derived


async def test_equal_first_requests_are_sessions_of_their_own() -> None:
    """Benchmarks run one prompt many times at once."""
    world = World()
    one, other = await asyncio.gather(world.open(), world.open())

    assert one.key != other.key
    assert one.label != other.label
    assert one.label.startswith("lc-")
    assert world.store.finds == []


async def test_a_history_finds_the_session_that_gave_its_answers() -> None:
    """By the whole line of answers, with text and with calls."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS))
    two = await world.open(looping(1))
    await world.commit(two, says("There is a.txt."))
    three = await world.open([*looping(1), {"role": "assistant", "content": "There is a.txt."}, {"role": "user", "content": "thanks"}])

    assert one.key == two.key == three.key
    assert one.label == three.label


async def test_a_text_answer_alone_links_its_history() -> None:
    """Also one too short for a passage."""
    world = World()
    one = await world.open()
    await world.commit(one, says("hi"))
    two = await world.open([*FIRST, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}])
    stranger = await world.open([*FIRST, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "more"}])

    assert two.key == one.key
    assert stranger.key != one.key


async def test_any_choice_of_an_answer_links_its_history() -> None:
    """The client goes on from one of them."""
    world = World()
    one = await world.open()
    await world.commit(one, says("first"), says("second"))
    for text in ("first", "second"):
        found = await world.open([*FIRST, {"role": "assistant", "content": text}, {"role": "user", "content": "go"}])
        assert found.key == one.key


async def test_a_call_id_finds_its_session_where_the_line_of_answers_does_not() -> None:
    """The client changed the first user text; an id, its name and its arguments are proof enough together."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS))
    changed = await world.open(looping(1, task="list it, it is noon now"))
    other_arguments = await world.open(looping(1, task="x", arguments='{"a": 1}'))

    assert changed.key == one.key
    assert other_arguments.key != one.key


async def test_calls_without_an_id_are_nobodys_proof() -> None:
    """Name and arguments are anybody's."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(ToolCall(None, "ls", "{}")))
    history = looping(1, task="another")
    del history[1]["tool_calls"][0]["id"]

    assert (await world.open(history)).key != one.key


async def test_a_derived_session_is_not_found_under_another_key() -> None:
    """A copied history is another tenant's."""
    world = World()
    one = await world.open(caller="key-a")
    await world.commit(one, calls(LS))

    assert (await world.open(looping(1), caller="key-b")).key != one.key


async def test_an_answer_not_delivered_in_full_links_nothing() -> None:
    """The client cannot carry it."""
    world = World()
    one = await world.open()
    await world.commit(one, calls(LS), full=False)

    assert (await world.open(looping(1))).key != one.key


async def test_one_store_call_finds_and_one_opens() -> None:
    """The newest calls are looked up together with the chain, and not without bound."""
    world = World()
    await world.open(looping(30))

    (links,) = world.store.finds
    assert len(links) == 4


# ---- after a summary


def summarised(text: str, **first: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Summary of the work so far:\n{text}. Go on with the list.", **first}]


async def compacted(world: World) -> Session:
    """A session in the middle of its run, asked for a summary, which it gave."""
    one = await world.open()
    await world.commit(one, calls(LS))
    two = await world.open(looping(1))
    await world.commit(two, calls(ToolCall("c1", "ls", "{}")))
    asking = await world.open([*looping(2), {"role": "user", "content": "Summarize the conversation so far."}])
    await world.commit(asking, says(LONG + "."), answered=False)
    return asking


async def test_a_passage_finds_the_session_after_a_summary() -> None:
    """The history is gone, a sentence of the session's own answer is quoted."""
    world = World()
    before = await compacted(world)
    after = await world.open(summarised(LONG))

    assert (after.key, after.label) == (before.key, before.label)
    assert after.opened is not None
    assert after.opened.step == 4


async def test_a_quoted_passage_that_continues_nothing_is_a_new_session() -> None:
    """Other tools, so other work; what was reserved in the old session is given back."""
    world = World()
    before = await compacted(world)
    after = await world.open(summarised(LONG), tools=None)

    assert after.key != before.key
    assert after.label != before.label
    assert len(world.entry(before).leases) == 0
    assert len(world.entry(after).leases) == 1


async def test_an_unknown_passage_is_a_new_session() -> None:
    """Looked up once."""
    world = World()
    before = await compacted(world)
    finds = len(world.store.finds)

    assert (await world.open(summarised(LONG.replace("three", "four")))).key != before.key
    assert len(world.store.finds) == finds + 1


async def test_a_named_session_keeps_no_passages() -> None:
    """Its name is enough: the one link is its line of answers."""
    world = World()
    await world.commit(await world.open(name="a"), Choice(LONG + ".", (LS,), "tool_calls"))

    ((_, _, links),) = world.store.commits
    assert len(links) == 1


# ---- opening


async def test_a_request_is_read_into_its_record() -> None:
    """Lane, run, retry mark and other requests under way are at hand for the engine."""
    world = World()
    first = await world.open(looping(2), name="a")
    second = await world.open(looping(2), name="a", lane="sub", retry=True)

    assert second.asker.lane != 0
    assert (first.asker.lane, first.asker.retry, second.asker.retry, second.asker.named) == (0, False, True, True)
    assert (first.asker.in_flight, second.asker.in_flight) == ((), (first.history.seed,))
    assert second.asker.began == world.clock.now
    assert len(second.place.trail.steps) == 2


async def test_a_scope_of_the_session_sees_all_it_did() -> None:
    """A run may be over, the trail is not."""
    world = World()
    history = [*looping(2), {"role": "assistant", "content": "done"}, {"role": "user", "content": "Something new now"}]
    run = await world.open(history, name="a")
    whole = await world.open(history, name="b", policy=Policy(scope=Scope.SESSION))

    assert len(run.place.trail.steps) < len(whole.place.trail.steps)


async def test_exact_and_loose_policies_read_with_tools_of_their_own() -> None:
    """Under one secret."""
    world = World()
    loose = await world.open(name="a")
    exact = await world.open(name="a", policy=Policy(canonical=Canonical.EXACT))
    again = await world.open(name="a")

    assert loose.prints is again.prints
    assert loose.prints is not exact.prints
    assert loose.key == exact.key


async def test_tools_of_forgotten_secrets_are_let_go() -> None:
    """A store that is emptied again and again hands out new secrets: the newest few stay."""
    world = World()
    for number in range(12):
        world.store._secret = bytes([number]) * 32
        world.clock.now += 60
        await world.open(name="a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert 1 <= len(world.sessions._prints) <= 9


# ---- budgets


def limited(**limits: Any) -> Policy:
    return Policy(budgets=Budgets(**limits))


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
    assert (spending.refused, spending.last, spending.limit, spending.spent) == (refused, last, limit, spent)


async def test_a_deadline_counts_from_the_sessions_first_request() -> None:
    """In seconds."""
    world = World()
    await world.commit(await world.open(name="a"), says("done"))
    world.clock.now += 61.25
    late = await world.open(name="a", policy=limited(deadline=60.0))

    spending = late.spending
    assert (spending.refused, spending.limit, spending.spent) == (Reason.DEADLINE, 60.0, 61.25)


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
    assert set(world.entry(session).leases) == {first, session.lease}


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
    assert (entry.steps, entry.input_tokens, entry.output_tokens, entry.leases) == (1, 10, 3, {})


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
    assert (entry.steps, entry.input_tokens) == (2, 20)
    assert [len(settlements) for _, settlements, _ in world.store.commits] == [1, 1, 0]


async def test_many_writers_converge() -> None:
    """However many commit at the same time."""
    world = World()
    opened = [await world.open(name="a", lane=f"lane {number}") for number in range(6)]
    await asyncio.gather(*(world.commit(session, calls(LS), sessions=world.process()) for session in opened))

    entry = world.entry(opened[0])
    assert entry.steps == 6
    assert len(load(entry.record, opened[0].keys.secret_id()).lanes) == 6


async def test_a_record_that_is_always_lost_is_given_up_and_its_settlement_is_not() -> None:
    """After a bounded number of tries."""
    world = World()
    session = await world.open(name="a")
    world.store.contended = True
    session.settlements.append(Settlement(session.lease, 1, 10, 3, 0))
    _, task = world.sessions.commit(session, world.result(says("done")), [says("done")])

    assert await task is False
    assert len(world.store.commits) == 16
    assert world.entry(session).steps == 1


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
    assert world.sessions._linked == {}
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


async def test_the_newest_commit_of_a_session_is_the_one_waited_for() -> None:
    """An older one that ends does not take its place away."""
    world = World()
    one = await world.open(name="a")
    other = await world.open(name="a")
    world.store.gate = asyncio.Event()
    _, first = world.sessions.commit(one, world.result(says("a")), [says("a")])
    _, second = world.sessions.commit(other, world.result(says("b")), [says("b")])
    assert world.sessions._committing[one.key] is second
    world.store.gate.set()
    await first
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

    assert task.done()


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

    with pytest.raises(StoreUnavailable):
        await world.open(looping(1), name=name)


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

    assert world.entry(session).steps == 1


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
    assert entry.steps == 2
