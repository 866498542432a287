"""Processes that are told to end: what is under way ends well, nothing new begins."""

import asyncio
import json
import signal

import aiohttp
import pytest

from tests.agents import Agent, turn_of
from tests.running import Process, process
from tests.servers import free_port
from tests.upstreams import DONE, Upstream, halting


@pytest.mark.parametrize("layout", ["one", "workers", "metrics_port"])
async def test_a_stream_under_way_is_drained(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, layout: str) -> None:
    """After SIGTERM no request is taken any more, the stream goes on to its end, then the processes are gone."""
    go_on = asyncio.Event()
    upstream.model = halting(go_on)
    options = ("--store", redis_url, "--workers", "2") if layout == "workers" else ()
    config = f"server: {{metrics_port: {free_port()}}}" if layout == "metrics_port" else "{}"
    with process(upstream.url, *options, config=config) as served:
        agent = Agent(http, served.v1, stream=True)
        async with http.post(f"{served.v1}/chat/completions", data=agent.payload(), headers=agent.headers) as response:
            first = await response.content.readany()
            served.terminate()
            await _until_closed(http, served)
            go_on.set()
            turn = turn_of(response.status, response.headers, first + await response.read())
        status = await asyncio.to_thread(served.ended, 10)
        log = served.stderr()

    assert turn.body.endswith(b"data: [DONE]\n\n")
    assert turn.text.strip() == DONE.text
    assert status in (0, -signal.SIGTERM)
    assert "Traceback" not in log
    assert [json.loads(line)["outcome"] for line in log.splitlines() if "exchange_ended" in line] == ["completed"]


async def _until_closed(http: aiohttp.ClientSession, served: Process) -> None:
    """Until a new connection is refused or, where a supervisor holds the port, not answered."""
    async with asyncio.timeout(10):
        while True:
            try:
                async with http.get(f"{served.url}/livez", timeout=aiohttp.ClientTimeout(total=0.5), headers={"connection": "close"}):
                    await asyncio.sleep(0.02)
            except (aiohttp.ClientConnectionError, TimeoutError):
                return


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_proxy_ends_at_once(upstream: Upstream, http: aiohttp.ClientSession, ending: signal.Signals) -> None:
    """With a client's connection kept open, and without a traceback."""
    with process(upstream.url) as served:
        await Agent(http, served.v1).run()
        served.send(ending)
        status = await asyncio.to_thread(served.ended, 5)
        log = served.stderr()

    assert status in (0, 1, -ending)
    assert "Traceback" not in log


async def test_the_log_is_json_without_content(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A line an exchange, on standard error; no text, argument, result or key in any."""
    with process(upstream.url) as served:
        agent = Agent(http, served.v1, key="sk-very-secret", task="the task's own words", tool=lambda *_: "the result's own words")
        await agent.run()
        served.terminate()
        await asyncio.to_thread(served.ended, 5)
        log = served.stderr()

    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["action"] for line in lines if line["event"] == "exchange_ended"] == ["allow", "allow", "allow", "nudge", "stop"]
    assert not any(secret in log for secret in ("very-secret", "own words", "a.txt", "one line"))
