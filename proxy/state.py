"""A session's record: what history cannot tell. Its shape, its versioned encoding, its bounds.

One record a session, opaque bytes to the store, at most 16 KB: for each lane the newest calls with their results as first seen,
nudges and the stop; for the session what was stopped before and what was answered. Hashes, names and numbers only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import astuple

from proxy.appended import Appended
from proxy.encoded import Encoded
from proxy.models import Allowance, Owed, Reason

MINOR = 0  # of this version: one more with each release that appends to a structure below
MAX_BYTES = 16_384
MAX_LANES = 8
MAX_CALLS = 128
_MOST_NODES = 4 * MAX_CALLS  # messages without calls cost a little too
MAX_GIVEN = 64
MAX_ANSWERS = 24
_NAME_BYTES = 80
_MOST_NAMES = 48
_MOST_NOTICED = 16
_SHORT = 32  # messages and calls: a lane with no more is not shortened further

NOBODY, MAIN = 0, 1  # `Lane.sent_by` where it is no lane's name
LOST = -2  # `Nudge.message` of a nudge whose place was summarised away


class KeptCall(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One call: fingerprint, result as first seen (0: none yet), index into `Record.names`; flags and error as in `trail.Entry`.

    sketch: of the result, see `fingerprint`. What becomes known of a call takes the place of what was kept of it.
    """

    call: int
    result: int
    name: int
    flags: int = 0
    error: int = 0
    sketch: int = 0


Calls = tuple[KeptCall, ...]  # of one message; where anything of it changes, another takes its place


class Node(msgspec.Struct, array_like=True, gc=False):
    """One assistant message that no history shows any more. compacted: the history before it was summarised away."""

    answer: int
    calls: Calls
    compacted: bool = False


class Nudge(msgspec.Struct, array_like=True, gc=False):
    """A nudge and where it stands, so that it can be said again in the same words at the same place.

    message: index of the assistant message whose last result carries it, or -1: then `item` is the user item. mark: identity of what
    stands there; a nudge whose mark is gone is lost. run: the run it belongs to. calls: the loop. at: how many messages the trail held.
    budget: of a notice that most of a budget is used, which stands and stays like a nudge and is none.
    held: decided and not said, to see what becomes of runs without. ended: it is known what became of the run.
    """

    message: int
    item: int
    mark: int
    run: int
    reason: Reason
    tool: str
    count: int
    calls: list[int]
    at: int = 0
    budget: Allowance | None = None
    held: bool = False
    ended: bool = False


class Excused(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A call of which one occurrence, from message `at` on, is let through and not counted."""

    call: int
    at: int


class Stop(msgspec.Struct, array_like=True, gc=False):
    """Why a run was stopped. limit: the rung. made: with the call that reached it, which else was withheld."""

    reason: Reason
    tool: str
    count: int
    limit: int
    calls: list[int]
    made: bool = False


class Lane(msgspec.Struct, array_like=True, gc=False):
    """One line of history inside a session.

    name: hash of the client's own lane id, 0 without one. head: identity of system text and tools. seed: of the first user text.
    offset: messages of the history before those that are kept. answers: the identities of these, the newest; kept: their calls; calls: how
    many these are. To both lists is only added, else others take their places: see `Encoded`. places: marks of where the upstream keeps
    them, of a response or of a conversation, and of their texts; none where it does not: see `place_at`. before: messages of this run from
    before compactions. run: index of the message the current run begins at. starts: user texts that began a run after an interruption.
    texts: user texts that followed answers. tail: user texts at the end of a request that was stopped or cut (then `cut`).
    open: the last answer made calls, so that the run goes on. pruned: calls left out of a message once. used: epoch seconds.
    opening: mark of the user text that stands last before the first answer, 0 where that is the first. older: `texts` from before a
    compaction. main: the session's first line of work.
    shortened: answers that were cut at the output limit. rested: how many messages there were when it was last taken up after a while.
    reset, allowed: what of `Pardon` it knows. since: the message from which it counts. excused: calls that an operator allowed.
    refused: the history that was last answered with an error, and how often; [] once another answer was given.
    works: it was offered tools, and is no title or probe. sent_by: name of the lane that sent it, `MAIN` for the session's own,
    `NOBODY` where its client names none. behind: how many of its newest messages its newest request did not show: an older one, sent again.
    knows: number of the session's newest stop when its run began.
    said: identity of the answer with calls that was given to its newest request, 0 without one: the next may show no other.
    """

    name: int
    head: int
    seed: int
    used: float
    offset: int = 0
    answers: list[int] = []
    kept: list[Calls] = []
    calls: int = 0
    places: list[tuple[int, int]] = []
    before: list[Node] = []
    run: int = 0
    starts: list[int] = []
    texts: list[int] = []
    tail: list[int] = []
    cut: bool = False
    open: bool = True
    nudges: list[Nudge] = []
    stop: Stop | None = None
    pruned: list[int] = []
    opening: int = 0
    older: list[int] = []
    main: bool = False
    shortened: list[int] = []
    rested: int = 0
    reset: int = 0
    since: int = 0
    allowed: int = 0
    excused: list[Excused] = []
    refused: list[int] = []
    works: bool = False
    sent_by: int = NOBODY
    behind: int = 0
    knows: int = 0
    said: int = 0


class Given(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An answer with calls that was delivered in full: to which history, when (epoch seconds), its calls, their names' indices.

    cut: it was not delivered in full after all; a marked retry that is takes its place. empty: it said nothing, which is remembered too.
    """

    same: int
    ended: float
    calls: tuple[int, ...]
    names: tuple[int, ...]
    cut: bool = False
    empty: bool = False


class Relapse(msgspec.Struct, array_like=True, gc=False):
    """A call that stopped a run, and the result it had: in a later run it gets less patience. number: of its first stop, in their order."""

    call: int
    result: int
    number: int = 0


class Kept(msgspec.Struct, array_like=True, gc=False):
    """An answer that the upstream keeps and a client may go on from without sending it back.

    place: the mark of what the client goes on from. before: that of what the answer itself went on from, depth: how many messages there
    were. seed: of the first user text. answer: identity of the answer; calls, names, ids: its calls' fingerprints, indices of their names,
    marks of their ids; said: mark of its text, 0 while it is still being made. tokens: what its upstream call read and wrote. go_on_from:
    the response at the upstream that takes its place, "" where none does, None where the upstream has this one. owed: calls there that no
    client will answer. items: marks of the newest of its items.
    """

    place: int
    before: int
    depth: int
    seed: int
    answer: int
    calls: list[int]
    names: list[int]
    ids: list[int]
    said: int = 0
    tokens: int = 0
    go_on_from: str | None = None
    owed: list[Owed] = []
    items: list[int] = []


class Record(msgspec.Struct, array_like=True, gc=False):
    """Everything a session remembers. key: identifies the secret its hashes were made under. stopped: sub-agent lanes stopped so far.

    given: a list as those of `Lane`. noticed: `noticed_mark` of the budgets that the model was told are nearly used up. line: keys of the
    sessions above this one, the nearest first. answers: the newest that the upstream keeps. reset, allowed: what of `Pardon` it knows.
    minor: what the newest release that wrote it may have appended.
    """

    version: int
    key: int
    names: list[str] = []
    lanes: list[Lane] = []
    given: list[Given] = []
    relapses: list[Relapse] = []
    stopped: int = 0
    noticed: list[str] = []
    line: list[bytes] = []
    answers: list[Kept] = []
    reset: int = 0
    allowed: int = 0
    minor: int = 0


class _Carried(Record):
    """The record of a later release of this version, with what that appended."""

    appended: Appended | None = None


def is_sub_agent(lane: Lane, record: Record) -> bool:
    """Whether a lane is the work of somebody whom the session's main line sent: by the client's name for it, else by its system text."""
    main = next((other for other in record.lanes if other.main), None)
    return not lane.main and (lane.name != 0 or (main is not None and main.head != lane.head))


_LANES, _GIVEN = map(Record.__struct_fields__.index, ("lanes", "given"))
_ANSWERS, _KEPT = map(Lane.__struct_fields__.index, ("answers", "kept"))
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def _read(data: bytes) -> Record:
    record = _decoder.decode(data)
    return record if record.minor <= MINOR else _carried(record, msgspec.msgpack.decode(data))


def _carried(record: Record, stored: object) -> Record:
    carried = _Carried(*[getattr(record, name) for name in record.__struct_fields__])
    carried.appended = Appended(carried, stored)
    return carried


class Parts:
    """What was encoded of a record's long lists when it was written last: of the answers given, and of each lane's messages."""

    def __init__(self) -> None:
        self.given = Encoded()
        self.lanes: list[tuple[Encoded, Encoded]] = []


def _written(record: Record, parts: Parts | None) -> bytes:
    if isinstance(record, _Carried) and record.appended is not None:
        return _encoder.encode(record.appended.whole(record))
    record.minor = MINOR
    return _encoder.encode(record if parts is None else _put_together(record, parts))


def _put_together(record: Record, parts: Parts) -> list[Any]:
    """What is encoded as the record would be."""
    if len(parts.lanes) < len(record.lanes):
        parts.lanes += [(Encoded(), Encoded()) for _ in record.lanes]  # too many do no harm
    lanes: list[list[Any]] = []
    for lane, (answers, kept) in zip(record.lanes, parts.lanes, strict=False):
        told = [*astuple(lane)]
        told[_ANSWERS], told[_KEPT] = answers.again(lane.answers), kept.again(lane.kept)
        lanes.append(told)
    whole = [*astuple(record)]
    whole[_LANES], whole[_GIVEN] = lanes, parts.given.again(record.given)
    return whole


@dataclass(frozen=True, slots=True)
class Form:
    """One version of what is stored. read: raises ValueError or RecursionError for what it cannot read, which other versions' may be.

    write: of the parts it may make use, and keep there what it encoded.
    """

    version: int
    read: Callable[[bytes], Record]
    write: Callable[[Record, Parts | None], bytes]


VERSION = 1
_FORMS = (Form(VERSION, _read, _written),)
"""Those that this release reads, and writes again as it found them; sessions begin in the first.

A new version takes two releases, since the one before each must be able to go on with what it writes: the first has it in the second place,
the next in the first (docs/stores.md).
"""


def load(data: bytes | None, key: int) -> Record:
    """The record in `data`; an empty one when there is none, when it is of no version that is known, unreadable, or under another secret.

    Losing a record loses no spending (the ledger is the store's) and no history (the client's): only what was nudged and stopped.
    """
    if data is not None:
        for form in _FORMS:
            try:
                record = form.read(data)
            except (ValueError, RecursionError):  # among them msgspec's own
                continue
            if record.version == form.version and record.key == key:
                return record
    return Record(_FORMS[0].version, key)


def dump(record: Record, parts: Parts | None = None) -> bytes:
    """The record as bytes, in the version it has, its oldest parts dropped until it fits `MAX_BYTES`. parts: of the same session's."""
    (write,) = [form.write for form in _FORMS if form.version == record.version]
    _bound(record)
    data = write(record, parts)
    while (size := len(data)) > MAX_BYTES:
        _shrink(record)
        data = write(record, parts)
        if len(data) == size:  # nothing is left to drop
            break
    return data


def name_index(record: Record, name: str) -> int:
    """The index of a tool name in the record's table, added if new; -1 once the table is full."""
    if name in record.names:  # nearly always, as it is
        return record.names.index(name)
    name = _clipped(name)
    if name in record.names:
        return record.names.index(name)
    if len(record.names) >= _MOST_NAMES:
        return -1
    record.names.append(name)
    return len(record.names) - 1


def newest_stop(record: Record) -> int:
    """The number of the session's newest stop; 0 where it had none."""
    return max([relapse.number for relapse in record.relapses]) if record.relapses else 0


def noticed_mark(budget: Allowance) -> str:
    """What tells one budget from another, and from itself when it is raised or its stretch of the calendar is over."""
    return f"{budget.scope} {budget.unit} {budget.limit:g} {budget.resets_at or 0:.0f}"


def _clipped(name: str) -> str:
    return name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")


def name_at(record: Record, index: int) -> str:
    """The tool name at an index of the record's table."""
    return record.names[index] if 0 <= index < len(record.names) else "?"


def _bound(record: Record) -> None:
    if len(record.lanes) > MAX_LANES:
        record.lanes = sorted(record.lanes, key=_worth)[-MAX_LANES:]
    for lane in record.lanes:
        _trim_calls(lane)
        _bound_lane(lane)
    if len(record.given) > MAX_GIVEN:
        record.given = record.given[-MAX_GIVEN:]
    if record.relapses or record.noticed or record.answers:  # seldom
        _cut(record.relapses, 8)
        _cut(record.noticed, _MOST_NOTICED)
        _cut(record.answers, MAX_ANSWERS)


def _bound_lane(lane: Lane) -> None:
    if not (
        lane.starts or lane.texts or lane.tail or lane.older or lane.pruned or lane.shortened or lane.excused or lane.nudges or lane.stop
    ):
        return  # nearly always
    _cut(lane.starts, 4)
    _cut(lane.texts, 16)
    _cut(lane.tail, 4)
    _cut(lane.older, 16)
    _cut(lane.pruned, 8)
    _cut(lane.shortened, 8)
    _cut(lane.excused, 8)
    _cut(lane.nudges, 8)
    for nudge in lane.nudges:
        nudge.tool = _clipped(nudge.tool)
    if lane.stop is not None:
        lane.stop.tool = _clipped(lane.stop.tool)


def _cut(kept: list[Any], most: int) -> None:
    if len(kept) > most:
        del kept[:-most]


def _worth(lane: Lane) -> tuple[bool, bool, float]:
    """Which lane to give up first: one that is over, of which no history tells less, and the longest unused. The main one last, since it
    waits while its sub-agents work."""
    return lane.main, lane.open or lane.stop is not None or bool(lane.nudges), lane.used


def place_at(lane: Lane, index: int) -> tuple[int, int]:
    """Where the upstream keeps a message of those that the lane keeps, and the mark of its text; 0 for both where it does not keep it."""
    return lane.places[index] if index < len(lane.places) else (0, 0)


def put(lane: Lane, kept: list[Calls]) -> None:
    """Puts another list in the place of what a lane keeps of its messages."""
    lane.kept, lane.calls = kept, sum(map(len, kept))


def _drop_oldest(lane: Lane, count: int) -> None:
    """Of the messages that the lane keeps."""
    if count:
        lane.calls -= sum(map(len, lane.kept[:count]))  # of all it is not counted again
        lane.answers, lane.kept, lane.places = lane.answers[count:], lane.kept[count:], lane.places[count:]
        lane.offset += count


def _calls_of(lane: Lane) -> int:
    return lane.calls + sum([len(node.calls) for node in lane.before]) if lane.before else lane.calls


def _trim_calls(lane: Lane) -> None:
    """Keeps the newest calls: what came before a compaction goes first, then the oldest messages."""
    total = _calls_of(lane)
    if total <= MAX_CALLS and len(lane.kept) <= _MOST_NODES and len(lane.before) <= _MOST_NODES:  # nearly always
        return
    while total > MAX_CALLS and lane.before:
        total -= len(lane.before.pop(0).calls)
    excess = 0
    while total > MAX_CALLS and excess < len(lane.kept) - 1:
        total -= len(lane.kept[excess])
        excess += 1
    _drop_oldest(lane, max(excess, len(lane.kept) - _MOST_NODES))
    if total > MAX_CALLS:
        put(lane, [lane.kept[0][:MAX_CALLS]])
    _cut(lane.before, _MOST_NODES)


def _shrink(record: Record) -> None:
    """One step towards `MAX_BYTES`: answers given or kept, then what the longest lane needs least, then whole lanes, but two while there
    are answers left; in the end everything but who is above; what a later release appended too, whose bound may be another."""
    longest = max(record.lanes, key=_length, default=None)
    answers = record.given or record.answers
    if len(record.given) > 8:
        record.given = record.given[len(record.given) // 2 :]
    elif len(record.answers) > 2:
        record.answers = record.answers[len(record.answers) // 2 :]
    elif longest is not None and _length(longest) > _SHORT:
        _halve(longest)
    elif len(record.lanes) > (2 if answers else 1):
        record.lanes.remove(min(record.lanes, key=_worth))
    elif answers:
        record.given, record.answers = [], record.answers[(len(record.answers) + 1) // 2 :]
    else:
        record.lanes, record.given, record.names, record.answers, record.noticed = [], [], [], [], []
        if isinstance(record, _Carried) and record.appended is not None:
            record.appended.forget()


def _length(lane: Lane) -> int:
    return len(lane.before) + len(lane.kept) + _calls_of(lane)


def _halve(lane: Lane) -> None:
    """The oldest goes; the newest where the newest request does not show it and would not be known again by what then stays."""
    half = len(lane.kept) // 2
    stay = len(lane.kept) - half
    if lane.before:
        lane.before = lane.before[(len(lane.before) + 1) // 2 :]
    elif half and lane.behind >= stay:
        put(lane, lane.kept[:stay])
        lane.answers, lane.places = lane.answers[:stay], lane.places[:stay]
        lane.behind -= half
    elif half:
        _drop_oldest(lane, half)
    else:
        put(lane, [lane.kept[0][: len(lane.kept[0]) // 2]])
