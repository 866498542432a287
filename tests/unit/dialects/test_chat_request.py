"""Reading and editing chat-completions requests."""

import json
from typing import Any

import pytest

from proxy.dialects.chat_request import parse_request, rewrite_request
from proxy.errors import BadRequest
from proxy.models import Edits, Insert, Item, Request, Role, ToolCall


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]} | members).encode()


def edited(raw: bytes, edits: Edits) -> Any:
    return json.loads(rewrite_request(parse_request(raw), edits))


TOOLS = [{"type": "function", "function": {"name": "read"}}, {"type": "custom", "custom": {"name": "run"}}]


def test_history_becomes_items() -> None:
    """One item a message, in order, with contents as they were written."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"p": 1}'}}
    raw = body(
        messages=[
            {"role": "developer", "content": "be good"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "out"},
            {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
            {"role": "function", "name": "old", "content": "out"},
        ]
    )

    assert parse_request(raw).items == (
        Item(Role.SYSTEM, b'"be good"'),
        Item(Role.USER, b'[{"type": "text", "text": "hi"}]'),
        Item(Role.ASSISTANT, b"null", (ToolCall("c1", "read", '{"p": 1}'),)),
        Item(Role.TOOL, b'"out"', (), "c1"),
        Item(Role.ASSISTANT, b"", (ToolCall(None, "old", "{}"),)),
        Item(Role.TOOL, b'"out"'),
    )


@pytest.mark.parametrize(
    ("message", "item"),
    [
        ({}, Item(Role.USER)),
        ({"role": None}, Item(Role.USER)),
        ({"role": 5, "content": 7}, Item(Role.USER, b"7")),
        ({"role": "ipython", "content": {"a": 1}}, Item(Role.USER, b'{"a": 1}')),
        ({"role": "tool", "tool_call_id": None, "content": True}, Item(Role.TOOL, b"true")),
        ({"role": "tool", "tool_call_id": 9}, Item(Role.TOOL)),
        ({"role": "assistant", "tool_calls": None, "function_call": None}, Item(Role.ASSISTANT)),
        ({"role": "assistant", "tool_calls": "x", "content": "\ud83d"}, Item(Role.ASSISTANT, rb'"\ufffd"')),
    ],
)
def test_odd_messages_are_for_the_upstream_to_judge(message: Any, item: Item) -> None:
    """A value of the wrong type reads as absent; no request is refused for it."""
    assert parse_request(body(messages=[message])).items == (item,)


@pytest.mark.parametrize(
    ("members", "field", "value"),
    [
        ({"stream": True}, "stream", True),
        ({"stream": "true"}, "stream", True),
        ({"stream": None}, "stream", False),
        ({"stream_options": {"include_usage": True}}, "wants_usage", True),
        ({"stream_options": None}, "wants_usage", False),
        ({"stream_options": [1]}, "wants_usage", False),
        ({"n": 3}, "choices", 3),
        ({"n": None}, "choices", 1),
        ({"n": 0}, "choices", 1),
        ({"n": 10**40}, "choices", 1),
        ({"n": 5000}, "choices", 128),
        ({"max_tokens": 9}, "max_output", 9),
        ({"max_completion_tokens": 7, "max_tokens": 9}, "max_output", 9),
        ({"max_tokens": -1}, "max_output", None),
        ({"max_tokens": None}, "max_output", None),
        ({"tools": TOOLS}, "tools", ("read", "run")),
        ({"tools": [{}, 3, *TOOLS]}, "tools", ("read", "run")),
        ({"functions": [{"name": "old"}]}, "tools", ("old",)),
        ({"tools": {}}, "tools", ()),
        ({"tools": [1, 2.0]}, "tools_raw", b"[1, 2.0]"),
        ({"tools": None, "functions": [3]}, "tools_raw", b"[3]"),
        ({}, "tools_raw", b""),
        ({"tool_choice": "none"}, "tools_off", True),
        ({"function_call": "none"}, "tools_off", True),
        ({"tool_choice": {"type": "function"}}, "tools_off", False),
    ],
)
def test_settings_are_read_leniently(members: dict[str, Any], field: str, value: object) -> None:
    """As the more lenient of the upstreams would."""
    assert getattr(parse_request(body(**members)), field) == value


def test_hints_are_strings_of_a_sensible_length() -> None:
    """Anything else that stands where a session might be named is no hint."""
    hints = {
        "session_id": "a",
        "litellm_session_id": "b",
        "prompt_cache_key": "c",
        "user": "d",
        "conversation": "e",
        "conversation_id": "f",
    }
    metadata = {"session_id": "g", "sessionId": "h", "user_id": "i"}

    assert parse_request(body(**hints, metadata=metadata)).hints == hints | {f"metadata.{key}": value for key, value in metadata.items()}
    told = {"session_id": "j", "thread_id": "k", "x-codex-parent-thread-id": "l", "turn_id": "m"}
    assert parse_request(body(client_metadata=told)).hints == {
        "client_metadata.session_id": "j",
        "client_metadata.thread_id": "k",
        "client_metadata.parent_thread_id": "l",
    }
    assert parse_request(body(client_metadata=told | {"parent_thread_id": "n"})).hints["client_metadata.parent_thread_id"] == "n"
    assert parse_request(body(client_metadata=[1])).hints == {}
    assert parse_request(body(session_id=5, user="", prompt_cache_key="x" * 513, conversation={"id": 7}, metadata="no")).hints == {}
    assert parse_request(body(user="x" * 512, metadata={"session_id": None})).hints == {"user": "x" * 512}


def test_last_of_duplicate_keys_counts() -> None:
    """As with the usual JSON readers; an edit leaves only the one that was judged."""
    raw = b'{"model":"a","messages":[{"role":"user"}],"model":"b","messages":[{"role":"tool","content":"x"}]}'
    request = parse_request(raw)

    assert (request.model, [item.role for item in request.items]) == ("b", [Role.TOOL])
    assert rewrite_request(request, Edits(inserts=(Insert(0, "n"),))) == rb'{"model":"b","messages":[{"role":"tool","content":"x\n\nn"}]}'


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "the body is not valid JSON"),
        (b'{"messages":[', "the body is not valid JSON"),
        (b'{"messages":[]} x', "trailing characters (byte 17)"),
        (b"[]", "the body is of type array: send an object"),
        (b"null", "the body is of type null: send an object"),
        (b"{}", "`messages` is missing: send a list"),
        (b'{"messages":{}}', "`messages` is of type object: send a list"),
        (b'{"messages":[{},"secret"]}', "`messages[1]` is of type str: send an object"),
        (b'{"messages":[],"model":3}', "`model` is of type int: send a string"),
        (b'{"messages":[{"role":1e999}]}', "`$.messages[0].role`; send a number"),
        (b'{"messages":[{"role":"\xff"}]}', "not UTF-8 (at byte 22)"),
        (b'{"x":' + b"[" * 1_000_000, "nested too deeply"),
        (b'{"messages":[{"content":' + b'{"a":' * 200_000, "nested too deeply"),
    ],
)
def test_bad_bodies_are_refused_with_place_and_fix(raw: bytes, complaint: str) -> None:
    """One error names what is wrong; it never repeats content."""
    with pytest.raises(BadRequest) as refused:
        parse_request(raw)

    assert complaint in refused.value.message
    assert "secret" not in refused.value.message
    assert refused.value.status == 400


def test_missing_model_is_for_the_upstream_to_judge() -> None:
    """Servers of one model, and those that name it in the path, need none."""
    assert parse_request(b' {"messages":[]} ').model == ""


@pytest.mark.parametrize("raw", [body(), b" \xef\xbb\xbf".strip() + body() + b"\n", body(tools=[], max_tokens=5)])
@pytest.mark.parametrize("edits", [Edits(), Edits(no_tools=True), Edits(force_tool="read"), Edits(max_output=5)])
def test_edits_that_change_nothing_return_the_same_object(raw: bytes, edits: Edits) -> None:
    """Without tools there is none to forbid or force; a limit that is low enough stays."""
    request = parse_request(raw)
    changes = edits.max_output is not None and b"max_tokens" not in raw

    assert (rewrite_request(request, edits) is raw) is not changes


def test_nudge_is_appended_and_nothing_else_changes() -> None:
    """Numbers, escapes, unknown members and their order stay as the client wrote them."""
    head, tail = rb'{"x":[1.0, 1e2 ],"messages":', rb',"model":"m","z":"\u00fc"}'
    raw = head + rb'[{"role":"tool","y":null,"content":"caf\u00e9 \/"} , {"role":"user"}]' + tail

    changed = rewrite_request(parse_request(raw), Edits(inserts=(Insert(0, 'ünd "so"'), Insert(1, "too"))))

    note = rb"\n\n" + 'ünd \\"so\\"'.encode()
    assert changed == head + rb'[{"role":"tool","y":null,"content":"caf\u00e9 \/' + note + rb'"},{"role":"user","content":"too"}]' + tail


def test_two_notes_stand_in_one_message() -> None:
    """In their order."""
    assert edited(body(), Edits(inserts=(Insert(0, "a"), Insert(0, "b"))))["messages"][0]["content"] == "hi\n\na\n\nb"


def test_usage_is_asked_for_by_inserted_text_alone() -> None:
    """Every byte of the client's is still there, whatever surrounds the body."""
    raw = b'\xef\xbb\xbf {"messages" : [ ] , "stream": true } \n'

    changed = rewrite_request(parse_request(raw), Edits(ask_usage=True))

    assert changed == b'\xef\xbb\xbf {"messages" : [ ] , "stream": true ,"stream_options":{"include_usage":true}} \n'


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (None, {"include_usage": True}),
        ({"include_usage": False, "x": 1.0}, {"include_usage": True, "x": 1.0}),
        ({}, {"include_usage": True}),
        ("wrong", "wrong"),
        ({"include_usage": True, "x": 1}, {"include_usage": True, "x": 1}),
    ],
)
def test_usage_is_asked_for_in_existing_options(options: Any, changed: Any) -> None:
    """Other options stay; options of a wrong type are for the upstream to refuse."""
    assert edited(body(stream_options=options), Edits(ask_usage=True))["stream_options"] == changed


def test_a_text_about_stream_options_is_not_the_option() -> None:
    """Agents work on such code too."""
    raw = body(messages=[{"role": "user", "content": 'set "stream_options"'}])

    assert rewrite_request(parse_request(raw), Edits(ask_usage=True)) == raw[:-1] + b',"stream_options":{"include_usage":true}}'


@pytest.mark.parametrize(
    ("members", "edits", "changed"),
    [
        ({"tools": TOOLS}, Edits(no_tools=True), {"tool_choice": "none"}),
        ({"tools": TOOLS, "tool_choice": "required"}, Edits(no_tools=True), {"tool_choice": "none"}),
        ({"functions": [{"name": "old"}]}, Edits(no_tools=True), {"function_call": "none"}),
        ({"tools": TOOLS}, Edits(force_tool="read", no_tools=True), {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
        ({"tools": TOOLS}, Edits(force_tool="run"), {"tool_choice": {"type": "custom", "custom": {"name": "run"}}}),
        ({"functions": [{"name": "old"}]}, Edits(force_tool="old"), {"function_call": {"name": "old"}}),
        ({"tools": TOOLS}, Edits(force_tool="other"), {}),
        ({"tools": TOOLS}, Edits(force_tool="other", no_tools=True), {"tool_choice": "none"}),
        ({"max_tokens": 100}, Edits(max_output=50), {"max_tokens": 50}),
        ({"max_tokens": 100, "max_completion_tokens": 10}, Edits(max_output=50), {"max_tokens": 50}),
        ({"max_tokens": 100, "max_completion_tokens": 60}, Edits(max_output=50), {"max_tokens": 50, "max_completion_tokens": 50}),
        ({"max_tokens": -1}, Edits(max_output=50), {"max_tokens": 50}),
        ({"max_tokens": "many"}, Edits(max_output=50), {"max_tokens": 50}),
        ({"max_tokens": None}, Edits(max_output=50), {"max_completion_tokens": 50}),
        ({}, Edits(max_output=50), {"max_completion_tokens": 50}),
        ({}, Edits(max_output=0), {"max_completion_tokens": 0}),
    ],
)
def test_settings_are_replaced_where_they_stand(members: dict[str, Any], edits: Edits, changed: dict[str, Any]) -> None:
    """Each edit sets its own member and leaves every other value."""
    raw = body(**members)

    assert edited(raw, edits) == json.loads(raw) | changed


def test_body_that_cannot_be_read_again_is_refused() -> None:
    """The limit of depth counts the caller's frames too, so that editing can fail where reading did not."""
    request = Request(body=b'{"messages":[],"stream_options":' + b"[" * 100_000, model="m", items=())

    for edits in (Edits(max_output=5), Edits(ask_usage=True)):
        with pytest.raises(BadRequest, match="nested too deeply"):
            rewrite_request(request, edits)


# ---- what is no text

INLINE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("parts", "attachments", "picture_bytes"),
    [
        ([{"type": "text", "text": "a"}], 0, 0),
        ([{"type": "text", "text": "text"}, {"type": "refusal", "refusal": "no"}], 0, 0),
        ([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], 0, 0),
        ([{"type": "text", "text": '"type":"image_url"'}], 0, 0),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://host/a.png"}}], 1, 0),
        ([INLINE, {"type": "text", "text": "a"}, INLINE], 2, 2 * len(json.dumps(INLINE["image_url"]))),
        ([{"type": "file", "file": {"file_id": "file-1"}}, {"type": "input_audio", "input_audio": {"data": "AAAA"}}], 2, 0),
        ([{"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}], 1, 0),
        (["text", 5, None, {"no": "type"}, {"type": 5}], 1, 0),
        ("image_url", 0, 0),
    ],
)
def test_parts_that_are_no_text_are_counted(parts: Any, attachments: int, picture_bytes: int) -> None:
    """In any message; of pictures written out also how much of the body they take."""
    raw = body(messages=[{"role": "user", "content": parts}, {"role": "assistant", "content": "ok"}])
    request = parse_request(raw)

    assert (request.attachments, request.picture_bytes) == (attachments, picture_bytes)
    assert request.text_bytes == len(raw) - picture_bytes
