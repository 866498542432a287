"""Codex rollout files: an entry a line, most of them Responses items in a `payload`; in older files bare items.

After a compaction the history begins anew with what took its place. Usage comes in an event of its own behind the answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.dialects.responses import Responses
from proxy.models import Item, Role
from proxy.replay.formats.entries import encoded, name_of
from proxy.replay.formats.format import Format
from proxy.replay.formats.wire import recorded
from proxy.replay.recording import Note, Recording

_ENTRIES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})


class Codex(Format):
    """One of `FORMATS`."""

    name = "codex"
    expects = "entries with `type` and `payload` (a Codex rollout file)"

    def known_by(self, value: dict[str, Any]) -> bool:
        return (name_of(value, "type") in _ENTRIES and isinstance(value.get("payload"), dict)) or "record_type" in value

    def part(self, value: dict[str, Any]) -> bool:
        return any(key in value for key in ("type", "record_type", "id"))

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        thread = _Thread(id)
        for value in values:
            thread.add(value)
        return [thread.recording()]


class _Stretch:
    """Items on the wire between two compactions, usage by the place at which it was noted. told_again: what a compaction left."""

    def __init__(self, told_again: list[Any]) -> None:
        self.told_again = [item for item in told_again if isinstance(item, dict)]
        self.wire: list[dict[str, Any]] = []
        self.usages: dict[int, Note] = {}

    def notes(self, items: Sequence[Item]) -> dict[int, Note]:
        """Of each answer, by its place among the items read from the wire."""
        return {place: note for at, note in self.usages.items() if (place := _answer_before(items, at)) is not None}


class _Thread:
    """A session as it goes, in the stretches between its compactions."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._model = ""
        self._stretches = [_Stretch([])]

    def add(self, entry: Mapping[str, Any]) -> None:
        payload = entry.get("payload")
        match entry.get("type"):
            case "response_item" if isinstance(payload, dict):
                self._stretches[-1].wire.append(payload)
            case "compacted" if isinstance(payload, dict):
                self._begin_anew(payload)
            case "event_msg" if isinstance(payload, dict):
                self._note(payload.get("info"))
            case "turn_context" if isinstance(payload, dict):
                self._model = name_of(payload, "model") or self._model
            case "session_meta" if isinstance(payload, dict):
                self._id = name_of(payload, "id") or self._id
            case None:
                self._id = name_of(entry, "id") or self._id
            case str() if payload is None:
                self._stretches[-1].wire.append(dict(entry))

    def _begin_anew(self, payload: Mapping[str, Any]) -> None:
        kept = payload.get("replacement_history")
        summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": name_of(payload, "message") or ""}]}
        self._stretches.append(_Stretch(kept if isinstance(kept, list) else [summary]))

    def _note(self, info: Any) -> None:
        usage = info.get("last_token_usage") if isinstance(info, dict) else None
        note = _note(usage) if isinstance(usage, dict) else None
        if note is not None:
            newest = self._stretches[-1]
            newest.usages[len(newest.wire)] = note

    def recording(self) -> Recording:
        """The stretches as one, with the places at which a new one begins, and ends to be what was said before."""
        items: tuple[Item, ...] = ()
        notes: dict[int, Note] = {}
        restarts: dict[int, int] = {}
        for stretch in self._stretches:
            told_again, made = (recorded(Responses(), self._id, {"input": wire}).items for wire in (stretch.told_again, stretch.wire))
            begun = len(items) + len(told_again)
            if items:
                restarts[len(items)] = begun
            notes |= {begun + place: note for place, note in stretch.notes(made).items()}
            items += told_again + made
        return Recording(self._id, items, model=self._model, notes=notes, restarts=restarts)


def _answer_before(items: Sequence[Item], at: int) -> int | None:
    """The newest answer that began before a place on the wire."""
    return next((place for place in range(len(items) - 1, -1, -1) if items[place].role is Role.ASSISTANT and items[place].place < at), None)


def _note(usage: Mapping[str, Any]) -> Note | None:
    """Counts as the provider gives them, in names of its own."""
    details = {"input_tokens_details": {"cached_tokens": usage.get("cached_input_tokens")}}
    answer = Responses().read_answer(encoded({"object": "response", "output": [], "usage": {**usage, **details}}))
    return Note(answer.usage) if answer.usage is not None else None
