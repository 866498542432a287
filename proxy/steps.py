"""A lane's steps: what a history shows of each message, joined with what the record keeps of its calls.

New messages and results are written into the lane. What was joined before is not joined again: a history that goes on from an earlier
one brings its steps along (`Joined`), and a step stands as long as the record says the same of its calls.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import msgspec

from proxy.fingerprint import UNSEEN, Fingerprints
from proxy.models import ToolCall
from proxy.results import compare, keep_arrived, keep_newest
from proxy.state import Calls, KeptCall, Lane, Node, Record, name_at, name_index, put
from proxy.trail import Entry, Messages, Step


class Joined(msgspec.Struct):
    """What was joined of a history's messages, for the request that goes on from it.

    kept: what the record kept then of the calls of each message, from `first` on: a list that is not changed any more, so that requests of
    other callers may write into the record before the next of this one; steps: what that made of them; unseen: calls among them without a
    result, each with its message. older: steps of the messages before, which the record has dropped: of their results nothing is known,
    but for what was found out again when their calls came back (found). sketches: of all results that were joined so far. lately: what was
    seen in the newest of them, for whoever looks at the steps; it knows the type.
    """

    first: int
    kept: list[Calls]
    steps: tuple[Step, ...]
    unseen: list[tuple[int, int]]
    older: list[Step]
    found: dict[int, Calls]
    sketches: set[int]
    lately: object = None


def kept_step(record: Record, node: Node) -> Step:
    """The step of a message that no history shows any more."""
    calls = [Entry(kept.call, name_at(record, kept.name), kept.result, kept.flags, kept.error) for kept in node.calls]
    return Step(tuple(calls), node.compacted)


def join(record: Record, lane: Lane, messages: Messages, prints: Fingerprints, start: int, before: Sequence[Node]) -> tuple[Step, ...]:
    """Steps of the messages from `start` on; new messages and results are written into the lane.

    before: what this run did before its compactions. Results are compared with those, and with what stopped earlier runs.
    """
    fresh = len(messages.answers) - lane.offset - len(lane.answers)
    first, kept = _kept(lane, messages, start)
    joined = _joined(messages)
    dropped = _drop(joined, messages, first) if start < first else []
    _let_stand(joined, first, kept)
    _complete(record, joined, kept, messages)
    changed: set[int] = set()
    if messages.earlier:
        changed = keep_arrived(messages, kept, prints)
    elif kept:
        changed = keep_newest(kept, messages, first, prints, joined.sketches, fresh=fresh)
    if messages.again or before or record.relapses:  # else no call was ever made before
        elsewhere = {one.call for node in before for one in node.calls} | {relapse.call for relapse in record.relapses}
        again = _again(messages, start, {*_unsettled(joined, kept, fresh), *chain.from_iterable(dropped)}, elsewhere)
        if again:
            known = {at: node.calls for at, node in zip(range(-len(before), 0), before, strict=True)}
            known |= _older(joined, messages, start, first, again) | dict(enumerate(kept, first))
            for at, calls in compare(known, again, record.relapses, messages, prints).items():
                if at >= first:
                    kept[at - first] = calls
                    changed.add(at)
                elif at >= 0:
                    joined.found[at], joined.older[at] = calls, _step(messages.made[at], calls)
                else:
                    before[at].calls = calls
    _keep(lane, first, kept, len(joined.kept), changed)
    _renew(joined, messages, kept, changed)
    return (*joined.older[start:first], *joined.steps) if start < first else joined.steps


def _joined(messages: Messages) -> Joined:
    """What is known of the messages, to be added to."""
    known = messages.joined.own
    if not isinstance(known, Joined):
        before, messages.joined.before = messages.joined.before, None
        if isinstance(before, Joined):
            begun = messages.begun
            older = before.older[:begun] if before.older else []
            found = before.found.copy() if before.found else {}
            known = Joined(before.first, before.kept, before.steps, before.unseen, older, found, before.sketches, before.lately)
            if begun < before.first + len(before.kept):  # its newest messages are not those of this history
                kept = max(begun - before.first, 0)
                known.kept, known.steps = before.kept[:kept], before.steps[:kept]
                known.unseen = [lacking for lacking in before.unseen if lacking[0] < begun]
                known.found = {at: calls for at, calls in before.found.items() if at < begun}
        else:
            known = Joined(0, [], (), [], [], {}, set())
        messages.joined.own = known
    return known


def _let_stand(joined: Joined, first: int, kept: Sequence[Calls]) -> None:
    """Of what was joined leaves what the record still says, from message `first` on. kept: what it says from there."""
    begins, before = first - joined.first, joined.kept
    if begins:
        before = before[begins:] if begins > 0 else []
        joined.steps = joined.steps[begins:]
        joined.unseen = [lacking for lacking in joined.unseen if lacking[0] >= first]
    if not before or kept[: len(before)] != before:
        before, joined.steps, joined.unseen = [], (), []
    joined.first, joined.kept = first, before


def _renew(joined: Joined, messages: Messages, kept: list[Calls], changed: set[int]) -> None:
    """Joins what is new, and again those messages of which the record says something else now (changed).

    kept: what it says of all from now on. The list of the request before is not added to.
    """
    made, first, stand = messages.made, joined.first, len(joined.kept)
    again: list[int] = []
    for at in changed:
        if first <= at < first + stand:
            again.append(at - first)
    if again:
        joined.unseen = [lacking for lacking in joined.unseen if lacking[0] not in changed]
        steps = [*joined.steps]
        for at in again:
            steps[at] = _step(made[first + at], kept[at])
        joined.steps = tuple(steps)
    new: list[Step] = []
    for at in range(stand, len(kept)):
        new.append(_step(made[first + at], kept[at]))
        again.append(at)
    joined.kept = kept
    joined.steps += tuple(new)
    unseen: list[tuple[int, int]] = []
    for at in again:
        for one in kept[at]:
            joined.sketches.add(one.sketch)
            if one.result == UNSEEN:
                unseen.append((first + at, one.call))
    if unseen:
        joined.unseen = joined.unseen + unseen


def _kept(lane: Lane, messages: Messages, start: int) -> tuple[int, list[Calls]]:
    """The first message from `start` on that the lane keeps, and a copy of what is kept from there. New answers are added to the lane."""
    offset, answers = lane.offset, messages.answers
    new = answers[offset + len(lane.answers) :]
    if new:
        lane.answers += new
        lane.said = 0
    if messages.earlier:
        places = [(message.place, message.said) for message in messages.earlier[offset:]]
        lane.places[: len(places)] = places
    first = start if start > offset else offset
    kept = lane.kept[first - offset : len(answers) - offset]
    kept += [()] * (len(answers) - first - len(kept))
    return first, kept


def _keep(lane: Lane, first: int, kept: list[Calls], stand: int, changed: set[int]) -> None:
    """Writes what is kept from message `first` on into the lane: behind what it has, where so many as stand, unchanged, are all of that."""
    begin, known = first - lane.offset, len(lane.kept)
    if begin + stand == known and not (changed and min(changed) < first + stand):  # nearly always
        new = kept[stand:]
        lane.kept += new
        lane.calls += sum(map(len, new))
    else:
        put(lane, lane.kept[:begin] + [()] * (begin - known) + kept + lane.kept[begin + len(kept) :])


def _complete(record: Record, joined: Joined, kept: list[Calls], messages: Messages) -> None:
    """Adds the calls of messages that are new or had lost some, and the sketches of those of others. None that stands is among them."""
    first = joined.first
    for at in range(len(joined.kept), len(kept)):
        known, calls, made = kept[at], messages.fingerprints[first + at], messages.made[first + at]
        for one in known:
            joined.sketches.add(one.sketch)
        if len(known) < len(calls):
            new: list[KeptCall] = []
            for number in range(len(known), len(calls)):
                new.append(KeptCall(calls[number], UNSEEN, name_index(record, made[number].name)))
            kept[at] = known + tuple(new)


def _unsettled(joined: Joined, kept: Sequence[Calls], fresh: int) -> list[int]:
    """Calls whose results were not looked at yet: those of new messages, and those without one so far."""
    new = [one.call for calls in kept[-max(fresh, 1) :] for one in calls]
    unseen = [one.call for calls in kept[len(joined.kept) :] for one in calls if one.result == UNSEEN]
    return [*new, *unseen, *[call for _, call in joined.unseen]]


def _again(messages: Messages, start: int, calls: set[int], elsewhere: set[int]) -> set[int]:
    """Which of these calls were made more than once since `start`, or are known from where no history shows them."""
    calls = {call for call in calls if messages.times[call] > 1 or call in elsewhere}
    if not calls or not start:
        return calls
    times = Counter(chain.from_iterable(messages.fingerprints[start:]))
    return {call for call in calls if times[call] > 1 or call in elsewhere}


def _drop(joined: Joined, messages: Messages, first: int) -> list[tuple[int, ...]]:
    """Adds steps of the messages before `first`, as far as there are none yet. Returns the calls of those messages."""
    known = len(joined.older)
    dropped = messages.fingerprints[known:first]
    for at, calls in enumerate(dropped, known):
        step = joined.steps[at - joined.first] if 0 <= at - joined.first < len(joined.steps) else None
        if step is None or any([entry.result != UNSEEN for entry in step.calls]):
            step = Step(
                tuple([Entry(call, of.name, arguments=of.arguments or None) for call, of in zip(calls, messages.made[at], strict=True)])
            )
        joined.older.append(step)
    return dropped


def _older(joined: Joined, messages: Messages, start: int, first: int, calls: set[int]) -> dict[int, Calls]:
    """What is known of the messages with these calls that the record has dropped, by their indices."""
    found: dict[int, Calls] = {}
    for at, made in enumerate(messages.fingerprints[start:first], start):
        if not calls.isdisjoint(made):
            found[at] = joined.found.get(at) or tuple([KeptCall(call, UNSEEN, -1) for call in made])
    return found


def _step(made: Sequence[ToolCall], calls: Sequence[KeptCall]) -> Step:
    if len(made) == len(calls) == 1:  # nearly every message
        return Step((_entry(made[0], calls[0]),))
    return Step(tuple(map(_entry, made, calls)))


def _entry(made: ToolCall, kept: KeptCall) -> Entry:
    return Entry(kept.call, made.name, kept.result, kept.flags, kept.error, made.arguments or None)
