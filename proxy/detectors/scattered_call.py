"""The same call with the same result, again and again between other calls.

Example: the failing test between reads of ever other files (stella 1851): each read is news, so that no count of repeats can rise, yet
nothing was changed that the test could see. Left alone: a call after which something was changed for the first time (edit, build, edit,
build, …), a window in which some known call answered with something new (the world moves by itself), repeats far apart in a long
exploration, calls that act and are told "done" (a supervisor that hands over again and again), and calls that wait. Where the agent
waits in between, the ladder is the one for waiting.
"""

from collections.abc import Sequence

from proxy.counting import Tally, judged
from proxy.models import Finding, Reason
from proxy.outcomes import VOID
from proxy.policy import Policy
from proxy.progress import acts, answered, changed_anew, first_made, waits
from proxy.trail import Entry, Trail

WINDOW = 30  # messages: eight of them within it are every fourth call


class ScatteredCall:
    """Occurrences within the window, each followed by something else before the next."""

    reason = Reason.SCATTERED_CALL
    calm = False

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        if tally.plain:
            return []
        found = [self._finding(trail, policy, entry, coming=False) for entry in _different(trail.newest) if answered(entry)]
        return [finding for finding in found if finding is not None and (finding.nudges or finding.stops)]

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        if tally.plain:
            return []
        made = {entry.call for entry in calls}
        found = [self._finding(trail, policy, entry, coming=True) for entry in _last_of_each(trail) if entry.call in made]
        return [finding for finding in found if finding is not None and finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        if tally.plain:
            return False
        found = [self._finding(trail, policy, entry, coming=True) for entry in _last_of_each(trail)]
        return any(finding is not None and finding.stops for finding in found)

    def _finding(self, trail: Trail, policy: Policy, entry: Entry, *, coming: bool) -> Finding | None:
        ladder = policy.patient_ladder(self.reason, entry.name)
        if _occurrences(trail, entry) + coming < ladder.least or not judged(policy, entry):
            return None
        if waits(policy, trail, entry) or acts(policy, trail, entry):
            return None
        count, waited = _count(trail, policy, entry, coming=coming)
        if waited:
            ladder = policy.ladders.get(Reason.POLL, ladder)
        return Finding(self.reason, entry.name, count, ladder.nudge_at, ladder.stop_at, frozenset({entry.call}))


def _different(entries: Sequence[Entry]) -> list[Entry]:
    return list({entry.call: entry for entry in entries}.values())


def _last_of_each(trail: Trail) -> list[Entry]:
    """The last occurrence of each call in the window."""
    return _different([entry for step in trail.steps[-WINDOW:] for entry in step.calls if answered(entry)])


def _occurrences(trail: Trail, entry: Entry) -> int:
    """At most so many: a cheap look before the close one."""
    call, result = entry.call, entry.result
    return sum([any([other.call == call and other.result == result for other in step.calls]) for step in trail.steps[-WINDOW:]])


def _count(trail: Trail, policy: Policy, entry: Entry, *, coming: bool) -> tuple[int, bool]:
    """How often the call came back from other calls with the same result, and whether the agent waited in between.

    coming: once more than the trail shows.
    """
    firsts, fresh = first_made(trail), _first_returned(trail)
    count, apart, waited = int(coming), not coming, False
    for at in range(len(trail.steps) - 1, max(len(trail.steps) - WINDOW, 0) - 1, -1):
        calls = trail.steps[at].calls
        occurs = any(other.call == entry.call and other.result == entry.result for other in calls)
        count += occurs and (apart or len({other.call for other in calls}) > 1)
        if changed_anew(policy, trail, firsts, at, calls) or any(_moved(other, at, firsts, fresh) for other in calls):
            break
        waited = waited or any(waits(policy, trail, other) for other in calls)
        apart = not occurs and (apart or bool(calls))
    return count, waited


def _first_returned(trail: Trail) -> dict[tuple[int, int], int]:
    """For each call and result the step they first came together in."""
    steps = trail.steps
    return {(entry.call, entry.result): at for at in range(len(steps) - 1, -1, -1) for entry in steps[at].calls}


def _moved(entry: Entry, at: int, firsts: dict[int, int], fresh: dict[tuple[int, int], int]) -> bool:
    """Whether a known call answered with something it never had."""
    return answered(entry) and not entry.flags & VOID and firsts[entry.call] < at and fresh[entry.call, entry.result] == at
