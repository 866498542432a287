"""What a log says was done, and what observing would have spared."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from proxy.cli import main
from proxy.events import ExchangeEnded, NudgeEnded
from proxy.models import Action, Reason
from proxy.report import Report, report_of, summary, table
from proxy.telemetry import Telemetry


def exchange(session: str = "s", **fields: Any) -> ExchangeEnded:
    usual: dict[str, Any] = {"lane": 0, "step": 1, "action": Action.ALLOW, "upstream_calls": 1, "input_tokens": 90, "output_tokens": 10}
    return ExchangeEnded(dialect="chat", model="gpt-5", session=session, **(usual | fields))


def logged(*events: ExchangeEnded) -> list[bytes]:
    """The log as the server writes it."""
    lines: list[bytes] = []
    telemetry = Telemetry(CollectorRegistry(), models=(), log=lines.append, clock=lambda: 0.0)
    for event in events:
        telemetry.emit(event)
    return lines


LOOP = {"reason": Reason.REPEATED_CALL, "tool": "ls", "mode": "observe"}
OBSERVED = logged(
    exchange(),
    exchange(action=Action.NUDGE, **LOOP),
    exchange(action=Action.STOP, nudge_ended=NudgeEnded("stopped", nudged=False), **LOOP),
    exchange(mode="observe"),
    exchange(mode="observe"),
    exchange(mode="observe", run=7),
    exchange("other", mode="observe", nudge_ended=NudgeEnded("recovered", nudged=False)),
)


def of(lines: Sequence[bytes]) -> Report:
    return report_of(lines)


def test_observed_stops_say_what_came_after_them() -> None:
    """In the same run: not what the session did before, or after a person spoke again."""
    report = of(OBSERVED)
    (row,) = report.rows
    assert (row.mode, row.reason, row.tools) == ("observe", "repeated_call", ["ls"])
    assert (row.runs, row.nudges, row.stops, row.refusals) == (1, 1, 1, 0)
    assert (row.calls_after, row.tokens_after) == (2, 200)
    assert (report.lines, report.sessions, report.calls, report.tokens) == (7, 2, 7, 700)
    assert (report.untold.recovered, report.untold.stopped, report.told.rate) == (1, 1, None)


def test_what_was_done_is_told_apart() -> None:
    """By mode and reason, the reasons with most stops first."""
    report = of(
        logged(
            exchange(action=Action.STOP, reason=Reason.CYCLE, tool="a", nudge_ended=NudgeEnded("stopped")),
            exchange("2", action=Action.STOP, reason=Reason.CYCLE, tool="b"),
            exchange("3", action=Action.STOP, reason=Reason.CYCLE, tool="b"),
            exchange("4", action=Action.REFUSE, reason=Reason.STEP_BUDGET),
            exchange("5", action=Action.NUDGE, reason=Reason.POLL, nudge_ended=NudgeEnded("recovered")),
        )
    )
    assert [(row.reason, row.stops, row.refusals, row.nudges) for row in report.rows] == [
        ("cycle", 3, 0, 0),
        ("step_budget", 0, 1, 0),
        ("poll", 0, 0, 1),
    ]
    assert report.rows[0].tools == ["b", "a"]
    assert report.told.rate == 0.5


def test_lines_of_others_are_passed_over() -> None:
    """And counted, but for empty ones."""
    report = of([b"GET / 200\n", b"\n", b'{"event":"store_changed","up":true}\n', b"[" * 5000, *OBSERVED])
    assert (report.lines, report.skipped) == (7, 3)
    assert of([]) == Report()


def test_the_summary_says_what_enforcing_would_spare() -> None:
    """In sentences; nothing of it where nothing was observed."""
    said = summary(of(OBSERVED))
    assert "Enforcing would have nudged once and stopped once." in said
    assert "2 model calls and 200 tokens (29% of all)" in said
    assert "Of the runs that reached a nudge and were not told, 50% of 2" in said
    assert summary(of([])) == "0 exchanges of 0 sessions: 0 model calls, 0 tokens."
    none = logged(exchange(action=Action.STOP, input_tokens=0, output_tokens=0, **LOOP))
    assert "0 tokens in the same runs" in summary(of(none))


def test_the_table_has_a_line_for_each_reason() -> None:
    """With numbers to the right."""
    assert table(of(OBSERVED)).row_count == 1


def test_the_command_reads_logs(tmp_path: Path) -> None:
    """Files in their order, or standard input; for people or for programs."""
    (tmp_path / "a.log").write_bytes(b"".join(OBSERVED[:3]))
    (tmp_path / "b.log").write_bytes(b"".join(OBSERVED[3:]))
    files = [str(tmp_path / name) for name in ("a.log", "b.log")]
    shown = CliRunner().invoke(main, ["report", *files])
    assert shown.exit_code == 0
    assert "repeated_call" in shown.stdout
    assert "Enforcing would have" in shown.stdout
    made = json.loads(CliRunner().invoke(main, ["report", "--json", "-"], input=b"".join(OBSERVED)).stdout)
    assert made["rows"][0]["tokens_after"] == 200
    assert CliRunner().invoke(main, ["report", "-"], input=b"").stdout == "0 exchanges of 0 sessions: 0 model calls, 0 tokens.\n"
    other = CliRunner().invoke(main, ["report", "-"], input=b"GET / 200\n")
    assert "1 line passed over: Lastcall's log is what standard error of `lastcall serve` went to." in other.stdout
    assert CliRunner().invoke(main, ["report", "nowhere.log"]).exit_code == 2
