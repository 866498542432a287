"""The shapes of loops: one file each, one table. A detector looks at a trail and says what it sees; it decides nothing.

A new detector is one file, one line in `DETECTORS`, one ladder in `config.shape` and one test file. The order of the table
is the order in which findings of equal weight are acted on.
"""

from collections.abc import Sequence
from typing import Protocol

from proxy.counting import ABREAST, Tally
from proxy.detectors.cycle import Cycle
from proxy.detectors.empty_output import EmptyOutput
from proxy.detectors.parallel_repeat import ParallelRepeat
from proxy.detectors.poll import Poll
from proxy.detectors.repeated_call import RepeatedCall
from proxy.detectors.repeated_error import RepeatedError
from proxy.detectors.repeated_output import RepeatedOutput
from proxy.detectors.repeated_text import RepeatedText
from proxy.detectors.scattered_call import ScatteredCall
from proxy.detectors.tool_failures import ToolFailures
from proxy.detectors.tool_markup import ToolMarkup
from proxy.detectors.truncated_output import TruncatedOutput
from proxy.detectors.unknown_tool import UnknownTool
from proxy.models import Finding, Reason
from proxy.policy import Policy
from proxy.trail import Entry, Trail
from proxy.turns import Turn


class Detector(Protocol):
    """Pure; `tally` is the count of `trail` under `policy`, made once for all detectors.

    needs: what has to be there, as bits of `counting`, for it to find anything: with none of it, it is not asked.
    """

    reason: Reason
    needs: int

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        """What the newest message of the trail, its results known, completes."""
        ...

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        """What a message about to be delivered, with these calls, would complete."""
        ...

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        """Whether one more message could reach a stop rung."""
        ...


DETECTORS: tuple[Detector, ...] = (
    RepeatedCall(),
    Cycle(),
    ScatteredCall(),
    ParallelRepeat(),
    UnknownTool(),
    RepeatedError(),
    ToolFailures(),
    RepeatedOutput(),
    Poll(),
)


def seen(trail: Trail, tally: Tally, policy: Policy) -> list[Finding]:
    """What the newest message of the trail, its results known, completes."""
    found: list[Finding] = []
    for detector in _asked(tally, policy, len(trail.newest)):
        found += detector.seen(trail, tally, policy)
    return found


def coming(trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> list[Finding]:
    """What a message about to be delivered, with these calls, would complete."""
    found: list[Finding] = []
    for detector in _asked(tally, policy, len(calls)):
        found += detector.coming(trail, tally, calls, policy)
    return found


def may_come(tally: Tally, policy: Policy, calls: int) -> bool:
    """Whether a message of so many calls could complete anything."""
    return bool(_asked(tally, policy, calls))


def armed(trail: Trail, tally: Tally, policy: Policy) -> bool:
    """Whether one more message could reach a stop rung."""
    for detector in _asked(tally, policy, 1):  # noqa: SIM110  # none, nearly always
        if detector.armed(trail, tally, policy):
            return True
    return False


def _asked(tally: Tally, policy: Policy, calls: int) -> Sequence[Detector]:
    """Those with a ladder under the policy that may find something, in the order of the table. calls: of the message looked at."""
    there = tally.shows | ABREAST if calls > 1 else tally.shows
    if not there:  # nearly always
        return ()
    return [detector for detector in DETECTORS if detector.needs & there and detector.reason in policy.ladders]


class TextDetector(Protocol):
    """A detector that looks at what answers said instead of at calls. Pure."""

    reason: Reason

    def count(self, turns: Sequence[Turn]) -> int:
        """How many of the newest turns, of which there is at least one, make up its shape."""
        ...


TEXTS: tuple[TextDetector, ...] = (RepeatedText(), EmptyOutput(), TruncatedOutput(), ToolMarkup())


def texts_seen(turns: Sequence[Turn], policy: Policy) -> list[Finding]:
    """What the newest turns, of which there is at least one, complete, of the text detectors with a ladder under the policy."""
    found = [_text_finding(detector.reason, detector.count(turns), turns[-1], policy) for detector in TEXTS]
    return [finding for finding in found if finding is not None and (finding.nudges or finding.stops)]


def texts_armed(turns: Sequence[Turn], policy: Policy) -> bool:
    """Whether one more turn, after at least one, could reach a stop rung of a text detector."""
    ladders = [(policy.ladders.get(detector.reason), detector) for detector in TEXTS]
    return any(
        ladder is not None and ladder.stop_at is not None and detector.count(turns) + 1 >= ladder.stop_at for ladder, detector in ladders
    )


def _text_finding(reason: Reason, count: int, last: Turn, policy: Policy) -> Finding | None:
    """In the place of calls stands a number of the detector's own: whatever it sees in a run is one loop."""
    ladder = policy.ladders.get(reason)
    if ladder is None or not count:
        return None
    return Finding(reason, last.tool, count, ladder.nudge_at, ladder.stop_at, frozenset({1 + list(Reason).index(reason)}))
