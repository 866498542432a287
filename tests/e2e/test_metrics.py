"""/metrics after real exchanges: what is counted, once, and under labels from closed sets only."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.agents import Agent
from tests.running import process, running
from tests.servers import free_port
from tests.upstreams import DONE, READ_A, STREAM, Asked, Reply, Upstream, completion, looping

SAMPLE = re.compile(r"^(lastcall_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


async def samples(http: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Every Lastcall series with its value, labels in the order of their names."""
    async with http.get(url) as response:
        assert response.headers["content-type"].startswith(("text/plain", "application/openmetrics-text"))
        text = await response.text()
    found = {}
    for name, labels, value in SAMPLE.findall(text):
        ordered = ",".join(sorted(re.findall(r'\w+="[^"]+"', labels)))
        found[f"{name}{{{ordered}}}" if ordered else name] = float(value)
    return found


async def test_a_loop_is_counted_once(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Five requests, six upstream calls, a nudge, a stop, and how the nudged run ended."""
    async with running(upstream.url) as proxy:
        await Agent(http, proxy.v1, stream=True).run()
        got = await samples(http, f"{proxy.url}/metrics")

    expected = {
        'lastcall_requests_total{action="allow",dialect="chat",outcome="completed"}': 3,
        'lastcall_requests_total{action="nudge",dialect="chat",outcome="completed"}': 1,
        'lastcall_requests_total{action="stop",dialect="chat",outcome="completed"}': 1,
        'lastcall_nudges_total{mode="enforce",reason="repeated_call"}': 1,
        'lastcall_stops_total{mode="enforce",reason="repeated_call"}': 1,
        'lastcall_findings_total{action="nudge",detector="repeated_call",mode="enforce"}': 1,
        'lastcall_findings_total{action="stop",detector="repeated_call",mode="enforce"}': 1,
        'lastcall_nudge_outcomes_total{nudged="true",outcome="stopped"}': 1,
        'lastcall_nudge_outcomes_total{nudged="true",outcome="recovered"}': 0,
        "lastcall_upstream_calls_total": 6,
        'lastcall_tokens_total{direction="input",estimated="false",model="gpt-*"}': 600,
        'lastcall_tokens_total{direction="output",estimated="false",model="gpt-*"}': 60,
        'lastcall_overhead_seconds_count{dialect="chat",streamed="true"}': 5,
        'lastcall_first_byte_seconds_count{dialect="chat",streamed="true"}': 5,
        'lastcall_upstream_seconds_count{dialect="chat",streamed="true"}': 5,
        "lastcall_in_flight": 0,
        "lastcall_store_up": 1,
        "lastcall_degraded_total": 0,
    }
    assert {name: got.get(name) for name in expected} == expected


async def test_a_nudge_that_helped_is_counted_as_recovered(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The run ended by itself after it."""
    upstream.model = looping(lambda asked: DONE if asked.nudges else READ_A)
    async with running(upstream.url) as proxy:
        await Agent(http, proxy.v1).run()
        got = await samples(http, f"{proxy.url}/metrics")

    assert got['lastcall_nudge_outcomes_total{nudged="true",outcome="recovered"}'] == 1
    assert got['lastcall_nudge_outcomes_total{nudged="true",outcome="stopped"}'] == 0


async def test_what_a_stopped_run_goes_on_to_ask_is_counted_as_avoided(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The upstream hears nothing of it; its size says what it would have read."""
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1)
        await agent.run()
        asked, size = len(upstream.asked), len(agent.payload())
        await agent.ask()
        got = await samples(http, f"{proxy.url}/metrics")

    assert len(upstream.asked) == asked
    assert got['lastcall_avoided_calls_total{reason="repeated_call"}'] == 1
    assert size / 6 < got['lastcall_avoided_tokens_total{reason="repeated_call"}'] < size / 2
    assert got['lastcall_tools_total{action="stop",mode="enforce",tool="read_file"}'] >= 1


async def test_what_the_provider_read_from_its_cache_is_counted(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """As it reports it."""
    cached = b'"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60},'
    upstream.model = lambda _: Reply(completion(DONE).replace(b'"prompt_tokens": 100,', cached))
    async with running(upstream.url) as proxy:
        await Agent(http, proxy.v1).run()
        got = await samples(http, f"{proxy.url}/metrics")

    assert got['lastcall_cached_tokens_total{model="gpt-*"}'] == 60


async def test_the_number_of_series_does_not_grow_with_what_clients_write(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Models, sessions, tools, paths, statuses: all from closed sets, there from the start."""
    async with running(upstream.url) as proxy:
        before = set(await samples(http, f"{proxy.url}/metrics"))
        for number in range(12):
            tool = {"type": "function", "function": {"name": f"tool_{number}", "parameters": {}}}
            headers = {"x-lastcall-session": f"session-{number}", "x-lastcall-lane": f"lane-{number}"}
            await Agent(http, proxy.v1, headers=headers, model=f"model-{number}", tools=[tool]).run()
            async with http.request(f"VERB{number}", f"{proxy.v1}/path-{number}") as response:
                await response.read()
        after = await samples(http, f"{proxy.url}/metrics")

    assert set(after) == before
    assert after['lastcall_tokens_total{direction="input",estimated="false",model="_other"}'] > 0
    assert not any(word in name for name in after for word in ("session-", "tool_1", "model-1", "path-", "lane-"))


@pytest.mark.parametrize("judged", [True, False], ids=["judged", "unjudged"])
async def test_exchanges_under_way_are_gauged(upstream: Upstream, http: aiohttp.ClientSession, judged: bool) -> None:
    """And gone from the gauge when their client leaves."""

    async def hanging(asked: Asked) -> AsyncIterator[bytes]:
        yield b": wait\n\n"
        await asyncio.Event().wait()

    upstream.model = lambda asked: Reply(hanging(asked), headers=STREAM)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True)
        path = "/chat/completions" if judged else "/completions"
        async with http.post(f"{proxy.v1}{path}", data=agent.payload(), headers=agent.headers) as response:
            await response.content.readany()
            assert (await samples(http, f"{proxy.url}/metrics"))["lastcall_in_flight"] == 1
            response.close()
        await upstream.until(lambda: upstream.broken_off)
        async with asyncio.timeout(5):
            while (await samples(http, f"{proxy.url}/metrics"))["lastcall_in_flight"]:  # noqa: ASYNC110 - as Prometheus would
                await asyncio.sleep(0.01)


async def test_a_port_of_its_own_serves_metrics_alone(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Then the API's port does not."""
    port = free_port()
    with process(upstream.url, config=f"server: {{metrics_port: {port}}}") as served:
        await Agent(http, served.v1).run()
        got = await samples(http, f"http://127.0.0.1:{port}/metrics")
        assert got['lastcall_stops_total{mode="enforce",reason="repeated_call"}'] == 1
        async with http.get(f"{served.url}/metrics") as response:
            assert response.status == 404
        async with http.get(f"http://127.0.0.1:{port}/v1/models") as response:
            assert response.status == 404


async def test_workers_are_summed_by_their_supervisor_on_a_port_of_its_own(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str
) -> None:
    """While a worker is killed too: its counts stay, its gauges go, and another takes its place."""
    port = free_port()
    config = f"{{server: {{workers: 2, metrics_port: {port}}}, store: {{url: '{redis_url}', timeout: 5s}}}}"
    with process(upstream.url, config=config) as served:
        requests = 'lastcall_requests_total{action="allow",dialect="chat",outcome="completed"}'

        async def counted(value: float) -> dict[str, float]:
            async with asyncio.timeout(5):
                while (got := await samples(http, f"http://127.0.0.1:{port}/metrics")).get(requests) != value:  # noqa: ASYNC110 - as Prometheus would
                    await asyncio.sleep(0.05)
            return got

        upstream.model = looping(lambda _: DONE)
        for _ in range(8):
            await Agent(http, served.v1).run()
        await counted(8)
        os.kill(served.workers()[0], signal.SIGKILL)
        got = await counted(8)
        assert got["lastcall_store_up"] == 1
        async with http.get(f"{served.url}/metrics") as response:
            assert response.status == 404
        served.terminate()
        assert served.ended(within=20) == 0


async def test_health_is_told_apart(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The process answers; requests can be served. Neither asks the upstream."""
    async with running(upstream.url) as proxy:
        for path in ("/livez", "/readyz"):
            async with http.get(f"{proxy.url}{path}") as response:
                assert (response.status, await response.json()) == (200, {"status": "ok"})
    assert upstream.asked == []
