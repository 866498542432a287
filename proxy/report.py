"""What Lastcall did, or in observe mode would have done, read back from its own log.

Only lines of exchanges count; every other line is passed over, so that a log mixed with other programs' can be read. A run is what one
lane of one session did after one message of a person: the log names all three.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec
from rich.markup import escape
from rich.table import Table

from proxy.amounts import counted, times
from proxy.models import Action

_TOOLS_SHOWN = 3


class Line(msgspec.Struct, gc=False):
    """What is read of a line: see docs/metrics.md."""

    event: str
    session: str = ""
    lane: int = 0
    run: int = 0
    action: str = "allow"
    reason: str | None = None
    mode: str = "enforce"
    tool: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    upstream_calls: int = 0
    nudge_outcome: str | None = None
    nudged: bool = True


class Row(msgspec.Struct):
    """What one reason came to under one mode. runs: those it acted on. tools: the most frequent, the first the most.

    nudges, stops, refusals: exchanges. calls_after, tokens_after: what its stopped runs went on to spend; enforcing spares that, but for a
    wrap-up each.
    """

    mode: str
    reason: str
    nudges: int = 0
    stops: int = 0
    refusals: int = 0
    runs: int = 0
    calls_after: int = 0
    tokens_after: int = 0
    tools: list[str] = []


class Outcomes(msgspec.Struct):
    """How runs ended that reached a nudge."""

    recovered: int = 0
    stopped: int = 0

    @property
    def rate(self) -> float | None:
        """The share that recovered; None where no run has ended yet."""
        ended = self.recovered + self.stopped
        return self.recovered / ended if ended else None


class Report(msgspec.Struct):
    """lines: exchanges that were read; skipped: lines that are none. told, untold: runs whose model was nudged, and those where it was not.

    untold are runs of the hold-out and under `observe`.
    """

    lines: int = 0
    skipped: int = 0
    sessions: int = 0
    calls: int = 0
    tokens: int = 0
    rows: list[Row] = []
    told: Outcomes = msgspec.field(default_factory=Outcomes)
    untold: Outcomes = msgspec.field(default_factory=Outcomes)


_Run = tuple[str, int, int]
_LINE = msgspec.json.Decoder(Line)


class Reporter:
    """Takes lines one by one, in the order of the log; keeps a few numbers for each run."""

    def __init__(self) -> None:
        self._report = Report()
        self._sessions: set[str] = set()
        self._rows: dict[tuple[str, str], Row] = {}
        self._runs: set[tuple[str, str, _Run]] = set()
        self._tools: dict[tuple[str, str], Counter[str]] = {}
        self._stopped: dict[_Run, Row] = {}

    def take(self, line: bytes) -> None:
        """One line of the log, whatever it holds."""
        try:
            read = _LINE.decode(line)
        except (msgspec.DecodeError, RecursionError):
            self._report.skipped += bool(line.strip())
            return
        if read.event != "exchange_ended":
            self._report.skipped += 1
            return
        self._add(read)

    def report(self) -> Report:
        """What it came to, the reasons with most stops first."""
        report = self._report
        report.sessions = len(self._sessions)
        for key, row in self._rows.items():
            row.tools = [tool for tool, _ in self._tools[key].most_common(_TOOLS_SHOWN)]
        report.rows = sorted(self._rows.values(), key=lambda row: (row.mode, -row.stops - row.refusals, -row.nudges, row.reason))
        return report

    def _add(self, line: Line) -> None:
        report, run = self._report, (line.session, line.lane, line.run)
        tokens = line.input_tokens + line.output_tokens
        report.lines += 1
        report.calls += line.upstream_calls
        report.tokens += tokens
        self._sessions.add(line.session)
        stopped = self._stopped.get(run)
        if stopped is not None and line.mode == stopped.mode:
            stopped.calls_after += line.upstream_calls
            stopped.tokens_after += tokens
        if line.action != Action.ALLOW and line.reason is not None:
            self._act(line, run)
        if line.nudge_outcome is not None:
            ended = report.told if line.nudged and line.mode == "enforce" else report.untold
            ended.recovered += line.nudge_outcome == "recovered"
            ended.stopped += line.nudge_outcome == "stopped"

    def _act(self, line: Line, run: _Run) -> None:
        key = (line.mode, line.reason or "")
        row = self._rows.setdefault(key, Row(*key))
        tools = self._tools.setdefault(key, Counter())
        row.nudges += line.action == Action.NUDGE
        row.stops += line.action == Action.STOP
        row.refusals += line.action == Action.REFUSE
        row.runs += (*key, run) not in self._runs
        self._runs.add((*key, run))
        if line.tool:
            tools[line.tool] += 1
        if line.action == Action.STOP:
            self._stopped.setdefault(run, row)


def report_of(lines: Iterable[bytes]) -> Report:
    """The report on a whole log."""
    reporter = Reporter()
    for line in lines:
        reporter.take(line)
    return reporter.report()


def summary(report: Report) -> str:
    """What it came to, in sentences."""
    said = [
        f"{counted(report.lines, 'exchange')} of {counted(report.sessions, 'session')}: "
        f"{counted(report.calls, 'model call')}, {counted(report.tokens, 'token')}."
    ]
    if report.skipped and not report.lines:
        said.append(f"{counted(report.skipped, 'line')} passed over: Lastcall's log is what standard error of `lastcall serve` went to.")
    observed = [row for row in report.rows if row.mode == "observe"]
    if observed:
        stops, nudges = sum(row.stops for row in observed), sum(row.nudges for row in observed)
        after, tokens = sum(row.calls_after for row in observed), sum(row.tokens_after for row in observed)
        share = f" ({tokens / report.tokens:.0%} of all)" if report.tokens else ""
        said.append(
            f"Enforcing would have nudged {times(nudges)} and stopped {times(stops)}. After these stops came "
            f"{counted(after, 'model call')} and {counted(tokens, 'token')}{share} in the same runs, which it would have spared but for a "
            "wrap-up each."
        )
    said += [
        f"Of the runs {which}, {outcomes.rate:.0%} of {outcomes.recovered + outcomes.stopped} ended with an answer of their own."
        for which, outcomes in (("that were nudged", report.told), ("that reached a nudge and were not told", report.untold))
        if outcomes.rate is not None
    ]
    return "\n".join(said)


def table(report: Report) -> Table:
    """One line for each mode and reason."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("mode", "reason", "most by"):
        made.add_column(name)
    for name in ("runs", "nudges", "stops", "refusals", "calls after", "tokens after"):
        made.add_column(name, justify="right")
    for row in report.rows:
        numbers = (row.runs, row.nudges, row.stops, row.refusals, row.calls_after, row.tokens_after)
        made.add_row(row.mode, row.reason, escape(", ".join(row.tools)), *[f"{number:,}" for number in numbers])
    return made
