"""What goes to an upstream and what comes back, over real connections."""

import asyncio
import gzip
import zlib
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Callable

import pytest
import zstandard

from proxy.errors import ProxyError, UpstreamCut
from proxy.upstream import Target, http
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Upstream
from tests.scripted import CHUNKED, OK, Seen, post, script, serving, upstream_at

KEY = "sk-secret"


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


@pytest.mark.parametrize(
    ("path", "key_header", "sent"),
    [
        ("/messages", None, f"X-Api-Key: {KEY}"),
        ("/messages/count_tokens", None, f"X-Api-Key: {KEY}"),
        ("/messages", "authorization", f"Authorization: Bearer {KEY}"),
        ("/chat/completions", "x-api-key", f"X-Api-Key: {KEY}"),
    ],
)
async def test_a_configured_key_goes_where_the_route_wants_it(path: str, key_header: str | None, sent: str) -> None:
    """The messages API takes it in a header of its own; the configuration may say otherwise."""
    seen = Seen()
    target = Target("main", "", api_key=KEY, key_header=key_header)
    async with serving(script(seen, OK)) as port, upstream_at(port, target) as upstream:
        await (await upstream.send("POST", path, b"", [], b"{}", plain=True)).read()

    assert [line for line in seen.heads[0] if KEY in line] == [sent]


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
        for piece in (b"a", b"b"):
            await asyncio.sleep(0.5)
            yield piece

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
    async with serving(script(seen, with_cookie, OK)) as port:
        upstream = Upstream(Target("main", f"http://localhost:{port}/v1"))  # a name: no jar keeps an address's cookies
        await (await post(upstream)).read()
        await (await post(upstream)).read()
        await upstream.close()

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
@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("ZStd", zstandard.compress)])
async def test_a_compressed_answer_is_decoded_only_when_it_has_to_be_read(plain: bool, coding: str, pack: Callable[[bytes], bytes]) -> None:
    """Else it passes to the byte, with its coding and length."""
    packed = pack(b"text" * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding.encode(), len(packed))
    async with serving(script(Seen(), head + packed)) as port, upstream_at(port) as upstream:
        answer = await post(upstream, plain=plain)
        body = await answer.read()

    whole = [(b"content-encoding", coding.encode()), (b"content-length", b"%d" % len(packed))]
    assert (body, answer.headers) == ((b"text" * 100, []) if plain else (packed, whole))


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, br"])
async def test_an_answer_in_a_coding_that_is_not_undone_passes_as_it_is(coding: str) -> None:
    """None was asked for; the client may know it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: 4\r\n\r\n" % coding.encode()
    async with serving(script(Seen(), head + b"\x1f\x8b\x00\xff")) as port, upstream_at(port) as upstream:
        answer = await post(upstream)
        assert (await answer.read(), answer.headers) == (b"\x1f\x8b\x00\xff", [(b"content-encoding", coding.encode())])


async def test_a_compressed_stream_is_decoded_as_it_arrives() -> None:
    """Each event that was flushed, however often the compressor begins anew."""
    go = asyncio.Event()

    async def drip(_: Reader, writer: Writer) -> None:
        writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: zstd\r\n\r\n"))
        for number in range(100):
            packed = zstandard.compress(b"data: %d\n\n" % number)
            writer.write(b"%x\r\n%b\r\n" % (len(packed), packed))
            await go.wait()
            go.clear()
        writer.write(b"0\r\n\r\n")

    got = []
    async with serving(script(Seen(), drip)) as port, upstream_at(port) as upstream:
        async for piece in (await post(upstream)).chunks():
            got.append(piece)
            go.set()

    assert got == [b"data: %d\n\n" % number for number in range(100)]


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


@pytest.mark.parametrize("plain", [True, False])
async def test_an_answer_that_is_followed_has_an_end(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """Its size is counted as it is decoded; one that is only passed on may be of any size."""
    monkeypatch.setattr(http, "_MOST_WHOLE", 1000)
    monkeypatch.setattr(http, "_MOST_STREAMED", 1000)
    body = gzip.compress(b"0" * 1001) if plain else b"0" * 1001
    coding = b"Content-Encoding: gzip\r\n" if plain else b""
    full = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (coding, len(body), body)
    async with serving(script(Seen(), full, full)) as port, upstream_at(port) as upstream:
        if not plain:
            assert len(await (await upstream.send("POST", "/files", b"", [], b"", plain=False)).read()) == len(body)
            return
        with pytest.raises(UpstreamCut, match="more than the 1000 bytes"):
            await (await post(upstream)).read()
        with pytest.raises(UpstreamCut, match="more than the 1000 bytes"):
            [chunk async for chunk in (await post(upstream)).chunks()]


async def test_an_answer_over_the_limit_is_not_gathered() -> None:
    """`read` stops at the limit it is given."""
    async with serving(script(Seen(), OK, OK)) as port, upstream_at(port) as upstream:
        assert await (await post(upstream)).read(limit=2) == b"ok"
        answer = await post(upstream)
        with pytest.raises(UpstreamCut, match="more than the 1 bytes"):
            await answer.read(limit=1)
