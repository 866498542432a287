"""`python -m bench.streams`: a thousand streams at once through each server, opened over some seconds and then all in one moment.

Every stream is kept open until all are, so that they really overlap. What a server adds to the first byte is its percentile less that
of the upstream asked directly.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.crowd import End, Seen, ask, over
from bench.load import Conversation
from bench.measure import percentile
from bench.report import table
from bench.servers import Bench, Cores, Server
from bench.transcripts import SMALL, Transcript

STREAMS = 1_000
OPENED_OVER = (5.0, 0.0)  # seconds
MOST_BYTES = 300e6
MOST_ADDED = 3.0  # times what the bare passthrough adds
_GAP_MILLISECONDS = 500
_OPEN_SECONDS = 10.0  # beyond the opening


@dataclass(frozen=True)
class Held:
    """A thousand streams on one server. opened_over, p50, p99: seconds; the latter until the first byte. memory: the most it ever held."""

    server: str
    opened_over: float
    failed: int
    p50: float
    p99: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the report; the exit status is 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description="Many streams at once, next to a bare passthrough.")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(arguments)
    _allow_files(4 * given.streams)
    with tempfile.TemporaryDirectory(prefix="lastcall-bench-") as folder:
        found = _run(Path(folder), given.streams)
    checks = list(_checks(found))
    print(json.dumps([asdict(held) for held in found], indent=2) if given.json else _text(given.streams, found, checks))
    sys.exit(not all(met for _, _, met in checks))


def _allow_files(wanted: int) -> None:
    """Each stream takes a connection of the client and two of the server; children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _run(folder: Path, streams: int) -> list[Held]:
    bench = Bench(folder, Cores.split())
    with ExitStack() as stack:
        upstream = stack.enter_context(bench.upstream())
        servers = [
            upstream,
            stack.enter_context(bench.bare(upstream)),
            stack.enter_context(bench.lastcall("memory", upstream, "memory://")),
        ]
        store = stack.enter_context(bench.redis())
        if store is not None:
            servers.append(stack.enter_context(bench.lastcall("redis", upstream, f"redis://127.0.0.1:{store.port}/0")))
        return [_hold(server, streams, seconds) for seconds in OPENED_OVER for server in servers]


def _hold(server: Server, streams: int, seconds: float) -> Held:
    transcript = Transcript(SMALL, SMALL.turns, stream=True)
    chunks = round((seconds + _OPEN_SECONDS) * 1e3 / _GAP_MILLISECONDS)
    pace = b"x-bench-stream: %d-%d\r\n" % (chunks, _GAP_MILLISECONDS)
    requests = [next(Conversation(transcript, [SMALL.turns], named=True).requests()) for _ in range(streams)]
    work = (ask(server.port, request.replace(b"content-length", pace + b"content-length", 1)) for request in requests)
    seen: list[Seen] = asyncio.run(over(seconds, work, streams))
    firsts = sorted(one.first_byte for one in seen if one.end is End.WHOLE)
    return Held(
        server.name,
        seconds,
        failed=streams - len(firsts),
        p50=percentile(firsts, 50) if firsts else 0.0,
        p99=percentile(firsts, 99) if firsts else 0.0,
        memory=server.most_resident_bytes(),
    )


def _checks(found: Sequence[Held]) -> list[tuple[str, str, bool]]:
    """What was asked for, what was found, and whether that is met."""
    checks = []
    p99 = {(held.server, held.opened_over): held.p99 for held in found}
    for held in found:
        if held.server in ("upstream", "bare"):
            continue
        name = f"{held.server}, opened {_over(held.opened_over)}"
        direct = p99["upstream", held.opened_over]
        ratio = (held.p99 - direct) / max(p99["bare", held.opened_over] - direct, 1e-9)
        checks += [
            (f"{name}: failed, at most 0", f"{held.failed}", held.failed == 0),
            (f"{name}: memory, under {MOST_BYTES / 1e6:.0f} MB", f"{held.memory / 1e6:.0f} MB", held.memory < MOST_BYTES),
            (f"{name}: added first byte p99, under {MOST_ADDED:.0f} x bare", f"{ratio:.2f}", ratio < MOST_ADDED),
        ]
    return checks


def _figures(held: Held) -> list[tuple[float, int]]:
    """Each with the places it is shown to."""
    return [(held.failed, 0), (held.p50 * 1e3, 1), (held.p99 * 1e3, 1), (held.memory / 1e6, 0)]


def _over(seconds: float) -> str:
    return f"over {seconds:.0f} s" if seconds else "at once"


def _text(streams: int, found: Sequence[Held], checks: Sequence[tuple[str, str, bool]]) -> str:
    lines = [[f"{held.server}, {_over(held.opened_over)}", *(f"{value:,.{places}f}" for value, places in _figures(held))] for held in found]
    rows = table([f"{streams:,} streams", "failed", "first byte p50 ms", "p99 ms", "most memory MB"], lines)
    verdicts = table(["target", "found", ""], [[what, value, "met" if met else "MISSED"] for what, value, met in checks])
    return f"{rows}\n\n{verdicts}"


if __name__ == "__main__":
    main()
