"""Answers with nothing in them."""

from proxy.detectors.empty_output import EmptyOutput
from tests.texts import EMPTY, decisions, texts
from tests.transcripts import called


def test_empty_answers_at_the_end_are_counted() -> None:
    """Back to one that is not."""
    assert EmptyOutput().count([EMPTY]) == 1
    assert EmptyOutput().count([EMPTY, *texts("a"), EMPTY, EMPTY]) == 2
    assert EmptyOutput().count(texts("a")) == 0


def test_the_second_is_nudged_and_the_fourth_stopped() -> None:
    """White space is nothing."""
    assert decisions(["", " \n", "", ""]) == ["ok", "ok", "nudge", "stop"]


def test_an_answer_or_a_call_in_between_ends_it() -> None:
    """One empty answer now and then is no loop."""
    assert decisions(["", "Hm.", "", "Well.", "", called("bash"), "", called("bash", {"a": 1}), ""]) == ["ok"] * 9
