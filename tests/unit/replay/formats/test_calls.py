"""Plain lists of calls."""

from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall
from proxy.replay.formats.calls import Calls
from proxy.replay.recording import Unreadable


def items(*calls: dict[str, Any]) -> tuple[Item, ...]:
    (recording,) = Calls().read_parts(list(calls), "f")
    return recording.items


def test_each_call_is_a_message_of_its_own() -> None:
    """With its result, as text or as JSON; without one it was not seen."""
    first, result, second, third, listed = items(
        {"name": "ls", "arguments": {"p": 1}, "result": "a"}, {"tool": "ls", "args": "{}"}, {"tool_name": "ls", "output": [1]}
    )
    assert (first, result) == (Item(Role.ASSISTANT, b"", (ToolCall(None, "ls", '{"p":1}'),)), Item(Role.TOOL, b'"a"'))
    assert (second.calls[0].arguments, third.calls[0].arguments, listed.content) == ("{}", "{}", b"[1]")


@pytest.mark.parametrize(
    ("told", "content"),
    [({"error": "no such file"}, b'"no such file"'), ({"result": "x", "error": True}, b'"x"'), ({"result": "x", "is_error": True}, b'"x"')],
)
def test_errors_are_failures(told: dict[str, Any], content: bytes) -> None:
    """The error itself is the result where there is no other."""
    _, result = items({"name": "ls", "id": 7, "input": {}, **told})
    assert (result.failed, result.content, result.call_id) == (True, content, "7")


def test_lists_may_stand_in_an_object_with_a_name() -> None:
    """One run a line."""
    whole = {"id": "r1", "calls": [{"name": "ls", "arguments": {}}]}
    assert Calls().whole(whole)
    assert (Calls().read_whole(whole, "f").id, Calls().read_whole(whole, "f").calls) == ("r1", 1)


@pytest.mark.parametrize("value", [{"name": "ls"}, {"name": "ls", "parameters": {}}, {"arguments": {}}, {"calls": []}, {"calls": [3]}])
def test_other_objects_are_not_taken_for_calls(value: dict[str, Any]) -> None:
    """A list of tools is none of calls."""
    assert not Calls().known_by(value)


@pytest.mark.parametrize("call", [3, {"id": 1}])
def test_a_call_that_is_none_is_named(call: Any) -> None:
    """With what was expected."""
    with pytest.raises(Unreadable, match="expected"):
        Calls().read_whole({"calls": [{"name": "ls", "arguments": {}}, call]}, "f")
