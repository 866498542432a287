"""Answers that arrive in one piece, header and body, taken apart without a parser. Pure.

Usual answers that are no streams come so, and an upstream's newest has the same fields in the same order as those before it. What they
have in common is learnt as one pattern. Nothing is decided here that a parser would see in another way: whatever is not plain (a body
framed otherwise than by its length, a byte too few or too many, a field that says something of the connection, spacing or characters
that are unusual) is left to one.
"""

import re
from collections.abc import Callable, Sequence
from operator import itemgetter

import msgspec

from proxy.upstream.headers import RESPONSE_DROPS, lowered

_MOST_FORMS = 8
_MOST_LOOKS = 256
_MOST_FIELDS = 100  # parsers refuse above 128
_MOST_HEADER = 64 * 1024  # bytes
_MOST_NAMES = 4096  # bytes of a first line and of names that are learnt: a pattern of that many takes some 20 ms to make
_OPENINGS = re.compile(rb"\r\n([^:\r\n]*(?:: ?)?)")
_FIRST_LINE = re.compile(rb"HTTP/1\.1 (?!204|304)([2-5][0-9][0-9]) ([!-~](?:[ -~]*[!-~])?)")
# No control characters, and no blanks around it, which a parser takes away.
_VALUE = rb"(|[!-~\x80-\xff][\t -~\x80-\xff]*(?<=[^\t ]))"
_VALUES = {b"content-length": rb"([0-9]+)", **dict.fromkeys((b"connection", b"proxy-connection"), rb"((?i:keep-alive))")}
# These frame what follows otherwise, change it, or are refused.
_NOT_PLAIN = frozenset({b"", b"transfer-encoding", b"content-encoding", b"upgrade", b"sec-websocket-key1"})

_Match = re.Match[bytes]


class _Form(msgspec.Struct, frozen=True, gc=False):
    """What answers with a certain first line and certain fields have in common.

    outline: the first line, and each further one up to its value. match: the header's, a group for each field's value. length: the group
    of `Content-Length`; 0 where answers of this form are left to a parser. passing: without and with `plain`, the names of the fields
    that pass, and what takes their values out of all.
    """

    outline: tuple[bytes, ...]
    match: Callable[[bytes], _Match | None]
    status: int = 0
    reason: str = ""
    length: int = 0
    passing: tuple[tuple[list[bytes], Callable[[Sequence[bytes]], Sequence[bytes]]], ...] = ()


class Whole(msgspec.Struct, frozen=True, gc=False):
    """An answer, all of it."""

    status: int
    reason: str
    body: bytes
    form: _Form
    header: _Match

    def to_client(self, *, plain: bool) -> list[tuple[bytes, bytes]]:
        """Its fields as the client gets them: what `headers.to_client` makes of them."""
        names, passing = self.form.passing[plain]
        return [*zip(names, passing(self.header.groups()))]  # noqa: B905 - as many by construction, and `strict` costs more than the rest


class Forms:
    """The forms of one upstream's answers. One is learnt when it is seen again, and forgotten when others were needed since.

    An upstream of whose answers many came, and no two alike, is looked at no more.
    """

    def __init__(self) -> None:
        self._known: list[_Form] = []  # the newest first
        self._seen: set[tuple[bytes, ...]] = set()  # first line and beginnings of lines of those that are not known
        self._looks = _MOST_LOOKS

    def taken_apart(self, data: bytes) -> Whole | None:
        """The answer that `data` is, from its first byte to its last; None where a parser has to say."""
        for form in self._known:
            if (header := form.match(data)) is not None:
                break
        else:
            self._learn(data)
            return None
        if form is not self._known[0]:
            self._known.remove(form)
            self._known.insert(0, form)
        begins = header.end()
        if not form.length or header[form.length] != b"%d" % (len(data) - begins) or begins > _MOST_HEADER:
            return None
        return Whole(form.status, form.reason, data[begins:], form, header)

    def _learn(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n", 0, _MOST_HEADER)
        if end < 0 or not self._looks:
            return
        self._looks -= 1
        if data.count(b"\r\n", 0, end) > _MOST_FIELDS:
            return
        outline = data[: data.find(b"\r\n")], *_OPENINGS.findall(data, 0, end)
        if sum(map(len, outline)) > _MOST_NAMES:
            return
        if outline not in self._seen:
            self._seen.add(outline)
        elif all([form.outline != outline for form in self._known]):  # else it is known, and this answer's values are not plain
            self._known.insert(0, _form(outline))
            del self._known[_MOST_FORMS:]
            self._seen.discard(outline)
            self._looks = _MOST_LOOKS - len(self._seen)


def _form(outline: tuple[bytes, ...]) -> _Form:
    first, *openings = outline
    names = [lowered(name) if colon else b"" for name, colon, _ in [opening.partition(b":") for opening in openings]]
    values = [_VALUES.get(name, _VALUE) for name in names]
    lines = [b"\r\n%b%b" % (re.escape(opening), value) for opening, value in zip(openings, values, strict=True)]
    match = re.compile(re.escape(first) + b"".join(lines) + b"\r\n\r\n").match
    said = _FIRST_LINE.fullmatch(first)
    if said is None or not _NOT_PLAIN.isdisjoint(names) or names.count(b"content-length") != 1:
        return _Form(outline, match)
    passing = []
    for plain in (False, True):
        places = [place for place, name in enumerate(names) if name not in RESPONSE_DROPS[plain, False]]
        passing.append(([names[place] for place in places], _these(places)))
    return _Form(outline, match, int(said[1]), said[2].decode(), names.index(b"content-length") + 1, tuple(passing))


def _these(places: list[int]) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    """What takes the values at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]
