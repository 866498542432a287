"""Several real servers that belong together, for tests: a primary with its replica behind sentinels, and a cluster."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import RedisError

from tests.servers import Server, missing

READY_SECONDS = 30.0
MASTER = "main"

# A replica gets what was written just before a failover only if it does not wait for others before it is filled. What is lost here is a
# process and no machine: nothing has to be on the disk at once.
_QUICK = ("--repl-diskless-sync-delay", "0", "--appendfsync", "no")


def until(happened: Callable[[], object], seconds: float = READY_SECONDS) -> None:
    """Waits for a condition. A server that does not answer has not met it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if happened():
                return
        except RedisError:
            pass
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.02)


def client(server: Server, **options: object) -> Any:
    """An administrator's: redis-py's, whose answers have no useful types."""
    return redis.Redis(port=server.port, decode_responses=True, socket_timeout=5, **options)  # type: ignore[arg-type]


@dataclass
class Sentinels:
    """Two servers behind three sentinels."""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER}/0"

    @property
    def primary(self) -> Server:
        """As the sentinels say."""
        _, port = client(self.sentinels[-1]).sentinel_get_master_addr_by_name(MASTER)
        return next(server for server in self.servers if server.port == port)

    def until_promoted(self, other_than: Server) -> None:
        """Until every sentinel names another primary, and it is one."""

        def promoted() -> bool:
            named = {client(sentinel).sentinel_get_master_addr_by_name(MASTER)[1] for sentinel in self.sentinels}
            return other_than.port not in named and client(self.primary).info("replication")["role"] == "master"

        until(promoted)

    def lose_primary(self) -> None:
        """Kill it, once its replica has all that it has, and wait for the promotion."""
        lost = self.primary
        until(lambda: client(lost).execute_command("WAIT", 1, 100) == 1)
        lost.kill()
        self.until_promoted(lost)

    def demote(self, former: Server) -> None:
        """Make a former primary the replica that its sentinels would make of it within ten seconds."""
        client(former).replicaof("127.0.0.1", self.primary.port)
        until(lambda: client(former).info("replication").get("master_link_status") == "up")


@contextmanager
def redis_behind_sentinels() -> Iterator[Sentinels]:
    """A primary, a replica and three sentinels which give a primary up after a second."""
    binary = _redis_server()
    with TemporaryDirectory(prefix="lastcall-sentinels-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        primary = _started(stack, binary, folder, "primary", *_QUICK)
        replica = _started(stack, binary, folder, "replica", *_QUICK, "--replicaof", f"127.0.0.1 {primary.port}")
        sentinels = [stack.enter_context(sentinel(folder / f"{i}", primary.port, quorum=2)) for i in range(3)]
        group = Sentinels([primary, replica], sentinels)

        def seen() -> bool:
            states = [client(sentinel).sentinel_master(MASTER) for sentinel in sentinels]
            return all(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1 for state in states)

        until(seen)
        until(lambda: client(replica).info("replication")["master_link_status"] == "up")
        yield group


@contextmanager
def sentinel(folder: Path, port: int, *options: str, quorum: int = 1) -> Iterator[Server]:
    """One that watches the primary on that port, in a folder of its own."""
    folder.mkdir()
    file = folder / "sentinel.conf"
    file.write_text(
        f"sentinel monitor {MASTER} 127.0.0.1 {port} {quorum}\n"
        f"sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 1000\n"
    )
    server = Server(_redis_server(), folder, *options, file=file)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@dataclass
class Cluster:
    """Three primaries, each with a third of the slots, and a replica of the first."""

    primaries: list[Server]
    replica: Server
    ids: dict[int, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.primaries)

    def lose_primary(self) -> None:
        """Kill that of the replica, once it has all that it has, and wait for the promotion."""
        lost = self.primaries[0]
        until(lambda: client(lost).execute_command("WAIT", 1, 100) == 1)
        lost.kill()
        self.until_taken_over()

    def until_taken_over(self) -> None:
        """Until the first primary's replica is one itself."""
        until(lambda: client(self.replica).info("replication")["role"] == "master")

    def place(self, slot: int) -> int:
        """Of the primary that has a slot at the beginning."""
        return next(place for place in range(len(self.primaries)) if slot < _first_slot(place + 1, len(self.primaries)))

    def key_on(self, place: int) -> bytes:
        """A new session's or team's key, on that primary."""
        while True:
            key = os.urandom(8)
            if self.place(slot_of(key)) == place:
                return key


def slot_of(key: bytes) -> int:
    """Where everything is kept that belongs to a session or team."""
    return int(key_slot(key.hex().encode()))


def _first_slot(place: int, of: int) -> int:
    return -(-REDIS_CLUSTER_HASH_SLOTS * place // of)


@contextmanager
def redis_cluster() -> Iterator[Cluster]:
    """A cluster whose servers go on serving what they have when another is lost."""
    binary = _redis_server()
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no", *_QUICK)
    with TemporaryDirectory(prefix="lastcall-cluster-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        servers = [_started(stack, binary, Path(name), f"node-{i}", *options) for i in range(4)]
        *primaries, replica = servers
        first = client(primaries[0])
        for place, server in enumerate(primaries):
            bounds = [_first_slot(at, len(primaries)) for at in (place, place + 1)]
            client(server).execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[0], bounds[1] - 1)
            client(server).execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for server in servers[1:]:
            first.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        until(lambda: all(client(server).cluster("info")["cluster_known_nodes"] == "4" for server in servers))
        ids = {server.port: str(client(server).execute_command("CLUSTER", "MYID")) for server in servers}
        until(lambda: client(replica).execute_command("CLUSTER", "REPLICATE", ids[primaries[0].port]))
        until(lambda: client(replica).info("replication")["master_link_status"] == "up")
        until(lambda: all(client(server).cluster("info")["cluster_state"] == "ok" for server in servers))
        yield Cluster(primaries, replica, ids)


def _redis_server() -> Path:
    found = shutil.which("redis-server")
    if found is None:
        missing("redis-server on the PATH")
    return Path(str(found))


def _started(stack: ExitStack, binary: Path, folder: Path, name: str, *options: str) -> Server:
    (folder / name).mkdir()
    server = Server(binary, folder / name, *options)
    stack.callback(server.kill)
    server.start()
    return server
