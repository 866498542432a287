"""What is kept of results, and when two are the same: as first seen, by their bytes where these settle it, by their normalised text else.

A client may blank or shorten a result later; what was kept of it stays. Normalising costs a thousand times a hash, so it is done only
where it can matter: for a call that was made before, and for a tool that seems to answer other arguments with the same again.
"""

from collections.abc import Iterable, Sequence

import msgspec

from proxy.fingerprint import UNSEEN, Fingerprints, could_equal, sketch
from proxy.outcomes import FAILED, VOID, error_text, read_outcome
from proxy.state import KeptCall, Node, Relapse
from proxy.trail import Messages, SeenCall, is_stub, is_void

_LOOKED_BACK = 10  # messages: what is read of a history that was joined late, and how far back a tool's last answer may stand
_LONGEST_COMPARED = 4_096  # bytes; longer answers to other arguments are the same only by their bytes
_LIKENED = 64  # calls of a message; the results of others are the same as those of other arguments only by their bytes
_COMPARED = 2  # earlier answers of a tool that a new one is compared with

Spot = tuple[int, int, list[KeptCall]]  # a call's message, its place there, and what is kept of that message


def keep_newest(nodes: Sequence[Node], messages: Messages, first: int, prints: Fingerprints, sketches: set[int], *, fresh: int) -> set[int]:
    """Keeps the results of the newest message, and of those just before it that are new too. fresh: how many messages are new.

    nodes: of the messages from `first` on. sketches: those of all results that are known so far, at least; those of the new ones are added.
    Returns the messages of which something else is known now.
    """
    changed: set[int] = set()
    last = len(nodes) - 1
    begin = last if fresh <= 1 else max(last + 1 - min(fresh, _LOOKED_BACK), 0)
    for at in range(begin, last + 1):
        seen = messages[first + at].calls
        if _keep(nodes[at], seen, prints, newest=at == last):
            changed.add(first + at)
        alike = False
        for kept in nodes[at].calls:
            alike = alike or kept.sketch in sketches
            sketches.add(kept.sketch)
        if alike:  # seldom
            for number in _liken(nodes, at, seen, messages, first, prints):
                changed.add(first + number)
    return changed


def keep_arrived(messages: Messages, nodes: Sequence[Node], prints: Fingerprints) -> set[int]:
    """The results in a request whose history the upstream keeps: no later one shows them, so they are kept in the form to compare.

    Returns the messages of which something else is known now.
    """
    first = len(messages) - len(nodes)
    arrived = range(max(len(messages.earlier) - 1, first), len(messages))
    for at in arrived:
        node, seen = nodes[at - first], messages[at].calls
        for position in _keep(node, seen, prints, newest=True):
            node.calls[position] = _with_result(node.calls[position], prints.result(seen[position].content))
    return set(arrived)


def compare(
    nodes: Iterable[tuple[int, Node]],
    calls: set[int],
    gone: Sequence[Node],
    relapses: Sequence[Relapse],
    messages: Messages,
    prints: Fingerprints,
) -> set[int]:
    """Settles the results of calls that were made more than once, here or where no history shows them any more: gone, relapses.

    nodes: with the index of their message. Returns the messages of which something else may be known now.
    """
    places = _places(nodes, calls)
    elsewhere = _places([(-1, node) for node in gone], calls)
    for call, spots in places.items():
        for at, position, kept in spots:
            seen = messages[at].calls[position]
            if kept[position].result == UNSEEN and seen.content:
                kept[position] = _first_seen(seen, kept[position], prints, newest=False)
        _settle(spots, elsewhere[call], [relapse for relapse in relapses if relapse.call == call], messages, prints)
    return {at for spots in places.values() for at, _, _ in spots}


def _places(nodes: Iterable[tuple[int, Node]], calls: set[int]) -> dict[int, list[Spot]]:
    """Where these calls stand. What is kept of those messages is a list of its own then, which may be changed."""
    places: dict[int, list[Spot]] = {call: [] for call in calls}
    for at, node in nodes:
        if any([kept.call in calls for kept in node.calls]):
            node.calls = node.calls.copy()
            for position, kept in enumerate(node.calls):
                if kept.call in calls:
                    places[kept.call].append((at, position, node.calls))
    return places


def _keep(node: Node, seen: Sequence[SeenCall], prints: Fingerprints, *, newest: bool) -> list[int]:
    """Keeps a message's results as first seen. Returns the places of the calls whose results the history shows for the first time."""
    new: list[int] = []
    for at, kept in enumerate(node.calls):
        if kept.result == UNSEEN and at < len(seen) and seen[at].content:
            if not new:
                node.calls = node.calls.copy()
            node.calls[at] = _first_seen(seen[at], kept, prints, newest=newest)
            new.append(at)
    return new


def _first_seen(seen: SeenCall, kept: KeptCall, prints: Fingerprints, *, newest: bool) -> KeptCall:
    """What is kept of a call with its result. newest: it has just arrived, so that it was not cut."""
    content = seen.content
    flags = read_outcome(content, marked=seen.failed)
    if is_void(content):
        flags |= VOID
    error = prints.error(error_text(content)) if flags & FAILED else 0
    if newest or not is_stub(content):
        result = seen.exact or prints.raw_result(content)
    else:  # cut before it was ever recorded: it equals nothing
        result = prints.raw_result(b"stub %d %d" % (seen.fingerprint, seen.item))
    return KeptCall(kept.call, result, kept.name, flags, error, sketch(content) if len(content) <= _LONGEST_COMPARED else 0)


def _settle(spots: Sequence[Spot], gone: Sequence[Spot], relapses: Sequence[Relapse], messages: Messages, prints: Fingerprints) -> None:
    """Where one call returned different bytes, compares its results by their normalised text as far as that is still at hand.

    gone, relapses: results of the same call that no history shows any more. From the third occurrence on bytes are never enough: what may
    end as a stop is remembered in the form that a later run can compare.
    """
    alike = {kept[position].result for _, position, kept in (*spots, *gone)} | {relapse.result for relapse in relapses}
    if len(spots) < 3 and len(alike - {UNSEEN}) < 2:
        return
    shown = [(messages[at].calls[position], kept[position]) for at, position, kept in spots]
    normal = {kept.result: prints.result(seen.content) for seen, kept in shown if _at_hand(seen, kept, prints)}
    for _, position, calls in (*spots, *gone) if normal else ():
        calls[position] = _with_result(calls[position], normal.get(calls[position].result))
    for relapse in relapses:
        relapse.result = normal.get(relapse.result, relapse.result)


def _with_result(kept: KeptCall, result: int | None) -> KeptCall:
    return kept if result is None else msgspec.structs.replace(kept, result=result)


def _at_hand(seen: SeenCall, kept: KeptCall, prints: Fingerprints) -> bool:
    """Whether the result is only known by its bytes, and the history still shows them."""
    return kept.result != UNSEEN and not kept.result & 1 and prints.raw_result(seen.content) == kept.result


def _liken(nodes: Sequence[Node], at: int, seen: Sequence[SeenCall], messages: Messages, first: int, prints: Fingerprints) -> list[int]:
    """Gives a message's results the identity of what the same tools answered last to other arguments, where they say the same.

    seen: its calls. Returns the nodes that got another.
    """
    changed: list[int] = []
    near: set[int] = set()
    for position in range(min(len(nodes[at].calls), len(seen), _LIKENED)):
        kept, content = nodes[at].calls[position], seen[position].content
        if kept.result == UNSEEN or kept.result & 1 or kept.flags & FAILED or len(content) > _LONGEST_COMPARED:
            continue
        near = near or {other.sketch for node in nodes[max(at - _LOOKED_BACK, 0) : at] for other in node.calls}
        if kept.sketch not in near:
            continue
        for number, before in _earlier(nodes, at, kept):
            other = nodes[number].calls[before]
            if other.result == kept.result or _same_text(content, messages[first + number].calls[before], other, prints):
                changed += _give(nodes, {kept.result, other.result}, prints.result(content))
                break
    return changed


def _same_text(content: bytes, shown: SeenCall, other: KeptCall, prints: Fingerprints) -> bool:
    """Whether a result says what an earlier one did, which may be known by its text already, and be gone by now."""
    if other.result & 1:
        return prints.result(content) == other.result
    return could_equal(content, shown.content) and _at_hand(shown, other, prints) and prints.result(content) == prints.result(shown.content)


def _give(nodes: Sequence[Node], results: set[int], identity: int) -> list[int]:
    """Results that turned out to be one get one identity, wherever they stand: the nodes that do."""
    changed: list[int] = []
    others = results - {identity}
    for number, node in enumerate(nodes) if len(results) > 1 else ():
        if any([kept.result in others for kept in node.calls]):
            node.calls = [_with_result(kept, identity) if kept.result in others else kept for kept in node.calls]
            changed.append(number)
    return changed


def _earlier(nodes: Sequence[Node], at: int, kept: KeptCall) -> list[tuple[int, int]]:
    """Where the same tool answered before with something of the same build, the newest first."""
    found: list[tuple[int, int]] = []
    for number in range(at - 1, max(at - _LOOKED_BACK, 0) - 1, -1):
        for position, other in enumerate(nodes[number].calls[:_LIKENED]):
            if other.sketch == kept.sketch and other.name == kept.name and _another(other, kept):
                found.append((number, position))
        if len(found) >= _COMPARED:
            break
    return found[:_COMPARED]


def _another(other: KeptCall, kept: KeptCall) -> bool:
    return other.call != kept.call and other.result != UNSEEN and not other.flags & FAILED
