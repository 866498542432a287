"""`python -m bench.accuracy [FOLDER]`: how often Lastcall is right, on a folder of recorded runs with some labels.

FOLDER holds recordings (`*.jsonl`, plain or gzip, in any form that `lastcall replay` reads) and perhaps `labels.jsonl`: one object a line
with a run's `id` and its `verdict` (`legit` or `collapse`). Prints Markdown: docs/accuracy.md holds what it said last.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path

from proxy.config import load
from proxy.policy import Policy, policy_of
from proxy.replay.command import replayed
from proxy.replay.formats import Reading, read
from proxy.replay.walk import Act, Mark, Walk

FOLDER = Path("../shared/corpus")
LABELS = "labels.jsonl"
UNREAD = ("intercode_*", "reflexion_*")  # agents of 2023 that loop often: a run without a label is neither work nor collapse there

WAYS = {
    "no_progress": "{}",
    "consecutive": "{policy: {counting: consecutive}}",
    "cumulative": "{policy: {counting: cumulative}}",
    "plain": "{policy: {preset: plain}}",
}


class Kind(StrEnum):
    """What is known of a run: work, by its label or for want of any sign against it; a collapse; or nothing, as nobody has read it."""

    LEGIT = "legit"
    COLLAPSE = "collapse"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Judged:
    """A run and what each way of counting made of it."""

    source: str
    id: str
    kind: Kind
    walks: Mapping[str, Walk]

    def stop(self, way: str) -> Mark | None:
        return next(iter(self.walks[way].of(Act.STOP)), None)

    def nudged_only(self, way: str) -> bool:
        return self.stop(way) is None and bool(self.walks[way].of(Act.NUDGE))


Acted = Callable[[Judged, str], tuple[bool, bool | None]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables, or with `--list` the runs behind them."""
    given = _parser().parse_args(arguments)
    files = recordings_in(given.folder)
    if not files:
        sys.exit(
            f"{given.folder}: no recorded runs there; name a folder that holds *.jsonl or *.jsonl.gz, as in make accuracy RUNS=my/runs"
        )
    runs = judged(files, labels_in(given.folder), given.unread or UNREAD)
    print(listing(runs, given.list) if given.list else short(runs, given.short) if given.short else report(runs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description="How often Lastcall is right on recorded runs.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"default: {FOLDER}")
    parser.add_argument("--unread", action="append", metavar="GLOB", help=f"files whose unlabelled runs nobody has read; default: {UNREAD}")
    parser.add_argument("--list", choices=tuple(WAYS), help="every run that this way of counting stops or nudges, one a line")
    parser.add_argument("--short", choices=tuple(WAYS), help="where each run without a label is stopped, by experiment: number@call")
    return parser


def recordings_in(folder: Path) -> list[Path]:
    """The recordings of a folder, by name."""
    return sorted(path for path in folder.glob("*.jsonl*") if path.name != LABELS)


def labels_in(folder: Path) -> dict[str, Kind]:
    """Verdicts by the id of the run; none where the folder has no labels."""
    path = folder / LABELS
    lines = path.read_text().splitlines() if path.is_file() else []
    found = [json.loads(line) for line in lines if line.strip()]
    return {label["id"]: Kind(label["verdict"]) for label in found}


def judged(files: Iterable[Path], labels: Mapping[str, Kind], unread: Sequence[str]) -> list[Judged]:
    """Every run of every file under every way of counting."""
    policies = {way: policy_of(load(text, {}).policy) for way, text in WAYS.items()}
    return [run for file in files for run in _judged(file, policies, labels, any(fnmatch(file.name, glob) for glob in unread))]


def _judged(file: Path, policies: Mapping[str, Policy], labels: Mapping[str, Kind], unread: bool) -> list[Judged]:
    reading: Reading = read(file.name, file.read_bytes())
    for fault in reading.faults:
        print(fault, file=sys.stderr)
    source = file.name.split(".")[0]
    rows = {way: replayed([reading], policy) for way, policy in policies.items()}
    unlabelled = Kind.UNREAD if unread else Kind.LEGIT
    return [
        Judged(source, recording.id, labels.get(recording.id, unlabelled), {way: rows[way][number].walk for way in policies})
        for number, recording in enumerate(reading.recordings)
    ]


def report(runs: Sequence[Judged]) -> str:
    """The tables, one for each kind of run, and what the default acted on."""
    legit, collapse, unread = ([run for run in runs if run.kind is kind] for kind in Kind)
    return "\n\n".join(
        [
            f"{len(runs):,} runs, {sum(run.walks['no_progress'].calls for run in runs):,} calls.",
            "**Legitimate runs**: stopped (nudged, and not stopped)\n\n" + _table(legit, "legitimate", _acted),
            "**Known collapses**: stopped\n\n" + _table(collapse, "collapses", lambda run, way: (run.stop(way) is not None, None)),
            "**Runs nobody has labelled**: stopped (nudged, and not stopped)\n\n" + _table(unread, "unlabelled", _acted),
            "**Reasons**, counting `no_progress`: runs stopped (nudged, and not stopped)\n\n" + _reasons(runs),
        ]
    )


def _acted(run: Judged, way: str) -> tuple[bool, bool | None]:
    return run.stop(way) is not None, run.nudged_only(way)


def _table(runs: Sequence[Judged], name: str, acted: Acted) -> str:
    sources = sorted({run.source for run in runs})
    rows = [[source, *_cells([run for run in runs if run.source == source], acted)] for source in sources]
    rows.append(["all", *_cells(runs, acted)])
    return _markdown(["source", name, *WAYS], rows)


def _cells(runs: Sequence[Judged], acted: Acted) -> list[str]:
    cells = [f"{len(runs):,}"]
    for way in WAYS:
        found = [acted(run, way) for run in runs]
        nudged = [nudge for _, nudge in found if nudge is not None]
        cells.append(f"{sum(stop for stop, _ in found):,}" + (f" ({sum(nudged):,})" if nudged else ""))
    return cells


def _reasons(runs: Sequence[Judged]) -> str:
    way = "no_progress"
    stopped: Counter[tuple[str, Kind]] = Counter()
    nudged: Counter[tuple[str, Kind]] = Counter()
    for run in runs:
        stop = run.stop(way)
        if stop is not None:
            stopped[stop.reason, run.kind] += 1
        elif run.nudged_only(way):
            nudged[run.walks[way].of(Act.NUDGE)[0].reason, run.kind] += 1
    reasons = sorted({reason for reason, _ in (*stopped, *nudged)})
    rows = [[reason, *(f"{stopped[reason, kind]:,} ({nudged[reason, kind]:,})" for kind in Kind)] for reason in reasons]
    return _markdown(["reason", "legitimate", "collapses", "unlabelled"], rows)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listing(runs: Iterable[Judged], way: str) -> str:
    """A line for each run that was acted on: what is known of it, where it is stopped or else nudged, and why."""
    lines = []
    for run in runs:
        walk = run.walks[way]
        mark = run.stop(way) or next(iter(walk.of(Act.NUDGE)), None)
        if mark is not None:
            lines.append(
                f"{run.source} {run.id} {run.kind} {mark.act} at {mark.call} of {walk.calls}: {mark.reason} {mark.tool} x{mark.count}"
            )
    return "\n".join(lines)


def short(runs: Iterable[Judged], way: str) -> str:
    """The stopped runs that nobody has labelled: a line for all whose ids differ in what follows their last hyphen."""
    lines: dict[str, list[str]] = {}
    for run in runs:
        stop = run.stop(way)
        if run.kind is Kind.UNREAD and stop is not None:
            experiment, _, number = run.id.rpartition("-")
            lines.setdefault(experiment or run.source, []).append(f"{number}@{stop.call}")
    return "\n".join(f"{experiment}: {' '.join(stops)}" for experiment, stops in lines.items())


if __name__ == "__main__":
    main()
