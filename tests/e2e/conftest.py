"""What the end-to-end suites share: an upstream and a client each, and the stores, started once."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.servers import redis_server, valkey_server
from tests.upstreams import Upstream, upstream_running


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis that stays up."""
    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A Valkey that stays up."""
    with valkey_server() as server:
        yield server.url


@pytest.fixture(params=["memory", "redis", "valkey"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of store in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["memory", "redis"])
def either_store(request: pytest.FixtureRequest) -> str:
    """The URL of a store of this process, and of a shared one."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue("redis_url"))


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A model that always wants to read a.txt; a test gives it another `model`."""
    async with upstream_running() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """The client's connections."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30), auto_decompress=False) as session:
        yield session
