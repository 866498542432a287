"""A primary of the store is lost in the middle of a run, behind sentinels and in a cluster, and its replica takes over."""

import asyncio
import itertools
import time

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.e2e.test_agent_loop_shared import check_ended
from tests.layouts import redis_behind_sentinels, redis_cluster
from tests.running import running
from tests.upstreams import Upstream

CLOSED = "store: {timeout: 500ms, failure_mode: closed}"
RECOVERY_SECONDS = 5.0  # after the promotion


async def served(agent: Agent) -> Turn:
    """The answer, asked for until the store is there to allow it."""
    began = time.monotonic()
    while (turn := await agent.ask()).status == 503:
        assert turn.error is not None
        assert turn.error["code"] == "lastcall_store_unavailable"
        assert time.monotonic() - began < RECOVERY_SECONDS
        await asyncio.sleep(0.05)
    return turn


@pytest.mark.parametrize("layout", ["sentinels", "cluster"])
async def test_a_run_goes_on_at_the_same_count(upstream: Upstream, http: aiohttp.ClientSession, layout: str) -> None:
    """Refused while nobody has its ledger, then nudged and stopped where it would have been, by two replicas in turn."""
    with redis_behind_sentinels() if layout == "sentinels" else redis_cluster() as store:
        async with running(upstream.url, CLOSED, store=store.url) as one, running(upstream.url, CLOSED, store=store.url) as other:
            urls = itertools.cycle([one.v1, other.v1])
            agent = Agent(http, lambda: next(urls))
            turns: list[Turn] = []
            while not turns or turns[-1].calls:
                turns.append(await served(agent))
                agent.take(turns[-1])
                if len(turns) == 2:
                    await asyncio.to_thread(store.lose_primary)

    check_ended(upstream, turns)
    assert [turn.headers["x-lastcall-step"] for turn in turns] == ["1", "2", "3", "4", "5"]
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
