"""Dictionaries that stay small: what a process remembers only in order not to find it out again."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_PART = 64  # one entry in so many leaves together


class Bounded(dict[_Key, _Value]):
    """A dictionary of at most so many entries, of which the oldest make room. Filled by `keep` alone; else it is any other."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: _Key, value: _Value) -> _Value:
        """Remembers a value, and returns it."""
        if len(self) >= self._most and key not in self:
            for oldest in leaving(self, self._most):
                del self[oldest]
        self[key] = value
        return value


def leaving(keys: Iterable[_Key], most: int) -> list[_Key]:
    """Which keys of a dictionary, the oldest first, make room where there may be so many.

    Several at once: to find its first entry a dictionary passes the places of all that were deleted before it.
    """
    return list(islice(keys, most // _PART + 1))
