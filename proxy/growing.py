"""Requests that begin with what an earlier one said: of those only what is new is read.

Agents send their whole history again in every request. Where a body is an earlier one with further elements at the end of its history,
byte for byte, what was read of that one stands, and the elements are read alone. Anything else is read as a whole: the result is the same.
"""

import re

import msgspec

from proxy.dialects import Dialect
from proxy.dialects.raw_json import FIELDS, UNREADABLE
from proxy.models import Request

ROOM = 16 * 2**20  # bytes that are held of the newest bodies, and of what was read of them
_PER_ITEM = 512  # bytes that an item takes beside its content
_LEAST = 4_096  # bytes of a body: a shorter one is read as quickly as it is found
_WINDOW = 4_096  # bytes before a mark: in a conversation they hold ids, so that no two conversations look the same there
_LOOKS = 8  # marks: a body that grew by more than the half is read as a whole
_SPACE = b" \t\n\r"


class _Reading(msgspec.Struct, frozen=True):
    """A request that was read. end: of the last element of its history in the body. weight: what it holds, in bytes."""

    request: Request
    end: int
    weight: int

    def grown(self, dialect: Dialect, body: bytes) -> Request | None:
        """The request in a body that is this one's with more elements; None for any other body."""
        known, end = self.request.body, self.end
        tail = known[end:]
        new = len(body) - len(tail)
        if new < end or not body.endswith(tail) or not body.startswith(memoryview(known)[:end]):
            return None
        added = body[end:new].strip(_SPACE)
        if not added:
            return dialect.grow(self.request, body, b"[]")
        # An element must follow the comma: what stands in brackets here stood in the list there.
        elements = added[1:].strip(_SPACE)
        return dialect.grow(self.request, body, b"[%b]" % elements) if elements and added.startswith(b",") else None


class Readings:
    """The newest requests of a process, `room` bytes of them. Found again only by the same caller."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._held = 0
        self._known: dict[int, _Reading] = {}  # by a hash of the caller and of a window of the body, the oldest first

    def read(self, dialect: Dialect, body: bytes, caller: str) -> Request:
        """Reads a request. Raises `BadRequest`, as the dialect does, on bytes that are not one. caller: whose it is."""
        known = self._find(dialect, body, caller) if len(body) >= _LEAST else None
        request = known.grown(dialect, body) if known is not None else None
        if known is not None and request is not None:
            self._keep(dialect, request, known.end + len(body) - len(known.request.body), caller)
            return request
        request = dialect.parse(body)
        if len(body) >= _LEAST:
            end = _end_of_list(body, dialect.listed)
            if end >= _LEAST:
                self._keep(dialect, request, end, caller)
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

    def _keep(self, dialect: Dialect, request: Request, end: int, caller: str) -> None:
        weight = 2 * len(request.body) + _PER_ITEM * len(request.items)
        if weight > self._room:
            return
        key = _key(dialect, request.body, _mark_before(end), caller)
        replaced = self._known.pop(key, None)
        self._held += weight - (replaced.weight if replaced is not None else 0)
        self._known[key] = _Reading(request, end, weight)
        while self._held > self._room:
            self._held -= self._known.pop(next(iter(self._known))).weight


def _mark_before(length: int) -> int:
    """The last of the places up to a length where bodies are compared: eight between a power of two and the next."""
    step = 1 << max(length.bit_length() - 4, 0)
    return length // step * step


def _key(dialect: Dialect, body: bytes, mark: int, caller: str) -> int:
    return hash((caller, dialect.name, body[max(mark - _WINDOW, 0) : mark]))


def _end_of_list(body: bytes, name: str) -> int:
    """Where the last element of a member's list ends in the body; -1 where that cannot be told."""
    try:
        value = _member(body, name)
        for member in re.finditer(rb'"%b"[ \t\n\r]*:[ \t\n\r]*(?=\[)' % name.encode(), body):
            start = member.end()
            # Another member may hold an equal list: it is the right one if nothing else is in its place without it.
            if body.startswith(value, start) and _member(body[:start] + b"0" + body[start + len(value) :], name) == b"0":
                elements = value[1:-1].rstrip(_SPACE)
                return start + 1 + len(elements) if elements else -1
    except (KeyError, *UNREADABLE):
        pass
    return -1


def _member(body: bytes, name: str) -> bytes:
    return bytes(FIELDS.decode(body)[name])
