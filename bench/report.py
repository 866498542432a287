"""The report: tables for people, one JSON document for programs, and what was asked for beside what was found."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.engine import Timing
from bench.measure import Row, Spread
from bench.sessions import Look

RECORD_LIMIT = 16_384
_CPU = ("to bare", "rounds")  # behind the microseconds
_LATENCY = ("p50 ms", "+p50 ms", "+p99 ms")
_STREAM_LATENCY = ("p50 ms", "+first ms", "+chunk p50 ms", "+chunk p99 ms")
_NOT_KEPT = "pace not kept"
_HEADLINE, _LARGE = "56 KB, growing, named", "450 KB, growing, named"


@dataclass(frozen=True)
class Report:
    """Everything one run found. memory: bytes per idle session, in the proxy itself and by kind of key in Redis."""

    rows: Sequence[Row]
    memory: dict[str, float]


@dataclass(frozen=True)
class Target:
    """A limit that was set, and what was found; both in `unit`. found: None if it could not be measured, which meets nothing."""

    what: str
    found: float | None
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        return self.found is not None and self.found <= self.limit


def targets(report: Report) -> Iterator[Target]:
    """The limits that this run can speak about."""
    found = {(row.case, row.server): row for row in report.rows}
    headlines = [case for case in dict.fromkeys(row.case for row in report.rows) if case.startswith(_HEADLINE)]
    limits = [(case, server, limit) for case in headlines for server, limit in (("memory", 2.0), ("redis", 3.0))]
    limits.append((_LARGE, "memory", 2.0))
    for case, server, limit in limits:
        row = found.get((case, server))
        if row is not None and row.ratio is not None:
            yield Target(f"processor time, as fast as it can, {case}, {server}", row.ratio.median, limit, "x bare")
    for case, server, limit in limits:
        row = found.get((case, server))
        if row is not None and row.rate is not None:
            ratio = row.paced_ratio
            yield Target(f"processor time, {_rate(row.rate)}, {case}, {server}", None if ratio is None else ratio.median, limit, "x bare")
    row = found.get((_HEADLINE, "memory"))
    if row is not None and row.added_p99 is not None:
        yield Target(f"added latency p99, {_HEADLINE}, memory", row.added_p99.median * 1e3, 1.0, "ms")
    resident = report.memory.get("resident")
    if resident is not None:
        yield Target("idle session in the proxy", resident, RECORD_LIMIT, "bytes")
    stored = [weight for kind, weight in report.memory.items() if kind != "resident"]
    if stored:
        yield Target("idle session in Redis", sum(stored), RECORD_LIMIT, "bytes")


def text(report: Report) -> str:
    """For people."""
    parts = [_case(case, [row for row in report.rows if row.case == case]) for case in dict.fromkeys(row.case for row in report.rows)]
    if report.memory:
        weights = [[f"redis, {kind}" if kind != "resident" else "in the proxy", f"{weight:,.0f}"] for kind, weight in report.memory.items()]
        parts.append(table(["idle session of 20 calls", "bytes"], weights))
    checks = [[t.what, _found(t), f"{t.limit:,.0f}", t.unit, "met" if t.met else "MISSED"] for t in targets(report)]
    parts.append(table(["target", "found", "limit", "", ""], checks))
    return "\n\n".join(parts)


def document(report: Report) -> dict[str, Any]:
    """For programs; times in seconds."""
    checks = [asdict(target) | {"met": target.met} for target in targets(report)]
    return {"rows": [asdict(row) for row in report.rows], "memory_bytes": report.memory, "targets": checks}


def engine_text(timings: Sequence[Timing]) -> str:
    """Steps down, lengths across, in microseconds."""
    lengths = list(dict.fromkeys(timing.calls for timing in timings))
    found = {(timing.step, timing.calls): timing.median for timing in timings}
    steps = list(dict.fromkeys(timing.step for timing in timings))
    lines = [[step, *(f"{found[step, length] * 1e6:,.1f}" for length in lengths)] for step in steps]
    return table(["µs", *(f"{length:,} calls" for length in lengths)], lines)


def sessions_text(looks: Sequence[Look]) -> str:
    """Looks down, stores across, in milliseconds."""
    stores = list(dict.fromkeys(look.store for look in looks))
    found = {(look.what, look.store): f"{look.median * 1e3:,.2f} ({look.worst * 1e3:,.1f})" for look in looks}
    lines = [[what, *(found[what, store] for store in stores)] for what in dict.fromkeys(look.what for look in looks)]
    return table(["ms, median (worst)", *stores], lines)


def _case(name: str, rows: Sequence[Row]) -> str:
    streamed = any(row.added_chunk_p50 is not None for row in rows)
    rate = rows[0].rate
    paced = [] if rate is None else [f"cpu µs, {_rate(rate)}", *_CPU]
    lines = [
        [
            row.server,
            *_cpu(row.cpu, row.ratio),
            *([] if rate is None else _cpu(row.paced_cpu, row.paced_ratio)),
            *map(_milliseconds, (row.p50, *_added(row, streamed=streamed))),
        ]
        for row in rows
    ]
    return table([name, "cpu µs", *_CPU, *paced, *(_STREAM_LATENCY if streamed else _LATENCY)], lines)


def _added(row: Row, *, streamed: bool) -> list[Spread | None]:
    return [row.added_first_p50, row.added_chunk_p50, row.added_chunk_p99] if streamed else [row.added_p50, row.added_p99]


def _cpu(cpu: Spread | None, ratio: Spread | None) -> list[str]:
    shown = ["", ""] if ratio is None else [f"{ratio.median:.2f}", f"{ratio.least:.2f} to {ratio.most:.2f}"]
    return [_NOT_KEPT if cpu is None else f"{cpu.median * 1e6:,.0f}", *shown]


def _found(target: Target) -> str:
    return _NOT_KEPT if target.found is None else f"{target.found:,.2f}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s"


def _milliseconds(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median * 1e3:,.2f}"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the rest to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *lines, strict=True)]
    shown = []
    for line in (header, *lines):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        shown.append("  ".join(cells).rstrip())
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])
