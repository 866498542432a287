"""Calls, settlements and limits, as short as tests of stores need them."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from proxy.errors import StoreUnavailable
from proxy.store import Ceiling, Committed, GuardedStore, Opened, Reservation, Settlement, Store, Unit
from tests.servers import redis_server, valkey_server

TTL = 3600.0
SERVERS = {"redis": redis_server, "valkey": valkey_server}


def call(
    lease: str,
    *,
    tag: int = 1,
    body_bytes: int = 4000,
    input_bound: int = 1000,
    output: int = 500,
    modest: int = 200,
    floor: int = 100,
    expires_in: float = 600.0,
    attached: int = 0,
    **limits: Any,
) -> Reservation:
    return Reservation(lease, tag, body_bytes, input_bound, output, modest, floor, expires_in, attached=attached, **limits)


def ceilings(**limits: int | None) -> tuple[Ceiling, ...]:
    """For the whole life, by unit, in the order of units."""
    return tuple(Ceiling(unit, limit) for unit in Unit if (limit := limits.get(unit)) is not None)


def limited(*, deadline: float | None = None, **limits: int | None) -> dict[str, Any]:
    """What the policy says, as arguments of a call."""
    return {"ceilings": ceilings(**limits), "deadline": deadline}


def tightened(*, deadline: float | None = None, **limits: int | None) -> dict[str, Any]:
    """What the request's headers say, likewise."""
    return {"tighten": ceilings(**limits), "tighten_deadline": deadline}


def refused(opened: Opened) -> str | None:
    """The kind of limit that said no."""
    return None if opened.refused is None else opened.refused.kind


def effective(opened: Opened) -> dict[str, Any]:
    """The limits in force for the whole life."""
    return {str(unit): opened.limit(unit) for unit in Unit if opened.limit(unit) is not None} | {"deadline": opened.deadline}


def cost(lease: str, *, steps: int = 1, input_tokens: int = 100, output_tokens: int = 50, body_bytes: int = 4000) -> Settlement:
    return Settlement(lease, steps, input_tokens, output_tokens, body_bytes)


async def settle(store: Store, session: bytes, *settlements: Settlement, ttl: float = TTL) -> Committed:
    return await store.commit(session, record=None, version=0, settlements=settlements, links=(), ttl=ttl)


async def write(store: Store, session: bytes, record: bytes, version: int, links: Sequence[bytes] = (), ttl: float = TTL) -> Committed:
    return await store.commit(session, record=record, version=version, settlements=(), links=links, ttl=ttl)


async def until_expired(store: Store, session: bytes, seconds: float) -> float:
    """The store's time after `seconds` of it have passed since now."""
    start = (await store.open(session, call("clock"), TTL)).now
    while True:
        now = (await store.open(session, call("clock"), TTL)).now
        if now - start > seconds:
            return now
        await asyncio.sleep(0.005)


async def until_up(store: GuardedStore, seconds: float = 20.0) -> None:
    """Until a guarded store answers again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await store.ping()
        except StoreUnavailable:
            assert time.monotonic() < deadline, "the store did not come back"
            await asyncio.sleep(0.01)
