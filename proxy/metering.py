"""What a call on a route that is not judged may cost, and what its answer says that it did: read beside the bytes, bounded. Pure.

Nothing is changed in such a request, so its output cannot be bounded from here: what it may produce is reserved whole.
"""

import math
import re
from typing import Any

import msgspec

from proxy.budgets import ATTACHMENT_TOKENS, BYTES_PER_TOKEN, LARGEST_OUTPUT, TEMPLATE_TOKENS, Estimate
from proxy.dialects import chat_answer, messages_answer, responses_answer
from proxy.dialects.raw_json import FIELDS, UNREADABLE, plain, present, read, text, whole
from proxy.models import Usage
from proxy.prices import Amounts

LEAST_TOKENS = 256  # input that a JSON request is charged at least, where its answer reports no usage
UNREPORTED_TOKENS = 1_024  # the same for any other request (a file, a recording, a picture) and for one without a body
_BYTES_PER_HEARD_TOKEN = 32  # speech takes 75 bytes a token in the tightest codec, and a form holds some text beside it
_USUAL_OUTPUT = 16_384  # an answer's, where the request sets no limit: speech, a transcript, a picture and its drafts
_OUTPUT = {"/embeddings": 0, "/moderations": 0, "/rerank": 0, "/completions": LARGEST_OUTPUT}  # by the end of the path
_PICTURES = ("/images/generations", "/images/edits", "/images/variations")
_MOST_PICTURES = 1_000  # that one request asks for
_TIGHTEST_SECOND, _USUAL_SECOND = 750, 4_000  # bytes of speech: in the tightest codec, and as it is mostly sent
_SLOW_SPEECH, _USUAL_SPEECH = 8, 15  # characters read out in a second
_LONGEST_FILM, _USUAL_FILM = 20, 4  # seconds, where a request does not say
_MOST_ASKED = 1 << 40  # tokens: no request means more, and sums stay whole numbers everywhere

_READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_SHOWN = re.compile(r"/(?:batches|fine_tuning/jobs)/[^/]+")
_RESULTS = re.compile(r"/messages/batches/([^/]+)/results")
_LONGEST_LINE = 1 << 25  # bytes of a batch's results that are looked at as one
_FREE = re.compile(r".*/(?:count_tokens|input_tokens|cancel)", re.DOTALL)
_STORED = re.compile(r"/(?:files|uploads|batches|messages/batches|vector_stores|containers|fine_tuning)(?:/.*)?", re.DOTALL)
# A field's name, and its value behind at most eight more headers: however often a body repeats its beginning, reading stays linear.
_FIELD = rb'name\s*=\s*["\']?%b["\']?[ \t]*(?:;[^\r\n]*)?\r?\n(?:(?:[^\r\n]+\r?\n){0,8}\r?\n([^\r\n]*))?'
_FORM_FIELD = re.compile(_FIELD % b"model", re.IGNORECASE)
_FORM_FIELDS = tuple(re.compile(_FIELD % name, re.IGNORECASE) for name in (b"n", b"size", b"quality", b"seconds"))
_LONGEST_WORD = 32  # characters
_NO_AMOUNTS = Amounts()
_IN_FORM = re.compile(rb"content-disposition:", re.IGNORECASE)
# Other ways to write a field's name, by which a server may find a model that is not found here (RFC 8187, RFC 9110 section 5.6.4).
_ODD_FIELD = re.compile(rb'(?:\A|\n)content-disposition:[^\r\n]*(?<!file)name(?:\*|\s*=\s*"[^"\r\n]*\\)', re.IGNORECASE)


class _Wish(msgspec.Struct, gc=False):
    """What a JSON body says about how much it wants."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    best_of: Any = None
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    size: Any = None
    quality: Any = None
    seconds: Any = None
    service_tier: Any = None


_WISH = msgspec.json.Decoder(_Wish)


class Charge(msgspec.Struct, frozen=True, gc=False):
    """model: the one that the request names, "" for none. bound: the most that it may cost. least: its input where no usage is reported.

    most, usual: what is paid beside tokens, at most and where the answer does not say. size, quality: of the pictures that are asked for,
    tier: the service tier, "" without a wish.
    """

    model: str
    bound: Estimate
    least: int
    most: Amounts = Amounts()
    usual: Amounts = Amounts()
    size: str = ""
    quality: str = ""
    tier: str = ""


def is_charged(method: str, path: str) -> bool:
    """Whether a request makes anything that costs: looking up, deleting, cancelling and counting do not. path: plain, behind /v1."""
    return method not in _READING and _FREE.fullmatch(path) is None


def shows_work(method: str, path: str) -> bool:
    """Whether an answer shows work that the provider did while nobody waited for it, and what it came to."""
    return method == "GET" and _SHOWN.fullmatch(path) is not None


def shows_results(method: str, path: str) -> str | None:
    """The batch whose results an answer holds, a line for each request with what it came to; None for any other."""
    found = _RESULTS.fullmatch(path) if method == "GET" else None
    return None if found is None else found[1]


def is_stored(path: str) -> bool:
    """Whether a body goes into a provider's storage, or names what lies there: of any size, and of no cost that is known beforehand."""
    return _STORED.fullmatch(path) is not None


def charge_of(path: str, body: bytes, content_type: str) -> Charge:
    """The bounds of a request by its whole body, b"" for one that was not read."""
    if is_stored(path) or not body:
        return Charge("", _bound(UNREPORTED_TOKENS, 0, 0), UNREPORTED_TOKENS)
    model = next(iter(models_named(body, content_type) or ()), "")
    wish = _wish(body)
    if wish is None:
        n, size, quality, seconds = (_in_form(body, field) for field in _FORM_FIELDS)
        wish, least = _Wish(n=n, size=size, quality=quality, seconds=seconds), UNREPORTED_TOKENS
        bound = _bound(len(body) // _BYTES_PER_HEARD_TOKEN + TEMPLATE_TOKENS, 2 * ATTACHMENT_TOKENS, _USUAL_OUTPUT)
    else:
        prompts, least = _prompts(bytes(wish.prompt)), max(-(-len(body) // BYTES_PER_TOKEN), LEAST_TOKENS)
        bound = _bound(len(body) + TEMPLATE_TOKENS * prompts, 0, _output(path, wish, prompts))
    size, quality, tier = (text(value) or "" for value in (wish.size, wish.quality, wish.service_tier))
    return Charge(model, bound, least, *_amounts(path, wish, len(body)), size[:_LONGEST_WORD], quality[:_LONGEST_WORD], tier)


def _amounts(path: str, wish: _Wish, size: int) -> tuple[Amounts, Amounts]:
    """What a request asks for of things that are paid by the piece, at most and usually. size: of its body, in bytes."""
    if path.endswith(_PICTURES):
        pictures = Amounts(pictures=min(max(_number(wish.n) or 1, 1), _MOST_PICTURES))
        return pictures, pictures
    if path.endswith("/audio/speech"):
        said = len(text(plain(wish.input)) or "")
        return Amounts(0, -(-said // _SLOW_SPEECH), said), Amounts(0, -(-said // _USUAL_SPEECH), said)
    if "/audio/" in path:
        return Amounts(seconds=-(-size // _TIGHTEST_SECOND)), Amounts(seconds=-(-size // _USUAL_SECOND))
    if path.endswith("/videos"):
        stated = _number(wish.seconds)
        return Amounts(seconds=_LONGEST_FILM if stated is None else stated), Amounts(seconds=_USUAL_FILM if stated is None else stated)
    return _NO_AMOUNTS, _NO_AMOUNTS


def _number(value: object) -> int | None:
    """A whole number, as such or in words of digits, as forms have it."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None
    return whole(value)


def _in_form(body: bytes, field: re.Pattern[bytes]) -> str | None:
    found = field.search(body)
    return None if found is None else (found[1] or b"").decode("utf-8", "replace")


def models_named(body: bytes, content_type: str) -> list[str] | None:
    """The models that a body asks for; None where that cannot be told, since it is neither a JSON object nor a form of the usual kind.

    A form may name several. So may JSON: some servers take `Model` for `model`.
    """
    if not body:
        return []
    try:
        members = read(FIELDS, body)
    except (*UNREADABLE, UnicodeDecodeError):
        return _models_of_form(body) if content_type.lower().startswith("multipart/form-data") else None
    names = sorted((name for name in members if name.casefold() == "model"), key=lambda name: name != "model")
    return [value for name in names if isinstance(value := plain(members[name]), str)]


def _models_of_form(body: bytes) -> list[str] | None:
    values = [field[1] for field in _FORM_FIELD.finditer(body)]
    if not _IN_FORM.search(body) or _ODD_FIELD.search(body) or None in values:
        return None
    return [value.decode("utf-8", "replace") for value in values]


def _bound(read_tokens: int, attached: int, output: int) -> Estimate:
    return Estimate(read_tokens, attached, output, output, output)


def _wish(body: bytes) -> _Wish | None:
    """None where the body is no JSON object."""
    try:
        return read(_WISH, body)
    except (*UNREADABLE, UnicodeDecodeError):
        return None


def _output(path: str, wish: _Wish, prompts: int) -> int:
    """The most output of an answer: the client's own limit, else the usual one of its kind, for every alternative of every prompt."""
    unlimited = next((most for end, most in _OUTPUT.items() if path.endswith(end)), _USUAL_OUTPUT)
    stated = [
        limit for value in (wish.max_tokens, wish.max_completion_tokens, wish.max_output_tokens) if (limit := whole(value)) is not None
    ]
    each = unlimited if unlimited == 0 or not stated else max(stated)
    return min(each * max(whole(wish.n) or 1, whole(wish.best_of) or 1) * prompts, _MOST_ASKED)


def _prompts(prompt: bytes) -> int:
    """How many prompts stand in `prompt`: one text, or one list of token numbers, or a list of either."""
    value = plain(prompt) if prompt.startswith(b"[") else None
    return len(value) if isinstance(value, list) and any(isinstance(one, str | list) for one in value) else 1


# ---- the answer


class Work(msgspec.Struct, gc=False):
    """What a provider says of a batch, or of a training. id: its name of it; usage: as it stands there, of all of its lines."""

    id: str = ""
    status: str = ""
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw()
    trained_tokens: Any = None

    @property
    def spent(self) -> Usage | None:
        """What the work came to, a batch in the rates of batches; None while it goes on, and where nothing is said of it."""
        trained = whole(self.trained_tokens) if self.id and self.status in _ENDED else None
        if trained:
            return Usage(trained, trained_tokens=trained)
        usage = _usage(bytes(self.usage), "batch") if self.id and self.status in _ENDED else None
        return usage if usage is not None and usage.input_tokens + usage.output_tokens else None


_ENDED = frozenset({"completed", "succeeded", "failed", "expired", "cancelled"})
_WORK = msgspec.json.Decoder(Work)


def work_of(body: bytes) -> Work:
    """The batch or training that an answer shows; an empty one for any other answer."""
    try:
        return read(_WORK, body)
    except (*UNREADABLE, UnicodeDecodeError):
        return Work()


class _Answered(msgspec.Struct, frozen=True, gc=False):
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw()


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    message: _Answered = _Answered()


class _ResultLine(msgspec.Struct, gc=False):
    result: _Outcome = _Outcome()


_RESULT_LINE = msgspec.json.Decoder(_ResultLine)


class Results:
    """Reads the results of a batch of the messages API as they pass: lines of JSON, in pieces of any size. Never raises on any bytes.

    spent: what they came to by model, so far.
    """

    def __init__(self) -> None:
        self.spent: dict[str, Usage] = {}
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Reads the next piece; b"" is the end."""
        self._rest += data
        if data and b"\n" not in data:
            if len(self._rest) > _LONGEST_LINE:
                self._rest.clear()
            return
        lines = bytes(self._rest).split(b"\n")
        self._rest = bytearray(lines.pop() if data else b"")
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            answered = read(_RESULT_LINE, line).result.message
        except (*UNREADABLE, UnicodeDecodeError):
            return
        usage = messages_answer.read_usage(bytes(answered.usage))
        if usage is not None:
            before = self.spent.get(answered.model, Usage())
            whole_so_far = {name: getattr(before, name) + getattr(usage, name) for name in _COUNTED}
            self.spent[answered.model] = Usage(**whole_so_far, tier="batch")


_COUNTED = ("input_tokens", "output_tokens", "cached_tokens", "written_tokens", "kept_tokens", "searches")


_IN_OBJECT = re.compile(rb'["{}\[\]:,\n]')
_IN_LIST = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\\n]')
_LONGEST_KEY = 32  # bytes of a string that are looked at
_LONGEST_USAGE = 1 << 16  # bytes
_DEEPEST = 256
_USAGE_AT = {(b"usage",), (b"response", b"usage"), (b"x_groq", b"usage"), (b"meta", b"billed_units")}
_TEXTS = {b"text", b"content"}


class Meter:
    """Reads an answer as it passes, JSON or a stream of events with JSON in it, in pieces of any size. Never raises on any bytes.

    usage: what it reported, None so far. seconds: of sound, likewise. text_bytes: of what a model wrote in it. Keeps no more of the answer
    than a usage object, the service tier, and the keys that lead to where they stand.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.seconds: int | None = None
        self.text_bytes = 0
        self._tier = ""
        self._forget()

    def _forget(self) -> None:
        """Outside of any value, as at the beginning."""
        self._within: list[tuple[bytes, bool]] = []  # the key of every value that is open, and whether it is an object
        self._key: bytes | None = None  # of the value that comes next
        self._string: bytearray | None = None  # the beginning of the one that is open
        self._last = b""  # the string before
        self._escaped = False
        self._kept: bytearray | None = None  # of the usage that is being read
        self._kept_from = 0

    def feed(self, data: bytes) -> None:
        """Reads the next piece."""
        position, start = 0, 0
        if self._escaped and data and self._string is not None:
            self._take_text(self._string, data[:1])
            self._escaped = False
            position = 1
        while True:
            if self._string is None:
                found = (_IN_OBJECT if not self._within or self._within[-1][1] else _IN_LIST).search(data, position)
            else:
                found = _IN_STRING.search(data, position)
                self._take_text(self._string, data[position : found.start() if found else len(data)])
            if found is None:
                break
            position = found.end()
            mark = found[0]
            if mark == b"\\" and self._string is not None:
                self._take_text(self._string, data[position - 1 : position + 1])
                self._escaped = position >= len(data)
                position += 1
            elif mark == b"{" and self._string is None and self._begins_usage():
                self._kept, start = bytearray(), position - 1
                self._open(mark)
            elif self._kept is not None and mark == b"}" and self._string is None and len(self._within) == self._kept_from + 1:
                self._end_usage(data[start:position])
                self._close()
            else:
                self._note(mark)
        if self._kept is not None:
            self._kept += data[start:]
            if len(self._kept) > _LONGEST_USAGE:
                self._kept = None

    def _take_text(self, string: bytearray, text: bytes) -> None:
        if len(string) < _LONGEST_KEY:
            string += text[:_LONGEST_KEY]
        if self._key is not None and text and self._is_text():
            self.text_bytes += len(text)

    def _is_text(self) -> bool:
        """Whether the string at hand is what a model wrote: of a choice, or an event's `delta`."""
        if len(self._within) == 1:
            return self._key == b"delta"
        return self._key in _TEXTS and len(self._within) > 1 and self._within[1][0] == b"choices"

    def _note(self, mark: bytes) -> None:
        match mark:
            case b"\n":
                if self._string is not None:  # JSON has none inside a string: this was no JSON
                    self._forget()
            case b'"' if self._string is None:
                self._string = bytearray()
            case b'"':
                self._last, self._string = bytes(self._string or b""), None
                if self._key == b"service_tier" and len(self._within) == 1:
                    self._note_tier(self._last.decode("utf-8", "replace"))
            case b":":
                self._key = self._last
            case b",":
                self._key = None
            case b"{" | b"[":
                self._open(mark)
            case _:
                self._close()

    def _open(self, mark: bytes) -> None:
        if len(self._within) >= _DEEPEST:
            self._forget()
        self._within.append((self._key or b"", mark == b"{"))
        self._key = None

    def _close(self) -> None:
        if self._within:
            self._within.pop()
        if len(self._within) <= self._kept_from:
            self._kept = None  # closed by what did not open it
        self._key = None

    def _begins_usage(self) -> bool:
        if self._kept is not None or self._key is None or not self._within:
            return False
        self._kept_from = len(self._within)
        return (*[key for key, _ in self._within[1:]], self._key) in _USAGE_AT

    def _end_usage(self, rest: bytes) -> None:
        raw, self._kept = bytes(self._kept or b"") + rest, None
        found = _usage(raw, self._tier)
        if found is not None:
            self.usage = found
        else:
            self.seconds = _seconds(raw) or self.seconds

    def _note_tier(self, tier: str) -> None:
        """It may stand before the usage or behind it."""
        self._tier = tier
        if self.usage is not None:
            self.usage = msgspec.structs.replace(self.usage, tier=tier)


def _usage(raw: bytes, tier: str) -> Usage | None:
    """The tokens of a usage object in any of the spellings; None when it holds none."""
    found = chat_answer.read_usage(raw, tier) or responses_answer.read_usage(raw, tier)
    if found is None and present(raw) and isinstance(value := plain(raw), dict) and (total := whole(value.get("total_tokens"))) is not None:
        found = Usage(total, tier=tier)
    return found


def _seconds(raw: bytes) -> int | None:
    """Of a usage object that counts in them, rounded up."""
    value = plain(raw)
    seconds = value.get("seconds") if isinstance(value, dict) else None
    return math.ceil(seconds) if isinstance(seconds, int | float) and 0 <= seconds < _MOST_ASKED else None


def amounts_of(meter: Meter, charge: Charge) -> Amounts:
    """What of a call is paid beside its tokens: as its answer reported, else what such a request usually comes to."""
    return charge.usual if meter.seconds is None else msgspec.structs.replace(charge.usual, seconds=meter.seconds)


def cost_of(meter: Meter, charge: Charge) -> Usage:
    """What a call came to: as its answer reported, else estimated from the request's size and from what was written."""
    if meter.usage is not None:
        return meter.usage
    return Usage(charge.least, -(-meter.text_bytes // BYTES_PER_TOKEN))
