"""Lists that are stored again and again and change little: what was encoded of one once is not encoded again."""

from functools import lru_cache
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


class Encoded:
    """A list as it was encoded last.

    Such a list is only added to, and nothing in it changes; for all else another list takes its place. So what was encoded of it stands,
    and is not even looked at. Of another list what it begins with is taken over as far as it is the same.
    """

    __slots__ = ("_count", "_data", "_values")

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._count = 0  # of them that are encoded
        self._data = b""  # those, without what comes before a list's first

    def again(self, values: list[Any]) -> msgspec.Raw:
        """The list as it is now, in MessagePack."""
        if values is not self._values:
            self._cut(values)
        if self._count < len(values):
            self._data += _items(values[self._count :])
            self._count = len(values)
        return msgspec.Raw(_beginning(len(values)) + self._data)

    def _cut(self, values: list[Any]) -> None:
        """Leaves what these begin with: without the oldest, if those are gone, and without whatever follows the first that is another."""
        known = self._values[: self._count]
        dropped = known.index(values[0]) if values and values[0] in known else len(known)
        rest = known[dropped:]
        stay = len(rest)
        if values[:stay] != rest:
            stay = next((at for at, (one, other) in enumerate(zip(rest, values, strict=False)) if one != other), len(values))
        if stay:
            begin, end = len(_items(known[:dropped])), len(self._data) - len(_items(rest[stay:]))
            self._data = self._data[begin:end]
        else:
            self._data = b""
        self._values, self._count = values, stay


def _items(values: list[Any]) -> bytes:
    return _encode(values)[len(_beginning(len(values))) :]


@lru_cache(maxsize=1024)
def _beginning(length: int) -> bytes:
    """What comes before the first of a list: how many there are."""
    return _encode([None] * length)[: -length or None]
