"""Which web pages may call, told by the `Origin` and the `Host` of a request. Pure.

A browser lets any page send requests to this machine, and a page whose host name is made to lead here (DNS rebinding) even read the
answers. Where nobody is asked for a key, that would be enough to spend one. So names that somebody out there can own are refused, of
the page and of the proxy, unless the configuration lists them. Programs other than browsers send no `Origin`, and call the proxy by an
address or a name of the local network.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from proxy.config import Config, is_loopback
from proxy.errors import BadRequest
from proxy.globs import fits

_PAGE = re.compile(r"https?://([^/]*)", re.IGNORECASE)
_PORT = re.compile(r":[0-9]*$")
_LOCAL = (".internal", ".local", ".localhost")  # nobody can own a public name below these
_MOST_KNOWN = 256


class Origins:
    """allowed: names and globs of further hosts; None: every host."""

    def __init__(self, allowed: Sequence[str] | None) -> None:
        self._allowed = allowed
        self._known: set[tuple[str | None, str | None]] = set()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises `BadRequest` (403) for a page that may not call. headers: lower-case names."""
        if self._allowed is None:
            return
        shown = headers.get("host"), headers.get("origin")
        if shown in self._known:
            return
        self._check(*shown)
        if len(self._known) < _MOST_KNOWN:
            self._known.add(shown)

    def _check(self, host: str | None, origin: str | None) -> None:
        called = _name(host or "")
        if called and not (_is_address(called) or self._is_ours(called)):
            raise _refused(f"calls Lastcall by the name {called[:100]!r}", called)
        page = _PAGE.match(origin or "")
        if page is not None and not self._is_ours(_name(page[1])):
            raise _refused(f"is sent by a web page of {page[1][:100]!r}", _name(page[1]))
        if origin == "null":
            raise _refused("is sent by a web page that hides where it is from", None)

    def _is_ours(self, name: str) -> bool:
        local = is_loopback(name) or ("." not in name and not _is_address(name)) or name.endswith(_LOCAL)
        return local or fits(name, self._allowed or ())


def origins_of(config: Config) -> Origins:
    """By default local names alone, where Lastcall serves this machine and asks nobody for a key; else every name."""
    server = config.server
    if server.allowed_hosts is None:
        return Origins(() if is_loopback(server.host) and not config.teams else None)
    return Origins(None if "*" in server.allowed_hosts else server.allowed_hosts)


def _name(host: str) -> str:
    """A host without its port, an IPv6 address without its brackets, in lower case."""
    return _PORT.sub("", host).strip("[]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _refused(what: str, name: str | None) -> BadRequest:
    way = (
        "it is not served" if name is None else f"if that is meant, add {name[:100]!r} to server.allowed_hosts in Lastcall's configuration"
    )
    return BadRequest(
        f"this request {what}, which may be anybody's, and no key is asked for: {way}", status=403, code="lastcall_foreign_page"
    )
