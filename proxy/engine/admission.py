"""The decision on a request, before the upstream is asked, and what is changed in it."""

from collections.abc import Sequence

import msgspec

from proxy.budgets import Spending
from proxy.chains import standing, unanswered
from proxy.counting import AGAIN, Lately, Tally, ladder_of, tally
from proxy.detectors import armed, seen, texts_armed, texts_seen
from proxy.engine.case import Admission, Case, Flaw, Serve
from proxy.events import FindingSeen
from proxy.finishing import closing_tool
from proxy.lanes import place_mark
from proxy.lineage import stopped_above
from proxy.models import TEXT_REASONS, Action, Allowance, Edits, Finding, Insert, Reason, Request, ToolCall
from proxy.nudge import NOT_EXECUTED, again_instruction, nudge_text, why, why_above, why_sender, wrap_up_instruction
from proxy.policy import Mode, OnStop, Policy, Scope
from proxy.state import LOST, Nudge, Record, Stop, noticed_mark
from proxy.steps import Joined
from proxy.trail import History, Messages, Trail
from proxy.turns import Turn

SUB_AGENT_STOPS = 3  # stopped sub-agent lanes that stop the session's main lane
ERROR_LADDER = (400, 401, 404)
NOT_NOW = 429  # clients send the request again; of a run that is over, many would for ever
REPEAT_SHOWN_FROM = 3  # the second repeat
_OBSERVE, _FORWARD, _FINAL = Mode.OBSERVE, Serve.FORWARD, Serve.FINAL  # looking a member up costs more than comparing
_NO_EDITS = Edits()


def admit(case: Case, spending: Spending) -> Admission:
    """Decides on a request. Budgets speak first, then a stop that stands, its own or one above it, then what the trail shows."""
    policy, place = case.policy, case.place
    lane, trail = place.lane, place.trail
    counts = tally(trail, policy, _lately(case.history.messages))
    plan = Admission(repeat=_repeat(trail, counts, policy), counts=counts, status=_error_status(case))
    if policy.mode is _OBSERVE:
        return _observed(plan, case, counts, spending)
    if spending.refused is not None:
        return _refused(plan, spending.refused)
    if spending.above is not None:
        plan.serve = Serve.LOCAL
        plan.stop_from_above(spending.above, why_above(spending.above))
        return plan
    if place.current and lane.stop is not None:
        return _still_stopped(plan, lane.stop)
    sender = stopped_above(case.record, lane, case.asker.pardon) if lane.sent_by else None
    if sender is not None:
        plan.serve = Serve.LOCAL
        plan.stop_from_above(sender.reason, why_sender(sender.reason))
        plan.tool, plan.count, plan.limit = sender.tool, sender.count, sender.limit
        return plan
    turns = case.turns()
    plan = _weigh(plan, case, counts, turns, spending)
    if plan.serve is _FORWARD:
        plan.armed = armed(trail, counts, policy) or (bool(turns) and texts_armed(turns, policy))
    plan.edits = edits_of(plan, case, attempt=0)
    return plan


def _lately(messages: Messages) -> Lately:
    """What goes along with the steps of a history that grows."""
    joined = messages.joined.own
    assert isinstance(joined, Joined)  # since the trail was read
    lately = joined.lately
    if not isinstance(lately, Lately):
        lately = joined.lately = Lately()
    return lately


def _error_status(case: Case) -> int:
    """Of an error that ends the run. Who asks the very same again after it may retry on 400 and end on another: 401, then 404."""
    refused = case.place.lane.refused
    if not refused or refused[0] != case.history.same or case.asker.client.ends_on_400:
        return ERROR_LADDER[0]
    return ERROR_LADDER[min(refused[1], len(ERROR_LADDER) - 1)]


def _observed(plan: Admission, case: Case, counts: Tally, spending: Spending) -> Admission:
    """What would have been done, once each; the exchange itself goes through untouched."""
    place = case.place
    if spending.refused is not None:
        _refused(plan, spending.refused)
    elif not (place.current and place.lane.stop is not None):
        plan = _weigh(plan, case, counts, case.turns(), spending)
    plan.serve = Serve.FORWARD
    return plan


def _weigh(plan: Admission, case: Case, counts: Tally, turns: Sequence[Turn], spending: Spending) -> Admission:
    """What the trail shows; a budget's last call concludes, unless the trail ends the run anyway."""
    _look(plan, case, counts, turns)
    if spending.last is not None and plan.action is not Action.STOP and _can_conclude(case.request, case.policy):
        return _last_step(plan, spending.last)
    if spending.nearly and plan.serve is _FORWARD and plan.nudge is None:
        _warn(plan, case, spending.nearly)
    return plan


def _refused(plan: Admission, budget: Allowance) -> Admission:
    plan.serve = Serve.LOCAL
    plan.end_for(budget, Action.REFUSE)
    if plan.waits:
        plan.status = NOT_NOW
    return plan


def _still_stopped(plan: Admission, stop: Stop) -> Admission:
    finding = Finding(stop.reason, stop.tool, stop.count, None, stop.limit, frozenset(stop.calls))
    plan.action, plan.serve, plan.reason, plan.finding = Action.STOP, Serve.LOCAL, stop.reason, finding
    plan.tool, plan.count, plan.limit, plan.cause = stop.tool, stop.count, stop.limit, why(finding)
    return plan


def _last_step(plan: Admission, budget: Allowance) -> Admission:
    """The plan for the last call of a budget; a nudge that was to come has no call left to change."""
    last = Admission(serve=Serve.FINAL, repeat=plan.repeat, counts=plan.counts, status=plan.status)
    last.end_for(budget, Action.STOP)
    return last


def _warn(plan: Admission, case: Case, nearly: Sequence[Allowance]) -> None:
    """Tells the model, once a session and budget, that most of a budget is used: no loop's nudge, and never in the place of one."""
    new = next((budget for budget in nearly if noticed_mark(budget) not in case.record.noticed), None)
    if new is not None and _may_say(case):
        plan.warning = _note(case, new.reason, new.unit, 0, frozenset(), len(case.place.trail.steps), new)


def _can_conclude(request: Request, policy: Policy) -> bool:
    """Whether the last call of a budget is to be a wrap-up: where tools could be called, else it is an answer anyway."""
    return policy.on_stop is OnStop.WRAP_UP and request.may_call


def _look(plan: Admission, case: Case, counts: Tally, turns: Sequence[Turn]) -> None:
    findings = seen(case.place.trail, counts, case.policy)
    if turns:
        findings += texts_seen(turns, case.policy)
    if findings or case.record.stopped >= SUB_AGENT_STOPS:
        _act_on(findings, plan, case)


def _act_on(findings: Sequence[Finding], plan: Admission, case: Case) -> None:
    """A stop before a nudge; a nudge that was summarised away is given once more before the stop."""
    place, policy = case.place, case.policy
    given = place.nudges()
    standing = [nudge for nudge in given if nudge.message != LOST]
    lost = [nudge for nudge in given if nudge.message == LOST]
    open_to = [finding for finding in findings if _may_nudge(finding, case)]
    again = next((f for f in open_to if not standing and any(f.calls & set(n.calls) for n in lost)), None)
    stopping = next((finding for finding in findings if finding.stops), None)
    if again is None and stopping is None and place.lane.main and case.record.stopped >= SUB_AGENT_STOPS:
        stopping = _for_sub_agents(case.record)
    if stopping is not None and again is None:
        plan.serve = Serve.FINAL if policy.on_stop is OnStop.WRAP_UP else Serve.LOCAL
        plan.stop_for(stopping, made=True)
        plan.seen = (FindingSeen(stopping.reason, Action.STOP),)
        return
    told = given if policy.scope is Scope.RUN else place.nudges(earlier=True)
    new = again or next((f for f in open_to if f.nudges and not any(_is_loop_of(n, f) for n in told)), None)
    if new is None or (again is None and len(given) >= policy.nudge.max_per_run):
        return
    plan.nudge = _nudge(new, case)
    if plan.nudge is None:
        return
    plan.seen = (FindingSeen(new.reason, Action.NUDGE),)
    if plan.nudge.held:
        return
    plan.action, plan.reason, plan.finding = Action.NUDGE, new.reason, new
    plan.tool, plan.count, plan.limit = new.tool, new.count, new.stop_at


def _may_nudge(finding: Finding, case: Case) -> bool:
    """Whether a request is one to nudge in: about calls only where some can be made, and never where a summary is asked for.

    An upstream may have tools of its own: where none were ever offered, what was called before can be called again.
    """
    if finding.reason in TEXT_REASONS or not (case.request.tools_off or case.place.lane.works):
        return not case.summarises
    return _may_say(case)


def _is_loop_of(nudge: Nudge, finding: Finding) -> bool:
    """Whether a finding is the loop that a nudge spoke of: its calls lie within that loop, or it is one of the same tool."""
    nudged = set(nudge.calls)
    if finding.across and nudge.reason is finding.reason:
        return nudge.tool == finding.tool or bool(finding.calls & nudged)
    return finding.calls <= nudged


def _for_sub_agents(record: Record) -> Finding:
    return Finding(Reason.REPEATED_CALL, "sub-agents", record.stopped, None, SUB_AGENT_STOPS, frozenset())


def _may_say(case: Case) -> bool:
    """Whether a text may be added: where the model is to go on with its tools."""
    return case.request.may_call and not case.summarises


def _nudge(finding: Finding, case: Case) -> Nudge | None:
    given = [nudge.at for nudge in case.place.nudges() if finding.calls & set(nudge.calls)]
    at = min([len(case.place.trail.steps), *given])
    nudge = _note(case, finding.reason, finding.tool, finding.count, finding.calls, at)
    if nudge is not None:
        nudge.held = _is_held_out(case)
    return nudge


def _is_held_out(case: Case) -> bool:
    """Whether the run is one of those that are left alone for comparison: by chance, and the same on every replica."""
    lane, asker = case.place.lane, case.asker
    drawn = case.prints.digest(b"holdout", asker.session, lane.seed.to_bytes(8, "little"), case.place.run.to_bytes(4, "little"))
    return drawn < case.policy.nudge.holdout * 2**64


def _note(
    case: Case, reason: Reason, tool: str, count: int, calls: frozenset[int], at: int, budget: Allowance | None = None
) -> Nudge | None:
    """At the last tool result of the request, or at its last user message when it holds no result or is about a text."""
    place, history = case.place, case.history
    answered = [index for index, message in enumerate(history.messages) if message.last_item >= 0]
    if reason in TEXT_REASONS and history.users and history.users[-1].before == len(history.messages):
        answered = []
    message, item = (answered[-1], -1) if answered else (-1, history.users[-1].item if history.users else -1)
    mark = place_mark(case.request, history, case.prints, message, item)
    if not mark or any(nudge.mark == mark for nudge in place.lane.nudges):  # no place, or one that holds a nudge
        return None
    return Nudge(message, item, mark, place.run, reason, tool, count, sorted(calls)[:8], at, budget)


def _repeat(trail: Trail, counts: Tally, policy: Policy) -> str | None:
    if not counts.shows & AGAIN:
        return None
    most = max(trail.newest, key=lambda entry: counts.counts.get(entry.call, 0), default=None)
    if most is None or counts.counts.get(most.call, 0) < REPEAT_SHOWN_FROM:
        return None
    ladder = ladder_of(policy, trail, counts, most.call, most.name)
    return f"{most.name} {counts.counts[most.call]}/{ladder.stop_at if ladder and ladder.stop_at else '-'}"


def edits_of(plan: Admission, case: Case, *, attempt: int, withheld: Sequence[ToolCall] = ()) -> Edits:
    """The request's edits: nudges at their places, and for a last call the instruction to conclude, firmer with each attempt.

    withheld: calls of the answer that the upstream has given already. To a conversation nothing is sent again: it is all there, and so
    are earlier attempts.
    """
    request, lane, new = case.request, case.place.lane, plan.nudge or plan.warning
    if new is None and not lane.nudges and plan.serve is not _FINAL and request.goes_on_from is None:
        return _NO_EDITS  # nearly always
    history, policy = case.history, case.policy
    nudges = [*lane.nudges, new] if policy.nudge.keep else [new]
    inserts: list[Insert] = []
    for nudge in nudges:
        if (
            nudge is None
            or nudge.held
            or nudge.message == LOST
            or place_mark(request, history, case.prints, nudge.message, nudge.item) != nudge.mark
        ):
            continue
        item = nudge.item if nudge.message < 0 else history.messages[nudge.message].last_item
        inserts.append(Insert(item, nudge_text(nudge, request, history, policy)))
    kept = standing(case.record, request, case.prints)
    moved = _NO_EDITS if kept is None else Edits(go_on_from=kept.go_on_from, owed=tuple(kept.owed), owed_text=NOT_EXECUTED)
    if plan.serve is not _FINAL:
        return msgspec.structs.replace(moved, inserts=tuple(inserts))
    instruction = wrap_up_instruction(plan.cause, attempt)
    if request.conversation and attempt:
        return Edits(no_tools=True, asked=instruction)
    owed = unanswered(withheld) if request.conversation else ()
    if owed:
        return Edits(no_tools=True, owed=owed, owed_text=f"{NOT_EXECUTED}\n\n{instruction}", alone=True)
    inserts += _at_the_end(history, instruction)
    forced = closing_tool(request, policy, case.asker.client)
    return msgspec.structs.replace(moved, inserts=tuple(inserts), no_tools=forced is None, force_tool=forced)


def edits_again(plan: Admission, case: Case, flaw: Flaw, *, attempt: int) -> Edits:
    """The request's edits for asking again after a flawed answer: what is wrong, firmer with each attempt, from 0."""
    expects = case.expects
    parts = (expects.contains, expects.excludes) if expects is not None else ((), ())
    said = again_instruction(flaw.finding.reason, *parts, attempt=attempt)
    return msgspec.structs.replace(plan.edits, inserts=(*plan.edits.inserts, *_at_the_end(case.history, said)))


def _at_the_end(history: History, text: str) -> list[Insert]:
    """At the last result or user text of the request, if it holds one."""
    last = max([message.last_item for message in history.messages] + [user.item for user in history.users], default=-1)
    return [Insert(last, text)] if last >= 0 else []
