"""The way out of log lines: standard error, whole lines, in batches. A reader that has stopped reading holds up nothing else.

A write to a full pipe waits until somebody reads, which may be never. So a thread of its own does the writing, and what it cannot
get rid of is dropped beyond a bound.
"""

import contextlib
import io
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

import msgspec

_BATCH_SECONDS = 0.1  # what comes within it leaves in one system call
_MOST_WAITING = 5_000  # times that lines came, of which a busy process gives several together
_LONGEST_MESSAGE = 300  # characters
_PATIENCE = 1.0  # seconds for the last lines of a process


class Lines:
    """Takes whole lines, one or more at a time, from any thread, and never waits.

    write: takes bytes, says how many it took, may block or raise `OSError`. on_loss: told how many lines could not be written, in
    another thread.
    """

    on_loss: Callable[[int], object] | None = None

    def __init__(self, write: Callable[[bytes], int | None] | None = None) -> None:
        self._write = write or io.FileIO(2, "wb", closefd=False).write
        self._waiting: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, lines: bytes) -> None:
        """Raises `BlockingIOError` when too many lines are waiting."""
        if self._waiting.qsize() >= _MOST_WAITING:
            raise BlockingIOError(f"{_MOST_WAITING} log lines wait to be written")
        self._waiting.put(lines)
        if self._thread is None:
            self._begin()

    def flush(self) -> None:
        """Returns when all lines given so far are written, or after a second."""
        if self._thread is None:
            return
        written = threading.Event()
        self._waiting.put(written)
        self._hurry.set()
        written.wait(_PATIENCE)
        self._hurry.clear()

    def _begin(self) -> None:
        """Starts the thread with the first line, so that it lives in the process that writes."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="log lines", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            self._hurry.wait(_BATCH_SECONDS)
            with contextlib.suppress(Empty):
                while len(batch) < _MOST_WAITING:
                    batch.append(self._waiting.get_nowait())
            self._write_out(b"".join([lines for lines in batch if isinstance(lines, bytes)]))
            for item in batch:
                if isinstance(item, threading.Event):
                    item.set()

    def _write_out(self, data: bytes) -> None:
        """An error output that is full or gone takes the lines with it."""
        with contextlib.suppress(OSError):
            while data and (taken := self._write(data)):
                data = data[taken:]
        if data and self.on_loss is not None:
            self.on_loss(data.count(b"\n"))


class Handler(logging.Handler):
    """Sends what is logged otherwise, by libraries above all, the same way: as a JSON line `logged`. One that cannot be taken is dropped.

    Of a message that is its first line, of an exception kind and place: the rest may hold content or keys.
    """

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        first = record.getMessage().partition("\n")[0][:_LONGEST_MESSAGE]
        line = {
            "event": "logged",
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": "".join([character if character.isprintable() else "\ufffd" for character in first]),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line |= {"error": type(error).__name__, "place": place_of(error)}
        with contextlib.suppress(BlockingIOError):
            self._lines(msgspec.json.encode(line) + b"\n")


def place_of(error: BaseException) -> str:
    """Where an exception was raised, innermost last: `file.py:1 > file.py:2`."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames[-6:])
