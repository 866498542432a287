"""The proxy as a whole, running: in a thread of the test process (quick), or as the processes its command line starts (to be killed)."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import uvicorn

import proxy
from proxy.app import _uvicorn_options, create_app
from proxy.config import load
from tests.servers import free_port

START_SECONDS = 30.0
STOP_SECONDS = 10.0
PATIENCE = "5s"  # with the store, where a test does not say otherwise: a busy machine must not look like an outage


@dataclass
class Proxy:
    """A running proxy: where it listens, and its log so far. v1: the base URL that a client is given."""

    url: str
    log: list[bytes] = field(default_factory=list)

    @property
    def v1(self) -> str:
        return self.url + "/v1"

    def exchanges(self) -> list[dict[str, Any]]:
        """The log lines of judged exchanges."""
        lines = [json.loads(line) for line in self.log]
        return [line for line in lines if line["event"] == "exchange_ended"]


class _Server(uvicorn.Server):
    """Notices at once that it is to end, and not at the next tenth of a second."""

    async def main_loop(self) -> None:
        while not self.should_exit:  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    upstream: str, config: str = "{}", *, store: str | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Proxy]:
    """The proxy in a thread, in front of `upstream` (its base URL). Leaving takes an exchange that is still under way for a fault.

    env: the variables that the configuration may name.
    """
    overrides: dict[tuple[str, ...], object] = {("upstreams", "default", "base_url"): upstream}
    if store is not None:
        overrides["store", "url"] = store
        if "timeout" not in config:
            overrides["store", "timeout"] = PATIENCE
    resolved = load(config, env or {}, overrides)
    log: list[bytes] = []
    server = _Server(
        uvicorn.Config(
            create_app(resolved, environ={}, log=lambda lines: log.extend(lines.splitlines(keepends=True))), **_uvicorn_options(resolved)
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the proxy ended before it had started"
                await asyncio.sleep(0.005)
            yield Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}", log)
        finally:
            server.should_exit = True
            await asyncio.to_thread(thread.join, STOP_SECONDS)
            stuck = thread.is_alive()
            if stuck:
                server.force_exit = True
                await asyncio.to_thread(thread.join, STOP_SECONDS)
        assert not stuck, "an exchange was still under way when the proxy was to stop"


class Process:
    """`lastcall serve` as its own process group. Its folder holds the configuration and standard error. environ: further variables."""

    def __init__(self, folder: Path, upstream: str, config: str, options: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.v1 = self.url + "/v1"
        self._folder = folder
        self._environ = dict(environ)
        (folder / "config.yaml").write_text(config)
        self._command = [
            *(sys.executable, "-c", "from proxy.cli import main; main()", "serve"),
            *("--port", str(self.port), "--upstream", upstream, *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._written = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "the proxy is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert proxy.__file__ is not None
        self._written = len(self.stderr())
        environ = os.environ | {"PYTHONPATH": str(Path(proxy.__file__).parent.parent)} | self._environ
        with (self._folder / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=environ, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
            )
        self.wait_until_live()

    def wait_until_live(self) -> None:
        """Until /livez answers."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_live():
            ended = self._process is None or self._process.poll() is not None
            assert not ended and time.monotonic() < deadline, f"the proxy did not start:\n{self.stderr()}"
            time.sleep(0.02)

    def _is_live(self) -> bool:
        try:
            with urlopen(f"{self.url}/livez", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """End it with its workers at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has ended, and all its workers
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def terminate(self) -> None:
        """Ask it to end."""
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def ended(self, within: float) -> int:
        """The exit status, once it has ended. Raises `TimeoutExpired`."""
        assert self._process is not None
        return self._process.wait(within)

    def workers(self) -> list[int]:
        """Process ids of the children that serve."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def wait_for_log(self, text: str) -> None:
        """Until the process that runs now has written something."""
        deadline = time.monotonic() + STOP_SECONDS
        while text not in self.stderr()[self._written :]:
            assert time.monotonic() < deadline, f"{text!r} is not in the log"
            time.sleep(0.01)

    def stderr(self) -> str:
        """All that it has written."""
        path = self._folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def process(
    upstream: str, *options: str, config: str = f"store: {{timeout: {PATIENCE}}}", environ: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """`lastcall serve` in front of `upstream`, started. options: further arguments. environ: further variables."""
    with TemporaryDirectory(prefix="lastcall-proxy-", ignore_cleanup_errors=True) as folder:
        served = Process(Path(folder), upstream, config, options, environ or {})
        try:
            served.start()
            yield served
        finally:
            served.kill()
