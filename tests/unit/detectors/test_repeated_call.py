"""The same call again, with nothing new learned since."""

import pytest

from proxy.counting import tally
from proxy.detectors.repeated_call import RepeatedCall
from proxy.models import Finding, Reason
from proxy.policy import Counting, Ladder, Policy, Scope, ToolRule
from proxy.trail import Trail
from tests.trails import call, entries, trail

STANDARD = Policy()
DETECTOR = RepeatedCall()


def found(letter: str, count: int, nudge_at: int | None = 3, stop_at: int | None = 5) -> Finding:
    return Finding(Reason.REPEATED_CALL, letter.upper(), count, nudge_at, stop_at, frozenset({call(letter)}))


def seen(now: Trail, policy: Policy = STANDARD) -> list[Finding]:
    return list(DETECTOR.seen(now, tally(now, policy), policy))


def coming(now: Trail, message: str, policy: Policy = STANDARD) -> list[Finding]:
    return [f for f in DETECTOR.coming(now, tally(now, policy), entries(message), policy) if f.stops]


def armed(now: Trail, policy: Policy = STANDARD) -> bool:
    return DETECTOR.armed(now, tally(now, policy), policy)


@pytest.mark.parametrize(("text", "findings"), [("", []), ("A1 A1", []), ("A1 A1 A1", [3]), ("A1 A1 A1 A1 A1 A1", [6])])
def test_a_call_is_found_from_its_nudge_rung_on(text: str, findings: list[int]) -> None:
    """Below it there is nothing to say."""
    assert seen(trail(text)) == [found("A", count) for count in findings]


def test_only_the_newest_message_is_looked_at() -> None:
    """A loop that was left is none."""
    assert seen(trail("A1 A1 A1 A1 B1 B1")) == []
    assert seen(trail("A1 A1 A1 A1 -")) == []


def test_a_message_with_two_loops_has_two_findings() -> None:
    """In their order, each once."""
    assert seen(trail("A1+B1 A1+B1 A1+B1+A1")) == [found("A", 3), found("B", 3)]


def test_what_was_summarised_away_is_still_the_newest() -> None:
    """Until the next message comes."""
    assert seen(trail("A1 A1 A1 | -")) == [found("A", 3)]
    assert seen(trail("A1 A1 A1 | - -")) == []


@pytest.mark.parametrize(
    ("text", "message", "stopped"),
    [
        ("A1 A1 A1 A1", "A", [("A", 5)]),
        ("A1 A1 A1", "A", []),
        ("A1 A1 A1 A1", "B", []),
        ("A1 A1 A1 A1", "A+N", [("A", 5)]),
        ("B1 A1 A1 A1 A1", "B+A", [("A", 5)]),
        ("A1+B1 A1+B1 A1+B1 A1+B1", "A+B+A", [("A", 5), ("B", 5)]),
        ("A1 A1 A1 A1 | -", "A", []),
        ("", "A", []),
    ],
)
def test_a_coming_call_stops_at_its_stop_rung(text: str, message: str, stopped: list[tuple[str, int]]) -> None:
    """A message that brings a call never made is news for all its calls."""
    assert coming(trail(text), message) == [found(letter, count) for letter, count in stopped]


@pytest.mark.parametrize(("text", "is_armed"), [("", False), ("A1 A1 A1", False), ("A1 A1 A1 A1", True), ("A1 A1 A1 A1 B1", False)])
def test_it_is_armed_when_one_more_call_could_stop(text: str, is_armed: bool) -> None:
    """And only then: a healthy stream is never held."""
    assert armed(trail(text)) is is_armed


def test_a_call_that_stopped_an_earlier_run_stops_at_its_second_repeat() -> None:
    """With the same result."""
    assert coming(trail("A7 A7", relapsed={"A": 7}), "A") == [found("A", 3, stop_at=3)]
    assert coming(trail("A8 A8", relapsed={"A": 7}), "A") == []


@pytest.mark.parametrize(
    ("rule", "nudge_at", "stop_at"),
    [
        (ToolRule(nudge_at=2, stop_at=4, sets_nudge=True, sets_stop=True), 2, 4),
        (ToolRule(nudge_at=2, sets_nudge=True), 2, 5),
        (ToolRule(stop_at=4, sets_stop=True), 3, 4),
        (ToolRule(sets_nudge=True, stop_at=4, sets_stop=True), None, 4),
        (ToolRule(nudge_at=2, sets_nudge=True, sets_stop=True), 2, None),
    ],
)
def test_a_tools_own_rungs_replace_the_detectors(rule: ToolRule, nudge_at: int | None, stop_at: int | None) -> None:
    """Each by itself; a rung may be missing."""
    policy = Policy(tools={"A": rule})
    assert seen(trail("A1 A1 A1 A1"), policy) == [found("A", 4, nudge_at, stop_at)]
    assert armed(trail("A1 A1 A1"), policy) is (stop_at == 4)
    assert coming(trail("B1 B1 B1 B1"), "B", policy) == [found("B", 5)]


def test_a_ladder_without_a_nudge_still_finds_what_to_stop() -> None:
    """A history that arrives at the stop rung."""
    policy = Policy(ladders={Reason.REPEATED_CALL: Ladder(None, 2)})
    assert seen(trail("A1"), policy) == []
    assert seen(trail("A1 A1"), policy) == [found("A", 2, None, 2)]


def test_a_detector_that_is_off_finds_nothing() -> None:
    """Nor does it arm."""
    policy = Policy(ladders={})
    now = trail("A1 A1 A1 A1 A1")
    assert seen(now, policy) == []
    assert not armed(now, policy)


@pytest.mark.parametrize("policy", [Policy(tools={"A": ToolRule(exempt=True)}), Policy(finish_tools=("A",))])
def test_exempt_tools_and_finish_tools_that_succeed_are_never_found(policy: Policy) -> None:
    """However often they are called."""
    now = trail("A1 A1 A1 A1 A1 A1")
    assert (seen(now, policy), coming(now, "A", policy), armed(now, policy)) == ([], [], False)


def test_a_finish_tool_counts_its_failures() -> None:
    """Seen once they are known; what comes may succeed."""
    policy = Policy(finish_tools=("A",))
    now = trail("A1! A1! A1! A1! A1!")
    assert seen(now, policy) == [found("A", 5)]
    assert coming(now, "A", policy) == []


def test_calls_that_no_history_carries_are_found_by_what_was_delivered_last() -> None:
    """Counted over the session, they need not stand in the trail."""
    policy = Policy(counting=Counting.CUMULATIVE, scope=Scope.SESSION, tools={"A": ToolRule(stop_at=8, sets_stop=True)})
    now = Trail(made={call("A"): 4}, latest=entries("A"))
    assert seen(now, policy) == [found("A", 4, stop_at=8)]
    assert armed(now, policy)  # the tool is not known: it may be one that stops at 5
    assert coming(now, "A", policy) == []
