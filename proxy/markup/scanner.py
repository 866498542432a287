"""Takes tool markup out of a text while it is being written: what may go out goes out, what can still become a sign is held.

Sans-I/O, and the same however the text is cut into pieces. A sign counts outside code, quotes and comments, decided by where it
begins, since some markup holds a fence itself. What is held has the length of the longest sign at most.
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import assert_never

import msgspec

from proxy.markup.families import FAMILIES, FRAMES, STRAYS, Family, Names, Sign
from proxy.markup.shapes import any_head, beginning, heads, longest, whole

_LINE = 2048  # characters of a line that are looked back at for quotes
_AFTER = 24  # characters after a closer within which it must show whether the markup goes on
_TOKEN = 256  # no closer is longer
_PIECE = 4096
_FRAME = Family("frame", tuple(Sign((frame,), call=False) for frame in FRAMES))
_MASK = Family("mask", (Sign(("<!--",)), Sign(("<![CDATA[",))))
_CLOSERS = {"<!--": "-->", "<![CDATA[": "]]>"}


_OPENERS = ("<tool_call", "<function_calls", "<think", "<minimax:tool_call")  # of the closers among the strays
_OPENERS_BEGIN = re.compile("|".join(beginning((opener,)) for opener in _OPENERS))
_SPOT = re.compile(r"[<\[\]|\uff5c\u2016`~\n]")


def _first_look() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Whether a closer look is due at a spot, or at the start of a line after its spaces: most texts hold few such places."""
    signs = [sign for family in (_MASK, *FAMILIES, _FRAME) for sign in family.signs]
    starts = {head for sign in signs for head in heads(sign.pieces, 4)} | {token[:4] for token in (*STRAYS, *_OPENERS)}
    at_line = any_head({head for head in starts if head[0].isalpha() or head[0] == "{"})
    anywhere = any_head({head for head in starts if _SPOT.match(head) and head[0] != "`"})
    return re.compile(rf"{anywhere}|[`~]{{3}}|[`~]{{1,2}}\Z"), re.compile(rf"[ \t]{{0,8}}(?:\Z|(?={at_line}))")


_LOOK, _LOOK_AT_LINE = _first_look()
_FENCE = re.compile(r"`{3,64}|~{3,64}")
_TICKS = re.compile(r"[`~]+")
_FENCE_PLACE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]*)?")
_STRAY = "|".join(re.escape(stray) for stray in sorted(STRAYS, key=len, reverse=True))
_STRAYS = re.compile(rf"(?:(?:{_STRAY})\s{{0,16}}){{1,8}}\Z")
_STRAYS_BEGIN = re.compile(rf"(?:(?:{_STRAY})\s{{0,16}}){{0,8}}(?:" + "|".join(beginning((stray,)) for stray in STRAYS) + ")")
_BROKEN = re.compile(r"(?:<[|\uff5c\u2016]|\]<\]m).", re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`{1,8})(?!`).*?(?<!`)\1(?!`)")
_NEAR_QUOTE = re.compile(r"['\u2018\u201e\u00ab\u300c](?:[<\[\]|\uff5c\u2016][^'\u2019\u201c\u00bb\u300d]*)?\Z")
_OPENS_QUOTE = re.compile(r'(?:^|[\s(\[{=,:])"')


class _Place(Enum):
    """What the text is in: plain text, a fenced block, a comment, markup."""

    TEXT = auto()
    FENCE = auto()
    COMMENT = auto()
    MARKUP = auto()


class _Signs(msgspec.Struct, frozen=True):
    """The signs that count somewhere, as one pattern; by is what each of its groups stands for."""

    full: re.Pattern[str]
    begin: re.Pattern[str]
    ending: tuple[tuple[re.Pattern[str], Family, Sign], ...]
    by: dict[str, tuple[Family, Sign]]


@lru_cache(4)
def _signs(*, line: bool, known: bool) -> _Signs:
    """line: at the start of a line; known: where there are tools whose names are known."""
    counting = [
        (family, sign)
        for family in (_MASK, *FAMILIES, _FRAME)
        for sign in family.signs
        if (line or not sign.line) and (known or sign.names is not Names.KNOWN)
    ]
    by = {f"s{number}": pair for number, pair in enumerate(counting)}
    full = "|".join(f"(?P<{group}>{whole(sign.pieces, 'n' + group)})" for group, (_, sign) in by.items())
    begin = "|".join(beginning(sign.pieces) for _, sign in counting)
    ending = tuple(
        (re.compile(whole(sign.pieces[: sign.enough], "name") + r"\s*\Z"), family, sign)
        for family, sign in counting
        if sign.enough is not None
    )
    return _Signs(re.compile(full), re.compile(begin), ending, by)


LONGEST_SIGN = max(longest(sign.pieces) for family in FAMILIES for sign in family.signs)


class Scanner:
    """One text. names: the tools that are known, offered or called before. excused: told a sign, whether it counts for nothing here.

    leaked: a call, or a result made up for one, was written as text. cut: something was taken out, be it only a stray token. holding:
    the newest text is held until more of it is there. family: of the first markup. taken: the calls that were taken out, as written.
    """

    def __init__(self, names: frozenset[str] = frozenset(), excused: Callable[[str], bool] = lambda _: False) -> None:
        self.leaked = False
        self.cut = False
        self.family: str | None = None
        self.taken: list[str] = []
        self._names = names
        self._excused = excused
        self._place = _Place.TEXT
        self._buffer = ""
        self._line = ""
        self._fence = ""
        self._opening = False
        self._closer = ""
        self._recent = ""
        self._markup = _FRAME
        self._shown = False
        self._out: list[str] = []

    @property
    def holding(self) -> bool:
        return bool(self._buffer) and self._place is _Place.TEXT

    def feed(self, text: str) -> str:
        """Takes what was written next; gives what may go out."""
        for at in range(0, len(text), _PIECE):  # each step drops the front of the buffer: a long one would be copied again and again
            self._buffer += text[at : at + _PIECE]
            while self._buffer and self._advance(last=False):
                pass
        return self._given()

    def finish(self) -> str:
        """The text is whole: gives the rest of it."""
        while self._buffer and self._advance(last=True):
            pass
        return self._given()

    def _given(self) -> str:
        given, self._out = "".join(self._out), []
        return given

    def _advance(self, *, last: bool) -> bool:
        """One step; whether there may be another before more text comes."""
        match self._place:
            case _Place.TEXT:
                return self._read_text(last=last)
            case _Place.FENCE:
                return self._read_fence()
            case _Place.COMMENT:
                return self._read_comment()
            case _Place.MARKUP:
                return self._read_markup(last=last)
            case _:
                assert_never(self._place)

    def _give(self, end: int) -> None:
        """Lets the buffer up to `end` go."""
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        self._out.append(text)
        _, newline, after = text.rpartition("\n")
        self._line = (after if newline else self._line + after)[-_LINE:]

    # ---- plain text

    def _read_text(self, *, last: bool) -> bool:
        at = self._next_spot()
        if at:
            self._give(at)
        return bool(self._buffer) and self._read_sign(last=last)

    def _next_spot(self) -> int:
        """Where a closer look is due next; the end of the buffer when nowhere."""
        text = self._buffer
        begins = None if self._line.strip(" \t") else _LOOK_AT_LINE.match(text)
        if begins is not None:
            return begins.end()
        at = 0
        while (spot := _SPOT.search(text, at)) is not None:
            at = spot.start()
            if text[at] != "\n":
                if _LOOK.match(text, at):
                    return at
            elif (begins := _LOOK_AT_LINE.match(text, at + 1)) is not None:
                return begins.end()
            at += 1
        return len(text)

    def _read_sign(self, *, last: bool) -> bool:
        """The buffer begins with what may be a sign."""
        text = self._buffer
        signs = _signs(line=not self._line.strip(" \t"), known=bool(self._names))
        found = signs.full.match(text)
        if found is not None and self._accept(found, signs):
            return True
        may_grow = len(text) <= LONGEST_SIGN and signs.begin.match(text) is not None
        may_grow = (may_grow or self._may_be_stray(text)) and not _quoted(self._line)
        if may_grow or _OPENERS_BEGIN.match(text) is not None:
            return self._end_held(signs) if last else False
        if text[0] in "`~" and _FENCE_PLACE.fullmatch(self._line) is not None:
            return self._open_fence(last=last)
        self._shown = self._shown or text.startswith(_OPENERS)
        ticks = _TICKS.match(text)
        self._give(1 if ticks is None else ticks.end())
        return True

    def _accept(self, found: re.Match[str], signs: _Signs) -> bool:
        """Whether a sign counts here; then what it begins has begun."""
        group = found.lastgroup or ""
        family, sign = signs.by[group]
        if _quoted(self._line) or not self._plausible(sign, found.groupdict().get("n" + group)):
            return False
        if family is _MASK:
            self._closer, self._recent, self._place = _CLOSERS[found.group()], "", _Place.COMMENT
            self._give(found.end())
            return True
        if family is not _FRAME and self._excused(found.group()):
            return False
        self._begin_markup(family, sign, found.end())
        return True

    def _plausible(self, sign: Sign, name: str | None) -> bool:
        if sign.names is Names.ANY or name is None or not self._names:
            return True
        return name in self._names or name.rpartition(".")[2] in self._names

    def _begin_markup(self, family: Family, sign: Sign, end: int) -> None:
        self.cut = True
        begun, self._buffer = self._buffer[:end], self._buffer[end:]
        if family is _FRAME:
            self._line = ""
            return
        self.taken.append(begun)
        self.leaked = self.leaked or sign.call
        self.family = self.family or family.name
        self._markup, self._place = family, _Place.MARKUP

    def _may_be_stray(self, text: str) -> bool:
        return text[0] in "<]" and len(text) <= LONGEST_SIGN and (_STRAYS.match(text) or _STRAYS_BEGIN.match(text)) is not None

    def _end_held(self, signs: _Signs) -> bool:
        """The text ends with something held: markup cut short, a stray token, or text after all."""
        text = self._buffer
        for pattern, family, sign in signs.ending:
            found = pattern.match(text)
            if found is not None and self._plausible(sign, found.groupdict().get("name")) and not self._excused(text):
                self._begin_markup(family, sign, len(text))
                return False
        if _BROKEN.match(text) or (_STRAYS.match(text) and not self._shown):
            self.cut, self._buffer = True, ""
            return False
        self._give(1)
        return True

    # ---- what is shown, not meant

    def _open_fence(self, *, last: bool) -> bool:
        found = _FENCE.match(self._buffer)
        may_grow = len(self._buffer) < 3 if found is None else found.end() == len(self._buffer) < 64
        if may_grow and not last:
            return False
        if found is None:
            self._give(1)
            return True
        self._fence, self._opening, self._place = found.group(), True, _Place.FENCE
        self._give(found.end())
        self._line = ""
        return True

    def _read_fence(self) -> bool:
        """Line by line, since only a line closes a fence; all of it goes out at once."""
        end = self._buffer.find("\n")
        line = self._line + (self._buffer if end < 0 else self._buffer[:end])
        if self._opening and self._fence[0] == "`" and "`" in line:  # a code span that began like a fence
            self._place = _Place.TEXT
            self._give(self._buffer.index("`") + 1)
            return True
        if end < 0:
            self._give(len(self._buffer))
            return False
        bare = line.strip(" \t\r>")
        if not self._opening and len(bare) >= len(self._fence) and not bare.strip(self._fence[0]):
            self._place = _Place.TEXT
        self._opening = False
        self._give(end + 1)
        return True

    def _read_comment(self) -> bool:
        before = self._recent
        at = (before + self._buffer).find(self._closer)
        end = len(self._buffer) if at < 0 else at + len(self._closer) - len(before)
        self._recent = (before + self._buffer[:end])[-2:]
        if at >= 0:
            self._place = _Place.TEXT
        self._give(end)
        return at >= 0

    # ---- markup

    def _read_markup(self, *, last: bool) -> bool:
        """Drops what belongs to the markup: up to a closer after which none of its tokens follows."""
        text, family = self._buffer, self._markup
        found = re.search(family.end, text) if family.end is not None else None
        if found is None or (found.end() == len(text) and not last):
            self._take("" if last else text[-_TOKEN:])
            return False
        after = text[found.end() :]
        rest = after.lstrip()
        undecided = not rest or (rest[0] in "<]" and len(rest) < _AFTER)
        if undecided and not last and len(after) - len(rest) <= _TOKEN:
            return False
        if re.match(family.inner, rest):
            self._take(rest[1:])  # past its first character, so that each step gets on
            return True
        self._take(after)
        if not rest:
            self._buffer = ""
        self._place, self._line = _Place.TEXT, ""
        return True

    def _take(self, rest: str) -> None:
        """Drops the buffer but for its rest."""
        self.taken.append(self._buffer[: len(self._buffer) - len(rest)])
        self._buffer = rest


def _quoted(line: str) -> bool:
    """Whether what follows this beginning of a line is shown, not said: in a block quote, inline code or quotation marks."""
    if not line:
        return False
    if line.lstrip(" \t").startswith(">"):
        return True
    bare = _CODE_SPAN.sub("", line)
    if "`" in bare or _NEAR_QUOTE.search(bare):
        return True
    return bare.count("\u201c") > bare.count("\u201d") or (bare.count('"') % 2 == 1 and _OPENS_QUOTE.search(bare) is not None)
