"""Whole Responses answers: usage, ends, and what goes with a call that is taken out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses_answer import _read_any, prune, read_answer, read_usage
from proxy.models import Action, Answer, Notice, Reason, Usage

NOTICE = Notice(action=Action.STOP, reason=Reason.CYCLE, message="why")


def body(*output: Any, **members: Any) -> bytes:
    return json.dumps({"id": "resp_1", "output": list(output), **members}).encode()


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": name, "arguments": "{}"}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


REASONING = {"type": "reasoning", "summary": []}


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (b"null", None),
        (b"[]", None),
        (b'{"total_tokens":3}', None),
        (b'{"input_tokens":3}', Usage(3, 0)),
        (b'{"output_tokens":3,"output_tokens_details":{"reasoning_tokens":9}}', Usage(0, 3, 0, 3)),
        (b'{"input_tokens":9,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":4}}', Usage(9, 0, 8, 0, 1)),
        (b'{"input_tokens":9,"input_tokens_details":[]}', Usage(9, 0)),
    ],
)
def test_usage(raw: bytes, usage: Usage | None) -> None:
    """Parts are never more than the whole."""
    assert read_usage(raw) == usage


@pytest.mark.parametrize(
    ("members", "finish", "error"),
    [
        ({"status": "completed"}, "completed", False),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens", False),
        ({"status": "failed", "error": {"code": "server_error"}}, "failed", True),
        ({}, None, False),
    ],
)
def test_ends(members: dict[str, Any], finish: str | None, error: bool) -> None:
    """In the upstream's words."""
    answer = read_answer(body(said("a"), **members))

    assert (answer.choices[0].finish, answer.error, answer.complete) == (finish, error, True)


@pytest.mark.parametrize("wrong", [b"", b"[]", b'{"output":', b"\xff"])
def test_what_is_no_answer_is_incomplete(wrong: bytes) -> None:
    """Without raising."""
    assert read_answer(wrong) == Answer()


def test_an_error_in_the_place_of_an_answer_is_one() -> None:
    """Some servers send it with status 200."""
    answer = read_answer(b'{"error":{"message":"no"}}')

    assert (answer.error, answer.complete, answer.choices) == (True, False, ())


@pytest.mark.parametrize(
    ("output", "dropped", "left"),
    [
        ([REASONING, said("a"), call("x"), call("y")], [0], ["reasoning", "message", "y"]),
        ([said("a"), REASONING, call("x")], [0], ["message"]),
        ([REASONING, call("x"), REASONING, call("y")], [1], ["reasoning", "x"]),
        ([REASONING, call("x"), REASONING, call("y")], [0], ["reasoning", "reasoning", "y"]),
        ([REASONING, call("x")], [0], ["message"]),
        ([call("x"), REASONING], [0], ["reasoning", "message"]),
        ([call("x")], [5], ["x"]),
    ],
)
def test_reasoning_goes_with_the_call_it_led_to(output: list[Any], dropped: list[int], left: list[str]) -> None:
    """Where nothing is left behind it; an answer that would say nothing says why."""
    pruned = json.loads(prune(body(*output), [(0, position) for position in dropped], NOTICE))

    assert [item.get("name", item["type"]) for item in pruned["output"]] == left
    assert pruned["lastcall"]["reason"] == "cycle"


@pytest.mark.parametrize("wrong", [b"", b"{}", b'{"output":7}', b"[1]"])
def test_what_is_no_answer_is_left_alone(wrong: bytes) -> None:
    """Byte for byte."""
    assert prune(wrong, [(0, 0)], NOTICE) is wrong


def test_calls_of_another_choice_are_none() -> None:
    """The dialect knows one alternative."""
    assert json.loads(prune(body(call("x")), [(1, 0)], NOTICE))["output"] == [call("x")]


def test_kinds_of_tokens_and_the_service_tier_are_read() -> None:
    """The tier stands beside the usage."""
    usage = {
        "input_tokens": 9,
        "output_tokens": 4,
        "input_tokens_details": {"image_tokens": 3, "audio_tokens": 2},
        "output_tokens_details": {"image_tokens": 1},
    }
    body = {"object": "response", "output": [], "service_tier": "flex", "usage": usage}

    assert read_answer(json.dumps(body).encode()).usage == Usage(9, 4, audio_input=2, image_input=3, image_output=1, tier="flex")


COUNT = st.one_of(st.none(), st.integers(-1, 9), st.sampled_from([2.0, "3", True, 2**53, 2**53 + 1, []]))
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", " ", "\n", 3]))


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


PARTS = st.one_of(TEXT, st.lists(some(type=TEXT, text=TEXT, refusal=TEXT), max_size=2))
ITEM = some(
    type=st.sampled_from(["message", "function_call", "custom_tool_call", "reasoning", "mcp_call", "web_search_call", "shell_call", None]),
    role=st.sampled_from(["assistant", None]),
    id=TEXT,
    content=PARTS,
    summary=PARTS,
    call_id=TEXT,
    name=TEXT,
    namespace=TEXT,
    arguments=TEXT,
    input=TEXT,
)
DETAILS = some(cached_tokens=COUNT, cache_write_tokens=COUNT, reasoning_tokens=COUNT, audio_tokens=COUNT, image_tokens=COUNT)
ANSWER = some(
    id=TEXT,
    model=TEXT,
    created_at=st.one_of(COUNT, st.just(2.5)),
    status=st.sampled_from([None, "", "completed", "failed", 1]),
    output=st.one_of(st.none(), st.lists(ITEM, max_size=3)),
    usage=st.one_of(st.none(), some(input_tokens=COUNT, output_tokens=COUNT, input_tokens_details=DETAILS, output_tokens_details=DETAILS)),
    error=st.sampled_from([None, {}, "no"]),
    incomplete_details=st.one_of(st.none(), some(reason=TEXT)),
    service_tier=TEXT,
)


@given(ANSWER)
def test_a_usual_answer_is_read_as_any_other(answer: dict[str, Any]) -> None:
    """What is read at once says the same as what is asked value by value."""
    raw = json.dumps(answer).encode()

    assert read_answer(raw) == _read_any(raw)


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_an_answer_as_the_standard_has_it_is_read_at_once(status: str) -> None:
    """All that such an answer has: reasoning, texts, calls of both kinds, usage with its parts."""
    details = {"input_tokens_details": {"cached_tokens": 7}, "output_tokens_details": {"reasoning_tokens": 3}}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "because"}], "encrypted_content": "x"}
    spoken = {**said("a"), "id": "msg_1", "status": "completed"}
    refused = {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "refusal", "refusal": "b"}]}
    made = {**call("c"), "id": "fc_1", "namespace": "n"}
    free = {"type": "custom_tool_call", "id": "ct_1", "call_id": "d", "name": "patch", "input": "e"}
    more: dict[str, Any] = {
        "model": "m",
        "created_at": 5,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, **details},
        "service_tier": "default",
    }
    raw, silent = body(thought, spoken, refused, made, free, **more), body(thought, **more)

    answer = read_answer(raw)

    assert answer == _read_any(raw)
    assert read_answer(silent) == _read_any(silent)
    assert read_answer(silent).choices[0].thought == "because"
    (choice,) = answer.choices
    assert (choice.text, choice.thought, choice.items) == ("a\nb", "", ("msg_1", "msg_2", "fc_1", "ct_1"))
    assert [(made.id, made.name, made.arguments, made.custom) for made in choice.calls] == [
        ("c", "n.c", "{}", False),
        ("d", "patch", "e", True),
    ]
    assert answer.usage == Usage(9, 4, 7, 3, tier="default")
