"""Faults in the middle of work, and what they cost: run by the tests, and by `python -m tests.faults` for the page of results.

Agents that loop are served by two worker processes and a shared store that counts as a hard limit (`failure_mode: closed`). Something is
broken and mended while they work. What must hold: each run gets the verdicts that it would have got, at the same turn; what the team
settled is what the model charged; and work goes on soon after the cause has ended.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from bench.report import table
from proxy.keys import digest_of
from tests.agents import Agent, Turn
from tests.layouts import redis_behind_sentinels, redis_cluster
from tests.running import Process, process
from tests.servers import missing, redis_server, valkey_server
from tests.upstreams import USAGE, Asked, Upstream, looping, upstream_running

AGENTS = 6
RECOVERY_SECONDS = 5.0
_TOKENS = int(USAGE["total_tokens"])
_LIMIT = 10_000_000
_BEFORE, _LASTING, _AFTER = 1.0, 2.0, 1.0  # seconds of work
_AGAIN_SECONDS = 0.02
_PATIENCE_SECONDS = 40.0
_NUDGED_FROM = 3
_STOPPED_AT = 5
_HOUR = 3_600
_FAKETIME = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1")


@dataclass(frozen=True)
class Scene:
    """What a fault is made of. store: its URL. begin: breaks something; end: mends it, and returns when the cause has ended.

    environ: of the proxy. costs: whether answers may have been charged whose worker did not live to settle them.
    """

    store: str
    begin: Callable[[Process], object]
    end: Callable[[Process], object] = lambda _: None
    environ: dict[str, str] = field(default_factory=dict)
    costs: bool = False


@dataclass(frozen=True)
class Found:
    """What came of it. sent: requests of clients; failed: those that they had to send again.

    recovery: seconds from the end of the cause until every agent had been served again. runs, wrong: ended, and those of them whose
    verdicts were not those of an undisturbed run. charged, settled: tokens, by the model's books and by the team's ledger.
    unsettled: tokens of calls that were under way in a process that was killed, at most.
    """

    fault: str
    sent: int
    failed: int
    recovery: float
    runs: int
    wrong: int
    charged: int
    settled: int
    unsettled: int

    @property
    def lost(self) -> int:
        """Tokens that are missing in the ledger, or there twice."""
        missing = self.charged - self.settled
        return missing if missing < 0 else max(missing - self.unsettled, 0)


async def endure(name: str, *, pace: float = 1.0) -> Found:
    """One fault of `FAULTS`, from undisturbed work to undisturbed work. pace: by which the usual time of each part is multiplied."""
    with FAULTS[name]() as scene:
        async with upstream_running(looping()) as upstream, _http() as http:
            config = {
                "server": {"admin_key": digest_of("operator")},
                "store": {"timeout": "250ms", "failure_mode": "closed"},
                "teams": {"t": {"keys": [digest_of("k")], "budgets": [{"tokens": _LIMIT, "per": "month"}]}},
            }
            options = ("--workers", "2", "--store", scene.store)
            with process(upstream.url, *options, config=json.dumps(config), environ=scene.environ) as proxy:
                return await _endured(name, scene, proxy, upstream, http, pace)


async def _endured(name: str, scene: Scene, proxy: Process, upstream: Upstream, http: aiohttp.ClientSession, pace: float) -> Found:
    workers = [Worker(http, proxy.v1) for _ in range(AGENTS)]
    tasks = [asyncio.create_task(worker.work()) for worker in workers]
    await asyncio.sleep(pace * _BEFORE)
    await asyncio.to_thread(scene.begin, proxy)
    await asyncio.sleep(pace * _LASTING)
    await asyncio.to_thread(scene.end, proxy)
    ended = time.monotonic()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await asyncio.gather(*(worker.served_after(ended) for worker in workers))
    recovery = max(worker.first_after(ended) for worker in workers) - ended
    await asyncio.sleep(pace * _AFTER)
    for worker in workers:
        worker.ends = True
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await asyncio.gather(*tasks)
    failed = sum(worker.failed for worker in workers)
    unsettled = _TOKENS * failed if scene.costs else 0
    charged = _TOKENS * len(upstream.asked)
    settled = await _settled(http, proxy, charged - unsettled)
    runs = [run for worker in workers for run in worker.runs]
    asked = _by_session(upstream.asked)
    return Found(
        name,
        sent=sum(worker.sent for worker in workers),
        failed=failed,
        recovery=recovery,
        runs=len(runs),
        wrong=sum(not _is_right(turns, asked.get(session, [])) for session, turns in runs),
        charged=charged,
        settled=settled,
        unsettled=unsettled,
    )


class Worker:
    """A client with one run after another: an agent whose model always asks for the same, and which insists when it is not served."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._served: list[tuple[float, float]] = []  # when a request that was answered was sent, and when its answer was there
        self._changed = asyncio.Event()
        self.ends = False
        self.sent = self.failed = 0
        self.runs: list[tuple[str, list[Turn]]] = []

    async def work(self) -> None:
        while not self.ends:
            session = f"s-{uuid.uuid4()}"
            headers = {"x-lastcall-key": "k", "x-lastcall-session": session}
            agent = Agent(self._http, self._url, headers=headers, stream=len(self.runs) % 2 == 1, task=session)
            turns = list[Turn]()
            while not turns or turns[-1].calls:
                turn = await self._ask(agent)
                turns.append(turn)
                agent.take(turn)
            self.runs.append((session, turns))

    async def _ask(self, agent: Agent) -> Turn:
        """As often as it takes, like clients that try again."""
        while True:
            self.sent += 1
            began = time.monotonic()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                turn = await agent.ask()
                if turn.status == 200 and turn.message is not None:
                    self._served.append((began, time.monotonic()))
                    self._changed.set()
                    return turn
            self.failed += 1
            await asyncio.sleep(_AGAIN_SECONDS)

    def first_after(self, moment: float) -> float:
        """When the first answer was there to a request that was sent after a moment."""
        return next(done for began, done in self._served if began >= moment)

    async def served_after(self, moment: float) -> None:
        while not any(began >= moment for began, _ in self._served):
            self._changed.clear()
            await self._changed.wait()


def _by_session(asked: list[Asked]) -> dict[str, list[Asked]]:
    """By the task that each history begins with."""
    found: dict[str, list[Asked]] = {}
    for one in asked:
        found.setdefault(one.json["messages"][1]["content"], []).append(one)
    return found


def _is_right(turns: list[Turn], asked: list[Asked]) -> bool:
    """Nudged once, from the request after the third result on, and stopped in place of the fifth call."""
    nudged = all(one.nudges == (1 if one.turn >= _NUDGED_FROM else 0) for one in asked)
    told = [(turn.lastcall or {}).get("action") for turn in turns]
    return nudged and told == [*[None] * (_STOPPED_AT - 1), "stop"]


async def _settled(http: aiohttp.ClientSession, proxy: Process, at_least: int) -> int:
    """What the team's ledger says was spent, once nothing that can be settled is missing, or patience is over."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        async with http.get(f"{proxy.url}/admin/teams/t", headers={"authorization": "Bearer operator"}) as response:
            spent = (await response.json())["spent"]
        tokens = int(spent["input_tokens"] + spent["output_tokens"])
        if tokens >= at_least or time.monotonic() > until:
            return tokens
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _http() -> AsyncIterator[aiohttp.ClientSession]:
    """A connection for each request, so that a worker that is gone is no surprise to the next one."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=timeout) as session:
        yield session


# ---- the faults


@contextmanager
def _nothing() -> Iterator[Scene]:
    with redis_server() as server:
        yield Scene(server.url, lambda _: None)


@contextmanager
def _killed_worker() -> Iterator[Scene]:
    with redis_server() as server:
        yield Scene(server.url, lambda proxy: os.kill(proxy.workers()[0], signal.SIGKILL), costs=True)


@contextmanager
def _hanging_store() -> Iterator[Scene]:
    with redis_server() as server:
        yield Scene(server.url, lambda _: server.pause(), lambda _: server.resume())


@contextmanager
def _killed_store() -> Iterator[Scene]:
    with redis_server() as server:
        yield Scene(server.url, lambda _: server.kill(), lambda _: server.start())


@contextmanager
def _full_disk() -> Iterator[Scene]:
    """No file of the server's may grow. It goes on to read, and refuses to write."""
    with redis_server("--appendfsync", "everysec") as server:

        def limit(size: int) -> None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        yield Scene(server.url, lambda _: limit(1), lambda _: limit(resource.RLIM_INFINITY))


@contextmanager
def _failover() -> Iterator[Scene]:
    """The cause ends when another server has been made the primary."""
    with redis_behind_sentinels() as group:
        primary = group.primary
        yield Scene(group.url, lambda _: primary.kill(), lambda _: group.until_promoted(primary))


@contextmanager
def _lost_node() -> Iterator[Scene]:
    """A primary without a replica, and the same one again."""
    with redis_cluster() as cluster:
        lost = cluster.primaries[-1]
        yield Scene(cluster.url, lambda _: lost.kill(), lambda _: lost.start())


@contextmanager
def _replaced_node() -> Iterator[Scene]:
    """A primary whose replica takes over: the cause ends when it has."""
    with redis_cluster() as cluster:
        yield Scene(cluster.url, lambda _: cluster.primaries[0].kill(), lambda _: cluster.until_taken_over())


def _jump(seconds: int, *, store: bool) -> Callable[[], AbstractContextManager[Scene]]:
    """The wall clock of the store's machine, or of the proxy's, jumps while they run."""

    @contextmanager
    def jump() -> Iterator[Scene]:
        with TemporaryDirectory(prefix="lastcall-clock-") as folder:
            clock = Path(folder) / "clock"
            clock.write_text("+0")
            environ = _clocked(clock)
            # Debian's Redis does not start under faketime: its allocator asks for the time.
            with valkey_server(environ=environ if store else {}) as server:
                yield Scene(server.url, lambda _: clock.write_text(f"{seconds:+d}"), environ={} if store else environ)

    return jump


def _clocked(clock: Path) -> dict[str, str]:
    """Variables under which a program's wall clock is off by what a file says."""
    if not _FAKETIME.exists():
        missing("libfaketime (Debian: faketime)")
    return {
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


FAULTS: dict[str, Callable[[], AbstractContextManager[Scene]]] = {
    "no fault": _nothing,
    "a worker is killed": _killed_worker,
    "the store hangs": _hanging_store,
    "the store is killed and started again": _killed_store,
    "the store's disk is full": _full_disk,
    "the primary is lost, a sentinel promotes another": _failover,
    "a cluster's node is lost and comes back": _lost_node,
    "a cluster's node is lost, its replica takes over": _replaced_node,
    "the proxies' clock jumps an hour ahead": _jump(_HOUR, store=False),
    "the proxies' clock jumps an hour back": _jump(-_HOUR, store=False),
    "the store's clock jumps an hour ahead": _jump(_HOUR, store=True),
    "the store's clock jumps an hour back": _jump(-_HOUR, store=True),
}


def main() -> None:
    """Prints the table; the exit status is 1 if something was lost, changed or slow."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="What faults cost.")
    parser.add_argument("fault", nargs="*", choices=[[], *FAULTS], help="default: all")
    names = parser.parse_args().fault or list(FAULTS)
    found = []
    for name in names:
        sys.stderr.write(f"{name}\n")
        found.append(asyncio.run(endure(name)))
    header = ["fault", "runs", "wrong verdicts", "requests", "sent again", "recovery s", "tokens charged", "settled", "lost"]
    lines = [
        [f.fault, *(f"{value:,}" for value in (f.runs, f.wrong, f.sent, f.failed)), f"{f.recovery:.2f}"]
        + [f"{value:,}" for value in (f.charged, f.settled, f.lost)]
        for f in found
    ]
    sys.stdout.write(table(header, lines) + "\n")
    sys.exit(any(f.wrong or f.lost or f.recovery > RECOVERY_SECONDS for f in found))


if __name__ == "__main__":
    main()
