"""A record that is written again by the parts that stand is, to the byte, what it would be without them."""

from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.models import Owed
from proxy.state import VERSION, Given, Kept, KeptCall, Lane, Node, Parts, Record, dump, load, put

KEY = 7


class Life:
    """A session's record through what requests do to it. amount: how much, or where."""

    def __init__(self) -> None:
        self.record = Record(VERSION, KEY, lanes=[Lane(0, 1, 2, 0.0, main=True)])
        self._number = 2**63

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _lane(self, amount: int) -> Lane:
        return self.record.lanes[amount % len(self.record.lanes)] if self.record.lanes else self._begin()

    def _begin(self) -> Lane:
        self.record.lanes.append(Lane(self._new(), 1, 2, float(self._number - 2**63)))
        return self.record.lanes[-1]

    def work(self, amount: int) -> None:
        """So many messages more, some with several calls, some with none."""
        lane = self._lane(0)
        for number in range(amount % 60):
            calls = tuple([KeptCall(self._new(), 0, 0) for _ in range((1, 1, 0, 3)[number % 4])])
            lane.answers.append(self._new())
            lane.kept.append(calls)
            lane.calls += len(calls)
            self.record.given.append(Given(self._new(), 1.5, tuple([one.call for one in calls]), (0,) * len(calls)))

    def hear(self, amount: int) -> None:
        """A result of an older message."""
        lane = self._lane(amount)
        if lane.kept:
            at = amount % len(lane.kept)
            changed = tuple([msgspec.structs.replace(one, result=self._new()) for one in lane.kept[at]])
            put(lane, [*lane.kept[:at], changed, *lane.kept[at + 1 :]])

    def fork(self, amount: int) -> None:
        lane, new = self._lane(amount), self._begin()
        new.answers = lane.answers[: amount % 50]
        put(new, lane.kept[: amount % 50])

    def compact(self, amount: int) -> None:
        lane, new = self._lane(0), self._begin()
        new.before = [Node(answer, calls) for answer, calls in zip(lane.answers, lane.kept, strict=True)]
        new.answers = lane.answers[amount % 50 :]
        put(new, lane.kept[amount % 50 :])
        self.record.lanes.insert(0, self.record.lanes.pop())

    def switch(self, amount: int) -> None:
        """The lanes in another order."""
        self.record.lanes.append(self.record.lanes.pop(amount % len(self.record.lanes))) if self.record.lanes else None

    def take_back(self, amount: int) -> None:
        """An answer given that was none."""
        self.record.given = [one for at, one in enumerate(self.record.given) if at != amount % 70]

    def reset(self, _: int) -> None:
        self.record.given = []

    def crowd(self, amount: int) -> None:
        """More than fits."""
        self.record.answers += [Kept(self._new(), 0, 0, 0, 0, [], [], [], owed=[Owed(f"call_{n}") for n in range(40)])] * (amount % 30)

    def reload(self, _: int) -> None:
        """Another process wrote it last, or this one lost it."""
        self.record = load(dump(self.record), KEY)


CHANGES: list[Callable[[Life, int], None]] = [
    *[Life.work] * 4,
    *(Life.hear, Life.fork, Life.compact, Life.switch, Life.take_back, Life.reset, Life.crowd, Life.reload),
]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 255)), max_size=40))
def test_parts_that_stand_are_the_bytes_that_they_would_be(changes: list[tuple[Callable[[Life, int], None], int]]) -> None:
    """Whatever was added, changed, dropped, branched off or read anew between, and where the record has to be made smaller."""
    life, parts = Life(), Parts()
    for change, amount in changes:
        change(life, amount)
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(life.record), type=Record)

        assert dump(life.record, parts) == dump(plain)
        assert life.record == plain
        assert all(lane.calls == sum(map(len, lane.kept)) for lane in life.record.lanes)
