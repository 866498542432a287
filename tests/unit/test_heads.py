"""Request heads like those before them: what is made of one without a parser is what a parser makes of it."""

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import connection
from proxy.asgi import EXTENSION, Scope
from proxy.connection import Protocol
from proxy.heads import Head, Heads, learnt
from tests.cycles import Seen, Transport

Field = tuple[bytes, bytes]
LINE = b"POST /v1/chat/completions?a=b HTTP/1.1"
USUAL = [(b"Host", b"a"), (b"authorization", b"Bearer sk"), (b"X-Number", b"1"), (b"Content-Length", b"2")]


class Wire(Transport):
    """A transport that says where it comes from."""

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.closed = True


def told(scope: Scope, body: bytes) -> tuple[object, ...]:
    """What a request says, and whether the connection goes on after it."""
    cycle = scope["extensions"][EXTENSION]
    return {name: value for name, value in scope.items() if name != "extensions"}, cycle.headers, cycle.keep_alive, body


async def spoken(pieces: Sequence[bytes], turns: int, heads: Heads | None = None) -> tuple[object, ...]:
    """What a connection makes of these bytes. turns: of the loop, after each piece; after an empty one as many as an answer takes."""
    app, wire = Seen(), Wire()
    config = uvicorn.Config(app, http=Protocol, log_config=None, lifespan="off", access_log=False)
    config.load()
    protocol = Protocol(config, uvicorn.server.ServerState(), {"shared": 1}, asyncio.get_running_loop(), client_timeout=60, heads=heads)
    protocol.connection_made(wire)  # type: ignore[arg-type]
    for piece in pieces:
        if wire.closed:
            break
        if piece:
            protocol.data_received(piece)
        for _ in range(turns if piece else 6):
            await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    closed, wire.closed = wire.closed, True
    protocol.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    return (
        [told(*request) for request in app.requests],
        [line for line in wire.data.split(b"\r\n") if not line.lower().startswith(b"date")],
        closed,
    )


def head(fields: Sequence[Field], line: bytes = LINE) -> bytes:
    return b"\r\n".join([line, *[b"%b: %b" % field for field in fields], b"", b""])


def known(*heads: Sequence[Field]) -> Head | None:
    """What is known after these."""
    found = None
    for fields in heads:
        lower = [(name.lower(), value) for name, value in fields]
        found = learnt(
            head(fields), {"headers": lower, "path": "/"}, {name.decode(): value.decode("latin-1") for name, value in lower}, found
        )
    return found


def with_value(name: bytes, value: bytes, fields: Sequence[Field] = USUAL) -> list[Field]:
    return [(known, value if known == name else was) for known, was in fields]


def test_a_head_that_comes_again_is_known() -> None:
    """With another length, and with other values where there was another before."""
    first = known(USUAL)
    assert first is not None
    longer = head(with_value(b"Content-Length", b"17"))
    found = first.again(longer + b"x" * 20)
    assert found is not None
    scope, texts, length, begins = found
    assert (length, begins, scope["path"]) == (17, len(longer), "/")
    assert scope["headers"][-1] == (b"content-length", b"17")
    assert texts == {"host": "a", "authorization": "Bearer sk", "x-number": "1", "content-length": "17"}
    assert first.again(head(with_value(b"X-Number", b"2"))) is None

    both = known(USUAL, with_value(b"X-Number", b"2"))
    assert both is not None
    found = both.again(head(with_value(b"X-Number", b"\xe9 3")))
    assert found is not None
    assert (found[0]["headers"][2], found[1]["x-number"]) == ((b"x-number", b"\xe9 3"), "\xe9 3")


@pytest.mark.parametrize(
    "other",
    [
        head(USUAL, b"GET / HTTP/1.1"),
        head(USUAL[1:]),
        head([*USUAL, (b"x", b"y")]),
        head([*reversed(USUAL)]),
        head(with_value(b"Host", b"b")),
        head(with_value(b"Content-Length", b"+2")),
        head(with_value(b"Content-Length", b"")),
        head(with_value(b"Content-Length", b"2, 2")),
        head(with_value(b"Content-Length", b"1" * 16)),
        head(with_value(b"X-Number", b"")),
        head(with_value(b"X-Number", b" 3")),
        head(with_value(b"X-Number", b"3\t")),
        head(with_value(b"X-Number", b"3\nx: y")),
        head(with_value(b"X-Number", b"3\rx: y")),
        head(with_value(b"X-Number", b"3\x00")),
        head(with_value(b"X-Number", b"3")).replace(b"X-Number: ", b"x-number: "),
        head(with_value(b"X-Number", b"3")).replace(b"X-Number: ", b"X-Number:"),
        head(USUAL)[:-2],
        b"\r\n" + head(USUAL),
        b"\r\n\r\n" + head(USUAL),
        head(with_value(b"X-Number", b"3" * 9_000)),
        b"",
    ],
)
def test_another_head_is_not_known(other: bytes) -> None:
    """Whatever a parser could see in another way is left to one."""
    both = known(USUAL, with_value(b"X-Number", b"2"))
    assert both is not None
    assert both.again(head(with_value(b"X-Number", b"3"))) is not None

    assert both.again(other) is None


@pytest.mark.parametrize(
    "fields",
    [
        USUAL[:-1],
        [*USUAL, (b"Content-Length", b"2")],
        [*USUAL, (b"Transfer-Encoding", b"chunked")],
        with_value(b"Content-Length", b"0x2"),
        with_value(b"X-Number", b"3\n x"),
        with_value(b"X-Number", b"3" * 9_000),
    ],
)
def test_of_an_unusual_head_nothing_is_learnt(fields: list[Field]) -> None:
    """Whose body ends elsewhere, or whose lines are not what they seem."""
    assert known(fields) is None


@pytest.mark.parametrize("name", [b"Connection", b"Proxy-Connection", b"Upgrade"])
def test_what_tells_a_parser_something_may_not_differ(name: bytes) -> None:
    """Nor a field of which there are several, since the first of them counts; nor very many."""
    fields = [*USUAL, (name, b"keep-alive")]
    found = known(fields, [*USUAL, (name, b"close")])
    assert found is not None
    assert found.again(head([*USUAL, (name, b"close")])) is not None
    assert found.again(head(fields)) is None

    for doubled in ([*USUAL, (b"x", b"1"), (b"x", b"2")], [*USUAL, *[(b"x%d" % number, b"1") for number in range(9)]]):
        changed = [(name, b"7" if name.startswith(b"x") else value) for name, value in doubled]
        found = known(doubled, changed)
        assert found is not None
        assert found.again(head(changed)) is not None
        assert found.again(head(doubled)) is None


VALUES = [
    b"1",
    b"\xe9",
    b"a b",
    b"",
    b" 1",
    b"1 ",
    b"\t",
    b"a\tb",
    b"1\x00",
    b"1\r\nx-more: 2",
    b"1\nx: y",
    b"1\rx: y",
    b"keep-alive",
    b"close",
]
NAMES = [b"X-A", b"X-Number", b"Connection", b"Proxy-Connection", b"Host", b"Expect", b"Upgrade", b"Transfer-Encoding", b"Content-Length"]
BODIES = [b"", b"hi", b"\r\n\r\n", head(USUAL) + b"hi", b"x" * 70, b"\r\ncontent-length: 5\r\n\r\n"]
KINDS = ["usual", "usual", "field", "value", "number", "breaks", "byte", "length", "front", "folded", "line", "chunked"]


def odd(kind: str, fields: list[Field], draw: st.DrawFn) -> bytes:
    """A head with something about it that most have not."""
    raw = head(fields)
    match kind:
        case "field":
            raw = head([*fields[:-1], (draw(st.sampled_from(NAMES)), draw(st.sampled_from(VALUES))), fields[-1]])
        case "value":
            raw = head([*fields[:-2], (fields[-2][0], draw(st.sampled_from(VALUES))), fields[-1]])
        case "number":
            raw = head(with_value(b"X-Number", draw(st.sampled_from(VALUES)), fields))
        case "breaks":
            raw = raw.replace(b"\r\n", draw(st.sampled_from([b"\n", b"\r"])), draw(st.integers(1, 9)))
        case "byte":
            at = draw(st.integers(0, len(raw) - 1))
            raw = raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + draw(st.integers(0, 1)) :]
        case "length":
            raw = raw.replace(b"Content-Length: ", b"Content-Length:" + draw(st.sampled_from([b"", b"  ", b" 0", b" +", b" 1"])))
        case "front":
            raw = draw(st.sampled_from([b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"x"])) + raw
        case "folded":
            raw = raw.replace(b"X-Number: ", b"X-Number:\r\n ")
        case _:
            raw = head(fields, draw(st.sampled_from([b"GET / HTTP/1.1", b"POST / HTTP/1.0", LINE + b" "])))
    return raw


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[bytes], int]:
    """What a client sends, in pieces: much the same again and again, or nearly so. The first two are usual, so that the head is known."""
    name = draw(st.sampled_from([*NAMES[:-2], b"x-one"]))
    fits = [b"keep-alive", b"1", b"a b"] if draw(st.booleans()) else VALUES
    sent: list[bytes] = []
    for number in range(draw(st.integers(3, 6))):
        kind, body = draw(st.sampled_from(KINDS)) if number > 1 else "usual", draw(st.sampled_from(BODIES))
        length = b"Content-Length", b"%d" % len(body)
        fields = [*with_value(b"X-Number", b"%d" % number, USUAL[:3]), (name, draw(st.sampled_from(fits))), length]
        if kind == "chunked":
            sent.append(head([*fields[:-1], (b"Transfer-Encoding", kind.encode())]) + b"2\r\nhi\r\n0\r\nX: y\r\n\r\n")
        else:
            sent.append((head(fields) if kind == "usual" else odd(kind, fields, draw)) + body)
    turns = draw(st.sampled_from([0, 3, 6]))
    if draw(st.booleans()):
        return sent, turns
    whole = b"".join(sent)
    cuts = sorted(draw(st.sets(st.integers(1, len(whole) - 1), max_size=8)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)], turns


@settings(max_examples=600, deadline=None)
@given(requests())
def test_a_connection_makes_of_its_bytes_what_the_parser_alone_does(given: tuple[list[bytes], int]) -> None:
    """Requests, refusals, what is answered and whether the connection goes on, however the bytes arrive."""
    pieces, turns = given
    found = asyncio.run(spoken(pieces, turns))

    with patch.object(connection, "learnt", lambda *_: None):
        assert found == asyncio.run(spoken(pieces, turns))


ONE, TWO, THREE = [head(with_value(b"X-Number", b"%d" % number)) + b"hi" for number in (1, 2, 3)]
OTHER = head([(b"X", b"y"), (b"Content-Length", b"%d" % len(THREE))])
CHUNKED = head([(b"Transfer-Encoding", b"chunked")]) + b"0\r\n\r\n"
CLOSING = head([*USUAL, (b"Connection", b"close")]) + b"hi"
OLD = head(USUAL, b"POST / HTTP/1.0") + b"hi"
EMPTY = head(with_value(b"Content-Length", b"0")) + b"\n" * 9000


@pytest.mark.parametrize(
    ("pieces", "answered"),
    [
        ([ONE, TWO, OTHER, THREE], 3),
        ([ONE, TWO, b"", OTHER[:9], OTHER[9:], THREE], 3),
        ([ONE, TWO, b"\r\n", THREE], 3),
        ([ONE, TWO, b"\r\nup", THREE], 2),
        ([ONE, TWO, b"", CLOSING, THREE], 3),
        ([OLD, OLD, OLD], 1),
        ([ONE, TWO, THREE[:-1], b"i" + THREE + THREE[:20], THREE[20:]], 5),
        ([ONE, TWO, THREE[:30], THREE[30:]], 3),
        ([ONE] + [TWO + THREE] * 5, 11),
        ([EMPTY] * 10, 10),
    ],
)
def test_only_what_begins_a_request_is_taken_for_one(pieces: list[bytes], answered: int) -> None:
    """Not a body that looks like one, what stands behind an unfinished line, or what comes after the last that is answered."""
    seen: Any = asyncio.run(spoken(pieces, 6))[0]
    assert len(seen) == answered

    for turns in (0, 6):
        found = asyncio.run(spoken(pieces, turns))
        with patch.object(connection, "learnt", lambda *_: None):
            assert found == asyncio.run(spoken(pieces, turns))


def test_the_parser_is_not_asked_about_what_is_known() -> None:
    """Of a usual client's requests it sees the first two, and all of them where each is another."""
    usual = [head([*with_value(b"X-Number", b"%d" % number), (b"a", b"b")]) + b"hi" for number in range(9)]
    unlike = [head([*USUAL, (b"x-%d" % number, b"b")]) + b"hi" for number in range(20)]
    for sent, most, learnings in ((usual, 2, 2), ([request for request in usual for _ in range(2)], 2, 2), (unlike, 20, 8)):
        with (
            patch.object(connection, "_parsed", side_effect=connection._parsed) as parsed,
            patch.object(connection, "learnt", side_effect=learnt) as learning,
        ):
            seen: Any = asyncio.run(spoken(sent, 6))[0]
        assert len(seen) == len(sent)
        assert (parsed.call_count, learning.call_count) == (most, learnings)


def test_a_connection_begins_with_what_is_known_of_others() -> None:
    """Its scopes tell where it comes from all the same; what is no request of theirs is learnt anew."""
    heads = Heads()
    asyncio.run(spoken([ONE, TWO], 6, heads))
    with patch.object(Wire, "get_extra_info", lambda self, name: ("127.0.0.1", 7) if name == "peername" else None):
        with patch.object(connection, "_parsed", side_effect=connection._parsed) as parsed:
            seen: Any = asyncio.run(spoken([THREE, CHUNKED, THREE, OTHER + THREE], 6, heads))[0]
        assert parsed.call_count == 2
        assert [said["client"] for said, *_ in seen] == [("127.0.0.1", 7)] * 4
        assert seen == asyncio.run(spoken([THREE, CHUNKED, THREE, OTHER + THREE], 6))[0]


def test_a_known_requests_scope_is_its_own() -> None:
    """What an application notes in it is not there for the next."""
    first = known(USUAL)
    assert first is not None
    for _ in range(2):
        found = first.again(head(USUAL))
        assert found is not None
        assert (set(found[0]), len(found[0]["headers"]), len(found[1])) == ({"headers", "path"}, 4, 4)
        found[0]["noted"] = found[1]["noted"] = "1"
        found[0]["headers"].append((b"noted", b"1"))
