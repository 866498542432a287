"""Answers taken apart without a parser: which are, and that a parser would have found the same."""

import asyncio

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpResponseParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.upstream.arrived import Forms, Whole
from proxy.upstream.headers import to_client

USUAL = (
    b"HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 22:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Connection: keep-alive\r\nx-request-id: req_1\r\nSet-Cookie: a=b\r\nX-Empty:\r\nnel:[]\r\n\r\n{}"
)


def _known(data: bytes) -> Forms:
    """Forms that know the like of this answer."""
    forms = Forms()
    assert [forms.taken_apart(data), forms.taken_apart(data)] == [None, None]
    return forms


def _again(data: bytes) -> Whole | None:
    return _known(data).taken_apart(data)


def test_a_usual_answer_is_taken_apart_from_the_third_on() -> None:
    """Status, body and the fields that the client may see; values are those of the answer at hand."""
    data = USUAL.replace(b"req_1", b"req_2").replace(b": 2\r", b": 3\r") + b" "

    whole = _known(USUAL).taken_apart(data)

    assert whole is not None
    assert (whole.status, whole.reason, whole.body) == (200, "OK", b"{} ")
    assert (b"x-request-id", b"req_2") in whole.to_client(plain=True)
    for plain in (False, True):
        assert whole.to_client(plain=plain) == to_client(_parsed(data)[2], plain=plain)


def test_one_field_is_enough() -> None:
    """The length alone, which a client that gets it decoded is not told."""
    whole = _again(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")

    assert whole is not None
    assert (whole.status, whole.reason, whole.body) == (500, "Internal Server Error", b"")
    assert [whole.to_client(plain=plain) for plain in (False, True)] == [[(b"content-length", b"0")], []]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"{}", b"{"),
        (b"{}", b"{}\r\n"),
        (b"{}", b"{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (b"Length: 2", b"Length: 1"),
        (b"Length: 2", b"Length: 02"),
        (b"Length: 2", b"Length: +2"),
        (b"Length: 2\r\n", b"Length: 2\r\nContent-Length: 2\r\n"),
        (b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"),
        (b"Set-Cookie: a=b\r\n", b"Transfer-Encoding: chunked\r\n"),
        (b"Set-Cookie: a=b\r\n", b"Content-Encoding: gzip\r\n"),
        (b"Set-Cookie: a=b\r\n", b"Upgrade: h2c\r\n"),
        (b"Set-Cookie: a=b\r\n", b"Proxy-Connection: close\r\n"),
        (b"Set-Cookie: a=b\r\n", b"a b: c\r\n"),
        (b"Set-Cookie: a=b\r\n", b"no colon\r\n"),
        (b"Set-Cookie: a=b\r\n", b"Set-Cookie: a=b\r\n folded\r\n"),
        (b"Set-Cookie: a=b\r\n", b"".join([b"X-%d: 1\r\n" % number for number in range(120)])),
        (b"keep-alive", b"close"),
        (b"keep-alive", b"keep-alive, close"),
        (b"req_1", b"req\n1"),
        (b"req_1", b"req\r1"),
        (b"req_1", b"req\x001"),
        (b"req_1", b" req_1"),
        (b"req_1", b"req_1 "),
        (b"req_1", b"r" * 70_000),
        (b"200 OK", b"204 No Content"),
        (b"200 OK", b"304 Not Modified"),
        (b"200 OK", b"100 Continue"),
        (b"200 OK", b"700 OK"),
        (b"200 OK", b"200"),
        (b"200 OK", b"200  OK"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"\r\n\r\n{}", b"\r\n"),
        (b"\r\n\r\n", b"\n\n"),
    ],
)
def test_what_is_not_plain_is_left_to_a_parser(old: bytes, new: bytes) -> None:
    """However often it is seen, and after usual ones of which it may be a forgery."""
    data = USUAL.replace(old, new, 1)
    forms = _known(USUAL)

    assert [forms.taken_apart(data) for _ in range(4)] == [None] * 4
    assert _again(data) is None
    assert forms.taken_apart(USUAL) is not None


def test_answers_of_several_forms_take_turns() -> None:
    """Each is known while it is needed; of many others the oldest is forgotten."""
    answers = [USUAL.replace(b"x-request-id", b"x-id-%d" % number) for number in range(9)]
    forms = Forms()
    for answer in answers[:8] * 2:
        assert forms.taken_apart(answer) is None
    for answer in answers[:8] * 2:
        assert forms.taken_apart(answer) is not None
    for _ in range(2):
        assert forms.taken_apart(answers[8]) is None

    assert forms.taken_apart(answers[8]) is not None
    assert forms.taken_apart(answers[0]) is None


def test_an_upstream_whose_answers_are_never_alike_is_looked_at_no_more() -> None:
    """What nobody will see again is not remembered for ever."""
    forms = Forms()
    for number in range(300):
        assert forms.taken_apart(USUAL.replace(b"x-request-id", b"x-%d" % number)) is None

    assert [forms.taken_apart(USUAL) for _ in range(4)] == [None] * 4
    assert len(forms._seen) < 300


@pytest.mark.parametrize("field", [b"a:b\r\n" * 12_000, b"n" * 60_000 + b": v\r\n"], ids=["many fields", "long names"])
def test_what_would_take_long_to_learn_is_not_learnt(field: bytes) -> None:
    """A pattern for thousands of fields takes seconds to make, in which every other request would wait."""
    forms = Forms()
    answer = USUAL.replace(b"nel:[]\r\n", field)

    assert [forms.taken_apart(answer) for _ in range(4)] == [None] * 4
    assert (forms._known, forms._seen) == ([], set())


def _mangled() -> st.SearchStrategy[bytes]:
    """Answers that are usual but for some pieces put into them, or in the place of something."""
    pieces = [
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b":",
        b": ",
        b"\x00",
        b"\x7f",
        b"\xff",
        b"0",
        b"2",
        b"a",
        b"{}",
        b",",
        b"close",
    ]
    fields = [
        b"Content-Length: 2\r\n",
        b"Connection: close\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"X-A: b\r\n",
        b"X:\r\n",
        b"HTTP/1.1 200 OK\r\n",
    ]
    changes = st.lists(
        st.tuples(st.integers(0, len(USUAL)), st.integers(0, 3), st.sampled_from([*pieces, *fields]) | st.binary(max_size=4)),
        min_size=1,
        max_size=3,
    )

    def mangle(changes: list[tuple[int, int, bytes]]) -> bytes:
        data = USUAL
        for place, taken, piece in sorted(changes, reverse=True):
            data = data[:place] + piece + data[place + taken :]
        return data

    return changes.map(mangle)


@settings(max_examples=300, deadline=None)
@given(_mangled(), st.booleans())
@example(USUAL, True)
def test_a_parser_would_have_found_the_same(data: bytes, learnt: bool) -> None:
    """In every answer that is taken apart, whether its form was learnt from others or from itself."""
    forms = _known(USUAL)
    if learnt:
        forms.taken_apart(data)
        forms.taken_apart(data)
    whole = forms.taken_apart(data)

    if whole is not None:
        status, reason, fields, body = _parsed(data)
        assert (whole.status, whole.reason, whole.body) == (status, reason, body)
        assert whole.to_client(plain=False) == to_client(fields, plain=False)
        assert whole.to_client(plain=True) == to_client(fields, plain=True)


def _parsed(data: bytes) -> tuple[int, str, list[tuple[bytes, bytes]], bytes]:
    """What aiohttp's parser makes of one answer that leaves its connection open."""
    loop = asyncio.new_event_loop()
    try:
        parser = HttpResponseParser(
            BaseProtocol(loop), loop, 2**18, read_until_eof=True, auto_decompress=False, max_line_size=2**16, max_field_size=2**16
        )
        ((message, content),), upgraded, tail = parser.feed_data(data)
        assert not (message.should_close or upgraded or tail)
        assert content.is_eof()
        return message.code, message.reason, list(message.raw_headers), content.read_nowait()
    finally:
        loop.close()
