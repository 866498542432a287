"""Server-sent events as bytes: where one ends and the next begins, and what data it carries.

Sans-I/O and dialect-free. Events are handed on as they came, so that forwarding them changes nothing; what they mean is the
dialects' business. The grammar is the one of the HTML standard, section 9.2.6.
"""

import re

_LF = ord("\n")
_BOM = b"\xef\xbb\xbf"
# A CR counts only once the next byte is known: with an LF it is one line end, and cutting between them would leave a stray LF.
_LINE_END = rb"(?:\r\n|\n|\r(?=[^\n]))"
_BLANK_LINE = re.compile(_LINE_END)
_LAST_LINE = re.compile(_LINE_END + _LINE_END)
_LONGEST_MATCH = len(b"\r\n\r\n")


class Splitter:
    """Cuts a stream into whole events. The events given so far and `rest()` are together exactly the bytes fed.

    max_event: bytes; what is longer without an end is given out as it is rather than kept for ever.
    """

    def __init__(self, max_event: int = 8 * 1024 * 1024) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._returns = False  # a CR came: then lines may end in three ways, which takes ten times as long to look for
        self._max_event = max_event

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, each with its blank line. A blank line on its own is an event without data."""
        if not self._buffer and _is_one(data):
            return [data]
        self._buffer += data
        self._returns = self._returns or data.find(b"\r") >= 0
        events: list[bytes] = []
        start = 0
        while (end := self._end_of_event(start)) is not None:
            events.append(bytes(self._buffer[start:end]))
            start = end
        if len(self._buffer) - start > self._max_event:
            events.append(bytes(self._buffer[start:]))
            start = len(self._buffer)
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        return events

    def rest(self) -> bytes:
        """What no blank line has ended; call it once, when the stream is over."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return rest

    def _end_of_event(self, start: int) -> int | None:
        # Only the first event can have been scanned before; `_scanned` is behind every later one.
        unseen = max(start, self._scanned - _LONGEST_MATCH)
        if not self._returns:
            if self._buffer[start : start + 1] == b"\n":
                return start + 1
            last_line = self._buffer.find(b"\n\n", unseen)
            return last_line + 2 if last_line >= 0 else None
        blank = _BLANK_LINE.match(self._buffer, start)
        if blank:
            return blank.end()
        last = _LAST_LINE.search(self._buffer, unseen)
        return last.end() if last else None


def _is_one(data: bytes) -> bool:
    """Whether bytes are exactly one event, as most servers send them."""
    return data.find(b"\n\n") == len(data) - 2 > 0 and data[0] != _LF and data.find(b"\r") < 0


def data_of(event: bytes) -> bytes | None:
    """The event's data, its lines joined by LF; None when it has none (a comment, a bare `event:` or `retry:`)."""
    # As nearly all servers write it: an `event:` line perhaps, and one of data. `in` takes twice as long as `find`.
    line, _, rest = event.partition(b"\n")
    if line[:6] == b"event:":
        line, _, rest = rest.partition(b"\n")
    if rest == b"\n" and line[:5] == b"data:" and event.find(b"\r") < 0:
        return line[6:] if line[5:6] == b" " else line[5:]
    lines = [value for name, value in _fields(event) if name == b"data"]
    return b"\n".join(lines) if lines else None


def name_of(event: bytes) -> bytes:
    """The value of the event's last `event:` line, b"" when it has none."""
    if event.find(b"event") < 0:
        return b""
    return next((value for name, value in reversed(_fields(event)) if name == b"event"), b"")


def _fields(event: bytes) -> list[tuple[bytes, bytes]]:
    fields = []
    for line in event.removeprefix(_BOM).splitlines():
        name, _, value = line.partition(b":")
        fields.append((name, value.removeprefix(b" ")))
    return fields
