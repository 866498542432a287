"""Several workers behind one /metrics: their sums, and what becomes of a worker that died."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from proxy import __version__
from proxy.telemetry import DIRECTORY_VARIABLE, Supervised, registry_for, shared
from tests.counted import Seen, samples_of, spelled

ROOT = Path(__file__).parents[3]
REQUESTS = "requests_total{action=allow,dialect=chat,outcome=completed}"


def test_sharing_is_refused_where_nothing_would_be_shared(tmp_path: Path) -> None:
    """The variable must have been set before the process started; the error names it, its value and the fix."""
    with pytest.raises(RuntimeError, match=f"{DIRECTORY_VARIABLE} was None when this process started; set it"):
        registry_for(str(tmp_path))


WORKER = """
import os, sys, time
from proxy.events import ExchangeEnded
from proxy.models import Action
from proxy.telemetry import DIRECTORY_VARIABLE, Telemetry, registry_for

telemetry = Telemetry(registry_for(os.environ[DIRECTORY_VARIABLE]), models=[], log=len, clock=time.time)
telemetry.exchange_started()
for _ in range(int(sys.argv[1])):
    telemetry.emit(ExchangeEnded(dialect="chat", model="m", session="s", lane=0, step=1, action=Action.ALLOW, overhead_seconds=0.25))
print("ready", flush=True)
for _ in sys.stdin:
    body, _ = telemetry.exposition(None)
    print(body.decode() + "# end", flush=True)
"""


class Worker:
    """One worker process that has `count` exchanges behind it and one under way."""

    def __init__(self, directory: Path, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(count)],
            env={**os.environ, DIRECTORY_VARIABLE: str(directory)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def scrape(self) -> dict[str, float]:
        """Every series with its value; none may be there twice."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("scrape\n")
        self.process.stdin.flush()
        text = "".join(iter(self.process.stdout.readline, "# end\n"))
        samples = {spelled(series): value for series, value in samples_of(text).items()}
        assert len(samples) == sum(1 for line in text.splitlines() if line and not line.startswith("#"))
        return samples

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def workers(directory: Path, counts: list[int]) -> Iterator[list[Worker]]:
    """One process for each count, ended by the end of the block."""
    running: list[Worker] = []
    try:
        for count in counts:
            running.append(Worker(directory, count))
        yield running
    finally:
        for worker in running:
            worker.kill()


BELOW_A_SECOND = "overhead_seconds_bucket{dialect=chat,le=1.0,streamed=false}"


def test_any_of_four_workers_answers_with_the_sum_of_all(tmp_path: Path) -> None:
    """Counters, histograms and gauges add up; a worker killed takes its gauge along and leaves its counts."""
    with workers(tmp_path, [1, 2, 3, 4]) as running:
        for worker in running:
            seen = worker.scrape()
            assert (seen[REQUESTS], seen["in_flight{}"], seen["store_up{}"]) == (10, 4, 1)
            assert (seen[BELOW_A_SECOND], seen["overhead_seconds_sum{dialect=chat,streamed=false}"]) == (10, 2.5)
            assert seen[f"build_info{{version={__version__}}}"] == 1
            assert not [name for name in seen if "pid=" in name or "_created" in name]
        running[0].kill()
        seen = running[1].scrape()
        assert (seen[REQUESTS], seen["in_flight{}"]) == (10, 3)


def series(supervised: Supervised) -> dict[str, float]:
    return {spelled(one): value for one, value in samples_of(supervised.exposition(None)[0].decode()).items()}


def test_the_supervisor_tells_what_its_workers_counted(tmp_path: Path) -> None:
    """Without being one of them, and after their end too."""
    with workers(tmp_path, [1, 2]):
        supervised = Supervised(str(tmp_path))
        supervised.settle()
        seen = series(supervised)
        assert (seen[REQUESTS], seen["in_flight{}"]) == (3, 2)
    seen = series(supervised)
    assert seen[REQUESTS] == 3
    assert "in_flight{}" not in seen


def test_a_worker_shows_the_same_series_as_a_single_process(tmp_path: Path) -> None:
    """Several workers change how values are kept, not what is there to query."""
    with workers(tmp_path, [0]) as [worker]:
        shared = set(worker.scrape())
    assert shared == {spelled(series) for series in Seen(models=(), tools=()).at_start}


def test_gauges_stay_as_long_as_their_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that runs is alive, also one that may not be signalled; one that is gone is forgotten."""
    monkeypatch.setattr(shared, "_shared_directory", str(tmp_path))
    registry = registry_for(str(tmp_path))
    with workers(tmp_path, [1]), monkeypatch.context() as patched:
        assert registry.get_sample_value("lastcall_in_flight") == 1
        patched.setattr(os, "kill", Mock(side_effect=PermissionError))
        assert registry.get_sample_value("lastcall_in_flight") == 1
        patched.setattr(os, "kill", Mock(side_effect=ProcessLookupError))
        assert registry.get_sample_value("lastcall_in_flight") is None
