"""Whatever stands in a file, reading it raises nothing and says what was left out; replaying it raises nothing either."""

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.policy import Policy
from proxy.replay.command import replayed
from proxy.replay.formats import read

GOLDEN = [path.read_bytes() for path in sorted((Path(__file__).parents[1] / "golden" / "replay").glob("*.json*"))]
KEYS = st.sampled_from(
    [
        *("role", "content", "messages", "turns", "calls", "name", "arguments", "type", "message", "payload", "trajectory", "input", "id"),
        *("action", "result", "tool_calls", "function", "output", "sessionId", "uuid", "usage", "response", "choices", "isSidechain"),
    ]
)
WORDS = st.sampled_from(["user", "assistant", "tool", "function_call", "tool_use", "response_item", "compacted", "message", "", "\ud83d"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=25)


def replay(data: bytes) -> None:
    reading = read("f", data)
    rows = replayed([reading], Policy())
    assert len(rows) == len(reading.recordings)
    assert reading.recordings or reading.faults
    assert all("f" in str(fault) for fault in reading.faults)


@given(st.binary(max_size=200))
@example(b"\x1f\x8b\x08")
@example(b"[" * 50_000)
def test_odd_bytes_are_reported(data: bytes) -> None:
    """Never raised."""
    replay(data)


@given(st.lists(JSON, min_size=1, max_size=6), st.booleans())
def test_odd_values_are_reported(values: list[Any], whole: bool) -> None:
    """JSON of the right words in the wrong places, as one list or a value a line."""
    replay(json.dumps(values).encode() if whole else "\n".join(map(json.dumps, values)).encode())


@given(st.sampled_from(GOLDEN), st.data())
def test_damaged_recordings_are_read_as_far_as_they_go(recording: bytes, data: st.DataObject) -> None:
    """Cut anywhere, or with some bytes replaced."""
    start = data.draw(st.integers(0, len(recording)))
    length = data.draw(st.integers(0, 40))
    replay(recording[:start] + data.draw(st.binary(max_size=8)) + (recording[start + length :] if data.draw(st.booleans()) else b""))
