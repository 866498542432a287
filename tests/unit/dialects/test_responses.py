"""The Responses dialect as the official SDK sees it: what Lastcall writes passes the SDK's own parsers, the strict helper included."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseInputItemParam, ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.dialects.responses import Responses
from proxy.dialects.sse import Splitter, data_of
from proxy.models import Action, Begun, Edits, Head, Insert, Notice, Reason, ToolCall, Usage

DIALECT = Responses()
HEAD = Head("resp_1", "m", 1_767_225_600)
NOTICE = Notice(action=Action.STOP, reason=Reason.REPEATED_CALL, message="[lastcall stop] why", tool="ls", count=5)
CALLS = (ToolCall(None, "ls", '{"dir":"."}'), ToolCall("call_b", "patch", "***", custom=True))
ASK: dict[str, Any] = {"model": "m", "input": "go"}
USAGE = Usage(5, 2, 4, 1)
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@contextmanager
def sdk(status: int, kind: str, body: bytes) -> Iterator[openai.OpenAI]:
    """A client whose every request is answered with these bytes."""

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=body)

    transport = httpx2.Client(transport=httpx2.MockTransport(respond))
    with openai.OpenAI(api_key="x", base_url="http://upstream/v1", http_client=transport, max_retries=0) as client:
        yield client


def check(stream: bytes) -> None:
    """Every event is one that the SDK declares, and their numbers rise by one."""
    events = [json.loads(data_of(event) or b"") for event in Splitter().feed(stream)]
    for event in events:
        EVENTS.validate_python(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def test_sdk_reads_a_completion() -> None:
    """As an ordinary answer, with the notice beside it."""
    with sdk(200, "application/json", DIALECT.completion(HEAD, "[lastcall stop] why", USAGE, NOTICE, 1)) as client:
        answer = client.responses.create(**ASK)

    Response.model_validate(answer.model_dump())
    assert (answer.output_text, answer.status) == ("[lastcall stop] why", "completed")
    assert answer.usage is not None
    assert (answer.usage.total_tokens, answer.usage.input_tokens_details.cached_tokens) == (7, 4)
    assert (answer.model_extra or {})["lastcall"]["count"] == 5


def test_sdk_reads_calls_of_a_completion() -> None:
    """A function and a custom tool, each with an id."""
    with sdk(200, "application/json", DIALECT.completion(HEAD, "", None, NOTICE, 1, CALLS)) as client:
        answer = client.responses.create(**ASK)

    Response.model_validate(answer.model_dump())
    assert [item.type for item in answer.output] == ["function_call", "custom_tool_call"]


@pytest.mark.parametrize("usage", [None, USAGE])
@pytest.mark.parametrize("notice", [None, NOTICE])
def test_strict_parser_reads_a_stream(usage: Usage | None, notice: Notice | None) -> None:
    """The streaming helper, which wants `response.created` first, puts text and calls together."""
    tail = DIALECT.stream_tail(Begun(HEAD), "Looking.", CALLS, usage, notice)
    check(tail)

    with sdk(200, "text/event-stream", DIALECT.keep_alive + tail) as client, client.responses.stream(**ASK) as events:
        final = events.get_final_response()

    assert final.output_text == "Looking."
    assert [item.type for item in final.output] == ["message", "function_call", "custom_tool_call"]
    assert (final.usage is None) is (usage is None)


STARTED = [
    event("response.created", sequence_number=0, response=json.loads(DIALECT.completion(HEAD, "", None, NOTICE, 1)) | {"output": []}),
    event(
        "response.output_item.added",
        sequence_number=1,
        output_index=0,
        item={"type": "message", "id": "msg_up", "role": "assistant", "status": "in_progress", "content": []},
    ),
    event(
        "response.content_part.added",
        sequence_number=2,
        item_id="msg_up",
        output_index=0,
        content_index=0,
        part={"type": "output_text", "text": "", "annotations": []},
    ),
    event(
        "response.output_text.delta",
        sequence_number=3,
        item_id="msg_up",
        output_index=0,
        content_index=0,
        delta="So far",
        logprobs=[],
    ),
]
CALL = event(
    "response.output_item.added",
    sequence_number=4,
    output_index=1,
    item={"type": "function_call", "id": "fc_up", "call_id": "c", "name": "ls", "arguments": "", "status": "in_progress"},
)


def test_strict_parser_reads_a_stream_that_was_under_way() -> None:
    """The tail closes what is open, and goes on where the upstream's own events ended."""
    reader = DIALECT.reader()
    for one in [*STARTED, CALL]:
        reader.feed(one)
    tail = DIALECT.stream_tail(Begun(HEAD, started=True, sent=reader.sent()), "\n\n[lastcall stop] why", (), USAGE, NOTICE)
    stream = b"".join(STARTED) + tail
    check(stream)

    with sdk(200, "text/event-stream", stream) as client, client.responses.stream(**ASK) as events:
        final = events.get_final_response()

    assert [item.type for item in final.output] == ["message", "message"]
    assert "\n".join(item.content[0].text for item in final.output if item.type == "message") == "So far\n\n[lastcall stop] why"  # type: ignore[union-attr]
    assert len({item.id for item in final.output if item.type == "message"}) == 2
    assert (final.model_extra or {})["lastcall"]["count"] == 5


def test_sdk_sees_a_stream_error_as_a_response_that_failed() -> None:
    """With the code that Codex shows and does not retry, for a stop; a fault may be tried again."""
    for notice, code in ((NOTICE, "invalid_prompt"), (None, "server_error")):
        stream = DIALECT.stream_error("lastcall_deadline", "Stopped by Lastcall: out of time", notice)
        check(stream)
        with sdk(200, "text/event-stream", stream) as client, client.responses.create(**ASK, stream=True) as events:
            (failed,) = list(events)
        assert failed.type == "response.failed"
        assert failed.response.error is not None
        assert (failed.response.error.code, failed.response.error.message) == (code, "Stopped by Lastcall: out of time")


def test_strict_parser_reads_an_error_in_a_stream_that_was_under_way() -> None:
    """It is the response that was begun which failed, under its id and the next number, with the items that were done and no half one."""
    for begun in ([*STARTED, CALL], STARTED):
        reader = DIALECT.reader()
        for one in begun:
            reader.feed(one)
        known = Begun(HEAD, started=True, sent=reader.sent(withheld=False))
        stream = b"".join(begun) + DIALECT.stream_error("c", "Stopped by Lastcall", NOTICE, known)
        check(stream)
        with sdk(200, "text/event-stream", stream) as client, client.responses.stream(**ASK) as events:
            first, *_, failed = list(events)

        assert first.type == "response.created" and failed.type == "response.failed"
        assert (failed.response.id, failed.response.status) == (first.response.id, "failed")
        assert failed.response.error is not None and failed.response.error.message == "Stopped by Lastcall"
        assert [item.type for item in failed.response.output if item.type == "function_call"] == []


def test_sdk_raises_an_error_with_its_code() -> None:
    """A refusal is an exception whose code a program can read."""
    refusal = DIALECT.error(400, "lastcall_repeated_call", "Stopped by Lastcall", NOTICE)

    with sdk(400, "application/json", refusal) as client, pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**ASK)

    assert raised.value.code == "lastcall_repeated_call"
    assert "Stopped by Lastcall" in str(raised.value)


def test_pruned_answer_is_still_a_response() -> None:
    """With the calls that were kept."""
    body = json.loads(DIALECT.completion(HEAD, "", None, NOTICE, 1, CALLS))

    pruned = Response.model_validate_json(DIALECT.prune(json.dumps(body).encode(), [(0, 0)], NOTICE))

    assert [item.type for item in pruned.output] == ["custom_tool_call"]


def test_rest_of_a_held_stream_is_still_one() -> None:
    """With the calls that were kept, under their own ids."""
    whole = Splitter().feed(DIALECT.stream_tail(Begun(HEAD), "Looking.", CALLS, USAGE, None))
    reader = DIALECT.reader()
    for one in whole:
        reader.feed(one)

    rest = DIALECT.stream_rest(Begun(HEAD), reader.answer(), None, NOTICE, drop=[(0, 0), (1, 1)], held=whole, reader=reader)
    check(rest)

    with sdk(200, "text/event-stream", rest) as client, client.responses.stream(**ASK) as events:
        final = events.get_final_response()
    assert [item.type for item in final.output] == ["message", "custom_tool_call"]


def test_nudged_items_are_valid() -> None:
    """A result stays one, with text or with parts; so does a message."""
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "out"}]},
        {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "out"},
    ]
    request = DIALECT.parse(json.dumps({"model": "m", "input": items}).encode())

    nudged = json.loads(DIALECT.rewrite(request, Edits(inserts=tuple(Insert(at, "[lastcall] again?") for at in (0, 2, 4)))))

    TypeAdapter(list[ResponseInputItemParam]).validate_python(nudged["input"])
    assert nudged["input"][0]["content"][1] == nudged["input"][2]["output"][1] == {"type": "input_text", "text": "[lastcall] again?"}
    assert nudged["input"][4]["output"] == "out\n\n[lastcall] again?"
