"""Random lives of a session: histories that grow, fork, are retried, pruned and summarised, against a model that only keeps lists."""

from dataclasses import dataclass, field
from itertools import count

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.lanes import Place
from tests.recorded import Recorded
from tests.transcripts import Call, Plain, Together, Turn, called, said, together, user

Shape = list[list[tuple[str, int]]]
"""A trail as a model can know it: for each message its calls by name, each with the number of its result among that call's results."""

GO = user("go")
STUB = "[Old tool result content cleared]"


@dataclass
class Branch:
    """A client's history, and what it did in its current run before compactions. turns: true results, whatever the client shows."""

    turns: list[Turn]
    before: list[Turn] = field(default_factory=list)


def shape(steps: list[list[tuple[str, object]]]) -> Shape:
    numbers: dict[str, list[object]] = {}
    for name, result in (call for step in steps for call in step):
        if result not in numbers.setdefault(name, []):
            numbers[name].append(result)
    return [[(name, numbers[name].index(result)) for name, result in step] for step in steps]


def seen(place: Place) -> Shape:
    """The trail, without messages that made no calls."""
    return shape([[(entry.name, entry.result) for entry in step.calls] for step in place.trail.steps if step.calls])


def calls_of(turn: Turn) -> tuple[Call, ...]:
    match turn:
        case Call():
            return (turn,)
        case Together(calls):
            return calls
        case Plain():
            return ()


def run_start(turns: list[Turn]) -> int:
    """Where the last text after an answer stands, 0 without one."""
    starts = [place for place in range(1, len(turns)) if spoken(turns[place], "user") and spoken(turns[place - 1], "assistant")]
    return max(starts, default=0)


def expected(branch: Branch) -> Shape:
    """The calls of the run, behind what was summarised away."""
    start = run_start(branch.turns)
    run = branch.turns[start:] if start else [*branch.before, *branch.turns]
    return shape([[(call.name, call.result) for call in calls_of(turn)] for turn in run if calls_of(turn)])


def spoken(turn: Turn, role: str) -> bool:
    return isinstance(turn, Plain) and turn.message["role"] == role


def cleared(turn: Turn) -> Turn:
    calls = tuple(msgspec.structs.replace(call, result=STUB) for call in calls_of(turn))
    match turn:
        case Call():
            return calls[0]
        case Together():
            return msgspec.structs.replace(turn, calls=calls)
        case Plain():
            return turn


class Life:
    """The session, its branches, and every check after every request."""

    def __init__(self) -> None:
        self.session = Recorded()
        self.ids = count()
        self.branches = [Branch([GO])]
        self.ask(self.branches[0], 0)

    def ask(self, branch: Branch, blanked: int) -> None:
        """The history as it stands, its oldest messages blanked by the client; then the same once more."""
        turns = [cleared(turn) if place < min(blanked, len(branch.turns) - 1) else turn for place, turn in enumerate(branch.turns)]
        assert seen(self.session.ask(*turns)) == expected(branch)
        assert self.session.place.current
        known = self.snapshot()
        assert seen(self.session.ask(*turns, retry=True)) == expected(branch)
        assert self.snapshot() == known

    def snapshot(self) -> bytes:
        """The record but for the times of use."""
        lanes = [msgspec.structs.replace(lane, used=0.0) for lane in self.session.record.lanes]
        return msgspec.msgpack.encode(msgspec.structs.replace(self.session.record, lanes=lanes))

    def message(self, names: str, result: str) -> Turn:
        made = [called(name, result=result, id=f"i{next(self.ids)}") for name in names]
        return made[0] if len(made) == 1 else together(*made)

    def live(self, kind: str, which: int, names: str, result: str, amount: int) -> None:
        branch = self.branches[which % len(self.branches)]
        match kind:
            case "call":
                branch.turns.append(self.message(names, result))
            case "speak":
                branch.turns += [said("ok"), user(f"text {next(self.ids)}")]
            case "fork" if len(self.branches) < 5:
                branch = self.fork(branch, amount, self.message(names, result))
            case "summarise":
                self.summarise(branch, amount)
            case _:
                pass  # sent again as it is
        self.ask(branch, amount)

    def fork(self, parent: Branch, amount: int, first: Turn) -> Branch:
        """A branch from behind one of the parent's messages with calls but the newest: that would be the parent, grown.

        Of a history that was summarised, only from within its run: what came before the summary is forgotten with the run.
        """
        first_place = 0 if parent.turns[0] == GO else run_start(parent.turns)
        places = [place for place in range(first_place, len(parent.turns) - 1) if calls_of(parent.turns[place])]
        if not places:
            return parent
        self.branches.append(Branch([*parent.turns[: places[amount % len(places)] + 1], first], list(parent.before)))
        return self.branches[-1]

    def summarise(self, branch: Branch, kept: int) -> None:
        """The history becomes a summary and the newest messages of the run, fewer than all."""
        self.ask(branch, 0)
        run = [turn for turn in branch.turns[run_start(branch.turns) :] if calls_of(turn)]
        if len(run) < 2:
            return
        tail = run[len(run) - kept % len(run) :]
        branch.before = [*([] if run_start(branch.turns) else branch.before), *run[: len(run) - len(tail)]]
        branch.turns = [user(f"Summary {next(self.ids)}."), *tail]


EVENTS = st.tuples(
    st.sampled_from(["call", "call", "call", "speak", "fork", "summarise", "again"]),
    st.integers(0, 4),
    st.text(st.sampled_from("abc"), min_size=1, max_size=3),
    st.sampled_from(["1", "2", "3"]),
    st.integers(0, 6),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=6, max_size=25))
def test_a_trail_is_what_its_own_branch_did(events: list[tuple[str, int, str, str, int]]) -> None:
    """Forks inherit their prefix and count on their own, summaries and blanked results lose nothing, retries change nothing."""
    life = Life()
    for event in events:
        life.live(*event)


NAMES = st.text(st.characters(), min_size=1, max_size=3).map(lambda name: name * 200)
LONG = "0" * 200


@settings(max_examples=25, deadline=None)
@example([(0, LONG, 63, 7), (0, LONG, 45, 8), (0, LONG, 47, 7)])
@example([*((lane, LONG, 63, 7) for lane in range(5)), (5, LONG, 12, 3), (0, LONG, 47, 7)])
@given(st.lists(st.tuples(st.integers(0, 12), NAMES, st.integers(1, 80), st.integers(1, 8)), min_size=1, max_size=20))
def test_no_record_outgrows_its_bound(parts: list[tuple[int, str, int, int]]) -> None:
    """Whatever lanes, names and numbers of calls: it fits after every request, and loads again with the lane used last."""
    session = Recorded()
    for lane, name, messages, calls in parts:
        turns = [together(*(called(name, {"n": number, "of": n}) for number in range(calls))) for n in range(messages)]
        place = session.ask(user("go"), *turns, lane=lane, named=False)
        assert len(place.trail.steps) == messages
        session.nudge(name)
        session.deliver(*range(calls))
        assert session.ask(user("go"), *turns, lane=lane, named=False).lane.nudges != []


@settings(max_examples=25, deadline=None)
@example([*((lane, 63, True) for lane in range(5)), (0, 47, True), (5, 63, False), (6, 63, False)])
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 80), st.booleans()), min_size=8, max_size=20))
def test_a_lane_in_a_full_record_is_known_by_its_newest_request(asked: list[tuple[int, int, bool]]) -> None:
    """Also where that is an older one, sent again, and others have filled the record since: with all that it was nudged for."""
    session = Recorded()
    requests: dict[float, list[Turn]] = {}
    for lane, messages, nudged in asked:
        turns: list[Turn] = [GO, *(together(*(called("a", {"n": n, "of": of}) for n in range(7))) for of in range(messages))]
        session.ask(*turns, lane=lane, named=False)
        requests[session.clock] = turns
        if nudged:
            session.nudge("a")
        newest = {one.name: one for one in sorted(session.record.lanes, key=lambda one: one.used)}
        for name, known in newest.items():
            again = Recorded(session.data, session.clock)
            assert again.ask(*requests[known.used], lane=name, named=False).lane.nudges == known.nudges
            assert len(again.record.lanes) == len(session.record.lanes)
