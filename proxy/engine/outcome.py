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
from proxy.state import LOST, Given, Nudge, Record, Relapse, Stop, is_sub_agent, name_index, noticed_mark
from proxy.trail import answer_identity
from proxy.turns import cut_at_limit, goes_on, is_under_way, known_tools, said_mark, turn_of

_GIVEN_CALLS = 32  # calls of one answer that are remembered as made


def conclude(case: Case, result: Result) -> NudgeEnded | None:
    """Writes what came of an exchange into the record. Running it on a record that already knows changes nothing twice."""
    record, place, policy = case.record, case.place, case.policy
    lane = place.lane
    given = [*place.nudges(), *([] if result.nudge is None else [result.nudge])]
    told = policy.mode is Mode.ENFORCE and not any(nudge.held for nudge in given)
    was_open = lane.open
    said = result.nudge or result.warning
    arrived = said is not None and (result.full or policy.nudge.keep)  # one that is kept is said again in the next try
    if said is not None and arrived and all(nudge.mark != said.mark for nudge in lane.nudges):
        kept = [n for n in lane.nudges if not (n.message == LOST and n.run == said.run and set(n.calls) & set(said.calls))]
        lane.nudges = [*kept, said]
        if said.budget is not None:
            record.noticed.append(noticed_mark(said.budget))
    lane.pruned.extend(sorted(result.dropped - set(lane.pruned))[:8])
    ended: NudgeOutcome | None = None
    if result.stop is not None and place.current:
        ended = _write_stop(record, place, result.stop)
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
        if lane.stop is None and _ends(case, result, given, was_open=was_open):
            ended = NudgeOutcome.RECOVERED if result.own else NudgeOutcome.STOPPED
    if result.full and result.said is not None and cut_at_limit(result.said.finish):
        answer = answer_identity(result.said.text, result.said.calls, case.prints)
        lane.shortened = [*(known for known in lane.shortened if known != answer), answer]
    _give(case, result)
    if result.given is not None and result.full:
        choice = result.given.choice
        text = 0 if is_under_way(choice.finish) else said_mark(choice.text, case.prints)
        remember(record, case.request, case.history, case.prints, result.given, text)
    return NudgeEnded(ended, told) if given and ended is not None else None


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
    for call in stop.calls:
        record.relapses = [relapse for relapse in record.relapses if relapse.call != call]
        record.relapses.append(Relapse(call, results.get(call, UNSEEN)))
    if is_sub_agent(lane, record):
        record.stopped += 1
    return NudgeOutcome.STOPPED


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
    elif result.said is not None and not result.said.text.strip() and not is_under_way(result.said.finish):
        record.given.append(Given(mark, result.ended, [], [], empty=True))
