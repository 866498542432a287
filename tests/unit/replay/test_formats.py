"""Which format a file is in, told by its content; what is left out and what is said of it."""

import json
from typing import Any

import pytest

from proxy.replay.formats import read

ASK = {"role": "user", "content": "find it"}
SAID = {"role": "assistant", "content": "There."}
RUN = {"id": "r1", "turns": [{"role": "user", "text_len": 3}]}


def lines(*values: Any) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def names(data: bytes) -> list[str]:
    return [recording.id for recording in read("f", data).recordings]


@pytest.mark.parametrize(
    ("data", "format", "recordings"),
    [
        (lines(RUN, RUN | {"id": "r2"}), "corpus", ["r1", "r2"]),
        (lines(ASK, SAID), "chat", ["f"]),
        (lines([ASK, SAID]), "chat", ["f"]),
        (lines({"name": "ls", "arguments": {}}), "calls", ["f"]),
        (lines({"trajectory": []}), "swe_agent", ["f"]),
        (lines({"messages": [ASK, SAID]}), "chat", ["f"]),
        (lines([{"messages": [ASK, SAID]}, {"messages": [SAID]}]), "chat", ["f#1", "f#2"]),
        (lines([ASK, SAID], [SAID, ASK]), "chat", ["f#1", "f#2"]),
        (lines([[ASK, SAID], [SAID, ASK]]), "chat", ["f#1", "f#2"]),
        (lines({"messages": [ASK]}, {"messages": [ASK, SAID]}), "chat", ["f#1"]),
    ],
)
def test_a_file_is_told_by_what_stands_in_it(data: bytes, format: str, recordings: list[str]) -> None:
    """One recording a line, one in all, lists of either; requests that grow are one."""
    found = read("f", data)
    assert (found.format, [recording.id for recording in found.recordings], found.faults) == (format, recordings, ())


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"hello", "f: not JSON"),
        (lines({"a": 1}), "f, line 1: not a recording that is known; expected one of: objects with `id` and `turns`"),
        (b"\n\n3", "f, line 1: not a recording that is known"),
        (b"[]", "f: not a recording that is known"),
        (b"Lastcall listens\n" + lines({"event": "logged"}), "f, line 2: not a recording that is known"),
    ],
)
def test_a_file_that_holds_no_recording_says_what_was_expected(data: bytes, fault: str) -> None:
    """And has no format."""
    found = read("f", data)
    assert (found.format, found.recordings) == (None, ())
    assert str(found.faults[-1]).startswith(fault)


@pytest.mark.parametrize(
    ("data", "recordings", "fault"),
    [
        (lines(RUN, {"turns": [3]}), ["r1"], "f, line 2: turn 1 is none: expected role user"),
        (lines(RUN, {"a": 1}, 3), ["r1"], "f, line 2: not objects with `id` and `turns`"),
        (
            lines(ASK, {"a": 1}, SAID),
            ["f"],
            "f, line 2: not objects with `messages`, or messages with a `role` (chat completions); left out",
        ),
        (lines({"messages": [ASK, 3]}), [], "f, line 1: `messages[1]` is of type int"),
        (lines(ASK) + b"{", ["f"], "f, line 2: not JSON"),
        (lines({"name": "", "args": {}}), [], "f, line 1: a call without a name"),
    ],
)
def test_what_does_not_fit_is_left_out_and_named(data: bytes, recordings: list[str], fault: str) -> None:
    """By its line, with what was expected; the rest is read."""
    found = read("f", data)
    assert [recording.id for recording in found.recordings] == recordings
    assert str(found.faults[0]).startswith(fault)


def test_entries_that_do_not_fit_are_named_once() -> None:
    """A file of another kind would fill the screen."""
    (fault,) = read("f", lines(ASK, *[{"a": 1}] * 50, SAID)).faults
    assert str(fault).endswith("left out (and 49 more)")
