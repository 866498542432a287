"""Whole messages answers: usage and pruning; `tests/golden/messages` has the shapes."""

import json
from typing import Any

import pytest

from proxy.dialects.messages_answer import prune, read_answer, read_usage
from proxy.models import Action, Answer, Notice, Reason, Usage

NOTICE = Notice(action=Action.STOP, reason=Reason.CYCLE, message="[lastcall stop] why")
TEXT = {"type": "text", "text": "Here:"}
THINKING = {"type": "thinking", "thinking": "t", "signature": "s"}


def call(number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{number}", "name": "ls", "input": {}}


def answer(*content: Any) -> bytes:
    return json.dumps({"id": "msg_1", "type": "message", "content": content, "stop_reason": "tool_use"}).encode()


@pytest.mark.parametrize(
    ("raw", "before", "usage"),
    [
        (b'{"input_tokens":5,"output_tokens":2}', None, Usage(5, 2)),
        (b'{"input_tokens":5,"cache_read_input_tokens":20,"cache_creation_input_tokens":3}', None, Usage(28, 0, 20, 0, 3)),
        (b'{"output_tokens":9}', Usage(28, 1, 20, 0, 3), Usage(28, 9, 20, 0, 3)),
        (b'{"input_tokens":7,"output_tokens":9}', Usage(28, 1, 20, 0, 3), Usage(30, 9, 20, 0, 3)),
        (b'{"input_tokens":7,"cache_read_input_tokens":0}', Usage(28, 1, 20, 0, 3), Usage(10, 1, 0, 0, 3)),
        (b'{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":4}', None, Usage(0, 4)),
        (b'{"service_tier":"x"}', Usage(1, 1), Usage(1, 1)),
        (
            b'{"input_tokens":5,"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":7},"service_tier":"batch"}',
            None,
            Usage(14, 0, 0, 0, 9, 7, tier="batch"),
        ),
        (b'{"output_tokens":9}', Usage(14, 0, 0, 0, 9, 7, tier="batch"), Usage(14, 9, 0, 0, 9, 7, tier="batch")),
        (
            b'{"input_tokens":5,"cache_creation_input_tokens":2,"cache_creation":{"ephemeral_1h_input_tokens":7}}',
            None,
            Usage(7, 0, 0, 0, 2, 2),
        ),
        (b"null", None, None),
        (b"[]", Usage(1, 1), Usage(1, 1)),
    ],
)
def test_usage_counts_all_input(raw: bytes, before: Usage | None, usage: Usage | None) -> None:
    """The API's input leaves out what the cache gave or took; what a stream said first stands until it says more."""
    assert read_usage(raw, before) == usage


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"<html>", Answer()),
        (b'{"content":null}', Answer()),
        (b'{"type":"error","error":{"type":"overloaded_error"}}', Answer(error=True)),
        (b'{"error":"no"}', Answer(error=True)),
    ],
)
def test_what_is_no_message_is_incomplete(body: bytes, read: Answer) -> None:
    """And an error where it says so."""
    assert read_answer(body) == read


def test_pruning_keeps_every_other_block_where_it_is() -> None:
    """Thinking stays in front of what it led to."""
    pruned = json.loads(prune(answer(THINKING, TEXT, call(1), call(2), call(3)), {(0, 1), (1, 0)}, NOTICE))

    assert pruned["content"] == [THINKING, TEXT, call(1), call(3)]
    assert (pruned["stop_reason"], pruned["lastcall"]["reason"]) == ("tool_use", "cycle")


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ([TEXT, call(1)], [TEXT]),
        ([THINKING, call(1)], [THINKING, {"type": "text", "text": NOTICE.message}]),
        ([{"type": "text", "text": ""}, call(1)], [{"type": "text", "text": ""}, {"type": "text", "text": NOTICE.message}]),
    ],
)
def test_without_calls_an_answer_ends_as_text(content: list[Any], left: list[Any]) -> None:
    """And says something."""
    pruned = json.loads(prune(answer(*content), {(0, 0)}, NOTICE))

    assert (pruned["content"], pruned["stop_reason"]) == (left, "end_turn")


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"content":"text"}', b'{"content":null}'])
def test_what_cannot_be_read_is_not_pruned(body: bytes) -> None:
    """It goes on as it came."""
    assert prune(body, {(0, 0)}, NOTICE) == body
