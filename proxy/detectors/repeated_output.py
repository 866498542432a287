"""A tool that gives the same output whatever it is asked.

Example: one command under ever other labels (pi 9637, 220 times), twelve rewordings of one message (OpenClaw 119600), a page number that
runs past the end. What an output proves depends on what it says:

- several lines, word for word the same under other arguments: the arguments do not matter. Not for writes and programs that may change
  something, which say the same of every file; a tool of which nothing is known is told, and not stopped;
- that there is nothing, told to a search: the searches lead nowhere;
- a bare "done" or "ok": nothing, since every step of a batch says so. It counts only where the calls are one but for their labels
  (`description`, `reason`, a display name, …), or are messages to one addressee.

Left alone: 19 edits that all answer "updated" (fak 3943), todo lists, checks of many items that are all fine, anything in between that
brings something new or changes the world.
"""

from collections import Counter
from collections.abc import Sequence

from proxy.counting import AMISS, LATELY, Tally, first_made, judged
from proxy.effects import Deed, Effect, essence, message, speaks, subject
from proxy.fingerprint import UNSEEN
from proxy.models import Finding, Reason
from proxy.outcomes import BRIEF, FAILED, NOTHING
from proxy.policy import NEVER, Ladder, Policy
from proxy.progress import Pauses, alike, answered, changed_anew, closely, deed, foreseen, streak, waits, worldly
from proxy.trail import Entry, Trail


class RepeatedOutput:
    """Messages with that output since the last that told something new."""

    reason = Reason.REPEATED_OUTPUT
    needs = AMISS

    def seen(self, trail: Trail, tally: Tally, policy: Policy) -> Sequence[Finding]:
        often = _often(trail, policy.ladders[self.reason].least)
        samples = {_key(entry): entry for entry in trail.newest if _key(entry) in often and _counts(policy, entry)}
        found = [self._finding(trail, policy, entry, []) for entry in closely(samples.values())]
        return [finding for finding in found if finding is not None and (finding.nudges or finding.stops)]

    def coming(self, trail: Trail, tally: Tally, calls: Sequence[Entry], policy: Policy) -> Sequence[Finding]:
        names = {entry.name for entry in calls}
        found = [self._finding(trail, policy, entry, closely(calls)) for entry in self._last_ones(trail, policy) if entry.name in names]
        return [finding for finding in found if finding is not None and finding.stops]

    def armed(self, trail: Trail, tally: Tally, policy: Policy) -> bool:
        found = [self._finding(trail, policy, entry, [entry]) for entry in self._last_ones(trail, policy)]
        return any(finding is not None and finding.stops for finding in found)

    def _last_ones(self, trail: Trail, policy: Policy) -> list[Entry]:
        """One call of each tool and output that came often enough for a stop."""
        often = _often(trail, (policy.ladders[self.reason].stop_at or NEVER) - 1)
        if not often:
            return []
        lately = [entry for step in trail.steps[-LATELY:] for entry in step.calls]
        return closely({_key(entry): entry for entry in lately if _key(entry) in often and _counts(policy, entry)}.values())

    def _finding(self, trail: Trail, policy: Policy, sample: Entry, coming: Sequence[Entry]) -> Finding | None:
        """None below every rung, while all the calls are one, where they wait, and where the output proves nothing."""
        kin = _Kin(trail, policy, sample)
        if not kin.tells:
            return None
        steps = _streak(trail, policy, kin)
        row = [[entry for entry in trail.steps[at].calls if kin.among(entry)] for at in steps]
        made = {entry.call for entries in row for entry in entries}
        again = {entry.call for entry in coming if judged(policy, entry) and kin.next(entry)}
        if len(made) < 2 or (coming and not again):
            return None
        ladder = policy.patient_ladder(self.reason, sample.name)
        count, calls = len(steps) + bool(again), frozenset(made | again)
        if count < ladder.least or Pauses(policy, trail).hold(sample):
            return None
        if count >= (ladder.stop_at or NEVER):
            ladder = kin.patience(row, ladder, policy.ladders.get(Reason.POLL, ladder))
        return Finding(self.reason, sample.name, count, ladder.nudge_at, ladder.stop_at, calls, across=True)


class _Kin:
    """Which calls count together with one that gave an output. tells: the output proves something."""

    def __init__(self, trail: Trail, policy: Policy, sample: Entry) -> None:
        self._trail, self._policy, self._sample = trail, policy, sample
        did = deed(policy, trail, sample)
        self._message = message(sample.arguments) if did.effect is Effect.SEND else None
        self._any = _proves(did, sample.flags)
        self._essence = essence(sample.arguments)
        told = self._any or self._message is not None or self._essence is not None
        self._doubtful = did.effect is Effect.UNKNOWN
        self.tells = told and did.effect is not Effect.BOOKKEEPING

    def among(self, entry: Entry) -> bool:
        """Whether a call that was made belongs to them: it gave the same output, or said the same to the same addressee."""
        if entry.name != self._sample.name or not answered(entry):
            return False
        if self._message is not None and message(entry.arguments) == self._message:
            return True
        if entry.result != self._sample.result or not self._alike(entry):
            return False
        return not self._any or _proves(deed(self._policy, self._trail, entry), entry.flags)

    def patience(self, row: Sequence[Sequence[Entry]], ladder: Ladder, waiting: Ladder) -> Ladder:
        """The ladder of calls, message by message, that reach its stop: longer where they are not one but for labels and counters.

        A tool of which nothing is known may do what it is asked each time. And where most messages asked of something else than all the
        others, a list of things may be gone through: its end may be near.
        """
        if not self._any or len({essence(entry.arguments) for entries in row for entry in entries}) < 2:
            return ladder
        if self._doubtful:
            return Ladder(ladder.nudge_at, None)
        things = {subject(entry.arguments) for entries in row for entry in entries}
        return ladder.as_patient_as(waiting) if 2 * len(things) > len(row) else ladder

    def next(self, entry: Entry) -> bool:
        """Whether a call about to be made goes the same way."""
        sample, trail = self._sample, self._trail
        if entry.name != sample.name or not self._alike(entry) or not alike(self._policy, trail, entry, sample):
            return False
        known = [other.result for step in trail.steps for other in step.calls if other.call == entry.call and answered(other)]
        if not known and sample.flags & NOTHING and self._any:  # looking for something else may find it
            return foreseen(entry, [other for step in trail.steps[-LATELY:] for other in step.calls if self.among(other)])
        return not known or known[-1] == sample.result or self._message is not None

    def _alike(self, entry: Entry) -> bool:
        if self._message is not None:
            other = message(entry.arguments)
            return other is not None and other.addressee == self._message.addressee
        return self._any or essence(entry.arguments) == self._essence


def _proves(did: Deed, flags: int) -> bool:
    """Whether the same output under any other arguments says that they do not matter."""
    if did.effect not in (Effect.READ, Effect.UNKNOWN) and not did.steps:
        return False
    if flags & NOTHING:
        return did.searches
    return not flags & BRIEF


def _counts(policy: Policy, entry: Entry) -> bool:
    return answered(entry) and not entry.flags & FAILED and judged(policy, entry)


def _key(entry: Entry) -> tuple[str, int]:
    """A tool and its output; of a tool that sends messages whatever it answers, which often repeats the message."""
    return entry.name, 0 if speaks(entry.name) else entry.result


def _often(trail: Trail, times: int) -> set[tuple[str, int]]:
    """What came so many times lately: a look before the close one."""
    lately = [_key(entry) for step in trail.steps[-LATELY:] for entry in step.calls if entry.result != UNSEEN]
    return {key for key, count in Counter(lately).items() if count >= min(times, LATELY // 2)}


def _streak(trail: Trail, policy: Policy, kin: _Kin) -> list[int]:
    firsts, fresh = first_made(trail), _first_answered(trail)

    def ends(at: int, calls: Sequence[Entry]) -> bool:
        others = [entry for entry in worldly(policy, calls) if not kin.among(entry)]
        fresh_ones = [entry for entry in others if fresh[entry.name, entry.result] == at]
        return any(not waits(policy, trail, entry) for entry in fresh_ones) or changed_anew(policy, trail, firsts, at, others)

    return streak(trail, lambda _at, calls: any(map(kin.among, calls)), ends)


def _first_answered(trail: Trail) -> dict[tuple[str, int], int]:
    """For each tool and output the step they first came together in."""
    steps = trail.steps
    return {(entry.name, entry.result): at for at in range(len(steps) - 1, -1, -1) for entry in steps[at].calls}
