"""Nothing works: calls of any tools fail, one message after the other."""

import pytest

from proxy.models import Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.driver import House, Reply
from tests.loops import OFFERED, agent, bash, note, only, read, rungs, with_waiting
from tests.transcripts import Call, called, together, user

ALONE = only(Reason.TOOL_FAILURES)
REPORT = "\n".join(f"FAILED tests/test_{n}.py - assert {n} == 2" for n in range(8))


def invalid(number: int) -> Call:
    """Tools in turn, each with its own complaint."""
    name, complaint = [("edit", "old_string"), ("write_file", "content")][number % 2]
    return called(name, {"n": number}, f"Error: missing required parameter {complaint}")


def broken(number: int) -> Call:
    return bash(f"step{number} --run", f"bash: step{number}: command not found")


def test_it_is_told_at_the_third_and_stopped_at_the_eighth() -> None:
    """Any tools, any complaints."""
    assert rungs(ALONE, [invalid(n) for n in range(12)]) == (3, 8)


def test_failures_that_each_tell_something_new_have_the_ladder_for_waiting() -> None:
    """Other words, another complaint: the agent finds its way, or the budget ends it. One call that fails in ever other words does not."""
    words = [
        f"{first}{second}" for first in ("red", "green", "blue") for second in ("fox", "owl", "elk", "bee", "cod", "yak", "ant", "hen")
    ]
    patient = with_waiting(Reason.TOOL_FAILURES)
    tries = [bash(f'python -c "import {word}"', f"ModuleNotFoundError: No module named '{word}'") for word in words]
    assert rungs(patient, tries[:19]) == (3, None)
    assert rungs(patient, tries) == (3, 21)
    assert rungs(patient, [bash("./run", f"Error: {word} is broken") for word in words]) == (3, 8)
    assert rungs(patient, [bash(f'python -c "import {word}"', "Error: no python here, and none will be") for word in words]) == (3, 9)


def test_one_fewer_is_neither() -> None:
    """Two failures are nothing."""
    assert rungs(ALONE, [broken(n) for n in range(2)]) == (None, None)
    assert rungs(ALONE, [invalid(n) for n in range(7)]) == (3, None)


def test_what_may_succeed_is_let_through() -> None:
    """After seven different failures the eighth call may be the way out; failed, it ends the run with its result known."""
    assert rungs(ALONE, [*[broken(n) for n in range(7)], bash("mkdir -p out", "")]) == (3, None)
    assert rungs(ALONE, [broken(n) for n in range(12)]) == (3, 9)
    assert rungs(ALONE, [*[broken(n) for n in range(7)], broken(0)]) == (3, 8)


@pytest.mark.parametrize(
    "success", [read(), bash("ls", ""), together(broken(50), read()), bash("pytest", f"{REPORT}\n\nCommand exited with code 1")]
)
def test_one_success_ends_the_row(success: Reply) -> None:
    """Alone or beside failures; a program with a report to read did its work."""
    row: list[Reply] = [*[broken(n) for n in range(2)], success]
    assert rungs(ALONE, row * 6) == (None, None)


def test_notes_and_lastcalls_own_words_say_nothing() -> None:
    """Neither failure nor success."""
    assert rungs(ALONE, [reply for n in range(8) for reply in (invalid(n), note(f"{n}"))]) == (5, 15)
    assert rungs(ALONE, [reply for n in range(4) for reply in (invalid(n), read(result="[lastcall stop] not executed"))])[0] == 5
    assert rungs(ALONE, [note(f"{n}") for n in range(12)]) == (None, None)


def test_a_program_that_ended_badly_without_a_word_failed() -> None:
    """There is no report to read."""
    assert rungs(ALONE, [bash(f"make part{n}", "Exit code 2") for n in range(9)]) == (3, 8)


def test_failing_tests_are_reports() -> None:
    """Eight suites, each red in its own way."""
    assert rungs(ALONE, [bash(f"pytest tests/test_{n}.py", f"Exit code 1\n{n}\n{REPORT}") for n in range(12)]) == (None, None)


def test_calls_of_one_message_failed_at_once() -> None:
    """They count once."""
    assert rungs(ALONE, [together(*[broken(n) for n in range(12)])]) == (None, None)


def test_other_calls_go_through() -> None:
    """In a message with one that is bound to fail."""
    loop = agent(ALONE)
    loop.play([invalid(n) for n in range(7)])
    pruned = loop.step(together(invalid(8), read()))
    assert (pruned.decision, pruned.given) == ("prune", together(read()))
    assert loop.step(together(read("b"), note("x"))).decision == "ok"


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then."""
    armed = [House(ALONE).begin([user("go"), *[broken(n) for n in range(count)]], tools=OFFERED).plan.armed for count in (0, 6, 7)]
    assert armed == [False, False, True]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (only(Reason.TOOL_FAILURES, Ladder(None, 3)), (None, 3)),
        (only(Reason.TOOL_FAILURES, Ladder(2, None)), (2, None)),
        (only(Reason.TOOL_FAILURES, tools={"edit": ToolRule(exempt=True), "write_file": ToolRule(exempt=True)}), (None, None)),
    ],
)
def test_its_rungs_are_the_operators(policy: Policy, expected: tuple[int | None, int | None]) -> None:
    """Each may be moved or taken away."""
    assert rungs(policy, [invalid(0) for _ in range(10)]) == expected
