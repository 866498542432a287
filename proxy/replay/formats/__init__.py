"""The ways in which agents and gateways record work: one file each, one table; recognised by what stands in a file, never by its name.

A new one is one file, its line in `FORMATS`, its tests and its recording in `tests/golden/replay`. The first in the table that knows an
object is taken, so that the more particular ones stand above the others.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from proxy.replay.document import Document, Fault, Value, decode
from proxy.replay.formats.calls import Calls
from proxy.replay.formats.chat import ChatLog
from proxy.replay.formats.claude_code import ClaudeCode
from proxy.replay.formats.codex import Codex
from proxy.replay.formats.corpus import Corpus
from proxy.replay.formats.format import Format
from proxy.replay.formats.messages import MessagesLog
from proxy.replay.formats.responses import ResponsesLog
from proxy.replay.formats.swe_agent import SweAgent
from proxy.replay.recording import Recording, Unreadable, newest

_LOOKED_AT = 64  # values from which a format is told: session files may begin with entries that many formats could have


FORMATS: tuple[Format, ...] = (Corpus(), SweAgent(), ClaudeCode(), Codex(), ResponsesLog(), MessagesLog(), ChatLog(), Calls())


class Reading(msgspec.Struct, frozen=True):
    """What a file held. format: its name, None when it is none that is known. faults: what was left out and why."""

    file: str
    format: str | None
    recordings: tuple[Recording, ...]
    faults: tuple[Fault, ...]


def read(file: str, data: bytes) -> Reading:
    """Reads a file's bytes. file: its name, for messages and for recordings without one. Never raises."""
    document = decode(file, data)
    known = _format_of(document.values)
    if known is None:
        unknown = () if document.faults and not document.values else (Fault(file, _first_line(document), _expected()),)
        return Reading(file, None, (), (*document.faults, *unknown))
    recordings, faults = _Reader(known, document).read()
    return Reading(file, known.name, tuple(recordings), (*document.faults, *faults))


def _format_of(values: Sequence[Value]) -> Format | None:
    looked_at = [member for value in values[:_LOOKED_AT] for member in _members(value.data)]
    return next((known for known in FORMATS if any(map(known.known_by, looked_at))), None)


def _members(data: Any) -> list[dict[str, Any]]:
    """The objects by which a value's format is told: itself, or those of the list it is."""
    members = data[:_LOOKED_AT] if isinstance(data, list) else [data]
    return [member for member in members if isinstance(member, dict)]


def _first_line(document: Document) -> int | None:
    return document.values[0].line if document.values else None


def _expected() -> str:
    return f"not a recording that is known; expected one of: {'; '.join(known.expects for known in FORMATS)}"


class _Reader:
    """One document in one format."""

    def __init__(self, known: Format, document: Document) -> None:
        self._format = known
        self._document = document
        self._faults: list[Fault] = []

    def read(self) -> tuple[list[Recording], list[Fault]]:
        wholes: list[Recording] = []
        parts: list[Value] = []
        for number, value in enumerate(self._document.values, 1):
            name = self._document.file if len(self._document.values) == 1 else f"{self._document.file}#{number}"
            match value.data:
                case list() as members:
                    wholes += self._parts([Value(value.line, member) for member in members], name)
                case dict() as whole if self._format.whole(whole):
                    wholes += self._whole(value, name)
                case _:
                    parts.append(value)
        recordings = newest(wholes) if self._format.grows else wholes
        if parts and (not wholes or any(isinstance(part.data, dict) and self._format.part(part.data) for part in parts)):
            recordings += self._parts(parts, self._document.file)
        elif parts:
            self._fault(parts[0], len(parts))
        return recordings, self._faults

    def _whole(self, value: Value, name: str) -> list[Recording]:
        try:
            return [self._format.read_whole(value.data, name)]
        except Unreadable as error:
            self._faults.append(Fault(self._document.file, value.line, str(error)))
            return []

    def _parts(self, values: Sequence[Value], name: str) -> list[Recording]:
        known = [value for value in values if isinstance(value.data, dict) and self._format.part(value.data)]
        strange = [value for value in values if not (isinstance(value.data, dict) and self._format.part(value.data))]
        if strange:
            self._fault(strange[0], len(strange))
        try:
            return self._format.read_parts([value.data for value in known], name) if known else []
        except Unreadable as error:
            self._faults.append(Fault(self._document.file, known[0].line, str(error)))
            return []

    def _fault(self, value: Value, count: int) -> None:
        more = f" (and {count - 1} more)" if count > 1 else ""
        self._faults.append(Fault(self._document.file, value.line, f"not {self._format.expects}; left out{more}"))
