"""The way out against real servers on loopback, well-behaved and otherwise.

Most servers here are a script: a list of answers, one a request, in raw bytes. Every test ends with a look at the pool: no connection
may still be in use.
"""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from proxy.errors import ProxyError, UpstreamCut, UpstreamFailed
from proxy.upstream import Target
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Body, Response, Upstream

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Handler = Callable[[Reader, Writer], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
KEY = "sk-secret"


@dataclass
class Seen:
    """What a server received: request heads (lines) and bodies, and how many connections brought them."""

    heads: list[list[str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on a free port, and an end to all its connections."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side went away, or the test is over
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: Reader, seen: Seen) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
    seen.heads.append(head)
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    if "content-length" in fields:
        seen.bodies.append(await reader.readexactly(int(fields["content-length"])))
    elif "transfer-encoding" in fields:
        seen.bodies.append(await reader.readuntil(b"0\r\n\r\n"))


def script(seen: Seen, *answers: bytes | Handler) -> Handler:
    """Answers request after request, over however many connections; b"" hangs up instead."""
    left = iter(answers)

    async def handle(reader: Reader, writer: Writer) -> None:
        seen.connections += 1
        while True:
            await read_request(reader, seen)
            answer = next(left)
            if not answer:
                return
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(reader, writer)
                return

    return handle


@asynccontextmanager
async def upstream_at(port: int, target: Target | None = None, scheme: str = "http") -> AsyncIterator[Upstream]:
    base = target or Target("main", "", connect_timeout=5, read_timeout=5)
    upstream = Upstream(replace(base, base_url=f"{scheme}://127.0.0.1:{port}/v1"))
    try:
        yield upstream
        assert in_use(upstream) == 0
    finally:
        await upstream.close()


def in_use(upstream: Upstream) -> int:
    """Connections taken from the pool and not given back."""
    connector = upstream._session.connector
    assert connector is not None
    return len(connector._acquired)


async def post(upstream: Upstream, body: Body = b"{}", headers: RawHeaders = (), *, plain: bool = True) -> Response:
    return await upstream.send("POST", "/chat/completions", b"", headers, body, plain=plain)


async def failure(upstream: Upstream, body: Body = b"{}") -> UpstreamFailed:
    """The error of a request that gets no answer, with what holds for all of them."""
    with pytest.raises(UpstreamFailed) as failed:
        await upstream.send("POST", "/chat/completions", b"secret=query", [(b"authorization", b"Bearer secret")], body, plain=True)
    assert str(upstream) in failed.value.message
    assert "secret" not in failed.value.message
    assert failed.value.__suppress_context__
    return failed.value


# What is sent


async def test_a_request_arrives_as_it_was_sent() -> None:
    """Path and query to the byte, the client's header and nothing else, a right length."""
    seen = Seen()
    headers = [(b"x-b", b"1"), (b"x-a", "Zoë".encode()), (b"x-b", b"2"), (b"content-type", b"application/json")]
    async with serving(script(seen, OK)) as port, upstream_at(port) as upstream:
        answer = await upstream.send("POST", "/files/a%2Fb%20%7e;v=1/", b"a=%2F&b&c=+%20&a=[]{}", headers, b"\x00body", plain=False)
        assert await answer.read() == b"ok"

    assert seen.heads == [
        [
            "POST /v1/files/a%2Fb%20%7e;v=1/?a=%2F&b&c=+%20&a=[]{} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "x-b: 1",
            "x-a: Zoë",
            "x-b: 2",
            "content-type: application/json",
            "Content-Length: 5",
        ]
    ]
    assert seen.bodies == [b"\x00body"]


@pytest.mark.parametrize(("method", "length"), [("GET", []), ("DELETE", ["Content-Length: 0"]), ("POST", ["Content-Length: 0"])])
async def test_a_request_without_a_body_has_none(method: str, length: list[str]) -> None:
    """No coding, no type; a length only where HTTP expects one."""
    seen = Seen()
    async with serving(script(seen, OK)) as port, upstream_at(port) as upstream:
        await (await upstream.send(method, "/models", b"", [], None, plain=False)).read()

    assert seen.heads == [[f"{method} /v1/models HTTP/1.1", f"Host: 127.0.0.1:{port}", *length]]


async def test_a_configured_key_is_the_only_credential() -> None:
    """The client's own do not leave."""
    seen = Seen()
    async with serving(script(seen, OK)) as port, upstream_at(port, Target("main", "", api_key=KEY)) as upstream:
        await (await post(upstream, headers=[(b"authorization", b"Bearer client"), (b"x-api-key", b"client")])).read()

    assert [line for line in seen.heads[0] if "Bearer" in line or "client" in line] == [f"Authorization: Bearer {KEY}"]


async def test_a_large_body_is_sent_whole() -> None:
    """Above the size from which aiohttp warns about bytes, with its length."""
    seen = Seen()
    body = bytes(range(256)) * 12_000
    async with serving(script(seen, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream, body)).read()

    assert seen.bodies == [body]


async def test_nothing_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that only the process environment names is not used."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(script(Seen(), OK)) as port, upstream_at(port) as upstream:
        assert (await post(upstream)).status == 200


# Streamed bodies


async def pieces(*parts: bytes | Exception) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield part


@pytest.mark.parametrize(
    ("headers", "received"),
    [([], b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), ([(b"content-length", b"5")], b"abcde")],
)
async def test_a_streamed_body_keeps_its_framing(headers: RawHeaders, received: bytes) -> None:
    """With the length the client announced, chunked without one."""
    seen = Seen()
    async with serving(script(seen, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream, pieces(b"abc", b"de"), headers, plain=False)).read()

    assert seen.bodies == [received]


async def test_the_failure_of_a_streamed_body_is_its_own() -> None:
    """What the body raises comes out of `send`, and the upstream does not take the torso for a request."""
    seen = Seen()
    too_large = ProxyError(413, "lastcall_too_large", "too large")
    async with serving(script(seen, OK)) as port, upstream_at(port) as upstream:
        with pytest.raises(ProxyError) as raised:
            await post(upstream, pieces(b"abc", too_large), plain=False)

    assert raised.value is too_large
    assert seen.bodies == []


async def test_a_slow_client_is_not_the_upstreams_fault() -> None:
    """Waiting for the client's next piece is no silence of the upstream's."""
    upstream_patience = Target("main", "", connect_timeout=0.1, read_timeout=0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0.6)
        yield b"b"

    seen = Seen()
    async with serving(script(seen, OK)) as port, upstream_at(port, upstream_patience) as upstream:
        assert (await post(upstream, slow(), [(b"content-length", b"2")])).status == 200
    assert seen.bodies == [b"ab"]


async def test_an_answer_before_the_end_of_the_body_is_passed_on() -> None:
    """An upstream may refuse an upload half-way."""
    release = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"a"
        await release.wait()

    async def refuse(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"1\r\na\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        assert await reader.read() == b""  # and the connection is not used again

    async with serving(refuse) as port, upstream_at(port) as upstream:
        answer = await post(upstream, endless(), plain=False)
        assert (answer.status, await answer.read()) == (413, b"big")


# What comes back


async def test_an_answer_comes_back_as_it_was_sent() -> None:
    """Status, reason, header in order with duplicates; cookies and words of Lastcall's stay behind."""
    answer_bytes = (
        b"HTTP/1.1 429 Slow Down\r\nX-A: 1\r\nSet-Cookie: __cf_bm=1\r\nServer: mock\r\nX-A: 2\r\n"
        b"x-lastcall-action: stop\r\nX-Odd: caf\xe9\r\nContent-Length: 2\r\n\r\nno"
    )
    async with serving(script(Seen(), answer_bytes)) as port, upstream_at(port) as upstream:
        answer = await post(upstream, plain=False)
        assert await answer.read() == b"no"

    assert (answer.status, answer.reason) == (429, "Slow Down")
    assert answer.headers == [(b"x-a", b"1"), (b"server", b"mock"), (b"x-a", b"2"), (b"x-odd", b"caf\xe9"), (b"content-length", b"2")]


async def test_cookies_are_not_kept() -> None:
    """What one answer sets does not go with the next request, whoever makes it."""
    seen = Seen()
    with_cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    async with serving(script(seen, with_cookie, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await (await post(upstream)).read()

    assert not [line for line in seen.heads[1] if line.lower().startswith("cookie")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_the_clients_to_follow(status: int) -> None:
    """One request, and the answer with its Location."""
    seen = Seen()
    redirect = b"HTTP/1.1 %d Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n" % status
    async with serving(script(seen, redirect)) as port, upstream_at(port) as upstream:
        answer = await post(upstream, plain=False)
        await answer.read()

    assert answer.status == status
    assert (b"location", b"http://127.0.0.1:1/") in answer.headers
    assert len(seen.heads) == 1


@pytest.mark.parametrize("plain", [False, True])
async def test_a_compressed_answer_is_decoded_only_when_it_has_to_be_read(plain: bool) -> None:
    """Else it passes to the byte, with its coding and length."""
    packed = gzip.compress(b"text" * 100, mtime=0)
    answer_bytes = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    async with serving(script(Seen(), answer_bytes)) as port, upstream_at(port) as upstream:
        answer = await post(upstream, plain=plain)
        body = await answer.read()

    whole = [(b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(packed))]
    assert (body, answer.headers) == ((b"text" * 100, []) if plain else (packed, whole))


async def test_pieces_come_as_they_arrive() -> None:
    """Each is seen before the server sends the next."""
    go = asyncio.Event()

    async def drip(_: Reader, writer: Writer) -> None:
        writer.write(CHUNKED)
        for number in range(3):
            await go.wait()
            go.clear()
            writer.write(b"9\r\ndata: %d\n\n\r\n" % number)
        writer.write(b"0\r\n\r\n")
        await go.wait()

    got = []
    async with serving(script(Seen(), drip)) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        go.set()
        async for piece in answer.chunks():
            got.append(piece)
            go.set()

    assert got == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


async def test_interim_answers_are_skipped() -> None:
    """100 and 103 are not the answer."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with serving(script(Seen(), interim + OK)) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        assert (answer.status, await answer.read()) == (200, b"ok")


@pytest.mark.parametrize(
    ("method", "answer_bytes", "headers"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", [(b"content-length", b"1000")]),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: 1\r\nContent-Length: 1000\r\n\r\n", [(b"etag", b"1")]),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", []),
    ],
)
async def test_answers_without_a_body_end_at_once(method: str, answer_bytes: bytes, headers: RawHeaders) -> None:
    """And leave the connection good for the next request."""
    seen = Seen()
    async with serving(script(seen, answer_bytes, OK)) as port, upstream_at(port) as upstream:
        answer = await upstream.send(method, "/models", b"", [], None, plain=False)
        assert (await answer.read(), answer.headers) == (b"", headers)
        assert await (await post(upstream)).read() == b"ok"

    assert seen.connections == 1


async def test_an_answer_over_the_limit_is_not_gathered() -> None:
    """`read` stops at the limit it is given."""
    async with serving(script(Seen(), OK, OK)) as port, upstream_at(port) as upstream:
        assert await (await post(upstream)).read(limit=2) == b"ok"
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match="more than the 1 bytes"):
            await answer.read(limit=1)


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


async def reset(_: Reader, writer: Writer) -> None:
    """Ends a connection with RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


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


@pytest.mark.parametrize(("second", "body"), [(begin, b"{}"), (b"", pieces(b"{}"))], ids=["answer begun", "streamed body"])
async def test_a_request_that_cannot_be_repeated_is_not(second: bytes | Handler, body: Body) -> None:
    """An answer had begun, or the body is gone."""
    seen = Seen()
    async with serving(script(seen, OK, second, OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await failure(upstream, body)

    assert len(seen.heads) == 2


async def test_a_server_that_dies_of_its_work_is_not_given_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later than a closed connection would show, the request may have been worked on."""
    monkeypatch.setattr("proxy.upstream.http._STALE_WITHIN", 0.0)
    seen = Seen()
    async with serving(script(seen, OK, b"", OK)) as port, upstream_at(port) as upstream:
        await (await post(upstream)).read()
        await failure(upstream)

    assert len(seen.heads) == 2


async def test_bytes_beyond_the_stated_length_reach_nobody() -> None:
    """A lying upstream cannot answer the next request in advance."""
    seen = Seen()
    async with serving(script(seen, OK + OK.replace(b"ok", b"no"), OK)) as port, upstream_at(port) as upstream:
        assert await (await post(upstream)).read() == b"ok"
        assert await (await post(upstream)).read() == b"ok"

    assert seen.connections == 2


# Failures before an answer


async def silent(reader: Reader, _: Writer) -> None:
    await reader.read()


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
    ],
    ids=["not HTTP", "bad length", "endless header", "other protocol"],
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
        (script(Seen(), silent), b"{}", r"sent nothing for 0\.2 s \(read_timeout\)"),
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
    assert pytest.raises(UpstreamFailed, match=why)
    assert why.replace("\\", "") in failed.message


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
    "answer_bytes",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"3\r\nabc\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
    ],
    ids=["short", "no last chunk", "bad chunk", "bad gzip"],
)
async def test_an_answer_that_breaks_off_is_reported(answer_bytes: bytes) -> None:
    """Never taken for a whole one."""

    async def cut(_: Reader, writer: Writer) -> None:
        writer.write(answer_bytes)
        await writer.drain()

    async with serving(script(Seen(), cut, cut)) as port, upstream_at(port) as upstream:
        with pytest.raises(UpstreamCut, match="broke off") as whole:
            await (await post(upstream)).read()
        with pytest.raises(UpstreamCut, match="broke off"):
            async for piece in (await post(upstream)).chunks():
                assert piece == b"abc"

    assert whole.value.status == 502


async def test_an_answer_that_is_reset_is_reported() -> None:
    """What came before stays good."""
    go = asyncio.Event()

    async def cut(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await go.wait()
        await reset(reader, writer)

    got = []
    async with serving(script(Seen(), cut)) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match="broke off"):
            async for piece in answer.chunks():
                got.append(piece)
                go.set()

    assert got == [b"abc"]


async def test_an_answer_that_falls_silent_is_left() -> None:
    """Silence in the middle counts as silence before."""

    async def begun(reader: Reader, writer: Writer) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await reader.read()

    async with serving(script(Seen(), begun)) as port, upstream_at(port, IMPATIENT) as upstream:
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match="sent nothing for 0.2 s") as cut:
            await answer.read()

    assert (cut.value.status, cut.value.code) == (504, "lastcall_upstream_timeout")
