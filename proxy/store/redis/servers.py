"""What a Redis store asks of the servers behind it, whatever their layout, and how their URL's options become connections."""

from collections.abc import Callable
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.addresses import Address
from proxy.store.command import Command

_MAX_CONNECTIONS = 64


class Servers(Protocol):
    """Where commands go."""

    @property
    def several(self) -> bool:
        """Whether a call may reach some of its keys and not others."""
        ...

    async def ask(self, commands: list[Command], spared: int = 0) -> list[Any]:
        """The replies, none of them an error. Commands with keys of one slot are carried out in their order.

        The first `spared` may fail without the others: the reply is then a `PartUnavailable`. Raises it where one of the others needs
        a server that is away; none was sent, if that was known before. Raises `RedisError` and `OSError` where all are away.
        """
        ...

    async def ping(self) -> None:
        """Raises as `ask` does, where nobody answers."""
        ...

    async def failed(self) -> None:
        """What was asked last led to something strange: do not rely on what is known."""
        ...

    async def close(self) -> None: ...


class Options:
    """What a URL says of every connection. Raises ValueError or TypeError when redis-py cannot read or use it.

    url: `redis://` or `rediss://` (TLS) as redis-py reads it; `?max_connections=` bounds those to one server, 64 by default.
    connect_timeout: seconds.
    """

    def __init__(self, url: str, connect_timeout: float) -> None:
        pool: ConnectionPool = ConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=connect_timeout,
        )
        self.most: int = pool.max_connections
        self.connect_timeout = connect_timeout
        self._pool = pool
        self.connection()  # Tells now, not at the first call, whether the options can be used.

    def connection(self) -> AbstractConnection:
        """To the server that the URL names."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        return connection

    def to(self, address: Address) -> Callable[[], AbstractConnection]:
        """Makes connections to another server."""
        kind: Callable[..., AbstractConnection] = self._pool.connection_class
        host, port = address
        return lambda: kind(**(self._pool.connection_kwargs | {"host": host, "port": port}))

    @property
    def tls(self) -> dict[str, Any]:
        """Those of TLS, as the clients of redis-py take them."""
        return {key: value for key, value in self._pool.connection_kwargs.items() if key.startswith("ssl_")}
