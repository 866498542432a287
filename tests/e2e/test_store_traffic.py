"""What goes to the store: how often it is asked before the upstream, and that no content ever reaches it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import redis

from tests.agents import Agent
from tests.running import Proxy, running
from tests.servers import redis_server
from tests.upstreams import READ_A, Asked, Reply, Upstream, saying


@pytest.fixture
def admin() -> Iterator["redis.Redis"]:
    """A client of a Redis that nobody else uses."""
    with redis_server() as server, redis.Redis.from_url(server.url) as client:
        yield client


def url_of(admin: "redis.Redis") -> str:
    return f"redis://127.0.0.1:{admin.connection_pool.connection_kwargs['port']}/0"


def asked_so_far(admin: "redis.Redis") -> dict[str, int]:
    """How often each of the proxy's own commands was sent."""
    stats = admin.info("commandstats")
    return {name: stats[f"cmdstat_{name}"]["calls"] for name in ("mget", "evalsha") if f"cmdstat_{name}" in stats}


@pytest.mark.parametrize(
    ("headers", "later"), [({"x-lastcall-session": "s"}, {"evalsha": 1}), ({}, {"mget": 1, "evalsha": 1})], ids=["named", "derived"]
)
async def test_one_round_trip_stands_before_the_upstream_and_two_for_a_derived_session(
    upstream: Upstream, http: aiohttp.ClientSession, admin: "redis.Redis", headers: dict[str, str], later: dict[str, int]
) -> None:
    """The session is opened and its call reserved at once; without a name it is looked up first, from its second request on."""
    before_upstream: list[dict[str, int]] = []

    def model(asked: Asked) -> Reply:
        before_upstream.append(asked_so_far(admin))
        return saying(READ_A, asked)

    upstream.model = model
    async with running(upstream.url, store=url_of(admin)) as proxy:
        await Agent(http, proxy.v1).ask()  # the secret is read and the scripts are loaded
        agent = Agent(http, proxy.v1, headers=headers)
        for told in range(1, 4):
            await until_told(proxy, told)
            admin.config_resetstat()
            agent.take(await agent.ask())

    assert before_upstream[1:] == [{"evalsha": 1}, later, later]


async def until_told(proxy: Proxy, exchanges: int) -> None:
    """Until so many exchanges are over: they are told of once they are committed, from another thread."""
    async with asyncio.timeout(10):
        while len(proxy.exchanges()) < exchanges:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_nothing_that_was_said_is_stored(upstream: Upstream, http: aiohttp.ClientSession, admin: "redis.Redis") -> None:
    """Of prompts, arguments, results, call ids and keys only keyed hashes; tools and sessions by their names, for the operator."""
    async with running(upstream.url, store=url_of(admin)) as proxy:
        for headers in ({}, {"x-lastcall-session": "a-session-of-mine"}):
            agent = Agent(
                http, proxy.v1, headers=headers, key="sk-very-secret", task="the task's own words", tool=lambda *_: "the result's own words"
            )
            await agent.run()

    stored = b"".join(everything(admin))
    assert b"read_file" in stored and b"a-session-of-mine" in stored
    call_ids = [call["id"].encode() for message in agent.messages for call in message.get("tool_calls") or ()]
    for secret in (b"own words", b"very-secret", b"a.txt", b"You are helpful", *call_ids):
        assert secret not in stored


def everything(admin: Any) -> Iterator[bytes]:
    """All keys, and all that stands under them."""
    for key in admin.keys("*"):
        yield key
        match admin.type(key):
            case b"string":
                yield admin.get(key)
            case b"hash":
                yield from (part for pair in admin.hgetall(key).items() for part in pair)
            case b"zset":
                yield from admin.zrange(key, 0, -1)
            case other:
                raise AssertionError(f"a key of type {other!r}")
