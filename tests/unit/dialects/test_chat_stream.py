"""Following chat-completions streams, and hiding usage in them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat_stream import ChatReader, without_usage
from proxy.models import Answer, Choice, ToolCall, Usage


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, finish: str | None = None, index: Any = 0, **members: Any) -> bytes:
    return event({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]} | members)


CALL = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}}]}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
DONE = b"data: [DONE]\n\n"


def read(*events: bytes) -> Answer:
    reader = ChatReader()
    for one in events:
        reader.feed(one)
    return reader.answer()


@pytest.mark.parametrize(
    ("events", "held"),
    [
        (
            [chunk({"role": "assistant", "content": ""}), chunk({"content": "a"}), chunk({"tool_calls": []}), chunk({"tool_calls": None})],
            [0, 0, 0, 0],
        ),
        ([chunk({"content": "a"}), chunk({}, "stop"), event({"choices": [], "usage": USAGE}), DONE], [0, 1, 1, 1]),
        (
            [chunk({"content": "a"}), chunk(CALL), chunk({"content": "b"}), b": keep-alive\n\n", chunk({}, "tool_calls"), DONE],
            [0, 1, 1, 0, 1, 1],
        ),
        ([chunk(CALL | {"content": "with it"})], [1]),
        ([chunk({"function_call": {"name": "old"}}), chunk({"content": "b"}, index=1)], [1, 1]),
        ([chunk({"content": "a"}, usage=USAGE), chunk({"content": "a"}, "stop", usage=USAGE), chunk({}, usage=USAGE)], [0, 1, 1]),
        ([b"data: {broken\n\n", b"data: [DONE] \r\n\r\n"], [0, 1]),
    ],
)
def test_an_armed_stream_holds_calls_and_what_comes_after(events: list[bytes], held: list[int]) -> None:
    """Text before any call goes on at once; so do comments. The end of an answer is held even when it was only text."""
    reader = ChatReader()
    seen = []
    for one in events:
        reader.feed(one)
        seen.append(int(reader.holds_call))

    assert seen == held


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([], False),
        ([chunk({"content": "a"})], False),
        ([chunk({"content": "a"}, "")], False),
        ([chunk({"content": "a"}, "stop")], True),
        ([chunk({}, "stop"), chunk({}, index=1)], False),
        ([chunk({}, "stop"), chunk({}, "length", index=1)], True),
        ([chunk({"content": "a"}), DONE], True),
        ([DONE], True),
    ],
)
def test_complete_means_ended_as_the_dialect_ends(events: list[bytes], complete: bool) -> None:
    """By a finish reason in every choice, or by the terminator."""
    assert read(*events).complete is complete


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (event({"error": {"message": "x"}}), True),
        (event({"error": "x", "choices": []}), True),
        (b'event: error\ndata: {"message":"x"}\n\n', True),
        (chunk({}, "error"), True),
        (chunk({}, error=None), False),
        (b"event: message\ndata: {}\n\n", False),
    ],
)
def test_errors_inside_a_stream_are_reported(one: bytes, error: bool) -> None:
    """However the server sends them."""
    assert read(one).error is error


@pytest.mark.parametrize(
    "one",
    [
        event({"choices": None}),
        event({}),
        event([]),
        event({"choices": "x", "usage": 5}),
        event({"choices": {}}),
        b"data: \xff\xfe\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data\n\n",
        b"\x00",
        b"",
    ],
)
def test_events_that_say_nothing_change_nothing(one: bytes) -> None:
    """A reader never raises."""
    assert read(one) == Answer()


@pytest.mark.parametrize(
    "odd", [chunk(None), event({"choices": [{}]}), event({"choices": [7]}), chunk("x"), chunk({"tool_calls": 3}, index="x")]
)
def test_odd_choices_are_empty_ones(odd: bytes) -> None:
    """A delta that is null, absent or no object says nothing."""
    assert read(odd).choices == (Choice(),)


def test_first_finish_reason_and_latest_usage_count() -> None:
    """Finish chunks may be repeated, usage may be sent with every chunk."""
    answer = read(chunk({}, "tool_calls", usage={"prompt_tokens": 1}), chunk({}, "stop", usage=USAGE), event({"usage": None}))

    assert answer.choices == (Choice(finish="tool_calls"),)
    assert answer.usage == Usage(3, 2)


def test_what_an_answer_is_called_may_come_late() -> None:
    """A first chunk may leave it empty, as those of proxies before a model do."""
    assert read(chunk({}, id="a", model="m", created=0), chunk({}, id="b", model="n", created=5)).created == 5


def test_choices_are_told_apart_by_index() -> None:
    """And come in its order; without one, their place in the chunk tells."""
    both = event({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": CALL}]})
    unnumbered = event({"choices": [{"delta": {}}, {"delta": {"content": "!"}}]})

    assert read(both, unnumbered).choices == (Choice("", (ToolCall("a", "ls", "{}"),)), Choice("b!"))


def test_half_a_surrogate_hides_no_call() -> None:
    """An emoji cut in two by the server is no reason to overlook the chunk."""
    cut = rb'data: {"choices":[{"delta":{"content":"\ud83d","tool_calls":[{"id":"a","function":{"name":"ls"}}]}}]}' + b"\n\n"

    assert read(cut).choices == (Choice("\ufffd", (ToolCall("a", "ls", ""),)),)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n', b""),
        (b'data: {"choices":null,"usage":{"prompt_tokens":1}}\r\n\r\n', b""),
        (b'data: {"usage":{"prompt_tokens":1}}\n\n', b""),
        (b'data: {"x": 1.0, "choices":[{}] , "usage" : null }\n\n', b'data: {"x": 1.0, "choices":[{}]  }\n\n'),
        (b'data: {"usage":null, "choices":[]}\n\n', b'data: { "choices":[]}\n\n'),
        (b'id: 1\ndata: {"usage":null}\n\n', b"id: 1\ndata: {}\n\n"),
    ],
)
def test_usage_nobody_asked_for_is_hidden(sent: bytes, kept: bytes) -> None:
    """The event that is only usage goes, and the null in the others; every other byte stays."""
    assert without_usage(sent) == kept


@pytest.mark.parametrize(
    "sent",
    [
        b'data: {"choices":[{"delta":{"content":"usage"}}]}\n\n',
        b'data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":1},"error":{"message":"x"}}\n\n',
        rb'data: {"choices":[{"delta":{"content":"say \"usage\":null"}}]}' + b"\n\n",
        b'data: {"choices":[{"usage":null}]}\n\n',
        b'data: {"choices":[{"usage":null}],"usage":null}\n\n',
        b'data: {"usage\n\n',
        b'data: {"usage":\n\n',
        b': "usage"\n\n',
        DONE,
    ],
)
def test_other_events_stay_as_they_are(sent: bytes) -> None:
    """Usage beside a choice or an error would have come anyway; text about usage is text; what cannot be read is not touched."""
    assert without_usage(sent) == sent


COUNT = st.one_of(st.none(), st.integers(-1, 3), st.sampled_from([2.0, "3", True, 2**53 + 1, []]))
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", " ", 3, [{"type": "text", "text": "b"}]]))


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


FRAGMENT = some(index=COUNT, id=TEXT, function=st.one_of(st.none(), some(name=TEXT, arguments=TEXT)), custom=some(name=TEXT, input=TEXT))
DELTA = some(
    content=TEXT,
    refusal=TEXT,
    reasoning=TEXT,
    reasoning_content=TEXT,
    tool_calls=st.one_of(st.none(), st.lists(FRAGMENT, max_size=2)),
    function_call=st.one_of(st.none(), some(name=TEXT, arguments=TEXT)),
    audio=st.sampled_from([None, {}]),
    images=st.sampled_from([None, []]),
)
SPENT = st.one_of(st.none(), some(prompt_tokens=COUNT, completion_tokens=COUNT))
CHOICE = some(index=COUNT, delta=DELTA, finish_reason=st.sampled_from([None, "", "stop", "error", 1]), usage=SPENT)
CHUNK = some(
    id=TEXT,
    model=TEXT,
    created=COUNT,
    choices=st.one_of(st.none(), st.lists(CHOICE, max_size=2)),
    usage=SPENT,
    error=st.sampled_from([None, {}, "no"]),
    x_groq=some(usage=SPENT),
)


@given(st.lists(CHUNK, max_size=3))
def test_usual_chunks_are_read_as_any_others(chunks: list[dict[str, Any]]) -> None:
    """What is read at once says the same as what is asked value by value."""
    one, other = ChatReader(), ChatReader()
    for chunk in chunks:
        raw = json.dumps(chunk).encode()
        one.said = other.said = ""
        assert one._read(raw) == other._read_any(raw)
        assert (one.said, one.begun, one._calls_seen) == (other.said, other.begun, other._calls_seen)

    assert one.answer() == other.answer()
