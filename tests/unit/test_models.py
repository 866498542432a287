"""The little behaviour that the shared nouns have."""

import json

import pytest

from proxy.models import Finding, Reason, text_of


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b"null", ""),
        (b" null ", ""),
        (b'"a\\nb"', "a\nb"),
        (b'""', ""),
        (b"[]", ""),
        (b'[{"type":"text","text":"a"},{"type":"image_url","image_url":{}},{"type":"text","text":"b"}]', "a\nb"),
        (b'["a",{"text":"b"},1,null,{"text":2}]', "a\nb"),
        (b"1", ""),
        (b'{"text":"a"}', ""),
        (b'"open', '"open'),
        (b"\xffx", "\ufffdx"),
        (b'"\xff"', '"\ufffd"'),
        (b'"\\ud800"', '"\\ud800"'),
        (b"[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_text_of_a_content(content: bytes, text: str) -> None:
    """The string, or the text parts a line each; what is not JSON is its own text."""
    assert text_of(content) == text


def test_text_of_what_was_written_is_what_was_said() -> None:
    """Escapes and other alphabets come out as they went in."""
    assert text_of(json.dumps("héllo \u2028 \U0001f600").encode()) == "héllo \u2028 \U0001f600"


@pytest.mark.parametrize(
    ("count", "nudge_at", "stop_at", "nudges", "stops"),
    [(2, 3, 5, False, False), (3, 3, 5, True, False), (5, 3, 5, True, True), (9, None, 5, False, True), (9, 3, None, True, False)],
)
def test_a_finding_climbs_its_ladder(count: int, nudge_at: int | None, stop_at: int | None, nudges: bool, stops: bool) -> None:
    """A rung is reached at its number; a missing one never is."""
    finding = Finding(Reason.REPEATED_CALL, "t", count, nudge_at, stop_at, frozenset())
    assert (finding.nudges, finding.stops) == (nudges, stops)
