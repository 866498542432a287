"""Waiting: a call that lets time pass, that is told that what it asks for still runs, or that is made between pauses.

It has its own, longer ladder.

Example: `process poll` answered "running" thirty times (hermes 34711), `sleep 60; tail -n 5 scan.log` of a log that does not grow (OpenClaw
128855), `sleep 30` and a look at the log in turn. Five slices of `sleep 100` are work (OpenHands 5355). The ladder's second rung is for
any call made many times in a row that answers differently each time: paging one click at a time or watching something move may be
right, so that it is told once and never stopped.
"""

from collections.abc import Sequence

from proxy.counting import AGAIN, Tally, coming_counts, judged, next_count
from proxy.models import Finding, Reason
from proxy.policy import Ladder, Policy
from proxy.progress import Pauses, answered
from proxy.trail import Entry, Trail


class Poll:
    """Counts what `counting` counts, for waiting calls; and the same call in a row with changing results."""

    reason = Reason.POLL
    needs = AGAIN

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        counts = {entry.call: tally.counts.get(entry.call, 0) for entry in trail.newest}
        found = [finding for finding in self._waiting(trail, policy, trail.newest, counts) if finding.nudges or finding.stops]
        return found or self._changing(trail, policy)

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        if not self.armed(trail, tally, policy):
            return []
        last = {entry.call: entry for step in trail.steps for entry in step.calls}
        again = [last[entry.call] for entry in calls if entry.call in last]
        found = self._waiting(trail, policy, again, coming_counts(trail, policy, tally, calls))
        return [finding for finding in found if finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        least = min([rule.stop_at for rule in policy.tools.values() if rule.stop_at is not None], default=None)
        usual = policy.ladders[self.reason].stop_at
        rungs = [rung for rung in (least, usual) if rung is not None]
        near = {call for call, count in tally.counts.items() if rungs and count + 1 >= min(rungs)}
        if not near:
            return False
        entries = {entry.call: entry for step in trail.steps for entry in step.calls if entry.call in near}
        found = self._waiting(trail, policy, list(entries.values()), {call: next_count(tally, call) for call in entries})
        return any(finding.stops for finding in found)

    def _waiting(self, trail: Trail, policy: Policy, entries: Sequence[Entry], counts: dict[int, int]) -> list[Finding]:
        found = []
        pauses = Pauses(policy, trail)
        for entry in {entry.call: entry for entry in entries if judged(policy, entry)}.values():
            ladder = policy.ladder(self.reason, entry.name) or Ladder(None, None)
            finding = Finding(self.reason, entry.name, counts[entry.call], ladder.nudge_at, ladder.stop_at, frozenset({entry.call}))
            if (finding.nudges or finding.stops) and pauses.hold(entry):
                found.append(finding)
        return found

    def _changing(self, trail: Trail, policy: Policy) -> list[Finding]:
        newest = trail.newest
        if policy.changing_nudge_at is None or len(newest) != 1 or not judged(policy, newest[0]):
            return []
        call, results = newest[0].call, []
        for step in reversed(trail.steps):
            if len(step.calls) != 1 or step.calls[0].call != call or not answered(step.calls[0]):
                break
            results.append(step.calls[0].result)
        if len(results) < policy.changing_nudge_at or len(set(results)) < 2:
            return []
        return [Finding(self.reason, newest[0].name, len(results), policy.changing_nudge_at, None, frozenset({call}))]
