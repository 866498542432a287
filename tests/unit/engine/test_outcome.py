"""What an exchange leaves in the record: once, whatever is retried, raced or sampled."""

from typing import Any

import msgspec
import pytest

from proxy.engine import Result, conclude
from proxy.models import Choice, ToolCall
from proxy.policy import Counting, OnStop, Policy, Scope
from proxy.state import dump, load
from tests.driver import Agent, Exchange, House, answer_of
from tests.transcripts import Call, called, together, user

A = called("read_file", {"path": "a"}, "alpha")
B = called("bash", {"c": "ls"}, "beta")
PLAIN = Policy(counting=Counting.CUMULATIVE, scope=Scope.SESSION)


def edit(number: int) -> Call:
    return called("edit", {"n": number}, f"edited {number}")


def numbered(number: int) -> Call:
    """`A`, under an id of its own."""
    return called("read_file", {"path": "a"}, "alpha", id=f"own_{number}")


def looped(house: House, times: int) -> Agent:
    loop = Agent(house, user("go"))
    loop.play([A] * times)
    return loop


# ---- lost races


@pytest.mark.parametrize(
    "replies",
    [[A, A, A, edit(1)], [A] * 5, [B, A, A, A, A, together(B, A)], [A, A, A, A, "done"]],
    ids=["nudge", "stop", "prune", "answer"],
)
def test_concluding_on_a_record_that_already_knows_changes_nothing(replies: list[Call | str]) -> None:
    """A commit that was applied and then run again: one nudge, one stop, one sub-agent, one answer given."""
    house = House()
    Agent(house, user("main")).play([edit(0)])
    loop = Agent(house, user("go"), lane=1)
    loop.play(replies[:-1])
    x = loop.house.begin(loop.turns, lane=1)
    house.end(x, replies[-1])
    once = house.data
    result = Result(
        house.now,
        True,
        () if x.given is None else answer_of(x.given, x.request).choices[0].calls,
        nudge=x.plan.nudge,
        stop=x.plan.stop,
        dropped=x.verdict.finding.calls if x.verdict.finding is not None and x.verdict.drop else frozenset(),
    )
    x.take(house.record)
    conclude(x, result)
    assert dump(x.record) == once


def test_a_lost_race_keeps_what_both_wrote() -> None:
    """Two lanes of one session, committed one over the other."""
    house = House()
    one, two = Agent(house, user("one"), lane=1), Agent(house, user("two"), lane=2)
    one.play([A, A, A])
    two.play([B, B, B])
    first, second = house.begin(one.turns, lane=1), house.begin(two.turns, lane=2)
    house.end(second, B)
    house.end(first, A)
    assert {lane.name: len(lane.nudges) for lane in house.record.lanes} == {1: 1, 2: 1}


def test_two_replicas_never_nudge_twice() -> None:
    """Both saw the third result; later requests hold one nudge, the same in both."""
    house = House()
    loop = looped(house, 3)
    first, second = house.begin(loop.turns), house.begin(loop.turns)
    house.end(first, A)
    house.end(second, A)
    assert first.texts == second.texts
    assert len(house.record.lanes[0].nudges) == 1
    assert loop.step(A).body.count("[lastcall]") == 1


def test_three_sub_agents_stopped_in_races_are_three() -> None:
    """Each counts once, whoever commits first."""
    house = House()
    Agent(house, user("main")).play([edit(0)])
    loops = [Agent(house, user(f"sub {lane}"), lane=lane) for lane in (1, 2, 3)]
    for loop in loops:
        loop.play([A] * 4)
    open_ = [house.begin(loop.turns, **loop.options) for loop in loops]
    for x in reversed(open_):
        house.end(x, A)
    assert house.record.stopped == 3
    assert all(house.ask(loop.turns, A, **loop.options).decision == "stop" for loop in loops)
    assert house.record.stopped == 3


# ---- clients that send the same history again


def frozen(house: House, times: int, **options: Any) -> list[str]:
    return [house.ask([user("go")], A, **options).decision for _ in range(times)]


def test_a_client_that_keeps_no_history_still_climbs() -> None:
    """Its session is named, and each answer was delivered before the next request began."""
    assert frozen(House(), 6) == ["ok", "ok", "ok", "nudge", "stop", "stop"]
    assert frozen(House(PLAIN), 6) == ["ok", "ok", "ok", "nudge", "stop", "stop"]


def test_without_a_name_a_request_sent_again_is_another_beginning() -> None:
    """Nothing is remembered of its answer."""
    assert frozen(House(named=False), 8) == ["ok"] * 8
    assert House(named=False).ask([user("go")], A).record.given == []


def test_marked_retries_advance_nothing() -> None:
    """The client says that it asks again."""
    house = House()
    assert frozen(house, 8, retry=True) == ["ok"] * 8
    assert house.record.given == []


def test_a_marked_retry_takes_the_place_of_an_answer_that_was_cut() -> None:
    """It is the same step: five of them, each cut once, are five."""
    house = House()
    decisions = []
    for _ in range(5):
        decisions.append(house.ask([user("go")], A, full=False).decision)
        house.ask([user("go")], A, retry=True)
    assert decisions == ["ok", "ok", "ok", "nudge", "stop"]


def test_unmarked_retries_of_a_cut_answer_count_once() -> None:
    """Only the one that was delivered in full."""
    house = House()
    for _ in range(4):
        house.ask([user("go")], A, full=False)
    assert [given.cut for given in house.record.given] == [True]
    house.ask([user("go")], A)
    assert [given.cut for given in house.record.given] == [False]


def test_a_marked_retry_that_is_cut_itself_leaves_nothing() -> None:
    """Nobody was given an answer."""
    house = House()
    house.ask([user("go")], A, full=False, retry=True)
    assert house.record.given == []


def test_overlapping_samples_advance_nothing() -> None:
    """Eight answers to one history, drawn at the same time, are one step."""
    house = House()
    for _ in range(3):
        samples = [house.begin([user("go")]) for _ in range(8)]
        for x in samples:
            house.end(x, A)
    assert len(house.record.given) == 3
    assert house.ask([user("go")], A).decision == "nudge"


@pytest.mark.parametrize(
    ("window", "decisions"), [(1, ["ok"] * 4 + ["nudge"]), (2, ["ok"] * 4 + ["nudge"]), (3, ["ok"] * 3 + ["nudge"] * 2)]
)
def test_a_client_that_shows_its_newest_messages_only_still_climbs(window: int, decisions: list[str]) -> None:
    """The answer it was given last is known before a history shows it; what was cut off may be asked for once more, not every time."""
    house = House()
    made = [numbered(number) for number in range(6)]
    assert [house.ask([user("go"), *made[max(at - window, 0) : at]], made[at]).decision for at in range(6)] == [*decisions, "stop"]


def test_another_sample_of_an_answer_is_no_history_cut_short() -> None:
    """Two were drawn, and are gone on from apart: each made one call, also where the first of them broke off."""
    house, one, other = House(), numbered(1), numbered(2)
    for x, sample in [(house.begin([user("go")]), one), (house.begin([user("go")]), other)]:
        house.end(x, sample)
    house.ask([user("go"), one], A, full=False)
    assert len(house.begin([user("go"), other]).place.trail.steps) == 1


def test_an_answer_without_calls_is_not_given_again() -> None:
    """And one that was cut before it is forgotten."""
    house = House()
    house.ask([user("go")], A, full=False)
    house.ask([user("go")], "done")
    assert house.record.given == []


@pytest.mark.parametrize("policy", [Policy(), PLAIN], ids=["standard", "plain"])
@pytest.mark.parametrize("full", [True, False], ids=["answered", "cut"])
@pytest.mark.parametrize(("named", "marked"), [(True, True), (False, True), (False, False)], ids=["named", "derived", "unmarked"])
def test_every_request_sent_twice_gives_the_same_verdicts(named: bool, marked: bool, full: bool, policy: Policy) -> None:
    """A client that retries each, answered or not: nudge in the fourth, stop in place of the fifth call, one nudge in any request."""
    house = House(policy, named=named)
    loop = Agent(house, user("go"))
    decisions = []
    for _ in range(5):
        first, second = house.ask(loop.turns, A, full=full), loop.step(A, retry=marked)
        decisions.append((first.decision, second.decision))
        assert not second.edits or first.texts == second.texts
        assert len(first.texts) <= 1 or first.decision == "stop"
    assert decisions == [("ok", "ok")] * 3 + [("nudge", "ok"), ("stop", "stop")]
    assert len(house.record.lanes[0].nudges) == 1


def test_a_failed_answer_keeps_the_run_open() -> None:
    """Its texts are remembered, to hear a person who adds one."""
    house = House()
    loop = looped(house, 2)
    x = house.ask(loop.turns, A, full=False)
    lane = house.record.lanes[0]
    assert (lane.cut, lane.open, x.ended) == (True, True, None)
    loop.turns.append(user("Look at b instead."))
    assert loop.play([A, A, A, A, A]) == ["ok", "ok", "ok", "nudge", "stop"]


# ---- runs and lanes


def test_two_branches_count_on_their_own() -> None:
    """Two calls each are not four; what both share counts in both."""
    house = House()
    trunk = looped(house, 2)
    left, right = Agent(house, *trunk.turns), Agent(house, *trunk.turns)
    left.play([edit(1), A, A])
    assert right.play([edit(2), A, A, "done"]) == ["ok"] * 4


def test_an_older_request_sent_again_does_not_touch_the_newer_run() -> None:
    """It may be of a run that is over."""
    house = House()
    loop = looped(house, 4)
    old = list(loop.turns)
    loop.step("done")
    loop.turns.append(user("And b?"))
    loop.step(B)
    x = house.ask(old, A)
    assert x.decision == "stop"
    assert house.record.lanes[0].stop is None
    assert loop.step(B).decision == "ok"


def test_a_budget_that_ends_a_nudged_run_is_no_recovery() -> None:
    """The model did not come to an end by itself."""
    loop = looped(House(), 4)
    x = loop.house.begin(loop.turns)
    ended = conclude(x, Result(loop.house.now, True, own=False))
    assert ended is not None and ended.outcome == "stopped"


def test_a_blocked_client_was_given_nothing() -> None:
    """An error is no answer."""
    house = House(Policy(on_stop=OnStop.ERROR))
    frozen(house, 5)
    assert len(house.record.given) == 4
    assert house.record.lanes[0].stop is not None and house.record.lanes[0].cut


def test_many_calls_of_one_answer_are_remembered_within_bounds() -> None:
    """A record stays small."""
    house = House()
    x = house.begin([user("go")])
    calls = tuple(ToolCall(str(n), f"tool{n}", "{}") for n in range(100))
    house.commit(x, Result(house.now, True, calls))
    assert len(house.record.given[0].calls) == 32


def test_a_record_survives_its_bytes() -> None:
    """Whatever stands in it after a nudge, a pruning and a stop."""
    house = House()
    loop = Agent(house, user("go"))
    loop.play([B, A, A, A, A])
    loop.step(together(B, A))
    loop.step(together(B, A))
    assert house.data is not None
    assert msgspec.msgpack.encode(load(house.data, 7)) == house.data


def test_any_replica_may_serve_any_request() -> None:
    """Killed and restarted between any two turns, a house gives the same verdicts."""
    house = House()
    turns: list[Exchange] = []
    loop = Agent(house, user("go"))
    for _ in range(5):
        other = House()
        other.data, other.version, other.now = house.data, house.version, house.now
        loop.house = house = other
        turns.append(loop.step(A))
    assert [x.decision for x in turns] == ["ok", "ok", "ok", "nudge", "stop"]


# ---- requests that are no turns


def test_a_request_that_the_client_calls_no_turn_is_not_nudged_and_ends_no_run() -> None:
    """A summary by the client's own header, whatever its text says."""
    house = House()
    agent = looped(house, 3)
    aside = house.ask([*agent.turns, user("Now the minutes.")], "It went well.", side=True)
    assert aside.decision == "ok"
    assert house.record.lanes[0].open
    assert agent.step(A).decision == "nudge"
    assert agent.step(A).decision == "stop"


# ---- errors in a row


def test_the_same_request_counts_its_errors_until_another_answer() -> None:
    """By its history; a run that goes on begins anew."""
    house = House(Policy(on_stop=OnStop.ERROR))
    agent = looped(house, 5)
    statuses = [house.ask(agent.turns, A).plan.status for _ in range(3)]
    assert statuses == [401, 404, 404]
    assert house.record.lanes[0].refused[1] == 4
    agent.turns.append(user("Something else."))
    assert agent.step(B).plan.status == 400
    assert house.record.lanes[0].refused == []


def test_a_paused_answer_ends_no_run() -> None:
    """The provider wants to be asked for the rest: a nudged run has not recovered by it."""
    house = House()
    agent = looped(house, 3)
    agent.step(B)
    x = house.begin(agent.turns)
    for finish, is_open, outcome in (("pause_turn", True, None), ("end_turn", False, "recovered")):
        x.take(house.record)
        ended = conclude(x, Result(house.now, True, said=Choice("Searching.", (), finish)))
        assert (x.place.lane.open, ended and ended.outcome) == (is_open, outcome)


# ---- sub-agents that are given one prompt


def test_equal_prompts_of_named_lanes_are_no_client_that_stands_still() -> None:
    """Ten sub-agents sent out with the same words, one after another, each with an answer of its own."""
    house = House()
    opening = [user("Find what changed.")]
    assert [house.ask(opening, A, lane=lane).decision for lane in range(1, 11)] == ["ok"] * 10
    assert [house.ask(opening, A, lane=1).decision for _ in range(5)] == ["ok", "ok", "nudge", "stop", "stop"]
