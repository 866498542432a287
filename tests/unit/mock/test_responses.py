"""The scripted model as an endpoint of the Responses API, read by the dialect that the proxy reads it with."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.dialects.responses import Responses as Dialect
from proxy.dialects.sse import data_of
from proxy.mock.asked import Asked, Made, Said, Tool
from proxy.mock.responses import Responses
from proxy.models import Answer, Usage

WIRE, DIALECT = Responses(), Dialect()
ASKED = Asked("m", 0)
CALLS = Said(calls=(Made("read", '{"path": "a.txt"}'), Made("ls", "{}")))
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def body(*items: Any, **members: Any) -> bytes:
    return json.dumps({"model": "m", "input": list(items)} | members).encode()


def streamed(said: Said) -> Answer:
    reader = DIALECT.reader()
    for event in WIRE.events(ASKED, said, 7, 3):
        EVENTS.validate_json(data_of(event.encode()) or b"")
        reader.feed(event.encode())
    return reader.answer()


def test_a_request_is_read() -> None:
    """Its turns, tools of the client's own, the newest result and what it wants called."""
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "more"},
    ]
    tools = [{"type": "function", "name": "ls", "parameters": {"type": "object"}}, {"type": "web_search"}]

    asked = WIRE.read(body(*items, tools=tools, stream=True, tool_choice={"type": "function", "name": "ls"}))
    assert asked == Asked("m", 2, (Tool("ls", {"type": "object"}),), False, "ls", "two", True)
    assert WIRE.read(body(tool_choice="none")).forbidden
    assert WIRE.read(b'{"input": "hi"}') == Asked("mock", 0)


def test_a_chain_is_at_the_step_that_its_response_names() -> None:
    """Nothing is kept: the id tells. Another server's id tells nothing."""
    first = WIRE.whole(ASKED, CALLS, 7, 3)["id"]
    second = WIRE.read(body(previous_response_id=first))
    third = WIRE.read(body(previous_response_id=WIRE.whole(second, CALLS, 7, 3)["id"]))

    assert (second.turns, third.turns) == (1, 2)
    assert WIRE.read(body(previous_response_id="resp_0123")).turns == 0


@pytest.mark.parametrize("request_body", [b"[", b'{"input": 3}', b'{"input": [3]}'])
def test_what_is_no_request_is_refused(request_body: bytes) -> None:
    """As the API does."""
    with pytest.raises(msgspec.DecodeError):
        WIRE.read(request_body)


@pytest.mark.parametrize("said", [Said("Done: é"), CALLS])
def test_text_and_calls_read_the_same_whole_and_streamed(said: Said) -> None:
    """As the SDK declares them, with ids of their own each time."""
    body = json.dumps(WIRE.whole(ASKED, said, 7, 3)).encode()
    Response.model_validate_json(body)
    whole, stream = DIALECT.read_answer(body), streamed(said)

    assert whole.usage == stream.usage == Usage(7, 3)
    assert whole.id != stream.id
    for answer in (whole, stream):
        assert answer.complete
        assert answer.choices[0].text == said.text
        assert [(call.name, call.arguments) for call in answer.choices[0].calls] == [(c.name, c.arguments) for c in said.calls]


def test_errors_have_the_apis_shape() -> None:
    """By their status."""
    assert WIRE.error(400, "no")["error"]["type"] == "invalid_request_error"
    assert WIRE.error(503, "no")["error"]["type"] == "server_error"
