"""What an operator forgave a session: the note that comes with every `open`, and what becomes of the record and the trail under it.

Repeats are counted anew from each request's history, so that it is not enough to forget a verdict: a reset moves the place from which
each lane counts, and an allowance takes one occurrence of a call out of what is counted. A lane learns of either at its next request,
on whichever replica. What was done is named by a number that never comes back, so that nothing is forgiven twice.
"""

from collections.abc import Collection, Sequence

import msgspec

from proxy.fingerprint import UNSEEN
from proxy.state import LOST, Excused, Lane, Node, Record, Stop
from proxy.trail import Step

NO_RUN = -1  # `Nudge.run` of a nudge that was forgiven: it stays where it was said, and counts for no run


MOST_ALLOWED = 64


class Allowed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A call, by its fingerprint, of which one occurrence is let through. number: the allowance it came with."""

    call: int
    number: int


class Pardon(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """reset, allowed: number the last reset and the last allowance, 0 without one. calls: those allowed once since the last reset."""

    reset: int = 0
    allowed: int = 0
    calls: tuple[Allowed, ...] = ()

    def with_reset(self, number: int) -> "Pardon":
        """What is forgiven after a reset of that number."""
        return Pardon(number, self.allowed)

    def with_allowed(self, calls: Sequence[int], number: int) -> "Pardon":
        """What is forgiven after an allowance of that number. Earlier ones stay, for lanes that have not heard of them, each call once."""
        others = [one for one in self.calls if one.call not in calls]
        return Pardon(self.reset, number, tuple([*others, *(Allowed(call, number) for call in calls)][-MOST_ALLOWED:]))

    def allowed_since(self, number: int) -> frozenset[int]:
        """The calls that were allowed after the allowance of that number."""
        return frozenset([one.call for one in self.calls if one.number > number])


NOTHING = Pardon()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pardon)


def note_of(pardon: Pardon) -> bytes:
    """A pardon as a store keeps it."""
    return _encoder.encode(pardon)


def pardon_of(note: bytes) -> Pardon:
    """What a note says; nothing, where it is another release's."""
    if not note:
        return NOTHING
    try:
        return _decoder.decode(note)
    except msgspec.MsgspecError:
        return NOTHING


def forgive(record: Record, pardon: Pardon) -> None:
    """What the session as a whole forgets, once for each reset and allowance."""
    if record.reset != pardon.reset:
        record.reset = pardon.reset
        record.relapses, record.given, record.noticed, record.stopped = [], [], [], 0
    if record.allowed != pardon.allowed:
        news, record.allowed = pardon.allowed_since(record.allowed), pardon.allowed
        record.relapses = [relapse for relapse in record.relapses if relapse.call not in news]


def forgive_lane(lane: Lane, pardon: Pardon, messages: int, made: int) -> None:
    """The same of a lane, at its next request. messages: of that request's history; made: with those that it does not carry."""
    if lane.reset != pardon.reset:
        lane.reset, lane.since, lane.rested = pardon.reset, messages, messages
        lane.stop, lane.before, lane.pruned, lane.excused = None, [], [], []
        lane.nudges = [msgspec.structs.replace(nudge, run=NO_RUN) for nudge in lane.nudges if nudge.message != LOST]
    if lane.allowed != pardon.allowed:
        news, lane.allowed = pardon.allowed_since(lane.allowed), pardon.allowed
        lane.excused += [*_made_already(lane, news), *(Excused(call, made) for call in sorted(news & _known(lane)))]
        if lane.stop is not None and not news.isdisjoint(lane.stop.calls):
            lane.stop = None
        lane.pruned = [call for call in lane.pruned if call not in news]


def standing_stop(lane: Lane, pardon: Pardon) -> Stop | None:
    """The stop that a lane stands under, also where it has not yet heard of what was forgiven."""
    stop = lane.stop
    if stop is None or lane.reset != pardon.reset or not pardon.allowed_since(lane.allowed).isdisjoint(stop.calls):
        return None
    return stop


def _made_already(lane: Lane, calls: Collection[int]) -> list[Excused]:
    """The occurrences that reached a stop's rung, where they were made before anybody could withhold them: as good as let through."""
    if lane.stop is None or not lane.stop.made:
        return []
    last = {kept.call: number for number, calls in enumerate(lane.kept, lane.offset) for kept in calls}
    return [Excused(call, last[call]) for call in lane.stop.calls if call in calls and call in last]


def _known(lane: Lane) -> set[int]:
    stopped = lane.stop.calls if lane.stop is not None else []
    return {*stopped, *(kept.call for calls in (*[node.calls for node in lane.before], *lane.kept) for kept in calls)}


def without_excused(
    steps: Sequence[Step], first: int, excused: Sequence[Excused], earlier: Sequence[Step] = ()
) -> tuple[list[Step], frozenset[int]]:
    """The steps without the occurrences that are allowed, and the calls whose allowed occurrence is still to come.

    first: number of the first step; earlier: those before a summary, which have no number. All equal calls of one message are one
    occurrence. One that brought a new result is left in: it is news, and counts for nothing by itself.
    """
    waiting = list(excused)
    known: dict[int, set[int]] = {}
    for entry in [entry for step in earlier for entry in step.calls]:
        known.setdefault(entry.call, set()).add(entry.result)
    left = list(steps)
    for number, step in enumerate(left):
        met, waiting = _meet(waiting, first + number, {entry.call for entry in step.calls})
        if met:
            stay = [e for e in step.calls if e.call not in met or (e.result != UNSEEN and e.result not in known.get(e.call, ()))]
            left[number] = msgspec.structs.replace(step, calls=tuple(stay))
        for entry in step.calls:
            known.setdefault(entry.call, set()).add(entry.result)
    return left, frozenset([one.call for one in waiting])


def spare(nodes: Sequence[Node], first: int, excused: Sequence[Excused]) -> list[Excused]:
    """Takes allowed occurrences out of messages that no history will show any more; what is still to come.

    first: number of the first message.
    """
    waiting = list(excused)
    for number, node in enumerate(nodes, first):
        met, waiting = _meet(waiting, number, {kept.call for kept in node.calls})
        if met:
            node.calls = tuple([kept for kept in node.calls if kept.call not in met])
    return waiting


def _meet(waiting: Sequence[Excused], number: int, calls: set[int]) -> tuple[set[int], list[Excused]]:
    """The calls of message `number` that are allowed there, and what of the allowances is left then: one of each call is used up."""
    met: set[int] = set()
    left: list[Excused] = []
    for one in waiting:
        if one.at <= number and one.call in calls and one.call not in met:
            met.add(one.call)
        else:
            left.append(one)
    return met, left
