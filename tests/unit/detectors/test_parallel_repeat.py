"""Equal calls inside one message."""

import pytest

from proxy.counting import tally
from proxy.detectors.parallel_repeat import ParallelRepeat
from proxy.models import Finding, Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.trails import call, entries, trail

STANDARD = Policy()
DETECTOR = ParallelRepeat()


def found(letter: str, count: int, stop_at: int | None) -> Finding:
    return Finding(Reason.PARALLEL_REPEAT, letter, count, 5, stop_at, frozenset({call(letter)}))


def seen(text: str, policy: Policy = STANDARD) -> list[Finding]:
    now = trail(text)
    return list(DETECTOR.seen(now, tally(now, policy), policy))


def coming(message: str, policy: Policy = STANDARD) -> list[Finding]:
    now = trail("")
    return list(DETECTOR.coming(now, tally(now, policy), entries(message), policy))


@pytest.mark.parametrize(("count", "findings"), [(1, []), (4, []), (5, [5]), (43, [43])])
def test_five_equal_calls_in_one_message_are_nudged(count: int, findings: list[int]) -> None:
    """Never stopped afterwards: they were made."""
    assert seen("B1 " + "+".join(["A1"] * count)) == [found("A", n, None) for n in findings]


@pytest.mark.parametrize(("count", "findings"), [(15, []), (16, [16]), (43, [43])])
def test_sixteen_equal_calls_are_cut(count: int, findings: list[int]) -> None:
    """Before they are made."""
    assert coming("+".join(["A"] * count)) == [found("A", n, 16) for n in findings]


def test_different_calls_of_one_message_are_not_added_up() -> None:
    """A batch of edits is work."""
    assert seen("+".join(f"{letter}1" for letter in "ABCDEFGHIJKLMNOPQRSTUVW")) == []
    assert coming("+".join(["A", "B"] * 15)) == []


def test_equal_calls_of_different_messages_are_not_added_up() -> None:
    """Only the newest message is looked at."""
    assert seen("A1+A1+A1 A1+A1+A1") == []
    assert seen("A1+A1+A1+A1+A1 B1") == []
    assert seen("") == []


def test_two_loops_in_one_message_are_found_the_longer_first() -> None:
    """Both were overdone."""
    assert seen("+".join(["A1"] * 5 + ["B1"] * 6)) == [found("B", 6, None), found("A", 5, None)]


def test_it_never_arms() -> None:
    """Any message could run away: the stream itself is watched."""
    now = trail("A1+A1+A1+A1+A1")
    assert not DETECTOR.armed(now, tally(now, STANDARD), STANDARD)


@pytest.mark.parametrize(
    "policy",
    [Policy(ladders={}), Policy(tools={"A": ToolRule(exempt=True)}), Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(None, None)})],
)
def test_nothing_is_found_where_the_ladder_is_off_or_the_tool_exempt(policy: Policy) -> None:
    """However many."""
    assert seen("+".join(["A1"] * 20), policy) == []
    assert coming("+".join(["A"] * 20), policy) == []


def test_the_rungs_of_a_tool_are_about_repeats_not_about_one_message() -> None:
    """A tool that stops at its second repeat may still be called twice at once."""
    policy = Policy(tools={"A": ToolRule(nudge_at=2, stop_at=2, sets_nudge=True, sets_stop=True)})
    assert seen("A1+A1", policy) == []
    assert coming("A+A", policy) == []
