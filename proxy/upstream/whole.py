"""A request whose body is at hand, written to a pooled connection in one piece.

Nearly every request is one, and wants nothing of what a session does for each beside that: redirects, cookies, traces, a task that
writes the body. Connections, their pool, their time limits and the parser are aiohttp's all the same. What is used of it beyond its
documented interface: `BaseConnector.connect`, and `_get`, which takes one from the pool; of a connection's `protocol` the response
parameters, `read`, `read_timeout`, `should_close`, `start_timeout` and `writing_paused`.
"""

import asyncio
from functools import cached_property

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage, StreamWriter
from aiohttp.tracing import Trace


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
        if self._leaving is None or self._leaving.done():
            connection.release()
        else:  # the next request must not go out behind what nobody waits for
            self._leaving.cancel()
            connection.close()

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


class Pool(aiohttp.TCPConnector):
    """aiohttp's, but for connections on which something came while nobody waited: it would be taken for the next request's answer."""

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            if connection.protocol is not None and not connection.protocol.should_close:
                break
            connection.close()
        return connection


class Place(aiohttp.ClientRequest):
    """Where requests go. Connections are pooled by its key, which stays the same and is found at once where it is the same object."""

    @cached_property
    def connection_key(self) -> ConnectionKey:
        return super().connection_key


class Way:
    """To one place, over a connector's connections. limit: what a header line may measure in bytes."""

    def __init__(self, session: aiohttp.ClientSession, timeout: aiohttp.ClientTimeout, place: Place, limit: int) -> None:
        assert session.connector is not None
        self._connector = session.connector
        self._place = place
        self._timeout = timeout
        self._limit = limit

    async def send(self, data: bytes) -> Answer:
        """Sends a request, header and body, and returns when its answer's header is there. Raises what a session does."""
        try:
            connection = await self._connector.connect(self._place, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("Connection timeout") from error
        leaving: asyncio.Task[None] | None = None
        message: RawResponseMessage | None = None
        try:
            protocol = connection.protocol
            assert protocol is not None
            protocol.set_response_params(
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=self._timeout.sock_read,
                max_line_size=self._limit,
                max_field_size=self._limit,
            )
            transport = protocol.transport
            if transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            transport.write(data)
            if protocol.writing_paused:
                leaving = asyncio.create_task(_leave(protocol))
            else:
                protocol.start_timeout()
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await protocol.read()
        except BaseException as error:
            if leaving is not None:
                leaving.cancel()
            connection.close()
            if isinstance(error, HttpProcessingError):
                raise aiohttp.ClientPayloadError(error.message) from error
            if message is not None and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
                raise aiohttp.ServerDisconnectedError(message) from error  # tells that something had come: the server saw the request
            raise
        protocol.read_timeout = None
        return Answer(message, content, connection, leaving)


async def _leave(protocol: ResponseHandler) -> None:
    """Begins to count the silence when the request has left."""
    try:
        await StreamWriter(protocol, asyncio.get_running_loop()).drain()
    except OSError:  # the connection is lost, which whoever reads from it is told
        return
    protocol.start_timeout()
