"""The same complaint of the same tool, however the arguments change.

Example: `read().[:100]`, `[:200]`, `[:300]`, … of a file that is not there (OpenClaw 117637); a booking refused five times for the same sum
while the agent thinks in between. Left alone: the same failing test after each new edit, since something was changed for the first time in
between; a tool that succeeded in between; other complaints. Looking at things in between does not end the count.
"""

from collections.abc import Sequence

from proxy.counting import AMISS, LATELY, Tally, first_made, judged
from proxy.models import Finding, Reason
from proxy.outcomes import FAILED
from proxy.policy import Policy
from proxy.progress import alike, answered, changed_anew, closely, foreseen, streak
from proxy.trail import Entry, Trail


class RepeatedError:
    """Messages with that complaint since the tool's last success and the last new change to the world."""

    reason = Reason.REPEATED_ERROR
    needs = AMISS

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        failed = {(entry.name, entry.error): entry for entry in trail.newest if entry.flags & FAILED and judged(policy, entry)}
        found = [self._finding(trail, policy, entry, []) for entry in closely(failed.values())]
        return [finding for finding in found if finding is not None and (finding.nudges or finding.stops)]

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        found = []
        for before in _last_failures(trail):
            again = [entry for entry in closely(calls) if judged(policy, entry) and alike(policy, trail, entry, before)]
            found.append(self._coming(trail, policy, before, again) if again else None)
        return [finding for finding in found if finding is not None and finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        found = [self._finding(trail, policy, entry, [entry]) for entry in _last_failures(trail) if judged(policy, entry)]
        return any(finding is not None and finding.stops for finding in found)

    def _coming(self, trail: Trail, policy: Policy, sample: Entry, calls: Sequence[Entry]) -> Finding | None:
        """A call that was never made counts only where it has to be expected to fail like the others: it may be the way out."""
        row = [entry for at in _streak(trail, policy, sample) for entry in trail.steps[at].calls if _same(entry, sample)]
        again = [entry for entry in calls if foreseen(entry, row)]
        return self._finding(trail, policy, sample, again) if again else None

    def _finding(self, trail: Trail, policy: Policy, sample: Entry, coming: Sequence[Entry]) -> Finding | None:
        """None while all the calls are one: repeating one call is another shape."""
        steps = _streak(trail, policy, sample)
        made = {entry.call for at in steps for entry in trail.steps[at].calls if _same(entry, sample)}
        calls = frozenset(made | {entry.call for entry in coming})
        if len(made) < 2:
            return None
        ladder = policy.patient_ladder(self.reason, sample.name)
        return Finding(self.reason, sample.name, len(steps) + bool(coming), ladder.nudge_at, ladder.stop_at, calls, across=True)


def _same(entry: Entry, sample: Entry) -> bool:
    return entry.name == sample.name and entry.error == sample.error


def _last_failures(trail: Trail) -> list[Entry]:
    """The last one of each tool; none in most trails."""
    failed = [entry for step in trail.steps[-LATELY:] for entry in step.calls if entry.flags & FAILED]
    return closely({entry.name: entry for entry in failed}.values())


def _streak(trail: Trail, policy: Policy, sample: Entry) -> list[int]:
    firsts = first_made(trail)

    def ends(at: int, calls: Sequence[Entry]) -> bool:
        own = [entry for entry in calls if entry.name == sample.name and answered(entry) and not entry.flags & FAILED]
        return any(alike(policy, trail, entry, sample) for entry in own) or changed_anew(policy, trail, firsts, at, calls)

    return streak(trail, lambda _at, calls: any(_same(entry, sample) for entry in calls), ends)
