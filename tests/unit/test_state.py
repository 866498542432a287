"""A session's record: it survives being stored, stays small, and anything unreadable is an empty one."""

from collections.abc import Sequence

import msgspec
import pytest

from proxy.models import Owed, Reason
from proxy.state import (
    MAX_ANSWERS,
    MAX_BYTES,
    MAX_CALLS,
    MAX_GIVEN,
    MAX_LANES,
    VERSION,
    Calls,
    Given,
    Kept,
    KeptCall,
    Lane,
    Node,
    Nudge,
    Record,
    Relapse,
    Stop,
    dump,
    load,
    name_at,
    name_index,
    put,
)

KEY = 7
BIG = 2**64 - 1


def kept(count: int = 1) -> tuple[KeptCall, ...]:
    return tuple([KeptCall(BIG, BIG - number, 0) for number in range(count)])


def nodes(count: int, calls: int = 1) -> list[Node]:
    """Messages that can be told apart, the oldest first."""
    return [Node(2**63 + number, kept(calls)) for number in range(count)]


def lane(used: float = 0.0, nodes: Sequence[Node] = (), **fields: object) -> Lane:
    """nodes: what it keeps of its history."""
    one: Lane = msgspec.structs.replace(Lane(0, 1, 2, used, answers=[node.answer for node in nodes]), **fields)
    put(one, [node.calls for node in nodes])
    return one


def answers(count: int) -> list[int]:
    return [node.answer for node in nodes(count)]


def nudge(tool: str = "t", at: int = 0) -> Nudge:
    return Nudge(3, -1, BIG, 0, Reason.CYCLE, tool, 3, [BIG] * 8, at)


def record(*lanes: Lane, given: int = 0, calls: int = 0) -> Record:
    return Record(
        VERSION, KEY, lanes=list(lanes), given=[Given(BIG - number, 1.0, (BIG,) * calls, (0,) * calls) for number in range(given)]
    )


def reloaded(before: Record) -> Record:
    data = dump(before)
    assert len(data) <= MAX_BYTES
    return load(data, KEY)


# ---- loading


def test_a_record_comes_back_as_it_was() -> None:
    """Every field, through bytes."""
    calls: list[Calls] = [(KeptCall(5, 6, 0, 3),)]
    full = Lane(
        *(1, BIG, 2, 1.5, 3, [4], calls, 1, [(18, 19)], [Node(7, (), True)], 1, [8], [9], [10], True, False),
        *([nudge()], Stop(Reason.REPEATED_CALL, "t", 5, 5, [11]), [12], 2, [13], True),
    )
    before = Record(VERSION, KEY, ["t"], [full], [Given(14, 2.5, (15,), (0,), True)], [Relapse(16, 17)], 2)
    expected = msgspec.msgpack.encode(before)
    assert msgspec.msgpack.encode(reloaded(before)) == expected


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"garbage",
        b"\xc1",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode([VERSION]),
        msgspec.msgpack.encode([VERSION, KEY, "names"]),
        msgspec.msgpack.encode([VERSION, KEY, ["\x00"], [[1, 2, 3, "when"]]]),
        b"\x93\x01\x07\xa1\xff",
        b"\x9f\x01\x07" + b"\x91" * 100_000,
        dump(Record(VERSION, KEY, ["t"]))[:-1],
    ],
)
def test_what_cannot_be_read_is_an_empty_record(data: bytes | None) -> None:
    """Nothing stored, garbage, a cut or hostile value: the session begins anew, nothing raises."""
    assert load(data, KEY) == Record(VERSION, KEY)


def test_a_record_of_another_release_or_secret_is_empty() -> None:
    """Its hashes mean nothing here."""
    data = dump(Record(VERSION, KEY, ["t"], stopped=2))
    assert load(data, KEY).stopped == 2
    assert load(data, KEY + 1) == Record(VERSION, KEY + 1)
    assert load(msgspec.msgpack.encode(Record(VERSION + 1, KEY, ["t"])), KEY) == Record(VERSION, KEY)


def test_a_record_with_more_than_we_know_is_read() -> None:
    """A later release of the same version may have added fields at the end."""
    later = [*msgspec.msgpack.decode(dump(Record(VERSION, KEY, stopped=2))), "new"]
    assert load(msgspec.msgpack.encode(later), KEY).stopped == 2


def test_empty_records_share_nothing() -> None:
    """What one session adds is not another's."""
    load(None, KEY).names.append("t")
    assert load(None, KEY).names == []


# ---- names


def test_names_are_kept_once() -> None:
    """By index; a table that is full or an index from nowhere gives a question mark."""
    book = Record(VERSION, KEY)
    assert [name_index(book, name) for name in ("a", "b", "a")] == [0, 1, 0]
    assert (name_at(book, 1), name_at(book, 2), name_at(book, -1)) == ("b", "?", "?")
    for number in range(100):
        name_index(book, f"n{number}")
    assert len(book.names) == 48
    assert name_index(book, "one too many") == -1
    assert name_index(book, "a") == 0


@pytest.mark.parametrize("name", ["x" * 1_000_000, "\U0001f600" * 1000, "é" * 81, "\ud800" * 200])
def test_a_huge_name_is_cut(name: str) -> None:
    """To 80 bytes, between two characters; what no file could hold is replaced."""
    book = Record(VERSION, KEY)
    assert name_index(book, name) == name_index(book, name) == 0
    assert 77 <= len(name_at(book, 0).encode()) <= 80
    assert reloaded(book).names == book.names


# ---- bounds


def test_a_lane_keeps_its_newest_calls() -> None:
    """The oldest messages go, and the offset says how many did."""
    long = reloaded(record(lane(nodes=nodes(2000), offset=5))).lanes[0]
    assert long.answers == answers(2000)[-MAX_CALLS:]
    assert long.kept == [kept()] * MAX_CALLS
    assert long.offset == 5 + 2000 - MAX_CALLS


def test_what_came_before_a_compaction_goes_first() -> None:
    """Then the messages of the history."""
    long = reloaded(record(lane(nodes=nodes(100), before=nodes(100)))).lanes[0]
    assert (long.answers, long.offset) == (answers(100), 0)
    assert [node.answer for node in long.before] == answers(100)[-28:]


def test_a_message_with_ten_thousand_calls_fits() -> None:
    """Its first calls are kept, and the place of those that follow it."""
    huge = reloaded(record(lane(nodes=[*nodes(3), Node(9, kept(10_000))]))).lanes[0]
    assert (huge.answers, [len(calls) for calls in huge.kept]) == ([9], [MAX_CALLS])
    assert huge.offset == 3
    assert [len(calls) for calls in reloaded(record(lane(nodes=[Node(9, kept(10_000)), *nodes(1)]))).lanes[0].kept] == [1]


def test_messages_without_calls_are_bounded_too() -> None:
    """Before a compaction and after it."""
    talk = reloaded(record(lane(nodes=nodes(2000, 0), before=nodes(2000, 0)))).lanes[0]
    assert len(talk.answers) == len(talk.kept) <= 4 * MAX_CALLS
    assert talk.answers[-1] == answers(2000)[-1]
    assert talk.offset == 2000 - len(talk.answers)
    assert len(talk.before) <= 4 * MAX_CALLS


def test_lists_of_a_lane_are_bounded() -> None:
    """The newest entries stay."""
    marks = list(range(100))
    tools = [f"t{number}" for number in range(20)]
    small = reloaded(record(lane(starts=marks, texts=marks, tail=marks, older=marks, pruned=marks, nudges=[nudge(tool) for tool in tools])))
    kept_lane = small.lanes[0]
    assert kept_lane.starts == kept_lane.tail == marks[-4:]
    assert kept_lane.texts == kept_lane.older == marks[-16:]
    assert kept_lane.pruned == marks[-8:]
    assert [said.tool for said in kept_lane.nudges] == tools[-8:]


def test_lists_of_a_session_are_bounded() -> None:
    """The newest answers and relapses stay."""
    many = record(given=200)
    many.relapses = [Relapse(number, 0) for number in range(20)]
    small = reloaded(many)
    assert [answer.same for answer in small.given] == [BIG - number for number in range(200 - MAX_GIVEN, 200)]
    assert [relapse.call for relapse in small.relapses] == list(range(12, 20))


def test_the_lanes_unused_longest_go_first() -> None:
    """At most eight stay."""
    small = reloaded(record(*(lane(used=float(number)) for number in (5, 3, 9, 1, 8, 2, 7, 4, 6, 0))))
    assert sorted(one.used for one in small.lanes) == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert len(small.lanes) == MAX_LANES


def test_the_main_lane_outlives_its_sub_agents() -> None:
    """It waits while they work: it is the one unused longest, and the one that must not be forgotten."""
    small = reloaded(record(lane(used=0.0, main=True), *(lane(used=float(number)) for number in range(1, 20))))
    assert [one.used for one in small.lanes if one.main] == [0.0]
    assert len(small.lanes) == MAX_LANES


def test_eight_full_lanes_are_shortened_rather_than_dropped() -> None:
    """Each keeps its nudge, its stop and its newest calls; offsets still say where those belong."""
    stop = Stop(Reason.REPEATED_CALL, "t", 5, 5, [1])
    small = reloaded(record(*(lane(used=float(n), nodes=nodes(200), nudges=[nudge()], stop=stop) for n in range(8)), given=64, calls=32))
    assert len(small.lanes) == 8
    for one in small.lanes:
        assert one.stop == stop
        assert one.nudges == [nudge()]
        assert len(one.answers) == len(one.kept) >= 16
        assert one.answers[-1] == answers(200)[-1]
        assert one.offset + len(one.answers) == 200


@pytest.mark.parametrize("shown", [0, 1, 7, 70, 120, 128])
def test_a_lane_is_shortened_to_what_its_newest_request_shows(shown: int) -> None:
    """That may be an older one, sent again: some of its messages stay, where it shows none the first ones, so that it is known again."""
    long = [lane(used=float(n), nodes=nodes(MAX_CALLS), behind=MAX_CALLS - shown, nudges=[nudge()]) for n in range(8)]
    small = reloaded(record(*long)).lanes
    assert len(small) == 8
    for one in small:
        assert 16 <= len(one.answers) == len(one.kept) < MAX_CALLS
        assert one.offset < shown or one.offset == 0
        assert one.offset + len(one.answers) - one.behind == shown
        assert one.answers == answers(MAX_CALLS)[one.offset :][: len(one.answers)]


def test_a_lane_of_one_huge_message_is_shortened() -> None:
    """Beside others as full as itself."""
    small = reloaded(record(*(lane(nodes=[Node(9, kept(1000))], used=float(number)) for number in range(8))))
    assert [len(one.kept) for one in small.lanes] == [1] * 8


def test_lanes_with_much_before_their_compactions_are_shortened() -> None:
    """What history shows again is not worth more than what it does not: the oldest goes."""
    small = reloaded(record(*(lane(before=nodes(128), nodes=nodes(1), used=float(number)) for number in range(8))))
    assert [len(one.kept) for one in small.lanes] == [1] * 8
    assert all(one.before[-1].answer == answers(128)[-1] for one in small.lanes)


def test_what_still_does_not_fit_loses_whole_lanes() -> None:
    """Eight lanes with all they may hold: the newest and the main one stay."""
    marks = [BIG] * 16
    rest = {"nudges": [nudge("x" * 80)] * 8, "texts": marks, "older": marks, "pruned": marks}
    full = [lane(used=float(number), main=number == 0, nodes=nodes(16), **rest) for number in range(8)]
    crowded = record(*full, given=8, calls=32)
    crowded.names = [f"{number:080}" for number in range(48)]
    small = reloaded(crowded)
    assert {0.0, 7.0} <= {one.used for one in small.lanes}
    assert 2 <= len(small.lanes) < 8
    assert small.names == crowded.names


def test_of_lanes_that_are_over_those_that_were_nudged_stay() -> None:
    """Their nudges stand in later requests too; what history tells of the others is all that there was."""
    talk = lane(used=9.0, open=False, nudges=[nudge()])
    small = reloaded(record(talk, lane(used=8.0, open=False), *(lane(used=float(number)) for number in range(8))))
    assert sorted(one.used for one in small.lanes) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0]


def test_answers_go_before_the_lane_used_last() -> None:
    """And before the main one: what they were nudged for and why they stand stopped is what a record is for."""
    stop = Stop(Reason.REPEATED_CALL, "t", 5, 5, [1])
    owed = [Owed(f"call_{number}") for number in range(900)]
    lanes = [lane(used=float(number), main=number == 0, nudges=[nudge()], stop=stop) for number in range(3)]
    crowded = record(*lanes, given=3)
    crowded.answers = [Kept(number, 0, 0, 0, 0, [], [], [], owed=owed) for number in range(5)]
    small = reloaded(crowded)
    assert [(one.used, one.stop) for one in small.lanes] == [(0.0, stop), (2.0, stop)]
    assert [kept.place for kept in small.answers] == [4]
    assert not small.given


def test_answers_that_the_upstream_keeps_are_the_newest() -> None:
    """A bounded number, fewer where they are large."""
    many = [Kept(number, 0, 0, 0, 0, [], [], []) for number in range(MAX_ANSWERS + 6)]
    small = reloaded(Record(VERSION, KEY, answers=many))
    assert [kept.place for kept in small.answers] == list(range(6, MAX_ANSWERS + 6))

    large = [Kept(number, 0, 0, 0, 0, [BIG] * 100, [0] * 100, [BIG] * 100) for number in range(MAX_ANSWERS)]
    small = reloaded(Record(VERSION, KEY, answers=large))
    assert small.answers
    assert small.answers[-1].place == MAX_ANSWERS - 1


def test_tool_names_of_nudges_and_stops_are_cut() -> None:
    """A megabyte of a name cannot push everything else out."""
    huge = "x" * 1_000_000
    small = reloaded(record(lane(nodes=nodes(3), nudges=[nudge(huge)], stop=Stop(Reason.CYCLE, huge, 5, 5, [1]))))
    assert small.lanes[0].nudges[0].tool == "x" * 80
    assert small.lanes[0].stop is not None
    assert small.lanes[0].stop.tool == "x" * 80
    assert len(small.lanes[0].kept) == 3


def test_a_record_that_nothing_makes_small_is_emptied() -> None:
    """Never a loop without end, never more than the bound: what was stopped before is what remains."""
    absurd = record(lane(nudges=[msgspec.structs.replace(nudge(), calls=[BIG] * 5000)]), given=3, calls=32)
    absurd.relapses = [Relapse(1, 2)]
    assert reloaded(absurd) == Record(VERSION, KEY, relapses=[Relapse(1, 2)])
