"""What to do about an exchange: two questions, asked before the upstream and before the answer is let go.

`admit` looks at the trail so far and at the budgets; `judge` at the calls an answer would add; `conclude` writes into the record what
came of it. All three are pure: the record they change is the caller's own copy, and a lost race is settled by running
`absorb` and `conclude` again on what stands in the store now.
"""

from collections.abc import Sequence
from enum import Enum, auto

import msgspec

from proxy.budgets import Spending
from proxy.counting import Tally, ladder_of, tally
from proxy.detectors import DETECTORS, Detector
from proxy.events import FindingSeen, NudgeEnded
from proxy.fingerprint import UNSEEN, Fingerprints
from proxy.lanes import LOST, Asker, Place, place_mark, tail_marks
from proxy.models import Action, Answer, Choice, Edits, Finding, Insert, Notice, Reason, Request, ToolCall
from proxy.nudge import nudge_text, stopped_message, why, why_budget, wrap_up_instruction
from proxy.policy import Mode, OnStop, Policy, Scope
from proxy.state import Given, Nudge, Record, Relapse, Stop, name_index
from proxy.trail import Entry, History, Trail, asks_summary

SUB_AGENT_STOPS = 3  # stopped sub-agent lanes that stop the session's main lane
REPEAT_SHOWN_FROM = 3  # the second repeat
_TRAIL_SHOWN = 16
_GIVEN_CALLS = 32  # calls of one answer that are remembered as made


class Serve(Enum):
    """Where the answer comes from: the upstream as usual, one last upstream call without tools, or Lastcall alone."""

    FORWARD = auto()
    FINAL = auto()
    LOCAL = auto()


class Admission(msgspec.Struct, gc=False):
    """The decision on a request.

    stop: set when this request stops its run. nudge: set when it is nudged. cause: one clause for the texts. repeat: the value of
    `x-lastcall-repeat`. counts: the tally of the trail. armed: one more message could reach a stop rung. count/limit/tool describe what
    `reason` is about.
    """

    action: Action = Action.ALLOW
    serve: Serve = Serve.FORWARD
    reason: Reason | None = None
    finding: Finding | None = None
    edits: Edits = Edits()
    armed: bool = False
    nudge: Nudge | None = None
    stop: Stop | None = None
    cause: str = ""
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    spent: float | None = None
    repeat: str | None = None
    seen: tuple[FindingSeen, ...] = ()
    counts: Tally | None = None

    def stop_for(self, finding: Finding) -> None:
        """The run is stopped for this finding, by the request or by the answer to it."""
        self.action, self.reason, self.finding, self.stop = Action.STOP, finding.reason, finding, _stop(finding)
        self.tool, self.count, self.limit, self.cause = finding.tool, finding.count, finding.stop_at, why(finding)
        self.repeat = f"{finding.tool} {finding.count}/{finding.stop_at}"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The decision on an answer. drop: calls to leave out, as (choice, call) positions. stop: the run ends instead of the answer."""

    drop: frozenset[tuple[int, int]] = frozenset()
    finding: Finding | None = None
    stop: Stop | None = None
    seen: tuple[FindingSeen, ...] = ()


class Result(msgspec.Struct, frozen=True, gc=False):
    """What came of an exchange. full: the answer reached the client to its end. calls: those it was given. ended: epoch seconds.

    blocked: the client was sent away without an answer of the model's, by a stop or an error. own: the model answered as it would, not in
    a wrap-up.
    """

    ended: float
    full: bool
    calls: tuple[ToolCall, ...] = ()
    answered: bool = True
    blocked: bool = False
    own: bool = True
    nudge: Nudge | None = None
    stop: Stop | None = None
    dropped: frozenset[int] = frozenset()


def _active(policy: Policy) -> list[Detector]:
    return [detector for detector in DETECTORS if detector.reason in policy.ladders]


# ---- before the upstream


def admit(
    record: Record, place: Place, request: Request, history: History, prints: Fingerprints, asker: Asker, policy: Policy, spending: Spending
) -> Admission:
    """Decides on a request. Budgets speak first, then a stop that stands, then what the trail shows."""
    counts = tally(place.trail, policy)
    plan = Admission(repeat=_repeat(place.trail, counts, policy), counts=counts)
    if policy.mode is Mode.OBSERVE:
        return _observed(plan, record, place, counts, request, history, prints, policy, spending)
    if spending.refused is not None:
        return _refused(plan, spending.refused, spending)
    if place.current and place.lane.stop is not None:
        return _still_stopped(plan, place.lane.stop)
    plan = _weigh(plan, record, place, counts, request, history, prints, policy, spending)
    plan.armed = plan.serve is Serve.FORWARD and any(detector.armed(place.trail, counts, policy) for detector in _active(policy))
    plan.edits = edits_of(plan, place, request, history, prints, policy, attempt=0)
    return plan


def _observed(
    plan: Admission,
    record: Record,
    place: Place,
    counts: Tally,
    request: Request,
    history: History,
    prints: Fingerprints,
    policy: Policy,
    spending: Spending,
) -> Admission:
    """What would have been done, once each; the exchange itself goes through untouched."""
    if spending.refused is not None:
        _refused(plan, spending.refused, spending)
    elif not (place.current and place.lane.stop is not None):
        plan = _weigh(plan, record, place, counts, request, history, prints, policy, spending)
    plan.serve = Serve.FORWARD
    return plan


def _weigh(
    plan: Admission,
    record: Record,
    place: Place,
    counts: Tally,
    request: Request,
    history: History,
    prints: Fingerprints,
    policy: Policy,
    spending: Spending,
) -> Admission:
    """What the trail shows; a budget's last call concludes, unless the trail ends the run anyway."""
    _look(plan, record, place, counts, request, history, prints, policy)
    if spending.last is not None and plan.action is not Action.STOP and _can_conclude(request, policy):
        return _last_step(plan, spending.last, spending)
    return plan


def _refused(plan: Admission, reason: Reason, spending: Spending) -> Admission:
    plan.action, plan.serve, plan.reason = Action.REFUSE, Serve.LOCAL, reason
    plan.limit, plan.spent = spending.limit, spending.spent
    plan.cause = why_budget(reason, spending.limit or 0)
    return plan


def _still_stopped(plan: Admission, stop: Stop) -> Admission:
    finding = Finding(stop.reason, stop.tool, stop.count, None, stop.limit, frozenset(stop.calls))
    plan.action, plan.serve, plan.reason, plan.finding = Action.STOP, Serve.LOCAL, stop.reason, finding
    plan.tool, plan.count, plan.limit, plan.cause = stop.tool, stop.count, stop.limit, why(finding)
    return plan


def _last_step(plan: Admission, reason: Reason, spending: Spending) -> Admission:
    """The plan for the last call of a budget; a nudge that was to come has no call left to change."""
    return Admission(
        action=Action.STOP,
        serve=Serve.FINAL,
        reason=reason,
        cause=why_budget(reason, spending.limit or 0),
        limit=spending.limit,
        spent=spending.spent,
        repeat=plan.repeat,
        counts=plan.counts,
    )


def _can_conclude(request: Request, policy: Policy) -> bool:
    """Whether the last call of a budget is to be a wrap-up: where tools could be called, else it is an answer anyway."""
    return policy.on_stop is OnStop.WRAP_UP and bool(request.tools) and not request.tools_off


def _look(
    plan: Admission,
    record: Record,
    place: Place,
    counts: Tally,
    request: Request,
    history: History,
    prints: Fingerprints,
    policy: Policy,
) -> None:
    """A stop before a nudge; a nudge that was summarised away is given once more before the stop."""
    findings = [f for detector in _active(policy) for f in detector.seen(place.trail, counts, policy)]
    given = place.nudges()
    standing = [nudge for nudge in given if nudge.message != LOST]
    lost = [nudge for nudge in given if nudge.message == LOST]
    may_nudge = bool(request.tools) and not request.tools_off and not asks_summary(request)
    again = next((f for f in findings if may_nudge and not standing and any(f.calls & set(n.calls) for n in lost)), None)
    stopping = next((finding for finding in findings if finding.stops), None)
    if again is None and stopping is None and place.lane.main and record.stopped >= SUB_AGENT_STOPS:
        stopping = _for_sub_agents(record)
    if stopping is not None and again is None:
        plan.serve = Serve.FINAL if policy.on_stop is OnStop.WRAP_UP else Serve.LOCAL
        plan.stop_for(stopping)
        plan.seen = (FindingSeen(stopping.reason, Action.STOP),)
        return
    new = again or next((f for f in findings if f.nudges and not any(f.calls <= set(n.calls) for n in given)), None)
    if new is None or not may_nudge or (again is None and len(given) >= policy.nudge.max_per_run):
        return
    plan.nudge = _nudge(new, place, request, history, prints)
    if plan.nudge is not None:
        plan.action, plan.reason, plan.finding = Action.NUDGE, new.reason, new
        plan.tool, plan.count, plan.limit = new.tool, new.count, new.stop_at
        plan.seen = (FindingSeen(new.reason, Action.NUDGE),)


def _for_sub_agents(record: Record) -> Finding:
    return Finding(Reason.REPEATED_CALL, "sub-agents", record.stopped, None, SUB_AGENT_STOPS, frozenset())


def _stop(finding: Finding) -> Stop:
    return Stop(finding.reason, finding.tool, finding.count, finding.stop_at or 0, sorted(finding.calls)[:8])


def _nudge(finding: Finding, place: Place, request: Request, history: History, prints: Fingerprints) -> Nudge | None:
    """At the last tool result of the request, or at its last user message when it holds no result."""
    answered = [index for index, message in enumerate(history.messages) if message.last_item >= 0]
    message, item = (answered[-1], -1) if answered else (-1, history.users[-1].item if history.users else -1)
    mark = place_mark(request, history, prints, message, item)
    if not mark or any(nudge.mark == mark for nudge in place.lane.nudges):  # no place, or one that holds a nudge
        return None
    at = min([len(place.trail.steps), *(nudge.at for nudge in place.nudges() if finding.calls & set(nudge.calls))])
    return Nudge(message, item, mark, place.run, finding.reason, finding.tool, finding.count, sorted(finding.calls)[:8], at)


def _repeat(trail: Trail, counts: Tally, policy: Policy) -> str | None:
    newest = trail.newest
    most = max(newest, key=lambda entry: counts.counts.get(entry.call, 0), default=None)
    if most is None or counts.counts.get(most.call, 0) < REPEAT_SHOWN_FROM:
        return None
    ladder = ladder_of(policy, trail, counts, most.call, most.name)
    return f"{most.name} {counts.counts[most.call]}/{ladder.stop_at if ladder and ladder.stop_at else '-'}"


def edits_of(
    plan: Admission, place: Place, request: Request, history: History, prints: Fingerprints, policy: Policy, *, attempt: int
) -> Edits:
    """The request's edits: nudges at their places, and for a last call the instruction to conclude, firmer with each attempt."""
    nudges = [*place.lane.nudges, plan.nudge] if policy.nudge.keep else [plan.nudge]
    inserts: list[Insert] = []
    for nudge in nudges:
        if nudge is None or nudge.message == LOST or place_mark(request, history, prints, nudge.message, nudge.item) != nudge.mark:
            continue
        item = nudge.item if nudge.message < 0 else history.messages[nudge.message].last_item
        inserts.append(Insert(item, nudge_text(nudge, request, history, policy)))
    if plan.serve is not Serve.FINAL:
        return Edits(inserts=tuple(inserts))
    last = max([message.last_item for message in history.messages] + [user.item for user in history.users], default=-1)
    if last >= 0:
        inserts.append(Insert(last, wrap_up_instruction(plan.cause, attempt)))
    force = policy.wrap_up.force_finish_tool
    forced = force if force in request.tools else None
    return Edits(inserts=tuple(inserts), no_tools=forced is None, force_tool=forced)


# ---- before the answer is let go


def runaway(policy: Policy, begun: dict[str, int], *, coming: int = 0) -> bool:
    """Whether a message under way may hold as many calls of one tool as are cut; coming: how many more the next bytes may begin."""
    ladder = policy.ladders.get(Reason.PARALLEL_REPEAT)
    if policy.mode is not Mode.ENFORCE or ladder is None or ladder.stop_at is None:
        return False
    return max(begun.values(), default=0) + coming >= ladder.stop_at


def judge(place: Place, answer: Answer, prints: Fingerprints, policy: Policy, counts: Tally | None = None) -> Verdict:
    """Decides on an answer's calls: none to object to, some to leave out, or the run to stop. counts: the trail's tally, if at hand."""
    if not any(choice.calls for choice in answer.choices):
        return Verdict()
    counts = counts or tally(place.trail, policy)
    drop: set[tuple[int, int]] = set()
    first: Finding | None = None
    emptied = False
    for number, choice in enumerate(answer.choices):
        entries = _coming(place.trail, choice, prints, policy)
        stops = _stops(place, counts, entries, policy)
        lost = {position for finding in stops for position in _offending(finding, entries)}
        drop |= {(number, position) for position in lost}
        first = first or (stops[0] if lost else None)
        emptied = emptied or (bool(lost) and len(lost) == len(entries))
    if first is None:
        return Verdict()
    seen = (FindingSeen(first.reason, Action.STOP),)
    repeated = place.current and bool(first.calls & set(place.lane.pruned))
    if emptied or repeated:
        return Verdict(frozenset(drop), first, _stop(first), seen)
    return Verdict(frozenset(drop), first, None, seen)


def _coming(trail: Trail, choice: Choice, prints: Fingerprints, policy: Policy) -> list[Entry]:
    """A choice's calls. One of a finish tool that failed before is expected to fail again: it counts only when it fails."""
    entries = [Entry(prints.call(call.name, call.arguments), call.name) for call in choice.calls]
    if not any(entry.name in policy.finish_tools for entry in entries):
        return entries
    failed = {entry.call for step in trail.steps for entry in step.calls if entry.failed}
    return [msgspec.structs.replace(entry, failed=entry.call in failed) for entry in entries]


def _stops(place: Place, counts: Tally, entries: Sequence[Entry], policy: Policy) -> list[Finding]:
    found = [f for detector in _active(policy) for f in detector.coming(place.trail, counts, entries, policy)]
    return [finding for finding in found if finding.stops]


def _offending(finding: Finding, entries: Sequence[Entry]) -> list[int]:
    """Positions to leave out: the looped calls; of a runaway message everything from the rung on."""
    looped = [position for position, entry in enumerate(entries) if entry.call in finding.calls]
    if finding.reason is not Reason.PARALLEL_REPEAT or finding.stop_at is None:
        return looped
    return list(range(looped[finding.stop_at - 1], len(entries)))


def notice_of(plan: Admission, place: Place, pruned: Finding | None, session: str) -> Notice:
    """The `lastcall` object: of the stop or refusal, or of calls (`pruned`) left out of an answer that goes on."""
    reason = plan.reason or Reason.REPEATED_CALL
    if pruned is not None:
        return Notice(
            action=Action.STOP,
            reason=pruned.reason,
            detector=str(pruned.reason),
            message=f"Lastcall left calls out of this message: {why(pruned)}.",
            tool=pruned.tool,
            count=pruned.count,
            limit=pruned.stop_at,
            scope="call",
            session=session,
            trail=_trail_shown(place.trail),
        )
    return Notice(
        action=plan.action,
        reason=reason,
        detector=str(reason) if plan.finding is not None else None,
        message=stopped_message(plan.cause, reason),
        tool=plan.tool,
        count=plan.count,
        limit=plan.limit,
        scope="run" if plan.finding is not None else "session",
        spent=plan.spent,
        session=session,
        degraded=True,
        trail=_trail_shown(place.trail),
    )


def _trail_shown(trail: Trail) -> tuple[dict[str, str | int], ...]:
    """The newest different calls: tool, how often, and whether they ever returned something else."""
    results: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    failed: set[int] = set()
    for step in trail.steps:
        for entry in step.calls:
            returned = results.pop(entry.call, [])
            returned.append(entry.result)
            results[entry.call] = returned  # the newest last
            names[entry.call] = entry.name
            if entry.failed:
                failed.add(entry.call)
    shown: list[dict[str, str | int]] = []
    for call, seen in list(results.items())[-_TRAIL_SHOWN:]:
        known = {result for result in seen if result != UNSEEN}
        outcome = "error" if call in failed else ("no result", "same result", "results differ")[min(len(known), 2)]
        shown.append({"tool": names[call], "count": len(seen), "outcome": outcome})
    return tuple(shown)


# ---- afterwards


def conclude(
    record: Record, place: Place, request: Request, history: History, prints: Fingerprints, asker: Asker, policy: Policy, result: Result
) -> NudgeEnded | None:
    """Writes what came of an exchange into the record. Running it on a record that already knows changes nothing twice."""
    lane = place.lane
    nudged = bool(place.nudges()) or result.nudge is not None
    was_open = lane.open
    arrived = result.nudge is not None and (result.full or policy.nudge.keep)  # one that is kept is said again in the next try
    if result.nudge is not None and arrived and all(nudge.mark != result.nudge.mark for nudge in lane.nudges):
        kept = [n for n in lane.nudges if not (n.message == LOST and n.run == result.nudge.run and set(n.calls) & set(result.nudge.calls))]
        lane.nudges = [*kept, result.nudge]
    lane.pruned.extend(sorted(result.dropped - set(lane.pruned))[:8])
    ended = None
    if result.stop is not None and place.current:
        ended = _write_stop(record, place, result.stop, nudged)
    stands = policy.mode is Mode.ENFORCE and place.current and lane.stop is not None
    lane.cut = not result.full or result.blocked or stands
    lane.tail = tail_marks(request, history, prints) if lane.cut else []
    if result.full and result.answered and not asks_summary(request):  # the run goes on after its summary
        lane.open = bool(result.calls)
        if nudged and was_open and not lane.open and lane.stop is None:
            ended = NudgeEnded("recovered" if result.own else "stopped")
    _give(record, history, prints, asker, policy, result)
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


def _give(record: Record, history: History, prints: Fingerprints, asker: Asker, policy: Policy, result: Result) -> None:
    """Remembers an answer with calls as made, once per request that was meant: not for samplers, not for marked retries of a success."""
    if not result.answered or (not asker.named and policy.scope is not Scope.SESSION):
        return
    same = [given for given in record.given if given.same == history.same]
    failed = next((given for given in same if given.cut), None)
    if not result.full:
        if failed is None and not asker.retry:
            record.given.append(Given(history.same, result.ended, [], [], cut=True))
        return
    if (asker.retry and failed is None) or any(not given.cut and given.ended > asker.began for given in same):
        return
    if failed is not None:
        record.given.remove(failed)
    if result.calls:
        calls = result.calls[:_GIVEN_CALLS]
        names = [name_index(record, call.name) for call in calls]
        record.given.append(Given(history.same, result.ended, [prints.call(c.name, c.arguments) for c in calls], names))
