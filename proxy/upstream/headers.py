"""Which header fields cross the proxy, in which direction, and what becomes of them. Pure; one pass over the fields.

Everything not named here passes, in order, duplicates included. Fields that HTTP cannot carry exactly as they came (a name that is
no token, control characters, a request value that is not UTF-8) are left out rather than altered.

`plain`, in both directions: the exchange reads and may rewrite the bodies, so neither travels compressed (the client's was decoded
before, the answer is decoded on arrival) and no length holds.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from proxy.codings import CODINGS

RawHeaders = Sequence[tuple[bytes, bytes]]

# RFC 9110 section 7.6.1: for the next hop only, as is whatever `Connection` names.
_HOP = frozenset(
    {
        b"",  # no name at all
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Said to this server and about this connection: the client library says its own. Cookies belong to the origin that set them, which is
# never the upstream; where a client's traffic came from is the operator's business.
_TO_THIS_SERVER = frozenset({b"host", b"content-length", b"expect", b"cookie", b"forwarded", b"x-real-ip"})
_NEVER_UPSTREAM = b"x-forwarded-"
_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})
_CODINGS = frozenset({b"accept-encoding", b"content-encoding"})
_NAMING_NONE = frozenset({b"keep-alive", b"close"})  # what clients say of the connection itself
_NO_CODING = (b"\r\nAccept-Encoding: ", b"identity")

# Statements of the upstream about its own origin, which a client would take as this proxy's: cookies (a CDN's `__cf_bm` would come
# back with every client sharing a jar), other ports and protocols to use, https for ever, data to forget.
_OF_THE_ORIGIN = frozenset({b"set-cookie", b"alt-svc", b"strict-transport-security", b"clear-site-data"})
_SPOKEN_HERE = b"x-lastcall-"
# An answer in any other coding arrives, and leaves, as it is.
_UNDONE_CODINGS = frozenset([coding.encode() for coding in CODINGS])

_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_NAMES = 256  # remembered: clients and upstreams send the same few with every message
_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code != 0x09)
_CONTROLS_CHANGED = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))

_NONE: frozenset[bytes] = frozenset()
# What does not pass, by (a key takes the place of the client's, plain) and by (plain, no body may follow).
_REQUEST_DROPS = {
    (keyed, plain): _HOP | _TO_THIS_SERVER | (_CREDENTIALS if keyed else _NONE) | (_CODINGS if plain else _NONE)
    for keyed in (False, True)
    for plain in (False, True)
}
RESPONSE_DROPS = {
    (plain, bodiless): _HOP
    | _OF_THE_ORIGIN
    | ({b"content-encoding"} if plain else _NONE)
    | ({b"content-length"} if plain or bodiless else _NONE)
    for plain in (False, True)
    for bodiless in (False, True)
}


def to_upstream(headers: RawHeaders, *, api_key: str | None, plain: bool, bearer: bool = True) -> list[tuple[str, str]]:
    """A client's request header as the upstream gets it; names keep their case.

    With an `api_key` it takes the place of the client's credentials: as a bearer token, or in `x-api-key`. Content-Length and Host are
    left to whoever sends it.
    """
    return [(opening[2:-2].decode(), value.decode()) for opening, value in _passed_on(headers, api_key, plain, bearer)]


def written(headers: RawHeaders, *, api_key: str | None, plain: bool, bearer: bool = True) -> bytes:
    """The same as the lines of HTTP/1.1, each behind a line break."""
    names, values = zip(*headers) if headers else ((), ())  # noqa: B905 - pairs, all of them; `strict` costs a third more
    form = _form(names, api_key is not None, plain)
    if form is None or not form.names_none(values):
        return b"".join(chain.from_iterable(_passed_on(headers, api_key, plain, bearer)))
    passing = form.passing(values)
    together = b"".join(passing)
    if not together.isascii() or not _is_fit(together):
        return b"".join(chain.from_iterable(_passed_on(headers, api_key, plain, bearer)))
    lines = form.lines % passing
    return lines if api_key is None else lines + b"%b%b" % _key_line(api_key, bearer)


class _Form(NamedTuple):
    """The lines of fields with certain names, which are the same in most of a client's requests: what is left are values.

    passing: which of all values go into it. connections: at which places `Connection` stands.
    """

    lines: bytes
    passing: Callable[[Sequence[bytes]], tuple[bytes, ...]]
    connections: tuple[int, ...]

    def names_none(self, values: Sequence[bytes]) -> bool:
        """Whether no `Connection` among these fields names another one."""
        return not self.connections or all([values[place].lower() in _NAMING_NONE for place in self.connections])


@lru_cache(_MOST_NAMES)
def _form(names: tuple[bytes, ...], keyed: bool, plain: bool) -> _Form | None:
    """The form for fields with these names; None where hardly any passes."""
    openings = [_opening(name, keyed, plain) for name in names]
    places = [place for place, opening in enumerate(openings) if opening is not None]
    if len(places) < 2:
        return None
    lines = b"".join([opening.replace(b"%", b"%%") + b"%b" for opening in openings if opening is not None])
    connections = tuple([place for place, name in enumerate(names) if name.lower() == b"connection"])
    return _Form(lines + (b"".join(_NO_CODING) if plain else b""), itemgetter(*places), connections)


def _key_line(api_key: str, bearer: bool) -> tuple[bytes, bytes]:
    return (b"\r\nAuthorization: ", b"Bearer " + api_key.encode()) if bearer else (b"\r\nX-Api-Key: ", api_key.encode())


def _passed_on(headers: RawHeaders, api_key: str | None, plain: bool, bearer: bool) -> list[tuple[bytes, bytes]]:
    """What passes: how each field's line begins, and its value."""
    keyed = api_key is not None
    named: set[bytes] = set()
    kept: list[tuple[bytes, bytes]] = []
    for name, value in _with_fit_values(headers, text=True):
        opening = _opening(name, keyed, plain)
        if opening is not None:
            kept.append((opening, value))
        elif name.lower() == b"connection":
            named.update(_tokens(value))
    if named:
        kept = [field for field in kept if field[0][2:-2].lower() not in named]
    if plain:
        kept.append(_NO_CODING)
    if api_key is not None:
        kept.append(_key_line(api_key, bearer))
    return kept


def to_client(headers: RawHeaders, *, plain: bool, bodiless: bool = False) -> list[tuple[bytes, bytes]]:
    """An upstream's response header as the client gets it; names in lower case, as ASGI wants them.

    `Date` and `Server` are the upstream's own, so the server in front must not add its. bodiless: the status forbids a body (204,
    304), so that a length would promise bytes that never come.
    """
    drops = RESPONSE_DROPS[plain, bodiless]
    named: set[bytes] = set()
    kept: list[tuple[bytes, bytes]] = []
    for name, value in _with_fit_values(headers):
        lower = lowered(name)
        if lower not in drops or (lower == b"content-encoding" and value.lower() not in _UNDONE_CODINGS):
            kept.append((lower, value))
        elif lower == b"connection":
            named.update(_tokens(value))
    return [field for field in kept if field[0] not in named] if named else kept


def declared_length(headers: RawHeaders) -> str | None:
    """The length in bytes a client announced for a body, None if it announced none that makes sense."""
    for name, value in headers:
        if len(name) == 14 and name.lower() == b"content-length" and value.isdigit():
            return value.decode()
    return None


@lru_cache(_MOST_NAMES)
def _opening(name: bytes, keyed: bool, plain: bool) -> bytes | None:
    """How a request field's line begins, from the break before it on; None for a field that does not pass."""
    lower = lowered(name)
    return None if lower in _REQUEST_DROPS[keyed, plain] or lower.startswith(_NEVER_UPSTREAM) else b"\r\n%b: " % name


@lru_cache(_MOST_NAMES)
def lowered(name: bytes) -> bytes:
    """A name in lower case, b"" for one that crosses in neither direction."""
    lower = name.lower()
    # `translate` takes characters out at C speed: all of a name's must be allowed ones.
    return b"" if name.translate(None, _TOKEN) or lower.startswith(_SPOKEN_HERE) else lower


def _with_fit_values(headers: RawHeaders, *, text: bool = False) -> RawHeaders:
    """The fields whose values fit. Looked at together first: nearly always all of them do. text: they must be UTF-8 as well."""
    together = b"".join([value for _, value in headers])
    if _is_fit(together) and (not text or together.isascii()):
        return headers
    return [field for field in headers if _is_fit(field[1]) and not (text and _is_no_text(field[1]))]


def _is_fit(value: bytes) -> bool:
    return value.translate(_CONTROLS_CHANGED) == value


def _is_no_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


def _tokens(connection: bytes) -> set[bytes]:
    """The fields a `Connection` value names; `close` and `keep-alive` among them, which name none that passes."""
    return {token.strip().lower() for token in connection.split(b",")}
