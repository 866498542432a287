"""Which lane of a session a history belongs to, and what the two together make of its trail.

History says which calls exist; the record adds the results as first seen, the calls from before a compaction, and what was decided.
`absorb` finds or makes the lane, brings it up to date and returns the trail. It changes the record it is given (a fresh copy for
each attempt) and nothing else, so that running it again on a newer record is all that a lost race needs.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec

from proxy.effects import Offer
from proxy.fingerprint import Fingerprints
from proxy.known_clients import STRANGER, Known
from proxy.models import Request, text_of
from proxy.pardon import NO_RUN, NOTHING, Pardon, forgive, forgive_lane, spare, without_excused
from proxy.state import LOST, NOBODY, Excused, Given, Lane, Node, Nudge, Record, name_at, newest_stop, put
from proxy.steps import join, kept_step
from proxy.trail import (
    Entry,
    History,
    Step,
    Trail,
    UserText,
    asks_summary,
    from_person,
    head_of,
    user_mark,
)

_NO_TRAIL = Trail()
_NONE: frozenset[int] = frozenset()
REST_SECONDS = 900.0  # a lane that nobody asked in for so long is taken up on purpose: no loop pauses


class Asker(msgspec.Struct, frozen=True, gc=False):
    """What the request says beside its history. lane: hash of an explicit lane id, 0 without. named: the client named the session.

    retry: the client marked it as a retry. began: epoch seconds. in_flight: seeds of the session's other requests under way. client: what
    is known of it. side: it says that this is no turn of its agent. session: the session's key. pardon: what an
    operator forgave the session. sent_by: as of `Lane`.
    """

    lane: int = 0
    named: bool = False
    retry: bool = False
    began: float = 0.0
    in_flight: tuple[int, ...] = ()
    client: Known = STRANGER
    side: bool = False
    session: bytes = b""
    pardon: Pardon = NOTHING
    sent_by: int = NOBODY


class Place(msgspec.Struct, gc=False):
    """Where a request stands: its lane (part of the record), the message its run begins at, and the trail of that run.

    current: the run is the lane's newest, so that the lane's stop and nudges are about it (a resent older request may be of an older one).
    met: the answers that were given to this very history already, as the record has them.
    """

    lane: Lane
    run: int
    trail: Trail
    current: bool
    met: list[Given]

    @classmethod
    def nowhere(cls) -> "Place":
        """A place in no record, until one has been loaded."""
        return cls(Lane(0, 0, 0, 0.0), 0, _NO_TRAIL, False, [])

    def nudges(self, *, earlier: bool = False) -> list[Nudge]:
        """The nudges for loops given in this run; with those of earlier runs, but for what was forgiven."""
        return [n for n in self.lane.nudges if n.budget is None and (n.run == self.run or (earlier and n.run != NO_RUN))]


def absorb(record: Record, request: Request, history: History, prints: Fingerprints, asker: Asker, *, whole: bool) -> Place:
    """Finds the lane, joins it with the history, and reads the trail: of the current run, or (`whole`) of all the session did."""
    prints.begin()
    lane = _lane_of(record, request, history, prints, asker)
    if lane.used and asker.began - lane.used > REST_SECONDS:
        lane.rested = len(history.messages)
    lane.used = asker.began
    lane.works = lane.works or _works(request, asker)
    if not (lane.main or asker.side):  # a summary may be asked for in another's name
        lane.sent_by = lane.sent_by or asker.sent_by
    if asker.pardon is not NOTHING:
        unseen = len(_frozen(record, _met(record, history, asker), asker))
        forgive(record, asker.pardon)
        forgive_lane(lane, asker.pardon, len(history.messages), len(history.messages) + unseen)
    run = _run_start(lane, request, history, prints)
    if lane.run > run and any([user.before == lane.run for user in history.users]):
        run = lane.run  # a run that a compaction kept may begin with a text that looks old
    if run > lane.run:
        _begin_run(record, lane, run)
    if lane.nudges:
        _lose_nudges(lane, request, history, prints)
    place = Place(lane, run, _NO_TRAIL, run == lane.run, _met(record, history, asker))
    place.trail = _trail(record, place, request, history, asker, whole=whole)
    lane.behind = lane.offset + len(lane.answers) - len(history.messages.answers)
    return place


def _trail(record: Record, place: Place, request: Request, history: History, asker: Asker, *, whole: bool) -> Trail:
    lane, run, messages = place.lane, place.run, history.messages
    count = len(messages.answers)
    start = 0 if whole else run
    start = lane.since if lane.since > start else start
    before = lane.before if place.current else []
    steps = join(record, lane, messages, history.prints, start if start < count else count, before)
    earlier = [kept_step(record, node) for node in before] if before else []
    frozen = _frozen(record, place.met, asker) if place.met else []
    excused = _NONE
    if lane.excused:
        spared, excused = without_excused([*steps, *frozen], start, lane.excused, earlier)
        steps, frozen = tuple(spared[: len(steps)]), spared[len(steps) :]
    if steps and run == count and not frozen:
        steps = (*steps, Step(()))  # a person spoke since: what the run before ended with is not looked at again
    if earlier:
        steps = (*earlier, msgspec.structs.replace(steps[0] if steps else Step(()), after_compaction=True), *steps[1:])
    if frozen:
        steps = (*steps, *frozen)
    return Trail(
        steps,
        {call: nudge.at for nudge in lane.nudges if nudge.run == run for call in nudge.calls} if lane.nudges else {},
        _relapsed(record, lane, current=place.current) if record.relapses else {},
        _made(record.given, place.met, asker, {one.call for one in lane.excused} - excused) if whole else {},
        _latest(record) if whole and not asker.retry else (),
        Offer(request.tools, request.tools_raw),
        excused,
        not (earlier or frozen or messages.again),
    )


def _relapsed(record: Record, lane: Lane, *, current: bool) -> dict[int, int]:
    """Calls that stopped an earlier run, with the result they had. What stopped another line while this one was at work is none of them.

    current: the lane's run is looked at; the calls of the stop that it stands under are none of them either.
    """
    own = lane.stop.calls if current and lane.stop is not None else ()
    return {relapse.call: relapse.result for relapse in record.relapses if relapse.number <= lane.knows and relapse.call not in own}


# ---- which lane


class _Relation(IntEnum):
    """How a history goes with a lane, the closest last."""

    FORK = 1
    PREFIX = 2
    EXTENDS = 3


_FORK, _PREFIX, _EXTENDS = _Relation  # looking a member up costs more than comparing


def _lane_of(record: Record, request: Request, history: History, prints: Fingerprints, asker: Asker) -> Lane:
    answers = history.messages.answers
    related: list[tuple[Lane, int, _Relation]] = []
    for lane in record.lanes:
        match = _relate(lane, answers, history) if lane.name == asker.lane else None
        if match is not None:
            related.append(match)
    if related:
        lane, depth, relation = related[0] if len(related) == 1 else max(related, key=lambda one: _closeness(one, history.seed))
        if relation is _FORK:
            return _fork(record, lane, depth)
        if relation is _PREFIX and _rewound(lane, request, history, prints):
            fork = _fork(record, lane, depth)
            fork.main, lane.main = lane.main, False  # the person is here now
            return fork
        another = not answers and lane.answers and _opening(request, history, prints) != lane.opening  # a summary stands there now
        if not another:
            return lane
    head = head_of(request, prints)
    named = [lane for lane in record.lanes if lane.name == asker.lane]
    found = _after_compaction(record, named, answers, history, head, asker)
    lane = found or _new_lane(record, history, head, asker, works=_works(request, asker))
    lane.opening = _opening(request, history, prints)
    return lane


def _closeness(related: tuple[Lane, int, _Relation], seed: int) -> tuple[bool, int, int, bool, float]:
    """What makes one lane go better with a history than another. seed: of the history's first user text."""
    lane, depth, relation = related
    knows = lane.run < depth  # what its prefix did before a compaction
    return lane.seed == seed, depth, relation, knows, lane.used


def _works(request: Request, asker: Asker) -> bool:
    """Whether this is a turn of an agent, which a title or a probe is not."""
    return bool(request.tools) and not asker.side


def _relate(lane: Lane, answers: Sequence[int], history: History) -> tuple[Lane, int, _Relation] | None:
    offset = lane.offset
    if len(answers) < offset:
        return None
    kept = lane.answers
    depth = offset + len(kept)
    shown = answers[offset:depth]
    same_prompt = lane.seed == history.seed
    if kept == shown and (kept or (same_prompt and not offset)):
        return lane, depth, _EXTENDS
    shared = next((at for at, pair in enumerate(zip(kept, shown, strict=False)) if pair[0] != pair[1]), len(shown))
    if offset and not shared:
        return None
    depth = offset + shared
    if not same_prompt:  # equal answers alone are no evidence: ids may be missing or restart in every turn
        return None
    if depth == len(answers):
        return lane, depth, _PREFIX
    return (lane, depth, _FORK) if depth else None


def _rewound(lane: Lane, request: Request, history: History, prints: Fingerprints) -> bool:
    """Whether a person went back in the lane and says something else there: another line of history before its first answer."""
    last = history.users[-1] if history.users else None
    if last is None or not last.follows_answer or last.before < len(history.messages):
        return False
    return last.mark not in {*lane.texts, *lane.older} and from_person(text_of(request.items[last.item].content))


def _opening(request: Request, history: History, prints: Fingerprints) -> int:
    """The identity of the user text that stands last before the first answer; 0 where that is the first of all."""
    texts = [user for user in history.users if user.before == 0]
    return user_mark(request.items[texts[-1].item], prints) if len(texts) > 1 else 0


def _new_lane(record: Record, history: History, head: int, asker: Asker, *, works: bool) -> Lane:
    """works: it may be the session's main line, which a title or a probe, often asked for first, and a sub-agent are not."""
    main = works and not asker.sent_by and not any(other.main for other in record.lanes)
    lane = Lane(asker.lane, head, history.seed, asker.began, main=main, knows=newest_stop(record))
    record.lanes.append(lane)
    return lane


def _fork(record: Record, parent: Lane, depth: int) -> Lane:
    """A branch: what its prefix counted and was nudged for comes with it, the rest does not."""
    lane = msgspec.structs.replace(
        parent,
        answers=parent.answers[: depth - parent.offset],
        places=[],
        nudges=[msgspec.structs.replace(nudge) for nudge in parent.nudges if nudge.message < depth],
        before=[_copy(node) for node in parent.before] if parent.run < depth else [],
        run=parent.run if parent.run < depth else 0,
        stop=None,
        cut=False,
        tail=[],
        pruned=[],
        main=False,
        said=0,
        starts=list(parent.starts),
        texts=list(parent.texts),
        older=list(parent.older),
        shortened=list(parent.shortened),
        refused=list(parent.refused),
        since=min(parent.since, depth),
        excused=[Excused(one.call, min(one.at, depth)) for one in parent.excused],
        knows=newest_stop(record),
    )
    put(lane, parent.kept[: depth - parent.offset])
    record.lanes.append(lane)
    return lane


def _copy(node: Node) -> Node:
    return Node(node.answer, node.calls, node.compacted)


def _after_compaction(
    record: Record, lanes: Iterable[Lane], answers: Sequence[int], history: History, head: int, asker: Asker
) -> Lane | None:
    """The lane that a shorter history continues: one that keeps its tail, or an idle one framed the same with its run unfinished."""
    idle = [lane for lane in lanes if lane.answers and lane.seed not in asker.in_flight]
    for lane in sorted(idle, key=lambda lane: -lane.used):
        kept = _kept_tail(lane, answers)
        if kept is not None:
            return _compact(record, lane, history, head, asker, kept)
    called = any(history.messages.made)
    if called or (answers and any(lane.seed == history.seed for lane in lanes)):
        return None
    unfinished = [lane for lane in idle if lane.open and lane.stop is None]  # a stopped run was given no summary to go on from
    candidates = [lane for lane in unfinished if lane.head == head and lane.offset + len(lane.answers) > len(answers)]
    if not candidates:
        return None
    return _compact(record, max(candidates, key=lambda lane: lane.used), history, head, asker, None)


def _kept_tail(lane: Lane, answers: Sequence[int]) -> tuple[int, int] | None:
    """Where the newest part of a lane begins in a shorter history: (place in the lane, message). Up to two leading messages may be the
    summary's.

    The newest part may be the answer that no history has shown yet.
    """
    known, shown = lane.answers, list(answers)
    for place, first in enumerate(known):  # the longest tail first
        for message, answer in enumerate(shown[:3]):
            tail = known[place:] if answer == first else []
            if tail and shown[message : message + len(tail)] == tail and any(lane.kept[place:]):
                return place, message
    if lane.said in shown[:3] and lane.said:
        return len(known), shown.index(lane.said)
    return None


def _compact(record: Record, old: Lane, history: History, head: int, asker: Asker, kept: tuple[int, int] | None) -> Lane:
    run = max(old.run - old.offset, 0)
    first = max(run, old.since - old.offset)
    place, message = kept or (len(old.answers), 0)
    moved = [Node(answer, calls) for answer, calls in zip(old.answers[first:place], old.kept[first:place], strict=True)]
    waiting = spare(moved, old.offset + first, old.excused)
    if moved and old.before:
        moved[0].compacted = True
    lane = _new_lane(record, history, head, asker, works=False)
    lane.run = message + run - place if kept and run > place else 0
    lane.before = [*map(_copy, old.before), *moved]
    loops = [nudge for nudge in old.nudges if nudge.run == old.run and nudge.budget is None]
    lane.nudges = [msgspec.structs.replace(nudge, message=LOST, item=-1, run=lane.run) for nudge in loops]
    lane.older = [*old.older, *old.texts]
    lane.stop, lane.pruned, lane.main, lane.cut, lane.tail = old.stop, list(old.pruned), old.main, old.cut, list(old.tail)
    shift = message - place - old.offset
    lane.works, lane.sent_by, lane.knows = old.works, old.sent_by, old.knows
    lane.reset, lane.allowed, lane.since = old.reset, old.allowed, max(old.since + shift, 0)
    lane.excused = [Excused(one.call, max(one.at + shift, 0)) for one in waiting]
    old.main = False
    if kept is not None:
        lane.answers = [*history.messages.answers[:message], *old.answers[place:]]
        put(lane, [()] * message + old.kept[place:])
    return lane


# ---- which run


def _run_start(lane: Lane, request: Request, history: History, prints: Fingerprints) -> int:
    """The message the current run begins at: where a person last said something new."""
    # Of a history that the upstream keeps the lane knows what was said before and where the run began.
    count, remembered = len(history.messages.answers), history.messages.earlier
    start, texts = (lane.run, lane.texts.copy()) if remembered else (0, [])
    known = {*lane.older, *texts}
    for user in history.users:
        tail = lane.cut and user.before == count
        if not (user.follows_answer or tail or lane.starts):  # nearly always
            continue
        item = request.items[user.item]
        mark = user.mark or user_mark(item, prints)
        if user.follows_answer:
            if mark not in known and from_person(text_of(item.content)):
                start = user.before
            known.add(mark)
            texts.append(mark)
        elif mark in lane.starts:
            start = user.before
        elif tail and mark not in lane.tail and from_person(text_of(item.content)) and not asks_summary(request):
            lane.starts.append(mark)
            start = user.before
    if count >= lane.offset + len(lane.answers):
        lane.texts = texts
    return start


def _begin_run(record: Record, lane: Lane, run: int) -> None:
    lane.run, lane.stop, lane.before, lane.pruned, lane.cut, lane.tail, lane.excused = run, None, [], [], False, [], []
    lane.knows = newest_stop(record)
    if lane.main:
        record.stopped = 0


def tail_marks(request: Request, history: History, prints: Fingerprints) -> list[int]:
    """Identities of the user texts after the last answer, to tell later whether a person added one."""
    tail: list[UserText] = [user for user in history.users if user.before == len(history.messages)]
    return [user_mark(request.items[user.item], prints) for user in tail]


# ---- the trail


def place_mark(request: Request, history: History, prints: Fingerprints, message: int, item: int) -> int:
    """Identity of what stands where a nudge was put: a message and its index, or a user item and its text; 0 where there is nothing."""
    if 0 <= message < len(history.messages) and history.messages[message].last_item >= 0:
        return prints.digest(b"place", message.to_bytes(4, "little"), history.messages.answers[message].to_bytes(8, "little"))
    if message == -1 and 0 <= item < len(request.items):
        return prints.digest(b"place", item.to_bytes(4, "little"), prints.result(request.items[item].content).to_bytes(8, "little"))
    return 0


def _lose_nudges(lane: Lane, request: Request, history: History, prints: Fingerprints) -> None:
    for index, nudge in enumerate(lane.nudges):
        if nudge.message == LOST or nudge.message >= len(history.messages):
            continue
        if history.remembered and nudge.message < history.remembered and not _is_here(history, nudge):
            continue  # it stands where the upstream keeps it
        if place_mark(request, history, prints, nudge.message, nudge.item) != nudge.mark:
            lane.nudges[index] = msgspec.structs.replace(nudge, message=LOST, item=-1)


def _is_here(history: History, nudge: Nudge) -> bool:
    """Whether the results that hold a nudge are part of the request."""
    return nudge.message >= 0 and history.messages[nudge.message].last_item >= 0


# ---- answers that no history carries


def asked_mark(history: History, asker: Asker) -> int:
    """Identity of a request's history in the line that the client names: sub-agents are sent out with equal prompts."""
    return history.same ^ asker.lane


def _met(record: Record, history: History, asker: Asker) -> list[Given]:
    """The answers that were given to this very history already."""
    mark = asked_mark(history, asker)
    found: list[Given] = []
    for given in record.given:
        if given.same == mark:
            found.append(given)
    return found


def unheard(place: Place, asker: Asker) -> int:
    """How many empty answers this very history was given already, to a client that does not keep them."""
    if not asker.named or asker.retry:
        return 0
    return sum([given.empty and given.ended <= asker.began for given in place.met])


def _frozen(record: Record, met: Sequence[Given], asker: Asker) -> list[Step]:
    """Answers already delivered in full to this very history, by a client that keeps none or is stuck: their calls count as made."""
    if not asker.named or asker.retry:
        return []
    return [Step(_entries(record, given)) for given in met if given.calls and not given.cut and given.ended <= asker.began]


def _latest(record: Record) -> tuple[Entry, ...]:
    delivered = [given for given in record.given if given.calls and not given.cut]
    return _entries(record, delivered[-1]) if delivered else ()


def _entries(record: Record, given: Given) -> tuple[Entry, ...]:
    return tuple(Entry(call, name_at(record, name)) for call, name in zip(given.calls, given.names, strict=False))


def _made(given: Iterable[Given], met: Iterable[Given], asker: Asker, spared: Iterable[int]) -> dict[int, int]:
    """How often each call was delivered, but in answers that this request asks for again. spared: calls of which one does not count."""
    made: dict[int, int] = dict.fromkeys(spared, -1)
    again = [answer for answer in met if asker.retry or not asker.named or answer.ended > asker.began]
    for answer in given:
        for call in set() if answer.cut or answer in again else set(answer.calls):
            made[call] = made.get(call, 0) + 1
    return made
