"""What sessions and requests cost a Redis, measured, and what that comes to for a fleet: the figures of docs/stores.md.

A real Redis hears a real Lastcall serve conversations that grow by a turn with each request. What the server counts itself (commands,
bytes, processor time, memory) is read before and after.
"""

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import redis

from bench import memory
from bench.load import Conversation, converse
from bench.servers import Bench, Server
from bench.transcripts import Shape, Transcript
from proxy.purse import LEASE_SECONDS
from proxy.store import Account, Ceiling, Reservation, Unit, open_store

LENGTHS = (1, 20, 80)
_USUAL = 20
_REQUESTS = 1_600  # of each kind and length
_CONNECTIONS = 8
_RARE = 0.01  # commands a request that are not worth a word
_SECONDS = 300.0
_SHAPE = Shape("short results", turns=max(LENGTHS), tools=2, system_bytes=200, result_bytes=200)
_PASSING = ("settled", "leases")  # kinds of keys that outlive a call by minutes
_ASKED = ("evalsha", "eval", "set", "get", "mget", "hgetall")  # commands that no script sends: a client did
_TEAM = """
upstreams: {{default: {{base_url: "{upstream}", api_key: "${{BENCH_KEY}}"}}}}
teams:
  bench:
    keys: ["sha256:{digest}"]
    budgets: [{{tokens: 1000000000, per: day}}, {{cost_usd: 100000, per: month}}]
prices: {{"*": {{input: 1.0, output: 2.0}}}}
"""


@dataclass(frozen=True)
class Cost:
    """What one kind of session costs the server. commands: a client's, per request, by name. micros: of one core, per request. sent,
    received: bytes per request, by the server. busy, idle: bytes of memory per session, by how many calls it made, while it is used and
    once its settlements need not be remembered any more, its share of what a team has included."""

    kind: str
    commands: dict[str, float]
    micros: float
    sent: float
    received: float
    busy: dict[int, float]
    idle: dict[int, float]


@dataclass(frozen=True)
class Measured:
    """costs: by kind of session. renewal: microseconds of one core to renew the lease of a call that a team pays for. listed: bytes of a
    session in the index, which is one key."""

    costs: Sequence[Cost]
    renewal: float
    listed: float


@dataclass(frozen=True)
class Fleet:
    """What is planned for. sessions: remembered at once. requests: a second, all together. seconds: that a call lasts. ready: the share of
    a core to plan with."""

    replicas: int = 1_000
    sessions: int = 1_000_000
    requests: float = 20_000.0
    seconds: float = 20.0
    ready: float = 0.5


def measure(bench: Bench, folder: Path, upstream: Server, store: Server) -> Measured:
    """Of sessions that name themselves, that are found by their history, and that a team pays for."""
    team = folder / "team.yaml"
    team.write_text(_TEAM.format(upstream=upstream.url, digest=sha256(b"sk-bench").hexdigest()))
    url = f"redis://127.0.0.1:{store.port}/0"
    costs = []
    for kind, named, config in (("named", True, None), ("derived", False, None), ("named, with a team", True, team)):
        with bench.lastcall(f"sizing {kind}", upstream, url, config=config) as proxy:
            costs.append(_cost(kind, proxy, store, named=named))
    with redis.Redis(port=store.port) as client:
        listed = (client.memory_usage("lastcall:sessions", samples=0) or 0) / max(client.zcard("lastcall:sessions"), 1)
    return Measured(costs, asyncio.run(_renewal(url, store)), listed)


async def _renewal(url: str, server: Server) -> float:
    """Of calls that a team pays for, one after the other."""
    client = redis.Redis(port=server.port, decode_responses=True)
    store = open_store(url, clock=time.time, random_bytes=os.urandom, timeout=10.0)
    team = Account(b"team", (Ceiling(Unit.TOKENS, 10**12),), team=True)
    leases = [os.urandom(8).hex() for _ in range(_REQUESTS)]
    for lease in leases:
        await store.open(lease[:8].encode(), Reservation(lease, 1, 4_000, 1_000, 500, 200, 100, 60.0, accounts=(team,)), 3_600.0)
    before = _counted(client)["cpu"]
    for lease in leases:
        await store.renew(lease[:8].encode(), lease, [team], 60.0)
    spent = _counted(client)["cpu"] - before
    await store.close()
    client.close()
    return spent / len(leases) * 1e6


def _cost(kind: str, proxy: Server, store: Server, *, named: bool) -> Cost:
    busy, idle, usual = dict[int, float](), dict[int, float](), dict[str, float]()
    for length in LENGTHS:
        counted, weights = _seen(proxy, store, length, named=named)
        sessions = _REQUESTS // length
        busy[length] = weights.total() / sessions
        idle[length] = sum(weight for part, weight in weights.items() if part not in _PASSING) / sessions
        if length == _USUAL:
            usual = counted
    commands = {name: usual[name] for name in _ASKED if usual[name]}
    return Cost(kind, commands, usual["cpu"] * 1e6, usual["sent"], usual["received"], busy, idle)


def _seen(proxy: Server, store: Server, length: int, *, named: bool) -> tuple[dict[str, float], Counter[str]]:
    """What the server counted, per request, and what it holds in the end, by kind of key."""
    client = redis.Redis(port=store.port, decode_responses=True)
    transcript = Transcript(_SHAPE, length)
    # Scripts and connections are there from the start.
    converse(proxy.port, [Conversation(transcript, [1], named=named) for _ in range(_CONNECTIONS)], _CONNECTIONS, _SECONDS)
    client.flushall()
    before = _counted(client)
    sessions = [Conversation(transcript, range(1, length + 1), named=named) for _ in range(_REQUESTS // length)]
    made = sum(map(len, converse(proxy.port, sessions, _CONNECTIONS, _SECONDS)))
    after = _counted(client)
    client.close()
    with redis.Redis(port=store.port) as plain:
        weights = memory.by_kind(plain)
    return {name: (after[name] - before[name]) / made for name in after}, weights


def _counted(client: "redis.Redis") -> dict[str, float]:
    info: dict[str, Any] = client.info("everything")
    counted = {name: float(info.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in _ASKED}
    return counted | {
        "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
        "sent": float(info["total_net_output_bytes"]),
        "received": float(info["total_net_input_bytes"]),
    }


def planned(measured: Measured, fleet: Fleet) -> Iterator[tuple[str, str]]:
    """What the fleet needs, where the dearest kind is all there is."""
    dearest = max(measured.costs, key=lambda cost: cost.micros)
    idle = max(cost.idle[_USUAL] for cost in measured.costs)
    longest = max(cost.idle[LENGTHS[-1]] for cost in measured.costs)
    under_way = fleet.requests * fleet.seconds
    renewals = 3 * under_way / LEASE_SECONDS
    cores = (fleet.requests * dearest.micros + renewals * measured.renewal) / 1e6
    named, *_, team = (cost.micros for cost in measured.costs)
    yield "calls under way", f"{under_way:,.0f}, {under_way / fleet.replicas:,.0f} a replica"
    yield f"memory, {_USUAL} calls a session", f"{fleet.sessions * idle / 2**30:,.1f} GiB"
    yield f"memory, {LENGTHS[-1]} calls a session", f"{fleet.sessions * longest / 2**30:,.1f} GiB"
    yield "of it in one key, the list of sessions", f"{fleet.sessions * measured.listed / 2**20:,.0f} MiB"
    yield "commands a second, renewals of leases among them", f"{fleet.requests * sum(dearest.commands.values()) + 2 * renewals:,.0f}"
    yield "network, both ways", f"{fleet.requests * (dearest.sent + dearest.received) * 8 / 1e6:,.0f} Mbit/s"
    yield "processor time", f"{cores:,.1f} cores"
    yield f"servers, each planned at {fleet.ready:.0%} of its core", f"{math.ceil(cores / fleet.ready):,}"
    yield "requests a second that one server takes", f"{1e6 / dearest.micros * fleet.ready:,.0f}"
    yield "requests a second that one team's ledger takes", f"{1e6 / max(team - named, 1.0) * fleet.ready:,.0f}"
    yield "connections to each server, with max_connections=8", f"{8 * fleet.replicas:,} at most"
    yield "tries a second while all is away", f"{fleet.replicas:,}"


def text(measured: Measured, fleet: Fleet) -> str:
    """For people: two tables."""
    columns = ["sessions", "commands a request", "server µs a request", "bytes in", "bytes out"]
    columns += [f"bytes after {length} calls, idle (busy)" for length in LENGTHS]
    lines = [_row(columns), _row(["---"] * len(columns))]
    for cost in measured.costs:
        commands = ", ".join(f"{count:.2f} {name}" for name, count in cost.commands.items() if count >= _RARE)
        weights = [f"{cost.idle[length]:,.0f} ({cost.busy[length]:,.0f})" for length in LENGTHS]
        lines.append(_row([cost.kind, commands, f"{cost.micros:,.0f}", f"{cost.received:,.0f}", f"{cost.sent:,.0f}", *weights]))
    lines.append(f"\nA renewal of a lease that a team pays for: {measured.renewal:,.0f} µs.\n")
    titles = f"{fleet.replicas:,} replicas, {fleet.sessions:,} sessions, {fleet.requests:,.0f} requests a second of {fleet.seconds:g} s"
    lines += [_row([titles, ""]), _row(["---", "---"])]
    return "\n".join([*lines, *(_row(line) for line in planned(measured, fleet))])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
