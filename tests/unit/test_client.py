"""The client's side: bodies within their bounds whatever their coding, and a client that leaves is noticed once and never confused."""

import asyncio
import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard

from proxy.asgi import Message
from proxy.client import Client, ClientGone
from proxy.errors import BadRequest
from tests.cycles import client_on, cycle_of
from tests.in_process import Conversation


def gzipped(data: bytes) -> bytes:
    """Without the time of day, so that every run names the tests alike."""
    return gzip.compress(data, mtime=0)


DATA = b'{"text":"' + bytes(range(32, 127)) * 30 + b'"}'
FRAME = zstandard.ZstdCompressor().compress(DATA)
EMPTY_MEMBER = gzipped(b"")


def client_of(conversation: Conversation, *headers: tuple[bytes, bytes]) -> Client:
    return Client({"headers": list(headers)}, conversation.receive, conversation.send)


async def body_of(*pieces: bytes, coding: str | None = None, limit: int = 1 << 20, length: bytes | None = None) -> bytes:
    headers = [(b"content-encoding", coding.encode())] if coding is not None else []
    headers += [(b"content-length", length)] if length is not None else []
    return await client_of(Conversation(pieces), *headers).body(limit)


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


def streamed_zstd(data: bytes) -> bytes:
    """A frame that does not say how much it holds."""
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return compressor.compress(data) + compressor.flush()


# ---- the body


def test_the_first_of_equal_headers_counts() -> None:
    """As HTTP clients meant it; names are in lower case."""
    client = client_of(Conversation(), (b"X-One", b"1"), (b"x-one", b"2"), (b"x-two", b"\xe9"))

    assert client.headers == {"x-one": "1", "x-two": "\xe9"}


@pytest.mark.parametrize("pieces", [(b"",), (b"abc",), (b"a", b"", b"bc"), (b"a", b"b", b"c")])
async def test_a_body_is_read_whole_in_whatever_pieces_it_comes(pieces: tuple[bytes, ...]) -> None:
    """No byte is lost between messages."""
    assert await body_of(*pieces) == b"".join(pieces)


async def test_a_message_may_leave_out_what_it_may_leave_out() -> None:
    """ASGI lets a request message have neither body nor more_body."""

    async def receive() -> Message:
        return {"type": "http.request"}

    assert await Client({"headers": []}, receive, Conversation().send).body(10) == b""


@pytest.mark.parametrize("pieces", [(b"x" * 11,), (b"x" * 6, b"x" * 5), (b"x" * 6, b"x" * 5, b"x" * (1 << 20))])
async def test_a_body_over_the_limit_is_refused_before_it_is_whole(pieces: tuple[bytes, ...]) -> None:
    """Reading stops at the first byte too many."""
    conversation = Conversation(pieces)

    with pytest.raises(BadRequest, match="larger than 10 bytes") as refused:
        await client_of(conversation).body(10)

    assert (refused.value.status, refused.value.code) == (413, "lastcall_body_too_large")
    assert len(pieces) < 3 or (await conversation.receive())["body"] == pieces[2]


@pytest.mark.parametrize("length", [b"11", b"9" * 5000])
async def test_a_declared_length_over_the_limit_is_refused_unread(length: bytes) -> None:
    """Nothing is read of it."""
    conversation = Conversation((b"x",))

    with pytest.raises(BadRequest, match="larger than 10 bytes"):
        await client_of(conversation, (b"content-length", length)).body(10)

    assert (await conversation.receive())["body"] == b"x"


@pytest.mark.parametrize("length", [b"10", b"-1", b"ten", b"\xb2\xb2", b""])
async def test_a_declared_length_that_says_nothing_is_not_trusted(length: bytes) -> None:
    """What counts is what comes."""
    assert await body_of(b"x" * 10, limit=10, length=length) == b"x" * 10


async def test_a_client_that_leaves_in_its_body_is_gone() -> None:
    """Half a body is no body."""
    conversation = Conversation((b"a", b"b"))
    client = client_of(conversation)
    pieces = client.pieces()
    assert await anext(pieces) == b"a"
    conversation.gone.set()

    with pytest.raises(ClientGone):
        await anext(pieces)

    assert client.gone


async def test_a_body_that_is_passed_on_comes_in_its_pieces() -> None:
    """Empty ones say nothing, and there is an end."""
    assert [piece async for piece in client_of(Conversation((b"a", b"", b"bc", b""))).pieces()] == [b"a", b"bc"]


# ---- codings


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        ("identity", DATA),
        ("", DATA),
        ("gzip", gzipped(DATA)),
        (" GZip ", gzipped(DATA)),
        ("x-gzip", gzipped(DATA)),
        ("gzip", gzipped(DATA[:100]) + gzipped(DATA[100:])),
        ("gzip", EMPTY_MEMBER + gzipped(DATA) + EMPTY_MEMBER),
        ("deflate", zlib.compress(DATA)),
        ("deflate", raw_deflate(DATA)),
        ("zstd", FRAME),
        ("zstd", streamed_zstd(DATA)),
        ("zstd", streamed_zstd(DATA[:100]) + zstandard.ZstdCompressor().compress(DATA[100:])),
        ("zstd", zstandard.ZstdCompressor().compress(b"") + FRAME),
        ("deflate, gzip", gzipped(zlib.compress(DATA))),
        ("gzip,identity,zstd", zstandard.ZstdCompressor().compress(gzipped(DATA))),
    ],
)
async def test_an_encoded_body_is_decoded(coding: str, encoded: bytes) -> None:
    """Every coding that clients use, members and frames in a row, and codings one over the other, the last one first."""
    assert await body_of(encoded, coding=coding) == DATA


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
async def test_an_empty_body_is_empty_in_any_coding(coding: str) -> None:
    """Clients announce a coding even where there is nothing to encode."""
    assert await body_of(b"", coding=coding) == b""


@pytest.mark.parametrize("large", [100_000, 3_000_000])
async def test_zstd_data_of_any_size_is_decoded(large: int) -> None:
    """Many steps of decoding, and blocks that span them."""
    data = b"".join(b"%d " % (number * number) for number in range(large // 8))

    assert await body_of(streamed_zstd(data), coding="zstd", limit=1 << 24) == data


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [("gzip", gzipped(DATA)), ("deflate", zlib.compress(DATA)), ("deflate", raw_deflate(DATA)), ("zstd", FRAME)],
)
async def test_truncated_data_is_refused(coding: str, encoded: bytes) -> None:
    """Wherever it was cut: a part is never taken for the whole."""
    for cut in {1, 3, len(encoded) // 2, len(encoded) - 1}:
        with pytest.raises(BadRequest, match=coding) as refused:
            await body_of(encoded[:cut], coding=coding)
        assert refused.value.status == 400


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        ("gzip", DATA),
        ("deflate", b"\xff" + DATA),
        ("zstd", DATA),
        ("gzip", gzipped(DATA) + b"junk"),
        ("zstd", FRAME + b"junk"),
        ("zstd", FRAME + FRAME[:20]),
        ("gzip", gzipped(DATA)[:-8] + b"\0" * 8),
    ],
)
async def test_data_in_another_coding_than_it_says_is_refused(coding: str, encoded: bytes) -> None:
    """Also when only a part of it is, or its checksum is wrong; the message names the coding."""
    with pytest.raises(BadRequest, match=coding):
        await body_of(encoded, coding=coding)


@pytest.mark.parametrize("coding", ["br", "gzip, br", "aws-chunked", "x" * 500])
async def test_an_unknown_coding_is_refused(coding: str) -> None:
    """With 415 and the names that would do."""
    with pytest.raises(BadRequest, match="use gzip, deflate, zstd or none") as refused:
        await body_of(DATA, coding=coding)

    assert (refused.value.status, refused.value.code) == (415, "lastcall_bad_encoding")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        ("gzip", gzipped(b"\0" * 10_000_000)),
        ("gzip", gzipped(b"\0" * 600) * 2),
        ("deflate", zlib.compress(b"\0" * 10_000_000)),
        ("deflate", raw_deflate(b"\0" * 1001)),
        ("zstd", zstandard.ZstdCompressor().compress(b"\0" * 10_000_000)),
        ("zstd", streamed_zstd(b"\0" * 600) * 2),
        ("gzip, gzip", gzipped(gzipped(b"\0" * 10_000_000))),
    ],
)
async def test_a_bomb_is_refused(coding: str, encoded: bytes) -> None:
    """The limit holds after decoding too, over all members together."""
    limit = max(1000, len(encoded))

    with pytest.raises(BadRequest, match=f"larger than {limit} bytes") as refused:
        await body_of(encoded, coding=coding, limit=limit)

    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [("gzip", EMPTY_MEMBER * 65), ("zstd", zstandard.ZstdCompressor().compress(b"") * 65), ("deflate", zlib.compress(b"") * 65)],
)
async def test_a_body_in_very_many_pieces_is_refused(coding: str, encoded: bytes) -> None:
    """A million empty ones would keep everybody waiting for minutes."""
    with pytest.raises(BadRequest, match="in more than 64 pieces") as refused:
        await body_of(encoded, coding=coding)

    assert refused.value.status == 400
    assert await body_of(encoded[: len(encoded) // 65 * 64], coding=coding) == b""


async def test_very_many_codings_are_refused() -> None:
    """Each would be a pass over the whole body; what names none does not count."""
    with pytest.raises(BadRequest, match="names 3 codings") as refused:
        await body_of(DATA, coding="gzip, ,identity,deflate,zstd")

    assert (refused.value.status, refused.value.code) == (415, "lastcall_bad_encoding")


@pytest.mark.parametrize(("coding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", streamed_zstd)])
async def test_a_body_of_exactly_the_limit_is_read(coding: str, encode: Callable[[bytes], bytes]) -> None:
    """The limit is the largest size allowed."""
    data = bytes(range(256)) * 4

    assert await body_of(encode(data), coding=coding, limit=max(len(data), len(encode(data)))) == data


# ---- what is sent


async def test_a_whole_response_leaves_as_its_messages_would() -> None:
    """Whether the server takes it at once, or its client is slow to take what came before."""
    sent = []
    for slow in (False, True):
        cycle, transport, flow = cycle_of()
        client = client_on(cycle)
        if slow:
            flow.pause_writing()
            asyncio.get_running_loop().call_later(0.01, flow.resume_writing)
        await client.whole(418, [(b"x-a", b"1")], b"short")
        await asyncio.sleep(0)
        assert (client.status, client.ended, cycle.response_complete) == (418, True, True)
        sent.append(transport.data)

    assert sent == [b"HTTP/1.1 418 I'm a Teapot\r\nx-a: 1\r\ncontent-length: 5\r\n\r\nshort"] * 2


async def test_a_body_is_read_from_any_server() -> None:
    """All of it at once where it is here, else as it comes; headers as the server has them."""
    for pieces in ((b"a",), (b"a", b"b", b"")):
        cycle, _, _ = cycle_of(fields=[(b"x-one", b"1")])
        client = client_on(cycle)
        assert client.headers == {"x-one": "1"}
        cycle.add(pieces[0])
        for piece in pieces[1:]:
            asyncio.get_running_loop().call_soon(cycle.add, piece)
        if pieces[1:]:
            asyncio.get_running_loop().call_soon(cycle.complete)
        else:
            cycle.complete()
        assert await client.body(10) == b"".join(pieces)
        with pytest.raises(ClientGone), client:
            cycle.lose()
            await asyncio.Event().wait()


async def test_a_whole_response_says_its_length() -> None:
    """Status, header and body in two messages."""
    conversation = Conversation()
    client = client_of(conversation)
    assert client.status is None

    await client.whole(418, [(b"x-a", b"1")], b"short")

    assert client.status == 418
    assert conversation.sent == [
        {"type": "http.response.start", "status": 418, "headers": [(b"x-a", b"1"), (b"content-length", b"5")]},
        {"type": "http.response.body", "body": b"short", "more_body": False},
    ]
