"""The connections to one server. A round trip is one write and as many reads as commands.

redis-py's connections are used without its client and pool, which cost more processor time than the rest of the call.
"""

from collections.abc import Callable
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, ResponseError

from proxy.store import wire
from proxy.store.wire import Command
from proxy.waits import Turns

_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub takes tuples of one field only


class Connections:
    """To one server. new: makes a connection, not yet connected. most: so many at once; whoever needs another one waits."""

    def __init__(self, new: Callable[[], AbstractConnection], most: int) -> None:
        self._new = new
        self._slots = Turns(most)
        self._idle: list[AbstractConnection] = []
        self._retired = False

    async def exchange(self, commands: list[Command]) -> list[Any]:
        """The replies, errors among them as values. Every command may be sent twice. Raises `RedisError` and `OSError`."""
        replies = await self._sent(commands)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):  # from there on anew, since their order counts; what is done twice is done once
                replies[at:] = await self._sent([wire.in_full(command) for command in commands[at:]])
                break
        return replies

    async def drop(self) -> None:
        """Leave those that nobody uses now: whatever happened to one of them may have happened to all."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def retire(self) -> None:
        """Leave all, those in use as soon as they have their replies."""
        self._retired = True
        await self.drop()

    async def _sent(self, commands: list[Command]) -> list[Any]:
        await self._slots.take()
        try:
            return await self._attempt(commands)
        except ConnectionLost:
            await self.drop()
            return await self._attempt(commands)  # A server that was restarted meanwhile answers on a new connection.
        finally:
            self._slots.give()

    async def _attempt(self, commands: list[Command]) -> list[Any]:
        connection = await self._connection()
        try:
            await connection.send_packed_command(b"".join(map(_pack, commands)))
            replies = [await _reply(connection) for _ in commands]
        except BaseException:
            # Also on cancellation: the rest of the replies would answer the next caller.
            await connection.disconnect(nowait=True)
            raise
        if self._retired:
            await connection.disconnect(nowait=True)
        else:
            self._idle.append(connection)
        return replies

    async def _connection(self) -> AbstractConnection:
        """An idle connection that is still good, else a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected and not await connection.can_read():
                return connection
            await connection.disconnect(nowait=True)
        connection = self._new()
        await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        return connection


class OneServer(Connections):
    """A store that is one server: see `Servers`."""

    several = False

    async def ask(self, commands: list[Command], spared: int = 0) -> list[Any]:
        return good(await self.exchange(commands))

    async def ping(self) -> None:
        await self.ask([(b"PING",)])

    async def failed(self) -> None:
        await self.drop()

    async def close(self) -> None:
        await self.drop()


def good(replies: list[Any]) -> list[Any]:
    """The replies, if no error is among them; else raises the first."""
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    return replies


async def _reply(connection: AbstractConnection) -> Any:
    """One reply; an error the server replied is a value here, because other replies follow it."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
