"""The shapes of loops: one file each, one table. A detector looks at a trail and says what it sees; it decides nothing.

A new detector is one file, one line in `DETECTORS`, one ladder in `policy.DEFAULT_LADDERS` and one test file. The order of the table
is the order in which findings of equal weight are acted on.
"""

from collections.abc import Sequence
from typing import Protocol

from proxy.counting import Tally
from proxy.detectors.cycle import Cycle
from proxy.detectors.parallel_repeat import ParallelRepeat
from proxy.detectors.repeated_call import RepeatedCall
from proxy.models import Finding, Reason
from proxy.policy import Policy
from proxy.trail import Entry, Trail


class Detector(Protocol):
    """Pure; `tally` is the count of `trail` under `policy`, made once for all detectors."""

    reason: Reason

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        """What the newest message of the trail, its results known, completes."""
        ...

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        """What a message about to be delivered, with these calls, would complete."""
        ...

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        """Whether one more message could reach a stop rung."""
        ...


DETECTORS: tuple[Detector, ...] = (RepeatedCall(), Cycle(), ParallelRepeat())


def active(policy: Policy) -> list[Detector]:
    """Those with a ladder under the policy, in the order of the table."""
    return [detector for detector in DETECTORS if detector.reason in policy.ladders]
