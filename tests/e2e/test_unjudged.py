"""Every route but the judged one goes through as it is: bytes, query, status and headers, both ways."""

import asyncio
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

from tests.running import running
from tests.upstreams import Asked, Cut, Reply, Upstream

BINARY = os.urandom(300_000)


def echo(asked: Asked) -> Reply:
    """The request's body back, with a status and headers of its own."""
    return Reply(
        asked.body or b"\x00\xff", 207, (("Content-Type", asked.header("content-type") or "x/y"), ("X-Own", "a, b"), ("x-own", "c"))
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_pass_byte_identical(upstream: Upstream, http: aiohttp.ClientSession, method: str, chunked: bool) -> None:
    """Binary, with a length or in chunks."""

    async def in_pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(BINARY), 50_000):
            yield BINARY[at : at + 50_000]

    upstream.model = echo
    async with running(upstream.url) as proxy:
        body = in_pieces() if chunked else BINARY
        async with http.request(method, f"{proxy.v1}/files", data=body, headers={"content-type": "application/x-thing"}) as response:
            got = await response.read()

    assert got == upstream.asked[0].body == BINARY
    assert (response.status, response.headers.getall("x-own")) == (207, ["a, b", "c"])
    assert response.headers["content-type"] == "application/x-thing"
    assert (upstream.asked[0].method, upstream.asked[0].target) == (method, "/v1/files")
    assert (upstream.asked[0].header("content-length") == str(len(BINARY))) == (not chunked)


@pytest.mark.parametrize("prefix", ["/v1", "/s/some%20session/v1"])
async def test_paths_and_queries_pass_byte_identical(upstream: Upstream, http: aiohttp.ClientSession, prefix: str) -> None:
    """Percent-encoding and all; a session in the path is taken out."""
    target = "/files/a%2Fb%20c/content?x=1&y=%2f&z=[]&&=%C3%A9+"
    upstream.model = echo
    async with running(upstream.url) as proxy:
        url = URL(f"{proxy.url}{prefix}{target}", encoded=True)
        async with http.get(url) as response:
            assert await response.read() == b"\x00\xff"

    assert upstream.asked[0].target == f"/v1{target}"


async def test_multipart_passes_byte_identical(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """As an audio upload is sent."""
    upstream.model = echo
    form = aiohttp.FormData({"model": "whisper-1"})
    form.add_field("file", BINARY, filename="a.wav", content_type="audio/wav")
    async with running(upstream.url) as proxy, http.post(f"{proxy.v1}/audio/transcriptions", data=form) as response:
        got = await response.read()

    assert got == upstream.asked[0].body
    assert BINARY in got
    assert response.headers["content-type"].startswith("multipart/form-data; boundary=")


async def test_head_and_options_pass(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """HEAD tells the length of a body that it does not send."""
    upstream.model = lambda asked: Reply(b"12345" if asked.method == "HEAD" else b"", 200, (("Allow", "GET"),))
    async with running(upstream.url) as proxy:
        async with http.head(f"{proxy.v1}/models/gpt-4o") as head:
            assert (head.status, head.headers["content-length"], await head.read()) == (200, "5", b"")
        async with http.options(f"{proxy.v1}/models") as options:
            assert (options.status, options.headers["allow"]) == (200, "GET")

    assert [(asked.method, asked.target) for asked in upstream.asked] == [("HEAD", "/v1/models/gpt-4o"), ("OPTIONS", "/v1/models")]


NEIGHBOURS = [
    *(("GET", "/models"), ("GET", "/chat/completions"), ("POST", "/chat/completions/x"), ("POST", "/completions")),
    ("POST", "/embeddings"),
]


async def test_neighbours_of_the_judged_route_are_not_judged(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Whatever they hold: no body is read, no header added."""
    upstream.model = lambda _: Reply(b"[]")
    async with running(upstream.url) as proxy:
        for method, path in NEIGHBOURS:
            body = b'{"broken' if method == "POST" else None
            async with http.request(method, f"{proxy.v1}{path}", data=body) as response:
                assert (response.status, await response.read()) == (200, b"[]")
            assert not any(name.lower().startswith("x-lastcall") for name in response.headers)
            assert (upstream.asked[-1].target, upstream.asked[-1].body) == (f"/v1{path}", body or b"")


async def test_compressed_answers_stay_compressed(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The client asked for it and undoes it itself."""
    upstream.model = lambda _: Reply(b"\x1f\x8b not really", 200, (("Content-Encoding", "gzip"),))
    async with running(upstream.url) as proxy, http.get(f"{proxy.v1}/files/1", headers={"accept-encoding": "gzip"}) as response:
        assert await response.read() == b"\x1f\x8b not really"

    assert response.headers["content-encoding"] == "gzip"
    assert upstream.asked[0].header("accept-encoding") == "gzip"


async def test_own_headers_and_cookies_stay_here(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """On the way out and on the way back."""
    upstream.model = lambda _: Reply(b"{}", 200, (("Set-Cookie", "a=b"), ("X-Lastcall-Action", "stop"), ("X-Keep", "1")))
    headers = {"cookie": "c=d", "x-lastcall-session": "s", "x-lastcall-anything": "t", "authorization": "Bearer k", "x-other": "kept"}
    async with running(upstream.url) as proxy, http.get(f"{proxy.v1}/models", headers=headers) as response:
        await response.read()

    names = {name.lower() for name, _ in upstream.asked[0].headers}
    assert not names & {"cookie", "x-lastcall-session", "x-lastcall-anything"}
    assert (upstream.asked[0].header("authorization"), upstream.asked[0].header("x-other")) == ("Bearer k", "kept")
    assert "set-cookie" not in response.headers
    assert "x-lastcall-action" not in response.headers
    assert response.headers["x-keep"] == "1"


async def test_a_stream_passes_as_it_comes_and_its_upload_too(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Nothing waits for an end."""
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await go_on.wait()
        yield b"data: 2\n\n"

    upstream.model = lambda _: Reply(slow(), 200, (("Content-Type", "text/event-stream"),))
    async with running(upstream.url) as proxy, http.post(f"{proxy.v1}/completions", data=b"{}") as response:
        assert await asyncio.wait_for(response.content.readany(), 5) == b"data: 1\n\n"
        go_on.set()
        assert await response.read() == b"data: 2\n\n"


async def test_a_client_that_leaves_ends_the_upstream_call(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Nobody pays for an answer that nobody reads."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    upstream.model = lambda _: Reply(endless())
    async with running(upstream.url) as proxy:
        async with http.get(f"{proxy.v1}/files") as response:
            await response.content.readany()
            response.close()
        await upstream.until(lambda: upstream.broken_off)


async def test_an_answer_cut_upstream_is_cut_here(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A body that cannot say that it broke off must not look whole."""

    async def cut() -> AsyncIterator[bytes]:
        yield b"half"
        raise Cut

    upstream.model = lambda _: Reply(cut())
    async with running(upstream.url) as proxy:
        with pytest.raises(aiohttp.ClientPayloadError):
            async with http.get(f"{proxy.v1}/files") as response:
                await response.read()
        upstream.model = echo
        async with http.get(f"{proxy.v1}/files") as response:
            assert response.status == 207


async def test_an_unreachable_upstream_is_a_502_in_the_known_shape(http: aiohttp.ClientSession) -> None:
    """Naming where it was looked for."""
    async with running("http://127.0.0.1:9/v1") as proxy, http.get(f"{proxy.v1}/models") as response:
        error = (await response.json())["error"]

    assert (response.status, error["code"]) == (502, "lastcall_upstream_unreachable")
    assert "127.0.0.1:9" in error["message"]


async def test_a_path_outside_the_api_says_what_to_do(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The commonest slip: a base URL without /v1."""
    async with running(upstream.url) as proxy:
        for path in ("/chat/completions", "/models", "/", "/api/v1/models", "/s/x/chat/completions"):
            async with http.post(f"{proxy.url}{path}", data=b"{}") as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"]) == (404, "lastcall_no_route"), path
                assert "/v1" in error["message"]
    assert upstream.asked == []


async def test_climbing_out_of_the_base_url_is_refused(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """However it is encoded."""
    async with running(upstream.url) as proxy:
        for path in ("/../admin", "/%2e%2e/admin", "/files/..%2f..%2f..%2fadmin"):
            async with http.get(URL(f"{proxy.v1}{path}", encoded=True)) as response:
                assert response.status in (400, 404)
    assert upstream.asked == []
