"""Following a messages stream; `tests/golden/messages` has the shapes, `test_messages_render.py` how one is brought to its end."""

import json
from typing import Any

import pytest

from proxy.dialects.messages_stream import MessagesReader, Standing
from proxy.models import ToolCall


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


def opened(index: int, **block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, **members: Any) -> bytes:
    return event("content_block_delta", index=index, delta=members)


START = event("message_start", message={"id": "msg_1", "model": "m", "usage": {"input_tokens": 5}})
TEXT = opened(0, type="text", text="")
HELLO = delta(0, type="text_delta", text="Hello")
CLOSED = event("content_block_stop", index=0)
CALL = opened(1, type="tool_use", id="t", name="ls", input={})
FINISH = event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 2})
END = event("message_stop")
PING = event("ping")


def fed(*events: bytes) -> MessagesReader:
    reader = MessagesReader()
    for one in events:
        reader.feed(one)
    return reader


def test_from_the_first_call_on_everything_is_held() -> None:
    """Text and thinking before it are not, nor is a ping; the end is, also without a call."""
    reader = MessagesReader()
    held = []
    for one in (
        START,
        PING,
        TEXT,
        HELLO,
        CLOSED,
        CALL,
        delta(1, type="input_json_delta", partial_json="{}"),
        PING,
        b": c\n\n",
        FINISH,
        END,
    ):
        reader.feed(one)
        held.append(reader.holds_call)

    assert held == [False] * 5 + [True] * 3 + [False] + [True] * 2
    assert [fed(START, TEXT, HELLO, CLOSED, one).holds_call for one in (FINISH, END)] == [True, True]


@pytest.mark.parametrize(
    ("events", "standing"),
    [
        ((START,), Standing()),
        ((START, TEXT), Standing(0)),
        ((START, TEXT, HELLO), Standing(1, 0, blank=True)),
        ((START, TEXT, HELLO, CLOSED), Standing(1, 0, True)),
        ((START, TEXT, HELLO, CLOSED, CALL), Standing(1, None, True)),
        ((START, TEXT, HELLO, CLOSED, CALL, FINISH), Standing(2, 1, True)),
        ((START, opened(0, type="text", text="Hi"), CLOSED), Standing(1, 0, True)),
        ((START, opened(0, type="thinking", thinking=""), CLOSED, FINISH), Standing(1)),
        ((START, opened(4, type="thinking"), CLOSED), Standing(5, 4)),
    ],
)
def test_how_far_a_stream_had_come_before_its_newest_event(events: tuple[bytes, ...], standing: Standing) -> None:
    """The next block's number, the open block, and whether there was text."""
    assert fed(*events).sent() == standing


def test_arguments_come_in_pieces_or_at_once() -> None:
    """A call without any has an empty object."""
    pieces = (delta(1, type="input_json_delta", partial_json=piece) for piece in ("", '{"a"', ":1}"))

    assert fed(CALL, *pieces).answer().choices[0].calls == (ToolCall("t", "ls", '{"a":1}'),)
    assert fed(opened(0, type="tool_use", id="t", name="ls", input={"b": 2})).answer().choices[0].calls[0].arguments == '{"b": 2}'
    assert fed(opened(0, type="tool_use")).answer().choices[0].calls == (ToolCall(None, "", "{}"),)


@pytest.mark.parametrize(
    "odd",
    [
        delta(7, type="text_delta", text="x"),
        event("content_block_delta", delta={"type": "text_delta", "text": "x"}),
        event("message_start", message="text"),
        event("message_start"),
        event("content_block_start", index="one", content_block=[]),
        b"data: {\n\n",
        b"data: [1]\n\n",
        b"event: \xff\ndata: {}\n\n",
        b'data: {"type": 5}\n\n',
    ],
)
def test_what_makes_no_sense_is_passed_over(odd: bytes) -> None:
    """And what is said before it is kept."""
    answer = fed(START, TEXT, HELLO, CLOSED, odd).answer()

    assert (answer.choices[0].text.strip(), answer.error, answer.complete) == ("Hello", False, False)


def test_events_may_go_without_their_name_or_their_type() -> None:
    """Either says what they are."""
    assert fed(START, b"event: message_stop\ndata: {}\n\n").answer().complete
    assert fed(START, b'data: {"type":"message_stop"}\n\n').answer().complete
    assert fed(START, event("error", error={})).answer().error
    assert fed(START, b'data: {"error":{"message":"no"}}\n\n').answer().error


def test_nothing_said_is_no_answer() -> None:
    """An error alone, or a ping."""
    assert fed(PING, event("error")).answer().choices == ()
