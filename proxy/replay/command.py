"""`lastcall replay`: opens the files, replays what they hold, prints what came of it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from proxy.policy import Policy
from proxy.replay.document import Fault
from proxy.replay.formats import Reading, read
from proxy.replay.report import Row, document, summary, table
from proxy.replay.walk import Act, prints_for, walk

STDIN = "-"
_WIDE = 200  # columns where the output is no terminal


def run(files: Sequence[str], policy: Policy, *, every: bool, as_json: bool) -> int:
    """Prints the table, or JSON, on standard output and what was left out on standard error.

    Gives the exit status: 0 nothing would stop, 1 something would, 2 a file held no recording. every: show runs left alone too. Raises
    `OSError` for a file that cannot be read.
    """
    readings = [read("standard input" if name == STDIN else name, _bytes_of(name)) for name in files]
    rows = replayed(readings, policy)
    faults = [fault for reading in readings for fault in reading.faults]
    if as_json:
        print_json(rows, faults)
    else:
        print_table(rows, faults, every=every)
    if any(not reading.recordings for reading in readings):
        return 2
    return int(any(row.walk.of(Act.STOP) for row in rows))


def replayed(readings: Sequence[Reading], policy: Policy) -> list[Row]:
    """One row a recording."""
    prints = prints_for(policy)
    return [
        Row(reading.file, reading.format or "", recording.id, walk(recording, policy, prints))
        for reading in readings
        for recording in reading.recordings
    ]


def print_json(rows: Sequence[Row], faults: Sequence[Fault]) -> None:
    sys.stdout.write(json.dumps(document(rows, faults), indent=2) + "\n")


def print_table(rows: Sequence[Row], faults: Sequence[Fault], *, every: bool) -> None:
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    shown = [row for row in rows if every or row.walk.marks]
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    if shown:
        console.print(table(shown))
        console.print()
    if rows:
        console.print(summary(rows), highlight=False, soft_wrap=True)


def _bytes_of(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
