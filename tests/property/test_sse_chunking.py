"""However a stream is cut into chunks, its events are the same and no byte is lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.sse import Splitter, data_of

PIECES = st.sampled_from(
    [b"data: a", b"data:b", b"event: x", b": c", b"id: 1", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"x"]
)
STREAMS = st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=80)


def events(chunks: list[bytes], max_event: int = 1 << 20) -> tuple[list[bytes], bytes]:
    splitter = Splitter(max_event)
    found = [event for chunk in chunks for event in splitter.feed(chunk)]
    return found, splitter.rest()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(marks)]


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunking_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    """Byte by byte, in one piece, or anywhere between."""
    assert events(cut(stream, places)) == events([stream]) == events([bytes([byte]) for byte in stream])


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12), st.integers(1, 40))
def test_no_byte_is_lost_or_changed(stream: bytes, places: list[int], max_event: int) -> None:
    """The events and the rest are the stream, also when events are released at the limit."""
    found, rest = events(cut(stream, places), max_event)

    assert b"".join(found) + rest == stream


@given(STREAMS)
def test_events_hold_one_blank_line_at_their_end(stream: bytes) -> None:
    """An event read again as a stream of its own (and followed by another byte) is one event with the same data."""
    found, _ = events([stream])

    for event in found:
        assert events([event + b":"]) == ([event], b":")


@given(STREAMS)
def test_data_is_read_from_any_bytes(stream: bytes) -> None:
    """Nothing is raised, and data never holds a line end that was not between two data lines."""
    data = data_of(stream)

    assert data is None or data.count(b"\n") < max(1, stream.count(b"data"))
