"""Two to six different calls in rounds."""

import pytest

from proxy.counting import tally
from proxy.detectors.cycle import Cycle
from proxy.models import Finding, Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.trails import call, entries, trail

STANDARD = Policy()
DETECTOR = Cycle()


def found(letters: str, rounds: int, nudge_at: int | None = 3, stop_at: int | None = 5) -> Finding:
    """The last letter is the tool that is named."""
    return Finding(Reason.CYCLE, letters[-1].upper(), rounds, nudge_at, stop_at, frozenset(map(call, letters)))


def seen(text: str, policy: Policy = STANDARD) -> list[Finding]:
    now = trail(text)
    return list(DETECTOR.seen(now, tally(now, policy), policy))


def coming(text: str, message: str, policy: Policy = STANDARD) -> list[Finding]:
    now = trail(text)
    return list(DETECTOR.coming(now, tally(now, policy), entries(message), policy))


def armed(text: str, policy: Policy = STANDARD) -> bool:
    now = trail(text)
    return DETECTOR.armed(now, tally(now, policy), policy)


@pytest.mark.parametrize("letters", ["AB", "ABC", "ABCDEF"])
def test_rounds_are_found_from_the_nudge_rung_on(letters: str) -> None:
    """Two to six calls, each place returning what it returned before."""
    once = [f"{letter}1" for letter in letters]
    assert seen(" ".join(once * 3)) == [found(letters, 3)]
    assert seen(" ".join(once * 3 + once[:1])) == [found(letters[1:] + letters[:1], 3)]
    assert seen(" ".join((once * 3)[:-1])) == []


def test_seven_different_calls_are_no_cycle() -> None:
    """A plan may well have seven steps that repeat."""
    assert seen(" ".join(f"{letter}1" for letter in "ABCDEFG" * 5)) == []


def test_a_single_call_is_no_cycle() -> None:
    """It is a repeated call."""
    assert seen("A1 A1 A1 A1 A1 A1 A1 A1 A1 A1") == []


def test_a_round_may_hold_a_call_twice() -> None:
    """A, A, B is a round of three messages."""
    assert seen("A1 A1 B1 A1 A1 B1 A1 A1 B1") == [found("AB", 3)]


def test_a_new_result_breaks_the_rounds() -> None:
    """At any place."""
    assert seen("A1 B1 A1 B1 A1 B2") == []
    assert seen("A1 B1 A2 B1 A1 B1 A1 B1") == []


def test_calls_of_one_message_are_one_place_whatever_their_order() -> None:
    """They happened at once."""
    assert seen("A1+B1 C1 B1+A1 C1 A1+B1 C1") == [found("ABC", 3)]


def test_what_came_before_the_rounds_does_not_matter() -> None:
    """Nor does a message without calls between them."""
    assert seen("C1 D1 A1 B1 A1 - B1 A1 B1") == [found("AB", 3)]


@pytest.mark.parametrize("after", ["-", "C1"])
def test_a_cycle_that_was_left_is_none(after: str) -> None:
    """Only what the newest message completes is found."""
    assert seen(f"A1 B1 A1 B1 A1 B1 {after}") == []


def test_the_fifth_round_is_stopped_when_it_would_be_complete() -> None:
    """Not before, and not for another call or another message."""
    four_and_a_half = "A1 B1 " * 4 + "A1"
    assert coming(four_and_a_half, "B") == [found("BA", 5)]
    assert coming(four_and_a_half, "C") == []
    assert coming(four_and_a_half, "B+C") == []
    assert coming(four_and_a_half.removesuffix(" A1"), "A") == []
    assert coming("", "A") == []


def test_it_is_armed_for_the_message_that_would_complete_the_fifth_round() -> None:
    """And no sooner."""
    assert armed("A1 B1 " * 4 + "A1")
    assert not armed("A1 B1 " * 4)
    assert not armed("")


def test_a_cycle_is_as_patient_as_the_most_patient_of_its_tools() -> None:
    """A rung that one of them lacks, it lacks."""
    rounds = "A1 B1 " * 6
    rules = {
        Ladder(4, 6): ToolRule(nudge_at=4, stop_at=6, sets_nudge=True, sets_stop=True),
        Ladder(3, None): ToolRule(sets_stop=True),
        Ladder(None, 5): ToolRule(sets_nudge=True),
    }
    for ladder, rule in rules.items():
        assert seen(rounds, Policy(tools={"A": rule})) == [found("AB", 6, ladder.nudge_at, ladder.stop_at)]


def test_a_ladder_without_a_nudge_still_finds_what_to_stop() -> None:
    """A history that arrives at the stop rung is stopped."""
    policy = Policy(ladders={Reason.CYCLE: Ladder(None, 5)})
    assert seen("A1 B1 " * 4, policy) == []
    assert seen("A1 B1 " * 5, policy) == [found("AB", 5, None, 5)]


def test_exempt_tools_are_no_places() -> None:
    """What is left is one call, and a repeated call is another detector's."""
    policy = Policy(tools={"B": ToolRule(exempt=True)})
    assert seen("A1 B1 " * 5, policy) == []
    assert coming("A1 B1 " * 4 + "A1", "B", policy) == []
    assert seen("A1 B1 C1 " * 3, policy) == [found("AC", 3)]


def test_a_detector_that_is_off_finds_nothing() -> None:
    """It has no ladder."""
    assert seen("A1 B1 " * 6, Policy(ladders={})) == []
