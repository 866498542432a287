"""Several workers behind one address: each serves the operator too, all obey what any was told, and none outlives the supervisor."""

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from proxy.keys import digest_of
from proxy.listening import listen
from tests.agents import Agent
from tests.e2e.test_metrics import samples
from tests.running import Process, process
from tests.servers import free_port
from tests.upstreams import DONE, Upstream, halting, saying

KEY = "operators-key"


@dataclass
class Served:
    """The workers, their ports besides the API's, and the one team of their configuration."""

    process: Process
    team: str
    admin_port: int
    metrics_port: int

    async def operate(self, http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """An operator's request to the port of its own, on a connection of its own."""
        headers = {"authorization": f"Bearer {KEY}", "connection": "close"}
        async with http.request(method, f"http://127.0.0.1:{self.admin_port}/admin{path}", headers=headers, **options) as response:
            return response.status, await response.json()


@contextmanager
def alone(served: Process, worker: int) -> Iterator[None]:
    """All workers but one stand still, so that this one takes every connection. For less than the supervisor's patience, 5 s."""
    others = [pid for pid in served.workers() if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def until_gone(workers: list[int], but: int = 0) -> None:
    """Until no more of them run than that."""
    deadline = time.monotonic() + 10
    while sum(os.path.exists(f"/proc/{pid}/exe") for pid in workers) > but:
        assert time.monotonic() < deadline, "a worker has outlived its supervisor"
        time.sleep(0.02)


@pytest.fixture
def served(upstream: Upstream, redis_url: str) -> Iterator[Served]:
    """Two workers with a port each for the operator and for metrics."""
    upstream.model = lambda asked: saying(DONE, asked)
    team = {"keys": [digest_of("lc-red")], "policy": {"on_stop": "error"}, "budgets": [{"steps": 0, "per": "month"}]}
    name = f"red-{uuid.uuid4().hex}"
    ports = {"admin_port": free_port(), "metrics_port": free_port()}
    config: dict[str, Any] = {
        "server": {"workers": 2, "admin_key": digest_of(KEY), **ports},
        "store": {"url": redis_url, "timeout": "5s"},
        "teams": {name: team},
    }
    with process(upstream.url, config=json.dumps(config)) as running:
        running.send(signal.SIGHUP)
        running.wait_for_log("config_reloaded")
        while running.stderr().count("config_reloaded") < 2:  # each says so once it is at work
            time.sleep(0.02)
        yield Served(running, name, **ports)


async def test_every_worker_serves_the_operator_and_obeys_what_another_was_told(http: aiohttp.ClientSession, served: Served) -> None:
    """On the port of its own, where nothing else is; and the API's port serves no desk."""
    headers = {"x-lastcall-key": "lc-red", "x-lastcall-session": f"s-{uuid.uuid4()}", "connection": "close"}
    agent = Agent(http, served.process.v1, headers=headers)
    one, other = served.process.workers()
    name = agent.headers["x-lastcall-session"]
    with alone(served.process, one):
        spent = await agent.ask()
        raised = await served.operate(http, "POST", f"/teams/{served.team}/raise", json={"steps": 9})
        before = await agent.ask()
    with alone(served.process, other):
        after = await agent.ask()
        paused = await served.operate(http, "POST", f"/sessions/{name}/pause")
        own = {"authorization": f"Bearer {KEY}", "connection": "close"}
        async with http.get(f"{served.process.url}/admin/sessions", headers=own) as response:
            beside = response.status
    with alone(served.process, one):
        refused = await agent.ask()
        shown = await served.operate(http, "GET", f"/sessions/{name}")
    gauges = await samples(http, f"http://127.0.0.1:{served.metrics_port}/metrics")

    assert (spent.status, raised[0], before.status, after.status, refused.status) == (400, 200, 200, 200, 400)
    assert refused.headers["x-lastcall-reason"] == "operator"
    assert (paused[0], paused[1]["state"], shown[1]["state"], beside) == (200, "paused", "paused", 404)
    assert f'lastcall_team_budget_limit{{per="month",team="{served.team}",unit="steps"}}' in gauges


async def test_workers_end_with_their_supervisor(upstream: Upstream, http: aiohttp.ClientSession, served: Served) -> None:
    """However it ended: streams under way go on to their end, and then the ports are free for whoever starts it again."""
    go_on = asyncio.Event()
    upstream.model = halting(go_on)
    team = {"x-lastcall-key": "lc-red", "x-lastcall-session": f"s-{uuid.uuid4()}"}
    agent = Agent(http, served.process.v1, stream=True, headers=team)
    await served.operate(http, "POST", f"/teams/{served.team}/raise", json={"steps": 9})
    before = served.process.workers()
    async with http.post(f"{served.process.v1}/chat/completions", data=agent.payload(), headers=agent.headers) as response:
        await response.content.readany()
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.ended(within=5)
        await asyncio.to_thread(until_gone, before, but=1)
        go_on.set()
        rest = await response.read()
    await asyncio.to_thread(until_gone, before)

    assert rest.endswith(b"data: [DONE]\n\n")
    for port in (served.process.port, served.admin_port, served.metrics_port):
        listen("127.0.0.1", port).close()
