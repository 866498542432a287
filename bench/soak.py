"""`python -m bench.soak --minutes 30`: mixed work at a steady rate, and whether memory stays flat under it.

Most requests belong to conversations that grow, named or not; the others loop into a nudge and a stop, stream, or hang up in
the middle. Sessions are forgotten after a minute, so that as many come as go. Both stores run side by side.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.crowd import End, Seen, ask
from bench.load import Conversation
from bench.report import table
from bench.servers import Bench, Cores, Server
from bench.transcripts import SMALL, Transcript
from bench.upstream import ASKED

RATE = 60.0  # requests a second, on each proxy
MOST_GROWTH = 0.05  # of the memory held after warming up, over the rest of the run
_CONFIG = "session: {{ttl: 60s}}\nupstreams: {{default: {{base_url: {upstream}}}}}\n"
_TURNS = 8
_SAMPLES = 60
_WARM = 1 / 3  # of the run
_FIRST = rb"\r\nx-bench: \1-0"  # the model asks for the first turn's call, whatever turn it is


@dataclass(frozen=True)
class Course:
    """One proxy's run. ends: how its clients fared; actions: what it did. memory: (minutes, bytes) by and by."""

    server: str
    ends: dict[str, int]
    actions: dict[str, int]
    memory: list[tuple[float, int]]

    @property
    def growth(self) -> float:
        """By how much its memory grew over the part of the run that counts, as a share: along the line through all samples."""
        counted = self.memory[int(len(self.memory) * _WARM) :]
        first, last = counted[0][0], counted[-1][0]
        line = statistics.linear_regression([minutes for minutes, _ in counted], [held for _, held in counted])
        return float(line.slope * (last - first) / (line.intercept + line.slope * first))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the report; the exit status is 1 if memory grew, a client met an error, or a loop was not stopped."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Steady work for a long time.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second, default: %(default)g")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lastcall-bench-") as folder, ExitStack() as stack:
        bench = Bench(Path(folder), Cores.split())
        upstream = stack.enter_context(bench.upstream())
        config = Path(folder) / "soak.yaml"
        config.write_text(_CONFIG.format(upstream=upstream.url))
        servers = [stack.enter_context(bench.lastcall("memory", upstream, "memory://", config=config))]
        store = stack.enter_context(bench.redis())
        if store is not None:
            servers.append(stack.enter_context(bench.lastcall("redis", upstream, f"redis://127.0.0.1:{store.port}/0", config=config)))
        courses = asyncio.run(_soak(servers, given.minutes * 60, given.rate))
    checks = list(_checks(courses))
    print(json.dumps([asdict(course) for course in courses], indent=2) if given.json else _text(courses, checks))
    sys.exit(not all(met for _, _, met in checks))


async def _soak(servers: Sequence[Server], seconds: float, rate: float) -> list[Course]:
    return await asyncio.gather(*(_course(server, seconds, rate) for server in servers))


async def _course(server: Server, seconds: float, rate: float) -> Course:
    ends, actions = Counter[str](), Counter[str]()
    memory: list[tuple[float, int]] = []
    begun = time.monotonic()
    under_way = set[asyncio.Task[None]]()

    async def one(conversation: Sequence[tuple[bytes, bool]]) -> None:
        for request, leaves in conversation:
            seen: Seen = await ask(server.port, request, leaves=leaves)
            ends[seen.end] += 1
            actions[seen.action] += 1

    kinds = itertools.cycle([_growing(named=True), _growing(named=False), _streamed(), _looping(), _leaving()])
    sent = 0
    while (now := time.monotonic() - begun) < seconds:
        if now >= len(memory) * seconds / _SAMPLES:
            memory.append((now / 60, server.resident_bytes()))
        if now * rate < sent:
            await asyncio.sleep(sent / rate - now)
            continue
        conversation = next(next(kinds))
        sent += len(conversation)
        task = asyncio.create_task(one(conversation))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    if under_way:
        await asyncio.wait(under_way)
    return Course(server.name, dict(ends), dict(actions), memory)


Work = Iterator[Sequence[tuple[bytes, bool]]]
"""Conversations without an end: requests one after the other, each with whether its client hangs up on it."""


def _growing(*, named: bool) -> Work:
    transcript = Transcript(SMALL, _TURNS)
    while True:
        yield [(request, False) for request in Conversation(transcript, range(_TURNS), named).requests()]


def _streamed() -> Work:
    transcript = Transcript(SMALL, _TURNS, stream=True)
    while True:
        yield [(request, False) for request in Conversation(transcript, range(3), named=True).requests()]


def _leaving() -> Work:
    transcript = Transcript(SMALL, _TURNS, stream=True)
    while True:
        yield [(request, True) for request in Conversation(transcript, [2], named=True).requests()]


def _looping() -> Work:
    transcript = Transcript(SMALL, _TURNS, loops=True)
    while True:
        requests = Conversation(transcript, range(6), named=True).requests()
        yield [(ASKED.sub(_FIRST, request, count=1), False) for request in requests]


def _checks(courses: Sequence[Course]) -> Iterator[tuple[str, str, bool]]:
    for course in courses:
        failed, stops = course.ends.get(End.FAILED, 0), course.actions.get("stop", 0)
        yield f"{course.server}: requests that failed, 0", f"{failed}", failed == 0
        yield f"{course.server}: loops stopped, more than 0", f"{stops}", stops > 0
        yield f"{course.server}: growth of memory, at most {MOST_GROWTH:.0%}", f"{course.growth:.1%}", course.growth <= MOST_GROWTH


def _text(courses: Sequence[Course], checks: Sequence[tuple[str, str, bool]]) -> str:
    parts = []
    for course in courses:
        counted = {**course.ends, **{f"action: {action}": count for action, count in course.actions.items() if action}}
        parts.append(table([course.server, "requests"], [[name, f"{count:,}"] for name, count in counted.items()]))
        lines = [[f"{minutes:.0f}", f"{held / 1e6:.1f}"] for minutes, held in course.memory[:: max(len(course.memory) // 10, 1)]]
        parts.append(table(["minutes", "MB"], lines))
    parts.append(table(["target", "found", ""], [[what, value, "met" if met else "MISSED"] for what, value, met in checks]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
