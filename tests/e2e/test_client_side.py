"""What clients send and get on the judged route: headers, encodings, HTTP versions, leaving, and answers that fail."""

import asyncio
import gzip
import json
import uuid
import zlib
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import zstandard

from tests.agents import Agent, events_of
from tests.running import running
from tests.upstreams import DONE, READ_A, STREAM, USAGE, Asked, Cut, Reply, Says, Upstream, chunks, looping, saying

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ODD = b'{ "model":"gpt-4o","zz":[1.0,1e2,{"a":null}],\n"messages":[{"content":"h\\u00e9\\ud83d\\ude00","role":"user","name":"x"}] ,"n":1}'


# Bytes


async def test_a_healthy_exchange_passes_byte_identical(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Unknown members, spaces, escapes and numbers as they were written."""
    upstream.model = lambda asked: saying(DONE, asked)
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask_raw(ODD)

    assert upstream.asked[0].body == ODD
    assert turn.body == upstream.sent[0]


@pytest.mark.parametrize("says", [DONE, READ_A, Says("First this.", READ_A.calls)], ids=["text", "call", "both"])
async def test_a_stream_whose_client_wants_usage_passes_byte_identical(upstream: Upstream, http: aiohttp.ClientSession, says: Says) -> None:
    """Request and events, comments and unknown members included."""
    upstream.model = lambda asked: saying(says, asked)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True, stream_options={"include_usage": True})
        turn = await agent.ask()

    assert upstream.asked[0].body == agent.payload()
    assert turn.body == upstream.sent[0]
    assert events_of(turn.body)[-1]["usage"] == USAGE


async def test_usage_that_the_client_did_not_want_is_asked_for_and_kept(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Apart from that chunk the stream passes byte-identical, and the request but for that wish."""
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True)
        turn = await agent.ask()

    asked = upstream.asked[0].json
    assert asked.pop("stream_options") == {"include_usage": True}
    assert asked == json.loads(agent.payload())
    events = upstream.sent[0].split(b"\n\n")
    assert turn.body == b"\n\n".join(event for event in events if b'"usage"' not in event)
    assert b"usage" not in turn.body
    assert proxy.exchanges()[0]["input_tokens"] == 100


# Headers


async def test_every_exchange_names_session_step_and_action(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """From the second repeat on it also says how often, and where one applies why."""
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, headers={"x-lastcall-session": "mine"}).run()

    told = [{name.lower(): value for name, value in turn.headers.items() if name.lower().startswith("x-lastcall")} for turn in turns]
    base = {"x-lastcall-session": "mine", "x-lastcall-action": "allow"}
    assert told[:2] == [base | {"x-lastcall-step": "1"}, base | {"x-lastcall-step": "2"}]
    reason = {"x-lastcall-reason": "repeated_call"}
    assert told[3] == base | reason | {"x-lastcall-step": "4", "x-lastcall-action": "nudge", "x-lastcall-repeat": "read_file 3/5"}
    assert told[4] == base | reason | {"x-lastcall-step": "5", "x-lastcall-action": "stop", "x-lastcall-repeat": "read_file 5/5"}
    assert [turn.headers["x-request-id"] for turn in turns[:4]] == ["req-7"] * 4


async def test_own_headers_and_cookies_never_go_upstream(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The credentials do; and no cookie comes back."""
    inner = upstream.model
    upstream.model = lambda asked: Reply(inner(asked).body, 200, (("Set-Cookie", "a=b"), ("Content-Type", "application/json")))
    headers = {"cookie": "c=d", "x-lastcall-key": "k", "x-lastcall-lane": "l", "x-lastcall-future": "f", "openai-organization": "o"}
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1, key="sk-mine", headers=headers).ask()

    request = upstream.asked[0]
    assert not any(name.lower().startswith("x-lastcall") or name.lower() == "cookie" for name, _ in request.headers)
    assert (request.header("authorization"), request.header("openai-organization")) == ("Bearer sk-mine", "o")
    assert "set-cookie" not in turn.headers


async def test_a_session_may_stand_in_the_path(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """For clients that can set nothing but a base URL; a header wins over it."""
    async with running(upstream.url) as proxy:
        turns = await Agent(http, f"{proxy.url}/s/in%20path/v1").run()
        other = await Agent(http, f"{proxy.url}/s/path/v1", headers={"x-lastcall-session": "header"}).ask()

    assert {turn.headers["x-lastcall-session"] for turn in turns} == {"in path"}
    assert len(turns) == 5
    assert other.headers["x-lastcall-session"] == "header"
    assert {request.target for request in upstream.asked} == {"/v1/chat/completions"}


async def test_two_keys_with_one_session_id_share_nothing(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Neither counts nor stops nor steps; the same key goes on."""
    name = f"shared-{uuid.uuid4()}"
    async with running(upstream.url, "policy: {preset: plain, budgets: {steps: 6}}", store=either_store) as proxy:
        one, other = (Agent(http, proxy.v1, key=key, headers={"x-lastcall-session": name}) for key in ("sk-one", "sk-other"))
        await one.run()
        turn = await other.ask()
        again = await Agent(http, proxy.v1, key="sk-one", headers={"x-lastcall-session": name}).ask()

    assert (turn.action, turn.headers["x-lastcall-step"], bool(turn.calls)) == ("allow", "1/6", True)
    assert not again.calls


# Encodings and versions


@pytest.mark.parametrize("coding", ["gzip", "zstd", "deflate"])
async def test_compressed_requests_are_understood(upstream: Upstream, http: aiohttp.ClientSession, coding: str) -> None:
    """And judged like others; the upstream gets them plain."""

    packers: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "zstd": zstandard.ZstdCompressor().compress,
        "deflate": zlib.compress,
    }
    pack = packers[coding]
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1)
        actions = []
        for _ in range(4):
            turn = await agent.ask_raw(pack(agent.payload()), **{"content-encoding": coding})
            actions.append(turn.action)
            agent.take(turn)

    assert actions == ["allow", "allow", "allow", "nudge"]
    assert upstream.asked[-1].header("content-encoding") is None
    assert upstream.asked[0].json["messages"][1]["role"] == "user"


async def test_a_chunked_request_is_read_to_its_end(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Without a length."""

    async def in_pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(ODD), 10):
            yield ODD[at : at + 10]

    async with running(upstream.url) as proxy, http.post(f"{proxy.v1}/chat/completions", data=in_pieces()) as response:
        assert response.status == 200
    assert upstream.asked[0].body == ODD
    assert upstream.asked[0].header("content-length") == str(len(ODD))


@STREAMED
async def test_a_client_of_http_1_0_is_served(upstream: Upstream, stream: bool) -> None:
    """With a length, since it knows no chunks: a stream comes when it is whole. The connection ends with the answer."""
    upstream.model = lambda asked: saying(DONE, asked)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": %s}' % (b"true" if stream else b"false")
    async with running(upstream.url) as proxy:
        head, answer = await raw(proxy.url, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    assert b" 200 " in head.splitlines()[0]
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert b"content-length: %d" % len(answer) in head
    if stream:
        assert answer.endswith(b"data: [DONE]\n\n")
    else:
        assert answer == upstream.sent[0]


async def raw(url: str, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to a request sent as it stands, read until the connection closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def test_a_compressed_answer_of_the_upstream_is_read_and_passed_on_plain(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """An upstream that compresses although nobody asked."""

    def model(asked: Asked) -> Reply:
        body = saying(READ_A, asked).body
        assert isinstance(body, bytes)
        return Reply(gzip.compress(body), 200, (("Content-Type", "application/json"), ("Content-Encoding", "gzip")))

    upstream.model = model
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask()

    assert "content-encoding" not in turn.headers
    assert turn.body == gzip.decompress(upstream.sent[0])


# Leaving


@STREAMED
async def test_a_client_that_leaves_ends_the_upstream_call(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """At once, be it before or within the answer; and the session goes on well."""

    async def hanging(asked: Asked) -> AsyncIterator[bytes]:
        if stream:
            yield chunks(DONE, asked)[1]
        await asyncio.Event().wait()
        yield b""

    upstream.model = lambda asked: Reply(hanging(asked), headers=STREAM if stream else ())
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, headers={"x-lastcall-session": "left"})
        asking = asyncio.create_task(agent.ask())
        await upstream.until(lambda: upstream.asked)
        asking.cancel()
        await upstream.until(lambda: upstream.broken_off)

        upstream.model = looping()
        turns = await agent.run()

    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert [turn.headers["x-lastcall-step"] for turn in turns] == ["1", "2", "3", "4", "5"]
    (first, *_) = proxy.exchanges()
    assert (first["outcome"], first["status"]) == ("disconnected", 499)


async def test_a_client_that_leaves_during_the_wrap_up_ends_it(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The stop stands nevertheless."""

    async def hanging() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    upstream.model = lambda asked: Reply(hanging()) if asked.tools_off else saying(READ_A, asked)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1)
        for _ in range(4):
            agent.take(await agent.ask())
        asking = asyncio.create_task(agent.ask())
        await upstream.until(lambda: len(upstream.asked) == 6)
        asking.cancel()
        await upstream.until(lambda: upstream.broken_off)
        upstream.model = looping()
        turn = await agent.ask()

    assert (turn.action, turn.calls) == ("stop", [])
    assert turn.text.startswith("[lastcall stop]")


# Failures of the upstream


@STREAMED
async def test_an_error_of_the_upstream_passes_unchanged(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Status, body and headers such as retry-after; asked once."""
    body = b'{"error":  {"message": "no", "code": null, "type": "t"}}'
    fields = (("Content-Type", "application/json"), ("Retry-After", "7"), ("X-RateLimit-Remaining", "0"), ("x-request-id", "r"))
    statuses = (400, 401, 404, 413, 422, 429, 500, 503, 529)
    async with running(upstream.url) as proxy:
        for status in statuses:
            upstream.model = lambda _, status=status: Reply(body, status, fields)  # type: ignore[misc]
            turn = await Agent(http, proxy.v1, stream=stream).ask()
            assert (turn.status, turn.body) == (status, body)
            told = turn.headers["retry-after"], turn.headers["x-ratelimit-remaining"], turn.headers["x-request-id"]
            assert told == ("7", "0", "r")
            assert "x-lastcall-session" in turn.headers
    assert len(upstream.asked) == len(statuses)


@STREAMED
async def test_an_unreachable_upstream_is_a_502_in_openais_shape(http: aiohttp.ClientSession, stream: bool) -> None:
    """Naming the upstream and what is wrong, with the contract's headers."""
    async with running("http://127.0.0.1:9/v1") as proxy:
        turn = await Agent(http, proxy.v1, stream=stream).ask()

    assert turn.status == 502
    assert turn.error is not None
    assert (turn.error["code"], turn.error["param"]) == ("lastcall_upstream_unreachable", None)
    assert "127.0.0.1:9" in turn.error["message"]
    assert "refused" in turn.error["message"]
    assert turn.action == "allow"


async def test_a_stream_cut_upstream_says_so(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """What came is passed on, then an error event: it does not look finished."""

    async def half(asked: Asked) -> AsyncIterator[bytes]:
        for part in chunks(DONE, asked)[:4]:
            yield part
        raise Cut

    upstream.model = lambda asked: Reply(half(asked), headers=STREAM)
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1, stream=True).ask()

    assert turn.body.startswith(upstream.sent[0])
    assert turn.error is not None
    assert turn.error["code"] == "lastcall_upstream_unreachable"
    assert "broke off" in turn.error["message"]
    assert b"[DONE]" not in turn.body
    (line,) = proxy.exchanges()
    assert (line["outcome"], line["upstream_errors"]) == ("upstream_error", ["cut"])


async def test_a_whole_answer_cut_upstream_is_a_502(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """No half body under a good status."""

    async def half(asked: Asked) -> AsyncIterator[bytes]:
        yield b'{"choices": ['
        raise Cut

    upstream.model = lambda asked: Reply(half(asked))
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask()

    assert turn.status == 502
    assert turn.error is not None
    assert "broke off" in turn.error["message"]


async def test_a_silent_upstream_is_a_504(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """After the configured silence, not for ever."""

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    upstream.model = lambda _: Reply(silent())
    config = "upstreams: {default: {base_url: http://127.0.0.1/v1, read_timeout: 200ms}}"
    async with running(upstream.url, config) as proxy:
        turn = await Agent(http, proxy.v1).ask()

    assert turn.status == 504
    assert turn.error is not None
    assert "read_timeout" in turn.error["message"]


async def test_an_upstream_that_rejects_an_added_text_is_asked_without_it(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A chat template that will not have it costs the client nothing, and is remembered."""
    template = b'{"error": {"message": "Conversation roles must alternate user/assistant"}}'
    upstream.model = lambda asked: Reply(template, 400) if asked.nudges else looping()(asked)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1).run()

    assert [turn.status for turn in turns] == [200] * 5
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 0, 0, 0]


async def test_an_upstream_that_does_not_know_stream_options_is_asked_without(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Once for each model."""
    unknown = b'{"error": {"message": "Unrecognized request argument supplied: stream_options"}}'
    upstream.model = lambda asked: Reply(unknown, 400) if b"stream_options" in asked.body else looping()(asked)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=True).run(cap=2)

    assert [turn.status for turn in turns] == [200, 200]
    assert [b"stream_options" in request.body for request in upstream.asked] == [True, False, False]
