"""The shared store: Redis 7.0 or newer, or Valkey, over one set of connections; the only door to redis-py.

All keys of a ledger carry its key in braces, so that they share a cluster slot and each script touches one slot. Every decision
falls inside a script, by the server's clock. Every command may be sent twice: a lease is reserved and settled once, and a record
is compared before it is replaced. redis-py's connections are used without its client and pool, which cost more
processor time than the rest of the call; so each round trip is one write and as many reads as commands.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.errors import StoreUnavailable
from proxy.store import wire
from proxy.store.contract import (
    Account,
    Amendment,
    Committed,
    Listing,
    Opened,
    Page,
    Peeked,
    RandomBytes,
    Reservation,
    Settlement,
    Usage,
)
from proxy.store.grant import lowered, opened, tight, to_undo
from proxy.store.index import place_of
from proxy.store.wire import Command

_SECRET = b"lastcall:secret"
_MAX_CONNECTIONS = 64

_Answer = TypeVar("_Answer")

_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub takes tuples of one field only


class RedisStore:
    """A `Store` on a Redis server. Has no deadline of its own but for connecting: see `GuardedStore`.

    url: `redis://` or `rediss://` (TLS) as redis-py reads it; `?max_connections=` bounds the connections, 64 by default. Raises
    ValueError or TypeError when it cannot be read. connect_timeout: seconds.
    """

    def __init__(self, url: str, random_bytes: RandomBytes, *, connect_timeout: float) -> None:
        self._pool: ConnectionPool = ConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=connect_timeout,
        )
        self._new_connection()  # Tells now, not at the first call, whether the URL's options can be used.
        self._slots = asyncio.Semaphore(self._pool.max_connections)
        self._idle: list[AbstractConnection] = []
        self._secret = random_bytes(32)

    async def secret(self) -> bytes:
        # Offers what it knew before, so that replicas keep their fingerprints when a server comes back without its data.
        self._secret = await self._ask([(b"SET", _SECRET, self._secret, b"NX"), (b"GET", _SECRET)], _secret)
        return self._secret

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        """See `Store.find`. A link never outlives its session, so that whoever finds one needs no second look."""
        if not links:
            return None
        return await self._ask([(b"MGET", *map(wire.link_key, links))], _first)

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        accounts = reservation.accounts
        commands = [wire.open_session(session, reservation, ttl)]
        commands += [wire.open_account(session, account, reservation, ttl) for account in accounts]
        replies = await self._ask(commands, list)
        grants = [wire.grant(replies[0], reservation)]
        if accounts:
            grants += [wire.grant(reply, reservation, accounts[at], at) for at, reply in enumerate(replies[1:])]
            if again := tight(reservation, grants):
                less = lowered(reservation, grants[0])
                second = await self._ask([wire.open_account(session, accounts[at], less, ttl) for at in again], list)
                for at, reply in zip(again, second, strict=True):
                    grants[at + 1] = wire.grant(reply, less, accounts[at], at)
            if places := to_undo(grants):
                keys = [session, *(account.key for account in accounts)]
                await self._ask([wire.undo(keys[place], reservation.lease) for place in places], list)
        return opened(wire.loaded(replies[0]), grants)

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        commands = [wire.renew_session(session, lease, expires_in)]
        commands += [wire.renew_account(session, account, lease, expires_in) for account in accounts]
        return await self._ask(commands, all)

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
        life = wire.milliseconds(ttl)
        # Links first: so the session, whose life the script renews after them, outlives them.
        commands: list[Command] = [(b"SET", wire.link_key(link), session, b"PX", life) for link in links]
        commands += wire.commit_accounts(session, settlements, ttl)
        new = record is not None and version == 0
        if listing is not None and new:
            commands.append(wire.enlist(session, listing, ttl))
        commands.append(wire.commit_session(session, record, version, settlements, ttl, listed=listing is not None))
        committed, unheard = await self._ask(commands, lambda replies: wire.committed(replies[-1]))
        if unheard and listing is not None and not new:
            await self._ask([wire.enlist(session, listing, ttl)], list)
        return committed if committed.conflict else Committed(False, record, committed.version)

    async def page(self, *, after: str = "", count: int = 50, tenant: str | None = None, search: str = "") -> Page:
        return await self._ask([wire.page(place_of(after), count, tenant, search)], lambda replies: wire.paged(replies[0]))

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
        await self._ask([(b"PING",)], lambda replies: None)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _ask(self, commands: list[Command], read: Callable[[list[Any]], _Answer]) -> _Answer:
        """Send commands in one round trip and read their replies; whatever goes wrong is `StoreUnavailable`."""
        try:
            replies = await self._exchange(commands)
            known = next((at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)), len(replies))
            if known < len(replies):  # from there on anew, since their order counts; what is done twice is done once
                replies[known:] = await self._exchange([wire.in_full(command) for command in commands[known:]])
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return read(replies)
        except (RedisError, OSError, ValueError, TypeError) as error:
            await self.close()  # The other connections may lead to the same dead or demoted server.
            raise StoreUnavailable(f"the session store cannot be used: {type(error).__name__}") from error

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        async with self._slots:
            try:
                return await self._attempt(commands)
            except ConnectionLost:
                await self.close()
                return await self._attempt(commands)  # A server that was restarted meanwhile answers on a new connection.

    async def _attempt(self, commands: list[Command]) -> list[Any]:
        connection = await self._connection()
        try:
            await connection.send_packed_command(b"".join(map(_pack, commands)))
            replies = [await _reply(connection) for _ in commands]
        except BaseException:
            # Also on cancellation: the rest of the replies would answer the next caller.
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
        return replies

    async def _connection(self) -> AbstractConnection:
        """An idle connection that is still good, else a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected and not await connection.can_read():
                return connection
            await connection.disconnect(nowait=True)
        connection = self._new_connection()
        await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        return connection

    def _new_connection(self) -> AbstractConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        return connection


async def _reply(connection: AbstractConnection) -> Any:
    """One reply; an error the server replied is a value here, because other replies follow it."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _secret(replies: list[Any]) -> bytes:
    secret = bytes(replies[-1])
    if len(secret) != 32:
        raise ValueError("the stored secret is not 32 bytes long")
    return secret


def _first(replies: list[Any]) -> bytes | None:
    return next((bytes(session) for session in replies[0] if session is not None), None)
