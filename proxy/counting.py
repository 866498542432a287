"""How often a call has been made without progress: the number every repeat is measured by.

**News** is a call never made before in the trail, or a known call with a result it never had. Under `no_progress` a call's count is
the number of its occurrences since the last news, the message that brought it included; docs/detection.md has the table of what
that means in practice. The calls of one message happened at once: equal ones count once, and news among them counts for all.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from proxy.effects import Effect, keeps_notes, speaks
from proxy.fingerprint import UNSEEN
from proxy.models import Reason
from proxy.outcomes import FAILED, VOID
from proxy.policy import RELAPSE_STOPS_AT, Counting, Ladder, Policy
from proxy.trail import Entry, Step, Trail

LATELY = 24  # messages in which shapes of a tool are looked for

# What has to be there for a detector to find anything: bits of `Detector.needs`.
AGAIN = 1  # a call that was made twice
AMISS = 2  # lately something failed, or an output came often, or somebody was sent a message
AT_ONCE = 4  # a rule by which a call is stopped as soon as it is made twice
ABREAST = 8  # several calls in the message that is looked at; not the trail's

_NO_PROGRESS: Final = Counting.NO_PROGRESS  # looking a member up costs more than comparing
_NONE: frozenset[int] = frozenset()
_REPEATED_CALL, _REPEATED_OUTPUT = Reason.REPEATED_CALL, Reason.REPEATED_OUTPUT


class Tally(msgspec.Struct, frozen=True, gc=False):
    """Counts at the end of a trail. results: the last result of each call. forgiven: calls whose next occurrence does not count.

    shows: what there is beside work, as bits; without `AGAIN` no shape of repetition can be there, without `AMISS` no shape of a tool.
    """

    counts: dict[int, int]
    results: dict[int, int]
    forgiven: frozenset[int]
    shows: int


def judged(policy: Policy, entry: Entry) -> bool:
    """Whether a call can be a repeat at all: exempt tools never are, finish tools only when they fail."""
    if policy.tools and (rule := policy.tools.get(entry.name)) is not None and rule.exempt:
        return False
    return entry.name not in policy.finish_tools or entry.failed


def is_bookkeeping(policy: Policy, name: str) -> bool:
    """Whether a tool only keeps notes: what those say about progress is the agent's opinion, no news from the world."""
    if policy.tools and (rule := policy.tools.get(name)) is not None and rule.effect is not None:
        return rule.effect is Effect.BOOKKEEPING
    return keeps_notes(name)


def ladder_of(policy: Policy, trail: Trail, tally: Tally, call: int, tool: str) -> Ladder | None:
    """The `repeated_call` ladder of one call; shorter for one that stopped an earlier run and still returns the same."""
    ladder = policy.ladder(_REPEATED_CALL, tool)
    if ladder is None or ladder.stop_at is None or call not in trail.relapsed:
        return ladder
    if tally.results.get(call, UNSEEN) not in (UNSEEN, trail.relapsed[call]):
        return ladder
    return Ladder(ladder.nudge_at, min(ladder.stop_at, RELAPSE_STOPS_AT))


class Lately:
    """What the newest messages of a trail came to: brought up to date from request to request, since most of them are those of before."""

    __slots__ = ("_amiss", "_outputs", "_repeated", "_steps")

    def __init__(self) -> None:
        self._steps: tuple[Step, ...] = ()  # those that are counted in: of a trail that goes on, all but its newest
        self._outputs: dict[int, int] = {}  # how often each result came
        self._repeated = 0  # results that were not the first of their kind
        self._amiss = 0  # calls that failed, or sent a message

    def is_amiss(self, trail: Trail, policy: Policy) -> bool:
        """Whether a shape of a tool could be there: a call failed or sent a message, an output came often, or one is not seen yet."""
        steps = fresh = trail.steps[-LATELY:]
        if steps[:-1] == self._steps:
            fresh = steps[-1:]
        else:
            self._outputs, self._repeated, self._amiss = {}, 0, 0
        for step in fresh:
            self._count(step, 1)
        ladder = policy.ladders.get(_REPEATED_OUTPUT)
        amiss = self._amiss > 0 or (ladder is not None and self._repeated + 2 >= ladder.least)
        for entry in () if amiss else trail.newest:
            amiss = amiss or entry.result == UNSEEN
        if len(steps) == LATELY:
            self._count(steps[0], -1)
            steps = steps[1:]
        self._steps = steps
        return amiss

    def _count(self, step: Step, by: int) -> None:
        outputs = self._outputs
        for entry in step.calls:
            if entry.flags & FAILED or speaks(entry.name):
                self._amiss += by
            result = entry.result
            if result == UNSEEN:
                continue
            before = outputs.get(result, 0)
            if before + by:
                outputs[result] = before + by
                self._repeated += by if before else 0
            else:
                del outputs[result]


def tally(trail: Trail, policy: Policy, lately: Lately | None = None) -> Tally:
    """Counts every judged call of a trail under the policy's way of counting. lately: of the trail that this one goes on from."""
    shows = (AMISS if (lately or Lately()).is_amiss(trail, policy) else 0) | (AT_ONCE if policy.least_stop <= 2 else 0)
    if policy.counting is _NO_PROGRESS:
        return _no_progress(trail, policy, shows)
    match policy.counting:
        case Counting.CONSECUTIVE:
            return Tally(_consecutive(trail, policy), _last_results(trail), frozenset(), AGAIN | shows)
        case Counting.CUMULATIVE:
            return Tally(_cumulative(trail, policy), _last_results(trail), frozenset(), AGAIN | shows)
        case _:
            assert_never(policy.counting)


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


def _no_progress(trail: Trail, policy: Policy, shows: int) -> Tally:
    if not trail.nudged and (trail.once or not any([step.after_compaction for step in trail.steps])):
        if trail.once or _differ([entry.call for step in trail.steps for entry in step.calls]):
            return Tally(_of_once(trail, policy), _last_results(trail), _NONE, shows)
        return Tally(_since_news(trail, policy), _last_results(trail), _NONE, AGAIN | shows)
    counts: dict[int, int] = {}
    results: dict[int, set[int]] = {}
    middles = _middles(trail, policy)
    forgiven: set[int] = set()
    spent: set[int] = set()  # a client that cuts its history short all the time loses nothing new each time
    for number, step in enumerate(trail.steps):
        if step.after_compaction:
            forgiven = set(results) - spent - {call for call, at in trail.nudged.items() if at <= number}
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
                spent.add(call)
            else:
                counts[call] = counts.get(call, 0) + 1
    return Tally(counts, _last_results(trail), frozenset(forgiven), AGAIN | shows)


def _differ(calls: Sequence[int]) -> bool:
    return len(set(calls)) == len(calls)


def _of_once(trail: Trail, policy: Policy) -> dict[int, int]:
    """`_since_news` of a trail in which no call was made twice: every message is news but for notes and void results."""
    counts: dict[int, int] = {}
    for step in reversed(trail.steps):
        news = False
        for entry in step.calls:
            if judged(policy, entry):
                counts[entry.call] = 1
            news = news or not (entry.flags & VOID or is_bookkeeping(policy, entry.name))
        if news:
            break
    return counts


def _since_news(trail: Trail, policy: Policy) -> dict[int, int]:
    """The counts of a trail in which nothing was nudged or summarised away: nothing before its last news matters to them."""
    counts: dict[int, int] = {}
    firsts, fresh = first_made(trail), first_returned(trail)
    for at in range(len(trail.steps) - 1, -1, -1):
        step = trail.steps[at]
        for call in _distinct(step, policy):
            counts[call] = counts.get(call, 0) + 1
        if any([not entry.void and not is_bookkeeping(policy, entry.name) for entry in _new(step, at, firsts, fresh)]):
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
    ladder = policy.ladder(_REPEATED_CALL, tool)
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
