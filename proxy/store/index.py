"""The index of sessions, as both stores read it: what an entry is found by, and how a place in it is named."""

import math

from proxy.store.contract import Listing

Place = tuple[float, bytes]
"""When a session was used last, and its key."""

_LONGEST_NAME = 256


def matches(listing: Listing, tenant: str | None, search: str) -> bool:
    """Whether a session is one of that tenant's and its label contains what is searched for."""
    return (tenant is None or listing.tenant == tenant) and search in listing.label


def named_place(seen: float, session: bytes) -> str:
    """The name of the place behind a session."""
    return f"{seen!r} {session.hex()}"


def place_of(name: str) -> Place | None:
    """The place of that name; None, the beginning, if there is none."""
    seen, _, session = name[:_LONGEST_NAME].partition(" ")
    try:
        place = float(seen), bytes.fromhex(session)
    except ValueError:
        return None
    return place if math.isfinite(place[0]) else None
