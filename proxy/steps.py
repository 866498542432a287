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
from proxy.state import KeptCall, Lane, Node, Record, name_at, name_index
from proxy.trail import Entry, Messages, Step


class Joined(msgspec.Struct):
    """What was joined of a history's messages, for the request that goes on from it.

    kept: what the record kept then of the calls of each message, from `first` on: lists that are never changed, so that requests of other
    callers may write into the record before the next of this one; steps: what that made of them; unseen: calls among them without a
    result, each with its message. older: steps of the messages before, which the record has dropped: of their results nothing is known,
    but for what was found out again when their calls came back (found). sketches: of all results that were joined so far. lately: what was
    seen in the newest of them, for whoever looks at the steps; it knows the type.
    """

    first: int
    kept: list[list[KeptCall]]
    steps: tuple[Step, ...]
    unseen: list[tuple[int, int]]
    older: list[Step]
    found: dict[int, Node]
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
    fresh = len(messages.answers) - lane.offset - len(lane.nodes)
    first, nodes = _nodes(lane, messages, start)
    joined = _joined(messages)
    dropped = _drop(joined, messages, first) if start < first else []
    _let_stand(joined, first, nodes)
    _complete(record, joined, nodes, messages)
    changed: set[int] = set()
    if messages.earlier:
        changed = keep_arrived(messages, nodes, prints)
    elif nodes:
        changed = keep_newest(nodes, messages, first, prints, joined.sketches, fresh=fresh)
    if messages.again or before or record.relapses:  # else no call was ever made before
        elsewhere = {kept.call for node in before for kept in node.calls} | {relapse.call for relapse in record.relapses}
        again = _again(messages, start, {*_unsettled(joined, nodes, fresh), *chain.from_iterable(dropped)}, elsewhere)
        if again:
            older = _older(joined, messages, start, first, again)
            changed |= compare([*older, *enumerate(nodes, first)], again, before, record.relapses, messages, prints)
            for at, node in older:
                joined.older[at] = _step(messages.made[at], node.calls)
    _renew(joined, messages, nodes, changed)
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
                known.found = {at: node for at, node in before.found.items() if at < begun}
        else:
            known = Joined(0, [], (), [], [], {}, set())
        messages.joined.own = known
    return known


def _let_stand(joined: Joined, first: int, nodes: Sequence[Node]) -> None:
    """Of what was joined leaves what the record still says, from message `first` on. nodes: what it says from there.

    What is kept is a new list: that of the request before is not added to.
    """
    begins, before = first - joined.first, joined.kept
    if begins:
        before = before[begins:] if begins > 0 else []
        joined.steps = joined.steps[begins:]
        joined.unseen = [lacking for lacking in joined.unseen if lacking[0] >= first]
    kept: list[list[KeptCall]] = []
    for node in nodes[: len(before)]:
        kept.append(node.calls)
    if not kept or kept != before:
        kept, joined.steps, joined.unseen = [], (), []
    joined.first, joined.kept = first, kept


def _renew(joined: Joined, messages: Messages, nodes: Sequence[Node], changed: set[int]) -> None:
    """Joins what is new, and again those messages of which the record says something else now (changed)."""
    made, first, kept = messages.made, joined.first, joined.kept
    stand = len(kept)
    again: list[int] = []
    for at in changed:
        if first <= at < first + stand:
            again.append(at - first)
    if again:
        joined.unseen = [lacking for lacking in joined.unseen if lacking[0] not in changed]
        steps = [*joined.steps]
        for at in again:
            kept[at], steps[at] = nodes[at].calls, _step(made[first + at], nodes[at].calls)
        joined.steps = tuple(steps)
    new: list[Step] = []
    for at in range(stand, len(nodes)):
        calls = nodes[at].calls
        kept.append(calls)
        new.append(_step(made[first + at], calls))
        again.append(at)
    joined.steps += tuple(new)
    unseen: list[tuple[int, int]] = []
    for at in again:
        for one in kept[at]:
            joined.sketches.add(one.sketch)
            if one.result == UNSEEN:
                unseen.append((first + at, one.call))
    if unseen:
        joined.unseen = joined.unseen + unseen


def _nodes(lane: Lane, messages: Messages, start: int) -> tuple[int, list[Node]]:
    """The first message from `start` on that the lane keeps, and what is kept from there. What is new is added to the lane."""
    kept, offset, answers = lane.nodes, lane.offset, messages.answers
    for answer in answers[offset + len(kept) :]:
        kept.append(Node(answer, []))
        lane.said = 0
    if messages.earlier:
        for node, message in zip(kept, messages.earlier[offset:], strict=False):
            node.place, node.said = message.place, message.said
    first = start if start > offset else offset
    return first, kept[first - offset : len(answers) - offset]


def _complete(record: Record, joined: Joined, nodes: Sequence[Node], messages: Messages) -> None:
    """Adds the calls of messages that are new or had lost some, and the sketches of those of others. None that stands is among them."""
    first = joined.first
    for at in range(len(joined.kept), len(nodes)):
        node, calls, made = nodes[at], messages.fingerprints[first + at], messages.made[first + at]
        for kept in node.calls:
            joined.sketches.add(kept.sketch)
        if len(node.calls) < len(calls):
            node.calls = node.calls.copy()
            for number in range(len(node.calls), len(calls)):
                node.calls.append(KeptCall(calls[number], UNSEEN, name_index(record, made[number].name)))


def _unsettled(joined: Joined, nodes: Sequence[Node], fresh: int) -> list[int]:
    """Calls whose results were not looked at yet: those of new messages, and those without one so far."""
    new = [kept.call for node in nodes[-max(fresh, 1) :] for kept in node.calls]
    unseen = [kept.call for node in nodes[len(joined.kept) :] for kept in node.calls if kept.result == UNSEEN]
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


def _older(joined: Joined, messages: Messages, start: int, first: int, calls: set[int]) -> list[tuple[int, Node]]:
    """What is known of the messages with these calls that the record has dropped."""
    places = [at for at, made in enumerate(messages.fingerprints[start:first], start) if not calls.isdisjoint(made)]
    for at in places:
        if at not in joined.found:
            joined.found[at] = Node(messages.answers[at], [KeptCall(call, UNSEEN, -1) for call in messages.fingerprints[at]])
    return [(at, joined.found[at]) for at in places]


def _step(made: Sequence[ToolCall], calls: Sequence[KeptCall]) -> Step:
    if len(made) == len(calls) == 1:  # nearly every message
        return Step((_entry(made[0], calls[0]),))
    return Step(tuple(map(_entry, made, calls)))


def _entry(made: ToolCall, kept: KeptCall) -> Entry:
    return Entry(kept.call, made.name, kept.result, kept.flags, kept.error, made.arguments or None)
