"""Whole messages answers: usage and pruning; `tests/golden/messages` has the shapes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.messages_answer import _read_any, prune, read_answer, read_usage
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


COUNT = st.one_of(st.none(), st.integers(-1, 9), st.sampled_from([2.0, "3", True, 2**53, 2**53 + 1, []]))
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", " ", "\n", 3]))


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


BLOCK = some(
    type=st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "image", None]),
    text=WORDS,
    thinking=WORDS,
    id=WORDS,
    name=WORDS,
    input=st.one_of(WORDS, st.sampled_from([{}, {"path": "\ud83d"}, []])),
)
USAGE = some(
    input_tokens=COUNT,
    output_tokens=COUNT,
    cache_read_input_tokens=COUNT,
    cache_creation_input_tokens=COUNT,
    cache_creation=st.one_of(st.none(), some(ephemeral_1h_input_tokens=COUNT)),
    server_tool_use=st.one_of(st.none(), some(web_search_requests=COUNT)),
    service_tier=WORDS,
)
ANSWER = some(
    type=st.sampled_from([None, "message", "error", 1]),
    id=WORDS,
    model=WORDS,
    content=st.one_of(st.none(), st.lists(BLOCK, max_size=3)),
    stop_reason=WORDS,
    usage=st.one_of(st.none(), USAGE),
    error=st.sampled_from([None, {}, "no"]),
)


@given(ANSWER)
def test_a_usual_answer_is_read_as_any_other(answer: dict[str, Any]) -> None:
    """What is read at once says the same as what is asked value by value."""
    raw = json.dumps(answer).encode()

    assert read_answer(raw) == _read_any(raw)


def test_an_answer_as_the_standard_has_it_is_read_at_once() -> None:
    """All that such an answer has: thinking, texts, calls, usage with its parts."""
    usage = {
        "input_tokens": 9,
        "output_tokens": 4,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_1h_input_tokens": 2},
        "server_tool_use": {"web_search_requests": 1},
        "service_tier": "standard",
    }
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "stop_sequence": None}
    hidden = {"type": "redacted_thinking", "data": "x"}
    raw = json.dumps({**head, "content": [THINKING, hidden, TEXT, call(1)], "usage": usage}).encode()
    silent = json.dumps({**head, "content": [THINKING, hidden], "usage": None}).encode()

    answered = read_answer(raw)

    assert answered == _read_any(raw)
    assert read_answer(silent) == _read_any(silent)
    assert read_answer(silent).choices[0].thought == "t"
    assert (answered.choices[0].text, answered.choices[0].thought, answered.choices[0].calls[0].arguments) == ("Here:", "", "{}")
    assert answered.usage == Usage(21, 4, 7, 0, 5, 2, tier="standard", searches=1)
