"""The supervisor: how workers are born, and how they are told that the configuration has changed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import SIGNALS

from proxy import workers
from proxy.config import Config, dump
from proxy.errors import ConfigError
from proxy.source import Source, Watch
from proxy.workers import CONFIG_VARIABLE, HUNG_SECONDS, Workers, end_with_supervisor, ended_if_hung

LOOK = "import signal; print({signal.SIGINT, signal.SIGHUP} <= signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


class Supervised:
    """A supervisor whose workers are process numbers, and what they were sent."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[int] = []
        self.reread: Config | ConfigError | None = None
        self.asked: list[Config] = []
        self.config = Config()
        monkeypatch.setenv(CONFIG_VARIABLE, "")
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.supervisor = Workers(uvicorn.Config("x:y", workers=2), [], config=self.config, reread=self._reread, watch=Watch(source))
        for number, handler in before.items():
            signal.signal(number, handler)
        self.supervisor.processes = cast(Any, [SimpleNamespace(pid=pid, is_alive=lambda timeout: True) for pid in (11, None, 12, 13)])
        monkeypatch.setattr(os, "kill", self._kill)

    def _reread(self, current: Config) -> Config | None:
        self.asked.append(current)
        if isinstance(self.reread, ConfigError):
            raise self.reread
        return self.reread

    def _kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGHUP
        if pid == 12:
            raise ProcessLookupError
        self.told.append(pid)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("")
    return file


@pytest.fixture
def supervised(file: Path, monkeypatch: pytest.MonkeyPatch) -> Supervised:
    return Supervised(Source(file, {}), monkeypatch)


@pytest.mark.parametrize("birth", ["init_processes", "keep_subprocess_alive"])
def test_workers_are_born_with_signals_held_back(birth: str, supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C and a reload reach them while they still import. The supervisor itself listens before and after."""
    born: list[bytes] = []

    def give_birth(_: Multiprocess) -> None:
        resource_tracker.ensure_running()  # as the start of a process does
        born.append(subprocess.check_output([sys.executable, "-c", LOOK]))

    monkeypatch.setattr(Multiprocess, birth, give_birth)
    monkeypatch.setattr(resource_tracker, "ensure_running", resource_tracker.ResourceTracker().ensure_running)
    resource_tracker.ensure_running()

    getattr(supervised.supervisor, birth)()

    assert born == [b"True\n"]
    assert not {signal.SIGINT, signal.SIGHUP} & signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_first_workers_get_the_configuration_of_the_start(supervised: Supervised) -> None:
    """By environment."""
    assert os.environ[CONFIG_VARIABLE] == dump(supervised.config)


def test_sighup_tells_every_worker_and_later_ones_get_what_is_valid_now(supervised: Supervised) -> None:
    """Nobody is replaced, so that no stream is cut; one that has just died is passed over."""
    supervised.reread = Config.model_validate({"policy": {"mode": "observe"}})
    supervised.supervisor.handle_hup()

    assert supervised.told == [11, 13]
    assert os.environ[CONFIG_VARIABLE] == dump(supervised.reread)
    assert [process.pid for process in supervised.supervisor.processes] == [11, None, 12, 13]

    supervised.supervisor.handle_hup()
    assert supervised.asked == [supervised.config, supervised.reread]


def test_a_worker_that_could_not_start_is_known_afterwards(supervised: Supervised) -> None:
    """One that died later, or lives, is no such failure."""
    codes = cast(Any, supervised.supervisor.processes)
    for one, code in zip(codes, (None, 0, -9, 1), strict=True):
        one.exitcode = code
    assert not supervised.supervisor.failed
    codes[2].exitcode = STARTUP_FAILURE
    assert supervised.supervisor.failed


def test_a_worker_ends_when_its_supervisor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """In good order, as if it had been told; without a supervisor there is nothing to wait for."""
    told: SimpleQueue[tuple[int, int]] = SimpleQueue()
    monkeypatch.setattr(os, "kill", lambda pid, number: told.put((pid, number)))
    monkeypatch.setattr(workers, "parent_process", lambda: None)
    end_with_supervisor()
    here, there = os.pipe()
    monkeypatch.setattr(workers, "parent_process", lambda: SimpleNamespace(sentinel=here))
    end_with_supervisor()
    assert told.empty()
    os.close(there)
    assert told.get(timeout=5) == (os.getpid(), signal.SIGTERM)
    os.close(here)


@pytest.mark.parametrize("outcome", [None, ConfigError("policy: no")])
def test_workers_are_told_also_of_what_is_not_usable(outcome: ConfigError | None, supervised: Supervised) -> None:
    """They say so in the log; those born later get what was in force."""
    supervised.reread = outcome
    supervised.supervisor.handle_hup()

    assert supervised.told == [11, 13]
    assert os.environ[CONFIG_VARIABLE] == dump(supervised.config)


def test_a_changed_file_is_noticed_while_it_keeps_workers_alive(supervised: Supervised, file: Path) -> None:
    """Once, and not for a signal that came first."""
    supervised.supervisor.keep_subprocess_alive()
    file.write_text("policy: {}")
    for _ in range(3):
        supervised.supervisor.keep_subprocess_alive()
    assert supervised.told == [11, 13]

    file.write_text("policy: {mode: observe}")
    supervised.supervisor.handle_hup()
    for _ in range(3):
        supervised.supervisor.keep_subprocess_alive()
    assert supervised.told == [11, 13] * 2


async def test_a_loop_that_hangs_ends_its_process() -> None:
    """It is told of first; also one that hangs from the start on."""
    done: SimpleQueue[str] = SimpleQueue()
    with ended_if_hung(lambda: done.put("told"), kill=lambda: done.put("killed"), tick=0.001):
        assert [done.get(timeout=20), done.get(timeout=20)] == ["told", "killed"]


async def test_a_loop_that_hangs_ends_its_process_whatever_it_holds() -> None:
    """Also a lock without which nothing can be told."""
    held, killed = Event(), Event()
    with ended_if_hung(held.wait, kill=killed.set, tick=0.001):
        assert killed.wait(20)
    held.set()


async def test_a_busy_loop_ends_nothing() -> None:
    """Whoever comes up for breath within the time, and whoever is over, is left alone."""
    done: SimpleQueue[str] = SimpleQueue()
    with ended_if_hung(lambda: done.put("told"), kill=lambda: done.put("killed"), tick=0.01):
        for _ in range(6):
            time.sleep(HUNG_SECONDS * 0.01 / 4)  # noqa: ASYNC251 - what keeps it busy
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.02)
    assert done.empty()


def test_a_hung_worker_is_killed_and_one_that_died_is_replaced_with_a_word(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the signal that nothing can hold back; the log says which process took whose place."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    workers._kill()
    assert killed == [(os.getpid(), signal.SIGKILL)]

    def replace(supervisor: Multiprocess) -> None:
        supervisor.processes[0] = cast(Any, SimpleNamespace(pid=21))

    cast(Any, supervised.supervisor.processes[0]).exitcode = -9
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", replace)
    supervised.supervisor.keep_subprocess_alive()
    assert caplog.messages == ["worker 11 ended (-9) and was replaced by 21"]
