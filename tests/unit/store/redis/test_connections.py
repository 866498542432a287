"""Connections to a server that says more, less or something else than it was asked for."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ResponseError

from proxy.store.command import said
from proxy.store.redis.connections import Connections, Line
from proxy.store.redis.servers import Options

Answer = Callable[[asyncio.StreamWriter, int], Awaitable[None]]

PING = said("PING")


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Connections]:
    """Connections to a server that answers what it is sent, after the handshake, with the connection's number."""
    numbers = itertools.count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(numbers)
        with contextlib.suppress(ConnectionError):
            while received := await reader.read(65536):
                if b"SETINFO" in received:
                    writer.write(b"+OK\r\n" * received.count(b"SETINFO"))
                else:
                    await answer(writer, number)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    connections = Connections(Options(f"redis://{host}:{port}", 5.0).connection, 4)
    try:
        yield connections
    finally:
        connections.drop()
        server.close()
        await until_read()


async def until_read() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_replies_in_pieces_are_put_together_in_their_order() -> None:
    """Errors among them are values."""

    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        for byte in b"+one\r\n-ERR two\r\n*2\r\n:3\r\n$-1\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(answer) as connections:
        one, two, three = await connections.exchange([PING] * 3)

    assert (one, str(two), three) == (b"one", "two", [3, None])
    assert isinstance(two, ResponseError)


async def test_what_nobody_asked_for_answers_nobody() -> None:
    """Neither behind a reply nor later: the next call has a connection of its own."""
    later: list[asyncio.StreamWriter] = []

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"+%d\r\n" % number + (b"+again\r\n" if number == 1 else b""))
        later.append(writer)

    async with serving(answer) as connections:
        first = await connections.exchange([PING])
        second = await connections.exchange([PING])
        later[-1].write(b"+late\r\n")
        await until_read()
        third = await connections.exchange([PING])

    assert (first, second, third) == ([b"1"], [b"2"], [b"3"])


async def test_what_is_no_reply_is_an_error() -> None:
    """And nothing else is read from where it came."""

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" if number == 1 else b"+good\r\n")

    async with serving(answer) as connections:
        with pytest.raises(InvalidResponse):
            await connections.exchange([PING])

        assert await connections.exchange([PING]) == [b"good"]


@pytest.mark.parametrize("last_words", [b"", b"-LOADING Redis is loading the dataset in memory\r\n"])
async def test_a_connection_that_is_lost_meanwhile_is_replaced_once(last_words: bytes) -> None:
    """The second loss is told."""

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        if number != 2:
            writer.write(last_words)
            writer.close()
        else:
            writer.write(b"+good\r\n")

    async with serving(answer) as connections:
        assert await connections.exchange([PING]) == [b"good"]
        connections.drop()
        with pytest.raises(ConnectionLost):
            await connections.exchange([PING])


async def test_whoever_gives_up_takes_the_connection_along() -> None:
    """What is answered later is not read."""
    asked = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        asked.set()
        if number > 1:
            writer.write(b"+good\r\n")

    async with serving(answer) as connections:
        call: asyncio.Task[list[Any]] = asyncio.create_task(connections.exchange([PING]))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        assert await connections.exchange([PING]) == [b"good"]


async def test_whoever_gives_up_once_it_has_its_replies_takes_nobodys_connection_along() -> None:
    """It is another caller's by then."""
    loop = asyncio.get_running_loop()
    next_call: asyncio.Task[list[Any]] | None = None

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(b"+%d\r\n" % number)

    async with serving(answer) as connections:
        free = connections._free

        def hand_over(line: Line) -> None:
            nonlocal next_call
            free(line)
            if next_call is None:
                loop.call_soon(call.cancel)
                next_call = loop.create_task(connections.exchange([PING]))

        connections._free = hand_over  # type: ignore[method-assign]
        call = loop.create_task(connections.exchange([PING]))
        with pytest.raises(asyncio.CancelledError):
            await call
        assert next_call is not None
        first = await next_call
        third = await connections.exchange([PING])

    assert (first, third) == ([b"1"], [b"1"])
