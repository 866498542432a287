"""A lane's steps: what a history shows of each message, joined with what the record keeps of its calls.

New messages and results are written into the lane. What was joined before is not joined again: a history that goes on from an earlier
one brings its steps along (`Joined`), and a step stands as long as the record says the same of its calls.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from proxy.fingerprint import UNSEEN, Fingerprints
from proxy.models import ToolCall
from proxy.results import compare, keep_arrived, keep_newest
from proxy.state import KeptCall, Lane, Node, Record, Relapse, name_at, name_index
from proxy.trail import Entry, Messages, Step


class Joined(msgspec.Struct):
    """What was joined of a history's messages, for the request that goes on from it.

    nodes: what the record kept, from message `first` on; steps: what that made of them. unseen: steps of the first messages, as they are
    once the record has dropped them: nothing is known of their results. older: what was found out again of such messages, when their
    calls came back.
    """

    first: int
    nodes: list[Node]
    steps: list[Step]
    unseen: list[Step]
    older: dict[int, Node]


def kept_step(record: Record, node: Node) -> Step:
    """The step of a message that no history shows any more."""
    calls = [Entry(kept.call, name_at(record, kept.name), kept.result, kept.flags, kept.error) for kept in node.calls]
    return Step(tuple(calls), node.compacted)


def join(record: Record, lane: Lane, messages: Messages, prints: Fingerprints, start: int, before: Iterable[Node]) -> list[Step]:
    """Steps of the messages from `start` on; new messages and results are written into the lane.

    before: what this run did before its compactions. Results are compared with those, and with what stopped earlier runs.
    """
    fresh = len(messages) - lane.offset - len(lane.nodes)
    first, nodes, changed = _nodes(record, lane, messages, start)
    if messages.earlier:
        keep_arrived(messages, nodes, prints)
        changed = True
    elif nodes:
        changed = keep_newest(nodes, messages, first, prints, fresh=fresh) or changed
    others: list[KeptCall | Relapse] = [*record.relapses, *(kept for node in before for kept in node.calls)]
    joined = _joined(messages)
    back = _calls_again(nodes, messages.fingerprints[start:first], others)
    older: dict[int, Node] = {}
    if back:
        older = _older(joined, messages, start, first, back)
        changed = compare([*older.items(), *enumerate(nodes, first)], others, messages, prints, fresh=fresh) or changed
    _renew(joined, messages, first, nodes, changed=changed)
    if start == first:
        return joined.steps.copy()
    steps = _unseen(joined, messages, first)[start:]
    for at, node in older.items():
        steps[at - start] = _step(messages.made[at], node)
    return steps + joined.steps


def _joined(messages: Messages) -> Joined:
    """What is known of the messages, to be added to."""
    known = messages.joined.own
    if not isinstance(known, Joined):
        before, messages.joined.before = messages.joined.before, None
        if isinstance(before, Joined):
            known = Joined(before.first, before.nodes, before.steps, before.unseen.copy(), before.older.copy())
        else:
            known = Joined(0, [], [], [], {})
        messages.joined.own = known
    return known


def _renew(joined: Joined, messages: Messages, first: int, nodes: list[Node], *, changed: bool) -> None:
    """Makes the steps of what the record keeps. Those of messages of which it says what it said before are at hand.

    changed: it says something else of some of them.
    """
    past = joined.nodes[max(first - joined.first, 0) :]
    same = not changed and first >= joined.first and len(past) <= len(nodes) and nodes[: len(past)] == past
    steps = joined.steps[first - joined.first :] if same else []
    made = messages.made
    steps += [_step(made[first + at], nodes[at]) for at in range(len(steps), len(nodes))]
    joined.first, joined.nodes, joined.steps = first, nodes, steps


def _nodes(record: Record, lane: Lane, messages: Messages, start: int) -> tuple[int, list[Node], bool]:
    """The first message from `start` on that the lane keeps, what is kept from there, and whether calls of old ones had been dropped.

    What is new is added to the lane.
    """
    kept, offset, known = lane.nodes, lane.offset, len(lane.nodes)
    kept.extend([Node(answer, []) for answer in messages.answers[offset + known :]])
    for node, message in zip(kept, messages.earlier[offset:], strict=False):
        node.place, node.said = message.place, message.said
    first = max(start, offset)
    nodes = kept[first - offset : len(messages) - offset]
    old = offset + known
    lacking = [at for at, node in enumerate(nodes, first) if len(node.calls) < len(messages.fingerprints[at])]
    for at in lacking:
        calls = nodes[at - first].calls
        for fingerprint, call in list(zip(messages.fingerprints[at], messages.made[at], strict=True))[len(calls) :]:
            calls.append(KeptCall(fingerprint, UNSEEN, name_index(record, call.name)))
    return first, nodes, bool(lacking) and lacking[0] < old


def _calls_again(nodes: Sequence[Node], older: Sequence[tuple[int, ...]], others: Sequence[KeptCall | Relapse]) -> set[int]:
    """Calls whose results may have to be compared: made more than once, or known from where no history shows them."""
    calls = [kept.call for node in nodes for kept in node.calls]
    if older:
        calls += chain.from_iterable(older)
    elsewhere = {other.call for other in others}
    if len(set(calls)) == len(calls):
        return elsewhere
    return elsewhere.union([call for call, times in Counter(calls).items() if times > 1])


def _older(joined: Joined, messages: Messages, start: int, first: int, calls: set[int]) -> dict[int, Node]:
    """What is known of the messages with these calls that the record has dropped."""
    found: dict[int, Node] = {}
    for at, fingerprints in enumerate(messages.fingerprints[start:first], start):
        if not calls.isdisjoint(fingerprints):
            node = joined.older.get(at)
            if node is None:
                node = joined.older[at] = Node(messages.answers[at], [KeptCall(fingerprint, UNSEEN, -1) for fingerprint in fingerprints])
            found[at] = node
    return found


def _unseen(joined: Joined, messages: Messages, end: int) -> list[Step]:
    """The steps of the messages before `end`, as far as their results are not known."""
    steps = joined.unseen
    for made, fingerprints in zip(messages.made[len(steps) : end], messages.fingerprints[len(steps) : end], strict=True):
        steps.append(
            Step(tuple([Entry(call, of.name, arguments=of.arguments or None) for call, of in zip(fingerprints, made, strict=True)]))
        )
    return steps[:end]


def _step(made: Sequence[ToolCall], node: Node) -> Step:
    return Step(tuple([_entry(call, kept) for call, kept in zip(made, node.calls, strict=False)]))


def _entry(made: ToolCall, kept: KeptCall) -> Entry:
    return Entry(kept.call, made.name, kept.result, kept.flags, kept.error, made.arguments or None)
