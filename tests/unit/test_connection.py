"""How requests arrive: those that never come to a point, what may not be slipped in behind a body, and how long one is waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from proxy.asgi import EXTENSION, Receive, Scope, Send
from proxy.connection import Protocol
from tests.cycles import Seen


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with this protocol."""
    config = uvicorn.Config(app, http=Protocol, log_config=None, lifespan="off", access_log=False, **options)
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Protocol(config, state, {}, client_timeout=60), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await server.wait_closed()


async def answer_to(reader: asyncio.StreamReader, within: float = 5.0) -> bytes:
    """What comes until the server closes, which may be in the middle of what it is sent."""
    async with asyncio.timeout(within):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_a_head_that_does_not_end_is_refused() -> None:
    """Whether it is one field or many: a request must not fill the memory before anybody has looked at it."""
    for piece in (b"x: " + b"a" * 8000 + b"\r\n", b"a" * 8000):
        seen = Seen()
        async with serving(seen) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ny: ")
            for _ in range(200):
                writer.write(piece)
                await asyncio.sleep(0)
            await answer_to(reader)

        assert seen.requests == []


async def test_a_client_is_told_that_its_head_is_too_long() -> None:
    """In a whole response; a head of up to 64 KiB is read."""
    async with serving(Seen()) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * 60_000)
        await writer.drain()
        writer.write(b"\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * 65_536)
        said = await answer_to(reader)

    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert f"content-length: {len(body)}".encode() in head


async def test_an_address_that_does_not_end_is_refused() -> None:
    """As a head that does not."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        writer.write(b"POST /")
        for _ in range(200):
            writer.write(b"a" * 8000)
            await asyncio.sleep(0)
        await answer_to(reader)

    assert seen.requests == []


async def test_many_requests_on_one_connection_are_no_long_head() -> None:
    """Each one that comes to its point begins the count anew."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        for _ in range(20):
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\nx: " + b"a" * 9000 + b"\r\n\r\n")
            writer.write(b"b" * 9000)
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")

    assert [len(body) for _, body in seen.requests] == [9000] * 20


async def test_a_head_of_very_many_fields_is_refused() -> None:
    """They take far more memory than they have bytes."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1001 + b"\r\n")
        said = await answer_to(reader)
    async with serving(seen) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1000 + b"\r\n")
        async with asyncio.timeout(5):
            served = await reader.readuntil(b"\r\n\r\nok")

    assert said.startswith(b"HTTP/1.1 400 ")
    assert served.startswith(b"HTTP/1.1 200 ")
    assert len(seen.requests) == 1


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    """As HTTP/1.1 has it."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(10)))
        for _ in range(10):
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\nok")

    assert [scope["path"] for scope, _ in seen.requests] == [f"/{number}" for number in range(10)]


async def test_a_flood_of_requests_on_one_connection_ends_it() -> None:
    """Each would be kept until it is its turn."""
    begun = asyncio.Event()
    paths: list[str] = []

    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        begun.set()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serving(hanging) as (reader, writer):
        writer.write(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(5):
            await begun.wait()
        writer.write(b"GET /more HTTP/1.1\r\n\r\n" * 5000)
        answered = await answer_to(reader)

    assert answered.startswith(b"HTTP/1.1 200 ") or answered == b""  # a reset may overtake it
    assert b"400" not in answered
    assert paths[0] == "/first"
    assert len(paths) < 20


async def test_a_client_that_leaves_is_missed_by_the_request_under_way() -> None:
    """Also where it had sent the next one already; nobody answers that."""
    begun, gone = asyncio.Event(), asyncio.Event()
    paths: list[str] = []

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with serving(waiting) as (_, writer):
        writer.write(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(5):
            await begun.wait()
        writer.transport.abort()
        async with asyncio.timeout(5):
            await gone.wait()

    assert paths == ["/first"]


async def test_a_client_that_leaves_is_missed_although_it_sent_ahead() -> None:
    """By a request that was taken at once, so that nobody reads on; the next one had not come then."""
    begun, gone = asyncio.Event(), asyncio.Event()
    paths: list[str] = []

    async def waiting(scope: Scope, _: Receive, __: Send) -> None:
        paths.append(scope["path"])
        cycle = scope["extensions"][EXTENSION]
        assert cycle.at_once() == b"a"
        cycle.on_loss = gone.set
        begun.set()
        await gone.wait()

    async with serving(waiting) as (_, writer):
        writer.write(b"POST /first HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\na")
        async with asyncio.timeout(5):
            await begun.wait()
        writer.write(b"GET /next HTTP/1.1\r\nhost: a\r\n\r\n")
        await writer.drain()
        writer.close()
        async with asyncio.timeout(5):
            await gone.wait()

    assert paths == ["/first"]


async def test_nonsense_behind_a_request_is_not_answered_within_its_answer() -> None:
    """The client would take it for a part of that."""
    gone = asyncio.Event()

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with serving(streaming) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(5):
            await reader.readuntil(b"begun\r\n")
        writer.write(b"\0nonsense\r\n\r\n")
        assert await answer_to(reader) == b""
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_wish_to_speak_another_protocol_loses_no_body() -> None:
    """Java's client asks for HTTP/2 in each first request on a plain connection: a server may ignore that, but not the body."""
    seen = Seen()
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nContent-Length: 11\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    async with serving(seen) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\n" + wish + b"\r\nUpgrade: ")
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")

    assert [body for _, body in seen.requests] == [b"\r\nUpgrade: "] * 2
    assert b"upgrade" not in dict(seen.requests[0][0]["headers"])


@pytest.mark.parametrize("cut", [2, 20, 82, 84, 90, 91, 93, 95, 96, 97, 103, 104, 105, 110])
async def test_a_wish_that_comes_in_two_pieces_loses_no_body(cut: int) -> None:
    """Wherever the network parts it: what stands in a body would be the next request."""
    seen = Seen()
    request = (
        b"POST / HTTP/1.1\r\nhost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 37\r\nUpgrade: h2c\r\nx: y\r\n\r\n"
        b"GET /inner HTTP/1.1\r\nhost: inside\r\n\r\n"
    )
    async with serving(seen) as (reader, writer):
        writer.write(request[:cut])
        await asyncio.sleep(0.02)
        writer.write(request[cut:-1])
        await asyncio.sleep(0.02)
        writer.write(request[-1:])
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")

    assert [(scope["path"], len(body)) for scope, body in seen.requests] == [("/", 37)]


@pytest.mark.parametrize("cuts", [(16, 44, 53), (16, 44), (44,), (46,), tuple(range(1, 62))])
async def test_a_request_comes_in_any_pieces(cuts: tuple[int, ...]) -> None:
    """What looks like the end of a line may stand in its body."""
    seen = Seen()
    request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with serving(seen) as (reader, writer):
        for start, end in zip((0, *cuts), (*cuts, len(request)), strict=True):
            writer.write(request[start:end])
            await asyncio.sleep(0.005)
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")

    assert [body for _, body in seen.requests] == [b"abc"]


@pytest.mark.parametrize("ending", [b"\r\n\n", b"\n\n", b"\r\n?\n"])
async def test_a_head_that_ends_wrongly_is_refused_at_once(ending: bytes) -> None:
    """Only what may become such a wish waits for its rest."""
    async with serving(Seen()) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: a" + ending)

        assert (await answer_to(reader)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"])
async def test_a_head_ends_wherever_it_is_parted(head: bytes) -> None:
    """Its last bytes are not waited behind."""
    for before in (b"", b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx"):
        for cut in range(1, len(head)):
            seen = Seen()
            async with serving(seen) as (reader, writer):
                writer.write(before[:-1])
                await asyncio.sleep(0.005)
                writer.write(before[-1:] + head[:cut])
                await asyncio.sleep(0.005)
                writer.write(head[cut:])
                async with asyncio.timeout(5):
                    for _ in range(2 if before else 1):
                        await reader.readuntil(b"\r\n\r\nok")


@pytest.mark.parametrize("pieces", [1, 200])
async def test_a_wish_is_passed_over_up_to_the_end_of_its_line(pieces: int) -> None:
    """Where that ends as no line does, the request is refused: others might read a length in what follows."""
    seen = Seen()
    request = b"POST / HTTP/1.1\r\nhost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\nContent-Length: 3\r\n\r\nabc"
    async with serving(seen) as (reader, writer):
        for start in range(0, len(request), size := -(-len(request) // pieces)):
            writer.write(request[start : start + size])
            await asyncio.sleep(0.002)
        assert (await answer_to(reader))[:13] in (b"HTTP/1.1 400 ", b"")  # a reset may overtake it

    assert seen.requests == []


async def test_a_wish_that_cannot_be_passed_over_ends_the_connection() -> None:
    """Behind another request in one piece. Its body would be taken for the next."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        wish = b"POST /wish HTTP/1.1\r\nhost: a\r\nConnection: Upgrade\r\nContent-Length: 37\r\nUpgrade: h2c\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" + wish)
        await asyncio.sleep(0.05)
        writer.write(b"GET /inner HTTP/1.1\r\nhost: inside\r\n\r\n")
        await answer_to(reader)

    assert [scope["path"] for scope, _ in seen.requests] in (["/"], [])


async def test_a_trailer_is_no_header() -> None:
    """Who filters headers on the way here has not seen it (RFC 9110 section 6.5.1)."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        head = b"POST / HTTP/1.1\r\nhost: a\r\nauthorization: mine\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"3\r\nabc\r\n0\r\nauthorization: yours\r\nx-evil: 1\r\n\r\n")
        await answer_to(reader)

    ((scope, body),) = seen.requests
    assert body == b"abc"
    assert [value for name, value in scope["headers"] if name in (b"authorization", b"x-evil")] == [b"mine"]


async def test_a_trailer_that_does_not_end_is_refused() -> None:
    """It is kept as little as a head."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: ")
        for _ in range(200):
            writer.write(b"a" * 8000)
            await asyncio.sleep(0)
        await answer_to(reader)

    assert seen.requests == []


# ---- between two requests


async def test_a_connection_of_no_use_is_closed() -> None:
    """Once no request has come for uvicorn's time; each that comes begins it anew."""
    async with serving(Seen(), timeout_keep_alive=1) as (reader, writer):
        loop, answered = asyncio.get_running_loop(), 0.0
        for _ in range(4):
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\nok")
            answered = loop.time()
            await asyncio.sleep(0.4)
        assert await answer_to(reader) == b""

    assert 0.9 <= loop.time() - answered < 4


async def test_a_connection_of_no_use_is_closed_after_an_answer_that_came_early() -> None:
    """Its time begins when the body that nobody waited for is there."""

    async def refusing(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async with serving(refusing, timeout_keep_alive=1) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n")
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\nno")
        writer.write(b"abc")
        assert await answer_to(reader) == b""


async def test_a_request_under_way_keeps_its_connection() -> None:
    """However little of it has come when the time is over."""
    async with serving(Seen(), timeout_keep_alive=1) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhos")
            await asyncio.sleep(1.3)
            writer.write(b"t: a\r\n\r\n")
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")


async def test_each_request_has_its_own_address() -> None:
    """Also where one is for the same as the one before, and whatever was wrong with one between them."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        for address in (b"/a%20b?c=d", b"/a%20b?c=d", b"/a", b"/a?"):
            writer.write(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % address)
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\nok")
        writer.write(b"GET http://[ HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await answer_to(reader)).startswith(b"HTTP/1.1 400 ")

    aims = [(scope["path"], scope["raw_path"], scope["query_string"]) for scope, _ in seen.requests]
    assert aims == [("/a b", b"/a%20b", b"c=d")] * 2 + [("/a", b"/a", b"")] * 2


HEADS = [
    [(b"Host", b"a"), (b"X-A", b"1"), (b"content-length", b"0")],
    [(b"Host", b"a"), (b"X-A", b"2"), (b"content-length", b"0")],
    [(b"Host", b"a"), (b"x-a", b"2"), (b"content-length", b"0")],
    [(b"Host", b"a"), (b"x-b", b"\xe9"), (b"content-length", b"0")],
    [(b"Host", b"a"), (b"content-length", b"0"), (b"x-b", b"\xe9")],
    [(b"Host", b"a"), (b"x-b", b"1"), (b"x-b", b"2")],
    [(b"Host", b"a"), (b"x-b", b"3"), (b"x-b", b"4")],
    [(b"Host", b"a"), (b"x-b", b"3")],
    [(b"Host", b"b"), (b"x-b", b"")],
    [(b"Host", b"b"), (b"host", b"c")],
    [(b"Host", b"b"), (b"x-c", b"c")],
]


@pytest.mark.parametrize("heads", [HEADS, HEADS[::-1], [head for head in HEADS for _ in range(2)]])
async def test_each_request_has_its_own_fields(heads: list[list[tuple[bytes, bytes]]]) -> None:
    """Whatever they share with those before: none is left from another, and of equal ones the first counts as text."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        for head in heads:
            writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in head) + b"\r\n")
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\nok")

    assert [scope["headers"] for scope, _ in seen.requests] == [[(name.lower(), value) for name, value in head] for head in heads]
    texts = [{name.decode().lower(): value.decode("latin-1") for name, value in reversed(head)} for head in heads]
    assert [scope["extensions"][EXTENSION].headers for scope, _ in seen.requests] == texts


async def test_a_requests_scope_is_its_own() -> None:
    """What an application notes in it is not there for the next."""
    seen = Seen()
    async with serving(seen) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\nok")
            assert "noted" not in seen.requests[-1][0] | seen.requests[-1][0]["state"]
            assert len(seen.requests[-1][0]["headers"]) == 1
            seen.requests[-1][0]["noted"] = seen.requests[-1][0]["state"]["noted"] = True
            seen.requests[-1][0]["headers"].append((b"noted", b"1"))
