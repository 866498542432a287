"""A cluster: which server has a key's slot, the servers asked side by side, and what happens when one is lost or slots move.

Each server has a deadline and a breaker of its own, so that one that is away costs the sessions on it one deadline and the others nothing.
redis-py's cluster client has neither: it looks for the slots anew, for all, whenever one server fails.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, MovedError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as ConnectionLost

from proxy.addresses import Address, Place
from proxy.events import StoreChanged
from proxy.store.breaker import Breaker
from proxy.store.command import Command, said
from proxy.store.contract import OnChange, PartUnavailable
from proxy.store.deadline import Deadline
from proxy.store.redis.connections import Connections
from proxy.store.redis.servers import Options

_RETRY_SECONDS = 1.0  # between two tries of a server that is away
_LOOK_SECONDS = 1.0  # between two looks at who has which slots, while that is in doubt
_LOOK_DEADLINES = 4  # how long each may take, beside the calls: connecting to all is slow, and the next call needs what comes of it
_MOST_ASKED = 5  # servers, at each
_MOST_HOPS = 5  # of a command whose slot moves
_HOP_SECONDS = 0.005  # before a command is sent again whose keys are half way
_ASKING = said("ASKING")

_Ranges = tuple[tuple[int, int, Address], ...]


class _Node:
    """One server of the cluster. deadline: seconds for one round trip."""

    def __init__(self, address: Address, options: Options, deadline: float, breaker: Breaker, on_change: OnChange) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self.connections = Connections(options.to(address), options.most)
        self.breaker = breaker
        self._deadline = Deadline(deadline)
        self._on_change = on_change

    async def ask(self, commands: list[Command]) -> list[Any]:
        """The replies; errors among them only where slots move. Raises `PartUnavailable`."""
        probe = self.breaker.cause is not None
        if probe and not self.breaker.begin_probe():
            raise self.away()
        try:
            replies = await self._deadline.kept(self.connections.exchange(commands))
            for reply in replies:
                if isinstance(reply, ResponseError) and not isinstance(reply, AskError | TryAgainError):
                    raise reply
        except (RedisError, OSError) as error:
            self.connections.drop()
            if self.breaker.failed(type(error).__name__):
                self._on_change(StoreChanged(up=False, cause=type(error).__name__, node=self.name))
            raise self.away() from error
        finally:
            if probe:
                self.breaker.end_probe()
        self.forgive()
        return replies

    def forgive(self) -> None:
        """It answers, or nothing depends on it any more."""
        if self.breaker.succeeded():
            self._on_change(StoreChanged(up=True, node=self.name))

    def away(self, *, asked: bool = True) -> PartUnavailable:
        often = f"it is tried again every {self.breaker.retry_after:g} s"
        return PartUnavailable(f"a part of the session store is away ({self.breaker.cause}); {often}", asked=asked)


class Cluster:
    """The cluster of `place`: see `Servers`. options: of connections to each server. deadline: seconds for a round trip to one.
    on_change: told of each server that goes away or comes back."""

    several = True

    def __init__(self, place: Place, options: Options, *, deadline: float, on_change: OnChange) -> None:
        self._options = options
        self._deadline = deadline
        self._on_change = on_change
        self._seeds = frozenset(place.hosts)
        self._nodes: dict[Address, _Node] = {}
        for address in place.hosts:
            self._node(address)
        self._owners: list[_Node | None] = []
        self._looked_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, commands: list[Command], spared: int = 0) -> list[Any]:
        if not self._owners:
            await self._look()
        replies: list[Any] = [None] * len(commands)
        slots = [key_slot(command.key) for command in commands]
        left = list(range(len(commands)))
        redirected: dict[int, _Node] = {}
        for hop in range(_MOST_HOPS):
            groups = self._grouped(left, slots, redirected, spared, replies, again=bool(hop))
            visits = [self._fill(replies, commands, places, node, asking) for (node, asking), places in groups.items()]
            await (visits[0] if len(visits) == 1 else asyncio.gather(*visits))
            for place in left[::-1]:
                if place >= spared and isinstance(replies[place], PartUnavailable):
                    self._doubt()
                    raise replies[place]
            left = await self._left(left, slots, replies, redirected)
            if not left:
                return replies
        raise PartUnavailable("a part of the session store is moving to another server")

    async def ping(self) -> None:
        """Whether any of them answers."""
        await self._look()

    async def failed(self) -> None:
        self._doubt()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for node in self._nodes.values():
            node.connections.drop()

    # Who is asked

    def _grouped(
        self, left: Sequence[int], slots: Sequence[int], redirected: dict[int, _Node], spared: int, replies: list[Any], *, again: bool
    ) -> dict[tuple[_Node, bool], list[int]]:
        """The places of commands by the server that is asked, and whether as one that the slot is still moving to.

        Raises `PartUnavailable` before anything is sent where a server that cannot be spared is known to be away.
        """
        groups: dict[tuple[_Node, bool], list[int]] = {}
        for place in left:
            node = redirected.get(place) or self._owners[slots[place]]
            if node is not None and not node.breaker.refuses:
                groups.setdefault((node, place in redirected), []).append(place)
                continue
            self._doubt()
            replies[place] = (
                PartUnavailable("nobody has a part of the session store", asked=again) if node is None else node.away(asked=again)
            )
            if place >= spared:
                raise replies[place]
        return groups

    async def _fill(self, replies: list[Any], commands: Sequence[Command], places: Sequence[int], node: _Node, asking: bool) -> None:
        wanted = [commands[place] for place in places]
        try:
            if asking:
                told = await node.ask([one for command in wanted for one in (_ASKING, command.in_full)])
                answers = told[1::2]
            else:
                answers = await node.ask(wanted)
        except PartUnavailable as error:
            answers = [error] * len(places)
        for place, answer in zip(places, answers, strict=True):
            replies[place] = answer

    async def _left(self, asked: Sequence[int], slots: Sequence[int], replies: Sequence[Any], redirected: dict[int, _Node]) -> list[int]:
        """What has to be asked again because its slot moves, with all that came behind it for the same slot."""
        moving: set[int] = set()
        left: list[int] = []
        half_way = False
        redirected.clear()
        for place in asked:
            reply, slot = replies[place], slots[place]
            if isinstance(reply, AskError):
                owner = self._owners[slot]
                successor = self._node((reply.host or (owner.address[0] if owner else ""), reply.port))  # no host: the one that says so
                if isinstance(reply, MovedError):
                    self._owners[slot] = successor
                    self._doubt()
                else:
                    redirected[place] = successor
            half_way = half_way or isinstance(reply, TryAgainError)
            if slot in moving or isinstance(reply, AskError | TryAgainError):
                moving.add(slot)
                left.append(place)
        if half_way:
            await asyncio.sleep(_HOP_SECONDS)
        return left

    # Who has which slots

    def _node(self, address: Address) -> _Node:
        if address not in self._nodes:
            breaker = Breaker(_now, _RETRY_SECONDS)
            self._nodes[address] = _Node(address, self._options, self._deadline, breaker, self._on_change)
        return self._nodes[address]

    def _doubt(self) -> None:
        """Look soon, beside the calls."""
        if _now() - self._looked_at >= _LOOK_SECONDS:
            self._begin_look()

    async def _look(self) -> None:
        await asyncio.shield(self._begin_look())

    def _begin_look(self) -> "asyncio.Task[None]":
        if self._looking is None or self._looking.done():
            self._looked_at = _now()
            self._looking = asyncio.create_task(self._learn())
            self._looking.add_done_callback(_heard)
        return self._looking

    async def _learn(self) -> None:
        """Asks several, those that were not away first, until most agree: one that was cut off from the others does not know better."""
        asked = sorted(self._nodes.values(), key=lambda node: node.breaker.cause is not None)[:_MOST_ASKED]
        tasks = [asyncio.ensure_future(self._slots_by(node)) for node in asked]
        pending = set(tasks)
        said: Counter[_Ranges] = Counter()
        failure: Exception = TimeoutError("nobody told the slots")
        until = _now() + _LOOK_DEADLINES * self._deadline
        try:
            while pending and not (said and 2 * said.most_common(1)[0][1] > len(tasks)):
                done, pending = await asyncio.wait(pending, timeout=until - _now(), return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    try:
                        said[task.result()] += 1
                        until = min(until, _now() + self._deadline / 4)  # for the others to say the same
                    except (RedisError, OSError) as error:
                        failure = error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not said:
            raise failure
        await self._take(said.most_common(1)[0][0])

    async def _slots_by(self, node: _Node) -> _Ranges:
        (reply,) = await node.connections.exchange([said("CLUSTER", "SLOTS")])
        if isinstance(reply, ResponseError):
            raise reply
        if not reply:
            raise ConnectionLost("a server that has no slots to tell of")
        return tuple(sorted((first, last, _address(host, port, node)) for first, last, (host, port, *_), *_ in reply))

    async def _take(self, ranges: _Ranges) -> None:
        owners: list[_Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, address in ranges:
            owners[first : last + 1] = [self._node(address)] * (last + 1 - first)
        self._owners = owners
        serving = {address for _, _, address in ranges}
        for address in self._nodes.keys() - serving:
            self._nodes[address].forgive()
            if address not in self._seeds:
                self._nodes.pop(address).connections.retire()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _address(host: bytes | None, port: int, teller: _Node) -> Address:
    """A server that does not know its own address means the one it was asked at."""
    return (host.decode() if host else teller.address[0]), port


def _heard(task: "asyncio.Task[None]") -> None:
    """A look beside the calls may fail: the next one will tell."""
    if not task.cancelled():
        task.exception()
