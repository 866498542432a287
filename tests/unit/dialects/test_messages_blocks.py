"""Calls among the blocks of a message."""

import pytest

from proxy.dialects.messages_blocks import joined_texts, read_calls
from proxy.models import ToolCall, text_of


@pytest.mark.parametrize(
    ("content", "calls"),
    [
        (b'[{"type":"tool_use","id":"a","name":"ls","input":{"d": 1.0}}]', (ToolCall("a", "ls", '{"d": 1.0}'),)),
        (b'[{"type":"tool_use","id":"","name":null}]', (ToolCall(None, "", "{}"),)),
        (b'[{"type":"tool_use","name":"ls","input":"{}"},{"type":"text","text":"x"}]', (ToolCall(None, "ls", "{}"),)),
        (b'[{"type":"server_tool_use","id":"a","name":"web_search","input":{}}]', ()),
        (b'[{"type":"text","text":"\\"tool_use\\""}]', ()),
        (b'"a \\"tool_use\\""', ()),
        (b"", ()),
    ],
)
def test_calls_are_those_of_the_clients_tools(content: bytes, calls: tuple[ToolCall, ...]) -> None:
    """A tool that runs at the provider is none of them."""
    assert read_calls(content) == calls


def test_texts_are_joined_as_they_are_when_they_come_back() -> None:
    """So that an answer is known again in a later history."""
    assert joined_texts(["a", "", "b"]) == text_of(b'[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]')
