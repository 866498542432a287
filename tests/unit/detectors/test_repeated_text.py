"""Answers that say the same."""

import pytest

from proxy.detectors.repeated_text import RepeatedText
from proxy.models import Reason
from proxy.policy import Ladder, Policy
from tests.texts import CUT, EMPTY, decisions, texts

LOOP = "I will now call the tool."


@pytest.mark.parametrize(("letters", "count"), [("a", 1), ("aa", 2), ("aaaaa", 5), ("abaa", 2), ("ab", 1)])
def test_equal_texts_at_the_end_are_counted(letters: str, count: int) -> None:
    """Back to the first other one."""
    assert RepeatedText().count(texts(letters)) == count


def test_other_shapes_are_no_repeated_text() -> None:
    """Nothing said, and half a call, are not texts."""
    assert RepeatedText().count([EMPTY, EMPTY]) == 0
    assert RepeatedText().count([CUT, CUT]) == 0
    assert RepeatedText().count([*texts("a"), CUT, *texts("a")]) == 1


@pytest.mark.parametrize("tools", [("bash",), ()])
def test_the_third_is_nudged_and_the_fifth_stopped(tools: tuple[str, ...]) -> None:
    """With tools or without, whatever the case and spaces; a number that grows is progress."""
    replies = [LOOP, f"  {LOOP}\n", LOOP.upper(), LOOP, LOOP]
    assert decisions(replies, tools=tools) == ["ok", "ok", "ok", "nudge", "stop"]
    assert decisions([f"Record {n} is done." for n in range(9)], tools=tools) == ["ok"] * 9


def test_a_client_that_says_the_same_each_time_says_nothing_new() -> None:
    """The observations of an agent that speaks its tools as text."""
    assert decisions([LOOP] * 9, between="Error: no such command") == ["ok", "ok", "ok", "nudge", "stop"]


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("<execute_command>\n<command>sleep 30; tail -n 3 build.log</command>\n</execute_command>", True),
        ("<browser_action>\n<action>scroll_down</action>\n</browser_action>", True),
        ("THOUGHT: it still builds.\n\n```bash\nsleep 60\n```", True),
        ("<execute_command>\n<command>npm test</command>\n</execute_command>", False),
        ("```bash\nls\n```", False),
        ("```python\nsleep 60\n```", False),
        ("I will sleep and wait.", False),
    ],
)
def test_what_waits_when_tools_are_spoken_as_text(text: str, waits: bool) -> None:
    """Agents that write their calls in tags or fences wait and scroll as others do."""
    assert decisions([text] * 9, between="[execute_command] Result: building")[-1] == ("ok" if waits else "stop")


def test_another_text_leaves_the_loop() -> None:
    """It is counted anew."""
    assert decisions([LOOP, LOOP, "Done: a.", LOOP, LOOP, "Done: b."]) == ["ok"] * 6


def test_off_is_off() -> None:
    """No ladder, no finding."""
    assert decisions([LOOP] * 9, Policy(ladders={Reason.REPEATED_CALL: Ladder(3, 5)})) == ["ok"] * 9
