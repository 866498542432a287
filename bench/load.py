"""The load: conversations sent over blocking sockets, one thread and one connection each, the next request after the last answer.

Or not before it is due: see `Pace`.

So little code that at concurrency 1 it adds next to nothing, and none that the servers under test share.
"""

import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.transcripts import Transcript, number
from bench.upstream import SENT

TIMEOUT_SECONDS = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nx-lastcall-session: *([^\r]+)", re.IGNORECASE)
_ACTION = re.compile(rb"\r\nx-lastcall-action: *([a-z]+)", re.IGNORECASE)
_numbers = itertools.count(1)


class Unexpected(Exception):
    """An answer that must not occur in a benchmark: the figures would be about something else."""


@dataclass(frozen=True)
class Reply:
    """How one request went, in seconds. delays: of each chunk of a stream, from upstream to client. session: what Lastcall called it."""

    first_byte: float
    whole: float
    delays: tuple[float, ...] = ()
    session: bytes = b""


@dataclass(frozen=True)
class Conversation:
    """Requests with `lengths` answered turns. named: it names its session; else the proxy has to find it by what it says."""

    transcript: Transcript
    lengths: Sequence[int]
    named: bool
    id: int = field(default_factory=lambda: next(_numbers))

    def requests(self) -> Iterator[bytes]:
        name = number(self.id)
        session = b"x-lastcall-session: bench-%b\r\n" % name if self.named else b""
        path = self.transcript.dialect.path.encode()
        for turns in self.lengths:
            body = self.transcript.body(self.id, turns)
            yield (
                b"POST /v1%b HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer sk-bench\r\nuser-agent: bench\r\n"
                b"accept: application/json\r\ncontent-type: application/json\r\nx-bench: %b-%d\r\n%bcontent-length: %d\r\n\r\n%b"
                % (path, name, turns, session, len(body), body)
            )


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> Reply:
        """Raises `Unexpected` for any answer but a success that Lastcall, if it was Lastcall, let through untouched."""
        started = time.monotonic_ns()
        self._socket.sendall(request)
        data = self._receive()
        first = time.monotonic_ns()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head, data = data[: end + 2], data[end + 4 :]
        action = _ACTION.search(head)
        if b" 200 " not in head[:13] or (action is not None and action[1] != b"allow"):
            raise Unexpected(f"expected a plain success, got: {(head + data)[:400]!r}")
        length = _LENGTH.search(head)
        delays: list[float] = []
        if length is None:
            first = self._chunks(data, delays) or first
        else:
            self._rest(int(length[1]) - len(data))
        session = _SESSION.search(head)
        whole = (time.monotonic_ns() - started) / 1e9
        return Reply((first - started) / 1e9, whole, tuple(delays), session[1] if session else b"")

    def _rest(self, missing: int) -> None:
        while missing > 0:
            missing -= len(self._receive())

    def _chunks(self, data: bytes, delays: list[float]) -> int | None:
        """Reads a chunked body to its end. When its first byte came, if it came apart from the head."""
        first, tail = None, b""
        while True:
            now = time.monotonic_ns()
            if first is None and data:
                first = now
            delays += [(now - int(sent)) / 1e9 for sent in SENT.findall(data)]
            tail = (tail + data)[-5:]
            if tail == b"0\r\n\r\n":
                return first
            data = self._receive()

    def _receive(self) -> bytes:
        data = self._socket.recv(262_144)
        if not data:
            raise Unexpected("the server closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


class Pace:
    """So many requests a second, of all connections together: each is due an interval after the one before, and none goes out before.

    A request that is due while every connection waits for an answer goes out late; those after it are due no later for that.
    """

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._start: float | None = None
        self._numbers = itertools.count()
        self._late: list[float] = []

    def wait(self) -> None:
        """Until the next request is due; the first is at once."""
        with self._lock:
            self._start = self._clock() if self._start is None else self._start
            due = self._start + next(self._numbers) * self._interval
        while (early := due - self._clock()) > 0:
            self._sleep(early)
        self._late.append(-early)

    @property
    def kept(self) -> bool:
        """Whether three in four went out in time, at most an interval late. Behind a server that cannot keep up soon none does."""
        return sum(late > self._interval for late in self._late) <= len(self._late) / 4


def at_once() -> None:
    """The pace of those who go as fast as they can."""


def converse(
    port: int, conversations: Sequence[Conversation], connections: int, seconds: float, wait: Callable[[], object] = at_once
) -> list[list[Reply]]:
    """The conversations, spread over that many connections; none is begun once the seconds are over. wait: called before each request."""
    until = time.monotonic() + seconds
    waiting = iter(conversations)  # next() on a list iterator is atomic
    with ThreadPoolExecutor(connections) as pool:
        workers = [pool.submit(_work, port, waiting, lambda: time.monotonic() < until, wait) for _ in range(connections)]
        return [replies for worker in workers for replies in worker.result()]


def _work(port: int, waiting: Iterator[Conversation], goes_on: Callable[[], bool], wait: Callable[[], object]) -> list[list[Reply]]:
    connection, done = Connection(port), list[list[Reply]]()
    try:
        while goes_on() and (conversation := next(waiting, None)) is not None:
            replies = list[Reply]()
            for request in conversation.requests():
                wait()
                replies.append(connection.send(request))
            done.append(replies)
    finally:
        connection.close()
    return done
