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
_WINDOW = 4_096  # bytes before a mark: in a conversation they hold ids, so that no two conversations look the same there
_LOOKS = 8  # marks: a body that grew by more than the half is read as a whole
_SPACE = b" \t\n\r"
_MARKER = b'"cache_control"'
_ENDING = 256  # bytes at the end of a history in which the newest marker stands: behind the text that it marks
_NEWEST = 4  # elements in which markers move: the last two that are a user's, and what stands between and behind them


class _Reading(msgspec.Struct, frozen=True):
    """A request that was read, as far as it will come back as it was.

    end: of the last element in the body that is part of it. rest: of the last element at all.
    """

    request: Request
    end: int
    rest: int

    @property
    def weight(self) -> int:
        """What it holds, in bytes."""
        return 2 * len(self.request.body) + _PER_ITEM * len(self.request.items)

    def added(self, body: bytes) -> bytes | None:
        """The further elements, as they are written, of a body that is this one with more of them; None for any other body."""
        known, end = self.request.body, self.end
        tail = known[self.rest :]
        new = len(body) - len(tail)
        if new < end or not body.endswith(tail) or not body.startswith(memoryview(known)[:end]):
            return None
        added = body[end:new].strip(_SPACE)
        if not added:
            return b""
        # An element must follow the comma: what stands in brackets here stood in the list there.
        elements = added[1:].strip(_SPACE)
        return elements if elements and added.startswith(b",") else None


_Read = tuple[Request, _Reading]  # a request, and what is to be remembered of it


class Readings:
    """The newest requests of a process, `room` bytes of them. Found again only by the same caller."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._held = 0
        self._known: dict[int, _Reading] = {}  # by a hash of the caller and of a window of the body, the oldest first

    def read(self, dialect: Dialect, body: bytes, caller: str) -> Request:
        """Reads a request. Raises `BadRequest`, as the dialect does, on bytes that are not one. caller: whose it is."""
        if len(body) < _LEAST:
            return dialect.parse(body)
        known = self._find(dialect, body, caller)
        request, reading = (_grown(dialect, known, body) if known is not None else None) or _whole(dialect, body)
        if reading.end >= _LEAST:
            self._keep(dialect, reading, caller)
        return request

    def _find(self, dialect: Dialect, body: bytes, caller: str) -> _Reading | None:
        """Takes out what is known of the beginning of a body."""
        mark = len(body) + 1
        for _ in range(_LOOKS):
            mark = _mark_before(mark - 1)
            known = self._known.pop(_key(dialect, body, mark, caller), None)
            if known is not None:
                self._held -= known.weight
                return known
        return None

    def _keep(self, dialect: Dialect, reading: _Reading, caller: str) -> None:
        weight = reading.weight
        if weight > self._room:
            return
        key = _key(dialect, reading.request.body, _mark_before(reading.end), caller)
        replaced = self._known.pop(key, None)
        self._held += weight - (replaced.weight if replaced is not None else 0)
        self._known[key] = reading
        while self._held > self._room:
            self._held -= self._known.pop(next(iter(self._known))).weight


def _grown(dialect: Dialect, known: _Reading, body: bytes) -> _Read | None:
    """Reads what a body has more than a known one; None for any other body, and for elements that cannot be read alone."""
    elements = known.added(body)
    if elements is None:
        return None
    rest = len(body) - len(known.request.body) + known.rest
    lasting = _lasting(elements)
    if lasting == len(elements):
        request = dialect.grow(known.request, body, b"[%b]" % elements)
        return None if request is None else (request, _Reading(request, rest, rest))
    held = dialect.grow(known.request, body, b"[%b]" % elements[:lasting])
    end = body.index(elements, known.end) + lasting if lasting else known.end
    return None if held is None else _with_newest(dialect, _Reading(held, end, rest), body, elements[lasting:])


def _whole(dialect: Dialect, body: bytes) -> _Read:
    """Reads all of a body. Raises `BadRequest`, as the dialect does."""
    start, end = _span_of_list(body, dialect.listed)
    lasting = _lasting(body[start:end])
    read = None
    if 0 < lasting < end - start:
        shorter = body[: start + lasting] + body[end:]
        try:
            held = dialect.parse(shorter)
            read = _with_newest(dialect, _Reading(held, start + lasting, start + lasting), body, body[start + lasting : end])
        except BadRequest:
            pass  # of the whole body the complaint names the right place
    if read is None:
        request = dialect.parse(body)
        read = request, _Reading(request, end, end)
    return read


def _with_newest(dialect: Dialect, held: _Reading, body: bytes, newest: bytes) -> _Read | None:
    """The request of a body that has these elements behind those that are held."""
    request = dialect.grow(held.request, body, b"[%b]" % newest.lstrip(_SPACE + b","))
    if request is None:
        return None
    return msgspec.structs.replace(request, groundwork=held.request.groundwork), held


def _lasting(elements: bytes) -> int:
    """How many bytes of elements come back as they are: up to the first of the newest that holds a marker."""
    if _MARKER not in elements[-_ENDING:]:
        return len(elements)
    try:
        each = raw_list(b"[%b]" % elements)
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
    """The last of the places up to a length where bodies are compared: eight between a power of two and the next."""
    step = 1 << max(length.bit_length() - 4, 0)
    return length // step * step


def _key(dialect: Dialect, body: bytes, mark: int, caller: str) -> int:
    return hash((caller, dialect.name, body[max(mark - _WINDOW, 0) : mark]))


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
