"""Histories that the upstream keeps: a request goes on from a response or a conversation and brings only what is new.

What went before is remembered here as far as a trail needs it: each answer with the calls it made, under a mark of what a client goes
on from. Where the client was given another answer than the upstream keeps, it is remembered too what the upstream knows it as, and
which of its calls nobody will answer.
"""

from collections.abc import Sequence

import msgspec

from proxy.fingerprint import Fingerprints
from proxy.models import Answer, Choice, Owed, Request, Role, ToolCall
from proxy.state import Kept, Lane, Record, name_at, name_index, place_at
from proxy.trail import Earlier, History, Past, answer_identity, id_mark

_MOST_CALLS = 32  # of one answer
MOST_NAMED = 4  # items of one answer: a client that names any names its newest


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """What a client was given of an answer that the upstream keeps.

    id: what the answer is called. choice: what it said. tokens: what its call read and wrote, 0 where nobody said. go_on_from and owed: as
    in `state.Kept`.
    """

    id: str
    choice: Choice
    tokens: int = 0
    go_on_from: str | None = None
    owed: tuple[Owed, ...] = ()


def place_mark(name: str, prints: Fingerprints) -> int:
    """The mark of a response or of a conversation."""
    return prints.text("kept", name)


def standing(record: Record, request: Request, prints: Fingerprints) -> Kept | None:
    """The answer that a request goes on from, None when it goes on from none that is remembered."""
    if request.goes_on_from is None:
        return None
    mark = place_mark(request.goes_on_from, prints)
    return next((kept for kept in reversed(record.answers) if kept.place == mark), None)


def recall(record: Record, request: Request, prints: Fingerprints) -> Past | None:
    """What went before a request at the upstream, None when nothing is known of it."""
    if request.goes_on_from is None:
        return _referred(record, request, prints) if request.refers else None
    kept = standing(record, request, prints)
    if kept is not None:
        return _past(record, kept)
    mark = place_mark(request.goes_on_from, prints)
    for lane in _newest_first(record):
        last = max((index for index, (place, _) in enumerate(lane.places) if place == mark), default=-1)
        if last >= 0:
            return Past(tuple(_messages(record, lane, last + 1)), lane.seed)
    return None


def _referred(record: Record, request: Request, prints: Fingerprints) -> Past | None:
    """What a history only names: up to the newest answer of which a part is named."""
    for reference in reversed(request.refers):
        mark = place_mark(reference.id, prints)
        kept = next((kept for kept in reversed(record.answers) if mark in kept.items), None)
        if kept is not None:
            return _said_again(record, _past(record, kept), request, reference.item, prints)
    return None


def _said_again(record: Record, past: Past, request: Request, since: int, prints: Fingerprints) -> Past:
    """What went before the items from `since` on, with the results of it that stand before them: found by the ids of their calls."""
    at = {id_mark(item.call_id, prints): index for index, item in enumerate(request.items[:since]) if item.call_id}
    ids = {kept.place: kept.ids for kept in record.answers}
    messages = [
        msgspec.structs.replace(message, result=max([at.get(mark, -1) for mark in ids.get(message.place, ())], default=-1))
        for message in past.messages
    ]
    return msgspec.structs.replace(past, messages=tuple(messages), since=since)


def _past(record: Record, kept: Kept) -> Past:
    names = tuple([name_at(record, index) for index in kept.names])
    newest = Earlier(kept.answer, kept.place, tuple(kept.calls), names, tuple(kept.ids), kept.said)
    return Past((*_before(record, kept), newest), kept.seed, kept.tokens)


def _newest_first(record: Record) -> list[Lane]:
    return sorted(record.lanes, key=lambda lane: -lane.used)


def _before(record: Record, kept: Kept) -> list[Earlier]:
    """The messages before a kept answer, from the lane that went there."""
    for lane in _newest_first(record):
        index = kept.depth - lane.offset
        if lane.seed == kept.seed and 0 <= index <= len(lane.answers) and (index == 0 or place_at(lane, index - 1)[0] == kept.before):
            return _messages(record, lane, index)
    return []


def _messages(record: Record, lane: Lane, count: int) -> list[Earlier]:
    """So many of the messages that a lane keeps, and those before. Of those it has dropped only their number is known."""
    known = [Earlier(0)] * lane.offset
    for index, (answer, calls) in enumerate(zip(lane.answers[:count], lane.kept, strict=False)):
        place, said = place_at(lane, index)
        names = tuple([name_at(record, kept.name) for kept in calls])
        known.append(Earlier(answer, place, tuple([kept.call for kept in calls]), names, said=said))
    return known


def remember(record: Record, request: Request, history: History, prints: Fingerprints, given: Delivered, said: int) -> None:
    """Writes an answer into the record, for the request that goes on from it. Writing it again changes nothing.

    said: mark of its text, 0 of one that is still being made.
    """
    known_as = request.goes_on_from if request.conversation and request.goes_on_from is not None else given.id
    kept = Kept(
        place=place_mark(known_as, prints),
        before=_place(request, history, prints),
        depth=len(history.messages),
        seed=history.seed,
        answer=0,
        calls=[],
        names=[],
        ids=[],
        tokens=given.tokens or history.tokens + request.text_bytes,
        go_on_from=given.go_on_from,
        owed=list(given.owed),
    )
    _write(record, kept, given.choice, said, prints)
    record.answers = [other for other in record.answers if other.place != kept.place] + [kept]


def _place(request: Request, history: History, prints: Fingerprints) -> int:
    """The mark of what a request goes on from, 0 where it stands for itself."""
    if request.goes_on_from is not None:
        return place_mark(request.goes_on_from, prints)
    return history.messages.earlier[-1].place if history.remembered else 0


def complete(record: Record, names: Sequence[str], answer: Answer, said: int, prints: Fingerprints) -> bool:
    """Writes what an answer says that was still being made when it was given; whether that was not known yet.

    names: what a client may go on from it by. said: mark of its text.
    """
    places = {place_mark(name, prints) for name in names}
    kept = next((kept for kept in record.answers if kept.place in places and not kept.said), None)
    if kept is None or not answer.choices:
        return False
    _write(record, kept, answer.choices[0], said, prints)
    kept.tokens = _tokens(answer) or kept.tokens
    return True


def _write(record: Record, kept: Kept, choice: Choice, said: int, prints: Fingerprints) -> None:
    # What the provider carried out itself brought the run on as well; alone it is no call that anybody has to answer.
    calls = [*choice.calls, *(choice.hosted if choice.calls else ())][:_MOST_CALLS]
    kept.answer = answer_identity(choice.text, choice.calls, prints)
    kept.calls = [prints.call(call.name, call.arguments) for call in calls]
    kept.names = [name_index(record, call.name) for call in calls]
    kept.ids = [id_mark(call.id, prints) if call.id else 0 for call in calls]
    kept.said = said
    kept.items = [place_mark(item, prints) for item in choice.items[-MOST_NAMED:]]


def as_it_came(answer: Answer, dropped: Sequence[ToolCall]) -> Delivered | None:
    """An answer of the upstream's, of which these calls were left out; None for one that nobody can go on from."""
    if answer.id is None or not answer.choices:
        return None
    return Delivered(answer.id, answer.choices[0], _tokens(answer), owed=unanswered(dropped))


def _tokens(answer: Answer) -> int:
    return 0 if answer.usage is None else answer.usage.input_tokens + answer.usage.output_tokens


def in_place_of(withheld: Answer | None, id: str, choice: Choice, kept: Kept | None, request: Request) -> Delivered:
    """An answer of Lastcall's under this id. withheld: the upstream's newest answer to the request, None where it was not asked.

    kept: what the request goes on from.
    """
    if withheld is not None and withheld.id is not None:
        go_on_from = withheld.id
        owed = unanswered([call for choice_ in withheld.choices[:1] for call in choice_.calls if call not in choice.calls])
    else:
        moved = kept.go_on_from if kept is not None else None
        go_on_from = (request.goes_on_from or "") if moved is None else moved
        owed = undelivered(kept, request)
    return Delivered(id, choice, 0, None if request.conversation or go_on_from == id else go_on_from, owed)


def unanswered(calls: Sequence[ToolCall]) -> tuple[Owed, ...]:
    """What is owed when an answer that the upstream keeps is withheld, or these calls of it."""
    return tuple([Owed(call.id, "custom_tool_call" if call.custom else call.kind) for call in calls if call.id])


def undelivered(kept: Kept | None, request: Request) -> tuple[Owed, ...]:
    """What is owed when a request never reaches the upstream: what was before, and the results it holds."""
    brought = [Owed(item.call_id, item.kind) for item in request.items if item.role is Role.TOOL and item.call_id]
    return (*(kept.owed if kept is not None else ()), *brought)
