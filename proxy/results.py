"""What is kept of results, and when two are the same: as first seen, by their bytes where these settle it, by their normalised text else.

A client may blank or shorten a result later; what was kept of it stays. Normalising costs a thousand times a hash, so it is done only
where it can matter: for a call that was made before, and for a tool that seems to answer other arguments with the same again.
"""

from collections.abc import Mapping, Sequence

import msgspec

from proxy.fingerprint import UNSEEN, Fingerprints, could_equal, sketch
from proxy.outcomes import FAILED, VOID, error_text, read_outcome
from proxy.state import Calls, KeptCall, Relapse
from proxy.trail import Messages, SeenCall, is_stub, is_void

_LOOKED_BACK = 10  # messages: what is read of a history that was joined late, and how far back a tool's last answer may stand
_LONGEST_COMPARED = 4_096  # bytes; longer answers to other arguments are the same only by their bytes
_LIKENED = 64  # calls of a message; the results of others are the same as those of other arguments only by their bytes
_COMPARED = 2  # earlier answers of a tool that a new one is compared with

Spot = tuple[int, int, list[KeptCall]]  # a call's message, its place there, and what is known of that message by now


def keep_newest(kept: list[Calls], messages: Messages, first: int, prints: Fingerprints, sketches: set[int], *, fresh: int) -> set[int]:
    """Keeps the results of the newest message, and of those just before it that are new too. fresh: how many messages are new.

    kept: of the messages from `first` on. sketches: those of all results that are known so far, at least; those of the new ones are added.
    Returns the messages of which something else is known now.
    """
    changed: set[int] = set()
    last = len(kept) - 1
    begin = last if fresh <= 1 else max(last + 1 - min(fresh, _LOOKED_BACK), 0)
    for at in range(begin, last + 1):
        seen = messages[first + at].calls
        if _keep(kept, at, seen, prints, newest=at == last):
            changed.add(first + at)
        alike = False
        for one in kept[at]:
            alike = alike or one.sketch in sketches
            sketches.add(one.sketch)
        if alike:  # seldom
            for number in _liken(kept, at, seen, messages, first, prints):
                changed.add(first + number)
    return changed


def keep_arrived(messages: Messages, kept: list[Calls], prints: Fingerprints) -> set[int]:
    """The results in a request whose history the upstream keeps: no later one shows them, so they are kept in the form to compare.

    Returns the messages of which something else is known now.
    """
    first = len(messages) - len(kept)
    arrived = range(max(len(messages.earlier) - 1, first), len(messages))
    for at in arrived:
        seen = messages[at].calls
        new = _keep(kept, at - first, seen, prints, newest=True)
        known = enumerate(kept[at - first])
        kept[at - first] = tuple([_with_result(one, prints.result(seen[place].content)) if place in new else one for place, one in known])
    return set(arrived)


def compare(
    kept: Mapping[int, Calls], calls: set[int], relapses: Sequence[Relapse], messages: Messages, prints: Fingerprints
) -> dict[int, Calls]:
    """Settles the results of calls that were made more than once, here or where no history shows them any more.

    kept: by the index of the message, below 0 for those that are gone. relapses: gone too. Returns what is kept from now on of all messages
    with such calls.
    """
    known = {at: list(of) for at, of in kept.items() if any([one.call in calls for one in of])}
    places: dict[int, list[Spot]] = {call: [] for call in calls}
    for at, of in known.items():
        for position, one in enumerate(of):
            if one.call in calls:
                places[one.call].append((at, position, of))
    for call, spots in places.items():
        shown = [spot for spot in spots if spot[0] >= 0]
        for at, position, of in shown:
            seen = messages[at].calls[position]
            if of[position].result == UNSEEN and seen.content:
                of[position] = _first_seen(seen, of[position], prints, newest=False)
        gone = [spot for spot in spots if spot[0] < 0]
        _settle(shown, gone, [relapse for relapse in relapses if relapse.call == call], messages, prints)
    return {at: tuple(of) for at, of in known.items()}


def _keep(kept: list[Calls], at: int, seen: Sequence[SeenCall], prints: Fingerprints, *, newest: bool) -> list[int]:
    """Keeps a message's results as first seen. Returns the places of the calls whose results the history shows for the first time."""
    new: list[int] = []
    known = [*kept[at]]
    for place, one in enumerate(known):
        if one.result == UNSEEN and place < len(seen) and seen[place].content:
            known[place] = _first_seen(seen[place], one, prints, newest=newest)
            new.append(place)
    if new:
        kept[at] = tuple(known)
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


def _liken(kept: list[Calls], at: int, seen: Sequence[SeenCall], messages: Messages, first: int, prints: Fingerprints) -> list[int]:
    """Gives a message's results the identity of what the same tools answered last to other arguments, where they say the same.

    seen: its calls. Returns the places in `kept` of the messages that got another.
    """
    changed: list[int] = []
    near: set[int] = set()
    for position in range(min(len(kept[at]), len(seen), _LIKENED)):
        one, content = kept[at][position], seen[position].content
        if one.result == UNSEEN or one.result & 1 or one.flags & FAILED or len(content) > _LONGEST_COMPARED:
            continue
        near = near or {other.sketch for calls in kept[max(at - _LOOKED_BACK, 0) : at] for other in calls}
        if one.sketch not in near:
            continue
        for number, before in _earlier(kept, at, one):
            other = kept[number][before]
            if other.result == one.result or _same_text(content, messages[first + number].calls[before], other, prints):
                changed += _give(kept, {one.result, other.result}, prints.result(content))
                break
    return changed


def _same_text(content: bytes, shown: SeenCall, other: KeptCall, prints: Fingerprints) -> bool:
    """Whether a result says what an earlier one did, which may be known by its text already, and be gone by now."""
    if other.result & 1:
        return prints.result(content) == other.result
    return could_equal(content, shown.content) and _at_hand(shown, other, prints) and prints.result(content) == prints.result(shown.content)


def _give(kept: list[Calls], results: set[int], identity: int) -> list[int]:
    """Results that turned out to be one get one identity, wherever they stand: the places of the messages that do."""
    changed: list[int] = []
    others = results - {identity}
    for number, calls in enumerate(kept) if len(results) > 1 else ():
        if any([one.result in others for one in calls]):
            kept[number] = tuple([_with_result(one, identity) if one.result in others else one for one in calls])
            changed.append(number)
    return changed


def _earlier(kept: Sequence[Calls], at: int, one: KeptCall) -> list[tuple[int, int]]:
    """Where the same tool answered before with something of the same build, the newest first."""
    found: list[tuple[int, int]] = []
    for number in range(at - 1, max(at - _LOOKED_BACK, 0) - 1, -1):
        for position, other in enumerate(kept[number][:_LIKENED]):
            if other.sketch == one.sketch and other.name == one.name and _another(other, one):
                found.append((number, position))
        if len(found) >= _COMPARED:
            break
    return found[:_COMPARED]


def _another(other: KeptCall, one: KeptCall) -> bool:
    return other.call != one.call and other.result != UNSEEN and not other.flags & FAILED
