"""What the newest answers said, and how far back that is looked at."""

from typing import Any

import pytest

from proxy.fingerprint import Fingerprints
from proxy.models import Request, ToolCall
from proxy.state import Lane
from proxy.trail import read
from proxy.turns import MOST, Turn, cut_at_limit, known_tools, newest, schemas_of, turn_of
from tests.transcripts import Turn as Written
from tests.transcripts import called, request, said, together, user

PRINTS = Fingerprints(b"s" * 32, loose=True)
GO_ON = user("continue")


def turns(*written: Written, run: int = 0, **lane: Any) -> list[Turn]:
    asked = request(user("do it"), *written)
    history = read(asked, PRINTS)
    return newest(asked, history, Lane(0, 0, 0, 1.0, **lane), run, PRINTS)


def turn(text: str, *calls: ToolCall, cut: bool = False) -> Turn:
    return turn_of(text, calls, frozenset({"bash"}), PRINTS, cut=cut)


def test_answers_are_read_back_to_new_text_of_a_person() -> None:
    """Automatic text is not new, and text that comes after each of them is not either."""
    assert turns(said("a"), GO_ON, said("b"), GO_ON) == [turn("a"), turn("b")]
    assert turns(said("a"), user("Now this."), said("b"), GO_ON) == [turn("b")]
    assert turns(said("a"), user("no"), said("a"), user("no"), said("a"), user("no")) == [turn("a")] * 3
    assert turns(said("a"), user("no"), said("b"), user("yes"), said("c"), user("yes")) == [turn("b"), turn("c")]


def test_nothing_is_looked_at_where_a_person_has_just_spoken() -> None:
    """Or before the first answer."""
    assert turns(said("a"), user("Now this."), run=1) == []
    assert turns() == []


def test_calls_end_it_unless_they_were_cut() -> None:
    """Work was done there."""
    half = called("bash", '{"a": "b', result="bad")
    assert turns(said("a"), GO_ON, called("bash")) == []
    assert turns(called("bash"), said("a"), GO_ON) == [turn("a")]
    assert turns(half, half) == [turn("", ToolCall("x", "bash", '{"a'), cut=True)] * 2
    assert turns(together(called("bash"), half))[0].tool == "bash"


def test_answers_cut_at_the_limit_are_known_from_the_record() -> None:
    """No history says so."""
    asked = request(user("do it"), called("bash", {"a": 1}), said("b"), GO_ON)
    answers = read(asked, PRINTS).messages.answers
    assert turns(called("bash", {"a": 1}), said("b"), GO_ON, shortened=answers) == [
        turn("", ToolCall("x", "bash", "{}"), cut=True),
        turn("b", cut=True),
    ]


def test_what_was_said_before_a_rest_is_not_looked_at() -> None:
    """A lane that is taken up again after a while is no loop."""
    written = (said("a"), GO_ON, said("a"), GO_ON, said("a"), GO_ON)
    assert [len(turns(*written, rested=at)) for at in range(4)] == [3, 2, 1, 0]


def test_the_look_back_is_bounded() -> None:
    """However long the history."""
    assert len(turns(*[message for n in range(200) for message in (said(str(n)), GO_ON)])) == MOST


def test_texts_are_the_same_whatever_changes_by_itself() -> None:
    """Case, spaces, clock times, attempt counters; other numbers may be progress."""
    assert turn("Retrying, attempt 3 of 9, at 2026-03-01 10:00:07.") == turn("retrying,  attempt 4 of 9,\nat 2026-03-01 10:02:51.")
    assert turn("Record 17 is done.") != turn("Record 18 is done.")
    assert turn("up and running") != turn("down and out")


@pytest.mark.parametrize(
    ("text", "calls", "expected"),
    [
        (" \n", (), (True, "", False)),
        ("a", (), (False, "", False)),
        ("", (ToolCall("1", "bash", "{}"),), (False, "", False)),
        ('<tool_call>\n{"name": "bash"}', (), (False, "", True)),
        ('<tool_call>\n{"name": "bash"}', (ToolCall("1", "bash", "{}"),), (False, "", False)),
    ],
)
def test_what_a_turn_is(text: str, calls: tuple[ToolCall, ...], expected: tuple[bool, str, bool]) -> None:
    """Empty without text and calls, leaked only without calls."""
    seen = turn(text, *calls)
    assert (seen.empty, seen.tool, seen.leaked) == expected


@pytest.mark.parametrize(
    ("finish", "cut"), [("length", True), ("max_tokens", True), ("max_output_tokens", True), ("stop", False), (None, False)]
)
def test_the_words_for_the_output_limit(finish: str | None, cut: bool) -> None:
    """Each provider has its own."""
    assert cut_at_limit(finish) is cut


def test_known_tools_are_those_offered_and_those_called() -> None:
    """A wrap-up may speak of what was called before."""
    asked = request(user("do it"), called("grep"), tools=("bash",))
    assert known_tools(asked, read(asked, PRINTS)) == {"bash", "grep"}


def test_schemas_are_read_as_every_dialect_writes_them() -> None:
    """What is no tool, or offered under another name, has none."""
    raw = (
        b'[{"type": "function", "function": {"name": "a", "parameters": {"x": 1}}}, {"name": "b", "input_schema": {"y": 1}},'
        b' {"type": "function", "name": "c", "parameters": null}, {"name": "unlisted", "parameters": {}}, {"function": 5}, 7]'
    )
    offered = Request(b"", "m", (), ("a", "b", "c"), raw)
    assert schemas_of(offered) == {"a": {"x": 1}, "b": {"y": 1}, "c": {}}
    assert schemas_of(Request(b"", "m", (), ("a",), b"[{")) == {}
    assert schemas_of(Request(b"", "m", (), ("a",), b"{}")) == {}
