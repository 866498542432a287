"""The shared store: Redis 7.0 or newer, or Valkey, over one set of connections; the only door to redis-py.

All keys of a session carry the session in braces, so that they share a cluster slot and each script touches one slot. Every decision
falls inside a script, by the server's clock. Every command may be sent twice: a lease is reserved and settled once, and a record
is compared before it is replaced. redis-py's connections are used without its client and pool, which cost more
processor time than the rest of the call; so each round trip is one write and as many reads as commands.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, RedisError, ResponseError

from proxy.errors import StoreUnavailable
from proxy.store.contract import (
    MAX_IN_FLIGHT,
    SETTLED_SECONDS,
    Ceiling,
    Committed,
    Kind,
    Ledger,
    Opened,
    RandomBytes,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Unit,
)

_SECRET = b"lastcall:secret"
_MAX_CONNECTIONS = 64
_MAX_SETTLED = 1024

_Field = bytes | str | int | float
_Command = tuple[_Field, ...]
_Answer = TypeVar("_Answer")

_pack: Callable[[_Command], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub takes tuples of one field only


@dataclass(frozen=True, slots=True)
class _Script:
    text: bytes
    sha: str

    @classmethod
    def load(cls, name: str) -> "_Script":
        folder = Path(__file__).parent / "lua"
        text = (folder / "ledger.lua").read_bytes() + (folder / name).read_bytes()
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


_OPEN = _Script.load("open.lua")
_COMMIT = _Script.load("commit.lua")


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
        return await self._ask([(b"MGET", *map(_link_key, links))], _first)

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        keys = _ledger_keys(session)[:3]
        wanted = reservation
        arguments: _Command = (
            _milliseconds(ttl),
            wanted.lease,
            wanted.tag,
            wanted.steps,
            wanted.body_bytes,
            wanted.input_bound,
            wanted.attached,
            wanted.output,
            wanted.modest,
            wanted.floor,
            wanted.input_price,
            wanted.output_price,
            wanted.expires_in,
            _text_of(wanted.ceilings),
            _optional(wanted.deadline),
            _text_of(wanted.tighten),
            _optional(wanted.tighten_deadline),
            MAX_IN_FLIGHT,
        )
        command: _Command = (b"EVALSHA", _OPEN.sha, len(keys), *keys, *arguments)
        return await self._ask([command], lambda replies: _opened(replies[0], wanted.ceilings))

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
    ) -> Committed:
        keys = _ledger_keys(session)
        life = _milliseconds(ttl)
        replace: _Command = (0, version, b"") if record is None else (1, version, record)
        arguments: list[_Field] = [life, *replace, SETTLED_SECONDS, _MAX_SETTLED]
        for call in settlements:
            arguments += (call.lease, call.steps, call.input_tokens, call.output_tokens, call.cost, call.body_bytes, "|".join(call.windows))
        # Links first: so the session, whose life the script renews after them, outlives them.
        commands: list[_Command] = [(b"SET", _link_key(link), session, b"PX", life) for link in links]
        commands.append((b"EVALSHA", _COMMIT.sha, len(keys), *keys, *arguments))
        committed = await self._ask(commands, _committed)
        return committed if committed.conflict else Committed(False, record, committed.version)

    async def ping(self) -> None:
        await self._ask([(b"PING",)], lambda replies: None)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _ask(self, commands: list[_Command], read: Callable[[list[Any]], _Answer]) -> _Answer:
        """Send commands in one round trip and read their replies; whatever goes wrong is `StoreUnavailable`."""
        try:
            replies = await self._exchange(commands)
            if isinstance(replies[-1], NoScriptError):
                replies[-1:] = await self._exchange([_in_full(commands[-1])])
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return read(replies)
        except (RedisError, OSError, ValueError, TypeError) as error:
            await self.close()  # The other connections may lead to the same dead or demoted server.
            raise StoreUnavailable(f"the session store cannot be used: {type(error).__name__}") from error

    async def _exchange(self, commands: list[_Command]) -> list[Any]:
        async with self._slots:
            try:
                return await self._attempt(commands)
            except ConnectionLost:
                await self.close()
                return await self._attempt(commands)  # A server that was restarted meanwhile answers on a new connection.

    async def _attempt(self, commands: list[_Command]) -> list[Any]:
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


def _in_full(command: _Command) -> _Command:
    """The same call of a script with its text in place of its hash, for a server that does not know it (yet, or any more)."""
    script = _OPEN if command[1] == _OPEN.sha else _COMMIT
    return (b"EVAL", script.text, *command[2:])


def _ledger_keys(session: bytes) -> tuple[str, str, str, str]:
    slot = f"lastcall:{{{session.hex()}}}"
    return f"{slot}:ledger", f"{slot}:leases", f"{slot}:holds", f"{slot}:settled"


def _link_key(link: bytes) -> str:
    return f"lastcall:link:{link.hex()}"


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def _optional(limit: float | None) -> _Field:
    return b"" if limit is None else limit


def _text_of(ceilings: tuple[Ceiling, ...]) -> str:
    return "".join([f"{one.unit}|{one.limit}|{'' if one.until is None else one.until}|{one.window};" for one in ceilings])


def _secret(replies: list[Any]) -> bytes:
    secret = bytes(replies[-1])
    if len(secret) != 32:
        raise ValueError("the stored secret is not 32 bytes long")
    return secret


def _first(replies: list[Any]) -> bytes | None:
    return next((bytes(session) for session in replies[0] if session is not None), None)


def _opened(reply: list[Any], asked: tuple[Ceiling, ...]) -> Opened:
    version, record, now, started, counters, deadline, refused, last, step, output, standings, tags = reply
    steps, input_tokens, output_tokens, cost, held_steps, held_input, held_output, held_cost = counters
    began, by = float(now), None if deadline is None else float(deadline)
    ledger = Ledger(steps, input_tokens, output_tokens, cost, held_steps, held_input + held_output, held_cost, float(started))
    told = tuple([_standing(one, asked) for one in standings])
    return Opened(
        record,
        version,
        began,
        ledger,
        told,
        by,
        None if refused is None else _refusal(refused, told, by, max(began - ledger.started_at, 0)),
        step,
        output,
        None if last is None else told[last - 1],
        tuple(map(int, tags)),
    )


def _standing(reply: list[Any], asked: tuple[Ceiling, ...]) -> Standing:
    place, unit, limit, until, window, spent, held = reply
    if place and asked[place - 1].limit == limit:
        return Standing(asked[place - 1], spent, held)
    return Standing(Ceiling(Unit(unit.decode()), limit, window.decode(), float(until) if until else None), spent, held)


def _refusal(place: int, standings: tuple[Standing, ...], deadline: float | None, elapsed: float) -> Refusal:
    if place == 0:
        return Refusal(Kind.DEADLINE, deadline or 0.0, elapsed)
    standing = standings[place - 1]
    return Refusal(Kind(standing.ceiling.unit), standing.ceiling.limit, standing.spent, standing.reserved, standing.ceiling)


def _committed(replies: list[Any]) -> Committed:
    conflict, version, record = replies[-1]
    return Committed(conflict == 1, record, version)
