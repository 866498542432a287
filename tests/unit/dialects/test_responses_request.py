"""Responses requests: which history they hold, what they offer, and the edits."""

import json
from typing import Any

import pytest

from proxy.dialects.responses_request import parse_request, rewrite_request
from proxy.errors import BadRequest
from proxy.models import Edits, Insert, Item, Owed, Reference, Request, Role, ToolCall

NOTE = "[lastcall] again?"


def body(*items: Any, **members: Any) -> bytes:
    return json.dumps({"model": "m", "input": list(items), **members}, separators=(",", ":")).encode()


def request(*items: Any, **members: Any) -> Request:
    return parse_request(body(*items, **members))


def edited(*items: Any, edits: Edits, **members: Any) -> Any:
    return json.loads(rewrite_request(request(*items, **members), edits))


def call(name: str = "ls", call_id: str = "c", **members: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **members}


def result(output: Any, call_id: str = "c", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": output}


USER = {"role": "user", "content": "go"}
LS = ToolCall("c", "ls", "{}")


def test_text_alone_is_a_user_message() -> None:
    """With instructions before it."""
    asked = parse_request(b'{"model":"m","input":"go \\u00fc","instructions":"Be brief."}')

    assert asked.items == (Item(Role.SYSTEM, b'"Be brief."', place=-1), Item(Role.USER, '"go ü"'.encode()))


@pytest.mark.parametrize("members", [b'"input":null', b'"input":[]', b'"prompt":{"id":"p"}'])
def test_a_request_may_hold_no_items(members: bytes) -> None:
    """Prompts and conversations are kept by the upstream."""
    assert parse_request(b'{"model":"m",' + members + b"}").items == ()


@pytest.mark.parametrize(
    ("asked", "said"), [(b'{"input":3}', "`input` is of type int: send a string or a list"), (b'{"input":[1]}', "an object")]
)
def test_other_input_is_refused(asked: bytes, said: str) -> None:
    """Naming the place."""
    with pytest.raises(BadRequest, match=said):
        parse_request(asked)


def test_items_of_one_answer_are_one_item() -> None:
    """Messages and calls up to the next result or user message; what is not understood is passed over."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    asked = request(
        USER,
        {"type": "reasoning"},
        said,
        call(),
        {"type": "x"},
        call("cat", "d"),
        result("1"),
        result("2", "d"),
        said,
        said,
        {"role": "developer"},
    )

    assert [(item.role, item.calls, item.call_id, item.place) for item in asked.items] == [
        (Role.USER, (), None, 0),
        (Role.ASSISTANT, (LS, ToolCall("d", "cat", "{}")), None, 2),
        (Role.TOOL, (), "c", 6),
        (Role.TOOL, (), "d", 7),
        (Role.ASSISTANT, (), None, 8),
        (Role.SYSTEM, (), None, 10),
    ]
    assert asked.items[1].content == b'[{"type":"output_text","text":"a"}]'


def test_every_kind_of_call_is_answered_by_its_kind_of_result() -> None:
    """A result that its client calls failed is one."""
    kinds = ["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"]
    asked = request(*[item for kind in kinds for item in ({"type": kind, "call_id": kind}, result("x", kind, f"{kind}_output"))])
    failed = request(result("x") | {"status": "failed"}, {"type": "tool_search_output", "call_id": "s", "tools": [{"name": "t"}]})

    assert [item.call_id for item in asked.items if item.role is Role.TOOL] == kinds
    assert [call.id for item in asked.items for call in item.calls] == kinds
    assert [(item.failed, item.content) for item in failed.items] == [(True, b'"x"'), (False, b'[{"name":"t"}]')]
    assert failed.tools == ("t",)


def test_hosted_calls_stand_before_the_answer_they_belong_to() -> None:
    """With their results, where they show them; the results of the client's own calls still follow those calls."""
    hosted = {"type": "mcp_call", "server_label": "w", "name": "s", "arguments": "{}", "error": "no"}
    asked = request(USER, call(), hosted, {"type": "web_search_call", "action": {}}, result("1"))

    assert [(item.role, [call.name for call in item.calls], item.failed) for item in asked.items] == [
        (Role.USER, [], False),
        (Role.ASSISTANT, ["w"], False),
        (Role.TOOL, [], True),
        (Role.ASSISTANT, ["web_search"], False),
        (Role.ASSISTANT, ["ls"], False),
        (Role.TOOL, [], False),
    ]


def test_what_is_only_named_is_no_item() -> None:
    """Its place is kept: which item follows it, and where it stands in the body. It ends the answer before it."""
    named = [{"type": "item_reference", "id": "rs_1"}, {"id": "fc_1"}, {"type": "item_reference"}]
    asked = request(USER, call(), named[0], call(), *named[1:], result("1"), instructions="Be brief.")

    assert [item.role for item in asked.items] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.TOOL]
    assert asked.refers == (Reference("rs_1", 3, 2), Reference("fc_1", 4, 4))


def test_what_lastcall_said_is_not_named_upstream() -> None:
    """It never had it; the rest stays, and what is added goes where it belongs."""
    own, theirs = ({"type": "item_reference", "id": f"msg_{id}"} for id in ("lastcall_5", "5"))
    asked = request(USER, theirs, own, result("1"))

    assert json.loads(rewrite_request(asked, Edits()))["input"] == [USER, theirs, result("1")]
    noted = json.loads(rewrite_request(asked, Edits(inserts=(Insert(1, NOTE),))))["input"]
    assert (noted[:2], noted[2]["output"].endswith(NOTE)) == ([USER, theirs], True)
    kept = request(USER, theirs)
    assert rewrite_request(kept, Edits()) is kept.body


def test_tools_are_known_by_the_names_their_calls_have() -> None:
    """Those of a namespace with it; built-in ones whatever their version; servers by their label."""
    offered = [
        {"type": "function", "name": "ls"},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "git", "tools": [{"type": "function", "name": "log"}]},
        {"type": "mcp", "server_label": "wiki"},
        {"type": "mcp"},
        {"type": "web_search_preview_2025_03_11"},
        {"type": "computer_use_preview"},
        {"type": "local_shell"},
        {"type": "function"},
        {"type": "new_thing"},
    ]

    names = ("ls", "patch", "git.log", "wiki", "mcp", "web_search", "computer", "local_shell", "new_thing")
    assert request(tools=offered).tools == names
    assert request({"type": "additional_tools", "tools": offered[:1]}).tools == ("ls",)


def test_attachments_are_counted_wherever_they_stand() -> None:
    """In messages and in results; a picture by its size in the body."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    text = {"type": "input_text", "text": "data:image/"}
    asked = request({"role": "user", "content": [text, picture]}, result([text, {"type": "input_file", "file_id": "f"}]))
    screen = request(result({"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}, kind="computer_call_output"))

    assert (asked.attachments, asked.picture_bytes) == (2, len('"data:image/png;base64,AAAA"'))
    assert (screen.attachments, screen.picture_bytes) == (1, len('"data:image/png;base64,AA"'))
    assert request({"role": "user", "content": [text]}).attachments == 0


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
def test_what_the_provider_made_of_a_longer_history_stands_in_its_place(kind: str) -> None:
    """As user text that says nothing. It stays as it is: what is added to it goes to what a person said before, never to an answer."""
    summary, said = {"type": kind, "encrypted_content": "x"}, {"role": "assistant", "content": "It is 1."}
    asked = request(USER, said, result("1"), summary)

    assert [(item.role, item.content) for item in asked.items][-1] == (Role.USER, b"")
    changed = edited(USER, said, result("1"), summary, edits=Edits(inserts=(Insert(3, "note"),)))
    assert changed["input"] == [{"role": "user", "content": "go\n\nnote"}, said, result("1"), summary]
    alone = body(summary)
    assert json.loads(rewrite_request(parse_request(alone), Edits(inserts=(Insert(0, "note"),)))) == json.loads(alone)


def test_a_conversation_names_the_session_by_its_id() -> None:
    """As text or as an object."""
    assert request(conversation={"id": "conv_1"}).hints == request(conversation="conv_1").hints == {"conversation": "conv_1"}


@pytest.mark.parametrize("limit", [None, 0, "x", 900])
def test_output_limit_is_lowered_never_raised(limit: Any) -> None:
    """A limit that means none is none."""
    assert edited(USER, max_output_tokens=limit, edits=Edits(max_output=1000))["max_output_tokens"] == (900 if limit == 900 else 1000)
    assert edited(USER, max_output_tokens=limit, edits=Edits(max_output=5))["max_output_tokens"] == 5


def test_tool_choice() -> None:
    """Functions and custom tools can be forced; without tools there is nothing to forbid."""
    tools = [{"type": "web_search"}, {"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"}]

    assert edited(tools=tools, edits=Edits(force_tool="ls"))["tool_choice"] == {"type": "function", "name": "ls"}
    assert edited(tools=tools, edits=Edits(force_tool="patch"))["tool_choice"] == {"type": "custom", "name": "patch"}
    assert edited(tools=tools, edits=Edits(force_tool="x", no_tools=True))["tool_choice"] == "none"
    assert request(tools=tools, tool_choice="none").tools_off
    asked = request(USER)
    assert rewrite_request(asked, Edits(no_tools=True)) is asked.body


@pytest.mark.parametrize(
    ("output", "kind", "after"),
    [
        ("x", "function_call_output", f"x\n\n{NOTE}"),
        ("", "custom_tool_call_output", NOTE),
        (None, "apply_patch_call_output", NOTE),
        ("x", "local_shell_call_output", f"x\n\n{NOTE}"),
        ([], "function_call_output", [{"type": "input_text", "text": NOTE}]),
        (
            [{"stdout": "1", "outcome": {}}, {"stdout": "2"}],
            "shell_call_output",
            [{"stdout": "1", "outcome": {}}, {"stdout": f"2\n\n{NOTE}"}],
        ),
    ],
)
def test_text_is_added_to_a_result(output: Any, kind: str, after: Any) -> None:
    """In the form that its content has."""
    asked = edited(USER, call(), result(output, kind=kind), edits=Edits(inserts=(Insert(2, NOTE),)))

    assert asked["input"][2] == result(after, kind=kind)
    assert asked["input"][:2] == [USER, call()]


@pytest.mark.parametrize(
    "last",
    [
        result({"type": "computer_screenshot"}, "d", "computer_call_output"),
        result([], "d", "shell_call_output"),
        {"type": "tool_search_output", "call_id": "d", "tools": []},
        {"type": "mcp_call", "name": "s", "output": "x"},
    ],
)
def test_a_result_that_holds_no_text_hands_it_on(last: dict[str, Any]) -> None:
    """To the nearest item that can hold some, never to a call or to what frames the conversation."""
    items = [USER, call(), result("x"), call("see", "d"), last]
    asked = request(*items)
    position = next(position for position, item in enumerate(asked.items) if item.role is Role.TOOL and item.place == len(items) - 1)
    edits = Edits(inserts=(Insert(position, NOTE),))

    assert json.loads(rewrite_request(asked, edits))["input"] == [USER, call(), result(f"x\n\n{NOTE}"), call("see", "d"), last]
    alone = request(last, instructions="Be brief.")
    assert rewrite_request(alone, Edits(inserts=(Insert(len(alone.items) - 1, NOTE),))) is alone.body


def test_text_is_added_to_messages_in_their_own_parts() -> None:
    """Instructions, text alone, user and assistant."""
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    asked = edited(USER, said, instructions="i", edits=Edits(inserts=tuple(Insert(at, NOTE) for at in range(3))))
    alone = json.loads(rewrite_request(parse_request(b'{"input":"go"}'), Edits(inserts=(Insert(0, NOTE),))))

    assert asked["instructions"] == f"i\n\n{NOTE}"
    assert asked["input"][0]["content"] == alone["input"] == f"go\n\n{NOTE}"
    assert asked["input"][1]["content"][1] == {"type": "output_text", "text": NOTE}


def test_a_call_takes_no_text() -> None:
    """It is the model's own."""
    asked = request(USER, call())

    assert rewrite_request(asked, Edits(inserts=(Insert(1, NOTE),))) is asked.body


@pytest.mark.parametrize(
    ("members", "goes_on_from", "conversation", "kept"),
    [
        ({}, None, False, True),
        ({"store": False}, None, False, False),
        ({"previous_response_id": "resp_1"}, "resp_1", False, True),
        ({"previous_response_id": None, "conversation": {"id": "conv_1"}, "store": False}, "conv_1", True, True),
        ({"previous_response_id": 7}, None, False, True),
    ],
)
def test_what_the_upstream_keeps(members: dict[str, Any], goes_on_from: str | None, conversation: bool, kept: bool) -> None:
    """What a request goes on from, and whether another can go on from its answer."""
    asked = request(USER, **members)

    assert (asked.goes_on_from, asked.conversation, asked.kept) == (goes_on_from, conversation, kept)


@pytest.mark.parametrize(("members", "background"), [({}, False), ({"background": True}, True), ({"background": None}, False)])
def test_an_answer_may_be_made_in_the_background(members: dict[str, Any], background: bool) -> None:
    """Whether anybody listens or not."""
    assert request(USER, **members).background is background


def test_going_on_from_another_response() -> None:
    """Or from none at all; what is owed there comes first, each result in its kind."""
    owed = (Owed("a"), Owed("b", "custom_tool_call"))
    edits = Edits(go_on_from="resp_2", owed=owed, owed_text="no")
    results = [result("no", "a"), result("no", "b", "custom_tool_call_output")]

    moved = edited(USER, previous_response_id="resp_1", edits=edits)
    assert (moved["previous_response_id"], moved["input"]) == ("resp_2", [*results, USER])
    assert "previous_response_id" not in edited(USER, previous_response_id="resp_1", edits=Edits(go_on_from=""))
    assert edited(USER, edits=Edits(owed=owed, owed_text="no", alone=True))["input"] == results
    alone = parse_request(b'{"input":"go","previous_response_id":"resp_1"}')
    assert json.loads(rewrite_request(alone, edits))["input"] == [*results, USER]
    assert edited(USER, edits=Edits(asked="Conclude.", no_tools=True))["input"] == [{"role": "user", "content": "Conclude."}]


def test_a_body_that_only_just_could_be_read_is_refused_when_it_cannot_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """How deep is too deep depends on how deep the caller stands."""

    def too_deep(*_: object) -> None:
        raise RecursionError

    asked = request(USER)
    monkeypatch.setattr("proxy.dialects.responses_request.read", too_deep)
    with pytest.raises(BadRequest, match="nested too deeply"):
        rewrite_request(asked, Edits(max_output=5))
