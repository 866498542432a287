"""Items of the Responses dialect: which are calls, and what they say."""

import json
from typing import Any

import pytest
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from proxy.dialects.responses_items import (
    ITEMS,
    RESULTS,
    call_id_of,
    call_of,
    hosted_call,
    joined_texts,
    kind_of,
    merged_contents,
    result_of,
    texts_of,
)
from proxy.models import Owed, ToolCall


def call(**members: Any) -> ToolCall | None:
    item = ITEMS.one(json.dumps(members, separators=(",", ":")).encode())
    return call_of(item, kind_of(item))


@pytest.mark.parametrize(
    ("members", "made"),
    [
        ({"type": "function_call", "call_id": "c", "id": "fc", "name": "ls", "arguments": "{}"}, ToolCall("c", "ls", "{}")),
        ({"type": "function_call", "id": "fc", "name": "ls", "arguments": {"a": 1}}, ToolCall("fc", "ls", '{"a":1}')),
        ({"type": "function_call", "call_id": "c", "name": "log", "namespace": "git"}, ToolCall("c", "git.log", "")),
        ({"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "***"}, ToolCall("c", "patch", "***", custom=True)),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
            ToolCall("c", "local_shell", '{"command":["ls"]}', kind="local_shell_call"),
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            ToolCall("c", "shell", '{"commands":["ls"]}', kind="shell_call"),
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"path": "a"}},
            ToolCall("c", "apply_patch", '{"path":"a"}', kind="apply_patch_call"),
        ),
        (
            {"type": "computer_call", "call_id": "c", "actions": [{"type": "wait"}]},
            ToolCall("c", "computer", '[{"type":"wait"}]', kind="computer_call"),
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": {"q": 1}},
            ToolCall("c", "tool_search", '{"q":1}', kind="tool_search_call"),
        ),
    ],
)
def test_calls_for_the_client_to_carry_out(members: dict[str, Any], made: ToolCall) -> None:
    """Linked to their results by `call_id`."""
    assert call(**members) == made


@pytest.mark.parametrize("kind", ["message", "reasoning", "mcp_call", "tool_search_call", "image_generation_call", 7, None])
def test_other_items_are_no_calls(kind: object) -> None:
    """What the provider does itself among them."""
    assert call(type=kind, name="ls") is None


@pytest.mark.parametrize(
    ("members", "made", "result"),
    [
        ({"type": "mcp_call", "server_label": "wiki", "name": "s", "arguments": "{}", "output": "x"}, ("wiki", '["s","{}"]'), b'"x"'),
        ({"type": "mcp_call", "name": "s", "error": "no"}, ("mcp", '["s",""]'), b'"no"'),
        ({"type": "web_search_call", "action": {"query": "q"}}, ("web_search", '{"query":"q"}'), b""),
        ({"type": "file_search_call", "queries": ["q"], "results": []}, ("file_search", '["q"]'), b"[]"),
        ({"type": "code_interpreter_call", "code": "1", "outputs": None}, ("code_interpreter", "1"), b"null"),
    ],
)
def test_hosted_calls_hold_their_results(members: dict[str, Any], made: tuple[str, str], result: bytes) -> None:
    """They carry no id, since clients do not answer them."""
    item = ITEMS.one(json.dumps(members, separators=(",", ":")).encode())

    assert hosted_call(item, kind_of(item)) == (ToolCall(None, *made), result)


def test_images_show_nothing_to_compare() -> None:
    """The item does not say what was asked for."""
    assert hosted_call(ITEMS.one(b'{"type":"image_generation_call","result":"AA"}'), "image_generation_call") is None


@pytest.mark.parametrize("kind", sorted({"", *RESULTS.values()}))
def test_every_kind_of_call_can_be_answered(kind: str) -> None:
    """In a form that the API declares, which reads back as the result of that call."""
    result = result_of(Owed("c", kind), "not executed")

    TypeAdapter(ResponseInputItemParam).validate_python(result)
    item = ITEMS.one(json.dumps(result).encode())
    assert RESULTS[kind_of(item)] == kind
    assert call_id_of(item) == "c"
    assert ("not executed" in json.dumps(result)) is (kind not in ("computer_call", "tool_search_call"))


def test_texts_are_what_a_person_reads() -> None:
    """Part by part, joined as they will be when they come back."""
    content = b'[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"},{"type":"output_text","text":""},7]'

    assert joined_texts(texts_of(content)) == "a\nb"
    assert texts_of(b'"c"') == ["c"]
    assert texts_of(b"") == []


def test_messages_of_one_answer_become_one_content() -> None:
    """A single one stays as it is."""
    assert merged_contents([b'"a"']) == b'"a"'
    assert merged_contents([b'"a"', b'[{"type":"output_text","text":"b"}]', b"null"]) == (
        b'[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]'
    )
    assert merged_contents([b"null", b"7"]) == b""
