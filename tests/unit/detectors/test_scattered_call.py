"""The same call with the same result, again and again between other calls."""

import pytest

from proxy.models import Reason
from proxy.policy import DEFAULT_LADDERS, Ladder, Policy, ToolRule
from tests.driver import House, Reply
from tests.loops import OFFERED, agent, bash, edit, note, only, read, rungs
from tests.transcripts import called, together, user

ALONE = only(Reason.SCATTERED_CALL)
TEST = bash("cargo test", "2 failed")


def between(*others: Reply) -> list[Reply]:
    return [reply for other in others for reply in (TEST, other)]


READS = [read(f"src/m{n}.rs") for n in range(12)]


def test_it_is_told_at_the_fourth_and_stopped_at_the_eighth() -> None:
    """Each read in between is news, and yet nothing can have changed."""
    assert rungs(ALONE, between(*READS)) == (7, 15)


def test_beside_other_calls_in_each_message_too() -> None:
    """The layout does not matter: the eighth is left out of its message, the ninth ends the run."""
    assert rungs(ALONE, [together(TEST, other) for other in READS if not isinstance(other, str)]) == (4, 9)


def test_one_fewer_is_neither() -> None:
    """Three looks are nothing."""
    assert rungs(ALONE, [*between(*READS[:3]), READS[3]]) == (None, None)
    assert rungs(ALONE, between(*READS[:7])) == (7, None)


def test_a_change_in_between_makes_it_a_gate() -> None:
    """Edit, test, edit, test, in messages of their own or beside each other."""
    assert rungs(ALONE, between(*[edit(n) for n in range(20)])) == (None, None)
    assert rungs(ALONE, [together(TEST, edit(n)) for n in range(20)]) == (None, None)
    assert rungs(ALONE, between(*[bash(f"sed -i s/a/{n}/ x") for n in range(20)])) == (None, None)


def test_what_fails_or_was_done_before_changes_nothing() -> None:
    """An edit that is refused, or made again."""
    assert rungs(ALONE, between(*[edit(n, "Error: not found in the file") for n in range(12)])) == (7, 15)
    assert rungs(ALONE, between(*[edit(1)] * 12)) == (9, 17)


def test_a_world_that_moves_by_itself() -> None:
    """One known call answers with something new: looking again is right."""
    board, news = bash("aid board", "3 tasks"), [bash("aid show 1", f"step {n} of the task") for n in range(12)]
    assert rungs(only(Reason.SCATTERED_CALL, tools={"bash": ToolRule()}), [reply for one in news for reply in (board, one)]) == (None, None)
    assert rungs(ALONE, [reply for n in range(12) for reply in (TEST, read("log", f"line {n}"), READS[n])]) == (None, None)


def test_an_act_that_is_told_done() -> None:
    """Handing over again and again is how a team works; a long answer, or a failure, tells more."""
    over = called("transfer_to_researcher", {}, "Successfully transferred to researcher")
    assert rungs(ALONE, [reply for other in READS for reply in (over, other)]) == (None, None)
    long = called("transfer_to_researcher", {}, "Successfully transferred\nto the\nresearcher")
    assert rungs(ALONE, [reply for other in READS for reply in (long, other)]) == (7, 15)


def test_in_a_row_it_is_another_shape() -> None:
    """Notes aside, something else has to stand between."""
    assert rungs(ALONE, [TEST] * 20) == (None, None)
    assert rungs(ALONE, [TEST, TEST, READS[0], TEST, TEST, READS[1], TEST, TEST]) == (None, None)
    assert rungs(ALONE, between(*[note(f"{n}") for n in range(12)])) == (7, 15)


def test_far_apart_it_is_exploration() -> None:
    """Every sixth call of a long one."""
    assert rungs(ALONE, [reply for n in range(20) for reply in (TEST, *[read(f"{n}/{m}.rs") for m in range(9)])]) == (None, None)


def test_other_results_are_other_things() -> None:
    """Only what came back the same counts; an unanswered call does not."""
    assert rungs(ALONE, [reply for n in range(12) for reply in (bash("cargo test", f"{n} failed"), READS[n])]) == (None, None)
    unanswered = called("bash", {"command": "cargo test"}, None)
    assert rungs(ALONE, [reply for n in range(6) for reply in (unanswered, READS[n])]) == (None, None)


def test_who_waits_in_between_is_given_more_time() -> None:
    """The ladder for waiting, if there is one; and calls that wait themselves are another shape."""
    waiting = [bash(f"sleep {n}") for n in range(12)]
    both = Policy(ladders={reason: DEFAULT_LADDERS[reason] for reason in (Reason.SCATTERED_CALL, Reason.POLL)})
    assert rungs(both, between(*waiting)) == (11, None)
    assert rungs(ALONE, between(*waiting)) == (7, 15)
    assert rungs(ALONE, [reply for other in READS for reply in (bash("sleep 5"), other)]) == (None, None)


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then; and not right after the call itself, which would be in a row."""
    turns = between(*READS)
    armed = [House(ALONE).begin([user("go"), *turns[:count]], tools=OFFERED).plan.armed for count in (2, 13, 14, 15)]  # type: ignore[list-item]
    assert armed == [False, False, True, False]  # stopped already
    loop = agent(ALONE)
    loop.play(turns[:13])
    assert loop.step(TEST).decision == "ok"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (only(Reason.SCATTERED_CALL, Ladder(None, 3)), (None, 5)),
        (only(Reason.SCATTERED_CALL, Ladder(2, None)), (3, None)),
        (only(Reason.SCATTERED_CALL, tools={"bash": ToolRule(exempt=True)}), (None, None)),
        (only(Reason.SCATTERED_CALL, tools={"bash": ToolRule(nudge_at=6, stop_at=9, sets_nudge=True, sets_stop=True)}), (11, 17)),
        (only(Reason.SCATTERED_CALL, tools={"read_file": ToolRule(effect=None, exempt=True)}), (7, 15)),
    ],
)
def test_its_rungs_are_the_operators(policy: Policy, expected: tuple[int | None, int | None]) -> None:
    """Each may be moved or taken away; those of a tool make it more patient."""
    assert rungs(policy, between(*READS)) == expected
