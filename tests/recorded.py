"""A session's record across the requests of its client, stored and loaded between any two as a process and its store would."""

from dataclasses import dataclass, field
from typing import Any

from proxy.fingerprint import UNSEEN, Fingerprints
from proxy.lanes import Asker, Place, absorb, place_mark, tail_marks
from proxy.models import Reason, Request
from proxy.pardon import NOTHING, Pardon
from proxy.records import Records
from proxy.state import MAX_BYTES, VERSION, Given, Nudge, Record, Stop, dump, load
from proxy.trail import History, read
from tests.transcripts import Plain, Turn, request

KEY = 7
PRINTS = Fingerprints(b"s" * 32, loose=True)


@dataclass
class Recorded:
    """The session: what its store holds, what it was asked last. A clock ticks once a request.

    warm: one process serves it, which has the record at hand that it wrote.
    """

    data: bytes | None = None
    clock: float = 0.0
    record: Record = field(default_factory=lambda: Record(VERSION, KEY))
    request: Request = field(default_factory=request)
    history: History = field(default_factory=lambda: read(request(), PRINTS))
    place: Place = field(default_factory=Place.nowhere)
    pardon: Pardon = NOTHING
    warm: bool = True
    records: Records = field(default_factory=Records)

    def ask(
        self,
        *turns: Turn,
        lane: int = 0,
        named: bool = True,
        retry: bool = False,
        whole: bool = False,
        busy: tuple[int, ...] = (),
        **rest: Any,
    ) -> Place:
        """One request. busy: seeds of requests in flight. rest: fields of the body."""
        return self.take(request(*turns, **rest), lane=lane, named=named, retry=retry, whole=whole, busy=busy)

    def live(self, *turns: Turn, **rest: Any) -> Place:
        """A history as it grows: a request after each user text and each message with calls."""
        for end, turn in enumerate(turns, 1):
            if not (isinstance(turn, Plain) and turn.message["role"] == "assistant"):
                self.ask(*turns[:end], **rest)
        return self.place

    def take(self, asked: Request, *, lane: int, named: bool, retry: bool, whole: bool, busy: tuple[int, ...]) -> Place:
        """The same for a request that is one already."""
        self.clock += 1
        self.request, self.history = asked, read(asked, PRINTS)
        self.record = self.records.load(b"", self.data, KEY) if self.warm else load(self.data, KEY)
        asker = Asker(lane, named, retry, self.clock, busy, pardon=self.pardon)
        self.place = absorb(self.record, self.request, self.history, PRINTS, asker, whole=whole)
        self.save()
        return self.place

    def save(self) -> None:
        """Stores the record as it stands."""
        self.data = self.records.dump(b"", self.record) if self.warm else dump(self.record)
        self.records.wrote(b"", self.data, self.record)
        assert len(self.data) <= MAX_BYTES
        assert self.data == dump(self.record)
        assert all(lane.calls == sum(map(len, lane.kept)) and len(lane.answers) == len(lane.kept) for lane in self.record.lanes)

    def nudge(self, *names: str) -> Nudge:
        """The last request is nudged for these tools: at its last result, or its last user text without one."""
        answered = [index for index, message in enumerate(self.history.messages) if message.last_item >= 0]
        message, item = (answered[-1], -1) if answered else (-1, self.history.users[-1].item)
        calls = sorted({entry.call for step in self.place.trail.steps for entry in step.calls if entry.name in names})[:8]
        mark = place_mark(self.request, self.history, PRINTS, message, item)
        given = Nudge(message, item, mark, self.place.run, Reason.REPEATED_CALL, names[0], 3, calls)
        self.place.lane.nudges.append(given)
        self.save()
        return given

    def stop(self) -> None:
        """The last request is stopped."""
        self.place.lane.stop = Stop(Reason.REPEATED_CALL, "t", 5, 5, [])
        self.cut()

    def cut(self) -> None:
        """The answer to the last request did not arrive."""
        self.place.lane.cut = True
        self.place.lane.tail = tail_marks(self.request, self.history, PRINTS)
        self.save()

    def finish(self) -> None:
        """The last request was answered without calls."""
        self.place.lane.open = False
        self.save()

    def deliver(self, *calls: int, ended: float | None = None, cut: bool = False) -> None:
        """An answer with these calls went out in full, by default now."""
        self.record.given.append(Given(self.history.same, self.clock if ended is None else ended, calls, (0,) * len(calls), cut))
        self.save()


def shown(place: Place) -> list[str]:
    """The trail, a string a message: each call by name and the number of its result in order of appearance, "?" without one.

    A compaction before a message shows as "|" in front of it.
    """
    numbers: dict[int, int] = {}
    steps = []
    for step in place.trail.steps:
        calls = [
            entry.name + ("?" if entry.result == UNSEEN else str(numbers.setdefault(entry.result, len(numbers) + 1)))
            for entry in step.calls
        ]
        steps.append("|" * step.after_compaction + " ".join(calls))
    return steps
