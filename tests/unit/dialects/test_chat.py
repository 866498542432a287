"""The chat dialect as the official SDK sees it: what Lastcall writes passes through the SDK's own parsers, the strict helper included."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import TypeAdapter

from proxy.dialects.chat import Chat
from proxy.models import Action, Answer, Begun, Choice, Edits, Head, Insert, Notice, Reason, ToolCall, Usage

CHAT = Chat()
HEAD = Head("chatcmpl-1", "m", 1_767_225_600)
NOTICE = Notice(action=Action.STOP, reason=Reason.REPEATED_CALL, message="[lastcall stop] why", tool="grep", count=5)
CALLS = (ToolCall(None, "ls", '{"dir":"."}'), ToolCall("call_b", "cat", "{}"))
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


@contextmanager
def sdk(status: int, kind: str, body: bytes) -> Iterator[openai.OpenAI]:
    """A client whose every request is answered with these bytes."""

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=body)

    transport = httpx2.Client(transport=httpx2.MockTransport(respond))
    with openai.OpenAI(api_key="x", base_url="http://upstream/v1", http_client=transport, max_retries=0) as client:
        yield client


def test_sdk_reads_a_completion() -> None:
    """As an ordinary answer, with the notice beside it."""
    with sdk(200, "application/json", CHAT.completion(HEAD, "[lastcall stop] why", Usage(5, 2), NOTICE, 1)) as client:
        answer = client.chat.completions.create(**ASK)

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("[lastcall stop] why", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    assert (answer.model_extra or {})["lastcall"]["count"] == 5


@pytest.mark.parametrize("usage", [None, Usage(5, 2)])
@pytest.mark.parametrize("notice", [None, NOTICE])
def test_strict_parser_reads_a_stream(usage: Usage | None, notice: Notice | None) -> None:
    """The streaming helper, which trips over most faults, puts text and calls together."""
    stream = CHAT.keep_alive + CHAT.stream_tail(Begun(HEAD), "Looking.", CALLS, usage, notice)

    with sdk(200, "text/event-stream", stream) as client, client.chat.completions.stream(**ASK) as events:
        final = events.get_final_completion()

    message = final.choices[0].message
    assert message.content == "Looking."
    assert [call.function.name for call in message.tool_calls or []] == ["ls", "cat"]
    assert [call.function.arguments for call in message.tool_calls or []] == ['{"dir":"."}', "{}"]
    assert final.choices[0].finish_reason == "tool_calls"
    assert (final.usage is None) is (usage is None)


def test_strict_parser_reads_a_stream_that_was_under_way() -> None:
    """The tail goes on where the upstream's own events ended."""
    opening = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
    began = opening % b'{"index":0,"delta":{"role":"assistant","content":"So far"},"finish_reason":null}'
    stream = began + CHAT.stream_tail(Begun(HEAD, started=True), "\n\n[lastcall stop] why", (), None, NOTICE)

    with sdk(200, "text/event-stream", stream) as client, client.chat.completions.stream(**ASK) as events:
        final = events.get_final_completion()

    assert final.choices[0].message.content == "So far\n\n[lastcall stop] why"
    assert final.choices[0].finish_reason == "stop"


def test_sdk_raises_a_stream_error_with_its_message() -> None:
    """A stream under way ends with an exception that says why."""
    stream = CHAT.stream_error("lastcall_deadline", "Stopped by Lastcall: out of time", NOTICE)

    with (
        sdk(200, "text/event-stream", stream) as client,
        pytest.raises(openai.APIError, match="Stopped by Lastcall: out of time"),
        client.chat.completions.create(**ASK, stream=True) as events,
    ):
        list(events)


def test_sdk_raises_an_error_with_its_code() -> None:
    """A refusal is an exception whose code a program can read."""
    refusal = CHAT.error(400, "lastcall_repeated_call", "Stopped by Lastcall", NOTICE)

    with sdk(400, "application/json", refusal) as client, pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**ASK)

    assert raised.value.code == "lastcall_repeated_call"
    assert "Stopped by Lastcall" in str(raised.value)


def test_pruned_answer_is_still_a_completion() -> None:
    """With the calls that were kept."""
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("ls", "cat")]
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}
    body = json.dumps({"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()

    pruned = ChatCompletion.model_validate_json(CHAT.prune(body, [(0, 0)], NOTICE), strict=True)

    assert [call.id for call in pruned.choices[0].message.tool_calls or []] == ["cat"]


def test_nudged_messages_are_valid() -> None:
    """A tool message stays one, with text or with parts."""
    call = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "out"}]},
    ]
    request = CHAT.parse(json.dumps({"model": "m", "messages": messages}).encode())

    nudged = json.loads(CHAT.rewrite(request, Edits(inserts=(Insert(2, "[lastcall] again?"), Insert(0, "x")))))

    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(nudged["messages"])
    assert nudged["messages"][2]["content"][1] == {"type": "text", "text": "[lastcall] again?"}


@pytest.mark.parametrize("called", [False, True])
def test_rest_of_a_held_stream_makes_the_calls_that_are_left(called: bool) -> None:
    """Calls that went out are not repeated, and the stream ends as one with calls."""
    left, begun = Answer((Choice("", CALLS[1:]),)), Begun(HEAD, started=True, called=called)

    rest = CHAT.stream_rest(begun, left, None, NOTICE, drop=[(0, 0)], held=[], reader=CHAT.reader())

    assert (b'"cat"' in rest, b'"role"' in rest) == (not called, False)
    assert b'"finish_reason":"tool_calls"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
