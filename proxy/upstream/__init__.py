"""The ways out to a model: what an upstream is, and which forward proxy leads there.

Pure. Talking to one is the business of the files beside this one: `http` for everything that speaks one of our dialects, `whole` for
the usual request of those, with the header rules in `headers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from yarl import URL

from proxy.config import is_loopback
from proxy.errors import ConfigError

_MOST_LAYERS = 8


def unquoted(path: str) -> str:
    """A path without percent-encoding, also where that was done more than once: some servers undo it twice."""
    for _ in range(_MOST_LAYERS):
        if "%" not in path or (inner := unquote(path)) == path:
            break
        path = inner
    return path


@dataclass(frozen=True, slots=True)
class Target:
    """One configured upstream.

    base_url: up to and including the version, such as `https://api.openai.com/v1`. api_key: replaces the client's credentials; None
    passes those on. key_header: where the key goes, `authorization` or `x-api-key`; None follows the route. ca_file: PEM certificates
    trusted besides the system's. verify: False accepts any certificate. proxy: URL of a forward proxy, user and password allowed.
    connect_timeout: seconds for name, TCP, proxy and TLS together. read_timeout: seconds of silence allowed before and within an answer;
    no limit stands on an answer's length in time.
    """

    name: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    key_header: str | None = None
    ca_file: str | None = None
    verify: bool = True
    proxy: str | None = field(default=None, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 600.0


def base_url_of(target: Target) -> URL:
    """Where it is. Raises `ConfigError` for a base_url or api_key that cannot be used."""
    try:
        url = URL(target.base_url)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"upstreams.{target.name}.base_url: not a URL of the form https://host/v1.")
    if url.user is not None or url.password is not None or url.query_string or url.fragment:
        raise ConfigError(f"upstreams.{target.name}.base_url: must hold no user, password, query or fragment; a key goes into api_key.")
    if target.api_key is not None and not (target.api_key and target.api_key.isascii() and target.api_key.isprintable()):
        raise ConfigError(f"upstreams.{target.name}.api_key: empty or not plain ASCII; is there a line break at its end?")
    return url


def proxy_of(target: Target) -> URL | None:
    """The forward proxy that leads there. Raises `ConfigError` for one that cannot be used."""
    if target.proxy is None:
        return None
    try:
        url = URL(target.proxy)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(
            f"The forward proxy for upstreams.{target.name} must be of the form http://host:port (SOCKS is not supported);"
            " an upstream reached without it belongs into NO_PROXY."
        )
    return url


def proxy_from(environ: Mapping[str, str], base_url: str) -> str | None:
    """The forward proxy an environment prescribes for `base_url`, None for a direct way.

    Reads `<scheme>_proxy`, `all_proxy` and `no_proxy`, small letters before capitals, as curl does. `no_proxy` lists host names (with
    their subdomains), `host:port`, addresses, networks such as `10.0.0.0/8`, or `*`. This machine's own addresses are always
    reached directly: a proxy elsewhere cannot.
    """
    url = urlsplit(base_url)
    host = (url.hostname or "").rstrip(".")
    proxy = _variable(environ, f"{url.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy or is_loopback(host):
        return None
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    excepted = _variable(environ, "no_proxy").lower().split(",")
    if any(_matches(rule.strip(), host, port) for rule in excepted):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _matches(rule: str, host: str, port: int | None) -> bool:
    """Whether one entry of `no_proxy` covers a host (lower case) and port."""
    if rule in ("*", host, f"{host}:{port}", f"[{host}]:{port}"):
        return True
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:  # the host is a name or the rule no network
        domain = rule.removeprefix("*").lstrip(".")
        return bool(domain) and (host == domain or f"{host}:{port}".endswith((f".{domain}", f".{domain}:{port}")))
