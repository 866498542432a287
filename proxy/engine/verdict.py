"""The decision on an answer, before it is let go."""

from collections.abc import Sequence

import msgspec

from proxy.counting import Tally, tally
from proxy.detectors import coming, may_come, texts_seen
from proxy.engine.case import Case, Verdict, stop_of
from proxy.engine.flaw import flaw_of
from proxy.events import FindingSeen
from proxy.fingerprint import Fingerprints
from proxy.models import Action, Answer, Choice, Finding, Reason
from proxy.outcomes import FAILED
from proxy.policy import Mode, Policy
from proxy.trail import Entry, Trail
from proxy.turns import cut_at_limit, known_tools, turn_of

_NOTHING = Verdict()  # to object to


def runaway(policy: Policy, begun: dict[str, int], *, coming: int = 0) -> bool:
    """Whether a message under way may hold as many calls of one tool as are cut; coming: how many more the next bytes may begin."""
    ladder = policy.ladders.get(Reason.PARALLEL_REPEAT)
    if policy.mode is not Mode.ENFORCE or ladder is None or ladder.stop_at is None:
        return False
    return max(begun.values(), default=0) + coming >= ladder.stop_at


def judge(case: Case, answer: Answer, counts: Tally | None = None) -> Verdict:
    """Decides on an answer: nothing to object to, some calls to leave out, or the run to stop. counts: the trail's tally, if at hand."""
    ended = _judge_text(case, answer)
    if ended is not None:
        return ended
    most = 0
    for choice in answer.choices:
        if len(choice.calls) > most:
            most = len(choice.calls)
    if not most:
        return _judge_flaw(case, answer)
    counts = counts or tally(case.place.trail, case.policy)
    return _judge_calls(case, answer, counts) if may_come(counts, case.policy, most) else _NOTHING


def _judge_calls(case: Case, answer: Answer, counts: Tally) -> Verdict:
    place, policy, prints = case.place, case.policy, case.prints
    drop: set[tuple[int, int]] = set()
    first: Finding | None = None
    emptied = False
    for number, choice in enumerate(answer.choices):
        entries = _coming(place.trail, choice, prints, policy)
        excused = place.trail.excused
        stops = _stops(place.trail, counts, [entry for entry in entries if entry.call not in excused], policy)
        lost = {position for finding in stops for position in _offending(finding, entries, excused)}
        drop |= {(number, position) for position in lost}
        first = first or (stops[0] if lost else None)
        emptied = emptied or (bool(lost) and len(lost) == len(entries))
    if first is None:
        return _NOTHING
    seen = (FindingSeen(first.reason, Action.STOP),)
    repeated = place.current and bool(first.calls & set(place.lane.pruned))
    if emptied or repeated:
        return Verdict(frozenset(drop), first, stop_of(first), seen)
    return Verdict(frozenset(drop), first, None, seen)


def _judge_text(case: Case, answer: Answer) -> Verdict | None:
    """The stop that an answer brings by what it says, or by saying nothing. Several choices are several answers: samples, not a loop."""
    if len(answer.choices) != 1 or not answer.complete:
        return None
    choice = answer.choices[0]
    cut = cut_at_limit(choice.finish)
    if choice.calls and not cut:
        return None
    before = case.turns()
    if not before:
        return None
    turn = turn_of(choice.text, choice.calls, known_tools(case.request, case.history), case.prints, cut=cut)
    stop = next((finding for finding in texts_seen([*before, turn], case.policy) if finding.stops), None)
    return None if stop is None else Verdict(finding=stop, stop=stop_of(stop), seen=(FindingSeen(stop.reason, Action.STOP),))


def _judge_flaw(case: Case, answer: Answer) -> Verdict:
    """What is wrong with a text; the second passage without end in a run ends the run."""
    flaw = flaw_of(case, answer)
    if flaw is None:
        return _NOTHING
    if not flaw.last:
        return Verdict(finding=flaw.finding, flaw=flaw)
    return Verdict(finding=flaw.finding, stop=stop_of(flaw.finding), seen=(FindingSeen(flaw.finding.reason, Action.STOP),), flaw=flaw)


def _coming(trail: Trail, choice: Choice, prints: Fingerprints, policy: Policy) -> list[Entry]:
    """A choice's calls. One of a finish tool that failed before is expected to fail again: it counts only when it fails."""
    entries = [Entry(prints.call(call.name, call.arguments), call.name, arguments=call.arguments) for call in choice.calls]
    if not any(entry.name in policy.finish_tools for entry in entries):
        return entries
    failed = {entry.call for step in trail.steps for entry in step.calls if entry.failed}
    return [msgspec.structs.replace(entry, flags=FAILED) if entry.call in failed else entry for entry in entries]


def _stops(trail: Trail, counts: Tally, entries: Sequence[Entry], policy: Policy) -> list[Finding]:
    return [finding for finding in coming(trail, counts, entries, policy) if finding.stops]


def _offending(finding: Finding, entries: Sequence[Entry], excused: frozenset[int]) -> list[int]:
    """Positions to leave out: the looped calls; of a runaway message everything from the rung on. excused: calls that are let through."""
    looped = [position for position, entry in enumerate(entries) if entry.call in finding.calls - excused]
    if finding.reason is not Reason.PARALLEL_REPEAT or finding.stop_at is None:
        return looped
    return list(range(looped[finding.stop_at - 1], len(entries)))
