"""Calls to a tool that the request does not offer: retrying cannot help, so the ladder is short.

Example: `web_fetch_v2` → "tool not found", again and again, under changing arguments or names. Left alone: a tool that is not listed but
answers all the same (some clients offer tools as they go, or carry some out themselves), and a request that lists no tools at all.
A success of a listed tool ends the count. Rungs: an agent that asks for a missing tool twice has read that it is missing (OpenClaw 62971,
kept on until a person reset it).
"""

from collections.abc import Sequence

from proxy.counting import AMISS, Tally
from proxy.models import Finding, Reason
from proxy.outcomes import FAILED
from proxy.policy import Policy
from proxy.progress import answered, streak, worldly
from proxy.trail import Entry, Trail


class UnknownTool:
    """Messages in a row with a call to a tool that is not there."""

    reason = Reason.UNKNOWN_TOOL
    needs = AMISS

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        offered = trail.offer.names
        newest = [entry for entry in trail.newest if entry.name not in offered]
        if not offered or not newest or not any(_missing(entry, offered) for entry in worldly(policy, newest)):
            return []
        return self._findings(trail, policy, [])

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        offered = trail.offer.names
        unknown = [entry for entry in calls if entry.name not in offered] if offered else []
        return self._findings(trail, policy, worldly(policy, unknown)) if unknown else []

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        stop_at = policy.ladders[self.reason].stop_at
        return bool(trail.offer.names) and stop_at is not None and len(_streak(trail, policy)) + 1 >= stop_at

    def _findings(self, trail: Trail, policy: Policy, coming: Sequence[Entry]) -> list[Finding]:
        steps = _streak(trail, policy)
        made = [entry for at in reversed(steps) for entry in trail.steps[at].calls if entry.name not in trail.offer.names]
        entries = [*made, *coming]
        if not steps or not entries:
            return []
        ladder = policy.patient_ladder(self.reason, entries[-1].name)
        calls = frozenset(entry.call for entry in entries)
        finding = Finding(self.reason, entries[-1].name, len(steps) + bool(coming), ladder.nudge_at, ladder.stop_at, calls, across=True)
        return [finding] if finding.nudges or finding.stops else []


def _missing(entry: Entry, offered: Sequence[str]) -> bool:
    return entry.name not in offered and (not answered(entry) or entry.flags & FAILED != 0)


def _streak(trail: Trail, policy: Policy) -> list[int]:
    offered = trail.offer.names

    def ends(_at: int, calls: Sequence[Entry]) -> bool:
        return any(answered(entry) and not entry.flags & FAILED for entry in worldly(policy, calls))

    return streak(trail, lambda _at, calls: any(_missing(entry, offered) for entry in worldly(policy, calls)), ends)
