"""The same call again, with nothing new learned since."""

from collections.abc import Sequence

from proxy.counting import Tally, coming_counts, judged, ladder_of, least_stop, next_count
from proxy.models import Finding, Reason
from proxy.policy import Ladder, Policy
from proxy.trail import Entry, Trail


class RepeatedCall:
    """Counts what `counting` counts, for the calls of the newest message."""

    reason = Reason.REPEATED_CALL

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        newest = () if tally.plain else trail.newest
        return self._findings(trail, tally, policy, newest, {entry.call: tally.counts.get(entry.call, 0) for entry in newest})

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        if not self.armed(trail, tally, policy):
            return []
        return self._findings(trail, tally, policy, calls, coming_counts(trail, policy, tally, calls))

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        least = least_stop(policy)
        near = {call for call, count in tally.counts.items() if least is not None and count + 1 >= least}
        if not near:
            return False
        names = {entry.call: entry.name for step in trail.steps for entry in step.calls if entry.call in near}
        for call in near:  # one made under another history has no name here: it may be any tool's
            ladder = ladder_of(policy, trail, tally, call, names[call]) if call in names else Ladder(None, least)
            if ladder is not None and ladder.stop_at is not None and next_count(tally, call) >= ladder.stop_at:
                return True
        return False

    def _findings(self, trail: Trail, tally: Tally, policy: Policy, calls: Sequence[Entry], counts: dict[int, int]) -> list[Finding]:
        found = []
        for entry in {entry.call: entry for entry in calls if judged(policy, entry)}.values():
            ladder = ladder_of(policy, trail, tally, entry.call, entry.name)
            if ladder is not None:
                finding = Finding(self.reason, entry.name, counts[entry.call], ladder.nudge_at, ladder.stop_at, frozenset({entry.call}))
                if finding.nudges or finding.stops:
                    found.append(finding)
        return found
