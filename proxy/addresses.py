"""Where a shared store is: a URL that names several hosts, taken apart. What its options mean is redis-py's business.

    redis+sentinel://[user:password@]host[:26379][,host…]/master[/database][?options]
    redis+cluster://[user:password@]host[:6379][,host…][?options]

`rediss+…` is the same over TLS. The user is the servers'; that of the sentinels stands in the options `sentinel_username` and
`sentinel_password`, and `sentinel_tls` says where they differ from the servers in that.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

Address = tuple[str, int]
"""A host and a port."""

_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Layout(StrEnum):
    """How the servers of a store are found."""

    SENTINEL = "sentinel"
    CLUSTER = "cluster"


SCHEMES = tuple(f"{scheme}+{layout}" for layout in Layout for scheme in ("redis", "rediss"))
STORE_SCHEMES = ("memory", "redis", "rediss", *SCHEMES)
"""Those of every URL that a store may have."""

_PORTS = {Layout.SENTINEL: 26379, Layout.CLUSTER: 6379}
_EXAMPLES = {
    Layout.SENTINEL: "redis+sentinel://sentinel-0:26379,sentinel-1:26379/mymaster/0",
    Layout.CLUSTER: "redis+cluster://redis-0:6379,redis-1:6379",
}


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """What the URL says. hosts: the sentinels, or some of the cluster. server_url: as redis-py reads it, of the first host, with the user,
    the database and the options of every server. username, password, tls: the sentinels'. No repr, for the passwords' sake."""

    layout: Layout
    hosts: tuple[Address, ...]
    server_url: str
    master: str = ""
    username: str | None = None
    password: str | None = None
    tls: bool = False


def names_several(url: str) -> bool:
    """Whether that is a URL for `place_of`, by its scheme."""
    return url.partition("://")[0].lower() in SCHEMES


def place_of(url: str) -> Place:
    """The URL's parts. Raises ValueError, whose message quotes nothing of the URL, when it is not as above."""
    scheme, _, rest = url.partition("://")
    plain, _, name = scheme.lower().partition("+")
    layout = Layout(name)
    location, _, query = rest.partition("?")
    authority, *path = location.split("/")
    user, at, hosts = authority.rpartition("@")
    addresses = tuple([_address(host, layout) for host in hosts.split(",")])
    master, database = _path([unquote(step) for step in path if step], layout)
    options = parse_qsl(query, keep_blank_values=True)
    own = {key: value for key, value in options if key.startswith("sentinel_")}
    others = urlencode([(key, value) for key, value in options if key not in own])
    username, password = own.pop("sentinel_username", None), own.pop("sentinel_password", None)
    tls = _YES_NO.get(own.pop("sentinel_tls", str(plain == "rediss")).lower())
    if own or tls is None or (layout is Layout.CLUSTER and others != urlencode(options)):
        raise ValueError(
            _wrong("has an option for sentinels that there is not (sentinel_username, sentinel_password, sentinel_tls=yes)", layout)
        )
    host, port = addresses[0]
    server_url = f"{plain}://{user}{at}{f'[{host}]' if ':' in host else host}:{port}/{database}{'?' if others else ''}{others}"
    return Place(layout, addresses, server_url, master, username, password, tls)


def _path(steps: list[str], layout: Layout) -> tuple[str, str]:
    """The master's name, empty for a cluster, and the number of the database."""
    if layout is Layout.CLUSTER:
        if steps not in ([], ["0"]):
            raise ValueError(_wrong("has a database, which clusters have not", layout))
        return "", "0"
    if not steps:
        raise ValueError(_wrong("names no master", layout))
    master, *more = steps
    database = more[0] if more else "0"
    if len(more) > 1 or not database.isdecimal():
        raise ValueError(_wrong("has more behind its master than the number of a database", layout))
    return master, database


def _address(text: str, layout: Layout) -> Address:
    try:
        parts = urlsplit("//" + text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port == 0:
        raise ValueError(_wrong("has a host or a port that is none", layout))
    return host, port or _PORTS[layout]


def _wrong(what: str, layout: Layout) -> str:
    return f"{what}; use one such as {_EXAMPLES[layout]}"
