"""What attackers put on the wire, tried against the running proxy: docs/security.md says what each is about."""

import asyncio
import gzip
import json
import zlib

import aiohttp
import pytest

from tests.agents import Agent
from tests.e2e.test_bad_input import check_next
from tests.e2e.test_client_side import raw
from tests.running import running
from tests.upstreams import Asked, Reply, Says, Upstream, looping

BODY = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
IN_DOUBT = {
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": LENGTH + b"Content-Length: 3\r\n\r\n" + BODY,
    "one length twice": LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": b"Content-Length: 62, 62\r\n\r\n" + BODY,
    "a signed length": b"Content-Length: +62\r\n\r\n" + BODY,
    "a length in hexadecimal": b"Content-Length: 0x3e\r\n\r\n" + BODY,
    "a length past any number": b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "identity": b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "chunked, identity": b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKED,
    "chunked and identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKED,
    "no such coding": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED,
    "a control character before it": b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKED,
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKED,
    "a line end in a chunk extension": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"\r\n", b";a\nb\r\n", 1),
    "a chunk size that ends in LF": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"\r\n", b"\n", 1),
    "a chunk size with a prefix": b"Transfer-Encoding: chunked\r\n\r\n0x" + CHUNKED,
    "a chunk size past any number": b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + BODY,
    "a chunk longer than it says": b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"3e", b"3d", 1),
    "a folded header": b"X-A: b\r\n c: d\r\n" + LENGTH + b"\r\n" + BODY,
    "a header behind LF": b"X-A: b\nX-B: c\r\n" + LENGTH + b"\r\n" + BODY,
    "a header behind CR": b"X-A: b\rX-B: c\r\n" + LENGTH + b"\r\n" + BODY,
    "NUL in a header": b"X-A: b\0c\r\n" + LENGTH + b"\r\n" + BODY,
}


async def test_a_request_whose_end_is_in_doubt_is_refused(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """One 400, nothing of what follows is read, and the upstream hears nothing: a server before or behind could see another end."""
    async with running(upstream.url) as proxy:
        for name, rest in IN_DOUBT.items():
            head, body = await raw(proxy.url, POST + rest)
            assert head.startswith(b"HTTP/1.1 400 "), name
            assert b"HTTP/1.1" not in body, name
        assert upstream.asked == []
        await check_next(http, proxy)


@pytest.mark.parametrize(
    ("request_", "targets"),
    [
        (b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, []),
        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED, ["/v1/models"]),
        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + SMUGGLED, ["/v1/models"]),
        (b"POST /v1/files HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n", ["/v1/files"]),
    ],
    ids=["a body that nobody reads", "a body of a GET", "behind the last request", "a chunk extension"],
)
async def test_nothing_of_a_body_is_taken_for_a_request(upstream: Upstream, request_: bytes, targets: list[str]) -> None:
    """The next request is the next one."""
    upstream.model = lambda asked: Reply(b"{}")
    last = b"GET /v1/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with running(upstream.url) as proxy:
        await raw(proxy.url, request_ + last)

    closed = b"Connection: close" in request_
    assert [asked.target for asked in upstream.asked] == targets + ([] if closed else ["/v1/last"])


async def test_nothing_a_client_sends_chooses_where_a_request_goes(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Neither the target nor a header nor the model: it goes to the configured upstream, below its base URL, under its name."""
    upstream.model = lambda asked: Reply(b"{}")
    targets = [b"http://192.0.2.1:9/v1/x", b"//192.0.2.1/v1/x", b"/v1/http://192.0.2.1/", b"/v1/@192.0.2.1/", b"/v1/x#@192.0.2.1"]
    fields = b"Host: 192.0.2.1\r\nX-Forwarded-Host: 192.0.2.1\r\nForwarded: host=192.0.2.1\r\nX-Lastcall-Upstream: http://192.0.2.1\r\n"
    model = json.dumps({"model": "http://192.0.2.1/v1", "input": "hi"}).encode()
    async with running(upstream.url) as proxy:
        for target in targets:
            head, _ = await raw(proxy.url, b"GET " + target + b" HTTP/1.1\r\nConnection: close\r\n" + fields + b"\r\n")
            assert head.split()[1] in (b"200", b"404"), target
        head, _ = await raw(
            proxy.url, b"POST /v1/embeddings HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(model) + model
        )
        tunnel, _ = await raw(proxy.url, b"CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: a\r\n\r\n")

    assert tunnel.startswith(b"HTTP/1.1 400 ")
    assert len(upstream.asked) == 5
    for asked in upstream.asked:
        assert asked.target.startswith("/v1/")
        assert asked.header("host") == upstream.url.removeprefix("http://").removesuffix("/v1")
        assert not any("192.0.2.1" in value for _, value in asked.headers)


async def test_no_path_leaves_the_base_url_or_reaches_the_operators_routes(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """However it climbs, and however often it is encoded."""
    climbing = [
        "/v1//..",
        "/v1/../admin/sessions",
        "/v1/%2e%2e/admin",
        "/v1/%252e%252e/admin",
        "/v1/..%2f..",
        "/v1/x/..;/y",
        "/v1/%5c..%5cx",
    ]
    odd = ["/s/x/admin/sessions", "/s/x/v1/../../admin", "/s/..", "/V1/models", "/v1\\..\\x", "*", "/admin//sessions", "/%61dmin/sessions"]
    async with running(upstream.url, "server: {admin_key: '${K}'}", env={"K": "operator"}) as proxy:
        for path in climbing + odd:
            head, body = await raw(proxy.url, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            assert head.split()[1] in (b"400", b"401", b"404"), (path, head)
            assert json.loads(body)["error"]["code"].startswith("lastcall_"), path
    assert upstream.asked == []


NASTY = 'x\r\nX-Evil: 1\n\x1b[31m{"event":"forged"}\u2028\x85\u202e"} 1\nlastcall_evil{a="'


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_names_from_outside_stay_within_their_field(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """A model's name for a tool, a client's for a model: no header, log line, metric or event is made of them."""
    upstream.model = looping(lambda asked: Says(calls=((NASTY, "{}"),)))
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, model=NASTY)
        turns = await agent.run()
        async with http.get(f"{proxy.url}/metrics") as response:
            metrics = await response.text()

    assert len(turns) == 5
    for turn in turns:
        assert "x-evil" not in turn.headers
        assert all(value.isprintable() for name, value in turn.headers.items() if name.lower().startswith("x-lastcall"))
    assert "lastcall_evil{" not in metrics.replace("\\n", "")
    assert NASTY[:10] not in metrics
    assert len(proxy.exchanges()) == 5
    for line in proxy.log:
        assert line.count(b"\n") == 1
        decoded = json.loads(line)
        assert decoded["event"] != "forged"
        assert all(value.isprintable() for value in decoded.values() if isinstance(value, str))


@pytest.mark.parametrize("codings", [("gzip",), ("gzip", "gzip"), ("gzip", "deflate")])
async def test_a_bomb_of_a_client_is_refused(upstream: Upstream, http: aiohttp.ClientSession, codings: tuple[str, ...]) -> None:
    """A gigabyte of nothing in a few bytes."""
    body = gzip.compress(b" " * (1 << 26), 9) * 16
    for coding in codings[1:]:
        body = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask_raw(body, **{"content-encoding": ", ".join(codings)})
        assert (turn.status, turn.error and turn.error["code"]) == (413, "lastcall_body_too_large")
        assert upstream.asked == []
        await check_next(http, proxy)


async def test_a_bomb_of_an_upstream_is_an_error(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """It is read up to a bound; the next request is fine."""
    bomb = gzip.compress(b" " * (1 << 25), 9) * 8
    model = upstream.model

    def answer(asked: Asked) -> Reply:
        return Reply(bomb, 200, (("Content-Type", "application/json"), ("Content-Encoding", "gzip")))

    async with running(upstream.url) as proxy:
        upstream.model = answer
        turn = await Agent(http, proxy.v1).ask()
        assert turn.status == 502
        upstream.model = model
        await check_next(http, proxy)


async def test_a_slow_client_is_let_go(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """With 408, on judged routes and others, while others are served."""
    slow = [b"POST /v1/", POST + b"Content-Length: 99\r\n\r\n{", b"POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{"]
    async with running(upstream.url, "server: {client_timeout: 400ms}") as proxy:
        answers = asyncio.gather(*(raw(proxy.url, request) for request in slow))
        await check_next(http, proxy)
        for head, body in await answers:
            assert head.startswith(b"HTTP/1.1 408 ")
            assert json.loads(body)["error"]["code"] == "lastcall_request_timeout"


async def test_a_web_page_of_somebody_elses_cannot_spend_a_key(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Neither by sending a form to this machine nor under a name of its own that leads here; pages and programs of this machine can."""
    config = "upstreams: {default: {api_key: '${K}'}}"
    async with running(upstream.url, config, env={"K": "sk-operator"}) as proxy:
        refused = [
            await Agent(http, proxy.v1, headers={"origin": "https://evil.example", "content-type": "text/plain"}).ask(),
            await Agent(http, proxy.v1, headers={"origin": "null"}).ask(),
            await Agent(http, proxy.v1, headers={"host": "evil.example:4000", "origin": "http://evil.example:4000"}).ask(),
            await Agent(http, proxy.v1, headers={"host": "evil.example:4000"}).ask(),
        ]
        assert upstream.asked == []
        served = [
            await Agent(http, proxy.v1, headers={"origin": "http://localhost:3000"}).ask(),
            await Agent(http, proxy.v1, headers={"host": "host.docker.internal:4000"}).ask(),
        ]

    assert [(turn.status, turn.error and turn.error["code"]) for turn in refused] == [(403, "lastcall_foreign_page")] * 4
    assert [turn.status for turn in served] == [200, 200]


async def test_no_websocket_is_opened(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Anywhere: nothing would look at what goes through."""
    wish = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    async with running(upstream.url) as proxy:
        for path, key in (
            (b"/v1/responses", b"Sec-WebSocket-Key: eA==\r\n"),
            (b"/v1/realtime", b""),
            (b"/admin/x", b""),
            (b"/metrics", b""),
        ):
            head, _ = await raw(proxy.url, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + wish + key + b"\r\n")
            assert not head.startswith(b"HTTP/1.1 101 "), path
            assert b"upgrade: websocket" not in head.lower(), path
    assert not any(asked.header("upgrade") for asked in upstream.asked)
