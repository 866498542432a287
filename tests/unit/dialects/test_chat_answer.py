"""Whole chat-completions answers: reading, and taking calls out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat_answer import _read_any, prune, read_answer
from proxy.models import Action, Answer, Choice, Notice, Reason, Usage

NOTICE = Notice(action=Action.STOP, reason=Reason.REPEATED_CALL, message="[lastcall stop] ls was called again", scope="call")


def call(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}, "extra_content": {"n": 1.0}}


def body(*messages: dict[str, Any], **members: Any) -> bytes:
    choices = [{"index": index, "message": message, "finish_reason": "tool_calls", "x": 1} for index, message in enumerate(messages)]
    return json.dumps({"id": "a", "created": 5, "model": "m", "choices": choices} | members).encode()


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b'{"choices":', b"[" * 100_000, b"\xff"])
def test_unreadable_answer_is_incomplete(raw: bytes) -> None:
    """Nothing is raised."""
    assert read_answer(raw) == Answer()


@pytest.mark.parametrize(
    ("members", "choices"),
    [
        ({"choices": None}, ()),
        ({"choices": [5]}, (Choice(),)),
        ({"choices": [{"message": None, "finish_reason": ""}]}, (Choice(),)),
        ({"choices": [{"message": {"content": "a", "tool_calls": None}, "finish_reason": "stop"}]}, (Choice("a", (), "stop"),)),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, 3, {"text": 1}, {"text": "b"}]}}]}, (Choice("ab"),)),
        ({"choices": [{"message": {"content": None, "refusal": "no"}}]}, (Choice("no"),)),
    ],
)
def test_choices_are_read_whatever_their_shape(members: dict[str, Any], choices: tuple[Choice, ...]) -> None:
    """What is not there is empty."""
    answer = read_answer(body(**members))

    assert answer.choices == choices
    assert answer.complete is bool(choices)
    assert (answer.id, answer.model, answer.created) == ("a", "m", 5)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, 4)),
        ({"prompt_tokens": 9}, Usage(9, 0)),
        ({"prompt_tokens": 9.0, "completion_tokens": "4", "prompt_tokens_details": [1]}, Usage(9, 4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 50},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 4, 9, 3),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"audio_tokens": 2, "image_tokens": 3, "cache_write_tokens": 5},
                "completion_tokens_details": {"audio_tokens": 1, "image_tokens": 2},
                "service_tier": "flex",
            },
            Usage(9, 4, written_tokens=5, audio_input=2, audio_output=1, image_input=3, image_output=2, tier="flex"),
        ),
        ({"prompt_tokens": -1, "completion_tokens": None}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_is_read_leniently(usage: Any, read: Usage | None) -> None:
    """Without any count there is no usage; parts never exceed their whole."""
    assert read_answer(body({"content": "a"}, usage=usage)).usage == read


@pytest.mark.parametrize(("error", "reported"), [({"message": "x"}, True), ("x", True), (None, False)])
def test_error_in_an_answer_is_reported(error: Any, reported: bool) -> None:
    """A null error, which some servers always send, is none."""
    assert read_answer(body({"content": "a"}, error=error)).error is reported


def test_pruned_call_is_gone_and_the_rest_is_as_it_was() -> None:
    """Other calls, choices and members keep their bytes; the notice is added."""
    raw = body({"content": "Look", "tool_calls": [call("a"), call("b"), call("c")], "y": 1.0}, {"tool_calls": [call("d")]})

    pruned = prune(raw, {(0, 1), (0, 9), (7, 0)}, NOTICE)

    expected = json.loads(raw)
    del expected["choices"][0]["message"]["tool_calls"][1]
    notice = json.loads(pruned)["lastcall"]
    assert json.loads(pruned) == expected | {"lastcall": notice}
    assert notice["message"] == NOTICE.message
    assert json.dumps(call("c")).encode() in pruned
    assert list(json.loads(pruned)["choices"][0]["message"]) == ["content", "tool_calls", "y"]


@pytest.mark.parametrize(("content", "said"), [("Look", "Look"), (None, NOTICE.message), ("", NOTICE.message)])
def test_choice_without_calls_ends_as_text(content: str | None, said: str) -> None:
    """And never leaves an empty message in the client's history."""
    choice = json.loads(prune(body({"content": content, "tool_calls": [call("a")]}), [(0, 0)], NOTICE))["choices"][0]

    assert choice == {"index": 0, "message": {"content": said}, "finish_reason": "stop", "x": 1}


def test_legacy_call_is_pruned_as_the_last_one() -> None:
    """Its position follows those of the other calls."""
    legacy = {"name": "old", "arguments": "{}"}
    both = body({"content": "x", "tool_calls": [call("a")], "function_call": legacy})

    assert json.loads(prune(both, [(0, 1)], NOTICE))["choices"][0]["message"] == {"content": "x", "tool_calls": [call("a")]}
    assert json.loads(prune(both, [(0, 0)], NOTICE))["choices"][0]["message"] == {"content": "x", "function_call": legacy}


@pytest.mark.parametrize("raw", [b"<html>", b"{}", b'{"choices":[3]}', b'{"choices":[{"message":5}]}', b'{"choices":[{}]}'])
def test_unreadable_answer_is_not_pruned(raw: bytes) -> None:
    """It goes on as it came."""
    assert prune(raw, [(0, 0)], NOTICE) is raw


def test_the_service_tier_stands_beside_the_usage() -> None:
    """In a whole answer and in a chunk; no text is no tier."""
    assert read_answer(b'{"choices": [], "usage": {"prompt_tokens": 1}, "service_tier": "priority"}').usage == Usage(1, 0, tier="priority")
    assert read_answer(b'{"choices": [], "usage": {"prompt_tokens": 1}, "service_tier": 7}').usage == Usage(1, 0)


COUNT = st.one_of(st.none(), st.integers(-1, 9), st.sampled_from([2.0, "3", True, 2**53, 2**53 + 1, []]))
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", " ", "\n", 3, [{"type": "text", "text": "b"}]]))


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


CALL = some(
    id=TEXT,
    function=some(name=TEXT, arguments=TEXT),
    custom=st.none(),
)
MESSAGE = some(
    content=TEXT,
    refusal=TEXT,
    reasoning=TEXT,
    reasoning_content=TEXT,
    tool_calls=st.one_of(st.none(), st.lists(CALL, max_size=2)),
    function_call=st.one_of(st.none(), some(name=TEXT, arguments=TEXT)),
    audio=st.sampled_from([None, {}]),
    images=st.sampled_from([None, []]),
)
USAGE = some(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    prompt_cache_hit_tokens=COUNT,
    num_search_queries=COUNT,
    service_tier=TEXT,
    server_tool_use=st.sampled_from([None, {"web_search_requests": 1}]),
    prompt_tokens_details=some(
        cached_tokens=COUNT, cache_write_tokens=COUNT, audio_tokens=COUNT, image_tokens=COUNT, web_search_requests=COUNT
    ),
    completion_tokens_details=some(reasoning_tokens=COUNT, audio_tokens=COUNT, image_tokens=COUNT),
)
CHOICE = some(message=MESSAGE, finish_reason=st.sampled_from([None, "", "stop", "error", 1]), usage=st.one_of(st.none(), USAGE))
ANSWER = some(
    id=TEXT,
    model=TEXT,
    created=COUNT,
    choices=st.one_of(st.none(), st.lists(CHOICE, max_size=2)),
    usage=st.one_of(st.none(), USAGE),
    error=st.sampled_from([None, {}, "no"]),
    x_groq=st.one_of(st.none(), some(usage=USAGE)),
    service_tier=TEXT,
)


@given(ANSWER)
def test_a_usual_answer_is_read_as_any_other(answer: dict[str, Any]) -> None:
    """What is read at once says the same as what is asked value by value."""
    raw = json.dumps(answer).encode()

    assert read_answer(raw) == _read_any(raw)


@pytest.mark.parametrize("tokens", [{}, {"reasoning_tokens": None}, {"reasoning_tokens": 9}])
def test_an_answer_as_the_standard_has_it_is_read_at_once(tokens: dict[str, Any]) -> None:
    """All that such an answer has: text, calls, reasoning, usage with its parts."""
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 7, "audio_tokens": 0},
        "completion_tokens_details": tokens,
    }
    said = {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "reasoning": "because", "tool_calls": [call("c")]}
    raw = body(said, {"content": None, "reasoning_content": "b"}, {"content": "a", "refusal": "b"}, usage=usage, service_tier="default")

    answer = read_answer(raw)

    assert answer == _read_any(raw)
    assert [choice.text for choice in answer.choices] == ["a", "", "ab"]
    assert [choice.thought for choice in answer.choices] == ["", "b", ""]
    assert answer.usage == Usage(9, 4, 7, min(tokens.get("reasoning_tokens") or 0, 4), tier="default")
