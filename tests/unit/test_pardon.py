"""What an operator forgave: the note, resets and allowances, on records of both kinds of clients."""

import pytest

from proxy.lanes import Place
from proxy.models import Reason
from proxy.pardon import MOST_ALLOWED, NOTHING, Allowed, Pardon, forgive, forgive_lane, note_of, pardon_of, spare, without_excused
from proxy.policy import Counting, Ladder, NudgeRule, Policy, Scope
from proxy.state import Excused, Given, KeptCall, Lane, Node, Record, Relapse, Stop
from proxy.trail import Entry, Step
from tests.driver import Agent, House
from tests.recorded import Recorded, shown
from tests.transcripts import Call, called, said, together, user

A = called("bash", {"command": "git status"}, result="clean")
B = called("bash", {"command": "git diff"}, result="nothing")
CUMULATIVE = Policy(counting=Counting.CUMULATIVE, scope=Scope.SESSION)


def stopped(house: House, *loop: Call) -> Agent:
    """An agent whose run stands stopped for its loop."""
    agent = Agent(house, user("go"))
    decisions = agent.play(list(loop or [A]) * 12)
    assert decisions[-1] == "stop"
    return agent


def allowed(house: House) -> Pardon:
    """The calls that the house's runs stand stopped for, allowed."""
    calls = [call for lane in house.record.lanes if lane.stop is not None for call in lane.stop.calls]
    return NOTHING.with_allowed(calls, 1)


def test_a_note_says_what_was_forgiven() -> None:
    """And nothing where there is none, or another release's."""
    pardon = Pardon(7, 8, (Allowed(1, 8), Allowed(2**64 - 1, 3)))
    assert pardon_of(note_of(pardon)) == pardon
    assert pardon_of(b"") is NOTHING
    assert pardon_of(b"\xc1 not ours") is NOTHING


def test_an_allowance_does_not_end_those_before_it() -> None:
    """A lane that comes later hears of both; one that knew the first hears of the second. A reset ends them all; few are kept."""
    both = NOTHING.with_allowed([5, 6], 1).with_allowed([6, 7], 2)
    assert (both.allowed_since(0), both.allowed_since(1), both.allowed_since(2)) == (frozenset({5, 6, 7}), frozenset({6, 7}), frozenset())
    assert both.with_reset(9) == Pardon(9, 2)
    many = both.with_allowed(range(100, 100 + MOST_ALLOWED), 3)
    assert len(many.calls) == MOST_ALLOWED and many.allowed_since(2) == set(range(100, 100 + MOST_ALLOWED))


@pytest.mark.parametrize("policy", [Policy(), CUMULATIVE])
def test_a_reset_counts_anew_from_where_it_stands(policy: Policy) -> None:
    """The stop is gone, the calls of before count for nothing, and a new loop climbs the whole ladder with a nudge of its own."""
    house = House(policy)
    agent = stopped(house)
    house.pardon = Pardon(reset=1)

    assert agent.play([A] * 9) == ["ok", "ok", "ok", "nudge", "stop"]
    assert agent.step(A).decision == "stop"


def test_a_reset_is_applied_once() -> None:
    """What happens after it counts, although the same note comes with every request."""
    house = House()
    house.pardon = Pardon(reset=1)
    agent = Agent(house, user("go"))
    assert agent.play([A] * 9) == ["ok", "ok", "ok", "nudge", "stop"]
    house.pardon = Pardon(reset=2)
    assert agent.play([A] * 9) == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_nudge_that_was_forgiven_stays_where_it_was_said() -> None:
    """So that the provider's cache of the conversation holds."""
    house = House()
    agent = stopped(house)
    said_before = house.begin(agent.turns).plan
    house.pardon = Pardon(reset=1)
    x = agent.step(A)

    assert said_before.action == "stop"
    assert [text.startswith("[lastcall] ") for _, text in x.texts] == [True]
    assert [nudge.run for nudge in house.record.lanes[0].nudges] == [-1]


def test_an_allowed_call_goes_through_once() -> None:
    """The next repeat stops the run again."""
    house = House()
    agent = stopped(house)
    house.pardon = allowed(house)

    assert agent.play([A] * 9) == ["ok", "stop"]


@pytest.mark.parametrize("policy", [CUMULATIVE, Policy(counting=Counting.CONSECUTIVE)])
def test_it_does_so_under_every_way_of_counting(policy: Policy) -> None:
    """Also where the session counts what it delivered."""
    house = House(policy)
    agent = stopped(house)
    house.pardon = allowed(house)

    assert agent.play([A] * 9) == ["ok", "stop"]


def test_a_round_of_an_allowed_cycle_goes_through_once() -> None:
    """Each call of it; the next round completes the fifth again."""
    house = House(Policy(ladders={Reason.CYCLE: Ladder(3, 5)}))
    agent = stopped(house, A, B)
    assert len(house.record.lanes[0].answers) == 9  # the tenth was withheld
    house.pardon = allowed(house)

    assert agent.play([B, A] * 9) == ["ok", "ok", "stop"]


def test_a_loop_that_arrived_at_its_end_goes_on_too() -> None:
    """Joined late, it was stopped with its fifth call made: that one is as good as let through, and one more."""
    house = House(Policy(nudge=NudgeRule(max_per_run=0)))
    agent = Agent(house, user("go"), *[A] * 5)
    assert agent.step(A).decision == "stop"
    house.pardon = allowed(house)

    assert agent.play([A] * 9) == ["ok", "stop"]


def test_a_retry_uses_an_allowance_up_no_further() -> None:
    """The same history sent again finds it as it was."""
    house = House()
    agent = stopped(house)
    house.pardon = allowed(house)
    turns = agent.turns[:]

    assert [house.ask(turns, A, retry=True).decision for _ in range(3)] == ["ok"] * 3


def test_a_client_that_keeps_no_history_uses_it_up_too() -> None:
    """The answer that it was given counts as made: the next is the repeat."""
    house = House()
    agent = stopped(house)
    house.pardon = allowed(house)

    assert [house.ask(agent.turns, A).decision for _ in range(3)] == ["ok", "stop", "stop"]


def test_news_of_an_allowed_call_counts_as_news() -> None:
    """What the operator let through brought something new: the loop is over."""
    house = House()
    agent = stopped(house)
    house.pardon = allowed(house)
    changed = called("bash", {"command": "git status"}, result="1 file changed")

    assert agent.play([changed, *[changed] * 9]) == ["ok", "ok", "ok", "ok", "stop"]


def test_a_call_let_through_beside_another_that_loops() -> None:
    """Only what was allowed is."""
    house = House()
    agent = Agent(house, user("go"))
    assert agent.play([together(A, B)] * 9)[-1] == "stop"
    (call, *_) = house.record.lanes[0].stop.calls  # type: ignore[union-attr]
    house.pardon = NOTHING.with_allowed([call], 1)
    decisions = agent.play([together(A, B)] * 2)

    assert decisions[0] == "prune"


def test_a_new_run_knows_no_allowance() -> None:
    """It counts from nothing anyway."""
    house = House()
    agent = stopped(house)
    house.pardon = allowed(house)
    agent.step(A)
    agent.turns += [said("Done."), user("Now look again, please.")]
    agent.step(A)

    assert house.record.lanes[0].excused == []


def record() -> Record:
    return Record(1, 7, ["t"], given=[Given(1, 1.0, (5,), (0,))], relapses=[Relapse(5, 1), Relapse(6, 1)], stopped=3, noticed=["x"])


def test_a_session_forgets_as_a_whole() -> None:
    """Relapses, stopped lanes, answers given and notices; with an allowance only the relapses of its calls."""
    some = record()
    forgive(some, NOTHING.with_allowed([5], 4))
    assert some.relapses == [Relapse(6, 1)] and some.stopped == 3
    forgive(some, Pardon(2, 4, (Allowed(5, 4),)))
    assert (some.relapses, some.given, some.stopped, some.noticed) == ([], [], 0, [])
    some.stopped = 1
    forgive(some, Pardon(2, 4, (Allowed(5, 4),)))
    assert some.stopped == 1


def test_a_lane_is_excused_what_it_made_itself() -> None:
    """And stays stopped for anything else."""
    lane = Lane(0, 0, 0, 0.0, answers=[1], kept=[(KeptCall(5, 0, 0),)], before=[Node(2, (KeptCall(6, 0, 0),))], pruned=[5, 8])
    lane.stop = Stop(Reason.CYCLE, "t", 5, 5, [9])
    forgive_lane(lane, NOTHING.with_allowed([5, 6, 7], 1), 3, 4)
    assert lane.excused == [Excused(5, 4), Excused(6, 4)]
    assert lane.stop is not None and lane.pruned == [8]
    forgive_lane(lane, NOTHING.with_allowed([9], 2), 5, 5)
    assert lane.stop is None and lane.excused == [Excused(5, 4), Excused(6, 4), Excused(9, 5)]


def test_occurrences_are_taken_out_from_a_place_on() -> None:
    """One message's equal calls are one occurrence; the next one counts again."""
    step = Step((Entry(5, "t", 1), Entry(5, "t", 1), Entry(6, "t", 1)))
    left, waiting = without_excused([step] * 4, 10, [Excused(5, 12), Excused(7, 0)])
    assert [len(one.calls) for one in left] == [3, 3, 1, 3]
    assert waiting == {7}


def test_what_a_compaction_drops_is_spared_too() -> None:
    """In the messages that no history shows any more."""
    nodes = [Node(1, (KeptCall(5, 0, 0),)), Node(2, (KeptCall(5, 0, 0), KeptCall(6, 0, 0)))]
    assert spare(nodes, 4, [Excused(5, 5), Excused(6, 9)]) == [Excused(6, 9)]
    assert [[kept.call for kept in node.calls] for node in nodes] == [[5], [6]]


# ---- across summaries and branches

GO, SUMMARY = user("go"), user("Summary: the file was read, nothing found yet.")


def a() -> Call:
    return called("a", result="1")


def b() -> Call:
    return called("b", result="2", id="b1")


def call_of(place: Place) -> int:
    """The fingerprint of the newest call of a trail."""
    return place.trail.steps[-1].calls[0].call


def test_a_reset_holds_across_a_summary() -> None:
    """What it forgave is not among what the summary took away, nor in the tail that it kept."""
    for kept in ([], [b()]):
        session = Recorded()
        session.live(GO, a(), a())
        session.pardon = Pardon(reset=1)
        assert shown(session.ask(GO, a(), a())) == []
        assert shown(session.ask(GO, a(), a(), b())) == ["b1"]
        assert shown(session.ask(SUMMARY, *kept)) == (["b1"] if kept else ["b1", "|"])


def test_an_allowance_is_used_up_across_a_summary() -> None:
    """Before it or after it, once."""
    session = Recorded()
    session.pardon = NOTHING.with_allowed([call_of(session.live(GO, a(), a()))], 1)
    session.ask(GO, a(), a())
    after = Recorded(session.data, session.clock, pardon=session.pardon)

    assert shown(session.ask(GO, a(), a(), a())) == ["a1", "a1", ""]
    assert shown(session.ask(SUMMARY)) == ["a1", "a1", "", "|"]
    assert shown(session.ask(SUMMARY, a())) == ["a1", "a1", "", "|a1"]
    after.ask(SUMMARY)
    assert shown(after.ask(SUMMARY, a())) == ["a1", "a1", "|"]
    assert shown(after.ask(SUMMARY, a(), a())) == ["a1", "a1", "|", "a1"]


def test_a_branch_is_forgiven_what_its_prefix_was() -> None:
    """As far as it shares it, and no call of its own."""
    session = Recorded()
    session.live(GO, a(), a(), b())
    session.pardon = Pardon(reset=1)
    session.ask(GO, a(), a(), b())

    assert shown(session.ask(GO, a(), a(), a(), a())) == ["a1", "a1"]
