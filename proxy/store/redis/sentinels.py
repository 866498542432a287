"""One primary, wherever the sentinels say that it is.

They are asked all at once, so that one that hangs costs nothing: at the first call; when the primary is lost, keeps silent or refuses to
write; and now and then beside the calls, since a primary that was cut off from its sentinels goes on answering those who can reach it.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from proxy.addresses import Address, Place
from proxy.store.command import Command, said
from proxy.store.redis.connections import Connections
from proxy.store.redis.servers import Options

_LOOK_SECONDS = 5.0

_Answer = TypeVar("_Answer")


class Sentinels:
    """The primary of `place`: see `Servers`. options: of connections to it."""

    several = False

    def __init__(self, place: Place, options: Options) -> None:
        self._master = place.master
        self._options = options
        own = {"ssl": True, **options.tls} if place.tls else {}
        own |= {"username": place.username, "password": place.password, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
        own |= {"socket_connect_timeout": options.connect_timeout, "socket_timeout": options.connect_timeout}
        self._sentinels = [Sentinel([host], sentinel_kwargs=own) for host in place.hosts]  # type: ignore[no-untyped-call]
        self._address: Address | None = None
        self._primary: Connections | None = None
        self._in_doubt = False
        self._looked_at = 0.0
        self._looking: asyncio.Task[Connections] | None = None

    async def ask(self, commands: list[Command], spared: int = 0) -> list[Any]:
        primary = self._primary
        if primary is None or self._in_doubt:
            primary = await self._look()
        elif asyncio.get_running_loop().time() - self._looked_at > _LOOK_SECONDS:
            self._begin_look()
        try:
            return await primary.exchange(commands, strict=True)
        except ConnectionLost:
            successor = await self._look()
            if successor is primary:
                raise
            return await successor.exchange(commands, strict=True)
        except asyncio.CancelledError:
            self._in_doubt = True  # by whoever gave up waiting for the answer
            raise

    async def ping(self) -> None:
        await self.ask([said("PING")])

    async def failed(self) -> None:
        self._in_doubt = True
        if self._primary is not None:
            self._primary.drop()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._primary is not None:
            self._primary.drop()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    async def _look(self) -> Connections:
        """The primary, as it is now; all who ask meanwhile share the answer."""
        return await asyncio.shield(self._begin_look())

    def _begin_look(self) -> "asyncio.Task[Connections]":
        if self._looking is None or self._looking.done():
            self._looked_at = asyncio.get_running_loop().time()
            self._looking = asyncio.create_task(self._find())
            self._looking.add_done_callback(_heard)
        return self._looking

    async def _find(self) -> Connections:
        address = await first([sentinel.discover_master(self._master) for sentinel in self._sentinels])
        self._in_doubt = False
        if self._primary is not None and address == self._address:
            return self._primary
        before, self._address = self._primary, address
        self._primary = Connections(self._options.to(address), self._options.most)
        if before is not None:
            before.retire()
        return self._primary


async def first(calls: Sequence[Coroutine[Any, Any, _Answer]]) -> _Answer:
    """The answer of whoever answers first; raises the last failure where none does."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    failure: Exception = ConnectionLost("nobody to ask")
    try:
        for done in asyncio.as_completed(tasks):
            try:
                return await done
            except (RedisError, OSError) as error:
                failure = error
        raise failure
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _heard(task: "asyncio.Task[Connections]") -> None:
    """A look beside the calls may fail: the next one will tell."""
    if not task.cancelled():
        task.exception()
