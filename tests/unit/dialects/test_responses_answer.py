"""Whole Responses answers: usage, ends, and what goes with a call that is taken out."""

import json
from typing import Any

import pytest

from proxy.dialects.responses_answer import prune, read_answer, read_usage
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
