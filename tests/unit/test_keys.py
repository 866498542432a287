"""Callers' keys: which one a request shows, how it is recognised, where it must not go."""

import hashlib
import hmac

import pytest

from proxy import keys
from proxy.keys import KeyRing, digest_of, new_key

RING = KeyRing({"red": [digest_of("r1"), digest_of("r2")], "blue": [digest_of("b1")]})


def test_a_new_key_is_its_random_bytes_in_letters_a_header_can_carry() -> None:
    """Nothing is lost of them, and nothing needs quoting in a shell or a URL."""
    key = new_key(bytes(range(32)))

    assert key == "lc-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert new_key(b"\xff" * keys.KEY_BYTES) != new_key(b"\xfe" * keys.KEY_BYTES)


def test_a_digest_is_what_any_tool_makes_of_a_key() -> None:
    """`printf %s KEY | sha256sum`, with the kind in front."""
    assert digest_of("lc-é") == "sha256:" + hashlib.sha256("lc-é".encode()).hexdigest()


@pytest.mark.parametrize(
    ("key", "team"), [("r1", "red"), ("r2", "red"), ("b1", "blue"), ("B1", None), ("", None), ("b1 ", None), ("\ud800", None)]
)
def test_whose_a_key_is(key: str, team: str | None) -> None:
    """A team may have several; one that nobody has is nobody's."""
    assert RING.team_of(key) == team


def test_without_teams_no_key_is_anybodys() -> None:
    """An empty ring knows none."""
    assert KeyRing({}).team_of("r1") is None


@pytest.mark.parametrize("key", ["r1", "b1", "nobody's"])
def test_every_digest_is_compared_in_constant_time_whichever_it_is(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the time an answer takes tells nothing of how near a guess came."""
    compared: list[bytes] = []
    original = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return original(one, other)

    monkeypatch.setattr(keys, "compare_digest", counting)
    RING.team_of(key)

    assert len(compared) == 3


@pytest.mark.parametrize(
    ("headers", "goes"),
    [
        ({"authorization": "Bearer r1"}, True),
        ({"authorization": "bearer  r1 "}, True),
        ({"authorization": "r1"}, True),
        ({"x-api-key": "b1"}, True),
        ({"api-key": "b1"}, True),
        ({"x-lastcall-key": "r1", "authorization": "Bearer sk-1"}, False),
        ({"authorization": "Basic r1"}, False),
        ({}, False),
    ],
)
def test_whether_a_key_would_go_upstream(headers: dict[str, str], goes: bool) -> None:
    """In any field in which a client's own credentials are passed on."""
    assert RING.goes_upstream(headers) is goes
