"""A command to a Redis server as it goes over the wire, in RESP. No connection here."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

Field = bytes | str | int | float

_LUA = Path(__file__).parent / "lua"


class Script(msgspec.Struct, frozen=True, gc=False):
    """A script. named, whole: the words that have a server run it, by the hash it may know it by or by its text."""

    named: bytes
    whole: bytes

    @classmethod
    def load(cls, *names: str) -> "Script":
        text = b"".join((_LUA / name).read_bytes() for name in names)
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        return cls(field(b"EVALSHA") + field(sha.encode()), field(b"EVAL") + field(text))


class Command(msgspec.Struct, frozen=True, gc=False):
    """words: it and its arguments. key: the first of its keys, which is in the slot of all others. script: what it runs, if any."""

    words: bytes
    key: bytes = b""
    script: Script | None = None

    @property
    def in_full(self) -> "Command":
        """The same, a script by its text, for a server that does not know it (yet, or any more)."""
        if self.script is None:
            return self
        return Command(self.words.replace(self.script.named, self.script.whole, 1), self.key)


def said(name: str, *fields: Field) -> Command:
    """A command that is no script; its key, if it has one, comes first."""
    raw = [_raw(one) for one in (name, *fields)]
    return Command(b"*%d\r\n" % len(raw) + b"".join(map(field, raw)), raw[1] if fields else b"")


def run(script: Script, keys: Sequence[bytes], *arguments: Field) -> Command:
    """A script with its keys and its arguments."""
    return Command(begun(script, keys, len(arguments)) + b"".join([field(_raw(one)) for one in arguments]), keys[0], script)


def begun(script: Script, keys: Sequence[bytes], count: int) -> bytes:
    """The words of a script that come before its arguments. count: how many of those will come, each a `field`."""
    return b"*%d\r\n%b" % (3 + len(keys) + count, script.named) + b"".join(map(field, (b"%d" % len(keys), *keys)))


def field(raw: bytes) -> bytes:
    """A word."""
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


def _raw(one: Field) -> bytes:
    return one if isinstance(one, bytes) else str(one).encode()
