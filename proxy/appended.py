"""What a later release appended to stored values, kept by a release that does not know it and writes them again.

Structures are stored as arrays whose places have a meaning, or as maps. A later release may add places at the end of any, or names.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import msgspec

_Place = tuple[object, Any, Any]  # of a list: what stood there, how that begins, what was appended to it

CARRIED_IN = "appended"
"""The field in which a structure may carry this itself, which is not stored."""


class Appended:
    """What `stored` says beyond `value`, which was read from it (`stored` as plain lists and maps), structure by structure.

    Structures are known by their identity: one that lives on, changed or not, keeps what was appended to it; one that is dropped takes it
    along. Those in a list, or in lists of it, are known by their place as well, also once the first ones are dropped: one that took the
    place of another and begins with the same value is of the same thing, and gets what was appended to that. One that is made anew has
    nothing, and a later release takes that as not yet there.
    """

    __slots__ = ("_listed", "_root", "_told")

    def __init__(self, value: msgspec.Struct, stored: Any) -> None:
        self._root = id(value)
        self._told: dict[int, tuple[object, Any]] = {}  # with the structure, so that nothing else gets its identity
        self._listed: dict[tuple[int, str], tuple[object, Sequence[_Place]]] = {}  # by the structure and its field
        self._read(value, stored)

    def whole(self, value: object) -> Any:
        """A value as it is stored: itself where it says everything, else lists and maps with what was appended to them."""
        return self._whole(value, None)

    def _whole(self, value: object, instead: Any) -> Any:
        """instead: what was appended to the one in whose place it is; of a list, the places that it had."""
        if isinstance(value, list | tuple):
            return self._all(value, instead or ())
        if not isinstance(value, msgspec.Struct):
            return value
        _, more = self._told.get(id(value), (None, instead))
        if value.__struct_config__.array_like:
            return [self._member(value, name, one) for name, one in _fields(value)] + (more or [])
        return {name: self._member(value, name, one) for name, one in _fields(value)} | (more or {})

    def _member(self, of: msgspec.Struct, name: str, value: object) -> Any:
        return self._whole(value, self._listed.get((id(of), name), (None, None))[1])

    def _all(self, values: Sequence[object], before: Sequence[_Place]) -> list[Any]:
        stood = {id(place[0]): number for number, place in enumerate(before) if place[0] != ()}  # of which there is but one
        dropped = next((stood[id(one)] - at for at, one in enumerate(values) if id(one) in stood), 0)
        places = zip(values, chain(before[max(dropped, 0) :], repeat((None, None, None))), strict=False)
        return [self._whole(one, more if _beginning(one) == beginning else None) for one, (_, beginning, more) in places]

    def forget(self) -> None:
        """Says no more than the value does from now on."""
        self._told.clear()
        self._listed.clear()

    def _read(self, value: object, stored: Any) -> Any:
        """What was appended to it; of a list, its places, None where nothing was."""
        if isinstance(value, list | tuple):
            places = [(one, _beginning(one), self._read(one, at)) for one, at in zip(value, stored, strict=True)]
            return places if any([more for _, _, more in places]) else None
        if not isinstance(value, msgspec.Struct):
            return None
        fields = dict(_fields(value))
        if value.__struct_config__.array_like:
            more: Any = stored[len(fields) :]
            known = dict(zip(fields, stored, strict=False))
        else:
            more = {name: at for name, at in stored.items() if name not in fields}
            known = stored
        if more:
            self._told[id(value)] = self._held(value), more
        for name, one in fields.items():
            appended = self._read(one, known[name]) if name in known else None
            if appended and isinstance(one, list | tuple):
                self._listed[id(value), name] = self._held(value), appended
        return more

    def _held(self, value: object) -> object:
        """A structure, to be held on to; but for the one that holds this: structures are no garbage of the collector's."""
        return None if id(value) == self._root else value


def _beginning(value: object) -> Any:
    """The first of what a structure says, or the first in a list: of what it is."""
    if isinstance(value, list | tuple):
        return _beginning(value[0]) if value else None
    return next(_fields(value))[1] if isinstance(value, msgspec.Struct) else None


def _fields(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    return ((name, getattr(value, name)) for name in value.__struct_encode_fields__ if name != CARRIED_IN)
