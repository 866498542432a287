"""Histories that a client cut short: the run goes on, with what it did before."""

import pytest

from proxy.models import Reason
from proxy.state import LOST, Stop
from tests.recorded import PRINTS, Recorded, shown
from tests.transcripts import NO_ID, Call, Turn, called, said, together, user

GO = user("go")
SUMMARY = user("Summary: the file was read, nothing found yet.")


def a(result: str | None = "x", id: str | None = None) -> Call:
    return called("a", result=result, id=id)


def b(result: str | None = "x", id: str | None = None) -> Call:
    return called("b", result=result, id=id)


@pytest.fixture
def session() -> Recorded:
    return Recorded()


# ---- a summary alone


def test_a_summary_does_not_end_the_run(session: Recorded) -> None:
    """What was called before stays in the trail, marked as from before it."""
    session.live(GO, a("1"), a("1"))
    assert shown(session.ask(SUMMARY)) == ["a1", "a1", "|"]
    assert shown(session.ask(SUMMARY, a("1"))) == ["a1", "a1", "|a1"]
    assert shown(session.ask(SUMMARY, a("1"), b("2"))) == ["a1", "a1", "|a1", "b2"]
    assert session.place.current


def test_only_the_current_run_is_taken_along(session: Recorded) -> None:
    """Not what was done for an earlier text."""
    session.live(GO, a(), said("ok"), user("next"), b())
    assert shown(session.ask(SUMMARY)) == ["b1", "|"]


def test_a_second_summary_is_marked_too(session: Recorded) -> None:
    """Each is a place where a call may be made once more; one right after another is one."""
    session.live(GO, a("1"))
    session.live(SUMMARY, a("1"), b("2"))
    assert shown(session.ask(user("Second summary."))) == ["a1", "|a1", "b2", "|"]
    assert shown(session.live(user("Third summary."), b("2"))) == ["a1", "|a1", "b2", "|b2"]


def test_a_summary_may_keep_the_first_prompt(session: Recorded) -> None:
    """A user text more before the first answer is a history cut short; the same ones are the request sent again."""
    session.live(GO, a("1"))
    assert shown(session.ask(GO, retry=True)) == []
    assert shown(session.ask(GO, SUMMARY)) == ["a1", "|"]


def test_a_second_summary_may_keep_the_first_prompt_too(session: Recorded) -> None:
    """As Codex has it: there are as many texts as before, and another stands last. The same ones are the request sent again."""
    session.live(GO, a("1"))
    session.ask(GO, SUMMARY)
    session.ask(GO, SUMMARY, b("2"))
    assert shown(session.ask(GO, user("Second summary."))) == ["a1", "|b2", "|"]
    assert shown(session.ask(GO, user("Second summary."), a("1", id="n"))) == ["a1", "|b2", "|a1"]
    assert len(session.record.lanes) == 3
    session.ask(GO, user("Second summary."), retry=True)
    assert len(session.record.lanes) == 3


def test_texts_that_the_summary_keeps_are_no_new_texts(session: Recorded) -> None:
    """A client repeats what its user had said, after an answer of its own making."""
    session.live(GO, said("ok"), user("do b"), b("1"), b("1"))
    assert shown(session.ask(SUMMARY, said("Got it."), user("do b"))) == ["b1", "b1", "|"]
    assert shown(session.ask(SUMMARY, said("Got it."), user("do b"), b("1"))) == ["b1", "b1", "|", "b1"]
    assert shown(session.ask(SUMMARY, said("Got it."), user("do b"), b("1"), said("done"), user("do c"))) == []


def test_results_are_compared_across_a_summary(session: Recorded) -> None:
    """By their normal text, whatever form either is known in."""
    session.live(GO, a("at 12:00:01"), a("at 12:00:02"), b("1"))
    assert shown(session.live(SUMMARY, a("at 12:00:03"))) == ["a1", "a1", "b2", "|a1"]
    assert shown(session.ask(SUMMARY, a("at 12:00:03"), b("1"), b("1"), b("1"))) == ["a1", "a1", "b2", "|a1", "b2", "b2", "b2"]


def test_what_the_run_was_nudged_and_pruned_for_is_known_after_it(session: Recorded) -> None:
    """The nudge itself has vanished with its place. The main lane is the one that goes on."""
    session.live(GO, a(), a())
    given = session.nudge("a")
    session.place.lane.pruned = given.calls
    session.cut()
    place = session.ask(SUMMARY)
    assert [(nudge.message, nudge.calls) for nudge in place.nudges()] == [(LOST, given.calls)]
    assert place.lane.pruned == given.calls
    assert [lane.main for lane in session.record.lanes] == [False, True]


@pytest.mark.parametrize("text", ["Summary: ...", "This session is being continued from a previous conversation."])
def test_a_summary_after_a_cut_answer_begins_no_run(session: Recorded, text: str) -> None:
    """A context that overflowed is the usual reason to cut a history short."""
    session.live(GO, a(), a())
    session.cut()
    session.ask(GO, a(), a(), user("Please summarize our conversation so far."))
    assert shown(session.live(user(text), a())) == ["a1", "a1", "|a1"]


@pytest.mark.parametrize("why_not", ["finished", "stopped", "other system", "other tools", "other lane", "in flight"])
def test_a_new_prompt_is_no_summary_of_a_run_that_cannot_go_on(session: Recorded, why_not: str) -> None:
    """One that ended, was stopped, is framed otherwise, has another name or is being asked right now."""
    session.live(GO, a(), a())
    if why_not == "finished":
        session.finish()
    if why_not == "stopped":
        session.stop()
    place = session.ask(
        user("another task"),
        system="other" if why_not == "other system" else "s",
        tools=("other",) if why_not == "other tools" else ("read_file", "bash", "edit"),
        lane=9 if why_not == "other lane" else 0,
        busy=(session.history.seed,) if why_not == "in flight" else (),
    )
    assert (shown(place), place.lane.stop) == ([], None)


def test_a_history_with_calls_of_its_own_continues_nothing(session: Recorded) -> None:
    """It is another line of work, or one that Lastcall joins late; so is one as long as the lane."""
    session.live(GO, a(), a())
    assert shown(session.ask(user("sub-agent"), b())) == ["b1"]
    other = Recorded()
    other.live(GO, a())
    assert [step for step in shown(other.ask(user("sub-agent"), said("hm"), user("go on"))) if step] == []


def test_another_answer_to_the_same_prompt_is_no_summary(session: Recorded) -> None:
    """It is another sample of the same question."""
    session.live(GO, a(), a())
    assert shown(session.ask(GO, said("I know it."), user("continue"))) == [""]
    assert len(session.record.lanes) == 2


@pytest.mark.parametrize("last", ["a", "b"])
def test_of_several_lanes_the_one_used_last_goes_on(session: Recorded, last: str) -> None:
    """Of those that may."""
    histories: dict[str, list[Turn]] = {"a": [GO, a(), a()], "b": [user("other"), b(), b()]}
    for name in ("a", "b", last):
        session.ask(*histories[name])
    assert shown(session.ask(SUMMARY)) == [f"{last}1", f"{last}1", "|"]


# ---- a summary and the newest messages


def test_a_kept_tail_goes_on_where_it_was(session: Recorded) -> None:
    """Nothing is counted twice: what is dropped comes from the record, what is kept from the history."""
    calls = [a("1", id=f"i{number}") for number in range(5)]
    session.live(GO, *calls)
    assert shown(session.ask(SUMMARY, *calls[3:])) == ["a1"] * 3 + ["|a1", "a1"]
    assert shown(session.ask(SUMMARY, *calls[3:], a("2"))) == ["a1"] * 3 + ["|a1", "a1", "a2"]
    assert len(session.record.lanes) == 2


@pytest.mark.parametrize("lead", [[], [said("Got it.")], [said("Got it."), said("Right.")]])
def test_a_kept_tail_may_follow_made_up_answers(session: Recorded, lead: list[Turn]) -> None:
    """Up to two that the client put before it."""
    calls = [a("1", id=f"i{number}") for number in range(4)]
    session.live(GO, *calls)
    place = session.ask(SUMMARY, *lead, *calls[2:])
    assert [step for step in shown(place) if step.strip("|")] == ["a1", "a1", *(["a1"] if lead else ["|a1"]), "a1"]
    assert len(place.lane.answers) == len(lead) + 2


def test_calls_without_ids_leave_no_doubt_where_a_tail_stood(session: Recorded) -> None:
    """All five look alike: it is the newest that were kept."""
    session.live(GO, *[a("1", id=NO_ID)] * 5)
    assert shown(session.ask(SUMMARY, *[a("1", id=NO_ID)] * 2)) == ["a1"] * 3 + ["|a1", "a1"]
    assert shown(session.ask(SUMMARY, *[a("1", id=NO_ID)] * 3)) == ["a1"] * 3 + ["|a1", "a1", "a1"]


def test_a_tail_keeps_its_results_as_first_seen(session: Recorded) -> None:
    """Also where the client blanked them on the occasion."""
    session.live(GO, a("1", id="i0"), a("1", id="i1"), a("1", id="i2"))
    cleared = "[Old tool result content cleared]"
    assert shown(session.ask(SUMMARY, a(cleared, id="i1"), a("1", id="i2"))) == ["a1", "|a1", "a1"]


def test_a_tail_may_reach_back_beyond_the_run(session: Recorded) -> None:
    """The run still begins at the text that began it, and ends with the next one."""
    old, new = a("1", id="old"), a("1", id="new")
    session.live(GO, b(id="dropped"), old, said("ok"), user("again"), new)
    for more, run in ([], 2), ([a("1", id="newer")], 2), ([said("ok"), user("more")], 4):
        place = session.ask(SUMMARY, old, said("ok"), user("again"), new, *more)
        assert (place.run, place.current) == (run, True)
        assert shown(place) == ["a1"] * (2 if more and run == 2 else run == 2)


def test_a_stop_outlives_a_history_cut_short_that_kept_its_tail(session: Recorded) -> None:
    """It is the same run: only a person's text ends it."""
    calls = [a("1", id=f"i{number}") for number in range(5)]
    session.live(GO, *calls)
    session.stop()
    place = session.ask(SUMMARY, *calls[3:])
    assert (place.lane.stop, place.current) == (Stop(Reason.REPEATED_CALL, "t", 5, 5, []), True)
    assert session.ask(SUMMARY, *calls[3:], user("do b")).lane.stop is None


def test_texts_alone_are_no_tail(session: Recorded) -> None:
    """An "ok" may stand in any two conversations."""
    session.live(GO, said("ok"), user("next"), b())
    session.finish()
    assert shown(session.ask(user("other"), said("ok"), user("and"))) == []


def test_a_tail_of_a_lane_shortened_itself_is_found(session: Recorded) -> None:
    """The record holds the newest calls of a long run; what it no longer holds is lost."""
    calls = [called("a", {"n": number}, id=f"i{number}") for number in range(300)]
    session.ask(GO, *calls)
    place = session.ask(SUMMARY, *calls[290:])
    assert len(place.trail.steps) == 128
    assert [step.after_compaction for step in place.trail.steps].index(True) == 118


def test_parallel_calls_of_a_dropped_message_stay_one_message(session: Recorded) -> None:
    """With their results."""
    session.live(GO, together(a("1"), b("2")), a("1"))
    assert shown(session.ask(SUMMARY)) == ["a1 b2", "a1", "|"]
    assert PRINTS.call("a", "{}") == session.place.trail.steps[1].calls[0].call


def test_a_fork_comes_from_the_branch_that_still_knows_its_prefix(session: Recorded) -> None:
    """Another one has begun a new run, and forgotten what it did before the summary."""
    calls = [a("1", id=f"i{number}") for number in range(4)]
    session.live(GO, *calls)
    session.ask(SUMMARY, *calls[2:])
    session.ask(SUMMARY, calls[2], b(id="fork"))
    session.ask(SUMMARY, *calls[2:], said("ok"), user("next"))
    assert shown(session.ask(SUMMARY, calls[2], b(id="other"))) == ["a1", "a1", "|a1", "b2"]
