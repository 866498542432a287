"""A file's bytes as JSON values with their lines: one JSON value or one a line, plain or gzip. What cannot be read becomes a fault."""

import gzip
import io
import zlib
from typing import Any

import msgspec

from proxy.dialects.raw_json import UNREADABLE, read

LARGEST = 1 << 30  # bytes after decompression
_GZIP = b"\x1f\x8b"
_ANY = msgspec.json.Decoder(Any)


class Fault(msgspec.Struct, frozen=True):
    """Something in a file that was left out. line: from 1, None for the file as a whole."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.message}"


class Value(msgspec.Struct, frozen=True):
    """One JSON value and the line it stands in or begins at."""

    line: int
    data: Any


class Document(msgspec.Struct, frozen=True):
    """A file as values, and what of it could not be read."""

    file: str
    values: tuple[Value, ...] = ()
    faults: tuple[Fault, ...] = ()


def decode(file: str, data: bytes) -> Document:
    """Reads a file named `file`. Never raises, whatever the bytes; a single list counts as its members."""
    try:
        data = _unpacked(data)
    except (OSError, EOFError, zlib.error):
        return _unread(file, "a gzip file that is damaged or cut off; expected JSON, one value or one a line, plain or gzip")
    if len(data) > LARGEST:
        return _unread(file, f"more than {LARGEST >> 20} MiB; split it into smaller files")
    if not data.strip():
        return _unread(file, "empty; expected JSON, one value or one a line")
    try:
        value = read(_ANY, data)
    except UNREADABLE as error:
        return _lines(file, data, error)
    members = value if isinstance(value, list) else [value]
    return Document(file, tuple([Value(1, member) for member in members]))


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        return packed.read(LARGEST + 1)


def _unread(file: str, message: str) -> Document:
    return Document(file, (), (Fault(file, None, message),))


def _lines(file: str, data: bytes, error: Exception) -> Document:
    """One value a line. Where no line is one, `error` says what is wrong with the file as a single value."""
    values: list[Value] = []
    faults: list[Fault] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            values.append(Value(number, read(_ANY, line)))
        except UNREADABLE as fault:
            faults.append(Fault(file, number, f"not JSON ({_said(fault)}); expected one JSON value a line; the line is left out"))
    if not values:
        return _unread(file, f"not JSON ({_said(error)}); expected JSON, one value or one a line, plain or gzip")
    return Document(file, tuple(values), tuple(faults))


def _said(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).removeprefix("JSON is malformed: ")
