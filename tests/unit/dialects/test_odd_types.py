"""Members of another type than the dialect gives them: passed over, or the client's fault, and never Lastcall's."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.errors import BadRequest
from proxy.fingerprint import Fingerprints
from proxy.trail import read
from tests import messages, responses
from tests.upstreams import Asked

PRINTS = Fingerprints(b"s" * 32, loose=True)
ODD: list[Any] = [[], {}, [None], 1, 1.5, None, True, "", "x"]
Path = tuple[str | int, ...]

THINKING = {"type": "thinking", "thinking": "t", "signature": "s"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
USE = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
BLOCKS = [THINKING, SEARCH, FOUND, {"type": "text", "text": "x"}, USE]
TURN = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": BLOCKS, "stop_reason": "tool_use"}
MESSAGE = TURN | {"stop_sequence": None, "usage": messages.USAGE}

FUNCTION = {"id": "c1", "type": "function", "index": 0, "function": {"name": "ls", "arguments": "{}"}}
SAID = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning": "r", "audio": {"id": "a"}, "tool_calls": [FUNCTION]}
COUNTED = {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}
CHOICE = {"index": 0, "finish_reason": "tool_calls"}
COMPLETION = {"id": "c", "model": "m", "created": 1, "choices": [CHOICE | {"message": SAID}], "usage": COUNTED}

ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}, "status": "completed"},
    {"type": "mcp_call", "id": "mcp_1", "name": "n", "server_label": "l", "arguments": "{}", "output": "x"},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"},
]
RESPONSE = responses.response_of(ITEMS, Asked("POST", "/", [], b"{}"))

ANSWERS: dict[str, dict[str, Any]] = {"/chat/completions": COMPLETION, "/messages": MESSAGE, "/responses": RESPONSE}
EVENTS: dict[str, list[dict[str, Any]]] = {
    "/chat/completions": [COMPLETION | {"choices": [CHOICE | {"delta": SAID}]}],
    "/messages": [
        {"type": "message_start", "message": MESSAGE | {"content": []}},
        *[{"type": "content_block_start", "index": at, "content_block": block} for at, block in enumerate(BLOCKS)],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
    ],
    "/responses": [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        *[{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(ITEMS)],
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": ITEMS}},
    ],
}
REQUESTS: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "x"}, SAID, {"role": "tool", "tool_call_id": "c1"}]},
    "/messages": {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": BLOCKS},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a"}]}]},
        ],
    },
    "/responses": {"model": "m", "input": [*ITEMS, {"type": "function_call_output", "call_id": "c1", "output": "x"}]},
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a value that can hold something else."""
    if path:
        yield path
    for key, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(member, (*path, key))


def changed(value: Any, path: Path, odd: Any) -> bytes:
    """The value with something odd in one of its places."""
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = odd
    return json.dumps(value).encode()


@pytest.mark.parametrize("path", ANSWERS)
def test_answers_are_read_whatever_stands_in_them(path: str) -> None:
    """A server that errs in one member is no reason to lose its answer."""
    for place in places(ANSWERS[path]):
        for odd in ODD:
            DIALECTS[path].read_answer(changed(ANSWERS[path], place, odd))


@pytest.mark.parametrize("path", EVENTS)
def test_streams_are_read_whatever_stands_in_them(path: str) -> None:
    """Nor to break off its stream."""
    events = EVENTS[path]
    for at, event in enumerate(events):
        for place in places(event):
            for odd in ODD:
                reader = DIALECTS[path].reader()
                for number, other in enumerate(events):
                    reader.feed(b"data: %b\n\n" % (changed(event, place, odd) if number == at else json.dumps(other).encode()))
                reader.answer()


@pytest.mark.parametrize("path", REQUESTS)
def test_requests_are_read_or_refused_whatever_stands_in_them(path: str) -> None:
    """What the upstream would say of one is for the upstream to say."""
    for place in places(REQUESTS[path]):
        for odd in ODD:
            try:
                asked = DIALECTS[path].parse(changed(REQUESTS[path], place, odd))
            except BadRequest:
                continue
            assert len(list(read(asked, PRINTS).messages)) <= len(asked.items)
