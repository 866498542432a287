"""What Lastcall itself writes in chat completions, as bytes; `test_chat.py` shows that clients accept it."""

import json
from typing import Any

import pytest

from proxy.dialects.chat_render import completion, error, stream_error, stream_tail
from proxy.dialects.chat_stream import ChatReader
from proxy.models import Action, Answer, Begun, Choice, Head, Notice, Reason, ToolCall, Usage

HEAD = Head("chatcmpl-1", "m", 5)
NOTICE = Notice(action=Action.STOP, reason=Reason.STEP_BUDGET, message="[lastcall budget] over", limit=50)
USAGE = Usage(10, 4, 6, 1)


def events(stream: bytes) -> list[Any]:
    *lines, done, rest = stream.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def said(stream: bytes) -> Answer:
    reader = ChatReader()
    for line in stream.split(b"\n\n"):
        reader.feed(line + b"\n\n")
    return reader.answer()


def test_completion_says_the_text_in_each_choice() -> None:
    """Finished as text, with usage and notice."""
    body = json.loads(completion(HEAD, "über", USAGE, NOTICE, 2))

    assert (body["id"], body["object"], body["created"], body["model"]) == ("chatcmpl-1", "chat.completion", 5, "m")
    assert [choice["message"]["content"] for choice in body["choices"]] == ["über", "über"]
    assert [(choice["index"], choice["finish_reason"]) for choice in body["choices"]] == [(0, "stop"), (1, "stop")]
    assert body["usage"]["total_tokens"] == 14
    assert body["lastcall"]["reason"] == "step_budget"


def test_completion_without_usage_says_none() -> None:
    """A count that is not known is not made up."""
    assert "usage" not in json.loads(completion(HEAD, "a", None, NOTICE, 1))


def test_stream_tail_reads_back_as_what_it_was_given() -> None:
    """Text in each choice, the calls in the first one."""
    calls = (ToolCall("a", "ls", "{}"), ToolCall("b", "run", "x", True))

    tail = stream_tail(Begun(HEAD, 2), "bye", calls, USAGE, None)

    assert said(tail) == Answer((Choice("bye", calls, "tool_calls"), Choice("bye", (), "stop")), USAGE, "chatcmpl-1", "m", 5, True)


@pytest.mark.parametrize(("started", "roles"), [(False, ["assistant"]), (True, [])])
def test_opening_is_not_repeated(started: bool, roles: list[str]) -> None:
    """A stream under way has had its role."""
    tail = events(stream_tail(Begun(HEAD, started=started), "bye", (), None, None))

    assert [choice["delta"]["role"] for event in tail for choice in event["choices"] if "role" in choice["delta"]] == roles


@pytest.mark.parametrize(("usage", "carriers"), [(None, [False, False, True]), (USAGE, [False, False, True, True])])
def test_notice_stands_in_the_finish_chunk_and_the_last_event(usage: Usage | None, carriers: list[bool]) -> None:
    """A client that looks at only one of them sees it."""
    tail = events(stream_tail(Begun(HEAD), "bye", (), usage, NOTICE))

    assert ["lastcall" in event for event in tail] == carriers


def test_stream_tail_has_what_the_strictest_client_wants() -> None:
    """Indices from 0, ids and names, text as arguments, object deltas, one finish a choice, no choice beside usage."""
    calls = (ToolCall(None, "ls", ""), ToolCall(None, "ls", ""))

    *chunks, usage = events(stream_tail(Begun(HEAD, started=True), "", calls, USAGE, NOTICE))

    fragments = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [call["index"] for call in fragments] == [0, 1]
    assert len({call["id"] for call in fragments}) == 2
    assert all(call["id"].startswith("call_") and len(call["id"]) <= 40 for call in fragments)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "tool_calls"]
    assert usage["choices"] == []
    assert {chunk["object"] for chunk in [*chunks, usage]} == {"chat.completion.chunk"}


def test_minted_ids_are_the_same_each_time_and_differ_between_answers() -> None:
    """Rendering again gives the same bytes; another answer never repeats an id."""
    calls = (ToolCall(None, "ls", "{}"),)
    first, again = (stream_tail(Begun(HEAD, started=True), "", calls, None, None) for _ in range(2))
    other = stream_tail(Begun(Head("chatcmpl-2", "m", 5), started=True), "", calls, None, None)

    assert first == again
    assert said(first).choices[0].calls[0].id != said(other).choices[0].calls[0].id


def test_stream_error_is_one_event_with_an_error() -> None:
    """No terminator after it, and no type that clients retry."""
    stream = stream_error("lastcall_step_budget", "Stopped", NOTICE)

    value = json.loads(stream.removeprefix(b"data: "))
    assert value["error"] == {"message": "Stopped", "type": "invalid_request_error", "code": "lastcall_step_budget", "param": None}
    assert value["lastcall"]["limit"] == 50
    assert stream.endswith(b"}\n\n")
    assert said(stream).error


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (401, "invalid_request_error"), (502, "upstream_error")])
def test_error_names_its_kind(status: int, kind: str) -> None:
    """A fault of the client or of the upstream, never a "server_error", which clients retry."""
    body = json.loads(error(status, "lastcall_x", "why", None))

    assert body == {"error": {"message": "why", "type": kind, "code": "lastcall_x", "param": None}}
