"""Calls written as text while tools can be called."""

import pytest

from proxy.detectors.tool_markup import ToolMarkup
from tests.texts import LEAK, decisions, texts

LEAKS = ('court\n<invoke name="Bash">...', '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>')


def test_leaks_at_the_end_are_counted() -> None:
    """Back to an answer without one."""
    assert ToolMarkup().count([LEAK, *texts("a"), LEAK]) == 1
    assert ToolMarkup().count(texts("a")) == 0


@pytest.mark.parametrize("leak", LEAKS)
def test_the_first_is_nudged_and_the_fourth_stopped(leak: str) -> None:
    """Each in other words, so that it is not their sameness."""
    replies = [f"{word}\n{leak}" for word in ("One.", "Two.", "Three.", "Four.")]
    assert decisions(replies, between="You did not call a tool. Go on.") == ["ok", "nudge", "ok", "stop"]


def test_markup_that_is_shown_is_no_leak() -> None:
    """In a fence it is an example."""
    assert decisions([f"{word}\n```\n{LEAKS[1]}\n```" for word in "abcd"]) == ["ok"] * 4
