"""A recording: what one agent said, called and got back, in the neutral form in which the proxy itself reads a history."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proxy.models import Item, Role, Usage

_EMPTY = (b"", b"null", b'""', b"[]")


class Unreadable(Exception):
    """A recording that is not as its format has it. The message says what was expected, and holds no content."""


class Note(msgspec.Struct, frozen=True):
    """What a log says of one answer beside its content. usage: its tokens; finish: the upstream's own word."""

    usage: Usage | None = None
    finish: str | None = None


class Recording(msgspec.Struct, frozen=True):
    """One line of history from its beginning to its end.

    items: all that was said, each assistant item one answer. tools: names of the offered tools; where a log does not say, those that
    were called. tools_raw: their raw JSON. notes: by the place of the answer in `items`. restarts: places before which the client put a
    summary in the place of its history, each with the number of leading items that it kept. asked: the last item was sent as a request,
    whose answer is not here.
    """

    id: str
    items: tuple[Item, ...]
    tools: tuple[str, ...] = ()
    tools_raw: bytes = b""
    model: str = ""
    notes: Mapping[int, Note] = {}
    restarts: Mapping[int, int] = {}
    asked: bool = False

    @property
    def calls(self) -> int:
        """How many tool calls were made."""
        return sum(len(item.calls) for item in self.items)

    @property
    def offered(self) -> tuple[str, ...]:
        """The tools as logged, or else every tool that was called."""
        return self.tools or tuple(dict.fromkeys(call.name for item in self.items for call in item.calls))


def newest(snapshots: Sequence[Recording]) -> list[Recording]:
    """Requests logged one by one, each with its whole history, as one recording for each line of history: its longest.

    A snapshot that goes on from an earlier one takes its place and keeps its notes.
    """
    kept: dict[int, Recording] = {}
    ends: dict[int, int] = {}
    for number, snapshot in enumerate(snapshots):
        chain = _chain(snapshot.items)
        place = next((ends.pop(mark) for mark in reversed(chain) if mark in ends), number)
        kept[place] = _merged(kept[place], snapshot) if place in kept else snapshot
        ends[chain[-1]] = place
    return list(kept.values())


def _merged(earlier: Recording, later: Recording) -> Recording:
    return msgspec.structs.replace(later, id=earlier.id, notes={**earlier.notes, **later.notes})


def _chain(items: Iterable[Item]) -> list[int]:
    """A running identity of the history after each item; clients write an absent content in several ways."""
    marks, running = [], 0
    for item in items:
        content = b"" if item.content in _EMPTY else item.content
        running = hash((running, item.role, content, item.calls, item.call_id if item.role is Role.TOOL else None))
        marks.append(running)
    return marks or [running]
