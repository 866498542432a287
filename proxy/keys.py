"""Keys of callers: which one a request shows, its digest, and whose it is. Pure; nothing here keeps or shows a key."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest

_PREFIX = "sha256:"
OWN_HEADER = "x-lastcall-key"
KEY_BYTES = 32
"""How many random bytes make a key."""


def new_key(random: bytes) -> str:
    """A key from random bytes, fit for any header: `lc-…`."""
    return "lc-" + urlsafe_b64encode(random).decode().rstrip("=")


def digest_of(key: str) -> str:
    """What the configuration holds of a key: `sha256:` and 64 hexadecimal digits, the hash of its UTF-8 bytes."""
    return _PREFIX + sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def caller_of(headers: Mapping[str, str]) -> str:
    """The secret that identifies the caller: Lastcall's own header, else the provider key it sends, whatever the scheme."""
    own = headers.get(OWN_HEADER)
    if own:
        return own.strip()
    return bearer_of(headers) or headers.get("x-api-key") or headers.get("api-key") or headers.get("authorization", "").strip()


def bearer_of(headers: Mapping[str, str]) -> str:
    """The token of `Authorization: Bearer`, "" without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class KeyRing:
    """Which team a key belongs to. teams: the digests of each team's keys."""

    def __init__(self, teams: Mapping[str, Sequence[str]]) -> None:
        self._digests = [(bytes.fromhex(digest.removeprefix(_PREFIX)), team) for team, digests in teams.items() for digest in digests]

    def team_of(self, key: str) -> str | None:
        """The team of a key, None for one that nobody has. Takes as long for any key: all digests are compared, each in constant time."""
        shown = sha256(key.encode("utf-8", "surrogatepass")).digest()
        found = None
        for digest, team in self._digests:
            if compare_digest(digest, shown):
                found = team
        return found

    def goes_upstream(self, headers: Mapping[str, str]) -> bool:
        """Whether an upstream that gets the client's own credentials would get one of these keys."""
        sent = {bearer_of(headers), headers.get("authorization", "").strip(), headers.get("x-api-key", ""), headers.get("api-key", "")}
        return any([self.team_of(credential) is not None for credential in sent if credential])
