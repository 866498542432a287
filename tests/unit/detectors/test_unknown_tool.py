"""Calls to a tool that the request does not offer."""

import pytest

from proxy.models import Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.driver import House
from tests.loops import agent, bash, edit, note, only, read, rungs
from tests.transcripts import Call, called, together, user

ALONE = only(Reason.UNKNOWN_TOOL)


def missing(number: int = 0, result: str = "Error: tool 'web_fetch' not found") -> Call:
    return called("web_fetch", {"url": f"https://example.org/{number}"}, result)


def test_it_is_told_at_the_second_and_stopped_at_the_fourth() -> None:
    """Whatever the arguments, and under other names too."""
    assert rungs(ALONE, [missing(n) for n in range(6)]) == (2, 4)
    assert rungs(ALONE, [called(f"fetch_{n}", {}, "Unknown tool") for n in range(6)]) == (2, 4)


def test_one_fewer_is_neither() -> None:
    """A message counts once, whatever it holds."""
    assert rungs(ALONE, [missing()]) == (None, None)
    assert rungs(ALONE, [*[missing()] * 3, "sorry"]) == (2, None)
    assert rungs(ALONE, [together(*[missing(n) for n in range(9)])]) == (None, None)


def test_other_failures_and_notes_in_between_do_not_matter() -> None:
    """Only a success does."""
    assert rungs(ALONE, [missing(), read(result="Error: no such file"), note("x"), missing()])[0] == 4


def test_a_success_ends_the_count() -> None:
    """The agent has found its way."""
    assert rungs(ALONE, [reply for n in range(8) for reply in (missing(n), read(f"{n}.txt"))]) == (None, None)
    assert rungs(ALONE, [together(missing(n), read(f"{n}.txt")) for n in range(8)]) == (None, None)


@pytest.mark.parametrize("tools", [(), ("bash",)])
def test_a_tool_that_answers_is_there(tools: tuple[str, ...]) -> None:
    """Some clients offer tools as they go; and where no tools are listed, none is missing."""
    assert rungs(ALONE, [missing(n, f"page {n}") for n in range(8)], tools=tools) == (None, None)
    assert rungs(ALONE, [edit(n) for n in range(8)], tools=tools) == (None, None)
    assert rungs(ALONE, [edit(n, "Error: x") for n in range(8)], tools=()) == (None, None)


def test_listed_tools_may_fail() -> None:
    """That is another shape."""
    assert rungs(ALONE, [bash("false", "Error: x")] * 9) == (None, None)


def test_other_calls_of_the_message_go_through() -> None:
    """Only the calls to the missing tool are withheld."""
    loop = agent(ALONE)
    loop.play([missing(n) for n in range(3)])
    pruned = loop.step(together(missing(4), read()))
    assert (pruned.decision, pruned.given) == ("prune", together(read()))


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then."""
    armed = [House(ALONE).begin([user("go"), *[missing(n) for n in range(count)]], tools=("bash",)).plan.armed for count in range(4)]
    assert armed == [False, False, False, True]
    assert not House(ALONE).begin([user("go"), *[missing()] * 3], tools=()).plan.armed


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (only(Reason.UNKNOWN_TOOL, Ladder(3, None)), (3, None)),
        (only(Reason.UNKNOWN_TOOL, Ladder(None, 2)), (None, 2)),
        (only(Reason.UNKNOWN_TOOL, tools={"web_fetch": ToolRule(exempt=True)}), (None, None)),
        (only(Reason.UNKNOWN_TOOL, tools={"web_fetch": ToolRule(stop_at=9, sets_stop=True)}), (2, 9)),
    ],
)
def test_its_rungs_are_the_operators(policy: Policy, expected: tuple[int | None, int | None]) -> None:
    """Each may be moved or taken away; a rung of the tool can only make it more patient."""
    assert rungs(policy, [missing(n) for n in range(10)]) == expected
