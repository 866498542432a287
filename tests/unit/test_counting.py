"""How often a call was made without progress, in the shorthand of `tests.trails`."""

import random
import string

import pytest

from proxy.counting import (
    AGAIN,
    AMISS,
    Lately,
    Tally,
    coming_counts,
    first_made,
    first_returned,
    is_bookkeeping,
    judged,
    ladder_of,
    next_count,
    tally,
)
from proxy.effects import Effect
from proxy.models import Reason
from proxy.policy import Counting, Ladder, Policy, ToolRule
from proxy.trail import Trail
from tests.trails import call, entries, entry, trail

STANDARD = Policy()
CONSECUTIVE = Policy(counting=Counting.CONSECUTIVE)
CUMULATIVE = Policy(counting=Counting.CUMULATIVE)


def counted(text: str, policy: Policy = STANDARD, *, nudged: dict[str, int] | None = None) -> list[int]:
    """The count of each message's first call when that message is the newest."""
    words = text.split()
    places = [at for at, word in enumerate(words, 1) if word not in ("|", "-")]
    return [tally(trail(" ".join(words[:at]), nudged=nudged), policy).counts.get(call(words[at - 1][0]), 0) for at in places]


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ("A1 A1 A1 A1 A1", [1, 2, 3, 4, 5]),
        ("A1 A1 A2", [1, 2, 1]),
        ("A1 B1 A1 B1 A1 B1", [1, 1, 1, 2, 2, 3]),
        ("A1 B1 A1 C1 A1 D1 A1 E1", [1, 1, 1, 1, 1, 1, 1, 1]),
        ("A1 B1 A2 B2 A3 B3", [1, 1, 1, 1, 1, 1]),
        ("A1 A2 A1 A2 A1 A2", [1, 1, 2, 3, 4, 5]),
        ("A1 A A A", [1, 2, 3, 4]),
        ("A A1 A1", [1, 1, 2]),
    ],
)
def test_no_progress_counts_occurrences_since_the_last_news(calls: str, counts: list[int]) -> None:
    """The message that brought the news included; a result not seen yet is no news; one seen before is none either."""
    assert counted(calls) == counts


def test_equal_calls_of_one_message_count_once() -> None:
    """They happened at once."""
    assert tally(trail("A1+A1+A1 A1+A1"), STANDARD).counts == {call("A"): 2}


@pytest.mark.parametrize("message", ["A1+B2", "B2+A1"])
def test_news_inside_a_message_counts_for_all_its_calls(message: str) -> None:
    """Whatever their order."""
    assert tally(trail(f"A1 A1 A1 {message}"), STANDARD).counts == {call("A"): 1, call("B"): 1}


def test_a_message_without_calls_changes_nothing() -> None:
    """Text is neither news nor a repeat."""
    assert counted("A1 A1 - A1") == [1, 2, 3]


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ("A1 A1 A1 B1 A1 A1", [1, 2, 3, 1, 4, 5]),
        ("A1 A1 A1 B1 C1 D1 A1 E1 A1", [1, 2, 3, 1, 1, 1, 4, 1, 4]),
        ("A1 A1 A1 A2 A2", [1, 2, 3, 1, 2]),
        ("A1 A1 A1 A1 B1+A1", [1, 2, 3, 4, 1]),
    ],
)
def test_news_from_other_calls_takes_a_nudged_call_back_to_the_middle_only(calls: str, counts: list[int]) -> None:
    """One more repeat without news stops it; a new result of its own takes it back to 1."""
    assert counted(calls, nudged={"A": 3}) == counts


def test_news_from_before_the_nudge_keeps_its_full_effect() -> None:
    """What reset the count before the nudge is not undone by it: after a nudge at 3 there are two calls left, not none."""
    assert counted("A1 B1 A1 C1 A1 A1 A1 A1", nudged={"A": 7})[-4:] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("ladder", "back_to"),
    [(Ladder(3, 5), 4), (Ladder(4, 8), 6), (Ladder(3, 3), 3), (Ladder(None, 5), 1), (Ladder(3, None), 1)],
)
def test_the_middle_lies_between_the_rungs(ladder: Ladder, back_to: int) -> None:
    """Without one of them there is no middle: news resets."""
    policy = Policy(ladders={Reason.REPEATED_CALL: ladder})
    assert counted("A1 A1 A1 A1 A1 A1 A1 A1 B1 A1", policy, nudged={"A": 3})[-1] == back_to


def test_a_detector_that_is_off_has_no_middle() -> None:
    """A nudged cycle resets when `repeated_call` is off."""
    assert counted("A1 A1 A1 B1 A1", Policy(ladders={Reason.CYCLE: Ladder(3, 5)}), nudged={"A": 3})[-1] == 1


def test_one_repeat_of_each_call_is_forgiven_after_a_compaction() -> None:
    """The re-read of what the summary lost; the second one counts."""
    assert counted("A1 A1 | A1 A1") == [1, 2, 2, 3]
    assert tally(trail("A1 A1 | -"), STANDARD).forgiven == {call("A")}


def test_a_repeat_is_forgiven_once_however_often_the_history_is_cut() -> None:
    """A client that keeps its newest messages only cuts it at each."""
    assert counted("A1 | A1 | A1 B1 | B1 | A1 | B1") == [1, 1, 2, 1, 1, 1, 2]


def test_a_nudged_call_is_not_forgiven_after_a_compaction() -> None:
    """It was told already."""
    assert counted("A1 A1 A1 | A1", nudged={"A": 3}) == [1, 2, 3, 4]


def test_a_call_nudged_after_the_compaction_was_forgiven_before() -> None:
    """The nudge changes nothing about what went before it."""
    assert counted("A1 | A1 A1 A1 A1", nudged={"A": 4}) == [1, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["TodoWrite", "update_plan"])
def test_the_agents_own_notes_are_no_news(name: str) -> None:
    """A plan that changes all the time does not make a loop progress."""
    assert is_bookkeeping(STANDARD, name)
    policy = Policy(tools={"B": ToolRule(effect=Effect.BOOKKEEPING)})
    assert counted("A1 B1 A1 B2 A1 B3", policy) == [1, 1, 2, 2, 3, 3]


def test_an_operator_says_what_a_tool_is() -> None:
    """A tool called like a plan may be a real one."""
    assert not is_bookkeeping(Policy(tools={"update_plan": ToolRule(effect=Effect.WRITE)}), "update_plan")
    assert is_bookkeeping(Policy(tools={"update_plan": ToolRule(exempt=True)}), "update_plan")


def test_a_result_that_lastcall_wrote_is_no_news() -> None:
    """It says nothing of the world."""
    assert counted("A1 A1 B9~ A1") == [1, 2, 1, 3]


@pytest.mark.parametrize(
    ("calls", "counts"),
    [
        ("A1 A1 A1", [1, 2, 3]),
        ("A1 A2 A3", [1, 2, 3]),
        ("A1 B1 A1 B1", [1, 1, 1, 1]),
        ("A1 A1 B1 A1", [1, 2, 1, 1]),
        ("A1 - A1", [1, 2]),
        ("A1 A1+B1 A1", [1, 1, 1]),
        ("A1+A1 A1", [1, 2]),
    ],
)
def test_consecutive_counts_only_while_no_other_call_comes_between(calls: str, counts: list[int]) -> None:
    """Results do not matter, and text between is no call."""
    assert counted(calls, CONSECUTIVE) == counts


def test_cumulative_counts_every_occurrence() -> None:
    """Whatever it returned, whatever came between."""
    assert counted("A1 B1 A2 C1 A3 A3+A3", CUMULATIVE) == [1, 1, 2, 1, 3, 4]


def test_cumulative_knows_calls_of_answers_that_no_history_carries() -> None:
    """The larger of the two numbers: a history and what was delivered tell of the same calls."""
    now = tally(trail("A1 A1 B1", made={"A": 4, "B": 1, "C": 2}), CUMULATIVE)
    assert now.counts == {call("A"): 4, call("B"): 1, call("C"): 2}
    assert coming_counts(Trail(), CUMULATIVE, now, entries("A+C+D")) == {call("A"): 5, call("C"): 3, call("D"): 1}


@pytest.mark.parametrize(
    ("policy", "message", "counts"),
    [
        (STANDARD, "A", {"A": 5}),
        (STANDARD, "A+B", {"A": 5, "B": 1}),
        (STANDARD, "A+N", {"A": 5, "N": 1}),
        (STANDARD, "N+A", {"A": 5, "N": 1}),
        (CONSECUTIVE, "A", {"A": 5}),
        (CONSECUTIVE, "A+B", {"A": 1, "B": 1}),
        (CUMULATIVE, "A+N", {"A": 5, "N": 1}),
    ],
)
def test_what_a_coming_message_would_count(policy: Policy, message: str, counts: dict[str, int]) -> None:
    """The same as after it, its results unknown: a call never made is news for the whole message already."""
    now = trail("B1 A1 A1 A1 A1")
    assert coming_counts(now, policy, tally(now, policy), entries(message)) == {call(k): count for k, count in counts.items()}


def test_a_forgiven_call_does_not_count_when_it_comes() -> None:
    """Nor is it counted on for arming."""
    now = trail("A1 A1 A1 A1 | -")
    tallied = tally(now, STANDARD)
    assert next_count(tallied, call("A")) == 4
    assert coming_counts(now, STANDARD, tallied, entries("A")) == {call("A"): 4}


def test_exempt_tools_are_never_judged_and_finish_tools_only_when_they_fail() -> None:
    """An agent that ends its run does not loop."""
    policy = Policy(tools={"A": ToolRule(exempt=True), "C": ToolRule(nudge_at=2, sets_nudge=True)}, finish_tools=("B",))
    assert not judged(policy, entry("A1"))
    assert not judged(policy, entry("B1"))
    assert judged(policy, entry("B1!"))
    assert judged(policy, entry("C1"))
    assert tally(trail("A1 A1 B1 B1!+B1! B1!+A1"), policy).counts == {call("B"): 2}


def test_a_call_that_stopped_an_earlier_run_stops_at_its_second_repeat() -> None:
    """As long as it returns what it returned then, or nothing yet."""
    for text, stop_at in (("", 3), ("A", 3), ("A7", 3), ("A8", 5), ("A7 A8", 5)):
        now = trail(text, relapsed={"A": 7})
        assert ladder_of(STANDARD, now, tally(now, STANDARD), call("A"), "A") == Ladder(3, stop_at)


@pytest.mark.parametrize("rule", [ToolRule(stop_at=None, sets_stop=True), ToolRule(stop_at=2, sets_stop=True)])
def test_a_relapse_never_lengthens_a_ladder_or_makes_a_stop(rule: ToolRule) -> None:
    """A tool that is never stopped stays so."""
    policy = Policy(tools={"A": rule})
    now = trail("A7 A7", relapsed={"A": 7})
    assert ladder_of(policy, now, tally(now, policy), call("A"), "A") == Ladder(3, rule.stop_at)


def test_an_empty_trail_has_an_empty_tally() -> None:
    """In every way of counting."""
    for policy in (STANDARD, CONSECUTIVE, CUMULATIVE):
        assert tally(Trail(), policy) == Tally({}, {}, frozenset(), 0 if policy is STANDARD else AGAIN)


def test_what_is_kept_from_trail_to_trail_says_what_a_look_at_all_of_it_would() -> None:
    """Whether a trail goes on by a message or by several, stands still, or is another one: failures and outputs that come often."""
    dice, shown = random.Random(7), []
    marks = ["", "!", *[f"{number}{mark}" for number in range(60) for mark in ("", "", "!" if number < 3 else "")]]
    for _ in range(30):
        lately = Lately()
        words = [letter + dice.choice(marks) for letter in string.ascii_letters]
        at = 0
        for by in dice.choices((0, 1, 1, 1, 1, 3, -30), k=60):
            at = min(max(at + by, 0), len(words))
            now = trail(" ".join(words[:at]))
            shown.append(tally(now, STANDARD, lately).shows)
            assert shown[-1] == tally(now, STANDARD).shows
    assert set(shown) == {0, AMISS}
    assert min(shown.count(0), shown.count(AMISS)) > len(shown) // 10


def test_first_times() -> None:
    """The step each call was first made in, and first came together with a result."""
    made = trail("A1 B1 A2 - C1+A1")
    assert first_made(made) == {call("A"): 0, call("B"): 1, call("C"): 4}
    assert sorted(first_returned(made).values()) == [0, 1, 2, 4]
