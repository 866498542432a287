"""What was held of a messages stream, with calls left out of it."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.dialects.messages import Messages
from proxy.dialects.messages_rest import without_blocks
from proxy.dialects.sse import Splitter
from proxy.models import Action, Answer, Begun, Head, Notice, Reason

MESSAGES = Messages()
NOTICE = Notice(action=Action.STOP, reason=Reason.CYCLE, message="why")
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "messages"
PARALLEL = Splitter().feed((GOLDEN / "parallel.sse").read_bytes())  # text, then the calls Read, Read and Bash
ALL = {(0, 0), (0, 1), (0, 2)}


def read(stream: bytes) -> Answer:
    reader = MESSAGES.reader()
    for event in Splitter().feed(stream):
        reader.feed(event)
    return reader.answer()


def rest(events: list[bytes], first_held: int, drop: Collection[tuple[int, int]], *, called: bool = False) -> bytes:
    """The whole stream as the client gets it: what went out before the first held event, and what comes of the others."""
    reader = MESSAGES.reader()
    for event in events[: first_held + 1]:
        reader.feed(event)
    sent = reader.sent()
    for event in events[first_held + 1 :]:
        reader.feed(event)
    answer = reader.answer()
    calls = tuple(call for place, call in enumerate(answer.choices[0].calls) if (0, place) not in drop)
    left = msgspec.structs.replace(answer, choices=(msgspec.structs.replace(answer.choices[0], calls=calls),))
    begun = Begun(Head("msg_02", "m", 5), started=first_held > 0, called=called, sent=sent if first_held else None)
    tail = MESSAGES.stream_rest(begun, left, answer.usage, NOTICE, drop=drop, held=events[first_held:], reader=reader)
    return b"".join(events[:first_held]) + tail


def numbers(stream: bytes) -> list[int]:
    events = [json.loads(event.split(b"data: ")[1]) for event in Splitter().feed(stream)]
    return [event["index"] for event in events if event["type"] == "content_block_start"]


@pytest.mark.parametrize(
    ("drop", "names", "finish"),
    [
        ({(0, 0)}, ["Read", "Bash"], "tool_use"),
        ({(0, 1)}, ["Read", "Bash"], "tool_use"),
        ({(0, 2), (1, 0), (0, 9)}, ["Read", "Read"], "tool_use"),
        (ALL, [], "end_turn"),
    ],
)
@pytest.mark.parametrize("first_held", [0, 4])
def test_the_other_blocks_go_on_as_they_came(drop: set[tuple[int, int]], names: list[str], finish: str, first_held: int) -> None:
    """Numbered without a gap, the notice in the last event, all else to the byte: also where nothing had gone out."""
    stream = rest(PARALLEL, first_held, drop)

    answer = read(stream)
    assert ([call.name for call in answer.choices[0].calls], answer.choices[0].finish) == (names, finish)
    assert (answer.choices[0].text, answer.complete) == ("Both.", True)
    assert numbers(stream) == list(range(1 + len(names)))
    assert json.loads(stream.split(b"data: ")[-1])["lastcall"]["reason"] == "cycle"
    assert b'"stop_reason": "tool_use"' in stream or finish == "end_turn"


def test_calls_that_went_out_stay() -> None:
    """Even where they are among those to leave out; the message ends as one with calls."""
    first_held = next(place for place, event in enumerate(PARALLEL) if b"toolu_2" in event)
    stream = rest(PARALLEL, first_held, ALL, called=True)

    answer = read(stream)
    assert ([call.id for call in answer.choices[0].calls], answer.choices[0].finish) == (["toolu_1"], "tool_use")
    assert numbers(stream) == [0, 1]


def test_a_stream_that_was_cut_is_brought_to_its_end() -> None:
    """The upstream was not heard out, so there is no end to edit."""
    upto = next(place for place, event in enumerate(PARALLEL) if b"toolu_3" in event)
    stream = rest(PARALLEL[: upto + 1], 4, {(0, 2)})

    answer = read(stream)
    assert ([call.id for call in answer.choices[0].calls], answer.complete) == (["toolu_1", "toolu_2"], True)
    assert numbers(stream) == [0, 1, 2]


@pytest.mark.parametrize("odd", [b": c\n\n", b"data: [1]\n\n", b"data: {\n\n", b"event: ping\ndata: {}\n\n"])
def test_what_is_no_part_of_a_block_passes(odd: bytes) -> None:
    """To the byte."""
    end: Any = b'data: {"type":"message_stop"}\n\n'

    assert (without_blocks([odd, end], {0}, NOTICE, called=True) or b"").startswith(odd)
