"""Request heads like the one before them, taken apart without a parser. Pure.

A client sends nearly the same head with each of its requests: the length of the body differs, and what it numbers or dates. What a parser
said of one is true of the next where not a byte is another but in values that mean nothing to a parser, and these are plain.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_MOST_BYTES = 8_192  # of a head that is learnt, and of a value that takes the place of one in it
_MOST_VARYING = 8  # fields
_LENGTH = b"content-length"
# What these say frames the request, or tells what becomes of the connection.
_TO_THE_PARSER = frozenset({b"connection", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_DIGITS = re.compile(rb"[0-9]{1,15}").fullmatch
# No control characters, and no blanks around it, which a parser takes away.
_VALUE = re.compile(rb"[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?").fullmatch


class Head:
    """A head that a parser has read, and in which lines others may differ from it.

    scope: of its request in ASGI, without what each request or connection has for its own. texts: its fields as text, by their names in
    lower case.
    """

    __slots__ = ("_fields", "_lines", "_names", "_parts", "_places", "_rest", "_scope", "_texts")

    def __init__(self, lines: Sequence[bytes], places: set[int], scope: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        """lines: without their breaks, the first one among them. places: of those that may differ."""
        self._lines, self._places, self._scope, self._texts = lines, places, dict(scope), dict(texts)
        self._names = _names(scope)
        self._parts: list[tuple[bytes, Callable[[bytes], object]]] = []  # what stands before each value that differs, and what it must be
        self._fields: list[tuple[int, bytes, str]] = []  # which those are
        begun = b""
        for place, line in enumerate(lines):
            if place in places:
                name = self._names[place - 1]
                self._parts.append((begun + _opening(line), _DIGITS if name == _LENGTH else _VALUE))
                self._fields.append((place - 1, name, name.decode("latin-1")))
                begun = b"\r\n"
            else:
                begun += line + b"\r\n"
        self._rest = begun + b"\r\n"

    def again(self, data: bytes) -> tuple[dict[str, Any], dict[str, str], int, int] | None:
        """Of data that begins with such a head: scope and texts of its request, the length of the body, and where that begins."""
        values: list[bytes] = []
        at = 0
        for before, fits in self._parts:
            begins = at + len(before)
            end = data.find(b"\r\n", begins, begins + _MOST_BYTES) if data.startswith(before, at) else -1
            if end < 0 or not fits(value := data[begins:end]):
                return None
            values.append(value)
            at = end
        if not data.startswith(self._rest, at):
            return None
        scope, texts = self._scope.copy(), self._texts.copy()
        scope["headers"] = fields = scope["headers"].copy()
        for (place, name, text), value in zip(self._fields, values, strict=True):
            fields[place], texts[text] = (name, value), value.decode("latin-1")
        return scope, texts, int(texts["content-length"]), at + len(self._rest)

    def differing(self, lines: Sequence[bytes], names: Sequence[bytes]) -> set[int]:
        """The lines in which heads with the fields of this one, and now this other one too, were found to differ."""
        if names != self._names:
            return set()
        return self._places | {place for place, (line, known) in enumerate(zip(lines, self._lines, strict=True)) if place and line != known}


class Heads:
    """What the connections of a server have in common: the newest head of any, with which each begins."""

    newest: Head | None = None


def learnt(head: bytes, scope: Mapping[str, Any], texts: Mapping[str, str], before: Head | None) -> Head | None:
    """What can be said of heads like this one, which a parser has read; None where no other may be taken for it.

    head: from its first byte to the empty line. scope, texts: what was made of it. before: what was known so far.
    """
    lines, names = head[:-4].split(b"\r\n"), _names(scope)
    breaks = len(names) + 2  # each field has a line of its own, which ends as it should
    if len(head) > _MOST_BYTES or not breaks == head.count(b"\r\n") == head.count(b"\r") == head.count(b"\n"):
        return None
    if names.count(_LENGTH) != 1 or b"transfer-encoding" in names:
        return None
    length = names.index(_LENGTH) + 1
    if _DIGITS(lines[length][len(_opening(lines[length])) :]) is None:
        return None
    places = {length} if before is None else {length} | before.differing(lines, names)
    if len(places) > _MOST_VARYING or not all(_may_differ(names[place - 1], names) for place in places):
        places = {length}
    return Head(lines, places, scope, texts)


def _names(scope: Mapping[str, Any]) -> list[bytes]:
    return [name for name, _ in scope["headers"]]


def _opening(line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    return name + colon + value[: value.startswith(b" ")]


def _may_differ(name: bytes, names: Sequence[bytes]) -> bool:
    """Whether another value of this field means nothing to a parser, and stands for the field's only one."""
    return name not in _TO_THE_PARSER and names.count(name) == 1
