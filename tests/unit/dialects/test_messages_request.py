"""Reading and editing messages requests."""

import json
from typing import Any

import pytest

from proxy.dialects.messages_request import parse_request, rewrite_request
from proxy.errors import BadRequest
from proxy.models import Edits, Insert, Item, Request, Role, ToolCall

USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"p": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "out"}
MARKED = {**RESULT, "cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": "read", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}]


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]} | members).encode()


def answered(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [USE]}, {"role": "user", "content": list(blocks)}]


def edited(raw: bytes, edits: Edits) -> Any:
    return json.loads(rewrite_request(parse_request(raw), edits))


def test_history_becomes_items() -> None:
    """Results one by one, what stands beside them behind them."""
    second = {"type": "tool_result", "tool_use_id": "t2", "is_error": True}
    raw = body(
        system="be good",
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, USE, {**USE, "id": "t2", "input": {}}],
            },
            {"role": "user", "content": [RESULT, second, {"type": "text", "text": "reminder"}]},
            {"role": "assistant", "content": "done"},
            {"role": "system", "content": "now"},
        ],
    )

    items = parse_request(raw).items
    assert [(item.role, item.place) for item in items] == [
        (Role.SYSTEM, -1),
        (Role.USER, 0),
        (Role.ASSISTANT, 1),
        (Role.TOOL, 2),
        (Role.TOOL, 2),
        (Role.USER, 2),
        (Role.ASSISTANT, 3),
        (Role.SYSTEM, 4),
    ]
    assert items[2].calls == (ToolCall("t1", "read", '{"p": 1}'), ToolCall("t2", "read", "{}"))
    assert (items[3].call_id, items[3].content, items[3].failed) == ("t1", b'"out"', False)
    assert (items[4].call_id, items[4].content, items[4].failed) == ("t2", b"", True)
    assert items[5].content == b'[{"type": "text", "text": "reminder"}]'


def hosted(*more: Any) -> list[Any]:
    """A conversation whose newest answer was given after the provider ran code."""
    ran = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}}
    showed = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {"type": "code_execution_result", "stdout": "1"}}
    said = {"type": "text", "text": "It is 1."}
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [ran, showed, said, USE]}, *more]


def test_what_the_provider_carried_out_stands_before_its_answer() -> None:
    """As a call with its result; the results of the client's own calls still follow those calls."""
    items = parse_request(body(messages=hosted({"role": "user", "content": [RESULT]}))).items

    assert [(item.role, [call.name for call in item.calls], item.call_id) for item in items] == [
        (Role.USER, [], None),
        (Role.ASSISTANT, ["code_execution"], None),
        (Role.TOOL, [], None),
        (Role.ASSISTANT, ["read"], None),
        (Role.TOOL, [], "t1"),
    ]


def test_nothing_is_added_inside_an_answer() -> None:
    """Text for a result that stands there goes to what came before it."""
    raw = body(messages=hosted())
    changed = edited(raw, Edits(inserts=(Insert(2, "note"),)))

    assert changed["messages"] == [{"role": "user", "content": "hi\n\nnote"}, *json.loads(raw)["messages"][1:]]
    alone = body(messages=hosted()[1:])
    assert edited(alone, Edits(inserts=(Insert(1, "note"),)))["messages"][0]["content"][-1] == {"type": "text", "text": "note"}


@pytest.mark.parametrize(
    ("message", "item"),
    [
        ({}, Item(Role.USER)),
        ({"role": 5, "content": 7}, Item(Role.USER, b"7")),
        ({"role": "user", "content": 'a "tool_result"'}, Item(Role.USER, rb'"a \"tool_result\""')),
        ({"role": "user", "content": [{"type": "text", "text": "t", "is": "tool_result"}]}, None),
        ({"role": "assistant", "content": {"type": "tool_use"}}, Item(Role.ASSISTANT, b'{"type": "tool_use"}')),
        ({"role": "assistant", "content": [{"type": "tool_use"}, 7]}, None),
    ],
)
def test_odd_messages_are_for_the_upstream_to_judge(message: Any, item: Item | None) -> None:
    """A value of the wrong type reads as absent; no request is refused for it."""
    (read,) = parse_request(body(messages=[message])).items

    assert read == item or (item is None and read.content == json.dumps(message["content"]).encode())


@pytest.mark.parametrize(
    ("members", "field", "value"),
    [
        ({"stream": True}, "stream", True),
        ({}, "wants_usage", True),
        ({"tools": TOOLS}, "tools", ("read", "web_search")),
        ({"tools": "x"}, "tools", ()),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "wiki"}], "mcp_servers": [{"name": "wiki"}]}, "tools", ("wiki",)),
        ({"tools": TOOLS[:1], "mcp_servers": [{"name": "wiki"}, {"name": 7}]}, "tools", ("read", "wiki")),
        ({"tool_choice": {"type": "none"}}, "tools_off", True),
        ({"tool_choice": {"type": "any"}}, "tools_off", False),
        ({"tool_choice": "none"}, "tools_off", False),
        ({}, "max_output", 100),
        ({"max_tokens": None}, "max_output", None),
        ({"metadata": {"user_id": "u"}}, "hints", {"metadata.user_id": "u"}),
    ],
)
def test_members(members: dict[str, Any], field: str, value: Any) -> None:
    """What is read of the rest of a body."""
    assert getattr(parse_request(body(**members)), field) == value


@pytest.mark.parametrize(
    ("raw", "said"), [(b"{}", "`messages` is missing"), (b"{", "not valid JSON"), (b'{"messages":[7]}', "`messages[0]`")]
)
def test_what_is_no_request_is_refused_with_its_place(raw: bytes, said: str) -> None:
    """Before anything is sent."""
    with pytest.raises(BadRequest) as refused:
        parse_request(raw)

    assert said in refused.value.message


def test_what_changes_with_each_request_is_no_system_text() -> None:
    """Claude Code's first system block holds a checksum of the request; the request itself keeps it."""

    def system(checksum: str) -> Request:
        blocks = [{"type": "text", "text": f"x-anthropic-billing-header: cch={checksum};"}, {"type": "text", "text": "You are."}]
        return parse_request(body(system=blocks))

    assert system("a").items == system("b").items
    assert system("a").items[0].content == b'[{"type": "text", "text": "You are."}]'
    assert parse_request(body(system="x-anthropic-billing-header")).items[0].content == b'"x-anthropic-billing-header"'


def test_pictures_are_counted_wherever_they_stand() -> None:
    """In user messages and in results; a picture by reference weighs nothing, a document what it weighs."""
    written = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    named = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    paper = {"type": "document", "source": {"type": "base64", "data": "JVBE"}}
    request = parse_request(body(messages=answered({**RESULT, "content": [written, named]}, paper, {"type": "text", "text": '"image"'})))

    assert (request.attachments, request.picture_bytes) == (3, len(json.dumps(written["source"])))
    assert parse_request(body(messages=[{"role": "user", "content": [{"type": "text", "text": 'an "image"'}]}])).attachments == 0


def test_note_stands_behind_all_results_of_its_message() -> None:
    """Whichever result it is about: the API wants results first. What marks the cache stays where it is."""
    second = {**RESULT, "tool_use_id": "t2"}
    raw = body(messages=answered(RESULT, {**second, "cache_control": {"type": "ephemeral"}}))

    assert edited(raw, Edits(inserts=(Insert(2, "note"),)))["messages"] == answered(
        RESULT, {**second, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "note"}
    )


def test_note_stands_behind_text_beside_results_too() -> None:
    """And several of them in their order."""
    text = {"type": "text", "text": "reminder"}
    inserts = (Insert(2, "one"), Insert(3, "two"))

    messages = edited(body(messages=answered(MARKED, text)), Edits(inserts=inserts))["messages"]
    assert messages == answered(MARKED, text, {"type": "text", "text": "one"}, {"type": "text", "text": "two"})


def test_note_goes_into_plain_text_and_into_system_text() -> None:
    """After a blank line."""
    changed = edited(body(system="s"), Edits(inserts=(Insert(0, "a"), Insert(1, "b"))))

    assert (changed["system"], changed["messages"][0]["content"]) == ("s\n\na", "hi\n\nb")


def test_everything_else_stays_byte_for_byte() -> None:
    """Spelling of numbers, order and escapes of what is not touched."""
    raw = b'{"x":1.50,"messages":[{"role":"user","content":"\\u00fc"},{"content":"b","role":"user"}],"tools":[{"name":"read"}]}'

    changed = rewrite_request(parse_request(raw), Edits(inserts=(Insert(1, "n"),), no_tools=True))
    assert changed == (
        b'{"x":1.50,"messages":[{"role":"user","content":"\\u00fc"},{"content":"b\\n\\nn","role":"user"}],"tools":[{"name":"read"}],'
        b'"tool_choice":{"type":"none"}}'
    )


@pytest.mark.parametrize(
    ("edits", "members", "choice"),
    [
        (Edits(no_tools=True), {"tools": TOOLS, "tool_choice": {"type": "any"}}, {"type": "none"}),
        (Edits(no_tools=True), {}, None),
        (Edits(force_tool="read"), {"tools": TOOLS}, {"type": "tool", "name": "read"}),
        (Edits(force_tool="gone", no_tools=True), {"tools": TOOLS}, {"type": "none"}),
        (Edits(force_tool="gone"), {"tools": TOOLS}, None),
    ],
)
def test_tools_are_forbidden_or_one_is_forced(edits: Edits, members: dict[str, Any], choice: Any) -> None:
    """They stay listed: a history with calls needs them."""
    changed = edited(body(**members), edits)

    assert changed.get("tool_choice") == choice
    assert changed.get("tools") == members.get("tools")


def test_a_forced_tool_takes_no_thinking() -> None:
    """The API refuses the two together."""
    thinking = {"type": "enabled", "budget_tokens": 2000}

    assert edited(body(tools=TOOLS, thinking=thinking), Edits(force_tool="read"))["thinking"] == {"type": "disabled"}
    assert edited(body(tools=TOOLS, thinking=thinking), Edits(no_tools=True))["thinking"] == thinking


@pytest.mark.parametrize(
    ("own", "thinking", "limit", "then", "thinks"),
    [
        (100, None, 50, 50, None),
        (100, None, 500, 100, None),
        (None, None, 50, 50, None),
        (9000, {"type": "adaptive"}, 50, 50, {"type": "adaptive"}),
        (9000, {"type": "enabled", "budget_tokens": 3000}, 4000, 4000, {"type": "enabled", "budget_tokens": 3000}),
        (9000, {"type": "enabled", "budget_tokens": 8000, "x": 1}, 4000, 4000, {"type": "enabled", "budget_tokens": 2000, "x": 1}),
        (9000, {"type": "enabled", "budget_tokens": 8000}, 2000, 2000, {"type": "disabled"}),
        (9000, "much", 2000, 2000, "much"),
    ],
)
def test_output_is_limited_and_thinking_with_it(own: int | None, thinking: Any, limit: int, then: int, thinks: Any) -> None:
    """Thinking must leave room for an answer, and needs 1,024 tokens at least."""
    changed = edited(body(max_tokens=own, thinking=thinking), Edits(max_output=limit))

    assert (changed["max_tokens"], changed["thinking"]) == (then, thinks)


def test_an_edit_that_changes_nothing_returns_the_same_body() -> None:
    """The same object."""
    request = parse_request(body())

    assert rewrite_request(request, Edits(ask_usage=True)) is request.body
    assert rewrite_request(request, Edits(no_tools=True, max_output=5000)) is request.body


def test_a_body_too_deep_to_edit_is_refused() -> None:
    """How deep that is depends on the stack at that moment."""
    deep = Request(body=b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", model="m", items=())

    with pytest.raises(BadRequest, match="nested too deeply"):
        rewrite_request(deep, Edits(max_output=5))
