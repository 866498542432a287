"""The same call again, with nothing new learned since.

Left alone: calls that wait or are made between pauses, as long as `poll` is on: those climb its ladder.
"""

from collections.abc import Sequence

import msgspec

from proxy.counting import AGAIN, AT_ONCE, Tally, coming_counts, judged, ladder_of, next_count
from proxy.models import Finding, Reason
from proxy.outcomes import BRIEF, WAITING
from proxy.policy import Ladder, Policy
from proxy.progress import Pauses
from proxy.trail import Entry, Trail


class RepeatedCall:
    """Counts what `counting` counts, for the calls of the newest message."""

    reason = Reason.REPEATED_CALL
    needs = AGAIN | AT_ONCE

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        newest = trail.newest
        return self._findings(trail, tally, policy, newest, {entry.call: tally.counts.get(entry.call, 0) for entry in newest})

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        if not self.armed(trail, tally, policy):
            return []
        counts = coming_counts(trail, policy, tally, calls)
        made = {entry.call for entry in calls}
        known = {entry.call: entry for step in trail.steps for entry in step.calls if entry.call in made}
        return self._findings(trail, tally, policy, [_as_known(entry, known) for entry in calls], counts)

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        least = policy.least_stop
        near = {call for call, count in tally.counts.items() if count + 1 >= least}
        if not near:
            return False
        known = {entry.call: entry for step in trail.steps for entry in step.calls if entry.call in near}
        pauses = Pauses(policy, trail)
        for call in near:  # one made under another history has no entry here: it may be any tool's
            entry = known.get(call)
            ladder = Ladder(None, least) if entry is None else ladder_of(policy, trail, tally, call, entry.name)
            if ladder is None or ladder.stop_at is None or next_count(tally, call) < ladder.stop_at:
                continue
            if entry is None or not _elsewhere(policy, pauses, entry):
                return True
        return False

    def _findings(self, trail: Trail, tally: Tally, policy: Policy, calls: Sequence[Entry], counts: dict[int, int]) -> list[Finding]:
        found = []
        pauses = Pauses(policy, trail)
        for entry in {entry.call: entry for entry in calls if judged(policy, entry)}.values():
            ladder = ladder_of(policy, trail, tally, entry.call, entry.name)
            if ladder is not None:
                finding = Finding(self.reason, entry.name, counts[entry.call], ladder.nudge_at, ladder.stop_at, frozenset({entry.call}))
                if (finding.nudges or finding.stops) and not _elsewhere(policy, pauses, entry):
                    found.append(finding)
        return found


def _elsewhere(policy: Policy, pauses: Pauses, entry: Entry) -> bool:
    """Whether a call climbs the ladder for waiting."""
    return Reason.POLL in policy.ladders and pauses.hold(entry)


def _as_known(entry: Entry, known: dict[int, Entry]) -> Entry:
    """A call about to be made, with what its last result said of waiting, or that it was done."""
    before = known.get(entry.call)
    return entry if before is None else msgspec.structs.replace(entry, flags=entry.flags | (before.flags & (WAITING | BRIEF)))
