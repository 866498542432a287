"""The supervisor of several worker processes: keeps them alive, and tells them when the configuration has changed."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from threading import Event, Thread

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from proxy.config import Config, dump
from proxy.errors import ConfigError
from proxy.source import Watch

CONFIG_VARIABLE = "LASTCALL_RESOLVED_CONFIG"
"""Environment variable with the configuration that a worker is born with."""

HUNG_SECONDS = 60
"""For so long a worker's event loop may do nothing at all. The hardest request of the largest body keeps it for some seconds."""

_LAST_WORD_TICKS = 5  # for a line of the log, which a full pipe may hold up for a second

_log = logging.getLogger("lastcall")

# Ctrl-C reaches workers too, and would break into their imports; a reload before they can take it would end them.
_HELD_BACK = {signal.SIGINT, signal.SIGHUP}


class Workers(Multiprocess):
    """uvicorn's supervisor, with another idea of SIGHUP: workers are told to read again, and not replaced, which would cut streams.

    reread: see `Reloader`. What is valid is handed to workers that are born later; each living one reads for itself.
    """

    def __init__(
        self,
        options: uvicorn.Config,
        sockets: list[socket.socket],
        *,
        config: Config,
        reread: Callable[[Config], Config | None],
        watch: Watch,
    ) -> None:
        super().__init__(options, sockets)
        self._in_force = config
        self._reread = reread
        self._watch = watch
        os.environ[CONFIG_VARIABLE] = dump(config)

    @property
    def failed(self) -> bool:
        """Whether a worker could not start, which ends all of them."""
        return any(process.exitcode == STARTUP_FAILURE for process in self.processes)

    def init_processes(self) -> None:
        resource_tracker.ensure_running()  # now: its start, which comes with the first worker, ends by letting SIGINT through
        with _held_back():
            super().init_processes()

    def keep_subprocess_alive(self) -> None:
        if self._watch.changed():
            self._tell()
        before = list(self.processes)
        with _held_back():
            super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old is not new:
                _log.warning("worker %s ended (%s) and was replaced by %s", old.pid, old.exitcode, new.pid)

    def handle_hup(self) -> None:
        self._watch.seen()
        self._tell()

    def _tell(self) -> None:
        with suppress(ConfigError):  # each worker finds out for itself, and says so
            config = self._reread(self._in_force)
            if config is not None:
                self._in_force = config
                os.environ[CONFIG_VARIABLE] = dump(config)
        for process in self.processes:
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)


def end_with_supervisor() -> None:
    """In a worker: once the supervisor is gone, however it ended, end in good order, so that its port is free again."""
    supervisor = parent_process()
    if supervisor is not None:
        Thread(target=_end_after, args=(supervisor.sentinel,), name="supervisor", daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def ended_if_hung(tell: Callable[[], object], *, kill: Callable[[], object] | None = None, tick: float = 1.0) -> Iterator[None]:
    """In a worker, around the life of its event loop: ends the process once the loop has done nothing for `HUNG_SECONDS`.

    The supervisor then replaces it; it cannot tell by itself, since a thread answers it. tell: called before, from another thread, and not
    waited for long: what hangs may hold a lock that it needs. kill: how to end (default: SIGKILL). tick: seconds that count as one.

    Counted are the looks of a thread, not the clock: what stops the whole process for a while is no fault of the loop's.
    """
    loop, over = asyncio.get_running_loop(), Event()
    beats, timer = 0, loop.call_soon(lambda: beat())

    def beat() -> None:
        nonlocal beats, timer
        beats += 1
        timer = loop.call_later(tick, beat)

    def look() -> None:
        seen, missed = -1, 0
        while not over.wait(tick):
            missed = missed + 1 if beats == seen else 0
            seen = beats
            if missed >= HUNG_SECONDS:
                last_word = Thread(target=tell, name="last word", daemon=True)
                last_word.start()
                last_word.join(_LAST_WORD_TICKS * tick)
                (kill or _kill)()
                return

    Thread(target=look, name="hung", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        timer.cancel()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _held_back() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
