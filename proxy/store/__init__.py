"""Where sessions and ledgers live between requests: one interface, two implementations, one table.

The interface and its values are in `contract`, the deadline and recovery of every call in `guard`.
"""

from typing import Protocol

from proxy.addresses import SCHEMES, Layout, names_several, place_of
from proxy.errors import ConfigError
from proxy.store.contract import (
    Account,
    Amendment,
    Ceiling,
    Clock,
    Committed,
    Kind,
    Ledger,
    Listed,
    Listing,
    Mark,
    OnChange,
    Opened,
    Page,
    Peeked,
    RandomBytes,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Stopped,
    Store,
    Unit,
    Usage,
    shared,
)
from proxy.store.guard import GuardedStore
from proxy.store.memory import MemoryStore
from proxy.store.redis import RedisStore

__all__ = [
    "Account",
    "Amendment",
    "Ceiling",
    "Clock",
    "Committed",
    "GuardedStore",
    "Kind",
    "Ledger",
    "Listed",
    "Listing",
    "Mark",
    "MemoryStore",
    "Opened",
    "Page",
    "Peeked",
    "RandomBytes",
    "Refusal",
    "Reservation",
    "Settlement",
    "Standing",
    "Stopped",
    "Store",
    "Unit",
    "Usage",
    "longest_call",
    "open_store",
    "shared",
]


class _Factory(Protocol):
    def __call__(self, url: str, *, clock: Clock, random_bytes: RandomBytes, timeout: float, on_change: OnChange) -> Store: ...


def _memory(url: str, *, clock: Clock, random_bytes: RandomBytes, timeout: float, on_change: OnChange) -> Store:
    return MemoryStore(clock, random_bytes)


def _redis(url: str, *, clock: Clock, random_bytes: RandomBytes, timeout: float, on_change: OnChange) -> Store:
    try:
        return RedisStore(url, random_bytes, timeout=timeout, on_change=on_change)
    except (ValueError, TypeError):
        # The cause may quote a part of the password that was taken for a port: it is not passed on.
        raise ConfigError(
            "store.url: not a usable Redis URL; write redis://[user:password@]host[:port][/db], the password percent-encoded, "
            "and only options that redis-py knows after the '?'"
        ) from None


_ROUNDS = 3  # round trips of one call, see `RedisStore.open`

_STORES: dict[str, _Factory] = {
    "memory": _memory,
    "redis": _redis,
    "rediss": _redis,
    **dict.fromkeys(SCHEMES, _redis),
}


def open_store(url: str, *, clock: Clock, random_bytes: RandomBytes, timeout: float, on_change: OnChange = lambda _: None) -> Store:
    """The store that `url` names, not yet connected. Raises `ConfigError` for a scheme or URL that cannot be used.

    clock: epoch seconds, for stores without a clock of their own. timeout: seconds that one server of a cluster may take; the deadline of
    a whole call is `GuardedStore`'s. on_change: told of single servers of a cluster that go away or come back.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    factory = _STORES.get(scheme)
    if factory is None:
        choices = ", ".join(f"{known}://" for known in _STORES)
        raise ConfigError(f"store.url: no store for the scheme {scheme!r}; use one of {choices}")
    return factory(url, clock=clock, random_bytes=random_bytes, timeout=timeout, on_change=on_change)


def longest_call(url: str, timeout: float) -> float:
    """Seconds that a call to the store may take before all of it counts as away, where one server has `timeout`.

    In a cluster a call may ask, ask once more for less and undo, of another server each time. Which of them kept silent is known there, and
    must not become an outage of the others by adding up.
    """
    several = names_several(url) and place_of(url).layout is Layout.CLUSTER
    return _ROUNDS * timeout if several else timeout
