"""Cutting a stream into events and reading their fields."""

import time

import pytest

from proxy.dialects.sse import Splitter, data_of, name_of


@pytest.mark.parametrize(
    ("stream", "events", "rest"),
    [
        (b"data: a\n\ndata: b\n\n", [b"data: a\n\n", b"data: b\n\n"], b""),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"data: a\r\n\r\n", b"data: b\r\n\r\n"], b""),
        (b"data: a\r\rdata: b\r\r", [b"data: a\r\r"], b"data: b\r\r"),
        (b"data: a\r\n\ndata: b\n\r\n", [b"data: a\r\n\n", b"data: b\n\r\n"], b""),
        (b"\n\ndata: a\n\n\n: c\n\n", [b"\n", b"\n", b"data: a\n\n", b"\n", b": c\n\n"], b""),
        (b"event: x\nid: 1\nretry: 5\ndata: a\ndata: b\n\n", [b"event: x\nid: 1\nretry: 5\ndata: a\ndata: b\n\n"], b""),
        (b"\xef\xbb\xbfdata: a\n\ndata: b\n", [b"\xef\xbb\xbfdata: a\n\n"], b"data: b\n"),
        (b"", [], b""),
    ],
)
def test_events_end_at_their_blank_line(stream: bytes, events: list[bytes], rest: bytes) -> None:
    """Whatever the line ends are, and the same when the bytes come one by one."""
    whole, single = Splitter(), Splitter()

    assert whole.feed(stream) == events
    assert [event for byte in stream for event in single.feed(bytes([byte]))] == events
    assert whole.rest() == single.rest() == rest


def test_rest_is_given_once() -> None:
    """A splitter is empty after its rest was taken."""
    splitter = Splitter()
    splitter.feed(b"data: a")

    assert splitter.rest() == b"data: a"
    assert splitter.rest() == b""


def test_event_without_end_is_released_at_the_limit() -> None:
    """What grows beyond the limit goes out as it is, and later events are found again."""
    splitter = Splitter(max_event=10)

    assert splitter.feed(b"data: 7890") == []
    assert splitter.feed(b"12") == [b"data: 789012"]
    assert splitter.feed(b"34\n\ndata: b\n\n") == [b"34\n\n", b"data: b\n\n"]


def test_single_bytes_cost_linear_time() -> None:
    """Sixteen times the bytes take about sixteen times as long; scanning again from the start would take 256 times."""

    def seconds(size: int) -> float:
        splitter = Splitter()
        began = time.thread_time()  # not the time that others take of a busy machine
        for _ in range(size):
            splitter.feed(b"x")
        return time.thread_time() - began

    assert min(seconds(160_000) for _ in range(2)) < 64 * min(seconds(10_000) for _ in range(5))


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"data: a\r\n\r\n", b"a"),
        (b"data: a\r\r", b"a"),
        (b"data: a", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"data: a\nid: 7\ndata:\ndata: b\n\n", b"a\n\nb"),
        (b"event: x\ndata: a\n\n", b"a"),
        (b"data\n\n", b""),
        (b"data:\n\n", b""),
        (b": data: a\n\n", None),
        (b"event: x\n\n", None),
        (b"database: a\n\n", None),
        (b"\n", None),
        (b"", None),
    ],
)
def test_data_is_what_the_data_lines_hold(event: bytes, data: bytes | None) -> None:
    """One leading space is no part of it, several lines are joined, other fields are skipped."""
    assert data_of(event) == data


@pytest.mark.parametrize(
    ("event", "name"),
    [(b"event: error\ndata: {}\n\n", b"error"), (b"data: event\n\n", b""), (b"data: x\n\n", b""), (b"event:a\nevent:b\n\n", b"b")],
)
def test_name_is_the_last_event_line(event: bytes, name: bytes) -> None:
    """An event without such a line has no name."""
    assert name_of(event) == name
