"""Equal calls inside one message: a model that does not stop writing."""

from collections import Counter
from collections.abc import Sequence

from proxy.counting import ABREAST, Tally, judged
from proxy.models import Finding, Reason
from proxy.policy import Policy
from proxy.trail import Entry, Trail


class ParallelRepeat:
    """The largest number of equal calls in one message. The stop rung cuts the message there; it does not look at other messages."""

    reason = Reason.PARALLEL_REPEAT
    needs = ABREAST

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        findings = self._findings(trail.steps[-1].calls if trail.steps else (), policy)
        return [Finding(f.reason, f.tool, f.count, f.nudge_at, None, f.calls) for f in findings if f.nudges]  # made already: no cut

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        return [finding for finding in self._findings(calls, policy) if finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        return False  # any message could: a stream is armed once it holds nearly that many calls, see `engine.runaway`

    def _findings(self, calls: Sequence[Entry], policy: Policy) -> list[Finding]:
        found: list[Finding] = []
        if len(calls) < 2:
            return found
        names = {entry.call: entry.name for entry in calls if judged(policy, entry)}
        for call, count in Counter(entry.call for entry in calls if entry.call in names).most_common():
            ladder = policy.ladder(self.reason, "")
            if ladder is not None and count > 1:
                found.append(Finding(self.reason, names[call], count, ladder.nudge_at, ladder.stop_at, frozenset({call})))
        return found
