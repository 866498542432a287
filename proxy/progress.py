"""What lies between two occurrences of the same thing: progress, waiting, or nothing that matters.

`counting` knows when a call is a repeat. Here stands what detectors that look across different calls need: what each call did, whether it
was made for the first time, and how many messages in a row, counted backwards from the newest, show one shape.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice

from proxy.counting import is_bookkeeping, judged
from proxy.effects import Deed, Effect, deed_of
from proxy.fingerprint import UNSEEN
from proxy.outcomes import BRIEF, FAILED, VOID, WAITING
from proxy.policy import Policy
from proxy.trail import Entry, Step, Trail


def deed(policy: Policy, trail: Trail, entry: Entry) -> Deed:
    """What a call did: by what the operator says of its tool, else by what can be read of it."""
    told = _told(policy, entry)
    return deed_of(entry.name, entry.arguments, trail.offer.hints) if told is None else Deed(told)


def waits(policy: Policy, trail: Trail, entry: Entry) -> bool:
    """Whether a call lets time pass, was told that what it asks for still runs, or is a step of many that is told no more than "done"."""
    return rests(policy, trail, entry) or (deed(policy, trail, entry).steps and _acknowledged(entry))


def rests(policy: Policy, trail: Trail, entry: Entry) -> bool:
    """Whether a call lets time pass, or was told that what it asks for still runs."""
    if entry.flags & WAITING and _told(policy, entry) is None:
        return True
    return deed(policy, trail, entry).effect is Effect.POLL


def _told(policy: Policy, entry: Entry) -> Effect | None:
    """What the operator says of a tool."""
    rule = policy.tools.get(entry.name)
    return None if rule is None else rule.effect


def acts(policy: Policy, trail: Trail, entry: Entry) -> bool:
    """Whether a call did something and was told no more than that it is done: what it was good for shows elsewhere."""
    return _acknowledged(entry) and deed(policy, trail, entry).effect in (Effect.WRITE, Effect.UNKNOWN)


def _acknowledged(entry: Entry) -> bool:
    return entry.flags & (BRIEF | FAILED) == BRIEF


class Pauses:
    """Which calls of a trail are part of waiting: those that wait, and those made since the agent waited (a pause and a look, in turn)."""

    def __init__(self, policy: Policy, trail: Trail) -> None:
        self._policy, self._trail = policy, trail
        self._waited = -1  # the newest step that waits, as far back as was looked
        self._looked = len(trail.steps)
        self._made: dict[int, int] | None = None  # for each call the last step before the newest that it was made in

    def hold(self, entry: Entry) -> bool:
        """Whether a call waits itself, or the agent did since it was made last."""
        if waits(self._policy, self._trail, entry):
            return True
        if self._made is None:
            self._made = {made.call: at for at, step in enumerate(self._trail.steps[:-1]) for made in step.calls}
        since = self._made.get(entry.call, 0)
        while self._waited < 0 and self._looked > since:
            self._looked -= 1
            if any(waits(self._policy, self._trail, made) for made in self._trail.steps[self._looked].calls):
                self._waited = self._looked
        return self._waited >= since


_CLOSELY = 16  # different calls; an agent at work seldom makes as many at once


def closely(entries: Iterable[Entry]) -> list[Entry]:
    """Of many calls those that are looked at closely, each against the whole trail: the first different ones."""
    return list(islice({entry.call: entry for entry in entries}.values(), _CLOSELY))


def changed_anew(policy: Policy, trail: Trail, firsts: dict[int, int], at: int, calls: Sequence[Entry]) -> bool:
    """Whether these calls of a step did something that may have changed the world, for the first time and not in vain."""
    return any(
        firsts[entry.call] == at and not entry.flags & (FAILED | VOID) and deed(policy, trail, entry).effect.changes for entry in calls
    )


Look = Callable[[int, Sequence[Entry]], bool]  # at a step, by its index and its calls


def streak(trail: Trail, shows: Look, ends: Look) -> list[int]:
    """The newest steps that show a shape, newest first, back to what ended it; that step is among them if it shows."""
    found: list[int] = []
    for at in range(len(trail.steps) - 1, -1, -1):
        calls = trail.steps[at].calls
        if calls and shows(at, calls):
            found.append(at)
        if calls and ends(at, calls):
            break
    return found


def worldly(policy: Policy, step: Step | Sequence[Entry]) -> list[Entry]:
    """The calls of a message that count and that are about the world: no notes, nothing exempt, nothing of Lastcall's own."""
    calls = step.calls if isinstance(step, Step) else step
    return [entry for entry in calls if judged(policy, entry) and not entry.flags & VOID and not is_bookkeeping(policy, entry.name)]


def answered(entry: Entry) -> bool:
    """Whether a call has a result that says something of the world."""
    return entry.result != UNSEEN and not entry.flags & VOID


def alike(policy: Policy, trail: Trail, one: Entry, other: Entry) -> bool:
    """Whether two calls go the same way: one tool and, where that is a shell, one program."""
    return one.name == other.name and deed(policy, trail, one).program == deed(policy, trail, other).program


_WORD = re.compile(r"[^\W\d_]{2,}")
_LONGEST_READ = 4_096  # characters of arguments


def foreseen(coming: Entry, row: Sequence[Entry]) -> bool:
    """Whether a call about to be made has to be expected to end like those of a row: it is one of them, or says nothing they did not.

    Letters and digits that drift say nothing. A new word may be the option that was missing, and a word left out that all of them had may
    be what was wrong: such a call may be the way out.
    """
    if any(entry.call == coming.call for entry in row):
        return True
    said = [_words((entry.arguments or "")[:_LONGEST_READ]) for entry in row]
    return bool(said) and frozenset.intersection(*said) <= _words((coming.arguments or "")[:_LONGEST_READ]) <= frozenset.union(*said)


@lru_cache(maxsize=1_024)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
