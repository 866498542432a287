"""What one value of the configuration may be: numbers, sizes, durations, names, URLs, keys, templates.

Each type says in its own words what is wrong with a value: the value, then the fix, never a key or a password.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, SecretStr
from pydantic_core import PydanticCustomError

from proxy.addresses import STORE_SCHEMES, names_several, place_of
from proxy.keys import digest_of

PLACEHOLDERS = ("tool", "count", "result", "finish_tool", "reason")

_LARGEST = 2**53 - 1  # what the store's script language still counts exactly
_SIZE_UNITS = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIME_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 3650 * 86400.0
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_MOST_DOLLARS = 9_000_000  # what the store's script language still counts exactly, in nano-dollars
_DIGEST = re.compile(r"sha256:[0-9a-fA-F]{64}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-lastcall-key", "cookie"})


def masked(url: str) -> str:
    """A URL fit for a log or an error: without user, password and query."""
    return re.sub(r"\?.*", "?…", re.sub(r"//.*@", "//***@", url, flags=re.DOTALL), flags=re.DOTALL)


def shown(value: object) -> str:
    """A value as the file would have it, cut, and without what may be secret in a URL."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(masked(value)[:80] if "//" in value else value[:80])
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return str(value)[:80]


def fault(message: str, *, below: tuple[str | int, ...] = (), at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """What a validator raises. below: the key it is really about, under the one being validated; at: the same from the top of the file.
    With either, the message must hold no braces.
    """
    return PydanticCustomError("fault", message, {"below": below, "at": at} if below or at else None)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Whole:
    """Accepts whole numbers from `low` to `high`; `use` is the fix in words."""

    low: int
    high: int
    use: str

    def __call__(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = " (it is in quotes)" if isinstance(value, str) and value.isdecimal() else ""
            raise fault(f"{shown(value)} is not a whole number{quoted}; {self.use}")
        if value < 0:
            raise fault(f"{value} is negative; {self.use}")
        if not self.low <= value <= self.high:
            raise fault(f"{value} is too {'small' if value < self.low else 'large'}; {self.use}")
        return value


@dataclass(frozen=True, slots=True)
class _Duration:
    """Accepts `250ms`, `90s`, `15m`, `2h`, `1d` or a number of seconds; gives seconds."""

    use: str
    zero: bool = False

    def __call__(self, value: object) -> float:
        match value:
            case bool():
                seconds = float("nan")
            case int() | float():
                seconds = float(min(value, _LARGEST))
            case str() if (found := _QUANTITY.fullmatch(value)) and found[2] in _TIME_UNITS:
                seconds = float(found[1]) * _TIME_UNITS[found[2]]
            case _:
                raise fault(f"{shown(value)} is not a duration; {self.use}")
        if seconds < 0:
            raise fault(f"{shown(value)} is negative; {self.use}")
        if not seconds <= _LONGEST:
            raise fault(f"{shown(value)} is {'too long' if seconds > 0 else 'not a duration'}; {self.use}, up to 3650d")
        if seconds == 0 and not self.zero:
            raise fault(f"{shown(value)} leaves no time at all; {self.use}")
        return seconds


def _size(value: object) -> int:
    """Accepts `32MiB`, `10MB` or a number of bytes; gives bytes."""
    use = "use a size such as 32MiB, 10MB or a whole number of bytes, up to 1GiB"
    if isinstance(value, str) and (found := _QUANTITY.fullmatch(value)):
        if found[2] not in _SIZE_UNITS:
            raise fault(f"{shown(value)} has the unknown unit {found[2]!r}; {use}")
        scaled = float(found[1]) * _SIZE_UNITS[found[2]]
        value = int(scaled) if scaled.is_integer() else scaled
    return _Whole(1, 1 << 30, use)(value)


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise fault(f"{shown(value)} is not text; put it in quotes")
    if not value or value != value.strip() or not value.isprintable():
        raise fault(f"{shown(value)} is empty, or holds spaces around it or control characters; use a plain name")
    return value


def _header(value: object) -> str:
    name = _name(value).lower()
    if not _HEADER.fullmatch(name):
        raise fault(f"{shown(value)} is not a header name; use letters, digits and dashes")
    if name in _KEY_HEADERS:
        raise fault(f"{shown(value)} carries a key, and a session's name is shown in logs; use another header")
    return name


def _url(value: object, schemes: tuple[str, ...], example: str) -> str:
    """A URL of one of `schemes` with a host (none for memory://)."""
    text = _name(value)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise fault(f"{shown(text)} is not a URL; use one such as {example}") from None
    if parts.scheme not in schemes:
        # Without a scheme it may be a variable that holds the password alone.
        what = shown(text) if "//" in text or ("@" not in text and re.search(r"[.:]", text)) else "the value"
        raise fault(f"{what} does not begin with {' or '.join(f'{scheme}://' for scheme in schemes)}; use {example}")
    if bool(host) == (parts.scheme == "memory") or re.search(r"\s", text):
        raise fault(f"{shown(text)} is not a usable URL (check its host); use one such as {example}")
    return text


def _store_url(value: object) -> str:
    """A URL of a store; one that names several hosts is looked at as the store will."""
    text = _name(value)
    if not names_several(text):
        return _url(text, STORE_SCHEMES, "redis://localhost:6379/0")
    try:
        place_of(text)
    except ValueError as error:
        raise fault(f"{shown(text)} {error}") from None
    return text


def _base_url(value: object) -> str:
    example = "https://api.openai.com/v1"
    url = _url(value, ("http", "https"), example).rstrip("/")
    parts = urlsplit(url)
    if "?" in url or "#" in url:
        raise fault(f"{shown(url.split('#')[0])} has a query or fragment; leave it out, requests bring their own")
    if "@" in parts.netloc:
        raise fault(f"{shown(url)} has a user in it; leave it out and use api_key")
    if parts.path.endswith(("/chat/completions", "/responses", "/messages")):
        raise fault(f"{shown(url)} is one route; leave its end out, as in {example}")
    return url


def _api_key(value: object) -> object:
    """`passthrough` or a key; whether the key came from a variable was seen before its text was put in."""
    if not isinstance(value, str):
        raise fault("not text; use passthrough, or a variable such as ${OPENAI_API_KEY}")
    key = value.strip()  # a key read from a mounted file often ends with a newline
    if not key:
        raise fault("empty; set the variable it names, or use passthrough")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise fault("holds spaces, control characters or letters beyond ASCII, which no header can carry; check the variable")
    return key


def _key_digest(value: object) -> str:
    """A hash as the file has it, or a key from a variable (which was seen before its text was put in): only its digest goes on."""
    if isinstance(value, str) and value.strip().startswith("sha256:") and not _DIGEST.fullmatch(value.strip()):
        raise fault("begins with sha256: and goes on with something else than 64 hexadecimal digits; `lastcall keygen` prints a whole one")
    key = _api_key(value)
    assert isinstance(key, str)
    return key.lower() if key.startswith("sha256:") else digest_of(key)


def _zone(value: object) -> str:
    name = _name(value)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if name != "UTC":  # known without the system's tables
            use = "use a name such as UTC, Europe/Berlin or America/New_York (some images need the package tzdata)"
            raise fault(f"{shown(name)} is no time zone that this system knows; {use}") from None
    return name


@dataclass(frozen=True, slots=True)
class _Dollars:
    """Accepts an amount of money, in dollars; `use` is the fix in words."""

    high: float
    use: str
    least: float = 0.0

    def __call__(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fault(f"{shown(value)} is not an amount of dollars; {self.use}")
        if value < 0:
            raise fault(f"{shown(value)} is negative; {self.use}")
        if not value <= self.high:
            raise fault(f"{shown(value)} is {'too large' if value > 0 else 'not an amount of dollars'}; {self.use}")
        if 0 < value < self.least:
            raise fault(f"{shown(value)} is less than a nano-dollar, in which money is counted; {self.use}")
        return value


def _template(value: object) -> str:
    """A nudge's text. Its braces are those of `str.format`, restricted to bare names."""
    if not isinstance(value, str):
        raise fault(f"{shown(value)} is not text; put it in quotes")
    if not value.strip():
        raise fault("empty; write the text, or null for the built-in wording")
    for braces in re.findall(r"\{[^{}]*\}|[{}]", value.replace("{{", "").replace("}}", "")):
        if braces[1:-1] not in PLACEHOLDERS:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise fault(f"{braces[:80]!r} is not a placeholder; use {known}, and {{{{ or }}}} for a plain brace")
    return value


OwnPort = Annotated[int, BeforeValidator(_Whole(1, 65535, "use a port from 1 to 65535"))]
Port = Annotated[int, BeforeValidator(_Whole(0, 65535, "use a port from 1 to 65535, or 0 for any free one"))]
Workers = Annotated[int, BeforeValidator(_Whole(1, 128, "use a whole number from 1 to 128"))]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str)]
Timeout = Annotated[float, BeforeValidator(_Duration("use a duration such as 250ms, 90s, 2h or 1d"), json_schema_input_type=float | str)]
Deadline = Annotated[
    float,
    BeforeValidator(
        _Duration("use a duration such as 90s, 2h or 1d, 0 for none at all, or null for no limit", zero=True),
        json_schema_input_type=float | str,
    ),
]


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise fault(f"{shown(value)} is no share; use a number from 0 to 1, such as 0.1 for every tenth run")
    return float(value)


whole_limit = _Whole(0, _LARGEST, "use a whole number, 0 for none at all, or null for no limit")
Limit = Annotated[int, BeforeValidator(whole_limit)]
Money = Annotated[
    float,
    BeforeValidator(
        _Dollars(_MOST_DOLLARS, "use dollars such as 25 or 0.5, up to 9000000, 0 for none at all, or null for no limit", least=1e-9),
        json_schema_input_type=float,
    ),
]
Rate = Annotated[float, BeforeValidator(_Dollars(1_000_000, "use dollars such as 1.25, or 0 for free"), json_schema_input_type=float)]
KeyDigest = Annotated[str, BeforeValidator(_key_digest)]
TimeZone = Annotated[str, BeforeValidator(_zone)]
Rung = Annotated[int, BeforeValidator(_Whole(2, 10_000, "use a whole number from 2 to 10000, or null for no such rung"))]
FirstRung = Annotated[int, BeforeValidator(_Whole(1, 10_000, "use a whole number from 1 to 10000, or null for no such rung"))]
Share = Annotated[float, BeforeValidator(_share)]
Few = Annotated[int, BeforeValidator(_Whole(0, 100, "use a whole number from 0 to 100"))]
Tries = Annotated[int, BeforeValidator(_Whole(0, 10, "use a whole number from 0 to 10"))]
Name = Annotated[str, BeforeValidator(_name)]
Header = Annotated[str, BeforeValidator(_header)]
BaseUrl = Annotated[str, BeforeValidator(_base_url)]
StoreUrl = Annotated[str, BeforeValidator(_store_url)]
ProxyUrl = Annotated[str, BeforeValidator(lambda value: _url(value, ("http", "https"), "http://proxy.internal:3128"))]
ApiKey = Annotated[Literal["passthrough"] | SecretStr, BeforeValidator(_api_key, json_schema_input_type=str)]
Template = Annotated[str, BeforeValidator(_template)]
