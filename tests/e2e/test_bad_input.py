"""Whatever is sent: one clear error in OpenAI's shape, never a traceback, and the next request is fine."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

from tests.agents import Agent
from tests.e2e.test_client_side import raw
from tests.running import Proxy, running
from tests.upstreams import STREAM, Reply, Upstream, pieces

MESSAGES = b'"messages": [{"role": "user", "content": "hi"}]'
DEEP = b"[" * 500_000
BODIES = {
    "nothing": b"",
    "half": b'{"messages": [',
    "no JSON": b"hello",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "no messages": b'{"model": "m"}',
    "messages are text": b'{"messages": "hi"}',
    "messages hold a number": b'{"messages": [1]}',
    "the model is a number": b'{"model": 1, ' + MESSAGES + b"}",
    "messages twice, once a number": b'{"messages": 1, ' + MESSAGES + b"}",
    "not UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "UTF-16": ("{" + MESSAGES.decode() + "}").encode("utf-16"),
    "two objects": b"{" + MESSAGES + b"}{}",
    "nested without end": b'{"messages": ' + DEEP,
    "nested deeply": b'{"messages": ' + DEEP + b"]" * 500_000 + b"}",
    "nested in a message": b'{"messages": [{"role": "user", "content": ' + DEEP + b"]" * 500_000 + b"}]}",
}
PASSED_ON = {
    "no role": b'{"messages": [{}]}',
    "roles are numbers": b'{"messages": [{"role": 7, "content": 7}]}',
    "no message": b'{"messages": []}',
    "calls are text": b'{"messages": [{"role": "assistant", "tool_calls": "x"}, {"role": "tool", "tool_call_id": 7, "content": {}}]}',
    "calls are odd": b'{"messages": [{"role": "assistant", "tool_calls": [1, null, {}, {"function": {"name": null, "arguments": 3}}]}]}',
    "tools are odd": b'{"tools": [1, {"function": 2}, {"function": {"name": {}}}], ' + MESSAGES + b"}",
    "options are odd": b'{"stream": "yes", "stream_options": 3, "n": "x", "max_tokens": [], "tool_choice": 5, ' + MESSAGES + b"}",
    "numbers are huge": b'{"n": 1e400, "max_tokens": 999999999999999999999999999, ' + MESSAGES + b"}",
    "a lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800", "name": "\\udfff"}]}',
    "NUL": b'{"messages": [{"role": "user", "content": "\\u0000"}]}',
}


async def check_next(http: aiohttp.ClientSession, proxy: Proxy) -> None:
    turn = await Agent(http, proxy.v1).ask()
    assert (turn.status, turn.action) == (200, "allow")


def check_error(status: int, body: bytes, *allowed: int) -> str:
    """One error object of OpenAI's shape that gives nothing of the inside away; its message."""
    assert status in (allowed or (400,)), body
    decoded = json.loads(body)
    assert list(decoded) == ["error"]
    assert set(decoded["error"]) == {"message", "type", "code", "param"}
    message: str = decoded["error"]["message"]
    assert decoded["error"]["code"].startswith("lastcall_")
    assert message
    assert len(message) < 600
    assert not any(word in message for word in ("Traceback", "msgspec", ".py", "0x"))
    return message


async def test_a_body_that_is_no_request_is_a_400(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Retrying is pointless, and said to be."""
    async with running(upstream.url) as proxy:
        for name, body in BODIES.items():
            turn = await Agent(http, proxy.v1).ask_raw(body)
            assert check_error(turn.status, turn.body), name
            assert turn.headers["x-should-retry"] == "false"
        assert upstream.asked == []
        await check_next(http, proxy)


async def test_an_odd_request_is_the_upstreams_to_judge(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """It arrives as it was sent."""
    upstream.model = lambda asked: Reply(b'{"error": {"message": "odd"}}', 422)
    async with running(upstream.url) as proxy:
        for name, body in PASSED_ON.items():
            turn = await Agent(http, proxy.v1).ask_raw(body)
            assert (turn.status, turn.body) == (422, b'{"error": {"message": "odd"}}'), name
            assert upstream.asked[-1].body == body


@pytest.mark.parametrize("length", ["declared", "chunked", "unpacked"])
async def test_a_body_over_the_limit_is_a_413(upstream: Upstream, http: aiohttp.ClientSession, length: str) -> None:
    """Announced, found out, or found out while decompressing: naming the limit and the key."""
    big = b'{"messages": ["' + b"x" * 200_000

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(big), 10_000):
            yield big[at : at + 10_000]

    body = {"declared": big, "chunked": pieces(), "unpacked": gzip.compress(big)}[length]
    headers = {"content-encoding": "gzip"} if length == "unpacked" else {}
    async with running(upstream.url, "server: {max_body: 100KiB}") as proxy:
        try:
            async with http.post(f"{proxy.v1}/chat/completions", data=body, headers=headers) as response:
                message = check_error(response.status, await response.read(), 413)
                assert "server.max_body" in message
                assert "102400" in message
        except aiohttp.ClientOSError:
            assert length == "chunked"  # still sending when the answer came
        await check_next(http, proxy)


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [("gzip", b"hello", 400), ("zstd", b"hello", 400), ("br", b"hello", 415), ("gzip", gzip.compress(b"{}" * 99, mtime=0)[:-9], 400)],
)
async def test_a_body_that_is_not_encoded_as_it_says(
    upstream: Upstream, http: aiohttp.ClientSession, coding: str, body: bytes, status: int
) -> None:
    """Garbage, an unknown coding, a cut one."""
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask_raw(body, **{"content-encoding": coding})
        assert coding in check_error(turn.status, turn.body, status)
        await check_next(http, proxy)


UNUSABLE = [
    ("x-lastcall-session", "x" * 300),
    ("x-lastcall-session", "caf\xe9"),
    ("x-lastcall-lane", "a\tb"),
    ("x-lastcall-max-steps", "many"),
    ("x-lastcall-max-steps", "-1"),
    ("x-lastcall-max-tokens", "9" * 5000),
    ("x-lastcall-deadline", "nan"),
    ("x-lastcall-deadline", "1e9"),
]
ODD_HEADERS = [
    b"x-session-id: " + b"\xff" * 50,
    b"x-session-id: " + b"y" * 5000,
    b"baggage: session.id=;;,=,session.id",
    b"authorization: Bearer",
    b"authorization: \xe9",
    b"x-stainless-retry-count: " + b"9" * 5000,
    b"x-stainless-retry-count: -1",
    b"content-type: \x80\x81",
    b"user-agent: " + b"codex" * 1000,
    b"connection: close, x-lastcall-session, \xff",
]


def request_with(header: bytes) -> bytes:
    body = b"{" + MESSAGES + b"}"
    return b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n%s\r\n\r\n%s" % (len(body), header, body)


async def test_an_own_header_that_cannot_be_used_is_a_400(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A limit that is not understood must not look enforced."""
    async with running(upstream.url) as proxy:
        for name, value in UNUSABLE:
            answer, told = await raw(proxy.url, request_with(f"{name}: {value}".encode("latin-1")))
            assert name in check_error(int(answer.split()[1]), told)
        assert upstream.asked == []
        await check_next(http, proxy)


async def test_other_peoples_odd_headers_are_no_fault(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """They name nothing then."""
    async with running(upstream.url) as proxy:
        for header in ODD_HEADERS:
            answer, _ = await raw(proxy.url, request_with(header))
            assert b" 200 " in answer.splitlines()[0], header
        await check_next(http, proxy)


async def test_what_is_no_http_is_refused(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """And the server goes on."""
    heads = [b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n"]
    async with running(upstream.url) as proxy:
        for head in heads:
            answer, _ = await raw(proxy.url, head)
            assert b" 400 " in answer.splitlines()[0], head
        await check_next(http, proxy)


async def test_a_session_in_the_path_that_cannot_be_used_is_a_400(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """It would come back in a header."""
    async with running(upstream.url) as proxy:
        for session in ("x" * 300, "%00", "%C3%A9", "a%09b"):
            url = URL(f"{proxy.url}/s/{session}/v1/chat/completions", encoded=True)
            async with http.post(url, data=b"{" + MESSAGES + b"}") as response:
                check_error(response.status, await response.read())
        await check_next(http, proxy)


async def test_a_client_that_leaves_within_its_request_is_forgotten(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Nothing goes upstream, nothing stays behind."""
    async with running(upstream.url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        writer.close()
        await check_next(http, proxy)
    assert len(upstream.asked) == 1
    assert len(proxy.exchanges()) == 1


ANSWERS = [
    b"",
    b"no JSON",
    b"null",
    b"[]",
    b'{"choices": 7}',
    b'{"choices": [7, null, {}]}',
    b'{"choices": [{"message": {"tool_calls": {"a": 1}}}]}',
    b"\xff",
    DEEP,
]
EVENTS = [
    b"data: {\n\n",
    b"data: [[[[\n\ndata: null\n\n",
    b"\xff\xfe\n\n",
    b"event: x\nid: 1\n\n",
    b'data: {"choices": [{"delta": 7}]}\n\n',
    b"data: no end",
    b"data: " + DEEP + b"\n\n",
]


async def test_an_answer_that_makes_no_sense_passes_unchanged(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Judging the upstream's bytes is the client's business."""
    async with running(upstream.url) as proxy:
        for answer in ANSWERS:
            upstream.model = lambda _, answer=answer: Reply(answer)  # type: ignore[misc]
            async with http.post(f"{proxy.v1}/chat/completions", data=b"{" + MESSAGES + b"}") as response:
                assert (response.status, await response.read()) == (200, answer)


async def test_a_stream_that_makes_no_sense_passes_unchanged(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Broken events, no terminator, no end."""
    body = b'{"stream": true, "stream_options": {"include_usage": true}, ' + MESSAGES + b"}"
    async with running(upstream.url) as proxy:
        for events in EVENTS:
            upstream.model = lambda _, events=events: Reply(pieces([events]), headers=STREAM)  # type: ignore[misc]
            async with http.post(f"{proxy.v1}/chat/completions", data=body) as response:
                assert (response.status, await response.read()) == (200, events)
