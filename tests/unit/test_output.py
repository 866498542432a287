"""Log lines on their way out: whole, in order, in batches, and never waited for."""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from proxy import output
from proxy.output import Handler, Lines


class Pipe:
    """An error output that a test can stop reading, or close."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.read = threading.Event()
        self.read.set()
        self.entered = threading.Event()
        self.most: int | None = None
        self.gone = False

    def write(self, data: bytes) -> int:
        self.entered.set()
        self.read.wait(10)
        if self.gone:
            raise BrokenPipeError
        taken = data[: self.most]
        self.written.append(taken)
        return len(taken)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.read.set()


def test_lines_leave_whole_and_in_order(pipe: Pipe) -> None:
    """However little the output takes at once."""
    pipe.most = 3
    lines = Lines(pipe.write)
    for number in range(20):
        lines(b"line %d\n" % number)
    lines.flush()

    assert b"".join(pipe.written) == b"".join(b"line %d\n" % number for number in range(20))


def test_lines_that_come_together_leave_together(pipe: Pipe) -> None:
    """One system call for what comes within a tenth of a second."""
    lines = Lines(pipe.write)
    for _ in range(20):
        lines(b"a\n")
    lines.flush()

    assert len(pipe.written) <= 2
    assert b"".join(pipe.written) == b"a\n" * 20


def test_an_output_that_nobody_reads_holds_up_nobody(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines wait up to a bound and are refused beyond it; what waited leaves once somebody reads."""
    monkeypatch.setattr(output, "_MOST_WAITING", 5)
    pipe.read.clear()
    lines = Lines(pipe.write)
    lines(b"0\n")
    assert pipe.entered.wait(10)
    for number in range(1, 6):
        lines(b"%d\n" % number)
    with pytest.raises(BlockingIOError, match="5 log lines wait"):
        lines(b"6\n")
    pipe.read.set()
    lines.flush()

    assert b"".join(pipe.written) == b"0\n1\n2\n3\n4\n5\n"


def test_the_last_lines_are_waited_for_only_so_long(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process must be able to end."""
    monkeypatch.setattr(output, "_PATIENCE", 0.05)
    pipe.read.clear()
    lines = Lines(pipe.write)
    lines(b"a\n")
    started = time.monotonic()
    lines.flush()

    assert time.monotonic() - started < 5
    assert pipe.written == []


def test_an_output_that_is_gone_takes_its_lines_along(pipe: Pipe) -> None:
    """And is tried again with the next. How many were lost is told."""
    lines, lost = Lines(pipe.write), list[int]()
    lines.on_loss = lost.append
    pipe.gone = True
    lines(b"a\n")
    lines(b"b\nc\n")
    lines.flush()
    pipe.gone = False
    lines(b"d\n")
    lines.flush()

    assert (pipe.written, sum(lost)) == ([b"d\n"], 3)


def test_lines_of_which_nothing_is_taken_are_lost() -> None:
    """As by an output that does not wait and is full; what has left whole is not among them."""
    taken, lost = iter([3, None]), list[int]()
    lines = Lines(lambda _: next(taken))
    lines.on_loss = lost.append
    lines(b"a\nb\nc\n")
    lines.flush()

    assert lost == [2]


def test_nothing_is_waited_for_where_nothing_was_said(pipe: Pipe) -> None:
    """Nor is a thread started."""
    Lines(pipe.write).flush()

    assert not pipe.entered.is_set()


def test_what_libraries_log_goes_the_same_way(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a JSON line of what is harmless; what cannot be taken is dropped."""
    lines = Lines(pipe.write)
    try:
        raise ValueError("sk-secret")
    except ValueError:
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "odd \ud800\x1b[31m %s\nsk-secret", ("one",), sys.exc_info())
    Handler(lines).handle(record)
    lines.flush()
    monkeypatch.setattr(output, "_MOST_WAITING", 0)
    Handler(lines).handle(record)

    (written,) = pipe.written
    line = json.loads(written)
    assert written.count(b"\n") == 1
    assert line.pop("ts").endswith("Z")
    assert line.pop("place").startswith("test_output.py:")
    assert line == {
        "event": "logged",
        "level": "warning",
        "logger": "uvicorn.error",
        "message": "odd \ufffd\ufffd[31m one",
        "error": "ValueError",
    }
