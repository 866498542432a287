"""What the pure path costs without server, network and store: each step alone, on histories of 20, 200 and 2,000 calls.

The state is that of a session under way: the record knows all calls but the last, the caches are warm.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.transcripts import Shape, Transcript, call
from proxy.budgets import Spending
from proxy.config import load as load_config
from proxy.dialects import DIALECTS
from proxy.engine import Case, Result, admit, conclude, judge
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Answer, Choice, ToolCall
from proxy.policy import policy_of
from proxy.state import Record, dump, load
from proxy.trail import read

CALLS = (20, 200, 2_000)
_SECONDS = 0.25  # spent on each step
_LEAST = 5
_KEY = 1
_CHAT = DIALECTS["/chat/completions"]


@dataclass(frozen=True)
class Timing:
    """The median time of one step, in seconds, at that many calls of history."""

    step: str
    calls: int
    median: float


class Scene:
    """One request at one length, with everything the steps before it made of it."""

    def __init__(self, calls: int) -> None:
        shape = Shape(f"{calls} calls", turns=calls, tools=12, system_bytes=6_000, result_bytes=1_650)
        transcript = Transcript(shape, calls)
        self._policy = policy_of(load_config("", {}).policy)
        self._prints = Fingerprints(b"bench" * 8, loose=True)
        self._asker = Asker(named=True, began=1.0)
        self._body = transcript.body(1, calls)
        self._made = ToolCall(f"call_{calls}", *call(calls))
        known = self._case(transcript.body(1, calls - 1))
        known.take(Record(1, _KEY))
        self._known = dump(known.record)

    def steps(self) -> dict[str, Callable[[], object]]:
        """What to time, by name. Steps that change a record get one of their own each time, whose loading is a step itself."""
        case = self._case(self._body)
        case.take(load(self._known, _KEY))
        answer = Answer((Choice("", (self._made,), "tool_calls"),), complete=True)
        result = Result(2.0, full=True, calls=(self._made,))
        return {
            "parse": lambda: _CHAT.parse(self._body),
            "history": lambda: read(case.request, self._prints),
            "load": lambda: load(self._known, _KEY),
            "absorb": lambda: case.take(case.record),
            "admit": lambda: admit(case, Spending()),
            "judge": lambda: judge(case, answer),
            "conclude": lambda: conclude(case, result),
            "dump": lambda: dump(case.record),
        }

    def _case(self, body: bytes) -> Case:
        request = _CHAT.parse(body)
        return Case(request, read(request, self._prints), self._prints, self._policy, self._asker, Record(0, 0), Place.nowhere())


def timings(lengths: Sequence[int] = CALLS) -> list[Timing]:
    """All steps at all lengths."""
    return [Timing(step, calls, _median(work)) for calls in lengths for step, work in Scene(calls).steps().items()]


def _median(work: Callable[[], object]) -> float:
    taken: list[float] = []
    work()
    until = time.perf_counter() + _SECONDS
    while len(taken) < _LEAST or time.perf_counter() < until:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
