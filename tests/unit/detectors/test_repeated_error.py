"""The same complaint of the same tool, however the arguments change."""

import pytest

from proxy.models import Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.driver import House, Reply
from tests.loops import OFFERED, agent, bash, edit, note, only, read, rungs, search
from tests.transcripts import Call, called, together, user

ALONE = only(Reason.REPEATED_ERROR)
REPORT = "\n".join(f"FAILED tests/test_{n}.py - assert {n} == 2" for n in range(8))


def failing(number: int, result: str = "FileNotFoundError: [Errno 2] No such file or directory: '/nope'") -> Call:
    return bash(
        f'python3 -c "print(open(name).read()[:{number}])"', f"Traceback (most recent call last):\n  File x, line {number}\n{result}"
    )


def refused(number: int) -> Call:
    return edit(number, "Error: old text not found in a.py")


def test_it_is_told_at_the_fourth_and_stopped_at_the_eighth() -> None:
    """The eighth is withheld: it has to be expected to fail too."""
    assert rungs(ALONE, [failing(n) for n in range(12)]) == (4, 8)
    assert rungs(ALONE, [refused(n) for n in range(12)]) == (4, 8)


def test_one_fewer_is_neither() -> None:
    """Three are trying."""
    assert rungs(ALONE, [refused(n) for n in range(3)]) == (None, None)
    assert rungs(ALONE, [refused(n) for n in range(7)]) == (4, None)


def test_looking_and_thinking_in_between_does_not_end_it() -> None:
    """Reads tell something new, but the edit is refused for the same reason."""
    replies: list[Reply] = [reply for n in range(8) for reply in (refused(n), read(f"{n}.txt"), note(f"try {n}"))]
    assert rungs(ALONE, replies) == (10, 22)


@pytest.mark.parametrize(
    "between",
    [
        [edit(99)],
        [bash("pip install x", "installed")],
        [called("write_file", {"path": "b.py", "content": "x"}, "ok")],
        [bash('python3 -c "print(open(name).read()[:9])"', "text")],
    ],
    ids=["an edit", "a change by the shell", "a new file", "a success of the same program"],
)
def test_progress_ends_it(between: list[Reply]) -> None:
    """Something was changed for the first time, or the tool did what it should."""
    before: list[Reply] = [failing(n) for n in range(3)]
    assert rungs(ALONE, [*before, *between, *[failing(n) for n in range(10, 13)]]) == (None, None)


def test_a_test_that_fails_the_same_after_each_edit() -> None:
    """Edit, test, edit, test: debugging."""
    replies: list[Reply] = [
        reply for n in range(20) for reply in (edit(n), bash(f"pytest -q -k case_{n}", f"ImportError: no module x\n{REPORT}"))
    ]
    assert rungs(ALONE, replies) == (None, None)
    together_: list[Reply] = [together(edit(n), bash(f"pytest -q -k case_{n}", "Error: no module x")) for n in range(20)]
    assert rungs(ALONE, together_) == (None, None)


def test_the_same_change_once_more_is_no_progress() -> None:
    """Only what was never done before is."""
    assert rungs(ALONE, [reply for n in range(10) for reply in (refused(n), bash("touch x", "ok"))]) == (9, 17)


@pytest.mark.parametrize(
    "replies",
    [
        [refused(1)] * 12,
        [edit(n, f"Error: line {n} of a.py does not match what was given") for n in range(12)],
        [search(f"q{n}", "nothing") for n in range(12)],
    ],
    ids=["one call", "other complaints", "no failure"],
)
def test_other_shapes(replies: list[Reply]) -> None:
    """Repeating one call, failing in ever other ways, succeeding."""
    assert rungs(ALONE, replies) == (None, None)


def test_complaints_that_differ_by_the_clock_are_one() -> None:
    """Normalised like any result."""
    assert rungs(ALONE, [edit(n, f"2026-01-01 10:00:0{n} Error: refused, request_id: req_{n}a7f3c9d1e") for n in range(9)]) == (None, None)
    assert rungs(ALONE, [edit(n, f"Error: refused after 0.{n}s, request_id: req_{n}a7f3c9d1e") for n in range(9)]) == (4, 8)


def test_another_program_is_not_expected_to_fail() -> None:
    """The shell is one tool, but what it runs is another thing: it goes through, and ends nothing if it changed nothing."""
    loop = agent(ALONE)
    assert loop.play([failing(n) for n in range(7)])[-1] == "ok"
    assert loop.step(bash("ls /", "bin etc")).decision == "ok"
    assert loop.step(failing(50)).decision == "stop"


@pytest.mark.parametrize(
    ("row", "way_out"),
    [
        ([f"for f in *; do md5sum $f | head -{n} done" for n in range(7)], "md5sum * | head -1"),
        ([f"find . -exec stat -c %y {{}} {end}" for end in ("+", ";", "\\;", "+;", "+ ;", "", "; +")], "find . -printf %t"),
        ([f"grep -r -l {n} *" for n in range(7)], "grep -r -l -m 1 --include *.py 3 *"),
    ],
    ids=["what all had is left out", "another option", "one more option"],
)
def test_a_call_that_may_be_the_way_out_goes_through(row: list[str], way_out: str) -> None:
    """It was never made: if it fails all the same, its result stops the run, and if it works, the run goes on."""
    error = "Error: syntax error: unexpected end of file"
    worked = agent(ALONE)
    assert worked.play([*(bash(command, error) for command in row), bash(way_out, "73f369633560985902e921f25f4c719e")])[-1] == "ok"
    assert worked.step(bash(row[0], error)).decision == "ok"
    failed = agent(ALONE)
    assert failed.play([*(bash(command, error) for command in row), bash(way_out, error)])[-1] == "ok"
    assert failed.step("done").decision == "stop"


def test_two_tools_fail_apart() -> None:
    """Each has its own count; both are looked at in one message."""
    assert rungs(ALONE, [together(refused(n), search(f"{n}", "Error: offline, try again later")) for n in range(12)]) == (4, 8)


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then."""
    armed = [House(ALONE).begin([user("go"), *[refused(n) for n in range(count)]], tools=OFFERED).plan.armed for count in (0, 1, 6, 7)]
    assert armed == [False, False, False, True]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (only(Reason.REPEATED_ERROR, Ladder(None, 3)), (None, 3)),
        (only(Reason.REPEATED_ERROR, Ladder(2, None)), (2, None)),
        (only(Reason.REPEATED_ERROR, tools={"edit": ToolRule(exempt=True)}), (None, None)),
        (only(Reason.REPEATED_ERROR, tools={"edit": ToolRule(sets_nudge=True, sets_stop=True)}), (None, None)),
    ],
)
def test_its_rungs_are_the_operators(policy: Policy, expected: tuple[int | None, int | None]) -> None:
    """Each may be moved or taken away."""
    assert rungs(policy, [refused(n) for n in range(10)]) == expected
