"""Clients that let their connection wait: with half a request, or for somebody to take an answer. The clock is the test's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn

from proxy.asgi import Receive, Scope, Send
from proxy.connection import Protocol

TIMEOUT = 60.0
HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n"
WHOLE = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"


class Transport(asyncio.Transport):
    """Takes everything, unless `full`. closed: None, "gently" or "at once"."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed: str | None = None
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed is not None

    def close(self) -> None:
        self.closed = self.closed or "gently"

    def abort(self) -> None:
        self.closed = "at once"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Handle:
    """A call that is due."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """The running loop with a clock of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handles: list[Handle] = []
        self._now = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object]) -> Handle:
        self._handles.append(Handle(self._now + delay, callback))
        return self._handles[-1]

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while (first := min(self._handles, key=lambda one: one.due, default=None)) is not None and first.due <= end:
            self._handles.remove(first)
            self._now = first.due
            if first.callback is not None:
                first.callback()
        self._now = end


class Connection:
    """One connection to an application that answers when it is told to, having read what there is, or nothing."""

    def __init__(self, *, reads: bool = True) -> None:
        config = uvicorn.Config(self._answer, log_config=None, lifespan="off", interface="asgi3", proxy_headers=False)
        config.load()
        self.clock = Clock()
        self.transport = Transport()
        self.told_gone = asyncio.Event()
        self.answers = asyncio.Event()
        self.reads = reads
        self.protocol = Protocol(config, uvicorn.server.ServerState(), {}, self.clock, client_timeout=TIMEOUT)  # type: ignore[arg-type]
        self.protocol.connection_made(self.transport)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.reads:
            message = await receive()
            while message.get("more_body"):
                message = await receive()
            if message["type"] == "http.disconnect":
                self.told_gone.set()
                return
        await self.answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def takes(self, *pieces: bytes, every: float = 0.0) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)
            await settled()
            self.clock.advance(every)

    async def waits(self, seconds: float) -> str | None:
        """How the connection was ended, None while it stands."""
        self.clock.advance(seconds)
        await settled()
        return self.transport.closed


Connect = Callable[..., Connection]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes connections, and ends what they began."""
    made: list[Connection] = []

    def new(*, reads: bool = True) -> Connection:
        made.append(Connection(reads=reads))
        return made[-1]

    yield new
    for connection in made:
        connection.answers.set()
        connection.protocol.connection_lost(None)
        await asyncio.gather(*connection.protocol.tasks)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("begun", [(b"POST /",), (HEAD,), (HEAD, b"half")], ids=["half a head", "a head", "half a body"])
async def test_who_does_not_go_on_is_told_and_let_go(connect: Connect, begun: tuple[bytes, ...]) -> None:
    """With 408, not before the time-out and not much after it."""
    connection = connect()
    await connection.takes(*begun)

    assert await connection.waits(TIMEOUT) is None
    assert await connection.waits(TIMEOUT / 2) == "gently"
    head, _, body = connection.transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"content-length: %d" % len(body) in head
    assert b"server.client_timeout" in body


async def test_a_connection_that_nobody_uses_is_closed_without_a_word(connect: Connect) -> None:
    """Some clients open one in advance: whatever came would be taken for the answer to their first request."""
    connection = connect()

    assert await connection.waits(2 * TIMEOUT) is not None
    assert connection.transport.written == b""


async def test_the_application_learns_that_the_client_was_let_go(connect: Connect) -> None:
    """Nobody waits for a body that never comes."""
    connection = connect()
    await connection.takes(HEAD)
    await connection.waits(2 * TIMEOUT)
    connection.protocol.connection_lost(None)

    async with asyncio.timeout(5):
        await connection.told_gone.wait()


async def test_a_drip_is_slow(connect: Connect) -> None:
    """A byte now and then does not buy time."""
    connection = connect()
    await connection.takes(HEAD, *[b"x"] * 18, every=5)

    assert connection.transport.closed == "gently"


async def test_a_steady_client_is_not_slow(connect: Connect) -> None:
    """However long its request takes."""
    connection = connect()
    await connection.takes(HEAD, *[b"x" * 5000] * 100, every=10)

    assert connection.transport.closed is None


async def test_each_request_has_its_own_time(connect: Connect) -> None:
    """What an earlier one brought, or waited for, is no matter."""
    connection = connect()
    connection.answers.set()
    await connection.takes(WHOLE[:-1], every=50)
    await connection.takes(WHOLE[-1:])
    assert connection.transport.written.endswith(b"ok")
    await connection.takes(b"POST /", every=TIMEOUT)

    assert connection.transport.closed is None
    assert await connection.waits(TIMEOUT / 2) == "gently"
    assert connection.transport.written.count(b"HTTP/1.1 408 ") == 1


async def test_who_waits_for_an_answer_is_not_slow(connect: Connect) -> None:
    """A model may think for an hour; line ends behind the body are no request."""
    connection = connect()
    await connection.takes(WHOLE, b"\r\n")

    assert await connection.waits(3600) is None


async def test_a_body_that_the_proxy_does_not_read_on_is_not_the_clients_fault(connect: Connect) -> None:
    """It is an upstream that takes it slowly."""
    connection = connect(reads=False)
    await connection.takes(HEAD, b"x" * 70_000)

    assert await connection.waits(3600) is None


async def test_a_request_that_waits_for_its_turn_may_come_slowly(connect: Connect) -> None:
    """What would be said of it would be a part of the answer before it."""
    connection = connect()
    await connection.takes(WHOLE + HEAD)

    assert await connection.waits(3600) is None
    connection.answers.set()
    await settled()
    assert connection.transport.written.endswith(b"ok")
    assert await connection.waits(2 * TIMEOUT) is not None


async def test_a_body_that_nobody_wants_any_more_is_not_waited_for(connect: Connect) -> None:
    """The answer has gone out: there is nothing left to say."""
    connection = connect(reads=False)
    connection.answers.set()
    await connection.takes(HEAD, b"half")

    assert await connection.waits(2 * TIMEOUT) == "at once"
    assert b"408" not in connection.transport.written


@pytest.mark.parametrize("before", [(), (WHOLE,)], ids=["the first of its kind", "one like the one before"])
async def test_a_body_behind_its_answer_may_take_its_time(connect: Connect, before: tuple[bytes, ...]) -> None:
    """Closed in the middle of it, many clients would never see the answer; behind its end the time for the next request begins."""
    connection = connect(reads=False)
    connection.answers.set()
    await connection.takes(*before, HEAD, *[b"x" * 5000] * 199, every=1)
    assert connection.transport.closed is None

    await connection.takes(b"x" * 5000 + b"\n")
    assert await connection.waits(4) is None
    assert await connection.waits(2) == "gently"
    assert connection.transport.written.count(b"HTTP/1.1 200 ") == len(before) + 1


@pytest.mark.parametrize("taken", [0, 20_000])
async def test_who_does_not_take_its_answer_is_cut(connect: Connect, taken: int) -> None:
    """Nothing, or too little: one that hangs would hold the upstream's answer for ever. Taking some gives time in proportion."""
    connection = connect()
    await connection.takes(WHOLE)
    connection.transport.unsent = 100_000
    connection.protocol.pause_writing()
    connection.clock.advance(TIMEOUT / 4)
    connection.transport.unsent -= taken

    assert await connection.waits(TIMEOUT + taken / 500 - 1) is None
    assert await connection.waits(TIMEOUT / 2) == "at once"


async def test_who_makes_room_in_time_is_not_slow(connect: Connect) -> None:
    """Each wait is one of its own."""
    connection = connect()
    await connection.takes(WHOLE)
    for _ in range(10):
        connection.protocol.pause_writing()
        assert await connection.waits(TIMEOUT) is None
        connection.protocol.resume_writing()


async def test_a_closed_connection_is_not_kept_by_what_nobody_takes(connect: Connect) -> None:
    """Closing waits until everything is written, which may be never."""
    connection = connect()
    await connection.takes(WHOLE)
    connection.transport.unsent = 100
    connection.transport.close()

    assert await connection.waits(2 * TIMEOUT) == "at once"


async def test_a_connection_that_is_gone_is_not_looked_at(connect: Connect) -> None:
    """Its timer goes with it."""
    connection = connect()
    connection.protocol.connection_lost(None)

    assert await connection.waits(2 * TIMEOUT) == "gently"  # uvicorn's own way of letting go
    assert connection.transport.written == b""
