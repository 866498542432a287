"""The `lastcall` object of a stop, a refusal, or of calls left out of an answer that goes on."""

from proxy.engine.case import Admission
from proxy.fingerprint import UNSEEN
from proxy.lanes import Place
from proxy.models import Action, Finding, Notice, Reason
from proxy.nudge import mended_message, stopped_message, why
from proxy.trail import Trail

_TRAIL_SHOWN = 16


def notice_of(plan: Admission, place: Place, pruned: Finding | None, session: str) -> Notice:
    """The `lastcall` object: of the stop or refusal, or of calls (`pruned`) left out of an answer that goes on."""
    reason = plan.reason or Reason.REPEATED_CALL
    if pruned is not None:
        return Notice(
            action=Action.STOP,
            reason=pruned.reason,
            detector=str(pruned.reason),
            message=f"Lastcall left calls out of this message: {why(pruned)}.",
            tool=pruned.tool or None,
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
        message=mended_message(plan.cause) if plan.mended else stopped_message(plan.cause, reason, plan.budget, above=plan.from_above),
        tool=plan.tool or None,
        count=plan.count,
        limit=plan.limit,
        scope="call" if plan.mended else plan.scope,
        spent=None if plan.budget is None else plan.budget.spent,
        held=None if plan.budget is None else plan.budget.held,
        resets_at=None if plan.budget is None else plan.budget.resets_at,
        session=session,
        degraded=plan.action is not Action.NUDGE,
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
