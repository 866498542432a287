"""Leads a recording through the engine as the proxy would have met it: one exchange for each answer, the record as bytes in between.

Whatever Lastcall would have done, the recording goes on as it was recorded. A stop stands until a person speaks again, as it does in
the proxy, so that what counts of a run is its first stop and the nudges before it; only calls that Lastcall would have left out of a
message are left out here too, with their results.
"""

from dataclasses import replace
from enum import StrEnum

import msgspec

from proxy.budgets import BYTES_PER_TOKEN, Spending
from proxy.engine import Admission, Case, Result, Serve, Verdict, admit, conclude, judge
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Answer, Choice, Finding, Item, Request, Role, Usage, text_of
from proxy.policy import Budgets, Canonical, Mode, OnStop, Policy
from proxy.replay.recording import Note, Recording
from proxy.state import Record, dump, load
from proxy.trail import read

_SECRET = b"lastcall replay"  # nothing is stored: any will do
_KEY = 1


class Act(StrEnum):
    """What Lastcall would have done: told the model, left calls out of a message, mended its text, or ended the run."""

    NUDGE = "nudge"
    PRUNE = "prune"
    MEND = "mend"
    STOP = "stop"


class Mark(msgspec.Struct, frozen=True):
    """Where it would have acted: after (nudge, mend) or at (prune, stop) the recording's call number `call`, in answer `turn`, from 1.

    tool, count, limit: what was found, how often, and the stop rung.
    """

    act: Act
    call: int
    turn: int
    reason: str
    tool: str
    count: int
    limit: int | None


class Walk(msgspec.Struct, frozen=True):
    """What came of a recording. turns: its answers. tokens: what they took; saved: what the stops would have spared of it.

    estimated: whether any of these tokens are an estimate from sizes, since the log does not say.
    """

    turns: int
    calls: int
    marks: tuple[Mark, ...]
    tokens: int
    saved: int
    estimated: bool

    def of(self, act: Act) -> list[Mark]:
        return [mark for mark in self.marks if mark.act is act]


def judging(policy: Policy) -> Policy:
    """The policy as a replay applies it: as if it were enforced, without budgets, which are about spending and not about loops."""
    return replace(policy, mode=Mode.ENFORCE, budgets=Budgets())


def prints_for(policy: Policy) -> Fingerprints:
    """Fingerprints under the policy's notion of equal arguments; sharing them between recordings saves work."""
    return Fingerprints(_SECRET, loose=policy.canonical is Canonical.LOOSE)


def walk(recording: Recording, policy: Policy, prints: Fingerprints) -> Walk:
    """The whole recording under a policy. prints: those of `prints_for`."""
    walker = _Walker(recording, judging(policy), prints)
    for place, item in enumerate(recording.items):
        walker.take(place, item)
    return walker.end()


class _Walker:
    """The client's history as it grows, the record, and what was noted on the way."""

    def __init__(self, recording: Recording, policy: Policy, prints: Fingerprints) -> None:
        self._recording = recording
        self._policy = policy
        self._prints = prints
        self._offered = recording.offered
        self._history: list[Item] = []
        self._bytes = len(recording.tools_raw)
        self._left_out: set[int] = set()
        self._told_again = 0
        self._data: bytes | None = None
        self._turns = self._calls = self._tokens = self._saved = 0
        self._estimated = False
        self._marks: list[Mark] = []

    def take(self, place: int, item: Item) -> None:
        """The recording's next item: answers are exchanges, everything else is what the client adds to its history."""
        if place in self._recording.restarts:
            self._begin_anew(place, self._recording.restarts[place])
        if place in self._left_out:
            return
        if item.role is Role.ASSISTANT and place >= self._told_again:
            item = self._exchange(place, item)
        self._history.append(item)
        self._bytes += _size(item)

    def _begin_anew(self, place: int, end: int) -> None:
        """The history is replaced by the items up to `end`; its system text stays, unless they bring their own."""
        brought = any(item.role is Role.SYSTEM for item in self._recording.items[place:end])
        self._history = [] if brought else [item for item in self._history if item.role is Role.SYSTEM]
        self._bytes = len(self._recording.tools_raw) + sum(map(_size, self._history))
        self._told_again = end

    def end(self) -> Walk:
        """What came of it, after the last request, if its answer was not recorded."""
        if self._recording.asked and self._history and self._history[-1].role is not Role.ASSISTANT:
            self._ask()
            self._tokens += self._bytes // BYTES_PER_TOKEN
            self._estimated = True
        return Walk(self._turns, self._calls, tuple(self._marks), self._tokens, max(self._saved, 0), self._estimated)

    def _exchange(self, place: int, item: Item) -> Item:
        """One request and the answer that was recorded; what the client would have got of it, had only calls been left out."""
        case, plan = self._ask()
        note, verdict = self._recording.notes.get(place, Note()), Verdict()
        if plan.serve is Serve.FORWARD:
            verdict = judge(case, _answer(item, note), plan.counts)
            self._mark_verdict(verdict)
        conclude(case, self._result(plan, verdict, item, note))
        self._data = dump(case.record)
        self._spend(plan, verdict, item, note)
        self._calls += len(item.calls)
        return item if verdict.stop is not None or not verdict.drop else self._pruned(place, {call for _, call in verdict.drop})

    def _ask(self) -> tuple[Case, Admission]:
        """The client's request with all of its history, and the decision on it."""
        self._turns += 1
        request = Request(b"", self._recording.model, tuple(self._history), self._offered, self._recording.tools_raw)
        history, asker = read(request, self._prints), Asker(named=True, began=float(self._turns))
        case = Case(request, history, self._prints, self._policy, asker, Record(0, 0), Place.nowhere())
        case.take(load(self._data, _KEY))
        plan = admit(case, Spending())
        if plan.nudge is not None:
            self._mark(Act.NUDGE, plan.finding, self._calls)
        elif plan.stop is not None:
            self._mark(Act.STOP, plan.finding, self._calls)
        return case, plan

    def _mark_verdict(self, verdict: Verdict) -> None:
        """At the first call that the answer would have lost; for what it said, after the calls so far."""
        lost = min((position + 1 for _, position in verdict.drop), default=0)
        if verdict.stop is not None:
            self._mark(Act.STOP, verdict.finding, self._calls + lost)
        elif verdict.drop:
            self._mark(Act.PRUNE, verdict.finding, self._calls + lost)
        elif verdict.flaw is not None:
            self._mark(Act.MEND, verdict.finding, self._calls)

    def _mark(self, act: Act, finding: Finding | None, call: int) -> None:
        if finding is not None:
            self._marks.append(Mark(act, call, self._turns, finding.reason, finding.tool, finding.count, finding.stop_at))

    def _result(self, plan: Admission, verdict: Verdict, item: Item, note: Note) -> Result:
        """What is written into the record: in the place of a stopped answer stands a conclusion without calls, or an error."""
        stopped = plan.serve is not Serve.FORWARD or verdict.stop is not None
        blocked = stopped and self._policy.on_stop is OnStop.ERROR
        calls = () if stopped else tuple(call for at, call in enumerate(item.calls) if (0, at) not in verdict.drop)
        return Result(
            ended=self._turns + 0.5,
            full=True,
            calls=calls,
            answered=not blocked,
            blocked=blocked,
            own=plan.serve is Serve.FORWARD,
            nudge=plan.nudge,
            stop=plan.stop or verdict.stop,
            dropped=verdict.finding.calls if verdict.finding is not None and (verdict.drop or verdict.flaw) else frozenset(),
            said=None if stopped else Choice(text_of(item.content), calls, note.finish),
        )

    def _spend(self, plan: Admission, verdict: Verdict, item: Item, note: Note) -> None:
        """Adds the answer's tokens. A stop spares every later call of its run; its wrap-up reads the history once more."""
        usage = note.usage or Usage(self._bytes // BYTES_PER_TOKEN, _size(item) // BYTES_PER_TOKEN)
        self._estimated = self._estimated or note.usage is None
        spent = usage.input_tokens + usage.output_tokens
        self._tokens += spent
        if plan.serve is Serve.LOCAL:
            self._saved += spent
        elif verdict.stop is not None and self._policy.on_stop is OnStop.WRAP_UP:
            self._saved -= usage.input_tokens

    def _pruned(self, place: int, dropped: set[int]) -> Item:
        """The answer without some of its calls, whose results will not come either."""
        items = self._recording.items
        number = sum(1 for item in items[:place] if item.role is Role.ASSISTANT)
        made = read(Request(b"", "", items), self._prints).messages[number].calls
        self._left_out |= {made[position].item for position in dropped}
        calls = tuple(call for position, call in enumerate(items[place].calls) if position not in dropped)
        return msgspec.structs.replace(items[place], calls=calls)


def _answer(item: Item, note: Note) -> Answer:
    return Answer((Choice(text_of(item.content), item.calls, note.finish),), usage=note.usage, complete=True)


def _size(item: Item) -> int:
    return len(item.content) + sum(len(call.name) + len(call.arguments) for call in item.calls)
