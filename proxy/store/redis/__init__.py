"""The shared store: Redis 7.0 or newer, or Valkey, as one server, behind sentinels or as a cluster; the only door to redis-py.

All keys of a ledger carry its key in braces, so that they share a cluster slot and each script touches one slot. Every decision
falls inside a script, by the server's clock. Every command may be sent twice: a lease is reserved and settled once, and a record
is compared before it is replaced. What commands say is in `wire`, which server hears them in `connections`, `sentinels` and `cluster`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from redis.exceptions import RedisError

from proxy.addresses import Layout, names_several, place_of
from proxy.errors import StoreUnavailable
from proxy.store import index, wire
from proxy.store.command import Command, said
from proxy.store.contract import (
    Account,
    Amendment,
    Committed,
    Listing,
    OnChange,
    Opened,
    Page,
    PartUnavailable,
    Peeked,
    RandomBytes,
    Reservation,
    Settlement,
    Usage,
)
from proxy.store.deadline import LONGEST
from proxy.store.grant import lowered, opened, tight, to_undo
from proxy.store.redis.cluster import Cluster
from proxy.store.redis.connections import OneServer
from proxy.store.redis.sentinels import Sentinels
from proxy.store.redis.servers import Options, Servers

_SECRET = "lastcall:secret"

_Answer = TypeVar("_Answer")


class RedisStore:
    """A `Store` on Redis servers. Has no deadline of its own but for each server of a cluster: see `GuardedStore`.

    url: as `proxy.addresses` or redis-py has it. Raises ValueError or TypeError when it cannot be read. timeout: seconds. on_change: told
    of single servers of a cluster that go away or come back.
    """

    def __init__(self, url: str, random_bytes: RandomBytes, *, timeout: float, on_change: OnChange = lambda _: None) -> None:
        self._servers = _servers_of(url, timeout, on_change)
        self._undoing: set[asyncio.Task[None]] = set()
        self._secret = random_bytes(32)

    async def secret(self) -> bytes:
        # Offers what it knew before, so that replicas keep their fingerprints when a server comes back without its data.
        self._secret = await self._ask([said("SET", _SECRET, self._secret, "NX"), said("GET", _SECRET)], _secret)
        return self._secret

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        """See `Store.find`. A link never outlives its session, so that whoever finds one needs no second look; in a cluster by as much as a
        call takes, and then the session begins anew."""
        if not links:
            return None
        if self._servers.several:
            return await self._ask([said("GET", wire.link_key(link)) for link in links], _first_of_several, spared=len(links))
        return await self._ask([said("MGET", *map(wire.link_key, links))], _first)

    def open(self, session: bytes, reservation: Reservation, ttl: float) -> Coroutine[Any, Any, Opened]:
        if reservation.accounts:
            return self._open_with_accounts(session, reservation, ttl)
        return self._ask([wire.open_session(session, reservation, ttl)], lambda replies: _opened(*wire.said_of(replies[0]), reservation))

    async def _open_with_accounts(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        try:
            return await self._reserve(session, reservation, ttl)
        except (StoreUnavailable, asyncio.CancelledError) as error:
            if self._servers.several and not (isinstance(error, PartUnavailable) and not error.asked):
                self._undo_beside(session, reservation)
            raise

    async def _reserve(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        """In the session's own ledger and in those of accounts, which none of them knows of."""
        accounts = reservation.accounts
        commands = [wire.open_session(session, reservation, ttl)]
        commands += [wire.open_account(session, account, reservation, ttl) for account in accounts]
        (record, said), *others = await self._ask(commands, _said)
        grants = [wire.grant(said, reservation)]
        grants += [wire.grant(other, reservation, accounts[at], at) for at, (_, other) in enumerate(others)]
        if again := tight(reservation, grants):
            less = lowered(reservation, grants[0])
            second = await self._ask([wire.open_account(session, accounts[at], less, ttl) for at in again], _said)
            for at, (_, other) in zip(again, second, strict=True):
                grants[at + 1] = wire.grant(other, less, accounts[at], at)
        if places := to_undo(grants):
            keys = [session, *(account.key for account in accounts)]
            await self._ask([wire.undo(keys[place], reservation.lease) for place in places], list)
        return opened(wire.loaded(record, said), grants)

    def _undo_beside(self, session: bytes, reservation: Reservation) -> None:
        """Some servers may have granted what others did not answer: undo it where they can be reached. Elsewhere it ends with its lease."""
        for key in (session, *(account.key for account in reservation.accounts)):
            task = asyncio.create_task(self._undo(key, reservation.lease))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    async def _undo(self, key: bytes, lease: str) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._ask([wire.undo(key, lease)], list)

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        commands = [wire.renew_session(session, lease, expires_in)]
        commands += [wire.renew_account(session, account, lease, expires_in) for account in accounts]
        return await self._ask(commands, _all, spared=len(commands))

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
        listing: Listing | None = None,
    ) -> Committed:
        # Links first: so the session, whose life the script renews after them, outlives them, where one server has both.
        commands = wire.links(links, session, ttl)
        new = record is not None and version == 0
        if listing is not None and new:
            commands.append(wire.enlist(session, listing, ttl))
        found_by = len(commands)  # what was settled stands without these
        commands += wire.commit_accounts(session, settlements, ttl)
        commands.append(wire.commit_session(session, record, version, settlements, ttl, listed=listing is not None))
        committed, unheard = await self._ask(commands, lambda replies: wire.committed(replies[-1], record), spared=found_by)
        if unheard and listing is not None and not new:
            await self._ask([wire.enlist(session, listing, ttl)], list, spared=1)
        return committed

    async def page(self, *, after: str = "", count: int = 50, tenant: str | None = None, search: str = "") -> Page:
        return await self._ask([wire.page(index.place_of(after), count, tenant, search)], lambda replies: wire.paged(replies[0]))

    async def peek(self, accounts: Sequence[Account]) -> list[Peeked | None]:
        if not accounts:
            return []
        return await self._ask([wire.peek(account) for account in accounts], lambda replies: list(map(wire.peeked, replies)))

    async def amend(self, account: Account, amendment: Amendment, ttl: float) -> Peeked | None:
        commands = [wire.amend(account, amendment, ttl), wire.peek(account)]
        return await self._ask(commands, lambda replies: wire.peeked(replies[1]) if replies[0] else None)

    async def usage(self, team: bytes, days: Sequence[str]) -> list[Usage]:
        if not days:
            return []
        replies = await self._ask([wire.usage(team, day) for day in days], list)
        return [row for day, reply in zip(days, replies, strict=True) for row in wire.usage_of(day, reply)]

    async def ping(self) -> None:
        try:
            await self._servers.ping()
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"the session store cannot be used: {type(error).__name__}") from error

    async def close(self) -> None:
        for task in self._undoing:
            task.cancel()
        await self._servers.close()

    async def _ask(self, commands: list[Command], read: Callable[[list[Any]], _Answer], *, spared: int = 0) -> _Answer:
        """Send commands in one round trip and read their replies; whatever goes wrong is `StoreUnavailable`. spared: see `Servers.ask`."""
        try:
            return read(await self._servers.ask(commands, spared))
        except (RedisError, OSError, ValueError, TypeError) as error:
            await self._servers.failed()
            raise StoreUnavailable(f"the session store cannot be used: {type(error).__name__}") from error


def _said(replies: list[Any]) -> list[tuple[bytes | None, wire.Said]]:
    return [wire.said_of(reply) for reply in replies]


def _opened(record: bytes | None, said: wire.Said, reservation: Reservation) -> Opened:
    return opened(wire.loaded(record, said), [wire.grant(said, reservation)])


def _secret(replies: list[Any]) -> bytes:
    secret = bytes(replies[-1])
    if len(secret) != 32:
        raise ValueError("the stored secret is not 32 bytes long")
    return secret


def _first(replies: list[Any]) -> bytes | None:
    return next((bytes(session) for session in replies[0] if session is not None), None)


def _first_of_several(replies: list[Any]) -> bytes | None:
    """As `_first`. One that cannot be had may be the one: those behind it must not be taken instead."""
    for reply in replies:
        if isinstance(reply, PartUnavailable):
            raise reply
        if reply is not None:
            return bytes(reply)
    return None


def _all(replies: list[Any]) -> bool:
    """Whether all say yes; each was asked, whoever else was away."""
    for reply in replies:
        if isinstance(reply, PartUnavailable):
            raise reply
    return all(replies)


def _servers_of(url: str, timeout: float, on_change: OnChange) -> Servers:
    patience = LONGEST * timeout  # to connect: how long a call may take says whoever calls, who knows when this process was busy
    if not names_several(url):
        options = Options(url, patience)
        return OneServer(options.connection, options.most)
    place = place_of(url)
    options = Options(place.server_url, patience)
    if place.layout is Layout.SENTINEL:
        return Sentinels(place, options)
    return Cluster(place, options, deadline=timeout, on_change=on_change)
