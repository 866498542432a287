"""The connections to one server. A round trip is one write, and one wait for all of its replies.

redis-py connects, with what that takes of TLS, passwords and databases. Its client, its pool and its streams are left aside, which cost
more processor time than the rest of the call.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, NoScriptError, ResponseError

from proxy.store.command import Command, said
from proxy.waits import Turns

_MORE = object()  # what hiredis says while a reply has not come whole


class Line(asyncio.Protocol):
    """A connection that redis-py has made, with nothing of its own to say any more. For one exchange at a time.

    It closes when it hears what nobody waits for, since that must not answer the next. free: told when it has its replies.
    """

    def __init__(self, connection: AbstractConnection, free: Callable[["Line"], object]) -> None:
        assert connection._writer is not None
        self._writer = connection._writer  # redis-py has no public way to it
        connection._writer = connection._reader = None  # so that it is no longer the other's to close
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        self._parser = hiredis.Reader(InvalidResponse, DefaultParser.parse_error, notEnoughData=_MORE)
        self._loop = asyncio.get_running_loop()
        self._free = free
        self._waiting: asyncio.Future[list[Any]] | None = None
        self._replies: list[Any] = []
        self._most = 0
        self.is_closing = self._transport.is_closing

    def exchange(self, commands: bytes, count: int) -> "asyncio.Future[list[Any]]":
        """So many replies, errors among them as values. Whoever no longer waits for them has to say so."""
        self._replies = []
        self._most = count
        self._waiting = waiting = self._loop.create_future()
        self._transport.write(commands)
        return waiting

    def give_up(self) -> None:
        """Closes it where replies are yet to come, which would answer the next caller. Once they are there, it may be the next one's."""
        if self._waiting is None or self._waiting.cancelled():
            self.close()

    def close(self) -> None:
        self._writer.close()

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():
            self._transport.close()
            return
        parser, replies = self._parser, self._replies
        try:
            parser.feed(data)
            while len(replies) < self._most:
                reply = parser.gets()
                if reply is _MORE:
                    return
                replies.append(reply)
                if isinstance(reply, ConnectionLost):  # it is still loading its data, say
                    raise reply
        except (InvalidResponse, ConnectionLost) as error:
            self._transport.close()
            waiting.set_exception(error)
        else:
            if parser.has_data():
                self._transport.close()
            else:
                self._free(self)
            waiting.set_result(replies)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionLost(f"the connection was closed by the server: {type(error).__name__}"))


class Connections:
    """To one server. new: makes a connection, not yet connected. most: so many at once; whoever needs another one waits."""

    def __init__(self, new: Callable[[], AbstractConnection], most: int) -> None:
        self._new = new
        self._slots = Turns(most)
        self._idle: list[Line] = []
        self._retired = False

    async def exchange(self, commands: list[Command], *, strict: bool = False) -> list[Any]:
        """The replies, errors among them as values. Every command may be sent twice. Raises `RedisError` and `OSError`.

        strict: raises the first error that is among them.
        """
        slots, words, count = self._slots, b"".join([command.words for command in commands]), len(commands)
        if not slots.take_free():
            await slots.take()
        line = self._at_hand()
        try:
            replies = await (self._connect_and_exchange(words, count) if line is None else line.exchange(words, count))
        except ConnectionLost:
            self.drop()
            replies = await self._connect_and_exchange(words, count)  # A server that was restarted meanwhile answers on a new connection.
        except BaseException:
            if line is not None:
                line.give_up()
            raise
        finally:
            slots.give()
        for at, reply in enumerate(replies):
            if not isinstance(reply, ResponseError):
                continue
            if isinstance(reply, NoScriptError):  # from there on anew, since their order counts; what is done twice is done once
                replies[at:] = await self.exchange([command.in_full for command in commands[at:]], strict=strict)
                break
            if strict:
                raise reply
        return replies

    def drop(self) -> None:
        """Leave those that nobody uses now: whatever happened to one of them may have happened to all."""
        while self._idle:
            self._idle.pop().close()

    def retire(self) -> None:
        """Leave all, those in use as soon as they have their replies."""
        self._retired = True
        self.drop()

    def _at_hand(self) -> Line | None:
        """One that nobody uses."""
        line = self._idle.pop() if self._idle else None
        if line is not None and line.is_closing():  # those below it have been idle for longer
            self.drop()
            return None
        return line

    def _free(self, line: Line) -> None:
        if self._retired:
            line.close()
        else:
            self._idle.append(line)

    async def _connect_and_exchange(self, words: bytes, count: int) -> list[Any]:
        line = await self._connected()
        try:
            return await line.exchange(words, count)
        except BaseException:
            line.give_up()
            raise

    async def _connected(self) -> Line:
        connection = self._new()
        await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        if await connection.can_read():
            await connection.disconnect(nowait=True)
            raise ConnectionLost("closed by the server at once")
        return Line(connection, self._free)


class OneServer(Connections):
    """A store that is one server: see `Servers`."""

    several = False

    def ask(self, commands: list[Command], spared: int = 0) -> Coroutine[Any, Any, list[Any]]:
        return self.exchange(commands, strict=True)

    async def ping(self) -> None:
        await self.ask([said("PING")])

    async def failed(self) -> None:
        self.drop()

    async def close(self) -> None:
        self.drop()
