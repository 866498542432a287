"""A request whose body is at hand, written to a pooled connection in one piece.

Nearly every request is one, and wants nothing of what a session does for each beside that: redirects, cookies, traces, a task that
writes the body. Connections are aiohttp's all the same, and so is the parser of answers that do not come in one piece. What is used of it
beyond its documented interface: of a connector `connect`, the factory of its connections, and `_get`, `_release`, `_acquired` and
`_close`, which are its pool; of a connection's `protocol` its `_parser`, and what `Line` and `Way` read and call.
"""

import asyncio
import math
import ssl
from collections.abc import Awaitable
from functools import cached_property, partial
from typing import cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection, SocketFactoryType
from aiohttp.http import HttpProcessingError, RawResponseMessage, StreamWriter
from aiohttp.tracing import Trace

from proxy.upstream.arrived import Forms, Whole
from proxy.waits import Waits

FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_STALE_WITHIN = 2.0
_TOGETHER = 64 * 1024  # bytes that a transport takes without asking to wait


class Answer:
    """An answer whose header has come: of `aiohttp.ClientResponse` what there is a use for, by the same names.

    connection: None once it is given back, at the answer's end. leaving: waits until the request is on its way, where it has not left at
    once.
    """

    __slots__ = ("_leaving", "connection", "content", "headers", "raw_headers", "reason", "status")

    def __init__(
        self,
        message: RawResponseMessage,
        content: aiohttp.StreamReader,
        connection: Connection,
        leaving: "asyncio.Task[None] | None",
    ) -> None:
        self.status: int = message.code
        self.reason: str | None = message.reason
        self.headers = message.headers
        self.raw_headers = message.raw_headers
        self.content = content
        self.connection: Connection | None = connection
        self._leaving = leaving
        content.on_eof(self._ended)

    @property
    def closed(self) -> bool:
        return self.connection is None

    def _ended(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        _end(connection, self._leaving)

    def close(self) -> None:
        """Ends an answer that is not at its end: whoever waits for more of it is told."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
        if self._leaving is not None:
            self._leaving.cancel()
        connection.close()


def _end(connection: Connection, leaving: "asyncio.Task[None] | None") -> None:
    """Gives back the connection of an answer that is at its end."""
    if leaving is None or leaving.done():
        connection.release()
    else:  # the next request must not go out behind what nobody waits for
        leaving.cancel()
        connection.close()


def check(answer: "Answer | aiohttp.ClientResponse") -> None:
    """Ends an answer that is none, with `ClientPayloadError`.

    101 was never asked for: `Upgrade` is not passed on. What is above 599 is no status (RFC 9110 section 15); no server sends one on.
    """
    if not 200 <= answer.status <= 599:
        answer.close()
        raise aiohttp.ClientPayloadError


def is_stale(error: Exception, started: float) -> bool:
    """Whether the server had most likely hung up on a reused connection before it saw the request, which can then be repeated.

    started: when the request was, on the loop's clock. RFC 9110 section 9.2.2 leaves a POST unrepeated unless the client can tell that it
    was not applied. Nobody can for certain; a request sent twice costs tokens at worst, and a 502 makes clients send it twice anyhow. So
    it is repeated once, only with a body that is still held, only when no byte of the answer came, and only within two seconds: a closed
    connection shows in one round trip, while a server that dies of its work takes longer. (aiohttp does the like by itself for GET.)
    """
    if asyncio.get_running_loop().time() - started > _STALE_WITHIN:
        return False
    match error:
        case aiohttp.ClientConnectorError():
            return False
        case aiohttp.ServerDisconnectedError():
            return isinstance(error.message, str)  # else: the part of a header that did come
        case _:  # a reset hides what came before it
            return isinstance(error, aiohttp.ClientOSError | ConnectionError)


_parsed = ResponseHandler.data_received


class Line(ResponseHandler):
    """A connection. The answer to what a `Way` sent over it is handed over without a parser where it comes in one piece.

    Any other one's first bytes set up aiohttp's parser, which has the connection to itself from there on, as under a session.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, forms: Forms, silence: float, limit: int) -> None:
        """silence: seconds of it that are allowed within a header; limit: what a line of that may measure in bytes."""
        super().__init__(loop)
        self._forms = forms
        self._silence = silence
        self._limit = limit
        self.awaits = False  # an answer of which nothing has come
        self._until = math.inf
        self._overdue: asyncio.TimerHandle | None = None
        self._first: asyncio.Future[Whole | None] | None = None

    def expect(self, until: float) -> "asyncio.Future[Whole | None]":
        """An answer is to come next: all of it, or None as soon as there is something to `read`, be it a failure.

        until: when its header must be there, on the loop's clock; looked at only where that takes long.
        """
        self.awaits = True
        self._until = until
        self._first = first = self._loop.create_future()
        if self.exception() is not None:  # it has failed since it was taken
            self._begins(None)
        return first

    def leave(self, data: bytes) -> None:
        """Writes a request, if nobody has given it up. What answers before it is asked is done with."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.awaits:
            self.transport.write(data)
        else:  # the answer to this would be taken for that of the next request
            self.transport.close()

    def _begins(self, whole: Whole | None) -> None:
        first, self._first = self._first, None
        if first is not None and not first.done():
            first.set_result(whole)

    def watch(self) -> None:
        """It takes long: in more than one step."""
        if self._overdue is None:
            self._overdue = self._loop.call_at(self._until, self.set_exception, TimeoutError())

    def relax(self) -> None:
        """It is there."""
        self.awaits = False
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def data_received(self, data: bytes) -> None:
        if self.awaits:
            self.awaits = False
            whole = None if self.writing_paused else self._forms.taken_apart(data)
            self._begins(whole)
            if whole is not None:
                return
            self.set_response_params(
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=self._silence,
                max_line_size=self._limit,
                max_field_size=self._limit,
            )
            _parsed(self, data)
            if not self._buffer:
                self.watch()
            return
        _parsed(self, data)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        super().set_exception(exc, *([] if exc_cause is None else [exc_cause]))
        self._begins(None)

    def fall_silent(self) -> None:
        """Nothing has come for as long as is allowed. What has begun to come is watched by aiohttp."""
        if self.awaits:
            self.set_exception(aiohttp.SocketTimeoutError("Timeout on reading data from socket"))


class Pool(aiohttp.TCPConnector):
    """aiohttp's, for connections that all lead to one place, which are found and kept by what that takes and no more.

    One on which something came while nobody waited is not used again: it would be taken for the next request's answer.
    """

    def __init__(self, keep_alive: float, tls: ssl.SSLContext, sockets: SocketFactoryType, silence: float, limit: int) -> None:
        """keep_alive: seconds for which an idle connection is kept. silence, limit: as in `Line`."""
        super().__init__(limit=0, ssl=tls, socket_factory=sockets)
        self._factory = cast("partial[ResponseHandler]", partial(Line, self._loop, Forms(), silence, limit))
        self._kept: Waits[Line] = Waits(keep_alive, lambda line, _: line.close())

    def take(self) -> Line | None:
        """The connection that has been idle for longest; None where none is. It is `held`, or given back, by whoever takes it."""
        while (line := self._kept.take()) is not None:
            if line.is_connected() and not line.should_close:
                self._acquired.add(line)
                return line
            line.close()
        return None

    @property
    def is_busy(self) -> bool:
        """Whether several requests are under way."""
        return len(self._acquired) > 1

    def held(self, line: Line, key: ConnectionKey) -> Connection:
        """One that was taken, as aiohttp has it: given back by what becomes of that."""
        return Connection(self, key, line, self._loop)

    def give_back(self, line: Line) -> None:
        """One on which an answer came to its end, to be taken again: whatever else comes on it is seen then."""
        if self._closed:
            return
        self._acquired.discard(line)
        line._parser = None  # else it would keep the beginning of what comes now to itself
        self._kept.begin(line, self._loop)

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        line = self.take()
        return None if line is None else self.held(line, key)

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        if self._closed or should_close or protocol.should_close:
            super()._release(key, protocol, should_close=True)
        else:
            self.give_back(cast(Line, protocol))

    def drop(self) -> None:
        """Leaves those that are idle: whatever ended one of them may have ended all."""
        while (line := self._kept.take()) is not None:
            line.close()

    def _close(self, *, abort_ssl: bool = False) -> list[Awaitable[object]]:
        while (line := self._kept.take()) is not None:
            self._acquired.add(line)
        return super()._close(abort_ssl=abort_ssl)


class Place(aiohttp.ClientRequest):
    """Where requests go. Connections are pooled by its key, which stays the same and is found at once where it is the same object."""

    @cached_property
    def connection_key(self) -> ConnectionKey:
        return super().connection_key


class Way:
    """To one place, over a pool's connections. patience: seconds from when a request begins to leave until its answer's header is there."""

    def __init__(self, pool: Pool, timeout: aiohttp.ClientTimeout, place: Place, patience: float) -> None:
        self._pool = pool
        self._place = place
        self._timeout = timeout
        self._patience = patience
        self._silent: Waits[Line] = Waits(timeout.sock_read or math.inf, lambda line, _: line.fall_silent())

    async def send(self, data: bytes) -> Whole | Answer:
        """Sends a request, header and body, and returns when its answer's header is there. Raises what a session does.

        Goes out once more where the server had most likely hung up on a connection before it saw the request (`is_stale`).
        """
        loop = asyncio.get_running_loop()
        line = self._pool.take()
        if line is not None:
            started = loop.time()
            try:
                return await self._over(line, None, data, loop)
            except FAILURES as error:
                if not is_stale(error, started):
                    raise
                self._pool.drop()
        try:
            connection = await self._pool.connect(self._place, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("Connection timeout") from error
        return await self._over(cast(Line, connection.protocol), connection, data, loop)

    async def _over(self, line: Line, connection: Connection | None, data: bytes, loop: asyncio.AbstractEventLoop) -> Whole | Answer:
        """connection: aiohttp's of a line that was opened for this; one that was taken gets it with what is more than a whole answer."""
        leaving: asyncio.Task[None] | None = None
        message: RawResponseMessage | None = None
        try:
            transport = line.transport
            if transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            first = line.expect(loop.time() + self._patience)
            leaving = self._write(line, transport, data, loop)
            whole = await first
            if whole is not None:
                if connection is None and leaving is None:
                    self._pool.give_back(line)
                else:
                    _end(connection or self._held(line), leaving)
                return whole
            message, content = await line.read()
            while 100 <= message.code < 200 and message.code != 101:
                line.watch()
                message, content = await line.read()
        except BaseException as error:
            if leaving is not None:
                leaving.cancel()
            (connection or self._held(line)).close()
            if isinstance(error, HttpProcessingError):
                raise aiohttp.ClientPayloadError(error.message) from error
            if message is not None and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
                raise aiohttp.ServerDisconnectedError(message) from error  # tells that something had come: the server saw the request
            raise
        finally:
            self._silent.end(line)
            line.relax()
        line.read_timeout = None
        begun = Answer(message, content, connection or self._held(line), leaving)
        check(begun)
        return begun

    def _write(self, line: Line, transport: asyncio.Transport, data: bytes, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None] | None":
        """Sends a request on its way. What waits until it has left, where that takes longer."""
        if len(data) <= _TOGETHER and self._pool.is_busy:  # which is not held up
            loop.call_soon(line.leave, data)  # with the others of this turn, for the reason that `GatheringTransport` gives
        else:
            transport.write(data)
            if line.writing_paused:
                line.watch()
                return asyncio.create_task(self._leave(line))
        self._silent.begin(line, loop)
        return None

    def _held(self, line: Line) -> Connection:
        return self._pool.held(line, self._place.connection_key)

    async def _leave(self, line: Line) -> None:
        """Begins to count the silence when the request has left."""
        try:
            await StreamWriter(line, asyncio.get_running_loop()).drain()
        except OSError:  # the connection is lost, which whoever reads from it is told
            return
        if line.awaits:
            self._silent.begin(line)
