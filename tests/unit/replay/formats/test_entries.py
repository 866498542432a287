"""Single values of other people's JSON."""

from typing import Any

import pytest

from proxy.models import ToolCall
from proxy.replay.formats.entries import encoded, made_call, name_of, quoted_text
from proxy.replay.recording import Unreadable


def test_names_are_texts_or_numbers() -> None:
    """The first member that is one."""
    assert name_of({"id": "", "task": 7, "name": "x"}, "id", "task", "name") == "7"
    assert name_of({"id": True, "name": None}, "id", "name") is None


def test_texts_become_content_and_nothing_else_does() -> None:
    """Half of a surrogate pair included."""
    assert (quoted_text('a"b'), quoted_text("\ud83d"), quoted_text(None), quoted_text([1])) == (b'"a\\"b"', '"\ufffd"'.encode(), b"", b"")
    assert (encoded("\ud83d"), encoded({"a": 1})) == ('"\ufffd"'.encode(), b'{"a":1}')


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ({"name": "ls", "arguments": {"path": "."}}, ToolCall(None, "ls", '{"path":"."}')),
        ({"tool": "ls", "args": '{"path": "."}', "id": "c1"}, ToolCall("c1", "ls", '{"path": "."}')),
        ({"tool_name": "ls", "input": None, "call_id": 3}, ToolCall("3", "ls", "null")),
        ({"name": "ls"}, ToolCall(None, "ls", "{}")),
    ],
)
def test_calls_are_read_in_their_usual_spellings(value: Any, call: ToolCall) -> None:
    """Arguments as an object, or as its text."""
    assert made_call(value) == call


@pytest.mark.parametrize("value", [None, 3, [], {}, {"name": ""}, {"name": 3, "arguments": {}}])
def test_a_call_without_a_name_is_none(value: Any) -> None:
    """Nothing could be said of it."""
    with pytest.raises(Unreadable, match="expected"):
        made_call(value)
