"""How connections to an upstream are used, and what is said when they fail."""

import asyncio
import socket
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator

import pytest
import zstandard

from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.upstream import Target
from proxy.upstream.http import Body, Response, Upstream
from tests.scripted import CHUNKED, OK, Handler, Seen, post, read_request, reset, script, serving, silent, upstream_at


async def failure(upstream: Upstream, body: Body = b"{}") -> UpstreamFailed:
    """The error of a request that gets no answer, with what holds for all of them."""
    with pytest.raises(UpstreamFailed) as failed:
        await upstream.send("POST", "/chat/completions", b"secret=query", [(b"authorization", b"Bearer secret")], body, plain=True)
    assert str(upstream) in failed.value.message
    assert "secret" not in failed.value.message
    assert failed.value.__suppress_context__
    return failed.value


# Connections


async def test_a_connection_serves_many_requests() -> None:
    """One after the other over the same, side by side over as many as it takes."""
    seen, together = Seen(), asyncio.Barrier(120)

    async def meet(_: Reader, writer: Writer) -> None:
        await together.wait()
        writer.write(OK)
        await writer.drain()

    async with serving(script(seen, OK, OK, OK)) as port, upstream_at(port) as upstream:
        for _ in range(3):
            await (await post(upstream)).read()
    assert seen.connections == 1

    async with serving(script(seen, *[meet] * 120)) as port, upstream_at(port) as upstream:
        answers = await asyncio.gather(*(post(upstream) for _ in range(120)))
        assert {await answer.read() for answer in answers} == {b"ok"}


@pytest.mark.parametrize("ending", ["close", "leave", "cancel"])
async def test_an_abandoned_answer_ends_at_the_upstream(ending: str) -> None:
    """Closed, left in the middle or cancelled: the server sees its connection end."""
    ended = asyncio.Event()

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"1\r\na\r\n")
        await reader.read()
        ended.set()

    async def leave(answer: Response) -> None:
        async for piece in answer.chunks():
            assert piece == b"a"
            if ending == "close":
                return answer.close()
            if ending == "cancel":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    async with serving(script(Seen(), talk)) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        await asyncio.wait([asyncio.create_task(leave(answer))], timeout=0.05 if ending == "leave" else 5)
        if ending == "leave":
            answer.close()
        await asyncio.wait_for(ended.wait(), 5)


async def test_closing_the_upstream_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers in the middle of an answer and requests without one are told, not left waiting."""
    monkeypatch.setattr("proxy.upstream.http._LOOK_EVERY", 0.05)

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED)
        await reader.read()

    waiting = asyncio.Event()

    async def think(reader: Reader, _: Writer) -> None:
        waiting.set()
        await reader.read()

    async with serving(script(Seen(), talk, think)) as port, upstream_at(port) as upstream:
        reading = asyncio.create_task((await post(upstream)).read())
        sending = asyncio.create_task(post(upstream))
        await waiting.wait()
        await upstream.close()
        ends = await asyncio.wait_for(asyncio.gather(reading, sending, return_exceptions=True), 5)

    assert [type(end) for end in ends] == [UpstreamCut, UpstreamFailed]


async def test_a_request_cancelled_while_it_waits_ends_at_the_upstream() -> None:
    """A client that goes away costs the model no further work."""
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def think(reader: Reader, _: Writer) -> None:
        waiting.set()
        await reader.read()
        ended.set()

    async with serving(script(Seen(), think)) as port, upstream_at(port) as upstream:
        task = asyncio.create_task(post(upstream))
        await waiting.wait()
        task.cancel()
        await asyncio.wait_for(ended.wait(), 5)
        assert task.cancelled()


@pytest.mark.parametrize("hang_up", [b"", reset], ids=["FIN", "RST"])
@pytest.mark.parametrize("body", [b"{}", b"x" * 2_000_000], ids=["small", "large"])
async def test_a_connection_that_was_closed_while_idle_costs_nothing(hang_up: bytes | Handler, body: bytes) -> None:
    """A used connection that ends without a byte of an answer: the request goes out once more."""
    seen = Seen()
    async with serving(script(seen, OK, hang_up, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        assert await (await post(upstream, body)).read() == b"ok"

    assert seen.bodies == [b"{}", body, body]
    assert seen.connections == 2


@pytest.mark.parametrize("body", [b"{}", b"x" * 2_000_000], ids=["small", "large"])
async def test_connections_that_were_all_closed_while_idle_cost_nothing(body: bytes) -> None:
    """As those through a balancer that forgot them, or led to a server that is another one now: nobody hears of it before they are used."""
    seen = Seen()
    together = asyncio.Barrier(3)

    async def forgotten(reader: Reader, writer: Writer) -> None:
        await together.wait()
        writer.write(OK)
        await read_request(reader, seen)
        await reset(reader, writer)

    async with serving(script(seen, *[forgotten] * 3, OK, OK, OK)) as port, upstream_at(port) as upstream:
        for answer in await asyncio.gather(*[post(upstream) for _ in range(3)]):
            await answer.read()
        for _ in range(3):
            assert await (await post(upstream, body)).read() == b"ok"


@pytest.mark.parametrize("hang_up", [b"", reset], ids=["FIN", "RST"])
async def test_a_new_connection_that_ends_is_an_error(hang_up: bytes | Handler) -> None:
    """The server had the request: it is sent once."""
    seen = Seen()
    async with serving(script(seen, hang_up, OK)) as port, upstream_at(port) as upstream:
        failed = await failure(upstream)

    assert (failed.status, failed.code, failed.retry) == (502, "lastcall_upstream_unreachable", True)
    assert "closed the connection before it answered" in failed.message
    assert len(seen.heads) == 1


async def test_a_request_is_repeated_once_at_most() -> None:
    """The second connection is new, and its end an error."""
    seen = Seen()
    async with serving(script(seen, OK, b"", b"", OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await failure(upstream)

    assert len(seen.heads) == 3


async def begin(_: Reader, writer: Writer) -> None:
    """Sends the beginning of an answer."""
    writer.write(b"HTTP/1.1 20")
    await writer.drain()


async def interim(_: Reader, writer: Writer) -> None:
    """Says that an answer will come, and hangs up."""
    writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    await writer.drain()


async def interim_reset(reader: Reader, writer: Writer) -> None:
    """The same, with a reset once it has been read."""
    await interim(reader, writer)
    await asyncio.sleep(0.05)
    await reset(reader, writer)


async def streamed() -> AsyncIterator[bytes]:
    yield b"{}"


@pytest.mark.parametrize(
    ("second", "body"),
    [(begin, b"{}"), (interim, b"{}"), (interim_reset, b"{}"), (b"", streamed())],
    ids=["answer begun", "interim answer", "interim answer, then a reset", "streamed body"],
)
async def test_a_request_that_cannot_be_repeated_is_not(second: bytes | Handler, body: Body) -> None:
    """An answer had begun, or the body is gone."""
    seen = Seen()
    async with serving(script(seen, OK, second, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await failure(upstream, body)

    assert len(seen.heads) == 2


async def test_a_server_that_dies_of_its_work_is_not_given_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later than a closed connection would show, the request may have been worked on."""
    monkeypatch.setattr("proxy.upstream.whole._STALE_WITHIN", 0.0)
    seen = Seen()
    async with serving(script(seen, OK, b"", OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await failure(upstream)

    assert len(seen.heads) == 2


@pytest.mark.parametrize("before", [0, 2], ids=["at first", "after usual ones"])
async def test_bytes_beyond_the_stated_length_reach_nobody(before: int) -> None:
    """A lying upstream cannot answer the next request in advance."""
    seen = Seen()
    async with serving(script(seen, *[OK] * before, OK + OK.replace(b"ok", b"no"), OK)) as port, upstream_at(port) as upstream:
        for _ in range(before):
            await (await post(upstream)).read()
        assert await (await post(upstream)).read() == b"ok"
        assert await (await post(upstream)).read() == b"ok"

    assert seen.connections == 2


# Failures before an answer


async def dripping(_: Reader, writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.05)


IMPATIENT = Target("main", "", connect_timeout=0.2, read_timeout=0.2)


@pytest.mark.parametrize(
    "answer_bytes",
    [
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
        OK.replace(b"200", b"700"),
        OK.replace(b"200", b"099"),
    ],
    ids=["not HTTP", "bad length", "endless header", "other protocol", "status above all", "status below all"],
)
async def test_garbage_is_reported(answer_bytes: bytes) -> None:
    """What is not HTTP is no answer."""
    async with serving(script(Seen(), answer_bytes)) as port, upstream_at(port) as upstream:
        failed = await failure(upstream)

    assert failed.status == 502
    assert "not valid HTTP" in failed.message


@pytest.mark.parametrize(
    ("handler", "body", "why"),
    [
        (script(Seen(), silent), b"{}", "sent nothing for 0.2 s (read_timeout)"),
        (script(Seen(), dripping), b"{}", "no answer in the time allowed"),
        (lambda reader, writer: asyncio.sleep(60), b"x" * 16_000_000, "no answer in the time allowed"),
    ],
    ids=["silent", "dripping header", "body not taken"],
)
async def test_an_upstream_that_does_not_answer_is_left(handler: Handler, body: bytes, why: str) -> None:
    """In whatever way it keeps a client waiting, the wait has an end."""
    async with serving(handler) as port, upstream_at(port, IMPATIENT) as upstream, asyncio.timeout(10):
        failed = await failure(upstream, body)

    assert (failed.status, failed.code) == (504, "lastcall_upstream_timeout")
    assert why in failed.message


async def test_a_connection_that_is_never_established_times_out() -> None:
    """A server that accepts and says nothing, where TLS should begin."""
    async with serving(silent) as port, upstream_at(port, IMPATIENT, "https") as upstream:
        failed = await failure(upstream)

    assert failed.status == 504
    assert "no connection within 0.2 s (connect_timeout)" in failed.message


async def test_an_exchange_has_the_time_it_is_given() -> None:
    """`within` ends the wait for an answer, and for its end."""

    async def begun(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED)
        await reader.read()

    async with serving(script(Seen(), silent, begun)) as port, upstream_at(port) as upstream:
        with pytest.raises(UpstreamFailed, match="time allowed") as failed:
            await upstream.send("POST", "/x", b"", [], b"", plain=True, within=0.1)
        answer = await upstream.send("POST", "/x", b"", [], b"", plain=True, within=0.1)
        with pytest.raises(UpstreamCut, match="time allowed") as cut:
            await answer.read()

    assert (failed.value.status, cut.value.status) == (504, 504)


async def test_an_unreachable_upstream_is_reported() -> None:
    """Refused, and a name that does not exist."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with upstream_at(unused.getsockname()[1]) as upstream:
            refused = await failure(upstream)
    nowhere = Upstream(Target("main", "http://nowhere.invalid/v1"))
    try:
        unresolved = await failure(nowhere)
    finally:
        await nowhere.close()

    assert (refused.status, refused.message) == (502, f"{upstream} cannot be reached: connection refused.")
    assert "the host name does not resolve" in unresolved.message


# Failures within an answer


@pytest.mark.parametrize(
    ("answer_bytes", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "broke off"),
        (CHUNKED + b"3\r\nabc\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip", "what is not gzip data"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 7\r\n\r\n" + zstandard.compress(b"abc")[:7], "no complete zstd"),
    ],
    ids=["short", "no last chunk", "bad gzip", "half a frame"],
)
async def test_an_answer_that_breaks_off_is_reported(answer_bytes: bytes, why: str) -> None:
    """Never taken for a whole one."""

    async def cut(_: Reader, writer: Writer) -> None:
        writer.write(answer_bytes)
        await writer.drain()

    async with serving(script(Seen(), cut, cut)) as port, upstream_at(port) as upstream:
        with pytest.raises(UpstreamCut, match=why) as whole:
            await (await post(upstream)).read()
        with pytest.raises(UpstreamCut, match=why):
            async for piece in (await post(upstream)).chunks():
                assert piece == b"abc"

    assert whole.value.status == 502


async def babble(reader: Reader, writer: Writer) -> None:
    writer.write(b"nonsense\r\n")
    await reader.read()


@pytest.mark.parametrize("ending", [reset, babble], ids=["reset", "bad chunk"])
async def test_an_answer_that_goes_wrong_later_is_reported(ending: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before stays good."""
    monkeypatch.setattr("proxy.upstream.http._LOOK_EVERY", 0.05)
    go = asyncio.Event()

    async def cut(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await go.wait()
        await ending(reader, writer)

    got = []
    async with serving(script(Seen(), cut)) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match="broke off"):
            async for piece in answer.chunks():
                got.append(piece)
                go.set()

    assert got == [b"abc"]


async def test_an_answer_that_went_wrong_meanwhile_is_reported() -> None:
    """While nobody was reading: the next read tells."""
    go, gone = asyncio.Event(), asyncio.Event()

    async def cut(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await go.wait()
        await babble(reader, writer)
        gone.set()

    async with serving(script(Seen(), cut)) as port, upstream_at(port) as upstream:
        chunks = (await post(upstream)).chunks()
        assert await anext(chunks) == b"abc"
        go.set()
        await gone.wait()
        with pytest.raises(UpstreamCut, match="broke off"):
            await anext(chunks)


async def test_a_slow_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at a connection again and again does it no harm."""
    monkeypatch.setattr("proxy.upstream.http._LOOK_EVERY", 0.01)

    async def slow(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED)
        for _ in range(3):
            await asyncio.sleep(0.05)
            writer.write(b"1\r\na\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with serving(script(Seen(), slow)) as port, upstream_at(port) as upstream:
        assert await (await post(upstream)).read() == b"aaa"


async def test_an_answer_that_falls_silent_is_left() -> None:
    """Silence in the middle counts as silence before."""

    async def begun(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await reader.read()

    async with serving(script(Seen(), begun)) as port, upstream_at(port, IMPATIENT) as upstream:
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match=r"sent nothing for 0\.2 s") as cut:
            await answer.read()

    assert (cut.value.status, cut.value.code) == (504, "lastcall_upstream_timeout")
