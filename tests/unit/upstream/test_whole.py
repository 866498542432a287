"""Requests that go out in one piece: as a session sends them, and what becomes of one that leaves slowly."""

import asyncio
import inspect
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from unittest.mock import Mock

import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector

from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.upstream import Target
from proxy.upstream.arrived import Forms
from proxy.upstream.http import Upstream
from proxy.upstream.whole import Answer, Line, Pool
from tests.scripted import CHUNKED, OK, Seen, post, read_request, reset, script, serving, upstream_at

LARGE = b"x" * 16_000_000  # more than lies between two sockets
HEADERS = [(b"authorization", b"Bearer key"), (b"User-Agent", b"agent"), (b"content-type", b"application/json"), (b"x-name", b"Zo\xc3\xab")]


@pytest.fixture
def large_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies go out in one piece too, so that one can be seen to leave slowly."""
    monkeypatch.setattr("proxy.upstream.http._WHOLE_BODY", len(LARGE))


def test_what_is_used_beyond_the_documented_interface_is_there() -> None:
    """A release of aiohttp that changes one of these is noticed here, and not by a client."""
    assert list(inspect.signature(BaseConnector.connect).parameters) == ["self", "req", "traces", "timeout"]
    told = {"read_until_eof", "auto_decompress", "read_timeout", "max_line_size", "max_field_size"}
    assert told <= set(inspect.signature(ResponseHandler.set_response_params).parameters)
    used = (
        "_parser",
        "data_received",
        "exception",
        "is_connected",
        "read",
        "read_timeout",
        "set_exception",
        "should_close",
        "writing_paused",
    )
    assert all(hasattr(ResponseHandler, name) for name in used)
    for name in ("_get", "_release", "_close"):
        assert inspect.signature(getattr(BaseConnector, name)).parameters.keys() == inspect.signature(getattr(Pool, name)).parameters.keys()


async def test_the_pool_is_used_by_whoever_connects() -> None:
    """aiohttp makes its connections by the factory, and gives them back by `_release`."""
    for whole in (True, False):
        async with serving(script(Seen(), OK)) as port, upstream_at(port) as upstream:
            if not whole:
                upstream._way = None
            await (await post(upstream)).read()
            pool = upstream._session.connector
            assert isinstance(pool, Pool)
            assert [type(line) for line in pool._kept._waiting] == [Line]


async def test_a_pool_that_is_closed_keeps_nothing() -> None:
    """Also where the answer had come, and was only taken notice of afterwards."""
    async with serving(script(Seen(), OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        pool = upstream._session.connector
        assert isinstance(pool, Pool)
        line = pool.take()
        assert line is not None
        await upstream.close()
        pool.give_back(line)
        assert not pool._kept._waiting
        assert not line.is_connected()


@pytest.mark.parametrize("body", [b"", b'{"model": "m"}'], ids=["empty", "usual"])
async def test_it_is_the_request_that_a_session_sends(body: bytes) -> None:
    """To the byte: request line, fields and their order, body."""
    seen = Seen()
    async with serving(script(seen, OK, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream, body, HEADERS)).read()
        upstream._way = None
        await (await post(upstream, body, HEADERS)).read()

    assert seen.heads[0] == seen.heads[1]
    assert seen.bodies == [body, body]
    assert seen.connections == 1


@pytest.mark.parametrize("before", [0, 2], ids=["parsed", "taken apart"])
@pytest.mark.parametrize("whole", [True, False], ids=["in one piece", "in a session"])
@pytest.mark.parametrize(
    "unasked", [OK.replace(b"ok", b"no"), b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 20"], ids=["answer", "interim", "beginning"]
)
async def test_what_came_unasked_answers_nobody(unasked: bytes, whole: bool, before: int) -> None:
    """A second answer that follows when its connection is back in the pool would be one behind for every client from then on."""
    seen = Seen()
    asked, sent = asyncio.Event(), asyncio.Event()

    async def twice(_: Reader, writer: Writer) -> None:
        writer.write(OK)
        await asked.wait()
        writer.write(unasked)
        await writer.drain()
        sent.set()
        await asyncio.sleep(60)

    async with serving(script(seen, *[OK] * before, twice, OK)) as port, upstream_at(port) as upstream:
        if not whole:
            upstream._way = None
        for _ in range(before):
            await (await post(upstream)).read()
        assert await (await post(upstream)).read() == b"ok"
        asked.set()
        await sent.wait()
        await _heard(upstream)
        assert await (await post(upstream)).read() == b"ok"

    assert seen.connections == 2


@pytest.mark.usefixtures("large_as_well")
@pytest.mark.parametrize("before", [0, 2], ids=["parsed", "taken apart"])
async def test_an_answer_may_come_before_the_request_has_left(before: int) -> None:
    """It is passed on, and nobody gets its connection after it."""
    seen = Seen()

    async def refuse(reader: Reader, writer: Writer) -> None:
        if not seen.connections:
            seen.connections += 1
            for _ in range(before):
                await read_request(reader, seen)
                writer.write(OK)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await reader.read()
        else:
            await script(seen, OK)(reader, writer)

    async with serving(refuse) as port, upstream_at(port) as upstream:
        for _ in range(before):
            await (await post(upstream)).read()
        assert await (await post(upstream, LARGE)).read() == b"ok"
        assert await (await post(upstream)).read() == b"ok"

    assert seen.connections == 2
    assert seen.bodies == [b"{}"] * (before + 1)


@pytest.mark.usefixtures("large_as_well")
async def test_a_connection_that_fails_is_told_to_whoever_waits() -> None:
    """Whenever it does: before an answer is expected, while it is, and beside one that was given up."""
    loop = asyncio.get_running_loop()
    before, meanwhile, given_up = (Line(loop, Forms(), 1.0, 8190) for _ in range(3))
    before.set_exception(ConnectionError())
    told = [line.expect(0.0) for line in (before, meanwhile, given_up)]
    told[2].cancel()
    for line in (meanwhile, given_up):
        line.set_exception(ConnectionError(), OSError())

    assert [await one for one in told[:2]] == [None, None]
    for line in (before, meanwhile, given_up):
        with pytest.raises(ConnectionError):
            await line.read()


async def test_a_request_that_is_given_up_within_its_turn_is_not_sent() -> None:
    """Its connection is closed by then, or lost."""
    line, transport = Line(asyncio.get_running_loop(), Forms(), 1.0, 8190), Mock()
    line.leave(b"before there was a connection")
    line.connection_made(transport)
    line.expect(0.0)
    transport.is_closing.return_value = True
    line.leave(b"given up")
    transport.is_closing.return_value = False
    line.leave(b"sent")

    transport.write.assert_called_once_with(b"sent")
    transport.close.assert_not_called()


async def test_what_answers_before_it_is_asked_is_not_asked_any_more() -> None:
    """The answer to a request that left afterwards would be that of the next one."""
    line, transport = Line(asyncio.get_running_loop(), Forms(), 1.0, 8190), Mock()
    transport.is_closing.return_value = False
    line.connection_made(transport)
    told = line.expect(0.0)
    line.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    line.leave(b"too late")

    assert told.done()
    transport.write.assert_not_called()
    transport.close.assert_called_once()


async def test_silence_begins_when_the_request_has_left() -> None:
    """A server that takes its time to read a body has as much again for its answer."""

    async def slow(reader: Reader, writer: Writer) -> None:
        await asyncio.sleep(0.3)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(LARGE))
        writer.write(OK)
        await writer.drain()

    async with serving(slow) as port, upstream_at(port, Target("main", "", connect_timeout=5, read_timeout=0.2)) as upstream:
        assert await (await post(upstream, LARGE)).read() == b"ok"


@pytest.mark.usefixtures("large_as_well")
async def test_silence_is_not_counted_for_an_answer_that_began_before_the_request_had_left() -> None:
    """It would be for whatever request the connection carries by then."""
    read, end = asyncio.Event(), asyncio.Event()

    async def eager(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED)
        await read.wait()
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(LARGE))
        await end.wait()
        writer.write(b"2\r\nok\r\n0\r\n\r\n")
        await reader.read()

    async with serving(eager) as port, upstream_at(port) as upstream:
        answer = await post(upstream, LARGE)
        begun = answer._answer
        assert isinstance(begun, Answer)
        assert begun._leaving is not None
        read.set()
        await begun._leaving
        assert upstream._way is not None
        assert not upstream._way._silent._waiting
        end.set()
        assert await answer.read() == b"ok"


@pytest.mark.usefixtures("large_as_well")
@pytest.mark.parametrize("patience", [0.2, 5], ids=["never taken", "never answered"])
async def test_a_request_that_leads_to_nothing_is_given_up(patience: float) -> None:
    """Its body is not taken in the time allowed, or is and no answer follows."""

    async def take(reader: Reader, _: Writer) -> None:
        if patience > 1:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(LARGE))
        await asyncio.sleep(60)

    target = Target("main", "", connect_timeout=patience, read_timeout=0.2)
    async with serving(take) as port, upstream_at(port, target) as upstream, asyncio.timeout(10):
        why = await _failure(upstream)

    assert ("sent nothing for 0.2 s" if patience > 1 else "no answer in the time allowed") in why


@pytest.mark.usefixtures("large_as_well")
async def test_a_connection_that_is_lost_on_the_way_is_reported() -> None:
    """The server hangs up in the middle of the body."""

    async def hang_up(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reset(reader, writer)

    async with serving(hang_up) as port, upstream_at(port) as upstream:
        assert "closed the connection before it answered" in await _failure(upstream)


async def test_an_answer_that_comes_in_one_piece_needs_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the like of it is known; what does not come so is parsed, over the same connection, and neither is in the other's way."""
    parsed = Mock(side_effect=Line.set_response_params)
    monkeypatch.setattr(Line, "set_response_params", lambda line, **given: parsed(line, **given))
    seen = Seen()
    answers = [OK, OK, OK, CHUNKED + b"2\r\nok\r\n0\r\n\r\n", OK]
    async with serving(script(seen, *answers)) as port, upstream_at(port) as upstream:
        counts = []
        for _ in answers:
            answer = await post(upstream)
            assert (answer.status, answer.reason, await answer.read()) == (200, "OK", b"ok")
            counts.append(parsed.call_count)

    assert counts == [1, 2, 2, 3, 3]
    assert seen.connections == 1


async def test_an_answer_that_comes_in_one_piece_can_be_read_in_pieces() -> None:
    """It is one, or none, and a limit holds for it."""
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with serving(script(Seen(), *[OK] * 4, *[empty] * 3)) as port, upstream_at(port) as upstream:
        for _ in range(2):
            await (await post(upstream)).read()
        answer = await post(upstream)
        assert [piece async for piece in answer.chunks()] == [b"ok"]
        answer.close()
        with pytest.raises(UpstreamCut, match="more than the 1 bytes"):
            await (await post(upstream)).read(1)
        assert [[piece async for piece in (await post(upstream)).chunks()] for _ in range(3)] == [[], [], []]


async def _heard(upstream: Upstream) -> None:
    """Waits until something has come on the one connection in the pool."""
    assert isinstance(upstream._session.connector, Pool)
    (protocol,) = upstream._session.connector._kept._waiting
    while not protocol.should_close:  # noqa: ASYNC110 - nothing says so by itself
        await asyncio.sleep(0.001)


async def _failure(upstream: Upstream) -> str:
    with pytest.raises(UpstreamFailed) as failed:
        await post(upstream, LARGE)
    return failed.value.message
