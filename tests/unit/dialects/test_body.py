"""Request bodies as the dialects share them. Faults and hints in full stand in `test_chat_request.py`, whose dialect came first."""

import pytest
from msgspec.json import Decoder

from proxy.dialects.body import LONGEST_HINT, Hinted, hints_of, read_body
from proxy.errors import BadRequest


class Strict(Hinted, kw_only=True):
    """A body whose list holds what it should."""

    things: list[dict[str, str]]


class Lenient(Hinted, kw_only=True):
    """A body whose list may hold anything."""

    things: list[object]


QUICK, GENERAL = Decoder(Strict), Decoder(Lenient)


def test_the_usual_body_is_read_strictly_any_other_with_care() -> None:
    """Whichever decoder takes it."""
    assert isinstance(read_body(b'{"things":[{"a":"b"}]}', QUICK, GENERAL, "things"), Strict)
    assert isinstance(read_body(b'{"things":[1]}', QUICK, GENERAL, "things"), Lenient)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "`things` is missing"),
        (b'{"things":{}}', "`things` is of type object: send a list"),
        (b"[]", "the body is of type array: send an object"),
        (b'{"things":[}', "not valid JSON"),
        (b'{"things":["\xff"]}', "not UTF-8 (at byte 12)"),
        (b'{"things":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}", "nested too deeply"),
    ],
)
def test_a_fault_names_its_place(body: bytes, said: str) -> None:
    """In words that a person can act on."""
    with pytest.raises(BadRequest) as refused:
        read_body(body, QUICK, GENERAL, "things")

    assert said in refused.value.message


def test_hints_are_texts_of_a_sensible_length() -> None:
    """Others are no ids."""

    def hints(members: bytes) -> dict[str, str]:
        return hints_of(read_body(b'{"things":[],' + members + b"}", QUICK, GENERAL, "things"))

    assert hints(b'"user":"u","metadata":{"user_id":"x","session_id":7}') == {"user": "u", "metadata.user_id": "x"}
    assert hints(b'"session_id":"%b"' % (b"a" * (LONGEST_HINT + 1))) == {}
