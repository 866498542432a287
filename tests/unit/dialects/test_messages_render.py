"""What Lastcall itself writes in the messages dialect, as bytes; `test_messages.py` shows that clients accept it."""

import json
from typing import Any

import pytest

from proxy.dialects.messages_render import completion, error, stream_error, stream_tail
from proxy.dialects.messages_stream import MessagesReader, Standing
from proxy.models import Action, Answer, Begun, Choice, Head, Notice, Reason, ToolCall, Usage

HEAD = Head("msg_1", "m", 5)
NOTICE = Notice(action=Action.STOP, reason=Reason.STEP_BUDGET, message="[lastcall budget] over", limit=50)
USAGE = Usage(30, 4, 20, 0, 3)


def events(stream: bytes) -> list[Any]:
    *blocks, rest = stream.decode().split("\n\n")
    assert rest == ""
    read = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in (b.split("\n") for b in blocks)]
    assert all(name == value["type"] for name, value in read)
    return [value for _, value in read]


def said(stream: bytes) -> Answer:
    reader = MessagesReader()
    for part in stream.split(b"\n\n")[:-1]:
        reader.feed(part + b"\n\n")
    return reader.answer()


def test_completion_says_the_text() -> None:
    """Finished as text, with usage as the API counts it, and the notice."""
    body = json.loads(completion(HEAD, "über", USAGE, NOTICE))

    assert (body["id"], body["type"], body["role"], body["model"]) == ("msg_1", "message", "assistant", "m")
    assert (body["content"], body["stop_reason"]) == ([{"type": "text", "text": "über"}], "end_turn")
    assert body["usage"] == {"input_tokens": 7, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 20, "output_tokens": 4}
    assert body["lastcall"]["reason"] == "step_budget"


@pytest.mark.parametrize(("arguments", "given"), [('{"a": 1.50}', '{"a": 1.50}'), ("[1]", "{}"), ("{", "{}"), ("", "{}")])
def test_completion_makes_calls(arguments: str, given: str) -> None:
    """Arguments as they were written where they are an object; without text there is no empty block."""
    body = completion(HEAD, "", None, NOTICE, (ToolCall("t", "finish", arguments),))

    assert b'"content":[{"type":"tool_use","id":"t","name":"finish","input":%b}]' % given.encode() in body
    assert json.loads(body)["stop_reason"] == "tool_use"


def test_stream_tail_reads_back_as_what_it_was_given() -> None:
    """Text, then the calls, then usage."""
    calls = (ToolCall("a", "ls", "{}"), ToolCall("b", "run", '{"x":'))

    tail = stream_tail(Begun(HEAD), "bye", calls, USAGE, None)
    assert said(tail) == Answer((Choice("bye", calls, "tool_use"),), USAGE, "msg_1", "m", None, True)


@pytest.mark.parametrize(
    ("sent", "kinds", "numbers"),
    [
        (Standing(0), [], [0]),
        (Standing(2, None, True), [], [2]),
        (Standing(2, 1, True), [("content_block_stop", 1)], [2]),
    ],
)
def test_a_stream_goes_on_where_it_stands(sent: Standing, kinds: list[Any], numbers: list[int]) -> None:
    """The open block is closed, the next takes the next number, nothing is opened twice."""
    tail = events(stream_tail(Begun(HEAD, started=True, sent=sent), "bye", (), None, NOTICE))

    assert [(event["type"], event["index"]) for event in tail[: len(kinds)]] == kinds
    assert [event["index"] for event in tail if event["type"] == "content_block_start"] == numbers
    assert [event["type"] for event in tail[len(kinds) :]] == [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert tail[-1]["lastcall"]["limit"] == 50
    assert tail[-2]["usage"]["output_tokens"] == 0


@pytest.mark.parametrize(("spoke", "text"), [(True, "\nmore"), (False, "\n\nmore")])
def test_a_further_paragraph_is_the_same_text_when_it_comes_back(spoke: bool, text: str) -> None:
    """Blocks are joined by one line end in a history, so of two that stand between paragraphs one goes."""
    tail = events(stream_tail(Begun(HEAD, started=True, sent=Standing(1, None, spoke)), "\n\nmore", (), None, None))

    assert tail[1]["delta"]["text"] == text


def test_calls_that_went_out_end_the_message_as_calls_do() -> None:
    """Also when nothing is added."""
    (finish, _) = events(stream_tail(Begun(HEAD, started=True, called=True, sent=Standing(1, None)), "", (), None, None))

    assert finish["delta"]["stop_reason"] == "tool_use"


def test_ids_of_calls_without_one_are_made_from_the_answer() -> None:
    """The same each time, another in another answer."""
    calls = (ToolCall(None, "ls", "{}"),)
    first, again = (said(stream_tail(Begun(HEAD), "", calls, None, None)).choices[0].calls[0].id for _ in range(2))
    other = said(stream_tail(Begun(Head("msg_2", "m", 5)), "", calls, None, None)).choices[0].calls[0].id

    assert first == again != other
    assert (first or "").startswith("toolu_")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (502, "api_error"),
    ],
)
def test_errors_have_the_apis_shape(status: int, kind: str) -> None:
    """The kind follows from the status."""
    body = json.loads(error(status, "lastcall_cycle", "why", NOTICE))

    assert (body["type"], body["error"]) == ("error", {"type": kind, "message": "why", "code": "lastcall_cycle"})
    assert body["lastcall"]["reason"] == "step_budget"


def test_a_stream_can_end_with_an_error() -> None:
    """One event of that name."""
    (event,) = events(stream_error("lastcall_upstream_cut", "why", None))

    assert (event["type"], event["error"]["message"]) == ("error", "why")


def test_a_text_block_that_says_nothing_yet_is_gone_on_with() -> None:
    """An empty block would be refused once it stands in a history."""
    tail = events(stream_tail(Begun(HEAD, started=True, sent=Standing(1, 0, blank=True)), "why", (), None, None))
    assert [(event["type"], event.get("index")) for event in tail[:2]] == [("content_block_delta", 0), ("content_block_stop", 0)]
    assert [event["type"] for event in tail[2:]] == ["message_delta", "message_stop"]
