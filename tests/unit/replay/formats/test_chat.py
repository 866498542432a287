"""Chat completions as people log them."""

from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall, Usage
from proxy.replay.formats.chat import ChatLog
from proxy.replay.recording import Note, Recording, Unreadable

ASK = {"role": "user", "content": "find it"}
CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "grep"}}, {"type": "function", "function": {"name": "ls"}}]
ANSWER = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3},
}
MADE = Item(Role.ASSISTANT, b'""', (ToolCall("c1", "grep", "{}"),))


def whole(value: dict[str, Any]) -> Recording:
    assert ChatLog().whole(value)
    return ChatLog().read_whole(value, "f#1")


def test_a_request_body_is_a_recording_whose_answer_is_missing() -> None:
    """With the tools it offers."""
    read = whole({"model": "m", "messages": [ASK], "tools": TOOLS, "stream": True})
    assert (read.id, read.model, read.offered, read.asked) == ("f#1", "m", ("grep", "ls"), True)
    assert read.items == (Item(Role.USER, b'"find it"'),)


@pytest.mark.parametrize(
    "value",
    [
        {"id": "r1", "messages": [ASK], "model": "m", "response": ANSWER},
        {"id": "r1", "request": {"messages": [ASK], "model": "m"}, "response": {"status": 200, "body": ANSWER}},
        {"custom_id": "r1", "method": "POST", "url": "/v1", "body": {"messages": [ASK], "model": "m"}, "output": ANSWER},
        {"trace_id": "r1", "input": {"kwargs": {"messages": [ASK], "model": "m"}}, "output": ANSWER},
    ],
)
def test_a_logged_exchange_has_its_answer_too(value: dict[str, Any]) -> None:
    """Wherever gateways keep request and response; with the answer's usage."""
    read = whole(value)
    assert (read.id, read.items, read.asked) == ("r1", (Item(Role.USER, b'"find it"'), MADE), False)
    assert read.notes == {1: Note(Usage(12, 3), "tool_calls")}


def test_an_answer_without_choices_is_no_answer() -> None:
    """As of a request that failed."""
    read = whole({"messages": [ASK], "model": "m", "response": {"choices": []}})
    assert (len(read.items), read.notes, read.asked) == (1, {}, True)


def test_messages_alone_are_a_recording() -> None:
    """In one object, or each on its own; nobody says that the last one was sent."""
    assert not whole({"messages": [ASK], "id": "t1"}).asked
    assert all(ChatLog().part(message) for message in (ASK, {"role": "developer"}, {"role": "tool"}))
    (read,) = ChatLog().read_parts([ASK, {"role": "assistant", "tool_calls": [CALL]}], "f")
    assert (read.id, read.calls, read.asked) == ("f", 1, False)


@pytest.mark.parametrize(
    "value", [{}, {"messages": "none"}, {"messages": [3]}, {"role": "judge"}, {"role": 3}, {"request": {"messages": []}}]
)
def test_other_objects_are_not_taken_for_chats(value: dict[str, Any]) -> None:
    """A role, or messages with one."""
    assert not ChatLog().whole(value)
    assert not ChatLog().part(value)


def test_what_the_proxy_could_not_read_is_no_recording() -> None:
    """It says why in the words of the dialect."""
    with pytest.raises(Unreadable, match=r"messages\[1\]"):
        whole({"messages": [ASK, 3]})
