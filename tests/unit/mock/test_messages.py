"""The scripted model as an endpoint of the messages API, read by the dialect that the proxy reads it with."""

import json
from typing import Any

import msgspec
import pytest

from proxy.dialects.messages import Messages as Dialect
from proxy.mock.asked import Asked, Made, Said, Tool
from proxy.mock.messages import Messages
from proxy.models import Answer, Choice, Usage

WIRE, DIALECT = Messages(), Dialect()
ASKED = Asked("m", 0)
CALLS = Said(calls=(Made("read", '{"path": "a.txt"}'), Made("ls", "{}")))


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]} | members).encode()


def streamed(said: Said) -> Answer:
    reader = DIALECT.reader()
    for event in WIRE.events(ASKED, said, 7, 3):
        reader.feed(event.encode())
    return reader.answer()


def test_a_request_is_read() -> None:
    """Its turns, tools of the client's own, the newest result and what it wants called."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "one"}, {"type": "text", "text": "more"}]},
    ]
    tools = [{"name": "ls", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]

    asked = WIRE.read(body(messages=messages, tools=tools, stream=True, tool_choice={"type": "tool", "name": "ls"}))
    assert asked == Asked("m", 1, (Tool("ls", {"type": "object"}),), False, "ls", "one", True)
    assert WIRE.read(body(tool_choice={"type": "none"})).forbidden


@pytest.mark.parametrize("request_body", [b"{}", b"[", b'{"messages":[],"max_tokens":"many"}'])
def test_what_is_no_request_is_refused(request_body: bytes) -> None:
    """As the API does, which wants an output limit."""
    with pytest.raises(msgspec.DecodeError):
        WIRE.read(request_body)


def test_text_and_calls_read_the_same_whole_and_streamed() -> None:
    """With ids of their own each time."""
    for said, choice in ((Said("Done: é"), Choice("Done: é", (), "end_turn")), (CALLS, None)):
        whole, stream = DIALECT.read_answer(json.dumps(WIRE.whole(ASKED, said, 7, 3)).encode()), streamed(said)
        assert whole.usage == stream.usage == Usage(7, 3)
        assert whole.id != stream.id
        for answer in (whole, stream):
            assert answer.complete
            assert choice is None or answer.choices == (choice,)
            calls = answer.choices[0].calls
            assert [(call.name, json.loads(call.arguments)) for call in calls] == [(c.name, json.loads(c.arguments)) for c in said.calls]


def test_arguments_that_are_no_json_are_streamed_as_they_are() -> None:
    """Whole, the format has no place for them."""
    said = Said(calls=(Made("ls", "{oops"),))

    assert streamed(said).choices[0].calls[0].arguments == "{oops"
    assert WIRE.whole(ASKED, said, 7, 3)["content"][0]["input"] == {}


def test_errors_have_the_apis_shape() -> None:
    """By their status."""
    assert WIRE.error(400, "no") == {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    assert WIRE.error(503, "no")["error"]["type"] == "api_error"
