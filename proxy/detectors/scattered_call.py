"""The same call with the same result, again and again between other calls.

Example: the failing test between reads of ever other files (stella 1851): each read is news, so that no count of repeats can rise, yet
nothing was changed that the test could see. Left alone: a call after which something was changed for the first time (edit, build, edit,
build, …), a window in which some known call answered with something new (the world moves by itself), repeats far apart in a long
exploration, calls that act and are told "done" (a supervisor that hands over again and again), the agent's own notes, and calls that
wait. Where the agent waits in between, the ladder is the one for waiting.
"""

from collections import Counter
from collections.abc import Sequence

from proxy.counting import AGAIN, Tally, first_made, first_returned, is_bookkeeping, judged
from proxy.models import Finding, Reason
from proxy.outcomes import VOID
from proxy.policy import Policy
from proxy.progress import acts, answered, changed_anew, closely, waits
from proxy.trail import Entry, Trail

WINDOW = 30  # messages: eight of them within it are every fourth call


class ScatteredCall:
    """Occurrences within the window, each followed by something else before the next."""

    reason = Reason.SCATTERED_CALL
    needs = AGAIN

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        found = self._findings(trail, policy, trail.newest, coming=False)
        return [finding for finding in found if finding.nudges or finding.stops]

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        made = {entry.call for entry in calls}
        again = [entry for entry in _last_of_each(trail) if entry.call in made]
        return [finding for finding in self._findings(trail, policy, again, coming=True) if finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        return any(finding.stops for finding in self._findings(trail, policy, _last_of_each(trail), coming=True))

    def _findings(self, trail: Trail, policy: Policy, entries: Sequence[Entry], *, coming: bool) -> list[Finding]:
        """coming: each of these calls is made once more than the trail shows."""
        pairs = [(entry.call, entry.result) for step in trail.steps[-WINDOW:] for entry in step.calls]
        if len(pairs) - len(set(pairs)) + 1 + coming < policy.ladders[self.reason].least:
            return []  # not even if all that came back were one
        often = _occurrences(trail)
        near = [
            entry
            for entry in entries
            if answered(entry) and often[entry.call, entry.result] + coming >= policy.patient_ladder(self.reason, entry.name).least
        ]
        if not near:
            return []
        window = _Window(trail, policy)
        return [self._finding(window, policy, entry, coming=coming) for entry in closely(near) if _matters(trail, policy, entry)]

    def _finding(self, window: "_Window", policy: Policy, entry: Entry, *, coming: bool) -> Finding:
        ladder = policy.patient_ladder(self.reason, entry.name)
        count, waited = window.count(entry, coming=coming)
        if waited:
            ladder = policy.ladders.get(Reason.POLL, ladder)
        return Finding(self.reason, entry.name, count, ladder.nudge_at, ladder.stop_at, frozenset({entry.call}))


def _matters(trail: Trail, policy: Policy, entry: Entry) -> bool:
    if not judged(policy, entry) or is_bookkeeping(policy, entry.name):
        return False
    return not waits(policy, trail, entry) and not acts(policy, trail, entry)


def _last_of_each(trail: Trail) -> list[Entry]:
    """The last occurrence of each call in the window."""
    return list({entry.call: entry for step in trail.steps[-WINDOW:] for entry in step.calls if answered(entry)}.values())


def _occurrences(trail: Trail) -> Counter[tuple[int, int]]:
    """In how many messages of the window each call came with each result: a cheap look before the close one."""
    return Counter([pair for step in trail.steps[-WINDOW:] for pair in {(entry.call, entry.result) for entry in step.calls}])


class _Window:
    """The newest steps of a trail, with what is to be known of each, found out once for all calls that are counted."""

    def __init__(self, trail: Trail, policy: Policy) -> None:
        self._trail, self._policy = trail, policy
        self._firsts, self._fresh = first_made(trail), first_returned(trail)
        self._moves: dict[int, bool] = {}
        self._pauses: dict[int, bool] = {}

    def count(self, entry: Entry, *, coming: bool) -> tuple[int, bool]:
        """How often the call came back from other calls with the same result, and whether the agent waited in between.

        coming: once more than the trail shows.
        """
        steps = self._trail.steps
        count, apart, waited = int(coming), not coming, False
        for at in range(len(steps) - 1, max(len(steps) - WINDOW, 0) - 1, -1):
            calls = steps[at].calls
            occurs = any(other.call == entry.call and other.result == entry.result for other in calls)
            count += occurs and (apart or len({other.call for other in calls}) > 1)
            if self._moved(at):
                break
            waited = waited or self._paused(at)
            apart = not occurs and (apart or bool(calls))
        return count, waited

    def _moved(self, at: int) -> bool:
        """Whether the world is another one after a step: something was changed for the first time, or a known call answered with news."""
        if at not in self._moves:
            calls = self._trail.steps[at].calls
            news = any(_is_news(entry, at, self._firsts, self._fresh) for entry in calls)
            self._moves[at] = news or changed_anew(self._policy, self._trail, self._firsts, at, calls)
        return self._moves[at]

    def _paused(self, at: int) -> bool:
        if at not in self._pauses:
            self._pauses[at] = any(waits(self._policy, self._trail, entry) for entry in self._trail.steps[at].calls)
        return self._pauses[at]


def _is_news(entry: Entry, at: int, firsts: dict[int, int], fresh: dict[tuple[int, int], int]) -> bool:
    """Whether a known call answered with something it never had."""
    return answered(entry) and not entry.flags & VOID and firsts[entry.call] < at and fresh[entry.call, entry.result] == at
