"""The tool that ends a run of an agent that ends by nothing else."""

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.finishing import closing_call, closing_tool
from proxy.known_clients import STRANGER, Known
from proxy.models import Request, ToolCall
from proxy.policy import Policy, WrapUpRule

RESULT = {"type": "object", "properties": {"result": {"type": "string"}, "command": {"type": "string"}}, "required": ["result"]}
ROO = Known("roo", finish_tool="attempt_completion")


def offering(*tools: Any) -> Request:
    """A chat request with these (name, schema)."""
    listed = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in tools]
    return DIALECTS["/chat/completions"].parse(json.dumps({"messages": [], "tools": listed}).encode())


@pytest.mark.parametrize(
    ("configured", "client", "tool"),
    [
        (None, STRANGER, None),
        ("submit", STRANGER, "submit"),
        ("gone", STRANGER, None),
        (None, ROO, "attempt_completion"),
        ("submit", ROO, "submit"),
        ("gone", ROO, "attempt_completion"),
    ],
)
def test_the_configured_tool_or_the_clients_only_one(configured: str | None, client: Known, tool: str | None) -> None:
    """And only one that the request offers."""
    request = offering(("attempt_completion", RESULT), ("submit", None))

    assert closing_tool(request, Policy(wrap_up=WrapUpRule(force_finish_tool=configured)), client) == tool


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (RESULT, {"result": "why"}),
        ({"type": "object", "properties": {}}, {}),
        ({"properties": {"a": {"type": "string"}}, "required": []}, {"a": "why"}),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, None),
        ({"type": "object"}, None),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}, None),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, None),
        ({"properties": [], "required": ["a"]}, None),
        ({"required": ["a"]}, None),
        ({"required": [1]}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_text_is_handed_over_as_the_schema_says(schema: Any, arguments: Any) -> None:
    """Where it does not say how, there is no call."""
    call = closing_call(offering(("other", RESULT), ("finish", schema)), "finish", "why", "id-1")

    assert call == (None if arguments is None else ToolCall("id-1", "finish", json.dumps(arguments, separators=(",", ":"))))


def test_every_wire_format_keeps_its_schemas_somewhere_else() -> None:
    """Beside the name, or around it."""
    for raw in (
        b'[{"name":"finish","input_schema":%b}]',
        b'[{"type":"function","name":"finish","parameters":%b}]',
        b'[7,{"function":7}]',
        b"{}",
    ):
        tools = raw % json.dumps(RESULT).encode() if b"%b" in raw else raw
        call = closing_call(Request(b"", "m", (), ("finish",), tools), "finish", "why", "id-1")
        assert (call is not None) is (b"finish" in raw)
    assert closing_call(Request(b"", "m", ()), "finish", "why", "id-1") is None
