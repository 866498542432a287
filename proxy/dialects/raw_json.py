"""JSON as bytes: reading what others wrote carelessly, and changing one value without touching its neighbours.

Shared by the dialects and knows none of them. "Unreadable" means malformed, nested too deeply, or of another shape than asked for. A
whole body goes through `read`; the `Raw` values found in it are sound and need no such care.
"""

import re
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec.json import Decoder, encode

T = TypeVar("T")
Fields = dict[str, msgspec.Raw]

UNREADABLE = (msgspec.DecodeError, RecursionError)
MOST_COUNTED = 2**53  # beyond it a double skips numbers
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]
"""What `whole` takes, for structs of what is usual."""
_BOM = b"\xef\xbb\xbf"
FIELDS = Decoder(Fields)
_ANY = Decoder(Any)
_RAW_LIST = Decoder(list[msgspec.Raw])
# Clients written in JavaScript cut strings through the middle of an emoji and send half of its surrogate pair. Many servers take
# that, so the other half is no reason to refuse. The prefix makes sure that the backslash is not itself escaped.
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def read(decoder: Decoder[T], data: bytes) -> T:
    """Decodes; a byte order mark is skipped and half a surrogate pair reads as U+FFFD. Raises one of `UNREADABLE`."""
    data = data.removeprefix(_BOM)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mended = _LONE_SURROGATE.sub(rb"\1\\ufffd", data)
        if mended == data:
            raise
        return decoder.decode(mended)


def plain(raw: bytes) -> Any:
    """Any value as Python objects; None for null, for nothing and for what is unreadable."""
    if not raw:
        return None
    try:
        return _ANY.decode(raw)
    except UNREADABLE:
        return None


def fields(raw: bytes) -> Fields:
    """An object's members in order, each value as it was written. Raises one of `UNREADABLE`."""
    return FIELDS.decode(raw)


def members_of(raw: bytes) -> Fields:
    """The same of what an upstream wrote, where a key may still be no UTF-8: nothing of what is unreadable."""
    try:
        return fields(raw)
    except UNREADABLE:
        return {}


def raw_list(raw: bytes) -> list[msgspec.Raw]:
    """A list's members as they were written. Raises one of `UNREADABLE`."""
    return _RAW_LIST.decode(raw)


def object_of(members: Fields) -> bytes:
    """The reverse of `fields`, for at least one member. One copy, where an encoder has to guess the size and makes several."""
    parts: list[bytes] = []
    for name, value in members.items():
        parts += (b",", quoted(name), b":", value)
    return b"".join((b"{", *parts[1:], b"}"))


def list_of(members: list[msgspec.Raw]) -> bytes:
    """The reverse of `raw_list`, in one copy too."""
    parts: list[bytes] = []
    for member in members:
        parts += (b",", member)
    return b"".join((b"[", *parts[1:], b"]"))


class Shape(Generic[T]):
    """Reads values that ought to be objects of one struct (whose fields all have defaults) and never fails."""

    def __init__(self, struct: type[T]) -> None:
        self._struct = struct
        self._one = Decoder(struct)
        self._many: Decoder[list[T]] = Decoder(list[struct])  # type: ignore[valid-type]

    def one(self, raw: bytes) -> T:
        """The object, or an empty one in place of what is unreadable."""
        if not raw:
            return self._struct()
        try:
            return self._one.decode(raw)
        except UNREADABLE:
            return self._struct()

    def many(self, raw: bytes) -> list[T]:
        """A list's objects, with empty ones for unreadable members so that positions stay; [] for what is no list."""
        if not present(raw):
            return []
        try:
            return self._many.decode(raw)
        except UNREADABLE:
            pass
        try:
            return [self.one(member) for member in raw_list(raw)]
        except UNREADABLE:
            return []


def present(raw: bytes) -> bool:
    """Whether a member is there and not null."""
    return bytes(raw) != b"null" if raw else False


def whole(value: object) -> int | None:
    """A count: an integer from 0 to 2**53, also when written as `2.0` or `"2"`; None for anything else."""
    if value is None or type(value) is int:  # nearly always, and soon told
        return value if value is None or 0 <= value <= MOST_COUNTED else None
    match value:
        case float() if value.is_integer():
            number = int(value)
        case str() if value.isascii() and value.isdigit() and len(value) <= 16:
            number = int(value)
        case _:
            return None
    return number if 0 <= number <= MOST_COUNTED else None


def flag(value: object) -> bool:
    """Whether a value means true to the lenient servers: `true`, 1, and the words for them."""
    if isinstance(value, str):
        return value.strip().lower() in {"true", "1", "yes", "on"}
    return value is True or (isinstance(value, int) and value == 1)


def text(value: object) -> str | None:
    """The value if it is a string with something in it."""
    return value if isinstance(value, str) and value else None


def argument_text(raw: bytes) -> str:
    """A call's arguments: the text of a string, the JSON text itself of anything else, "" for nothing."""
    if not present(raw):
        return ""
    value = plain(raw)
    return value if isinstance(value, str) else bytes(raw).decode("utf-8", "replace")


def quoted(value: str) -> bytes:
    """A JSON string. Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def add_member(body: bytes, member: bytes) -> bytes:
    """A non-empty object with one more member at its end, every other byte as it was."""
    end = body.rindex(b"}")
    return b"".join((body[:end], b",", member, body[end:]))


def append_text(content: bytes, addition: str, *, part: str = "text") -> bytes:
    """A message's raw content with text appended: after a blank line in a string, as one more part (of this type) in a list.

    Content of any other type stays as it is: what it means is for the upstream to say.
    """
    if not present(content) or content == b'""':
        return quoted(addition)
    if content.startswith(b'"'):
        return content[:-1] + quoted("\n\n" + addition)[1:]
    if not content.startswith(b"["):
        return content
    comma = b"," if content[1:-1].strip() else b""
    return b"".join((content[:-1], comma, b'{"type":', quoted(part), b',"text":', quoted(addition), b"}]"))
