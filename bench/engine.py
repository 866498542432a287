"""What the pure path costs without server, network and store: each step alone, on histories of 20, 200 and 2,000 calls.

Every step runs as in the proxy: a session is followed from turn to turn, so that each request brings one turn that is new, its record is
freshly loaded from what the turn before left, and the caches hold what that session put there.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from bench.transcripts import Shape, Transcript, call, number
from proxy.budgets import Spending
from proxy.config import load as load_config
from proxy.dialects import DIALECTS
from proxy.engine import Case, Result, admit, conclude, judge
from proxy.fingerprint import Fingerprints
from proxy.growing import Readings
from proxy.lanes import Asker, Place
from proxy.models import Answer, Choice, ToolCall
from proxy.policy import policy_of
from proxy.records import Records
from proxy.state import Record
from proxy.trail import answer_identity, read

CALLS = (20, 200, 2_000)
NEWEST_TURN = "newest turn"
_TURNS = 8  # that a conversation goes on for while it is measured
_SECONDS = 3.0  # spent on each length
_KEY = 1
_CHAT = DIALECTS["/chat/completions"]

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """The median time of one step, in seconds, at that many calls of history. `NEWEST_TURN` is the sum of a request's steps."""

    step: str
    calls: int
    median: float


class Stopwatch:
    """Time by step, of one request after another. Medians of it leave out what other processes took."""

    def __init__(self) -> None:
        self.taken: list[dict[str, float]] = []

    def begin(self) -> None:
        """A new request."""
        self.taken.append({})

    def time(self, step: str, work: Callable[[], T]) -> T:
        """Runs one step of the request."""
        started = time.perf_counter()
        value = work()
        self.taken[-1][step] = time.perf_counter() - started
        return value


class Scene:
    """Conversations of about one length, each followed for a few turns."""

    def __init__(self, calls: int) -> None:
        shape = Shape(f"{calls} calls", turns=calls, tools=12, system_bytes=6_000, result_bytes=1_650)
        self._calls = calls
        self._transcript = Transcript(shape, calls + _TURNS // 2)
        self._policy = policy_of(load_config("", {}).policy)
        self._prints = Fingerprints(b"bench" * 8, loose=True)
        self._readings, self._records = Readings(), Records()
        self._numbers = count(1)

    def follow(self, watch: Stopwatch) -> Iterator[None]:
        """One conversation; yields after each request."""
        conversation, first = next(self._numbers), self._calls - _TURNS // 2
        record = self._request(conversation, first, None, Stopwatch())
        for turns in range(first + 1, first + _TURNS + 1):
            record = self._request(conversation, turns, record, watch)
            yield

    def _request(self, conversation: int, turns: int, known: bytes | None, watch: Stopwatch) -> bytes:
        """The request after `turns` answered calls and its answer; what the session's record is then."""
        session = number(conversation)
        body = self._transcript.body(conversation, turns)
        made = ToolCall(f"call_{session.decode()}{turns:04d}", *call(turns))
        answer = Answer((Choice(f"Next I look at part {turns}.", (made,), "tool_calls"),), complete=True)
        asker, result = Asker(named=True, began=float(turns)), Result(turns + 0.5, full=True, calls=(made,), said=answer.choices[0])
        watch.begin()
        request = watch.time("parse", lambda: self._readings.read(_CHAT, body, "bench"))
        history = watch.time("history", lambda: read(request, self._prints))
        record = watch.time("load", lambda: self._records.load(session, known, _KEY))
        case = Case(request, history, self._prints, self._policy, asker, Record(0, 0), Place.nowhere())
        watch.time("absorb", lambda: case.take(record))
        plan = watch.time("admit", lambda: admit(case, Spending()))
        watch.time("judge", lambda: judge(case, answer, plan.counts))
        watch.time("identify answer", lambda: answer_identity(answer.choices[0].text, answer.choices[0].calls, self._prints))
        watch.time("conclude", lambda: conclude(case, result))
        data = watch.time("dump", lambda: self._records.dump(session, case.record))
        self._records.wrote(session, data, case.record)
        history.messages.over = True  # as an exchange does at its end
        return data


def timings(lengths: Sequence[int] = CALLS) -> list[Timing]:
    """All steps at all lengths."""
    return [timing for calls in lengths for timing in _timings(calls)]


def _timings(calls: int) -> list[Timing]:
    gc.freeze()
    gc.set_threshold(25_000, 20, 50)  # as `app` does
    scene, watch = Scene(calls), Stopwatch()
    for _ in scene.follow(Stopwatch()):
        pass  # the first conversation warms up
    until = time.perf_counter() + _SECONDS
    while not watch.taken or time.perf_counter() < until:
        for _ in scene.follow(watch):
            pass
    steps = [Timing(step, calls, statistics.median(taken[step] for taken in watch.taken)) for step in watch.taken[0]]
    return [*steps, Timing(NEWEST_TURN, calls, statistics.median(sum(taken.values()) for taken in watch.taken))]
