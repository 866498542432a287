"""Claude Code session files: an entry a line, in the order in which they were written.

An answer stands in several entries, one for each of its blocks. Sub-agents (`isSidechain`) are histories of their own, in the file of their
session or in one that is theirs. After a compaction the history begins anew with the summary. A rewound conversation is read as if it had
gone on: what was taken back still counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.messages import Messages
from proxy.models import Role
from proxy.replay.formats.entries import encoded, name_of
from proxy.replay.formats.format import Format
from proxy.replay.formats.wire import recorded
from proxy.replay.recording import Note, Recording

_OWN_MODEL = "<synthetic>"  # what the client itself put where an answer would stand


class ClaudeCode(Format):
    """One of `FORMATS`."""

    name = "claude_code"
    expects = "entries with `type`, `sessionId` and `message` (a Claude Code session file)"

    def known_by(self, value: dict[str, Any]) -> bool:
        spoken = value.get("type") in ("user", "assistant") and isinstance(value.get("message"), dict)
        return spoken and any(key in value for key in ("sessionId", "parentUuid", "isSidechain"))

    def part(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("type"), str)

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        lines: dict[str, _Line] = {}
        roots: dict[str, str] = {}
        session = next((found for value in values if (found := name_of(value, "sessionId"))), id)
        for value in values:
            message = value.get("message")
            if value["type"] in ("user", "assistant") and isinstance(message, dict):
                name = _agent(value, roots)
                line = lines.setdefault(name, _Line(f"{session}/{name}" if name else session))
                line.add(message, is_summary=value.get("isCompactSummary") is True)
        return [line.recording() for line in lines.values()]


def _agent(entry: Mapping[str, Any], roots: dict[str, str]) -> str:
    """Whose entry it is: "" for the main agent; a sub-agent's id, or in older files the entry that its own began with."""
    if entry.get("isSidechain") is not True:
        return ""
    known = name_of(entry, "agentId")
    if known is not None:
        return known
    own, parent = name_of(entry, "uuid") or "", name_of(entry, "parentUuid") or ""
    roots[own] = roots.get(parent, own)
    return roots[own]


class _Line:
    """One agent's messages as they come, in the stretches between its compactions."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._stretches: list[list[dict[str, Any]]] = [[]]
        self._answer: dict[str, Any] | None = None

    def add(self, message: dict[str, Any], *, is_summary: bool) -> None:
        if message.get("role") == "assistant":
            self._add_answer(message)
            return
        if is_summary and self._stretches[-1]:
            self._stretches.append([])
            self._answer = None
        self._stretches[-1].append({"role": "user", "content": message.get("content")})

    def _add_answer(self, message: dict[str, Any]) -> None:
        blocks = message.get("content")
        if message.get("model") == _OWN_MODEL or not isinstance(blocks, list):
            return
        known = self._answer
        if known is not None and known.get("id") is not None and known["id"] == message.get("id"):
            known["content"] += [block for block in blocks if block not in known["content"]]
            known |= {key: message[key] for key in ("usage", "stop_reason") if message.get(key) is not None}
            return
        self._answer = {**message, "content": list(blocks)}
        self._stretches[-1].append(self._answer)

    def recording(self) -> Recording:
        """The stretches as one, with the places at which a new one begins."""
        whole = Recording(self._id, ())
        for messages in self._stretches:
            stretch = recorded(Messages(), self._id, {"messages": [_wire(message) for message in messages]})
            begun = len(whole.items)
            notes = {begun + place: _note(messages[item.place]) for place, item in enumerate(stretch.items) if item.role is Role.ASSISTANT}
            restarts = {begun: begun + 1} if begun else {}
            whole = msgspec.structs.replace(
                whole, items=whole.items + stretch.items, notes={**whole.notes, **notes}, restarts={**whole.restarts, **restarts}
            )
        model = next(
            (message["model"] for messages in self._stretches for message in messages if isinstance(message.get("model"), str)), ""
        )
        return msgspec.structs.replace(whole, model=model)


def _wire(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": message["role"], "content": message["content"]}


def _note(message: Mapping[str, Any]) -> Note:
    answer = Messages().read_answer(encoded(message))
    return Note(answer.usage, answer.choices[0].finish if answer.choices else None)
