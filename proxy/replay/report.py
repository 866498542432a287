"""What a replay found, for people and for programs: a row a recording, and the sum of all."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from proxy.amounts import counted
from proxy.replay.document import Fault
from proxy.replay.walk import Act, Mark, Walk

_SHOWN = 3  # marks of one kind in a cell


class Row(msgspec.Struct, frozen=True):
    """One recording and what came of it."""

    file: str
    format: str
    run: str
    walk: Walk


def document(rows: Sequence[Row], faults: Sequence[Fault]) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "runs": [_run(row) for row in rows],
        "total": _total(rows),
        "left_out": [{"file": fault.file, "line": fault.line, "message": fault.message} for fault in faults],
    }


def _run(row: Row) -> dict[str, Any]:
    walk = row.walk
    return {
        "file": row.file,
        "format": row.format,
        "run": row.run,
        "turns": walk.turns,
        "calls": walk.calls,
        "nudges": [msgspec.structs.asdict(mark) for mark in walk.of(Act.NUDGE)],
        "left_out_of_messages": [msgspec.structs.asdict(mark) for mark in walk.of(Act.PRUNE)],
        "texts_mended": [msgspec.structs.asdict(mark) for mark in walk.of(Act.MEND)],
        "stops": [msgspec.structs.asdict(mark) for mark in walk.of(Act.STOP)],
        "tokens": walk.tokens,
        "tokens_saved": walk.saved,
        "tokens_estimated": walk.estimated,
    }


def _total(rows: Sequence[Row]) -> dict[str, int]:
    walks = [row.walk for row in rows]
    return {
        "runs": len(rows),
        "calls": sum(walk.calls for walk in walks),
        "stopped": sum(1 for walk in walks if walk.of(Act.STOP)),
        "nudged": sum(1 for walk in walks if walk.of(Act.NUDGE)),
        "nudged_only": sum(1 for walk in walks if walk.of(Act.NUDGE) and not walk.of(Act.STOP)),
        "tokens": sum(walk.tokens for walk in walks),
        "tokens_saved": sum(walk.saved for walk in walks),
    }


def table(rows: Iterable[Row]) -> Table:
    """A row a recording. Numbers after `at` are calls of the recording, counted from 1."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("run", overflow="fold")
    shown.add_column("calls", justify="right")
    shown.add_column("findings", overflow="fold")
    shown.add_column("nudge at", overflow="fold")
    shown.add_column("stop at", overflow="fold")
    shown.add_column("tokens saved", justify="right")
    for row in rows:
        walk = row.walk
        nudges, stops = _places(walk.of(Act.NUDGE)), _places(walk.of(Act.STOP))
        saved = f"{'~' * walk.estimated}{walk.saved:,}" if walk.of(Act.STOP) else ""
        cells = (row.run, f"{walk.calls:,}", _findings(walk.marks), nudges, stops, saved)
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def _places(marks: Sequence[Mark]) -> str:
    more = f" and {len(marks) - _SHOWN} more" if len(marks) > _SHOWN else ""
    return ", ".join(str(mark.call) for mark in marks[:_SHOWN]) + more


def _findings(marks: Iterable[Mark]) -> str:
    most: dict[tuple[str, str], int] = {}
    for mark in marks:
        found = (mark.reason, mark.tool)
        most[found] = max(mark.count, most.get(found, 0))
    cells = [f"{reason} {tool} x{count}" for (reason, tool), count in most.items()]
    return ", ".join(cells[:_SHOWN]) + (f" and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else "")


def summary(rows: Sequence[Row]) -> str:
    """The sum in a few sentences, with what the numbers mean."""
    total = _total(rows)
    alone = total["runs"] - total["stopped"] - total["nudged_only"]
    lines = [
        f"{counted(total['runs'], 'run')}, {counted(total['calls'], 'call')}: {total['stopped']:,} would be stopped, "
        f"{total['nudged_only']:,} only nudged, {alone:,} left alone."
    ]
    if total["stopped"]:
        stopping = [row.walk for row in rows if row.walk.of(Act.STOP)]
        lines.append(
            f"Tokens: {total['tokens_saved']:,} of {total['tokens']:,} would not be spent"
            + (" (~ estimated from sizes, where the log has no usage)." if any(walk.estimated for walk in stopping) else ".")
        )
    if total["stopped"] or total["nudged_only"]:
        lines.append("After a nudge or a stop the run goes on as recorded: what counts is a run's first stop, and the nudges before it.")
    return "\n".join(lines)
