"""What goes to the store: how often it is asked before the upstream, and that no content ever reaches it."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import aiohttp
import pytest
import redis

from proxy.client import Client, Fields
from proxy.store import Listing, open_store
from proxy.store.redis.connections import Line
from tests.agents import Agent
from tests.running import Proxy, running
from tests.servers import redis_server
from tests.stores import TTL, call, cost
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
    ("headers", "replicas", "later"),
    [({"x-lastcall-session": "s"}, 2, {"evalsha": 1}), ({}, 1, {"evalsha": 1}), ({}, 2, {"mget": 1, "evalsha": 1})],
    ids=["named", "derived", "derived, answered by another"],
)
async def test_one_round_trip_stands_before_the_upstream_and_two_for_a_derived_session(
    upstream: Upstream, http: aiohttp.ClientSession, admin: "redis.Redis", headers: dict[str, str], replicas: int, later: dict[str, int]
) -> None:
    """The session is opened and its call reserved at once; without a name it is looked up first, from its second request on, by a process
    that did not give the answer before."""
    before_upstream: list[dict[str, int]] = []

    def model(asked: Asked) -> Reply:
        before_upstream.append(asked_so_far(admin))
        return saying(READ_A, asked)

    upstream.model = model
    async with running(upstream.url, store=url_of(admin)) as one, running(upstream.url, store=url_of(admin)) as other:
        proxies = [one, other][:replicas]
        for proxy in proxies:
            await Agent(http, proxy.v1).ask()  # the secret is read and the scripts are loaded
        in_turn = cycle(proxies)
        agent = Agent(http, lambda: next(in_turn).v1, headers=headers)
        for told in range(replicas, replicas + 3):
            await until_told(proxies, told)
            admin.config_resetstat()
            agent.take(await agent.ask())

    assert before_upstream[replicas:] == [{"evalsha": 1}, later, later]


async def test_a_requests_work_in_the_store_does_not_grow_with_the_sessions_there_are(admin: "redis.Redis") -> None:
    """The same commands, those within scripts among them, beside one session and beside five hundred; the index hears of neither."""
    store = open_store(url_of(admin), clock=time.time, random_bytes=os.urandom, timeout=5.0)

    async def work(session: bytes, number: int) -> dict[str, int]:
        admin.config_resetstat()
        opened = await store.open(session, call(f"{session.hex()} {number}"), TTL)
        settled, listing = [cost(f"{session.hex()} {number}")], Listing("", "run")
        await store.commit(session, record=b"r", version=opened.version, settlements=settled, links=(b"l",), ttl=TTL, listing=listing)
        found = admin.info("commandstats")
        return {name.removeprefix("cmdstat_"): found[name]["calls"] for name in found}

    new, alone = [await work(b"session", number) for number in range(2)]
    for number in range(500):
        await work(number.to_bytes(4), 0)
    beside = [await work(b"session", 2 + number) for number in range(20)]
    rare = {"zremrangebyscore", "zremrangebyrank"}  # one settlement in eight tidies up
    kept = [{name: times for name, times in each.items() if name not in rare and "|" not in name} for each in (alone, *beside)]
    await store.close()

    assert "evalsha" in kept[0] or "eval" in kept[0]
    assert new.get("zadd", 0) > alone["zadd"]  # a session is listed when it is new
    assert all(each == kept[0] for each in kept)


async def until_told(proxies: Sequence[Proxy], exchanges: int) -> None:
    """Until so many exchanges are over: they are told of once they are committed, from another thread."""
    async with asyncio.timeout(10):
        while sum(len(proxy.exchanges()) for proxy in proxies) < exchanges:  # noqa: ASYNC110
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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("turns", [2, 5], ids=["goes on", "stopped"])
async def test_what_an_answer_came_to_is_sent_to_the_store_before_its_end_is_sent_to_the_client(
    upstream: Upstream, http: aiohttp.ClientSession, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch, stream: bool, turns: int
) -> None:
    """A process that is killed once its client has an answer leaves nothing unsettled."""
    sent: list[str] = []
    exchange, whole, write = Line.exchange, Client.whole, Client.write

    def to_store(self: Line, commands: bytes, count: int) -> "asyncio.Future[list[Any]]":
        sent.append("store")
        return exchange(self, commands, count)

    async def to_client(self: Client, status: int, fields: Fields, body: bytes) -> None:
        sent.append("client")
        await whole(self, status, fields, body)

    async def piece_to_client(self: Client, data: bytes, *, more: bool = True) -> None:
        sent.append("piece" if data and b"[DONE]" not in data else "client")
        await write(self, data, more=more)

    async with running(upstream.url, store=url_of(admin)) as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        agent.take(await agent.ask())  # the secret is read and the scripts are loaded
        await until_told([proxy], 1)
        monkeypatch.setattr(Line, "exchange", to_store)
        monkeypatch.setattr(Client, "whole", to_client)
        monkeypatch.setattr(Client, "write", piece_to_client)
        for told in range(2, turns + 1):
            agent.take(await agent.ask())
            await until_told([proxy], told)
            assert sent.index("client") > max(at for at, name in enumerate(sent) if name == "store")
            sent.clear()
