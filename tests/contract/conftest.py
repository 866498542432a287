"""The stores that the contract runs on: memory, a real Redis 7.0, a real Valkey 9, a Redis behind sentinels and a Redis cluster.

Each test has its own session on shared servers.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from proxy.events import StoreChanged
from proxy.store import Store, open_store
from tests.layouts import Cluster, Sentinels, redis_behind_sentinels, redis_cluster
from tests.servers import Server
from tests.stores import SERVERS

Started = Server | Sentinels | Cluster

KINDS: dict[str, Callable[[], AbstractContextManager[Started]]] = {
    **SERVERS,
    "sentinels": redis_behind_sentinels,
    "cluster": redis_cluster,
}


@pytest.fixture
def changes() -> list[StoreChanged]:
    """What a guarded store has told."""
    return []


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Started]]:
    """Every kind of server that a test has asked for so far."""
    with ExitStack() as stack:
        yield _Started(stack)


class _Started(dict[str, Started]):
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __missing__(self, kind: str) -> Started:
        self[kind] = self._stack.enter_context(KINDS[kind]())
        return self[kind]


@pytest.fixture(params=["memory", *KINDS])
async def store(request: pytest.FixtureRequest, servers: dict[str, Started]) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else servers[request.param].url
    opened = open_store(url, clock=time.time, random_bytes=os.urandom, timeout=5.0)
    yield opened
    await opened.close()


@pytest.fixture
def session() -> bytes:
    """A session key that no other test uses, so that tests can share a server."""
    return os.urandom(16)
