"""Where a configuration comes from: a file under flags, with variables from the environment. Read at start, and again when it changed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proxy.config import Config, dump, load
from proxy.errors import ConfigError

Flags = Mapping[tuple[str, ...], object]

# What sockets, processes and the store were made from at start.
_FOR_LIFE = {
    "server": ("host", "port", "workers", "client_timeout", "metrics_port", "admin_port"),
    "store": ("url", "failure_mode", "timeout"),
    "session": ("ttl",),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file, None where there is none, and the flags that replace what it says at their paths."""

    file: Path | None
    flags: Flags

    def read(self, environ: Mapping[str, str]) -> Config:
        """What it says now. Raises `ConfigError`, and `OSError` when the file cannot be read."""
        try:
            text = self.file.read_bytes().decode() if self.file else ""
        except UnicodeDecodeError as error:
            raise ConfigError(f"the file: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        return load(text, environ, self.flags)

    def read_again(self, current: Config, environ: Mapping[str, str]) -> Config | None:
        """What it says now; None where that is what is in force. Raises `ConfigError`, also for what only a start can change."""
        try:
            config = self.read(environ)
        except OSError as error:
            raise ConfigError(f"the file: cannot be read: {error.strerror}") from None
        if dump(config) == dump(current):
            return None
        changed = [
            f"{section}.{key}: changes only with a new start; start Lastcall again, or take the change back"
            for section, keys in _FOR_LIFE.items()
            for key in keys
            if getattr(getattr(config, section), key) != getattr(getattr(current, section), key)
        ]
        if changed:
            raise ConfigError("\n".join(changed))
        return config

    def look(self) -> tuple[int, int, int] | None:
        """What tells one state of the file from another: its identity, size and time of change; None where there is none."""
        try:
            found = os.stat(self.file) if self.file else None
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns) if found else None

    def dumped(self) -> str:
        """This, as text for a worker process."""
        flags = [(list(path), value) for path, value in self.flags.items()]
        return msgspec.json.encode((str(self.file.absolute()) if self.file else None, flags)).decode()


def load_source(text: str) -> Source:
    """What `dumped` gave."""
    file, flags = msgspec.json.decode(text, type=tuple[str | None, list[tuple[list[str], object]]])
    return Source(Path(file) if file else None, {tuple(path): value for path, value in flags})


class Watch:
    """Notices that a file has changed and come to rest: one half written is not read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known = self._last = source.look()

    def changed(self) -> bool:
        """Whether there is a new state, the same as at the last look. Said once."""
        now = self._source.look()
        rests, self._last = now == self._last, now
        if not rests or now == self._known:
            return False
        self._known = now
        return True

    def seen(self) -> None:
        """Takes the present state for known: it is about to be read."""
        self._known = self._last = self._source.look()
