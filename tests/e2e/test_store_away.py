"""The store away in the middle of a run: no hang, a stated degradation or one clear refusal, and recovery by itself."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import aiohttp
import pytest
import redis

from tests.agents import Agent, Turn
from tests.running import Proxy, running
from tests.servers import Server, redis_server
from tests.upstreams import Upstream

TIMEOUT = 0.25
BOUND = 2.0  # seconds an exchange may take: a few store time-outs, on a busy machine
OPEN = "store: {timeout: 250ms}"
CLOSED = "store: {timeout: 250ms, failure_mode: closed}"


def pause(server: Server) -> None:
    """Connections stay open and nobody answers."""
    server.pause()


def kill(server: Server) -> None:
    """Connections are refused."""
    server.kill()


def forbid(server: Server) -> None:
    """No script may run: NOPERM."""
    _command(server, "ACL", "SETUSER", "default", "-@scripting")


def pause_ends(server: Server) -> None:
    server.resume()


def kill_ends(server: Server) -> None:
    server.start()


def forbid_ends(server: Server) -> None:
    _command(server, "ACL", "SETUSER", "default", "+@scripting")


def _command(server: Server, *words: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.execute_command(*words)


OUTAGES = pytest.mark.parametrize(
    ("begin", "end"), [(pause, pause_ends), (kill, kill_ends), (forbid, forbid_ends)], ids=["hangs", "is gone", "forbids scripts"]
)


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis of this test's own."""
    with redis_server() as running_server:
        yield running_server


async def timed(agent: Agent) -> Turn:
    """Asks, and holds that no store made it wait for long."""
    began = time.monotonic()
    turn = await agent.ask()
    assert time.monotonic() - began < BOUND
    return turn


async def until_ready(http: aiohttp.ClientSession, proxy: Proxy, status: dict[str, str]) -> int:
    """Until /readyz says so; its HTTP status."""
    async with asyncio.timeout(10):
        while True:
            async with http.get(f"{proxy.url}/readyz") as response:
                if await response.json() == status:
                    return response.status
            await asyncio.sleep(0.05)


async def until_settled(server: Server, steps: int) -> None:
    """Until the one session's ledger holds so many steps: what was spent during an outage is delivered after it."""
    with redis.Redis.from_url(server.url) as client:
        (session,) = client.keys("lastcall:*:ledger")
        async with asyncio.timeout(5):
            while not (client.hget(session, "life") or b"").startswith(b"%d " % steps):  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)


@OUTAGES
async def test_open_goes_on_from_the_history_and_says_so(
    upstream: Upstream, http: aiohttp.ClientSession, server: Server, begin: Callable[[Server], None], end: Callable[[Server], None]
) -> None:
    """Away for the whole middle of a run: nudge and stop come where they would have, and the session goes on in the store after."""
    async with running(upstream.url, OPEN, store=server.url) as proxy:
        agent = Agent(http, proxy.v1, headers={"x-lastcall-session": "run"})
        agent.take(await timed(agent))
        begin(server)
        turns = [await timed(agent)]
        while turns[-1].calls:
            agent.take(turns[-1])
            turns.append(await timed(agent))
        assert [turn.headers.get("x-lastcall-degraded") for turn in turns] == ["store"] * 4
        assert [turn.action for turn in turns[:3]] == ["allow", "allow", "nudge"]
        assert [bool(turn.calls) for turn in turns] == [True, True, True, False]
        assert await until_ready(http, proxy, {"status": "degraded", "store": "away"}) == 200

        end(server)
        await until_ready(http, proxy, {"status": "ok"})
        await until_settled(server, steps=6)
        agent.take(turns[-1])
        agent.say("Now look at b.txt, please.")
        after = await timed(agent)
        assert "x-lastcall-degraded" not in after.headers
        assert after.headers["x-lastcall-step"] == "7"

    lines = proxy.exchanges()
    assert [line["degraded"] for line in lines] == [False, *[True] * 4, False]


@OUTAGES
async def test_closed_refuses_clearly_and_recovers(
    upstream: Upstream, http: aiohttp.ClientSession, server: Server, begin: Callable[[Server], None], end: Callable[[Server], None]
) -> None:
    """503 with a retry worth while, nothing sent upstream; right afterwards the run goes on at the same count."""
    async with running(upstream.url, CLOSED, store=server.url) as proxy:
        agent = Agent(http, proxy.v1)
        for _ in range(3):
            agent.take(await timed(agent))
        begin(server)
        refused = [await timed(agent) for _ in range(3)]
        assert len(upstream.asked) == 3
        for turn in refused:
            assert turn.status == 503
            assert turn.error is not None
            assert turn.error["code"] == "lastcall_store_unavailable"
            assert "x-should-retry" not in turn.headers
        assert await until_ready(http, proxy, {"status": "store away"}) == 503

        end(server)
        await until_ready(http, proxy, {"status": "ok"})
        turns = await agent.run()

    assert [turn.action for turn in turns] == ["nudge", "stop"]
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("config", [OPEN, CLOSED], ids=["open", "closed"])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
async def test_a_store_that_loses_its_data_changes_no_verdict(
    upstream: Upstream, http: aiohttp.ClientSession, server: Server, config: str, after: int
) -> None:
    """FLUSHALL between two turns: the history tells the counts; one more nudge at most, never two in a request."""
    async with running(upstream.url, config, store=server.url) as proxy:
        agent = Agent(http, proxy.v1, headers={"x-lastcall-session": "flushed"})
        for _ in range(after):
            agent.take(await timed(agent))
        _command(server, "FLUSHALL")
        turns = await agent.run()

    assert len(turns) == 5 - after
    assert turns[-1].text.startswith("[lastcall stop]")
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]


async def test_a_store_that_is_away_at_the_start_keeps_nothing_up(upstream: Upstream, http: aiohttp.ClientSession, server: Server) -> None:
    """The proxy starts, serves degraded, and joins the store when it comes."""
    server.kill()
    async with running(upstream.url, OPEN, store=server.url) as proxy:
        first = await timed(Agent(http, proxy.v1))
        assert (first.status, first.headers["x-lastcall-degraded"]) == (200, "store")
        server.start()
        await until_ready(http, proxy, {"status": "ok"})
        turns = await Agent(http, proxy.v1).run()
    assert len(turns) == 5
    assert not any("x-lastcall-degraded" in turn.headers for turn in turns)


async def test_a_store_that_hangs_within_a_stream_holds_no_byte_back(
    upstream: Upstream, http: aiohttp.ClientSession, server: Server
) -> None:
    """What is written after the answer is nobody's wait; the spending is delivered once the store is back."""
    name = f"hung-{uuid.uuid4()}"
    async with running(upstream.url, OPEN, store=server.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True, headers={"x-lastcall-session": name})
        inner = upstream.model

        def pausing(asked):  # type: ignore[no-untyped-def]
            server.pause()
            return inner(asked)

        upstream.model = pausing
        turn = await timed(agent)
        assert turn.body.endswith(b"data: [DONE]\n\n")
        agent.take(turn)
        server.resume()
        upstream.model = inner
        await until_ready(http, proxy, {"status": "ok"})
        again = await timed(agent)
    assert again.headers["x-lastcall-step"] == "2"


@pytest.mark.parametrize("config", [OPEN, CLOSED], ids=["open", "closed"])
async def test_other_sessions_are_judged_rightly_after_an_outage(
    upstream: Upstream, http: aiohttp.ClientSession, server: Server, config: str
) -> None:
    """Many agents at once, the store killed and restarted under them: each ends with one stop of its own, none by another's."""
    async with running(upstream.url, config, store=server.url) as proxy:
        agents = [Agent(http, proxy.v1, task=f"task {number}") for number in range(6)]

        async def run(agent: Agent) -> list[Turn]:
            turns: list[Turn] = []
            while not turns or turns[-1].calls:
                turn = await timed(agent)
                if turn.status == 503:
                    await asyncio.sleep(0.1)
                    continue
                turns.append(turn)
                agent.take(turn)
            return turns

        running_agents = [asyncio.create_task(run(agent)) for agent in agents]
        await upstream.until(lambda: len(upstream.asked) > 9)
        await asyncio.to_thread(server.restart)
        runs = await asyncio.gather(*running_agents)

    assert [len(turns) for turns in runs] == [5] * 6
    assert all(turns[-1].text.startswith("[lastcall stop]") for turns in runs)
    assert all(request.nudges <= 1 for request in upstream.asked)
