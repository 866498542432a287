"""Nothing works: calls of any tools fail, one message after the other.

Example: `edit` and `write` in turn, a required parameter missing each time (Kilo Code 14143, 25 minutes of it). Left alone: one success
among the failures, notes aside; a program that ended with a status other than 0 and left a report to read, such as a failing test. A
call about to be made counts only if it has to be expected to fail too: it may be the way out.
"""

from collections import Counter
from collections.abc import Sequence

from proxy.counting import AMISS, Tally
from proxy.effects import subject
from proxy.models import Finding, Reason
from proxy.outcomes import BRIEF, EXITED, FAILED
from proxy.policy import Policy
from proxy.progress import alike, closely, foreseen, streak, worldly
from proxy.trail import Entry, Trail

_SAME = 3  # equal complaints of one tool from which the next is expected


class ToolFailures:
    """Messages in a row all of whose calls failed. Where most try something else and hear something else, the ladder is that of waiting."""

    reason = Reason.TOOL_FAILURES
    needs = AMISS

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        newest = worldly(policy, trail.newest)
        if not newest or not all(map(_failed, newest)):
            return []
        finding = self._finding(trail, policy, _streak(trail, policy), [])
        return [finding] if finding.nudges or finding.stops else []

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        if not self.armed(trail, tally, policy):
            return []
        steps = _streak(trail, policy)
        failed = [entry for at in steps for entry in worldly(policy, trail.steps[at])]
        again = [entry for entry in closely(worldly(policy, calls)) if _hopeless(trail, policy, entry, failed)]
        if not again:
            return []
        finding = self._finding(trail, policy, steps, again)
        return [finding] if finding.stops else []

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        stop_at = policy.ladders[self.reason].stop_at
        return stop_at is not None and len(_streak(trail, policy)) + 1 >= stop_at

    def _finding(self, trail: Trail, policy: Policy, steps: Sequence[int], coming: Sequence[Entry]) -> Finding:
        entries = [*(entry for at in reversed(steps) for entry in worldly(policy, trail.steps[at])), *coming]
        tool = entries[-1].name
        ladder = policy.patient_ladder(self.reason, tool)
        calls, count = frozenset(entry.call for entry in entries), len(steps) + bool(coming)
        tries = {subject(entry.arguments) for entry in entries}, {entry.error for entry in entries if entry.error}
        if 2 * min([len(different) for different in tries]) > count:
            ladder = ladder.as_patient_as(policy.ladders.get(Reason.POLL, ladder))
        return Finding(self.reason, tool, count, ladder.nudge_at, ladder.stop_at, calls, across=True)


def _hopeless(trail: Trail, policy: Policy, entry: Entry, failed: Sequence[Entry]) -> bool:
    """Whether a call about to be made has to be expected to fail too: one of the row again, or like others with one complaint."""
    before = [other for other in failed if alike(policy, trail, other, entry)]
    complaints = Counter(other.error for other in before)
    often = [other for other in before if complaints[other.error] >= _SAME]
    return any(other.call == entry.call for other in before) or foreseen(entry, often)


def _failed(entry: Entry) -> bool:
    flags = entry.flags
    return flags & FAILED != 0 and (not flags & EXITED or flags & BRIEF != 0)


def _streak(trail: Trail, policy: Policy) -> list[int]:
    def shows(_at: int, calls: Sequence[Entry]) -> bool:
        entries = worldly(policy, calls)
        return bool(entries) and all(map(_failed, entries))

    return streak(trail, shows, lambda _at, calls: not all(map(_failed, worldly(policy, calls))))
