"""The processes under test and around it: started on loopback and free ports, each held to a core, ended with the benchmark.

What they use of the machine is read from outside: processor time from the process's own clock, memory from /proc. Linux only.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
START_SECONDS = 90.0
_PR_SET_PDEATHSIG = 1
_LASTCALL = (sys.executable, "-c", "from proxy.cli import main; main()")


@dataclass(frozen=True)
class Server:
    """A running server: `name` in the report, its process and its port."""

    name: str
    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of all its threads, to the nanosecond."""
        return time.clock_gettime((~self.pid << 3) | 2)  # what clock_getcpuclockid(3) computes

    def resident_bytes(self) -> int:
        """What it holds of physical memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def most_resident_bytes(self) -> int:
        """The most it ever held."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@dataclass(frozen=True)
class Cores:
    """Where processes run: servers under test on one core, everything else on the others. One core alone is shared."""

    server: frozenset[int]
    rest: frozenset[int]

    @classmethod
    def split(cls) -> "Cores":
        first, *others = sorted(os.sched_getaffinity(0))
        return cls(frozenset({first}), frozenset(others or [first]))


class Bench:
    """Starts servers in one folder. cores: see `Cores`."""

    def __init__(self, folder: Path, cores: Cores) -> None:
        self._folder = folder
        self._cores = cores

    @contextmanager
    def upstream(self) -> Iterator[Server]:
        """The fixed upstream, beside the load."""
        port = free_port()
        with self._running("upstream", [sys.executable, "-m", "bench.upstream", "--port", str(port)], port, self._cores.rest) as server:
            yield server

    @contextmanager
    def bare(self, upstream: Server) -> Iterator[Server]:
        """The bare passthrough."""
        port = free_port()
        command = [sys.executable, "-m", "bench.bare", "--port", str(port), "--upstream", upstream.url]
        with self._running("bare", command, port, self._cores.server) as server:
            yield server

    @contextmanager
    def lastcall(self, name: str, upstream: Server, store: str, *, config: Path | None = None) -> Iterator[Server]:
        """Lastcall with its defaults, or a configuration that names the upstream itself and its key BENCH_KEY, and this store."""
        port = free_port()
        command = [*_LASTCALL, "serve", "--port", str(port), "--store", store]
        command += ["--config", str(config)] if config else ["--upstream", upstream.url]
        with self._running(name, command, port, self._cores.server, {"BENCH_KEY": "sk-upstream"}) as server:
            yield server

    @contextmanager
    def redis(self) -> Iterator[Server | None]:
        """A Redis without persistence, beside the load; None where there is no `redis-server` or `valkey-server`."""
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            yield None
            return
        port = free_port()
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with self._running("redis-server", [binary, "--port", str(port), *options], port, self._cores.rest) as server:
            yield server

    @contextmanager
    def peer(self, name: str, command: Sequence[str], port: int, environment: Mapping[str, str]) -> Iterator[Server]:
        """Another proxy, on the core of the servers under test."""
        with self._running(name, command, port, self._cores.server, environment) as server:
            yield server

    @contextmanager
    def _running(
        self, name: str, command: Sequence[str], port: int, cores: frozenset[int], environment: Mapping[str, str] | None = None
    ) -> Iterator[Server]:
        log = self._folder / f"{name}.{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self._folder,  # no config.yaml here: defaults
                env={**os.environ, "PYTHONPATH": str(REPO), **(environment or {})},
                stdout=output,
                stderr=output,
                preexec_fn=lambda: _settle_in(cores),
            )
        try:
            _wait_for(port, process, name, log)
            yield Server(name, process.pid, port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _settle_in(cores: frozenset[int]) -> None:
    """In the child, before it becomes the server: its cores, and its end when this process dies, however that happens."""
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for(port: int, process: "subprocess.Popen[bytes]", name: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} did not start on port {port}; it said:\n{said}") from None
            time.sleep(0.02)
