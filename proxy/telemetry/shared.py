"""The registry behind /metrics: of one process, or of all workers of one server through the files they share.

prometheus_client keeps the values of several processes in one directory, a file for each process and kind of value. What it leaves to its
users is here: whose files these are, and that a gauge goes with its worker.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the directory through which the workers of one server share their counts."""

# prometheus_client chose where values live when it was imported above, and cannot change its mind.
_shared_directory = os.environ.get(DIRECTORY_VARIABLE)


class _Workers:
    """Adds up what all workers of one server wrote to their shared directory."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._files = MultiProcessCollector(None, directory)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        self._forget_dead()
        metrics: Iterable[Metric] = self._files.collect()  # type: ignore[no-untyped-call]
        return metrics

    def _forget_dead(self) -> None:
        """Removes the gauges of workers that died: nothing tells a worker of another's end. Their counters stay, or sums would fall."""
        for file in self._directory.glob("gauge_live*_*.db"):
            if not _alive(int(file.stem.rpartition("_")[2])):
                file.unlink(missing_ok=True)


class _SharedRegistry(CollectorRegistry):
    """The registry of a worker among several: its metrics are read back from the shared files, so registering them changes nothing."""

    def __init__(self, directory: str) -> None:
        super().__init__(support_collectors_without_names=True)
        super().register(_Workers(directory))

    def register(self, collector: Collector) -> None:
        """Ignored: what this worker counts is in the files already and must not appear twice."""


def registry_for(directory: str | None) -> CollectorRegistry:
    """The registry behind /metrics: of this process (None), or of all workers that share `directory`.

    The supervisor makes a fresh, private directory for each start and sets `DIRECTORY_VARIABLE` to it in the environment that its
    workers are born with. Raises `RuntimeError` when it was not set so in this process, since then nothing would be shared.
    """
    if directory is None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        return registry
    if directory != _shared_directory:
        raise RuntimeError(
            f"metrics cannot be shared through {directory!r}: {DIRECTORY_VARIABLE} was {_shared_directory!r} when this process "
            "started; set it in the environment before the workers are started"
        )
    return _SharedRegistry(directory)


class Supervised:
    """What all workers that share `directory` counted, for their supervisor: it counts nothing itself, and outlives each of them."""

    def __init__(self, directory: str) -> None:
        self._registry = _SharedRegistry(directory)

    def settle(self) -> None:
        """Nothing waits here: a worker counts a tenth of a second after the event, by itself."""

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """The body and content type for /metrics; see `exposition`."""
        return exposition(self._registry, accept)


def exposition(registry: CollectorRegistry, accept: str | None) -> tuple[bytes, str]:
    """The body and content type for /metrics. With several workers it reads files for some milliseconds: call it in a thread."""
    try:
        encode, content_type = choose_encoder(accept or "")
    except TypeError:  # a version in `accept` that is no number
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's process
    return True
