"""The messages dialect as the official SDK sees it: what Lastcall writes passes through the SDK's own parsers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import TypeAdapter

from proxy.dialects.messages import Messages
from proxy.dialects.sse import Splitter
from proxy.models import Action, Begun, Edits, Head, Insert, Notice, Reason, ToolCall, Usage

MESSAGES = Messages()
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "messages"
HEAD = Head("msg_1", "m", 5)
NOTICE = Notice(action=Action.STOP, reason=Reason.REPEATED_CALL, message="[lastcall stop] why", tool="ls", count=5)
CALLS = (ToolCall(None, "ls", '{"dir":"."}'), ToolCall("toolu_b", "cat", "{}"))
ASK: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}


@contextmanager
def sdk(status: int, kind: str, body: bytes) -> Iterator[Any]:
    """A client whose every request is answered with these bytes."""

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=body)

    transport = httpx2.Client(transport=httpx2.MockTransport(respond))
    with anthropic.Anthropic(api_key="x", base_url="http://upstream", http_client=transport, max_retries=0) as client:
        yield client


def final_of(stream: bytes) -> Any:
    with sdk(200, "text/event-stream", stream) as client, client.messages.stream(**ASK) as events:
        return events.get_final_message()


def test_sdk_reads_a_completion() -> None:
    """As an ordinary answer, with the notice beside it."""
    with sdk(200, "application/json", MESSAGES.completion(HEAD, "[lastcall stop] why", Usage(5, 2), NOTICE, 1)) as client:
        answer = client.messages.create(**ASK)

    assert (answer.content[0].text, answer.stop_reason, answer.usage.input_tokens) == ("[lastcall stop] why", "end_turn", 5)
    assert answer.model_extra["lastcall"]["count"] == 5


@pytest.mark.parametrize("usage", [None, Usage(5, 2)])
@pytest.mark.parametrize("notice", [None, NOTICE])
def test_strict_parser_reads_a_stream(usage: Usage | None, notice: Notice | None) -> None:
    """The streaming helper puts text and calls together."""
    final = final_of(MESSAGES.stream_tail(Begun(HEAD), "Looking.", CALLS, usage, notice))

    text, *calls = final.content
    assert text.text == "Looking."
    assert [(call.name, call.input) for call in calls] == [("ls", {"dir": "."}), ("cat", {})]
    assert all(call.id for call in calls)
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", usage.output_tokens if usage else 0)


@pytest.mark.parametrize("recorded", ["thinking_call.sse", "parallel.sse"])
def test_strict_parser_reads_a_stream_stopped_at_any_event(recorded: str) -> None:
    """Whatever was let go before, the message is well-formed and its last block says why."""
    events = Splitter().feed((GOLDEN / recorded).read_bytes())
    for held in range(1, len(events)):
        reader = MESSAGES.reader()
        for event in events[: held + 1]:
            reader.feed(event)
        tail = MESSAGES.stream_tail(Begun(HEAD, started=True, sent=reader.sent()), "why", (), Usage(5, 2), NOTICE)
        if events[held].startswith((b"event: message_delta", b"event: message_stop")):
            continue  # with these the upstream has ended it

        final = final_of(b"".join([*events[:held], MESSAGES.keep_alive, tail]))
        assert (final.content[-1].text, final.stop_reason) == ("why", "end_turn")


@pytest.mark.parametrize("name", ["claude_code", "sdk"])
def test_edited_requests_fit_the_sdks_types(name: str) -> None:
    """With a note behind the results, without tools, and with less output."""
    request = MESSAGES.parse((GOLDEN / f"{name}.request.json").read_bytes())
    edits = Edits(inserts=(Insert(len(request.items) - 1, "[lastcall] note"),), no_tools=True, max_output=500)

    edited = json.loads(MESSAGES.rewrite(request, edits))
    TypeAdapter(list[anthropic.types.MessageParam]).validate_python(edited["messages"])
    TypeAdapter(anthropic.types.ToolChoiceParam).validate_python(edited["tool_choice"])


def test_sdk_raises_with_our_message() -> None:
    """And knows the kind of error by the status."""
    refused = MESSAGES.error(400, "lastcall_cycle", "why", NOTICE)
    with sdk(400, "application/json", refused) as client, pytest.raises(anthropic.BadRequestError, match="why") as raised:
        client.messages.create(**ASK)

    assert raised.value.response.json()["lastcall"]["reason"] == "repeated_call"


def test_sdk_raises_where_a_stream_ends_with_an_error() -> None:
    """With the message."""
    with pytest.raises(anthropic.APIStatusError, match="why"):
        final_of(MESSAGES.stream_error("lastcall_upstream_cut", "why", None))
