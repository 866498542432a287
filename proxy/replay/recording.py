"""A recording: what one agent said, called and got back, in the neutral form in which the proxy itself reads a history."""

from collections.abc import Mapping, Sequence

import msgspec

from proxy.models import Item, Role, Usage, text_of


class Unreadable(Exception):
    """A recording that is not as its format has it. The message says what was expected, and holds no content."""


class Note(msgspec.Struct, frozen=True):
    """What a log says of one answer beside its content. usage: its tokens; finish: the upstream's own word."""

    usage: Usage | None = None
    finish: str | None = None


class Recording(msgspec.Struct, frozen=True):
    """One line of history from its beginning to its end.

    items: all that was said, each assistant item one answer. tools: names of the offered tools; where a log does not say, those that
    were called. tools_raw: their raw JSON. notes: by the place of the answer in `items`. restarts: places at which the history began anew
    with a summary, each with the place at which that new beginning ends: answers up to there are told again, not made. asked: the last
    item was sent as a request, whose answer is not here. follows, answer: ids of the response that a request goes on from without
    showing it, and of the one it got.
    """

    id: str
    items: tuple[Item, ...]
    tools: tuple[str, ...] = ()
    tools_raw: bytes = b""
    model: str = ""
    notes: Mapping[int, Note] = {}
    restarts: Mapping[int, int] = {}
    asked: bool = False
    follows: str | None = None
    answer: str | None = None

    @property
    def calls(self) -> int:
        """How many tool calls were made."""
        return sum(len(item.calls) for item in self.items)

    @property
    def offered(self) -> tuple[str, ...]:
        """The tools as logged, or else every tool that was called."""
        return self.tools or tuple(dict.fromkeys(call.name for item in self.items for call in item.calls))


def newest(snapshots: Sequence[Recording]) -> list[Recording]:
    """Requests logged one by one, each with its whole history so far, as one recording for each line of history.

    Told by the answers, as the proxy tells lanes. What an earlier request showed stays as it was then: clients blank old results later.
    """
    kept: dict[int, Recording] = {}
    ends: dict[int, int] = {}
    answers: dict[str, int] = {}
    for number, snapshot in enumerate(snapshots):
        chain = _chain(snapshot.items)
        known = next(((mark, end) for mark, end in reversed(chain) if mark in ends), None)
        if snapshot.follows in answers:
            place = answers[snapshot.follows]
            kept[place] = _continued(kept[place], snapshot, sum(1 for item in snapshot.items if item.role is Role.SYSTEM))
        elif known is not None:
            place = ends.pop(known[0])
            kept[place] = _continued(kept[place], snapshot, known[1])
        else:
            place, kept[number] = number, snapshot
        if snapshot.answer is not None:
            answers[snapshot.answer] = place
        if chain and snapshot.follows is None:
            ends[chain[-1][0]] = place
    return list(kept.values())


def _continued(earlier: Recording, later: Recording, shared: int) -> Recording:
    """shared: how many items at the beginning of the later one the earlier one holds too."""
    moved = len(earlier.items) - shared
    notes = {place + moved: note for place, note in later.notes.items() if place >= shared}
    return msgspec.structs.replace(
        later, id=earlier.id, items=(*earlier.items, *later.items[shared:]), notes={**earlier.notes, **notes}, restarts=earlier.restarts
    )


def _chain(items: Sequence[Item]) -> list[tuple[int, int]]:
    """A running identity of the history after each item, and how many items that is.

    Of what clients write anew from request to request (system text, old results, reminders) only its place counts.
    """
    chain: list[tuple[int, int]] = []
    running, answered = 0, False
    for end, item in enumerate(items, 1):
        match item.role:
            case Role.SYSTEM:
                continue
            case Role.ASSISTANT:
                answered = True
                running = hash((running, item.calls or text_of(item.content).strip()))
            case Role.USER:
                running = hash((running, "" if answered else text_of(item.content).strip()))
            case _:
                running = hash((running, item.call_id))
        chain.append((running, end))
    return chain
