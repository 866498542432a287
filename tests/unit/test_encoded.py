"""Lists that are encoded again: as they would be without what is known of them, and nothing that stands is encoded twice."""

from typing import Any

import msgspec
import pytest

from proxy import encoded
from proxy.encoded import Encoded

MANY = [*range(2**63, 2**63 + 40)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is encoded, one by one."""
    seen: list[Any] = []

    def encode(values: list[Any]) -> bytes:
        seen.extend(values)
        return msgspec.msgpack.encode(values)

    monkeypatch.setattr(encoded, "_encode", encode)
    return seen


@pytest.mark.parametrize("length", [0, 1, 15, 16, 300, 70_000])
def test_a_list_is_encoded_as_it_is(length: int) -> None:
    """Of any length, the first time and again."""
    values, list_ = ["x"] * length, Encoded()
    assert [bytes(list_.again(values)) for _ in range(2)] == [msgspec.msgpack.encode(values)] * 2


def test_of_a_list_that_was_added_to_only_that_is_encoded(asked: list[Any]) -> None:
    """Whatever else is in it is not looked at."""
    values, list_ = MANY[:20], Encoded()
    list_.again(values)
    asked.clear()
    values += MANY[20:22]

    assert bytes(list_.again(values)) == msgspec.msgpack.encode(MANY[:22])
    assert [one for one in asked if one is not None] == MANY[20:22]


@pytest.mark.parametrize(
    ("values", "new"),
    [
        (MANY[:20], []),
        ([*MANY[:20], 1], [1]),
        ([*MANY[:19], 1], [1]),
        ([*MANY[:19], 1, 2], [1, 2]),
        (MANY[:12], []),
        (MANY[3:22], [MANY[20], MANY[21]]),
        ([*MANY[3:19], 1], [1]),
        (MANY[3:9], []),
        ([*MANY[:5], 1, *MANY[6:9]], [*MANY[6:9], 1, *MANY[6:9]]),
        (MANY[20:], MANY[20:]),
        ([1, *MANY[:20]], [1, *MANY[:20]]),
        ([], []),
    ],
    ids=["same", "longer", "newest", "both", "shorter", "oldest", "oldest and newest", "both ends", "between", "others", "before", "none"],
)
def test_of_another_list_what_stands_is_taken_over(asked: list[Any], values: list[int], new: list[int]) -> None:
    """Where its oldest are gone, as well, and up to the first that is another. What leaves is encoded only to see how long it was."""
    list_ = Encoded()
    list_.again(MANY[:20])
    asked.clear()

    assert bytes(list_.again(values)) == msgspec.msgpack.encode(values)
    assert [one for one in asked if one in values] == new
    asked.clear()
    values.append(7)
    assert bytes(list_.again(values)) == msgspec.msgpack.encode(values)
    assert [one for one in asked if one is not None] == [7]


def test_what_was_added_since_and_is_gone_again_is_not_known() -> None:
    """A list that was added to and never encoded so: another one that begins like it was."""
    values, list_ = MANY[:5], Encoded()
    list_.again(values)
    values += [1, 2]
    assert bytes(list_.again([*MANY[:5], 3])) == msgspec.msgpack.encode([*MANY[:5], 3])
