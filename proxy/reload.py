"""A configuration read again while calls are under way: in force as a whole or not at all, and no call is cut.

What begins afterwards goes by the new one. Calls under way end on what they began with, and what only these still use is closed when
the last of them has ended.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

from proxy.config import Config
from proxy.errors import ConfigError
from proxy.events import ConfigReloaded, ReloadOutcome
from proxy.exchange import Setting, Way
from proxy.source import Watch

_LOOK_EVERY = 1.0  # seconds


class InForce:
    """The setting that new requests get, and older ones as long as calls go by them."""

    def __init__(self, setting: Setting) -> None:
        self._current = setting
        self._older: list[Setting] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> Setting:
        return self._current

    def enter(self) -> Setting:
        """The setting for a request that begins; `leave` it when the request has ended."""
        self._current.users += 1
        return self._current

    def leave(self, setting: Setting) -> None:
        setting.users -= 1
        if setting.users == 0 and setting is not self._current:
            self._let_go()

    def replace(self, setting: Setting) -> None:
        """Puts a setting in force. Ways that it shares with those before go on."""
        self._older.append(self._current)
        self._current = setting
        self._let_go()

    def _let_go(self) -> None:
        """Closes the ways that nobody takes any more."""
        ended = [setting for setting in self._older if setting.users == 0]
        self._older = [setting for setting in self._older if setting.users > 0]
        kept = _ways([self._current, *self._older])
        for identity, way in _ways(ended).items():
            if identity not in kept:
                task = asyncio.get_running_loop().create_task(way.upstream.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes every way, at the end of the process."""
        for way in _ways([self._current, *self._older]).values():
            await way.upstream.close()
        if self._closing:
            await asyncio.wait(self._closing)


def _ways(settings: list[Setting]) -> dict[int, Way]:
    return {id(way.upstream): way for setting in settings for way in setting.ways}


class Reloader:
    """Reads the configuration again and puts it in force.

    reread: what the source says now, None for what is in force already; raises `ConfigError`; may block. apply: puts a configuration in
    force; raises `ConfigError`, and has then changed nothing. tell: takes what came of it.
    """

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[Config], Config | None],
        apply: Callable[[Config], Awaitable[None]],
        tell: Callable[[ConfigReloaded], object],
    ) -> None:
        self._config = config
        self._reread = reread
        self._apply = apply
        self._tell = tell
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> None:
        """Once, from the source to being in force or to the reason why not."""
        async with self._one_at_a_time:
            try:
                config = await asyncio.to_thread(self._reread, self._config)
                if config is not None:
                    await self._apply(config)
                    self._config = config
            except ConfigError as error:
                self._tell(ConfigReloaded(ReloadOutcome.REJECTED, str(error)))
                return
            self._tell(ConfigReloaded(ReloadOutcome.UNCHANGED if config is None else ReloadOutcome.APPLIED))


@contextlib.asynccontextmanager
async def reloading(reloader: Reloader, watch: Watch | None) -> AsyncIterator[None]:
    """Reloads on SIGHUP and, with a watch, when the file has changed. In the main thread only, where signals arrive."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def ask() -> None:
        if watch is not None:
            watch.seen()
        asked.set()

    loop.add_signal_handler(signal.SIGHUP, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # held back since the birth of a worker
    work = [loop.create_task(_when_asked(asked, reloader))]
    if watch is not None:
        work.append(loop.create_task(_when_changed(watch, asked)))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in work:
            task.cancel()
        await asyncio.wait(work)


async def _when_asked(asked: asyncio.Event, reloader: Reloader) -> None:
    while True:
        await asked.wait()
        asked.clear()
        await reloader.reload()


async def _when_changed(watch: Watch, asked: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        if watch.changed():
            asked.set()
