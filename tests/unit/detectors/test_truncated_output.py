"""Answers that end at the output limit."""

from proxy.detectors.truncated_output import TruncatedOutput
from proxy.turns import Turn
from tests.driver import Cut
from tests.texts import CUT, decisions, texts
from tests.transcripts import called

HALF = Cut(called("bash", '{"command": "cat > a <<EOF', result="Error: bad arguments"))


def test_cut_answers_at_the_end_are_counted() -> None:
    """Half calls each, texts from the second that says the same."""
    assert TruncatedOutput().count([CUT]) == 1
    assert TruncatedOutput().count([*texts("a"), CUT, CUT]) == 2
    assert TruncatedOutput().count(texts("a")) == 0
    assert TruncatedOutput().count([Turn(1, cut=True)]) == 0
    assert TruncatedOutput().count([Turn(1, cut=True), Turn(1, cut=True)]) == 2


def test_the_first_half_call_is_nudged_and_the_fourth_stopped() -> None:
    """The model is told at once: it cannot know."""
    assert decisions([HALF] * 9) == ["ok", "nudge", "ok", "stop"]


def test_a_half_call_is_known_by_its_arguments_too() -> None:
    """As in a history that Lastcall joins late."""
    assert decisions([HALF.reply] * 9) == ["ok", "nudge", "ok", "ok", "stop"]


def test_a_long_text_may_go_on() -> None:
    """Every part of it is new, however often the client asks for more."""
    assert decisions([Cut(f"Chapter {word}.") for word in "abcdefgh"]) == ["ok"] * 8


def test_the_same_text_cut_again_and_again_is_a_loop() -> None:
    """Nothing is new in it."""
    assert decisions([Cut("Once upon a")] * 9)[:4] == ["ok", "ok", "nudge", "stop"]


def test_a_whole_call_in_between_ends_it() -> None:
    """The model did split its work."""
    assert decisions([HALF, called("bash", {"a": 1}), HALF, called("bash", {"a": 2}), HALF, called("bash", {"a": 3})])[-1] == "ok"
