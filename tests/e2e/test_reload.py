"""A configuration that changes while the proxy runs: as a whole or not at all, and no stream is cut."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.keys import digest_of
from tests.agents import Agent
from tests.running import Process, process
from tests.upstreams import STREAM, Asked, Reply, Says, Upstream, chunks, looping, saying

PATIENCE = 20.0


def reloads(served: Process, outcome: str) -> list[dict[str, Any]]:
    """The log lines of what came of reading it again."""
    lines = [json.loads(line) for line in served.stderr().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "config_reloaded" and line["outcome"] == outcome]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - the log of another process
            await asyncio.sleep(0.05)


class File:
    """The configuration of a running proxy."""

    def __init__(self, served: Process) -> None:
        self._path = Path(f"/proc/{served.pid}/cwd").resolve() / "config.yaml"
        self._written = 0

    def write(self, text: str) -> None:
        """Replaces it as an editor or a volume does: at once."""
        self._written += 1
        new = self._path.with_name(f"new-{self._written}")
        new.write_text(text)
        os.replace(new, self._path)


def held(asked: Asked, go: asyncio.Event) -> Reply:
    """A stream that waits for `go` after its first words."""

    async def pieces() -> AsyncIterator[bytes]:
        first, *rest = chunks(Says("one two three"), asked)
        yield first
        await go.wait()
        for piece in rest:
            yield piece

    return Reply(pieces(), headers=STREAM)


@contextmanager
def serving(upstream: str, config: str, workers: int, redis_url: str) -> Iterator[tuple[Process, File]]:
    options = ("--workers", str(workers), "--store", redis_url) if workers > 1 else ()
    with process(upstream, *options, config=config) as served:
        yield served, File(served)


def rules(**policy: Any) -> str:
    return json.dumps({"store": {"timeout": "5s"}, "policy": policy})


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_changed_file_is_in_force_for_new_requests_and_no_stream_is_cut(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, workers: int
) -> None:
    """The stream that began before goes on to its end, under the same process; requests after it go by the new rules."""
    go = asyncio.Event()
    upstream.model = lambda asked: held(asked, go)
    with serving(upstream.url, rules(budgets={"steps": 100}), workers, redis_url) as (served, file):
        processes = served.workers()
        agent = Agent(http, served.v1, stream=True)
        async with http.post(f"{served.v1}/chat/completions", data=agent.payload(), headers=agent.headers) as under_way:
            await under_way.content.readany()
            file.write(rules(budgets={"steps": 7}))
            await until(lambda: len(reloads(served, "applied")) == workers)
            upstream.model = looping()
            after = [await Agent(http, served.v1).ask() for _ in range(6)]
            go.set()
            whole = await under_way.read()

        assert under_way.headers["x-lastcall-step"] == "1/100"
        assert {turn.headers["x-lastcall-step"] for turn in after} == {"1/7"}
        assert b"three" in whole
        assert whole.endswith(b"data: [DONE]\n\n")
        assert served.workers() == processes
        assert reloads(served, "rejected") == []


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_file_that_is_not_valid_changes_nothing_and_says_why(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, workers: int
) -> None:
    """Then a worker that dies comes back with what was valid; and the corrected file is taken."""
    upstream.model = looping()
    with serving(upstream.url, rules(budgets={"steps": 100}), workers, redis_url) as (served, file):
        file.write("policy: {budgets: {steps: -1}, mode: on}\n")
        await until(lambda: len(reloads(served, "rejected")) == workers)
        (cause, *_) = [line["cause"] for line in reloads(served, "rejected")]
        assert "policy.budgets.steps: -1 is negative; use a whole number" in cause
        assert "policy.mode: true is not known here" in cause

        before = served.workers()
        if workers > 1:
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: len(served.workers()) == workers and before[0] not in served.workers())
            await asyncio.to_thread(served.wait_until_live)
        assert {(await Agent(http, served.v1).ask()).headers["x-lastcall-step"] for _ in range(6)} == {"1/100"}

        file.write(rules(budgets={"steps": 5}))
        await until(lambda: len(reloads(served, "applied")) == workers)
        assert {(await Agent(http, served.v1).ask()).headers["x-lastcall-step"] for _ in range(6)} == {"1/5"}
        metrics = await (await http.get(f"{served.url}/metrics")).text()
        assert f'lastcall_config_reloads_total{{outcome="applied"}} {workers}.0' in metrics


@pytest.mark.parametrize("workers", [1, 2])
async def test_sighup_reads_again_at_once(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, workers: int) -> None:
    """Also what has not changed; nobody is restarted."""
    upstream.model = looping()
    with serving(upstream.url, rules(), workers, redis_url) as (served, _):
        processes = served.workers()
        served.send(signal.SIGHUP)
        await until(lambda: len(reloads(served, "unchanged")) == workers)
        assert served.workers() == processes
        assert (await Agent(http, served.v1).ask()).status == 200


async def test_what_only_a_start_can_change_is_refused_as_a_whole(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str) -> None:
    """Not the half of it that could be."""
    upstream.model = looping()
    with serving(upstream.url, rules(budgets={"steps": 100}), 1, redis_url) as (served, file):
        file.write(json.dumps({"store": {"timeout": "5s", "failure_mode": "closed"}, "policy": {"budgets": {"steps": 3}}}))
        await until(lambda: reloads(served, "rejected"))

        assert reloads(served, "rejected")[0]["cause"].startswith("store.failure_mode: changes only with a new start")
        assert (await Agent(http, served.v1).ask()).headers["x-lastcall-step"] == "1/100"


async def test_a_key_that_is_taken_away_is_refused_from_then_on(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str) -> None:
    """And a new team is served and counted; its label is there at once."""

    def teams(**keys: str) -> str:
        given = {name: {"keys": [digest_of(key)]} for name, key in keys.items()}
        return json.dumps({"teams": given})

    upstream.model = looping()
    with serving(upstream.url, teams(red="lc-red"), 1, redis_url) as (served, file):
        agent = Agent(http, served.v1, headers={"x-lastcall-key": "lc-red"})
        assert (await agent.ask()).status == 200
        file.write(teams(blue="lc-blue"))
        await until(lambda: reloads(served, "applied"))

        assert (await agent.ask()).status == 401
        assert (await agent.ask(x_lastcall_key="lc-blue")).status == 200
        metrics = await (await http.get(f"{served.url}/metrics")).text()
        assert 'lastcall_requests_total{action="allow",dialect="chat",outcome="completed",team="blue"} 1.0' in metrics
        assert 'lastcall_stops_total{mode="enforce",reason="cycle",team="blue"} 0.0' in metrics


async def test_a_hundred_reloads_under_load_lose_no_request(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str) -> None:
    """Each answer is whole, whichever rules it began with."""
    upstream.model = lambda asked: saying(Says("one two three"), asked)
    with serving(upstream.url, rules(), 1, redis_url) as (served, file):
        stop = threading.Event()

        def change() -> None:
            for number in range(100):
                file.write(rules(budgets={"steps": 100 + number}))
                served.send(signal.SIGHUP)
                stop.wait(0.02)
            stop.set()

        changing = asyncio.create_task(asyncio.to_thread(change))
        statuses: list[int] = []
        while not stop.is_set():
            turns = await asyncio.gather(*(Agent(http, served.v1, stream=number % 2 == 1).ask() for number in range(8)))
            statuses += [turn.status for turn in turns]
            assert all(turn.text.strip() == "one two three" for turn in turns if turn.status == 200)
        await changing

        assert set(statuses) == {200}
        assert len(statuses) > 50
        assert reloads(served, "rejected") == []
        assert "Traceback" not in served.stderr()
