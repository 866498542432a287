"""Fingerprints on any input: they never raise, hold every rule of equality they promise, and take time in proportion."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.fingerprint import UNSEEN, Fingerprints, canonical, normal_text

LOOSE = Fingerprints(b"s" * 32, loose=True)
EXACT = Fingerprints(b"s" * 32, loose=False)

TEXT = st.text(st.characters(), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12)

# ---- never raises


@given(TEXT, st.text(st.characters() | st.sampled_from('{}[]",:0123456789.eE-+ \\nu'), max_size=60))
def test_any_call_has_an_identity(name: str, arguments: str) -> None:
    """Whatever a model wrote, lone surrogates included; the same one each time."""
    for prints in (LOOSE, EXACT):
        found = prints.call(name, arguments)
        assert 0 < found < 2**64
        assert found == Fingerprints(b"s" * 32, loose=prints is LOOSE).call(name, arguments)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_result_has_an_identity(content: bytes) -> None:
    """Whatever a tool returned: one that is even, one that is odd, neither of them the sign for none."""
    raw, normal = LOOSE.raw_result(content), LOOSE.result(content)
    assert (raw % 2, normal % 2) == (0, 1)
    assert UNSEEN not in (raw, normal)
    assert normal == Fingerprints(b"s" * 32, loose=True).result(content)


# ---- calls


def _turned(value: Any) -> Any:
    """The same value with every object's keys the other way round."""
    match value:
        case dict():
            return {key: _turned(inner) for key, inner in reversed(value.items())}
        case list():
            return [_turned(inner) for inner in value]
        case _:
            return value


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_order_space_and_escapes_make_no_other_call(value: Any, indent: int | None, escaped: bool) -> None:
    """At every depth, however strict the comparison."""
    one, two = json.dumps(value), json.dumps(_turned(value), indent=indent, ensure_ascii=escaped)
    assert LOOSE.call("t", one) == LOOSE.call("t", two)
    assert EXACT.call("t", one) == EXACT.call("t", two)


def _loosened(value: Any) -> Any:
    """The same value written carelessly: integers in quotes, null members, space around strings."""
    match value:
        case bool() | None | float():
            return value
        case int():
            return f" {value}\n"
        case str():
            return f"\t{value} "
        case list():
            return [_loosened(inner) for inner in value]
        case _:
            members = {key: _loosened(inner) for key, inner in value.items()}
            return members | ({"": None} if "" not in value else {})


@given(JSON)
def test_loose_comparison_forgives_what_it_says(value: Any) -> None:
    """And it forgives it everywhere at once."""
    assert LOOSE.call("t", json.dumps(value)) == LOOSE.call("t", json.dumps(_loosened(value)))


@given(JSON)
def test_exact_comparison_loses_nothing(value: Any) -> None:
    """The canonical form reads back as the value itself: two that differ cannot share it."""
    assert json.loads(canonical(json.dumps(value), loose=False)) == value


# ---- results

WORDS = st.lists(st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=8), min_size=1, max_size=4).map(" ".join)
NUMBER = st.integers(0, 59)


VOLATILE: dict[str, Callable[[int], str]] = {
    "clock": lambda n: f"12:30:{n:02}",
    "date and time": lambda n: f"2026-01-{n % 28 + 1:02} 12:{n:02}",
    "ISO": lambda n: f"2026-01-05T12:{n:02}:01.{n:03}Z",
    "offset": lambda n: f"2026-01-05 12:{n:02}:01 +02:00",
    "milliseconds": lambda n: f"{n} ms",
    "seconds": lambda n: f"{n}.{n}s",
    "time(1)": lambda n: f"{n}m{n}.{n}s",
    "hours": lambda n: f"{n}h {n}m {n}s",
    "duration": lambda n: f"duration: {n}",
    "pid": lambda n: f"pid {n}",
    "PID": lambda n: f"(PID={n})",
    "request": lambda n: f"request_id=r{n}",
    "session": lambda n: f"Session ID: {n}",
    "message": lambda n: f'"messageId": "{n}"',
    "prefixed id": lambda n: f"msg_{n}aBcDeFgH{n}",
    "UUID": lambda n: f"550e8400-e29b-41d4-a716-4466554400{n:02}",
    "attempt": lambda n: f"attempt {n} of 59",
    "retry": lambda n: f"retry {n}",
    "seen": lambda n: f"read {n}x",
    "temporary": lambda n: f"/tmp/tmpab{n}cd/out",
    "build directory": lambda n: f"/tmp/pip-build-a{n}b{n}c{n}d",
    "colour": lambda n: f"\x1b[{n}m",
}
KEPT: dict[str, Callable[[int], str]] = {
    "date": lambda n: f"2026-01-{n + 1:02}",
    "exit code": lambda n: f"exit code {n}",
    "errno": lambda n: f"errno {n}",
    "status": lambda n: f"HTTP {200 + n}",
    "port": lambda n: f"localhost:{8000 + n}",
    "count": lambda n: f"{n} failed",
    "line": lambda n: f"a.py:{n}:7",
    "version": lambda n: f"v1.2.{n}",
    "file": lambda n: f"run_phase{n}.sh",
    "steps": lambda n: f"took {n} steps",
}


@pytest.mark.parametrize("form", VOLATILE.values(), ids=VOLATILE)
@settings(max_examples=15)
@given(before=WORDS, after=WORDS, first=NUMBER, second=NUMBER, gap=st.sampled_from([" ", "\n", " - ", "\t"]))
def test_what_is_volatile_says_nothing(form: Callable[[int], str], before: str, after: str, first: int, second: int, gap: str) -> None:
    """In any surroundings."""
    one, two = f"{before}{gap}{form(first)}{gap}{after}", f"{before}{gap}{form(second)}{gap}{after}"
    assert normal_text(one) == normal_text(two)
    assert normal_text(one).startswith(before.rstrip())
    assert normal_text(one).endswith(after)


@pytest.mark.parametrize("form", KEPT.values(), ids=KEPT)
@settings(max_examples=15)
@given(before=WORDS, after=WORDS, first=NUMBER, second=NUMBER, gap=st.sampled_from([" ", "\n", " - "]))
def test_what_may_be_news_is_kept(form: Callable[[int], str], before: str, after: str, first: int, second: int, gap: str) -> None:
    """In any surroundings."""
    one, two = f"{before}{gap}{form(first)}{gap}{after}", f"{before}{gap}{form(second)}{gap}{after}"
    assert (normal_text(one) == normal_text(two)) is (first == second)


@given(st.lists(WORDS | st.builds(lambda form, n: form(n), st.sampled_from([*VOLATILE.values(), *KEPT.values()]), NUMBER), max_size=12))
def test_normal_text_is_normal(pieces: list[str]) -> None:
    """Normalising it again changes nothing."""
    once = normal_text("\n".join(pieces))
    assert normal_text(once) == once


@given(st.text(), st.text())
def test_an_own_note_is_never_part_of_a_result(text: str, note: str) -> None:
    """As a string or as one more part."""
    noted = f"{text}\n\n[lastcall] {note}" if text else f"[lastcall] {note}"
    assert normal_text(noted) == normal_text(text)
    assert LOOSE.result(json.dumps([text, f"[lastcall] {note}"]).encode()) == LOOSE.result(json.dumps([text]).encode())


# ---- time

PIECES = [
    "1",
    "12:",
    "12:30:",
    "2026-",
    "1h",
    "1m",
    ".",
    "-",
    "_",
    "a",
    "a1",
    " ",
    "\n",
    "\x1b[",
    "\x1b]",
    "session id ",
    "msg_",
    "duration",
    "/tmp/",
    "/tmp/a.",
]
PIECES += ["attempt ", "pid", '"', "=", "0123456789abcdef", "550e8400-", "took", "/var/folders/", "read 1"]


def _cost(text: str) -> float:
    """CPU seconds, the least of three."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        normal_text(text)
        times.append(time.process_time() - begun)
    return min(times)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join))
def test_sixteen_times_the_text_takes_no_square_of_the_time(piece: str) -> None:
    """Linear would be 16 times as long, a square 256 times. What is below a millisecond is not measured."""
    short, long = piece * (2000 // len(piece)), piece * (32_000 // len(piece))
    assert _cost(long) < 80 * max(_cost(short), 0.0005)
