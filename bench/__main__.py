"""`python -m bench`: measure requests; `… engine`: the pure core alone; `… sessions`: an operator's looks; `… sizing`: what a Redis needs.

`--json` for programs.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench import memory, peers, report, sizing
from bench.engine import timings
from bench.measure import CASES, FULL, QUICK, rows, run
from bench.servers import Bench, Cores, Server
from bench.sessions import Look, looks

QUICK_SESSIONS = 500


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the report on standard output, progress on standard error."""
    given = _parser().parse_args(arguments)
    if given.what == "engine":
        found = timings()
        print(json.dumps([asdict(timing) for timing in found], indent=2) if given.json else report.engine_text(found))
        return
    if given.what == "sessions":
        seen = _sessions()
        print(json.dumps([asdict(look) for look in seen], indent=2) if given.json else report.sessions_text(seen))
        return
    with tempfile.TemporaryDirectory(prefix="lastcall-bench-") as folder:
        if given.what == "sizing":
            _sizing(Path(folder), given)
            return
        result = _requests(Path(folder), given)
    print(json.dumps(report.document(result), indent=2) if given.json else report.text(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What a request costs in Lastcall.")
    kinds = ("requests", "engine", "sessions", "sizing")
    parser.add_argument("what", nargs="?", choices=kinds, default="requests", help="default: requests")
    parser.add_argument("--quick", action="store_true", help="half a minute instead of three, and figures to match")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--case", default="", help="only cases whose name contains this, as in --case '56 KB, growing'")
    parser.add_argument("--peer", choices=peers.PEERS, action="append", default=[], help="another proxy beside; installed into build/peers")
    fleet = parser.add_argument_group("sizing", "what to reckon with")
    fleet.add_argument("--replicas", type=int, default=sizing.Fleet.replicas)
    fleet.add_argument("--sessions", type=int, default=sizing.Fleet.sessions, help="remembered at once")
    fleet.add_argument("--rate", type=float, default=sizing.Fleet.requests, help="requests a second, of all replicas")
    fleet.add_argument("--seconds", type=float, default=sizing.Fleet.seconds, help="that a call lasts")
    return parser


def _sessions() -> list[Look]:
    with tempfile.TemporaryDirectory(prefix="lastcall-bench-") as folder, Bench(Path(folder), Cores.split()).redis() as store:
        if store is None:
            _told("no redis-server on the PATH: the column is left out")
        urls = {"memory": ("memory://", "memory://")}
        if store is not None:
            urls["redis"] = (f"redis://127.0.0.1:{store.port}/0", f"redis://127.0.0.1:{store.port}/1")
        return looks(urls)


def _requests(folder: Path, given: argparse.Namespace) -> report.Report:
    cores = Cores.split()
    bench = Bench(folder, cores)
    cases = [case for case in CASES if given.case in case.name]
    if not cases:
        sys.exit(f"no case contains {given.case!r}; there are: {'; '.join(case.name for case in CASES)}")
    effort = QUICK if given.quick else FULL
    sessions = QUICK_SESSIONS if given.quick else memory.SESSIONS
    with ExitStack() as stack:
        upstream = stack.enter_context(bench.upstream())
        bare = stack.enter_context(bench.bare(upstream))
        own = stack.enter_context(bench.lastcall("memory", upstream, "memory://"))
        servers, weights = [upstream, bare, own], dict[str, float]()
        store = stack.enter_context(bench.redis())
        shared: Server | None = None
        if store is not None:
            shared = stack.enter_context(bench.lastcall("redis", upstream, f"redis://127.0.0.1:{store.port}/0"))
            servers.append(shared)
        else:
            _told("no redis-server on the PATH: rows with Redis are left out")
        if "litellm" in given.peer:
            try:
                servers.append(stack.enter_context(peers.litellm(bench, folder, upstream)))
            except (peers.Unavailable, RuntimeError) as error:
                _told(f"litellm is left out: {error}")
        os.sched_setaffinity(0, cores.rest)
        samples = run(servers, cases, effort, _told)
        _told("memory of idle sessions")
        with bench.lastcall("memory", upstream, "memory://") as fresh:
            weights["resident"] = memory.resident(fresh, sessions)
        if store is not None and shared is not None:
            weights |= memory.stored(shared, store, sessions)
    return report.Report(list(rows(samples, bare.name)), weights)


def _sizing(folder: Path, given: argparse.Namespace) -> None:
    bench = Bench(folder, Cores.split())
    with bench.upstream() as upstream, bench.redis() as store:
        if store is None:
            sys.exit("no redis-server on the PATH")
        measured = sizing.measure(bench, folder, upstream, store)
    fleet = sizing.Fleet(given.replicas, given.sessions, given.rate, given.seconds)
    print(json.dumps(asdict(measured), indent=2) if given.json else sizing.text(measured, fleet))


def _told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


main()
