"""Responses as people log them: items, requests, and requests that leave their history to the server."""

import json
from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall, Usage
from proxy.replay.formats import read
from proxy.replay.formats.responses import ResponsesLog
from proxy.replay.recording import Note

ASK = {"role": "user", "content": "find it"}
CALL = {"type": "function_call", "call_id": "c1", "name": "grep", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}
ANSWER = {"object": "response", "id": "resp_1", "status": "completed", "output": [CALL], "usage": {"input_tokens": 1, "output_tokens": 2}}


def test_an_exchange_is_read_by_its_dialect() -> None:
    """Items become calls and results; the answer brings its usage."""
    value = {"id": "r1", "request": {"model": "m", "instructions": "s", "input": [ASK, CALL, OUTPUT]}, "response": ANSWER}
    assert ResponsesLog().known_by(value)
    recording = ResponsesLog().read_whole(value, "f")
    assert [item.role for item in recording.items] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert recording.items[2].calls == (ToolCall("c1", "grep", "{}"),)
    assert recording.notes == {4: Note(Usage(1, 2), "completed")}


def test_items_are_a_recording() -> None:
    """In a list, or each on its own."""
    (recording,) = ResponsesLog().read_parts([ASK, CALL, OUTPUT], "f")
    assert (recording.calls, recording.items[0]) == (1, Item(Role.USER, b'"find it"'))


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (CALL, True),
        (OUTPUT, True),
        ({"model": "m", "input": "find it"}, True),
        ({"input": [ASK]}, True),
        ({"input": [], "response": ANSWER}, True),
        ({"input": [{"a": 1}]}, False),
        ({"name": "ls", "input": "x"}, False),
        ({"name": "ls", "input": {"p": 1}}, False),
        ({"model": "m", "input": "x", "messages": [ASK]}, False),
        (ASK, False),
    ],
)
def test_items_tell_them_from_others(value: dict[str, Any], known: bool) -> None:
    """Other forms have an `input` too."""
    assert ResponsesLog().known_by(value) == known


def test_a_history_that_the_server_keeps_is_put_together() -> None:
    """Each request names the response it goes on from and brings only what is new."""
    first = {"request": {"model": "m", "instructions": "s", "input": [ASK]}, "response": ANSWER}
    following = {"request": {"model": "m", "instructions": "s", "input": [OUTPUT], "previous_response_id": "resp_1"}}
    second = {**following, "response": {**ANSWER, "id": "resp_2"}}
    reading = read("f", "\n".join(map(json.dumps, [first, second])).encode())
    (recording,) = reading.recordings
    assert reading.format == "responses"
    assert "".join(item.role[0] for item in recording.items) == "suata"
    assert sorted(recording.notes) == [2, 4]
