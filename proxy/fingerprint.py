"""Identity of tool calls and their results: when are two the same?

A call is its name and canonical arguments; a result is its text without what changes although nothing changed (clock times,
durations, ids, counters). Both become 8-byte keyed hashes: what a session stores cannot be turned back into content, and
nobody outside can make two calls collide. Nothing here ever raises, whatever a model or tool wrote.

Normalising text costs a thousand times a hash, so a result has two identities: the exact one, which settles almost every
comparison, and the normalised one, asked for only where the same call returned different bytes.
"""

import json
import math
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.bounded import Bounded
from proxy.models import ToolCall

Hash = blake2b  # one under way
UNSEEN = 0  # the hash of a result that has not arrived

_DEPTH = 64  # arguments nested deeper are compared as raw text; no real tool comes near
_EXACT_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,200})")
_CACHE_SIZE = 8_192  # of each kind: what the sessions under way say again in their next requests
_LONG = 32_768  # results over this many characters are normalised at both ends only
_MOST_NORMALISED = 1_048_576  # characters for one request: made to take long, it is a second of work that keeps all others waiting


class Fingerprints:
    """Hashes under one secret and one notion of equal arguments (`loose`), with bounded caches keyed by digest, never by content.

    Of what a request brings only so much is normalised; what lies beyond is known by its bytes, as if nothing in it were volatile.
    """

    _left = _MOST_NORMALISED

    def __init__(self, secret: bytes, *, loose: bool) -> None:
        self._secret = secret
        self._hash, self._raw, self._line = keyed(secret, b"digest"), keyed(secret, b"raw result"), keyed(secret, b"line", 16)
        self._loose = loose
        self._calls: Bounded[int, int] = Bounded(_CACHE_SIZE)
        self._results: Bounded[bytes, int] = Bounded(_CACHE_SIZE)
        self._texts: Bounded[int, int] = Bounded(_CACHE_SIZE)
        self._messages: Bounded[int, tuple[int, tuple[int, ...]]] = Bounded(_CACHE_SIZE)

    def begin(self) -> None:
        """What comes from here on belongs to another request."""
        self._left = _MOST_NORMALISED

    def _may_normalise(self, size: int) -> bool:
        self._left -= min(size, _LONG)
        return self._left >= 0

    def call(self, name: str, arguments: str) -> int:
        """The identity of a call."""
        key = hash((name, arguments))  # keyed at random by the interpreter; the content itself is not kept
        found = self._calls.get(key)
        if found is None:
            found = self._calls.keep(key, self.digest(b"call", name, canonical(arguments, loose=self._loose)))
        return found

    def message(self, calls: tuple[ToolCall, ...]) -> tuple[int, tuple[int, ...]]:
        """The identity of a message by the ids and fingerprints of its calls, and those fingerprints. Cached, as histories come back."""
        key = hash(calls)
        found = self._messages.get(key)
        if found is None:
            fingerprints: list[int] = []
            ids: list[str | None] = []
            for call in calls:
                fingerprints.append(self.call(call.name, call.arguments))
                ids.append(call.id)
            found = self._messages.keep(key, (self.digest(b"calls", *fingerprints, *ids), tuple(fingerprints)))
        return found

    def raw_result(self, content: bytes) -> int:
        """The exact identity of a result, from its raw JSON value. Even, never `UNSEEN`: cheap, and enough while nothing differs."""
        return _digest_of(self._raw, content) & ~1 or 2

    def result(self, content: bytes) -> int:
        """The identity of a result by its normalised text. Odd, so that the two kinds cannot be mixed up."""
        key = blake2b(content, digest_size=16, key=self._secret).digest()
        found = self._results.get(key)
        if found is None:
            if not self._may_normalise(len(content)):
                return self.digest(b"result", content) | 1
            found = self._results.keep(key, self.digest(b"result", _normal_content(content)) | 1)
        return found

    def error(self, text: str) -> int:
        """The identity of what a failed result complains of."""
        return self.digest(b"error", _encoded(normal_text(text) if self._may_normalise(len(text)) else text))

    def text(self, kind: str, text: str) -> int:
        """The identity of a text, cached: for what comes back in every request of a session."""
        key = hash((kind, text))
        found = self._texts.get(key)
        if found is None:
            found = self._texts.keep(key, self.digest(kind, text))
        return found

    def line(self, *hashes: int) -> Hash:
        """A list of hashes that can be added to, as they are `packed`."""
        line = self._line.copy()
        line.update(packed(*hashes))
        return line

    def digest(self, *parts: bytes | str | int | None) -> int:
        """An 8-byte keyed hash of values, as a non-zero integer."""
        return _digest_of(self._hash, framed(parts)) or 1


def keyed(secret: bytes, kind: bytes, size: int = 8) -> Hash:
    """A hash under way, to be copied; for each kind it is another.

    A key that BLAKE2 is given is hashed before all else, as a block of its own. Ahead of the data in their first block it does the same,
    since nothing can be added to what BLAKE2 has ended, and what is hashed here seldom needs a second block.
    """
    return blake2b(blake2b(kind, digest_size=32, key=secret).digest(), digest_size=size)


def _digest_of(begun: Hash, rest: bytes) -> int:
    """What a hash comes to with these bytes behind what it was given. It stays as it is."""
    whole = begun.copy()
    whole.update(rest)
    return _FIRST_NUMBER(whole.digest())[0]


def ended(line: Hash, *hashes: int) -> int:
    """The identity of a line with these hashes behind it, non-zero. The line stays as it is."""
    return _digest_of(line, framed(hashes)) or 1


def tied(line: Hash, hashes: list[int], to: bytes) -> bytes:
    """What a line comes to when these hashes have been added to it, as 16 bytes, of use with `to` alone. to: as many bytes each time."""
    whole = line.copy()
    whole.update(packed(*hashes) + to)
    return whole.digest()


def packed(*hashes: int) -> bytes:
    """8-byte hashes as bytes."""
    return _hashes(len(hashes)).pack(*hashes)


def framed(parts: tuple[bytes | str | int | None, ...]) -> bytes:
    """Values as bytes, so that no two lists of them are alike. Halves of surrogate pairs are bytes like others."""
    try:
        return _FRAMES.encode(parts)
    except UnicodeEncodeError:
        return _FRAMES.encode([_encoded(part) if isinstance(part, str) else part for part in parts])


@lru_cache(32)
def _hashes(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}Q")


_FRAMES = msgspec.msgpack.Encoder()
_FIRST_NUMBER: Callable[[bytes], tuple[int]] = struct.Struct("<Q").unpack_from


def canonical(arguments: str, *, loose: bool) -> bytes:
    """Arguments in one spelling: keys sorted at every depth, integers exact, other numbers by value (1.0 is 1).

    loose: a string that is exactly an integer equals it, null equals absent, the ends of strings are trimmed. What does not parse is
    its own raw text.
    """
    try:
        return _spelled(_settled(_read(arguments), loose, 0))
    except (ValueError, RecursionError):
        return b"raw:" + _encoded(arguments.strip() if loose else arguments)


def _read(text: str) -> Any:
    """A JSON value. Raises `ValueError` or `RecursionError`."""
    try:
        return _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):  # broken, or what models write and others do not read: NaN, 1e400, half an emoji
        text = text.strip(_SPACE)
        value, end = _LENIENT_JSON.raw_decode(text)
        if end < len(text):
            raise ValueError("more than one value") from None
        return value


_JSON = msgspec.json.Decoder()
# Beyond a double only its own spelling equals a number.
_LENIENT_JSON = json.JSONDecoder(parse_float=lambda text: value if math.isfinite(value := float(text)) else text, parse_constant=str)
_SPACE = " \t\n\r"  # what JSON knows as such


def _settled(value: Any, loose: bool, depth: int) -> Any:
    """A JSON value in which what counts as equal is equal, but for the order of keys. Raises `ValueError` for what is nested too deep."""
    kind = type(value)
    if kind is str and loose:
        text = value.strip()
        return int(text) if text < ":" and _EXACT_INT.fullmatch(text) else text  # nearly all texts begin with a letter
    if kind is str or kind is int:
        return value
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if (kind is dict or kind is list) and value and depth == _DEPTH:
        raise ValueError("nested too deep to canonicalise")
    if kind is dict:
        return {name: _settled(inner, loose, depth + 1) for name, inner in value.items() if inner is not None or not loose}
    return [_settled(inner, loose, depth + 1) for inner in value] if kind is list else value


def _spelled(value: Any) -> bytes:
    try:
        return _SORTED.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair: no value that can be encoded is spelled like it
        return json.dumps(value, sort_keys=True).encode()


_SORTED = msgspec.json.Encoder(order="deterministic")


def _normal_content(content: bytes) -> bytes:
    try:
        value = msgspec.json.decode(content) if content else ""
        match value:
            case str():
                return _encoded(normal_text(value))
            case list():
                return b"\0".join(_normal_parts([part for part in value if not _is_own_note(part)]))
            case _:
                return _normal_part(value)
    except (ValueError, RecursionError):  # not JSON, or too deep for one of these steps
        return _encoded(normal_text(content.decode("utf-8", "replace")))


def _normal_parts(parts: list[Any]) -> list[bytes]:
    """Of parts that are long together those at both ends are normalised, as of one text."""
    first, last = _reach(parts), len(parts) - _reach(parts[::-1])
    return [_normal_part(part) if at < first or at >= last else _part(part, _encoded) for at, part in enumerate(parts)]


def _reach(parts: list[Any]) -> int:
    """How many of these hold the first half of what is normalised of a long text."""
    left = _LONG // 2
    for at, part in enumerate(parts):
        if left <= 0:
            return at
        text = _text_in(part)
        left -= len(text) if isinstance(text, str) else 0
    return len(parts)


def _text_in(part: Any) -> Any:
    return part.get("text") if isinstance(part, dict) else part


def _normal_part(part: Any) -> bytes:
    return _part(part, lambda text: _encoded(normal_text(text)))


def _part(part: Any, read: Callable[[str], bytes]) -> bytes:
    text = _text_in(part)
    if isinstance(text, str):
        return read(text)
    if isinstance(part, dict):  # clients move this marker from block to block
        part = {key: value for key, value in part.items() if key != "cache_control"}
    return msgspec.json.encode(part, order="deterministic")


def _is_own_note(part: Any) -> bool:
    text = _text_in(part)
    return isinstance(text, str) and text.startswith(_OWN_NOTE)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# What changes although nothing changed. Every repetition is bounded or runs over a class the next piece cannot match, so that
# matching is linear in the text. Kept on purpose: dates alone, exit codes, errno, HTTP status, ports, line numbers, other counts.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\))")
_VOLATILE = re.compile(
    r"""
      (?<![\w:.])(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T\ ,]{1,2}\d{1,2}:\d\d(?::\d\d)?|\d{1,2}:\d\d:\d\d)     # with a time of day
        (?:[.,]\d{1,9})?(?:\ ?[AaPp][Mm]\b|Z|\ ?[+-]\d\d:?\d\d\b|\ UTC\b)?
    | (?<![\w.])(?:\d{1,9}h\ ?)?\d{1,12}m\ ?\d{1,12}(?:\.\d{1,12})?s\b                               # 0m0.003s, 1h 2m 3s
    | (?<![\w.])\d{1,9}h\ ?\d{1,9}m(?:in)?\b                                                       # 2h 5m
    | (?<![\w.])\d{1,12}(?:\.\d{1,24})?(?:\ ?(?:ms|[\u00b5\u03bc]s|us|ns|msecs?|secs?|seconds?|mins?|minutes?|hrs?|hours?)|s)\b
    | (?<![\w.])\d{1,12}\.\d{1,24}\ s\b                                                            # "5 s" may be a name
    | (?<![0-9A-Za-z-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z-])             # a UUID
    """,
    re.VERBOSE,
)
_VOLATILE_KEY = re.compile(
    r"""
      \b(?:duration|elapsed|latency|uptime|wall_?time|(?:execution|query|response|total)[\ _]?time
        |(?:took|runtime)(?=[a-z_]{0,12}"?[\ ]?[:=]))                                # "took 3 steps" is a count, "runtime 3.11" a version
        (?:_?(?:time|in))?(?:_?(?:ms|s|us|ns|secs?|seconds?|millis|minutes))?"?[\ ]?[:=]?[\ ]?"?\d{1,18}(?:\.\d{1,24})?
    | \b(?:timestamp|created|updated|time|ts|date)(?:_?at)?"?[\ ]?[:=][\ ]?"?\d{10,19}(?:\.\d{1,9})?
    | \b(?:message|request|session|process|shell|trace|correlation)[\ _-]?id"?[\ ]?[:=]?[\ ]?"?[\w.:-]{0,63}\d[\w.:-]{0,63}
    | \bchunk\ id:\ [0-9a-f]{4,16}\b                                                    # Codex's number of a piece of output
    | \bp[pg]?ids?"?[\ ]?[:=#]?[\ ]?"?\d{1,10}(?:,[\ ]?\d{1,10}){0,64}
    | \b(?:msg|req|request|call|run|resp|sess|session|chatcmpl|toolu|trace)[_-]     # letters after digits: an id; run_phase2 is a name
        (?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{9,40}|(?=[a-z]{0,40}\d{1,40}[a-z])[a-z0-9]{8,80})(?![a-z0-9])
    | \b(?:attempt|retry|try)s?[\ ]?[#:=]?[\ ]?\d{1,9}(?:[\ ]?(?:/|of)[\ ]?\d{1,9})?
    | \b(?:read|called|seen|viewed|run|ran)[\ ]\d{1,9}[\ ]?(?:x|times?)\b
    | (?:/tmp/|/var/folders/[\w+]{1,64}/[\w+]{1,64}/T/|\\Temp\\)
        (?:tmp[\w.-]{3,64}|[\w.-]{0,64}[._-](?=[a-z_]{0,32}\d)(?=\d{0,32}[a-z])\w{6,64}(?!\w))
    | \b(?=[abfost])(?:                                            # what clients call a command that goes on, and where they keep an output
          background(?:ed)?(?:[\ .]{1,2}(?:by|user|shell|agent|command|process|task|job|started|running|with)){0,4}\ \(?id:\ [\w-]{1,40}
        | task_id:\ (?:bash|agent)-[a-z0-9]{8}\b
        | (?:ses|tool)_[0-9a-f]{12}[0-9a-z]{14}\b
        | session\ [a-z]{2,16}-[a-z]{2,16}(?=,\ pid\b)
        | agentid:\ [0-9a-f]{6,32}\b
        | sendmessage\ with\ to:\ '[0-9a-f]{12,32}'
        | (?:full\ (?:output|content)(?::|(?:\ has\ been)?\ (?:saved|available)\ (?:to|at)(?:\ artifact)?:?)
            | output\ is\ being\ written\ to:)\ (?=[^\s"\]<>]{0,256}(?:[/\\]|\.[a-z]))[^\s"\]<>]{1,512}
      )
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A line of curl's progress meter: how much there was stays, how fast it came does not.
_METER = re.compile(
    r"(?<!\S)(?P<much>\d{1,3}(?:[ ]{1,8}[\d.kMG]{1,8}){5})"
    r"(?:[ ]{1,8}[\d.kMG]{1,8}){2}(?:[ ]{1,8}[\d:-]{7,9}){3}[ ]{1,8}[\d.kMG]{1,8}"
)
_MAY_HOLD = re.compile(r"[0-9]|[/\\]tmp|ID:")  # everything volatile holds a digit, but for some temporary names and hexadecimal ids
_OWN_NOTE = "[lastcall"


def sketch(content: bytes) -> int:
    """A small number that results keep when only what is volatile in them changes. Costs a hundredth of a normalised text.

    Line ends and quotes are what backslashes mostly stand before: to count one byte takes a quarter of the time that two take.
    """
    return (content.count(b"\\") * 31 + content.count(b" ")) & 0xFFFF


_NEAR = 40  # bytes around a difference
_TOKEN_END = re.compile(rb"[\w.:/+-]*\Z")
_TOKEN = re.compile(rb"[\w.:/+-]*")
_DIGIT = re.compile(rb"\d")


def could_equal(one: bytes, other: bytes) -> bool:
    """Whether two results that differ may still be the same: what is volatile holds a digit, so the outermost differences do."""
    if abs(len(one) - len(other)) > 64 + len(one) // 16:
        return False
    first = _common(one, other)
    last = min(_common(one[::-1], other[::-1]), min(len(one), len(other)) - first)
    return any(_volatile_at(text, first) for text in (one, other)) and any(
        _volatile_at(text, len(text) - last - 1) for text in (one, other)
    )


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with together."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _volatile_at(text: bytes, at: int) -> bool:
    """Whether the word at a position holds a digit."""
    before, after = _TOKEN_END.search(text[max(at - _NEAR, 0) : max(at, 0)]), _TOKEN.match(text[max(at, 0) : at + _NEAR])
    return any(part is not None and _DIGIT.search(part[0]) for part in (before, after))


def normal_text(text: str) -> str:
    """A result's text without ANSI codes, clock times, durations, ids, attempt counters, temporary paths and Lastcall's own notes."""
    note = 0 if text.startswith(_OWN_NOTE) else text.find("\n\n" + _OWN_NOTE)
    if note >= 0:
        text = text[:note]
    if len(text) <= _LONG:
        return _strip(text).strip()
    half = _LONG // 2
    return (_strip(text[:half]) + text[half:-half] + _strip(text[-half:])).strip()


def _strip(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if _MAY_HOLD.search(line):  # most lines of most outputs do not
            if "--:--:--" in line:
                line = _METER.sub(r"\g<much>", line)
            lines[index] = _VOLATILE_KEY.sub("", _VOLATILE.sub("", line))
    return "\n".join(lines)
