"""The same loop when no single process sees it all: workers, replicas, and proxies that die between any two turns, on one Redis."""

import asyncio
import itertools
import os
import signal

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.running import Process, process, running
from tests.upstreams import Upstream, looping

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def check_ended(upstream: Upstream, turns: list[Turn]) -> None:
    """Nudged in the fourth request and once only, stopped in place of the fifth call, six upstream calls."""
    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert turns[-1].text.startswith("[lastcall stop]")
    assert all("x-lastcall-degraded" not in turn.headers for turn in turns)
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]


@STREAMED
@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_two_replicas_in_turn_give_the_verdicts_of_one(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, named: bool, stream: bool
) -> None:
    """No request of the run is seen by the replica that saw the one before."""
    async with running(upstream.url, store=redis_url) as one, running(upstream.url, store=redis_url) as other:
        urls = itertools.cycle([one.v1, other.v1])
        headers = {"x-lastcall-session": f"replicas-{stream}"} if named else None
        turns = await Agent(http, lambda: next(urls), stream=stream, headers=headers).run()

    check_ended(upstream, turns)
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
    assert [line["step"] for line in one.exchanges()] == [1, 3, 5]
    assert [line["step"] for line in other.exchanges()] == [2, 4]


async def test_a_proxy_killed_between_every_two_turns_changes_nothing(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str
) -> None:
    """A new process for each turn, from the session's first to after its stop: one session, every step in its ledger."""

    async def restart() -> None:
        await asyncio.to_thread(served.wait_for_log, '"event":"exchange_ended"')  # written once the store has it
        served.kill()
        await asyncio.to_thread(served.start)

    with process(upstream.url, "--store", redis_url) as served:
        agent = Agent(http, served.v1)
        turns = await agent.run(between=restart)
        check_ended(upstream, turns)
        assert [turn.headers["x-lastcall-step"] for turn in turns] == ["1", "2", "3", "4", "5"]
        assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1

        await restart()
        agent.say("continue")
        after = await agent.ask()
        assert (after.action, after.calls) == ("stop", [])
        assert len(upstream.asked) == 6


async def test_a_proxy_killed_on_the_last_byte_of_every_answer_stops_the_loop_in_time(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str
) -> None:
    """Whatever had not reached the store yet: the history tells the rest. Never two nudges in a request."""

    async def restart() -> None:
        served.kill()
        await asyncio.to_thread(served.start)

    with process(upstream.url, "--store", redis_url) as served:
        turns = await Agent(http, served.v1, stream=True).run(between=restart)

    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert turns[-1].text.startswith("[lastcall stop]")
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]


async def test_four_workers_give_the_verdicts_of_one(upstream: Upstream, redis_url: str) -> None:
    """Every request comes over a new connection, so that any worker may get it; eight agents at once, streamed and not."""
    with process(upstream.url, "--store", redis_url, "--workers", "4") as served:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), auto_decompress=False) as http:
            agents = [Agent(http, served.v1, stream=number % 2 == 1, task=f"task {number}") for number in range(8)]
            runs = await asyncio.gather(*(agent.run() for agent in agents))
            for number, turns in enumerate(runs):
                asked = [request for request in upstream.asked if request.json["messages"][1]["content"] == f"task {number}"]
                check_ended(Upstream(asked=asked), turns)

            await _metrics_say(http, served, 'lastcall_stops_total{mode="enforce",reason="repeated_call",team=""} 8.0')
            await _a_worker_dies_between_turns(upstream, http, served)
        assert "Traceback" not in served.stderr()


async def _a_worker_dies_between_turns(upstream: Upstream, http: aiohttp.ClientSession, served: Process) -> None:
    upstream.asked.clear()
    upstream.model = looping()
    victims = iter(served.workers())

    async def kill_one() -> None:
        os.kill(next(victims), signal.SIGKILL)
        await asyncio.to_thread(served.wait_until_live)

    agent = Agent(http, served.v1)
    turns: list[Turn] = []
    while not turns or turns[-1].calls:
        if len(turns) in (1, 3):
            await kill_one()
        turns.append(await _asked_again(agent))
        agent.take(turns[-1])
    check_ended(upstream, turns)


async def _asked_again(agent: Agent) -> Turn:
    """As every client does when a connection is refused or reset before an answer."""
    for _ in range(20):
        try:
            return await agent.ask()
        except aiohttp.ClientConnectionError:
            continue
    raise AssertionError("no worker answers")


async def _metrics_say(http: aiohttp.ClientSession, served: Process, line: str) -> None:
    """Whichever worker is asked, it answers for all of them; an exchange is counted right after its answer."""
    async with asyncio.timeout(5):
        while True:
            async with http.get(f"{served.url}/metrics") as response:
                if line in await response.text():
                    return
