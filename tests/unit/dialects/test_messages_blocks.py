"""Calls among the blocks of a message."""

import json
from typing import Any

import pytest

from proxy.dialects.messages_blocks import blocks_of, calls_of, hosted_of, joined_texts
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
    assert calls_of(blocks_of(content)) == calls


def ran(name: str, **members: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": "s1", "name": name, "input": {"q": 1}} | members


def showed(kind: str, content: Any, **members: Any) -> dict[str, Any]:
    return {"type": f"{kind}_tool_result", "tool_use_id": "s1", "content": content} | members


@pytest.mark.parametrize(
    ("blocks", "hosted"),
    [
        ([ran("web_search"), showed("web_search", [{"encrypted_content": "x"}])], ("web_search", '{"q": 1}', b"", False)),
        (
            [ran("web_search"), showed("web_search", {"type": "web_search_tool_result_error"})],
            ("web_search", '{"q": 1}', b'{"type": "web_search_tool_result_error"}', True),
        ),
        (
            [ran("bash_code_execution"), showed("bash_code_execution", {"type": "bash_code_execution_result", "stdout": "1"})],
            ("code_execution", '{"q": 1}', b'{"type": "bash_code_execution_result", "stdout": "1"}', False),
        ),
        (
            [ran("find", type="mcp_tool_use", server_name="wiki"), showed("mcp", "no", is_error=True)],
            ("wiki", '["find",{"q": 1}]', b'"no"', True),
        ),
        ([ran("find", type="mcp_tool_use"), showed("mcp", "yes", tool_use_id="s2")], ("mcp", '["find",{"q": 1}]', b"", False)),
        ([ran("web_fetch"), {"type": 7}], ("web_fetch", '{"q": 1}', b"", False)),
    ],
)
def test_what_the_provider_carries_out_is_seen_with_its_result(blocks: list[Any], hosted: tuple[str, str, bytes, bool]) -> None:
    """Under the name of the tool that was offered, and no id; what a search finds is encrypted, and no result to compare."""
    name, arguments, result, failed = hosted

    assert list(hosted_of(blocks_of(json.dumps(blocks).encode()))) == [(ToolCall(None, name, arguments), result, failed)]


def test_texts_are_joined_as_they_are_when_they_come_back() -> None:
    """So that an answer is known again in a later history."""
    assert joined_texts(["a", "", "b"]) == text_of(b'[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]')
