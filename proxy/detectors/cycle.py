"""Two to six different calls in rounds, each place of a round returning what it returned before.

Compared backwards from the newest message, so that it does not matter where a round is thought to begin; the round is one loop and
is acted on as a whole. A round in which a call waits climbs the ladder for waiting, and so does one of nothing but steps: where a look
in between shows what it showed before, the steps led nowhere.
"""

from collections.abc import Collection, Sequence

from proxy.counting import AGAIN, Tally, judged
from proxy.models import Finding, Reason
from proxy.policy import Ladder, Policy
from proxy.progress import rests, waits
from proxy.trail import Entry, Step, Trail

LONGEST = 6

_Place = tuple[tuple[int, int], ...]  # one message: its (call, result) pairs, sorted


class Cycle:
    """Periods of 2 to `LONGEST` messages that hold at least two different calls."""

    reason = Reason.CYCLE
    needs = AGAIN

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        places = _places(trail, policy) if trail.newest else []
        for period in range(2, LONGEST + 1) if places else ():
            rounds = (_matching(places, period) + period) // period
            finding = self._finding(places, period, rounds, trail, policy)
            if finding is not None and (finding.nudges or finding.stops):
                return [finding]
        return []

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        places = _places(trail, policy)
        coming = {entry.call for entry in calls if judged(policy, entry)}
        for period in range(2, LONGEST + 1):
            if len(places) >= period and coming and coming == {call for call, _ in places[-period]}:
                finding = self._finding(places, period, self._next_rounds(places, period), trail, policy)
                if finding is not None and finding.stops:
                    return [finding]
        return []

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        places = _places(trail, policy)
        findings = (self._finding(places, p, self._next_rounds(places, p), trail, policy) for p in range(2, LONGEST + 1))
        return any(finding is not None and finding.stops for finding in findings)

    def _next_rounds(self, places: Sequence[_Place], period: int) -> int:
        return (_matching(places, period) + 1 + period) // period

    def _finding(self, places: Sequence[_Place], period: int, rounds: int, trail: Trail, policy: Policy) -> Finding | None:
        if len(places) < period or rounds < 2:
            return None
        calls = frozenset(call for place in places[-period:] for call, _ in place)
        if not 2 <= len(calls) <= LONGEST:
            return None
        entries = {entry.call: entry for step in trail.steps for entry in step.calls if entry.call in calls}
        ladder = _most_patient([policy.ladder(self.reason, entry.name) for entry in entries.values()])
        if ladder is None or rounds < ladder.least:
            return None
        if _waits(policy, trail, entries.values()):
            ladder = policy.ladders.get(Reason.POLL, ladder)
        last = next(entry.name for step in reversed(trail.steps) for entry in reversed(step.calls) if entry.call in calls)
        return Finding(self.reason, last, rounds, ladder.nudge_at, ladder.stop_at, calls)


def _waits(policy: Policy, trail: Trail, entries: Collection[Entry]) -> bool:
    return any(rests(policy, trail, entry) for entry in entries) or all(waits(policy, trail, entry) for entry in entries)


def _most_patient(ladders: Sequence[Ladder | None]) -> Ladder | None:
    """A cycle is as patient as the most patient of its tools; a rung that one of them lacks, it lacks."""
    known = [ladder for ladder in ladders if ladder is not None]
    if not known or len(known) < len(ladders):
        return None
    nudges = [ladder.nudge_at for ladder in known if ladder.nudge_at is not None]
    stops = [ladder.stop_at for ladder in known if ladder.stop_at is not None]
    return Ladder(max(nudges) if len(nudges) == len(known) else None, max(stops) if len(stops) == len(known) else None)


def _places(trail: Trail, policy: Policy) -> list[_Place]:
    """The messages of the trail; none when the newest one is not among the `LONGEST` before it, for then there is no round."""
    newest: list[_Place] = []
    for step in reversed(trail.steps):
        place = _place(step, policy)
        if place:
            newest.append(place)
            if len(newest) > LONGEST:
                break
    if not newest or newest[0] not in newest[1:]:
        return []
    return [place for step in trail.steps if (place := _place(step, policy))]


def _place(step: Step, policy: Policy) -> _Place:
    if len(step.calls) == 1:
        entry = step.calls[0]
        return ((entry.call, entry.result),) if judged(policy, entry) else ()
    return tuple(sorted({(entry.call, entry.result) for entry in step.calls if judged(policy, entry)}))


def _matching(places: Sequence[_Place], period: int) -> int:
    """How many of the newest messages equal the one a period before."""
    matching = 0
    for at in range(len(places) - 1, period - 1, -1):
        if places[at] != places[at - period]:
            break
        matching += 1
    return matching
