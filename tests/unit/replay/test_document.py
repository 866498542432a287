"""Files as JSON values: what is read, and what is said of the rest."""

import gzip

import pytest

from proxy.replay import document
from proxy.replay.document import Fault, decode


def values(data: bytes) -> list[tuple[int, object]]:
    return [(value.line, value.data) for value in decode("f", data).values]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_one_value_or_one_a_line(pack: object) -> None:
    """A single value, the members of a single list, or lines; plain or gzip, with or without a byte order mark."""
    assert callable(pack)
    assert values(pack(b'{"a": 1}\n')) == [(1, {"a": 1})]
    assert values(pack(b"[1,\n 2]")) == [(1, 1), (1, 2)]
    assert values(pack(b'\xef\xbb\xbf{"a": 1}\n\n  \r\n[2]\r\n')) == [(1, {"a": 1}), (4, [2])]


def test_half_of_an_emoji_is_no_fault() -> None:
    """Clients written in JavaScript log them."""
    assert values(b'{"a": "\\ud83d"}') == [(1, {"a": "\ufffd"})]


def test_a_line_that_is_no_json_is_named_and_left_out() -> None:
    """As the last line of a log whose writer was killed."""
    read = decode("f", b'{"a": 1}\n{"a": \n')
    assert [value.line for value in read.values] == [1]
    (fault,) = read.faults
    assert str(fault) == "f, line 2: not JSON (Input data was truncated); expected one JSON value a line; the line is left out"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f: empty; expected JSON"),
        (b" \n ", "f: empty; expected JSON"),
        (b"run 1: ok\nrun 2: ok", "f: not JSON (invalid character (byte 0)); expected JSON"),
        (b"[" * 100_000, "f: not JSON ("),
        (gzip.compress(b'{"a": 1}', mtime=0)[:-6], "f: a gzip file that is damaged or cut off"),
        (b"\x1f\x8bnot gzip at all", "f: a gzip file that is damaged or cut off"),
    ],
)
def test_a_file_without_any_json_is_one_fault(data: bytes, said: str) -> None:
    """It says what was expected."""
    read = decode("f", data)
    assert read.values == ()
    (fault,) = read.faults
    assert str(fault).startswith(said)


def test_a_small_file_cannot_become_a_huge_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decompressed is bounded."""
    monkeypatch.setattr(document, "LARGEST", 1 << 20)
    assert decode("f", gzip.compress(b" " * ((1 << 20) + 1))).faults == (Fault("f", None, "more than 1 MiB; split it into smaller files"),)
