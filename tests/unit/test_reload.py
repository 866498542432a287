"""A configuration read again: as a whole or not at all, one at a time, while calls go on by the old one."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy import reload
from proxy.config import Config
from proxy.errors import ConfigError
from proxy.events import ConfigReloaded, ReloadOutcome
from proxy.exchange import Setting, Way
from proxy.reload import InForce, Reloader, reloading
from proxy.source import Source, Watch
from tests.in_process import Proxy, ScriptedUpstream

OLD = Config()
NEW = Config.model_validate({"policy": {"mode": "observe"}})


class Closed(ScriptedUpstream):
    """An upstream that says when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def setting(*upstreams: Closed) -> Setting:
    """One that leads to these."""
    return Proxy(ways=[Way(str(number), upstream, lambda *_: True) for number, upstream in enumerate(upstreams)]).setting


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


# ---- calls under way


async def test_a_call_goes_by_what_it_began_with() -> None:
    """What only it still uses is closed when it has ended, and what is shared goes on."""
    shared, old, new = Closed(), Closed(), Closed()
    first, second = setting(shared, old), setting(shared, new)
    in_force = InForce(first)
    began = in_force.enter()
    in_force.replace(second)
    later = in_force.enter()
    await settled()
    assert (began, later, in_force.current) == (first, second, second)
    assert [shared.closed, old.closed, new.closed] == [0, 0, 0]

    in_force.leave(began)
    in_force.leave(later)
    await settled()
    assert [shared.closed, old.closed, new.closed] == [0, 1, 0]


async def test_what_nobody_uses_is_closed_at_once() -> None:
    """No request has to come by for it."""
    old, new = Closed(), Closed()
    in_force = InForce(setting(old))
    in_force.leave(in_force.enter())
    in_force.replace(setting(new))
    await settled()

    assert (old.closed, new.closed) == (1, 0)


async def test_two_changes_while_one_call_goes_on() -> None:
    """An upstream left out by the second is kept for the call that began before the first."""
    upstream, other = Closed(), Closed()
    in_force = InForce(setting(upstream))
    began = in_force.enter()
    in_force.replace(setting(upstream))
    in_force.replace(setting(other))
    await settled()
    assert upstream.closed == 0

    in_force.leave(began)
    await settled()
    assert (upstream.closed, other.closed) == (1, 0)


async def test_the_end_closes_everything() -> None:
    """Also what is still in use, and what is being closed."""
    old, new, gone = Closed(), Closed(), Closed()
    in_force = InForce(setting(gone))
    in_force.replace(setting(old))
    in_force.enter()
    in_force.replace(setting(new))
    await in_force.close()

    assert (old.closed, new.closed, gone.closed) == (1, 1, 1)


# ---- reading again


class Told:
    """A reloader whose source says what a test gives it."""

    def __init__(self, *says: Config | ConfigError | None, fails: bool = False) -> None:
        self.says = list(says)
        self.fails = fails
        self.read: list[Config] = []
        self.applied: list[Config] = []
        self.events: list[ConfigReloaded] = []
        self.reloader = Reloader(OLD, reread=self._reread, apply=self._apply, tell=self.events.append)

    def _reread(self, current: Config) -> Config | None:
        self.read.append(current)
        said = self.says.pop(0)
        if isinstance(said, ConfigError):
            raise said
        return said

    async def _apply(self, config: Config) -> None:
        if self.fails:
            raise ConfigError("upstreams.a.ca_file: no")
        self.applied.append(config)


async def test_a_valid_change_is_applied() -> None:
    """And is what the next one is compared with."""
    told = Told(NEW, None)
    await told.reloader.reload()
    await told.reloader.reload()

    assert (told.applied, told.read) == ([NEW], [OLD, NEW])
    assert told.events == [ConfigReloaded(ReloadOutcome.APPLIED), ConfigReloaded(ReloadOutcome.UNCHANGED)]


@pytest.mark.parametrize("told", [Told(ConfigError("policy: no"), NEW), Told(NEW, NEW, fails=True)])
async def test_what_is_not_usable_leaves_everything_as_it_was(told: Told) -> None:
    """The reason is told; the next change is tried anew."""
    await told.reloader.reload()
    assert (told.applied, told.events[0].outcome) == ([], ReloadOutcome.REJECTED)
    assert told.events[0].cause.endswith(": no")

    told.fails = False
    await told.reloader.reload()
    assert (told.read, told.applied) == ([OLD, OLD], [NEW])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)


async def test_sighup_and_a_changed_file_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards a signal is nobody's business any more."""
    monkeypatch.setattr(reload, "_LOOK_EVERY", 0.01)
    file = tmp_path / "config.yaml"
    file.write_text("")
    told = Told(NEW, None, None)
    before = signal.getsignal(signal.SIGHUP)
    async with reloading(told.reloader, Watch(Source(file, {}))):
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(told.events) == 1)
        file.write_text("policy: {}")
        await until(lambda: len(told.events) == 2)

    assert told.applied == [NEW]
    assert signal.getsignal(signal.SIGHUP) in (before, signal.SIG_DFL)


async def test_a_worker_reads_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when that was before it could listen: the signal was held back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    signal.pthread_kill(threading.get_ident(), signal.SIGHUP)  # to the whole process it would reach a thread that does not hold it back
    told = Told(NEW)
    async with reloading(told.reloader, None):
        await until(lambda: bool(told.events))

    assert told.applied == [NEW]


async def test_one_at_a_time() -> None:
    """Two at once would race for what is in force."""
    running: list[int] = []

    async def apply(_: Config) -> None:
        running.append(len(running))
        await settled()
        assert len(running) == 1
        running.clear()

    says: list[Any] = [NEW, NEW]
    apply_it: Callable[[Config], Awaitable[None]] = apply
    reloader = Reloader(OLD, reread=lambda _: says.pop(), apply=apply_it, tell=lambda _: None)
    await asyncio.gather(reloader.reload(), reloader.reload())

    assert says == []
