"""Requests that begin with what an earlier one said: of those only what is new is read.

Agents send their whole history again in every request. Where a body is an earlier one with further elements at the end of its history,
byte for byte, what was read of that one stands, and the elements are read alone. Anything else is read as a whole: the result is the same.
Clients that mark how far the provider is to cache move the marker on with each request, so that the newest elements come back without it:
from the first that holds one on they are read again.
"""

import re

import msgspec

from proxy.dialects import Dialect
from proxy.dialects.raw_json import FIELDS, UNREADABLE, raw_list
from proxy.errors import BadRequest
from proxy.models import Request

ROOM = 16 * 2**20  # bytes that are held of the newest bodies, and of what was read of them
_PER_ITEM = 512  # bytes that an item takes beside its content
_LEAST = 4_096  # bytes of a body: a shorter one is read as quickly as it is found
_WINDOW = 8_192  # bytes before a mark in which the newest id is looked for
_ID = b'_id"'  # ends the member of a result, in every dialect, that names its call
_LONGEST_ID = 64  # bytes from there on: conversations that say the same have other ids
_NEAR = 256  # bytes before a mark: conversations that have no ids say something else
_LOOKS = 4  # marks: a body that grew by more than the half is read as a whole
_SPACE = b" \t\n\r"
_MARKER = b'"cache_control"'
_ENDING = 256  # bytes at the end of a history in which the newest marker stands: behind the text that it marks
_NEWEST = 4  # elements in which markers move: the last two that are a user's, and what stands between and behind them


class _Reading(msgspec.Struct, frozen=True):
    """A request that was read, as far as it will come back as it was.

    end: of the last element in the body that is part of it. rest: of the last element at all. weight: what it holds, in bytes.
    """

    request: Request
    end: int
    rest: int
    weight: int

    def added(self, body: bytes, rest: int) -> bytes | None:
        """The further elements, as they are written, of a body that is this one with more of them; None for any other body.

        rest: where its last element ends, if it is.
        """
        known, end = self.request.body, self.end
        if rest < end or not body.endswith(known[self.rest :]) or not body.startswith(memoryview(known)[:end]):
            return None
        between, comma, elements = body[end:rest].partition(b",")
        if between.strip(_SPACE) or (comma and not elements.strip(_SPACE)):
            return None  # a comma comes next, and behind it an element: what stands in brackets here stood in the list there
        return elements


def _reading(request: Request, end: int, rest: int) -> _Reading:
    return _Reading(request, end, rest, 2 * len(request.body) + _PER_ITEM * len(request.items))


_Read = tuple[Request, _Reading]  # a request, and what is to be remembered of it


class Readings:
    """The newest requests of a process, `room` bytes of them. Found again only by the same caller."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._held = 0
        self._known: dict[int, _Reading] = {}  # by a hash of the caller and of what tells conversations apart, the oldest first

    def read(self, dialect: Dialect, body: bytes, caller: str) -> Request:
        """Reads a request. Raises `BadRequest`, as the dialect does, on bytes that are not one. caller: whose it is."""
        if len(body) < _LEAST:
            return dialect.parse(body)
        known, found, key = self._find(dialect, body, caller)
        request, reading = (_grown(dialect, known, body) if known is not None else None) or _whole(dialect, body)
        if reading.end >= _LEAST:
            mark = _mark_before(reading.end)
            self._keep(key if mark == found else _key(dialect, body, mark, caller), reading)
        return request

    def _find(self, dialect: Dialect, body: bytes, caller: str) -> tuple[_Reading | None, int, int]:
        """Takes out what is known of the beginning of a body. Also the mark before which it was found, and by which key."""
        mark = len(body) + 1
        for _ in range(_LOOKS):
            mark = _mark_before(mark - 1)
            key = _key(dialect, body, mark, caller)
            known = self._known.pop(key, None)
            if known is not None:
                self._held -= known.weight
                return known, mark, key
        return None, 0, 0

    def _keep(self, key: int, reading: _Reading) -> None:
        weight = reading.weight
        if weight > self._room:
            return
        replaced = self._known.pop(key, None)
        self._held += weight - (replaced.weight if replaced is not None else 0)
        self._known[key] = reading
        while self._held > self._room:
            self._held -= self._known.pop(next(iter(self._known))).weight


def _grown(dialect: Dialect, known: _Reading, body: bytes) -> _Read | None:
    """Reads what a body has more than a known one; None for any other body, and for elements that cannot be read alone."""
    rest = len(body) - len(known.request.body) + known.rest
    elements = known.added(body, rest)
    if elements is None:
        return None
    lasting = _lasting(elements)
    if lasting == len(elements):
        request = dialect.grow(known.request, body, b"[" + elements + b"]")
        return None if request is None else (request, _reading(request, rest, rest))
    held = dialect.grow(known.request, body, b"[" + elements[:lasting] + b"]")
    end = body.index(elements, known.end) + lasting if lasting else known.end
    return None if held is None else _with_newest(dialect, _reading(held, end, rest), body, elements[lasting:])


def _whole(dialect: Dialect, body: bytes) -> _Read:
    """Reads all of a body. Raises `BadRequest`, as the dialect does."""
    start, end = _span_of_list(body, dialect.listed)
    lasting = _lasting(body[start:end])
    read = None
    if 0 < lasting < end - start:
        shorter = body[: start + lasting] + body[end:]
        try:
            held = dialect.parse(shorter)
            read = _with_newest(dialect, _reading(held, start + lasting, start + lasting), body, body[start + lasting : end])
        except BadRequest:
            pass  # of the whole body the complaint names the right place
    if read is None:
        request = dialect.parse(body)
        read = request, _reading(request, end, end)
    return read


def _with_newest(dialect: Dialect, held: _Reading, body: bytes, newest: bytes) -> _Read | None:
    """The request of a body that has these elements behind those that are held."""
    request = dialect.grow(held.request, body, b"[" + newest.lstrip(_SPACE + b",") + b"]")
    if request is None:
        return None
    return msgspec.structs.replace(request, groundwork=held.request.groundwork), held


def _lasting(elements: bytes) -> int:
    """How many bytes of elements come back as they are: up to the first of the newest that holds a marker."""
    if elements.find(_MARKER, -_ENDING) < 0:
        return len(elements)
    try:
        each = raw_list(b"[" + elements + b"]")
    except UNREADABLE:
        return len(elements)
    before = max(len(each) - _NEWEST, 0)
    end = 0
    for number, element in enumerate(map(bytes, each)):
        if number >= before and _MARKER in element:
            return end
        end = elements.index(element, end) + len(element)
    return len(elements)


def _mark_before(length: int) -> int:
    """The last of the places up to a length where bodies are compared: four between a power of two and the next."""
    part = length.bit_length() - 3
    return length >> part << part


def _key(dialect: Dialect, body: bytes, mark: int, caller: str) -> int:
    at = body.rfind(_ID, mark - _WINDOW if mark > _WINDOW else 0, mark - _LONGEST_ID)
    return hash((caller, dialect.name, body[at : at + _LONGEST_ID] if at >= 0 else b"", body[mark - _NEAR : mark]))


def _span_of_list(body: bytes, name: str) -> tuple[int, int]:
    """Where the elements of a member's list begin and end in the body; nowhere where that cannot be told, and where there is none."""
    try:
        value = _member(body, name)
        for member in re.finditer(rb'"%b"[ \t\n\r]*:[ \t\n\r]*(?=\[)' % name.encode(), body):
            start = member.end()
            # Another member may hold an equal list: it is the right one if nothing else is in its place without it.
            if body.startswith(value, start) and _member(body[:start] + b"0" + body[start + len(value) :], name) == b"0":
                elements = value[1:-1].rstrip(_SPACE)
                return start + 1, start + 1 + len(elements)
    except (KeyError, *UNREADABLE):
        pass
    return 0, 0


def _member(body: bytes, name: str) -> bytes:
    return bytes(FIELDS.decode(body)[name])
