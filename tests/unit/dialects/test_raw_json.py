"""Reading careless JSON, and editing it as bytes."""

from typing import Any

import msgspec
import pytest

from proxy.dialects import raw_json


class Point(msgspec.Struct):
    x: int = 0


POINT = raw_json.Shape(Point)
ANY = msgspec.json.Decoder(Any)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b'\xef\xbb\xbf"a"', "a"),
        (rb'"cut \ud83d"', "cut \ufffd"),
        (rb'"cut \ude00 off"', "cut \ufffd off"),
        (rb'["\uD83D\uDE00", "\\\ud83d"]', ["\U0001f600", "\\\ufffd"]),
        (rb'["\\ud83d", "\ud83d", "\\\\ude00"]', [r"\ud83d", "\ufffd", r"\\ude00"]),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
    ],
)
def test_half_surrogates_and_marks_are_read(written: bytes, value: Any) -> None:
    """A byte order mark is skipped, half a pair is replaced, whole pairs and escaped backslashes are left alone."""
    assert raw_json.read(ANY, written) == value


@pytest.mark.parametrize("written", [b"", b"{", b'{"a":}', b'"\\x"', b"[" * 100_000])
def test_the_unreadable_is_reported_as_such(written: bytes) -> None:
    """No other exception leaves `read`."""
    with pytest.raises(raw_json.UNREADABLE):
        raw_json.read(ANY, written)


@pytest.mark.parametrize(("raw", "value"), [(b"", None), (b"null", None), (b"[1]", [1]), (b"{", None), (b"[" * 100_000, None)])
def test_plain_values_never_fail(raw: bytes, value: Any) -> None:
    """What cannot be read is None."""
    assert raw_json.plain(raw) == value


@pytest.mark.parametrize(("raw", "xs"), [(b'[{"x":1},{"x":2}]', [1, 2]), (b'[3,{"x":2}]', [0, 2]), (b"null", []), (b"{}", []), (b"", [])])
def test_lists_keep_the_places_of_unreadable_members(raw: bytes, xs: list[int]) -> None:
    """A member of another shape is an empty one; what is no list has no members."""
    assert [point.x for point in POINT.many(raw)] == xs


@pytest.mark.parametrize(("raw", "x"), [(b'{"x":1}', 1), (b'{"x":"1"}', 0), (b"[]", 0), (b"", 0)])
def test_objects_of_another_shape_are_empty(raw: bytes, x: int) -> None:
    """A shape always gives an object."""
    assert POINT.one(raw).x == x


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), (7, 7), (2.0, 2), ("12", 12), (-1, None), (True, None), (2.5, None), (float("inf"), None), ("1e3", None), ("٣", None)],
)
def test_counts_are_whole_numbers(value: object, number: int | None) -> None:
    """Numbers written as text or with a point count; the negative, the odd and the absurd do not."""
    assert raw_json.whole(value) == number
    assert raw_json.whole(10**30) is None
    assert raw_json.whole("9" * 17) is None


@pytest.mark.parametrize(
    ("value", "true"),
    [(True, True), (1, True), ("True", True), ("yes", True), (False, False), ("false", False), (2, False), (None, False), ([], False)],
)
def test_flags_are_what_lenient_servers_take_for_true(value: object, true: bool) -> None:
    """Including words and the number one."""
    assert raw_json.flag(value) is true


def test_members_keep_their_bytes_and_order() -> None:
    """Taking an object or a list apart and putting it together changes only the space between members."""
    written = rb'{"b" : [ 1.0 ,2e5],"a":"\u00e9","b\u0031":null}'

    members = raw_json.fields(written)

    assert raw_json.object_of(members) == rb'{"b":[ 1.0 ,2e5],"a":"\u00e9","b1":null}'
    assert raw_json.list_of(raw_json.raw_list(b'[ 1.0 , "x"]')) == b'[1.0,"x"]'
    assert raw_json.list_of([]) == b"[]"
    assert raw_json.add_member(b'\xef\xbb\xbf {"a": 1 } \n', b'"b":2') == b'\xef\xbb\xbf {"a": 1 ,"b":2} \n'


@pytest.mark.parametrize(
    ("content", "edited"),
    [
        (rb'"r\u00e9sult"', rb'"r\u00e9sult\n\nnote \"\xc3\xa9\""'.replace(rb"\xc3\xa9", "é".encode())),
        (b'""', '"note \\"é\\""'.encode()),
        (b"null", '"note \\"é\\""'.encode()),
        (b"", '"note \\"é\\""'.encode()),
        (b'[ {"type":"text"} ]', '[ {"type":"text"} ,{"type":"text","text":"note \\"é\\""}]'.encode()),
        (b"[ ]", '[ {"type":"text","text":"note \\"é\\""}]'.encode()),
        (b'{"a":1}', b'{"a":1}'),
        (b"17", b"17"),
    ],
)
def test_text_is_appended_to_any_content(content: bytes, edited: bytes) -> None:
    """After a blank line, as a part, or as the content itself; what is neither text nor parts is left alone."""
    assert raw_json.append_text(content, 'note "é"') == edited


def test_half_a_surrogate_can_be_written() -> None:
    """UTF-8 cannot hold it, so it is replaced."""
    assert raw_json.quoted("a\ud83d") == '"a\ufffd"'.encode()
