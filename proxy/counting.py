"""How often a call has been made without progress: the number every repeat is measured by.

**News** is a call never made before in the trail, or a known call with a result it never had. Under `no_progress` a call's count is
the number of its occurrences since the last news, the message that brought it included; docs/detection.md has the table of what
that means in practice. The calls of one message happened at once: equal ones count once, and news among them counts for all.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from proxy.effects import Effect, keeps_notes, speaks
from proxy.fingerprint import UNSEEN
from proxy.models import Reason
from proxy.outcomes import FAILED
from proxy.policy import NEVER, Counting, Ladder, Policy
from proxy.trail import Entry, Step, Trail

LATELY = 24  # messages in which shapes of a tool are looked for
RELAPSE_STOPS_AT = 3  # the second repeat of a call that stopped an earlier run


class Tally(msgspec.Struct, frozen=True, gc=False):
    """Counts at the end of a trail. results: the last result of each call. forgiven: calls whose next occurrence does not count.

    plain: no call was made twice, so that no shape of repetition can be there. quiet: lately nothing failed, no output came often and
    nobody was sent a message, so that no shape of a tool can be there either.
    """

    counts: dict[int, int]
    results: dict[int, int]
    forgiven: frozenset[int]
    plain: bool = False
    quiet: bool = False

    @property
    def calm(self) -> bool:
        """Whether the trail shows nothing but work."""
        return self.plain and self.quiet


def judged(policy: Policy, entry: Entry) -> bool:
    """Whether a call can be a repeat at all: exempt tools never are, finish tools only when they fail."""
    if policy.tools and (rule := policy.tools.get(entry.name)) is not None and rule.exempt:
        return False
    return entry.name not in policy.finish_tools or entry.failed


def is_bookkeeping(policy: Policy, name: str) -> bool:
    """Whether a tool only keeps notes: what those say about progress is the agent's opinion, no news from the world."""
    rule = policy.tools.get(name)
    if rule is not None and rule.effect is not None:
        return rule.effect is Effect.BOOKKEEPING
    return keeps_notes(name)


def ladder_of(policy: Policy, trail: Trail, tally: Tally, call: int, tool: str) -> Ladder | None:
    """The `repeated_call` ladder of one call; shorter for one that stopped an earlier run and still returns the same."""
    ladder = policy.ladder(Reason.REPEATED_CALL, tool)
    if ladder is None or ladder.stop_at is None or call not in trail.relapsed:
        return ladder
    if tally.results.get(call, UNSEEN) not in (UNSEEN, trail.relapsed[call]):
        return ladder
    return Ladder(ladder.nudge_at, min(ladder.stop_at, RELAPSE_STOPS_AT))


def least_stop(policy: Policy) -> int | None:
    """The lowest stop rung that any call can have; None when none has one."""
    ladder = policy.ladders.get(Reason.REPEATED_CALL)
    if not policy.tools:
        return None if ladder is None or ladder.stop_at is None else min(RELAPSE_STOPS_AT, ladder.stop_at)
    rungs = [] if ladder is None else [ladder.stop_at, *(rule.stop_at for rule in policy.tools.values() if rule.sets_stop)]
    known = [rung for rung in rungs if rung is not None]
    return min(RELAPSE_STOPS_AT, *known) if known else None


def tally(trail: Trail, policy: Policy) -> Tally:
    """Counts every judged call of a trail under the policy's way of counting."""
    quiet = _is_quiet(trail, policy)
    match policy.counting:
        case Counting.NO_PROGRESS:
            return _no_progress(trail, policy, quiet=quiet)
        case Counting.CONSECUTIVE:
            return Tally(_consecutive(trail, policy), _last_results(trail), frozenset(), quiet=quiet)
        case Counting.CUMULATIVE:
            return Tally(_cumulative(trail, policy), _last_results(trail), frozenset(), quiet=quiet)
        case _:
            assert_never(policy.counting)


def _is_quiet(trail: Trail, policy: Policy) -> bool:
    results: list[int] = []
    names: set[str] = set()
    for step in trail.steps[-LATELY:]:
        for entry in step.calls:
            if entry.flags & FAILED:
                return False
            if entry.result != UNSEEN:
                results.append(entry.result)
            names.add(entry.name)
    if any([entry.result == UNSEEN for entry in trail.newest]):
        return False
    ladder = policy.ladders.get(Reason.REPEATED_OUTPUT)
    return len(results) - len(set(results)) + 2 < (NEVER if ladder is None else ladder.least) and not any([speaks(name) for name in names])


def next_count(now: Tally, call: int) -> int:
    """The most that a call's count can be after the next message."""
    return now.counts.get(call, 0) + (call not in now.forgiven)


def coming_counts(trail: Trail, policy: Policy, now: Tally, calls: Sequence[Entry]) -> dict[int, int]:
    """What the counts of these calls would be if the next message made them: results not yet seen are no news, not even a new call's."""
    if policy.counting is not Counting.CONSECUTIVE:
        return {entry.call: next_count(now, entry.call) for entry in calls}
    after = tally(msgspec.structs.replace(trail, steps=(*trail.steps, Step(tuple(calls))), once=False), policy)
    return {entry.call: after.counts.get(entry.call, 0) for entry in calls}


def _distinct(step: Step, policy: Policy) -> set[int]:
    if len(step.calls) == 1:  # nearly every message
        entry = step.calls[0]
        return {entry.call} if judged(policy, entry) else set()
    return {entry.call for entry in step.calls if judged(policy, entry)}


def _last_results(trail: Trail) -> dict[int, int]:
    """The last result of each call that may have a shorter ladder for it."""
    if not trail.relapsed:
        return {}
    return {entry.call: entry.result for step in trail.steps for entry in step.calls if entry.result != UNSEEN}


def _no_progress(trail: Trail, policy: Policy, *, quiet: bool) -> Tally:
    if not trail.nudged and (trail.once or not any([step.after_compaction for step in trail.steps])):
        plain = trail.once or _differ([entry.call for step in trail.steps for entry in step.calls])
        return Tally(_since_news(trail, policy, plain=plain), _last_results(trail), frozenset(), plain=plain, quiet=quiet)
    counts: dict[int, int] = {}
    results: dict[int, set[int]] = {}
    middles = _middles(trail, policy)
    forgiven: set[int] = set()
    for number, step in enumerate(trail.steps):
        if step.after_compaction:
            forgiven = set(results) - {call for call, at in trail.nudged.items() if at <= number}
        renewed = _learn(step, results, policy)
        if renewed:  # what was nudged falls back to the middle of its ladder, unless the news is its own
            counts = {
                call: min(count, middles[call] - 1)
                for call, count in counts.items()
                if call in middles and trail.nudged[call] <= number and call not in renewed
            }
        for call in _distinct(step, policy):
            if call in forgiven:
                forgiven.discard(call)
            else:
                counts[call] = counts.get(call, 0) + 1
    return Tally(counts, _last_results(trail), frozenset(forgiven), quiet=quiet)


def _differ(calls: Sequence[int]) -> bool:
    return len(set(calls)) == len(calls)


def _since_news(trail: Trail, policy: Policy, *, plain: bool) -> dict[int, int]:
    """The counts of a trail in which nothing was nudged or summarised away: nothing before its last news matters to them.

    plain: no call was made twice, so that every message is news but for notes and void results.
    """
    counts: dict[int, int] = {}
    firsts, fresh = ({}, {}) if plain else (first_made(trail), first_returned(trail))
    for at in range(len(trail.steps) - 1, -1, -1):
        step = trail.steps[at]
        for call in _distinct(step, policy):
            counts[call] = counts.get(call, 0) + 1
        new = step.calls if plain else _new(step, at, firsts, fresh)
        if any([not entry.void and not is_bookkeeping(policy, entry.name) for entry in new]):
            break
    return counts


def _new(step: Step, at: int, firsts: dict[int, int], fresh: dict[tuple[int, int], int]) -> Sequence[Entry]:
    """The entries of a step with a call that was never made before, or with a result that it never had."""
    found: list[Entry] = []
    met: set[object] = set()
    for entry in step.calls:
        pair = entry.call, entry.result
        returned = entry.result != UNSEEN and fresh[pair] == at and pair not in met
        if returned or (firsts[entry.call] == at and entry.call not in met):
            found.append(entry)
        met |= {entry.call, pair}
    return found


def first_made(trail: Trail) -> dict[int, int]:
    """For each call of a trail the step it was first made in."""
    steps = trail.steps
    return {entry.call: at for at in range(len(steps) - 1, -1, -1) for entry in steps[at].calls}


def first_returned(trail: Trail) -> dict[tuple[int, int], int]:
    """For each call and result the step they first came together in."""
    steps = trail.steps
    return {(entry.call, entry.result): at for at in range(len(steps) - 1, -1, -1) for entry in steps[at].calls}


def _middles(trail: Trail, policy: Policy) -> dict[int, int]:
    """For each nudged call of the trail the middle of its ladder."""
    if not trail.nudged:
        return {}
    return {entry.call: _middle(policy, entry.name) for step in trail.steps for entry in step.calls if entry.call in trail.nudged}


def _learn(step: Step, results: dict[int, set[int]], policy: Policy) -> set[int]:
    """Adds a message's results to those known of each call; gives the calls that are news."""
    news: set[int] = set()
    for entry in step.calls:
        known = results.get(entry.call)
        fresh = known is None or (entry.result != UNSEEN and entry.result not in known)
        known = results.setdefault(entry.call, set())
        if entry.result != UNSEEN:
            known.add(entry.result)
        if fresh and not entry.void and not is_bookkeeping(policy, entry.name):
            news.add(entry.call)
    return news


def _middle(policy: Policy, tool: str) -> int:
    """Where news from other calls takes a nudged call back to: halfway between nudge and stop, never to the start."""
    ladder = policy.ladder(Reason.REPEATED_CALL, tool)
    if ladder is None or ladder.nudge_at is None or ladder.stop_at is None:
        return 1
    return (ladder.nudge_at + ladder.stop_at) // 2


def _consecutive(trail: Trail, policy: Policy) -> dict[int, int]:
    counts: dict[int, int] = {}
    previous: set[int] = set()
    for step in trail.steps:
        if not step.calls:
            continue
        distinct = _distinct(step, policy)
        alone = len(distinct) == 1 and distinct == previous
        counts = {call: counts.get(call, 0) + 1 if alone else 1 for call in distinct}
        previous = distinct
    return counts


def _cumulative(trail: Trail, policy: Policy) -> dict[int, int]:
    counts: dict[int, int] = {}
    for step in trail.steps:
        for call in _distinct(step, policy):
            counts[call] = counts.get(call, 0) + 1
    for call, made in trail.made.items():
        counts[call] = max(counts.get(call, 0), made)
    return counts
