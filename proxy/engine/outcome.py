"""What came of an exchange, written into the record."""

from collections.abc import Sequence

from proxy.chains import remember
from proxy.detectors import texts_seen
from proxy.engine.case import Case, Result
from proxy.events import NudgeEnded, NudgeOutcome
from proxy.fingerprint import UNSEEN
from proxy.lanes import Place, asked_mark, tail_marks
from proxy.models import TEXT_REASONS
from proxy.policy import Mode, Scope
from proxy.state import LOST, Given, Lane, Nudge, Record, Relapse, Stop, is_sub_agent, name_index, newest_stop, noticed_mark
from proxy.trail import answer_identity
from proxy.turns import cut_at_limit, goes_on, is_under_way, known_tools, said_mark, turn_of

_GIVEN_CALLS = 32  # calls of one answer that are remembered as made
_ENFORCE, _SESSION = Mode.ENFORCE, Scope.SESSION  # looking a member up costs more than comparing


def conclude(case: Case, result: Result) -> NudgeEnded | None:
    """Writes what came of an exchange into the record. Running it on a record that already knows changes nothing twice."""
    record, place, policy = case.record, case.place, case.policy
    lane = place.lane
    given = place.nudges() if lane.nudges else []
    if result.nudge is not None:
        given.append(result.nudge)
    enforces, was_open, full = policy.mode is _ENFORCE, lane.open, result.full
    said = result.nudge or result.warning
    if said is not None and (full or policy.nudge.keep):  # one that is kept is said again in the next try
        _write_nudge(record, lane, said)
    if result.dropped:
        lane.pruned.extend(sorted(result.dropped - set(lane.pruned))[:8])
    ended: NudgeOutcome | None = None
    if result.stop is not None and place.current:
        ended = _write_stop(record, place, result.stop)
    lane.cut = not full or result.blocked or (enforces and place.current and lane.stop is not None)
    lane.tail = tail_marks(case.request, case.history, case.prints) if lane.cut else []
    if result.blocked or lane.refused:
        lane.refused = _refused(lane.refused, result, case.history.same)
    if full and result.answered and not case.summarises:  # the run goes on after its summary
        lane.open = bool(result.calls) or (result.said is not None and goes_on(result.said.finish))
        if given and lane.stop is None and _ends(case, result, given, was_open=was_open):
            ended = NudgeOutcome.RECOVERED if result.own else NudgeOutcome.STOPPED
    _give(case, result)
    if full:
        _keep_answer(case, result)
    if not given or ended is None:
        return None
    return NudgeEnded(ended, enforces and not any([nudge.held for nudge in given]))


def _refused(refused: list[int], result: Result, same: int) -> list[int]:
    if not result.blocked:
        return [] if result.full else refused
    return [same, refused[1] + 1] if refused[:1] == [same] else [same, 1]


def _keep_answer(case: Case, result: Result) -> None:
    """What no history says of an answer: that it was cut at the output limit; all of it, where only the upstream keeps it."""
    lane, said, given, prints = case.place.lane, result.said, result.given, case.prints
    if result.calls and not lane.behind:
        lane.said = prints.message(result.calls)[0]
    if said is not None and cut_at_limit(said.finish):
        answer = answer_identity(said.text, said.calls, prints)
        lane.shortened = [*(known for known in lane.shortened if known != answer), answer]
    if given is not None:
        text = 0 if is_under_way(given.choice.finish) else said_mark(given.choice.text, prints)
        remember(case.record, case.request, case.history, prints, given, text)


def _write_nudge(record: Record, lane: Lane, said: Nudge) -> None:
    if any(nudge.mark == said.mark for nudge in lane.nudges):
        return
    kept = [n for n in lane.nudges if not (n.message == LOST and n.run == said.run and set(n.calls) & set(said.calls))]
    lane.nudges = [*kept, said]
    if said.budget is not None:
        record.noticed.append(noticed_mark(said.budget))


def _ends(case: Case, result: Result, given: Sequence[Nudge], *, was_open: bool) -> bool:
    """Whether an answer is the end of what a nudge was about: a run of calls ends without one, a loop of texts with another text."""
    about_texts = [nudge for nudge in given if nudge.reason in TEXT_REASONS]
    if len(about_texts) < len(given):
        return was_open and not case.place.lane.open
    said, waiting = result.said, [nudge for nudge in about_texts if not nudge.ended]
    if said is None or not waiting:
        return False
    tools = known_tools(case.request, case.history)
    turn = turn_of(said.text, said.calls, tools, case.prints, cut=cut_at_limit(said.finish))
    going_on = {} if said.calls and not turn.cut else {finding.reason for finding in texts_seen([*case.turns(), turn], case.policy)}
    for nudge in waiting:
        nudge.ended = nudge.reason not in going_on
    return all(nudge.ended for nudge in waiting)


def _write_stop(record: Record, place: Place, stop: Stop) -> NudgeOutcome | None:
    lane = place.lane
    if lane.stop is not None:
        return None
    lane.stop = stop
    results = {entry.call: entry.result for step in place.trail.steps for entry in step.calls if entry.result != UNSEEN}
    number, before = newest_stop(record) + 1, {relapse.call: relapse.number for relapse in record.relapses}
    record.relapses = [relapse for relapse in record.relapses if relapse.call not in stop.calls]
    record.relapses += [Relapse(call, results.get(call, UNSEEN), before.get(call, number)) for call in stop.calls]
    if is_sub_agent(lane, record):
        record.stopped += 1
    return NudgeOutcome.STOPPED


def _give(case: Case, result: Result) -> None:
    """Remembers an answer with calls as made, once per request that was meant: not for samplers, not for retries of a success.

    Without a name for its session a request that comes again is one or the other.
    """
    record, asker, met = case.record, case.asker, case.place.met
    if not result.answered or (not asker.named and case.policy.scope is not _SESSION):
        return
    failed, again = None, False
    for given in met:
        again = again or (not given.cut and (given.ended > asker.began or not asker.named))
        failed = given if failed is None and given.cut else failed
    new: Given | None = None
    if not result.full:
        if failed is None and not asker.retry:
            new = Given(asked_mark(case.history, asker), result.ended, (), (), cut=True)
    elif not again and (failed is not None or not asker.retry):
        if failed is not None:
            record.given = [given for given in record.given if given is not failed]
            met.remove(failed)
        new = _given(case, result)
    if new is not None:
        record.given.append(new)
        met.append(new)


def _given(case: Case, result: Result) -> Given | None:
    """What is remembered of an answer that was delivered in full; None of one that made no call and said something."""
    mark, said = asked_mark(case.history, case.asker), result.said
    if not result.calls:
        silent = said is not None and not said.text.strip() and not is_under_way(said.finish)
        return Given(mark, result.ended, (), (), empty=True) if silent else None
    calls: list[int] = []
    names: list[int] = []
    for call in result.calls[:_GIVEN_CALLS]:
        calls.append(case.prints.call(call.name, call.arguments))
        names.append(name_index(case.record, call.name))
    return Given(mark, result.ended, tuple(calls), tuple(names))
