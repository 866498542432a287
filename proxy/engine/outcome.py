"""What came of an exchange, written into the record."""

from proxy.engine.case import Case, Result
from proxy.events import NudgeEnded
from proxy.fingerprint import UNSEEN
from proxy.lanes import LOST, Place, asked_mark, tail_marks
from proxy.policy import Mode, Scope
from proxy.state import Given, Record, Relapse, Stop, name_index, noticed_mark
from proxy.trail import answer_identity
from proxy.turns import cut_at_limit, goes_on

_GIVEN_CALLS = 32  # calls of one answer that are remembered as made


def conclude(case: Case, result: Result) -> NudgeEnded | None:
    """Writes what came of an exchange into the record. Running it on a record that already knows changes nothing twice."""
    record, place, policy = case.record, case.place, case.policy
    lane = place.lane
    nudged = bool(place.nudges()) or result.nudge is not None
    was_open = lane.open
    said = result.nudge or result.warning
    arrived = said is not None and (result.full or policy.nudge.keep)  # one that is kept is said again in the next try
    if said is not None and arrived and all(nudge.mark != said.mark for nudge in lane.nudges):
        kept = [n for n in lane.nudges if not (n.message == LOST and n.run == said.run and set(n.calls) & set(said.calls))]
        lane.nudges = [*kept, said]
        if said.budget is not None:
            record.noticed.append(noticed_mark(said.budget))
    lane.pruned.extend(sorted(result.dropped - set(lane.pruned))[:8])
    ended = None
    if result.stop is not None and place.current:
        ended = _write_stop(record, place, result.stop, nudged)
    stands = policy.mode is Mode.ENFORCE and place.current and lane.stop is not None
    lane.cut = not result.full or result.blocked or stands
    lane.tail = tail_marks(case.request, case.history, case.prints) if lane.cut else []
    if result.blocked:
        again = lane.refused[:1] == [case.history.same]
        lane.refused = [case.history.same, lane.refused[1] + 1 if again else 1]
    elif result.full:
        lane.refused = []
    if result.full and result.answered and not case.summarises:  # the run goes on after its summary
        lane.open = bool(result.calls) or (result.said is not None and goes_on(result.said.finish))
        if nudged and was_open and not lane.open and lane.stop is None:
            ended = NudgeEnded("recovered" if result.own else "stopped")
    if result.full and result.said is not None and cut_at_limit(result.said.finish):
        answer = answer_identity(result.said.text, result.said.calls, case.prints)
        lane.shortened = [*(known for known in lane.shortened if known != answer), answer]
    _give(case, result)
    return ended


def _write_stop(record: Record, place: Place, stop: Stop, nudged: bool) -> NudgeEnded | None:
    lane = place.lane
    if lane.stop is not None:
        return None
    lane.stop = stop
    results = {entry.call: entry.result for step in place.trail.steps for entry in step.calls if entry.result != UNSEEN}
    for call in stop.calls:
        record.relapses = [relapse for relapse in record.relapses if relapse.call != call]
        record.relapses.append(Relapse(call, results.get(call, UNSEEN)))
    main = next((other for other in record.lanes if other.main), None)
    if not lane.main and (lane.name or (main is not None and main.head != lane.head)):
        record.stopped += 1
    return NudgeEnded("stopped") if nudged else None


def _give(case: Case, result: Result) -> None:
    """Remembers an answer with calls as made, once per request that was meant: not for samplers, not for marked retries of a success."""
    record, asker, mark = case.record, case.asker, asked_mark(case.history, case.asker)
    if not result.answered or (not asker.named and case.policy.scope is not Scope.SESSION):
        return
    same = [given for given in record.given if given.same == mark]
    failed = next((given for given in same if given.cut), None)
    if not result.full:
        if failed is None and not asker.retry:
            record.given.append(Given(mark, result.ended, [], [], cut=True))
        return
    if (asker.retry and failed is None) or any(not given.cut and given.ended > asker.began for given in same):
        return
    if failed is not None:
        record.given.remove(failed)
    if result.calls:
        calls = result.calls[:_GIVEN_CALLS]
        names = [name_index(record, call.name) for call in calls]
        record.given.append(Given(mark, result.ended, [case.prints.call(c.name, c.arguments) for c in calls], names))
