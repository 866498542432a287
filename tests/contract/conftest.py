"""The stores that the contract runs on: memory, a real Redis 7.0 and a real Valkey 9. Each test has its own session on shared servers."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from proxy.store import Store, open_store
from tests.servers import Server
from tests.stores import SERVERS


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Server]]:
    """Every kind of server that a test has asked for so far."""
    with ExitStack() as stack:
        yield _Started(stack)


class _Started(dict[str, Server]):
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __missing__(self, kind: str) -> Server:
        self[kind] = self._stack.enter_context(SERVERS[kind]())
        return self[kind]


@pytest.fixture(params=["memory", "redis", "valkey"])
async def store(request: pytest.FixtureRequest, servers: dict[str, Server]) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else servers[request.param].url
    opened = open_store(url, clock=time.time, random_bytes=os.urandom, timeout=5.0)
    yield opened
    await opened.close()


@pytest.fixture
def session() -> bytes:
    """A session key that no other test uses, so that tests can share a server."""
    return os.urandom(16)
