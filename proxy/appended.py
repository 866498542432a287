"""What a later release appended to stored values, kept by a release that does not know it and writes them again.

Structures are stored as arrays whose places have a meaning, or as maps. A later release may add places at the end of any, or names.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

CARRIED_IN = "appended"
"""The field in which a structure may carry this itself, which is not stored."""


class Appended:
    """What `stored` says beyond `value`, which was read from it (`stored` as plain lists and maps), structure by structure.

    Structures are known by their identity: one that lives on, changed or not, keeps what was appended to it; one that is dropped takes it
    along; one that is made anew has nothing, and a later release takes that as not yet there.
    """

    __slots__ = ("_root", "_told")

    def __init__(self, value: msgspec.Struct, stored: Any) -> None:
        self._root = id(value)
        self._told: dict[int, tuple[object, Any]] = {}  # with the structure, so that nothing else gets its identity
        self._read(value, stored)
        if self._root in self._told:
            self._told[self._root] = (None, self._told[self._root][1])  # it holds this, and structures are no garbage of the collector's

    def whole(self, value: object) -> Any:
        """A value as it is stored: itself where it says everything, else lists and maps with what was appended to them."""
        if isinstance(value, list):
            return [self.whole(one) for one in value]
        if not isinstance(value, msgspec.Struct):
            return value
        _, more = self._told.get(id(value), (None, None))
        if value.__struct_config__.array_like:
            return [self.whole(one) for _, one in _fields(value)] + (more or [])
        return {name: self.whole(one) for name, one in _fields(value)} | (more or {})

    def forget(self) -> None:
        """Says no more than the value does from now on."""
        self._told.clear()

    def _read(self, value: object, stored: Any) -> None:
        if isinstance(value, list):
            for one, at in zip(value, stored, strict=True):
                self._read(one, at)
        elif isinstance(value, msgspec.Struct):
            fields = dict(_fields(value))
            if value.__struct_config__.array_like:
                more: Any = stored[len(fields) :]
                known = dict(zip(fields, stored, strict=False))
            else:
                more = {name: at for name, at in stored.items() if name not in fields}
                known = stored
            if more:
                self._told[id(value)] = value, more
            for name, one in fields.items():
                if name in known:
                    self._read(one, known[name])


def _fields(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    return ((name, getattr(value, name)) for name in value.__struct_encode_fields__ if name != CARRIED_IN)
