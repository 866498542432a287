"""Anthropic messages as people log them, told from chats."""

import json
from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall, Usage
from proxy.replay.formats import read
from proxy.replay.formats.messages import MessagesLog
from proxy.replay.recording import Note

ASK = {"role": "user", "content": "find it"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "grep", "input": {}}
MADE = {"role": "assistant", "content": [{"type": "text", "text": "Look."}, USE]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt", "is_error": True}]}
ANSWER = {**MADE, "type": "message", "id": "msg_1", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}}


def test_an_exchange_is_read_by_its_dialect() -> None:
    """Blocks become calls and results."""
    value = {"id": "r1", "request": {"model": "m", "system": "s", "messages": [ASK, MADE, RESULT]}, "response": ANSWER}
    assert MessagesLog().known_by(value)
    recording = MessagesLog().read_whole(value, "f")
    assert [item.role for item in recording.items] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert recording.items[2].calls == (ToolCall("toolu_1", "grep", "{}"),)
    assert (recording.items[3].failed, recording.items[4].content) == (True, b'"Look."')
    assert recording.notes == {4: Note(Usage(1, 2), "tool_use")}


def test_messages_with_their_blocks_are_a_recording() -> None:
    """In a list, or each on its own."""
    (recording,) = MessagesLog().read_parts([ASK, MADE, RESULT], "f")
    assert (recording.calls, recording.items[0]) == (1, Item(Role.USER, b'"find it"'))


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (MADE, True),
        (RESULT, True),
        ({"messages": [ASK, MADE]}, True),
        ({"messages": [ASK], "response": ANSWER}, True),
        (ASK, False),
        ({"messages": [ASK]}, False),
        ({"messages": [ASK], "response": {"choices": []}}, False),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, False),
        ({"content": [USE]}, False),
    ],
)
def test_blocks_tell_them_from_chats(value: dict[str, Any], known: bool) -> None:
    """What either could be is a chat's."""
    assert MessagesLog().known_by(value) == known


def test_a_log_is_of_one_form_throughout() -> None:
    """Its first request, which could be a chat's, goes with the rest."""
    log = "\n".join(json.dumps({"model": "m", "messages": messages}) for messages in ([ASK], [ASK, MADE, RESULT]))
    reading = read("f", log.encode())
    assert (reading.format, [recording.calls for recording in reading.recordings]) == ("messages", [1])
