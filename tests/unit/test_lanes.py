"""Which lane and run a history belongs to, and the trail it makes with what the session remembers."""

import msgspec
import pytest

from proxy.lanes import Place, place_mark
from proxy.models import Role
from proxy.state import LOST, MAX_CALLS, Relapse, load, name_index
from proxy.trail import Entry, Trail, read
from tests.driver import House
from tests.recorded import KEY, PRINTS, Recorded, shown
from tests.transcripts import NO_ID, Call, Turn, called, request, said, together, user

GO = user("go")
CLEARED = "[Old tool result content cleared]"


def a(result: str | None = "x", id: str | None = None) -> Call:
    return called("a", result=result, id=id)


def b(result: str | None = "x", id: str | None = None) -> Call:
    return called("b", result=result, id=id)


@pytest.fixture
def session() -> Recorded:
    return Recorded()


# ---- results as first seen


def test_a_trail_is_what_was_called_and_what_came_back(session: Recorded) -> None:
    """Message by message, parallel calls together, equal results alike."""
    place = session.live(GO, a("1"), together(b("2"), a("1")), said("thinking"), a(None))
    assert shown(place) == ["a1", "b2 a1", "", "a?"]


def test_a_result_stays_what_it_was_when_the_client_cuts_it(session: Recorded) -> None:
    """The stub left in its place never replaces it."""
    session.ask(GO, a("1"))
    session.ask(GO, a("1"), a("1"))
    assert shown(session.ask(GO, a(CLEARED), a(CLEARED), a("1"))) == ["a1", "a1", "a1"]
    assert shown(session.ask(GO, a("something else"), a(CLEARED), a(CLEARED), a("2"))) == ["a1", "a1", "a1", "a2"]


def test_a_stub_never_recorded_equals_nothing(session: Recorded) -> None:
    """Not another stub either, in whichever message and place; it stays the same at the next look."""
    turns: list[Turn] = [GO, a(CLEARED), together(a(CLEARED), a(CLEARED)), a("1")]
    for more in ([], [a("1")]):
        assert shown(session.ask(*turns, *more))[:3] == ["a1", "a2 a3", "a4"]


def test_a_result_that_has_just_arrived_is_no_stub(session: Recorded) -> None:
    """A tool may speak of what it removed: the same words again are the same result."""
    said_so = "<done>2 files removed</done>"
    session.ask(GO, a(said_so))
    assert shown(session.ask(GO, a(said_so), a(said_so))) == ["a1", "a1"]


def test_results_that_differ_only_in_what_is_volatile_are_alike(session: Recorded) -> None:
    """Compared by their normal text where their bytes differ, also after being stored."""
    turns: list[Turn] = [GO]
    for second in range(4):
        turns.append(a(f"ok at 12:00:0{second}"))
        place = session.ask(*turns)
        assert shown(place) == ["a1"] * (second + 1)
    assert shown(session.ask(*turns, a("failed at 12:00:09"))) == ["a1"] * 4 + ["a2"]


def test_the_two_identities_of_a_result_are_not_compared(session: Recorded) -> None:
    """Bytes settle two equal results; from the third on, or where they differ, the normal text does, for all of them."""
    kinds = []
    turns: list[Turn] = [GO]
    for _ in range(3):
        turns.append(a("ok"))
        kinds.append({entry.result % 2 for step in session.ask(*turns).trail.steps for entry in step.calls})
    assert kinds == [{0}, {0}, {1}]
    other = Recorded()
    assert {entry.result % 2 for step in other.ask(GO, a("1"), a("2")).trail.steps for entry in step.calls} == {1}


def test_a_result_whose_text_is_gone_is_compared_by_its_bytes(session: Recorded) -> None:
    """Equal bytes stay equal, whatever becomes of one of them."""
    session.ask(GO, a("1"))
    session.ask(GO, a("1"), a("1"))
    assert shown(session.ask(GO, a(CLEARED), a("1"), a("2"))) == ["a1", "a1", "a2"]
    assert shown(session.ask(GO, a(CLEARED), a(CLEARED), a(CLEARED), a("1"))) == ["a1", "a1", "a2", "a1"]


def test_a_result_known_by_bytes_alone_equals_no_normal_text(session: Recorded) -> None:
    """It was cut before anything differed: what comes later is compared among itself."""
    session.ask(GO, a("at 12:00:01"))
    session.ask(GO, a(CLEARED), a("at 12:00:02"))
    assert shown(session.ask(GO, a(CLEARED), a("at 12:00:02"), a("at 12:00:03"))) == ["a1", "a2", "a2"]


def test_what_the_client_marked_and_what_lastcall_wrote_is_flagged(session: Recorded) -> None:
    """A failed result, and one that stands for a call not carried out; both stay so."""
    asked = request(GO, a("no such file"), a("[lastcall stop] not executed"))
    items = tuple(msgspec.structs.replace(item, failed=True) if b"no such" in item.content else item for item in asked.items)
    for _ in range(2):
        place = session.take(msgspec.structs.replace(asked, items=items), lane=0, named=True, retry=False, whole=False, busy=())
        assert [(entry.failed, entry.void) for step in place.trail.steps for entry in step.calls] == [(True, False), (False, True)]


# ---- runs


def test_a_run_begins_with_a_persons_text_after_an_answer(session: Recorded) -> None:
    """What was called before belongs to another run."""
    assert shown(session.ask(GO, a(), said("done"), user("next"), b(), b())) == ["b1", "b1"]
    assert session.place.run == 2
    assert session.place.current


@pytest.mark.parametrize(
    "turns",
    [
        [a(), user("next"), a()],
        [a(), said("hm"), user("continue"), a()],
        [a(), said("hm"), user("Please continue from where you left off."), a()],
        [a(), said(None), user("[Your previous response had no visible output.]"), a()],
        [a(), said("hm"), user("<system-reminder>x</system-reminder>"), a()],
        [a(), said("hm"), user(""), a()],
    ],
    ids=["beside a result", "bare continue", "automatic", "no output", "reminder", "empty"],
)
def test_a_run_goes_on_without_new_text_from_a_person(session: Recorded, turns: list[Turn]) -> None:
    """What accompanies results, says nothing, or was written by the client."""
    place = session.ask(GO, *turns)
    assert (place.run, [call for call in shown(place) if call]) == (0, ["a1", "a1"])


def test_text_that_followed_an_answer_before_begins_no_run(session: Recorded) -> None:
    """A client that keeps saying the same is no person; the first prompt said again is new there."""
    again: list[Turn] = [GO, said("ok"), user("check"), a(), said("hm"), user("check"), a()]
    assert session.ask(*again).run == 1
    assert Recorded().ask(GO, a(), said("ok"), GO, a()).run == 2


def test_text_added_to_an_interrupted_request_begins_a_run(session: Recorded) -> None:
    """Once seen it stays the beginning, also when the history goes on."""
    session.ask(GO, a(), a())
    session.cut()
    for turns in ([user("do b instead")], [user("do b instead"), b()], [user("do b instead"), b(), b()]):
        place = session.ask(GO, a(), a(), *turns)
        assert (place.run, place.current, shown(place)) == (2, True, ["b1"] * (len(turns) - 1))


@pytest.mark.parametrize("text", ["note", "continue", "Please summarize our conversation so far.", "Output token limit hit. Resume."])
def test_other_text_after_an_interruption_begins_none(session: Recorded, text: str) -> None:
    """What stood there before, a bare continue, a client's own request for a summary."""
    session.ask(GO, a(), user("note"))
    session.cut()
    place = session.ask(GO, a(), user("note"), user(text))
    assert (place.run, shown(place)) == (0, ["a1"])


def test_text_added_without_an_interruption_begins_none(session: Recorded) -> None:
    """Reminders come with results all the time."""
    session.ask(GO, a())
    assert session.ask(GO, a(), user("other")).run == 0


def test_a_stop_ends_with_a_new_run(session: Recorded) -> None:
    """And so does what was pruned, and the count of stopped sub-agents."""
    session.ask(GO, a(), a())
    session.record.stopped = 2
    session.place.lane.pruned = [1]
    session.stop()
    assert session.ask(GO, a(), a()).lane.stop is not None
    lane = session.ask(GO, a(), a(), user("stop that, do b")).lane
    assert (lane.stop, lane.pruned, lane.cut, session.record.stopped) == (None, [], False, 0)


def test_an_older_request_sent_again_changes_no_run(session: Recorded) -> None:
    """It is read as what it was: not of the lane's current run, whose stop stands."""
    session.ask(GO, a(), said("ok"), user("next"), b())
    session.stop()
    place = session.ask(GO, a())
    assert (place.run, place.current, shown(place)) == (0, False, ["a1"])
    assert (place.lane.run, place.lane.stop is not None) == (2, True)


def test_after_a_persons_text_nothing_old_is_newest(session: Recorded) -> None:
    """Over a whole session the trail goes back to its start, and ends with nothing called yet."""
    assert shown(session.live(GO, a(), said("ok"), user("next"), whole=True)) == ["a1", "", ""]
    assert shown(session.live(GO, a(), said("ok"), user("next"), b(), whole=True)) == ["a1", "", "b1"]


# ---- lanes


def test_a_history_that_grows_is_one_lane(session: Recorded) -> None:
    """Turn by turn, across runs."""
    turns: list[Turn] = [GO]
    for more in (a(), b(), said("ok"), user("next"), a()):
        turns.append(more)
        session.ask(*turns)
        assert len(session.record.lanes) == 1
    assert session.place.lane.main


def test_a_request_sent_again_changes_nothing(session: Recorded) -> None:
    """But the time of its lane's last use."""
    turns: list[Turn] = [GO, a(), said("ok"), user("next"), a("1"), b("2"), b("3")]
    first = shown(session.ask(*turns))
    before = msgspec.structs.replace(session.place.lane, used=0.0)
    assert shown(session.ask(*turns, retry=True)) == first
    assert msgspec.structs.replace(session.place.lane, used=0.0) == before
    assert len(session.record.lanes) == 1


def test_branches_count_on_their_own(session: Recorded) -> None:
    """A fork inherits its prefix; what either does afterwards is its own, whichever speaks."""
    prefix: list[Turn] = [GO, a(), a()]
    session.live(*prefix, a())
    session.ask(*prefix, b("y"))
    assert shown(session.ask(*prefix, a(), a())) == ["a1"] * 4
    assert shown(session.ask(*prefix, b("y"), a())) == ["a1", "a1", "b2", "a1"]
    assert [lane.main for lane in session.record.lanes] == [True, False]


def test_a_fork_inherits_what_its_prefix_was_nudged_for(session: Recorded) -> None:
    """Not what came later, and no stop."""
    prefix: list[Turn] = [GO, a(), a()]
    session.ask(*prefix)
    early = session.nudge("a")
    session.ask(*prefix, b("1"), b("1"))
    session.nudge("b")
    session.stop()
    place = session.ask(*prefix, b("2", id="other"))
    assert (place.nudges(), place.lane.stop, place.lane.main) == ([early], None, False)


def test_a_fork_has_its_own_results(session: Recorded) -> None:
    """One message, carried out twice with different luck."""
    session.ask(GO, a(None))
    session.ask(GO, a("1"), b())
    session.ask(GO, a("2"), a("2", id="other"))
    assert shown(session.ask(GO, a("1"), b(), a("1")))[0::2] == ["a1", "a1"]


def test_a_fork_from_before_the_run_is_in_a_run_of_its_own(session: Recorded) -> None:
    """So that it can be stopped, and its stop stands."""
    session.ask(GO, a(), said("ok"), user("next"), b())
    place = session.ask(GO, a(), a(id="other"))
    assert (place.run, place.current, shown(place)) == (0, True, ["a1", "a1"])
    session.stop()
    assert session.ask(GO, a(), a(id="other"), a()).lane.stop is not None


def test_a_person_who_goes_back_and_says_something_else_is_not_stopped(session: Recorded) -> None:
    """The old line of history keeps its stop; the same text sent again is the old line."""
    head: list[Turn] = [GO, said("ok")]
    session.ask(*head, user("next"))
    session.ask(*head, user("next"), a(), a())
    session.stop()
    assert session.ask(*head, user("next")).lane.stop is not None
    assert session.ask(*head, user("continue")).lane.stop is not None
    assert session.ask(*head).lane.stop is not None
    assert len(session.record.lanes) == 1
    assert session.ask(*head, user("other")).lane.stop is None
    assert session.ask(*head, user("next"), a(), a()).lane.stop is not None


def test_a_lane_that_has_a_name_is_its_own(session: Recorded) -> None:
    """Equal histories under two names share nothing."""
    session.ask(GO, a(), lane=1)
    session.stop()
    assert session.ask(GO, a(), lane=2).lane.stop is None
    assert session.ask(GO, a(), a(), lane=1).lane.stop is not None
    assert [lane.name for lane in session.record.lanes] == [1, 2]


def test_another_prompt_is_another_lane(session: Recorded) -> None:
    """The first one is the main one."""
    session.ask(GO, a())
    place = session.ask(user("title, please"), system="You write titles.")
    assert (shown(place), place.lane.main, len(session.record.lanes)) == ([], False, 2)


def test_what_offers_no_tools_is_not_the_main_lane(session: Recorded) -> None:
    """A title or a probe for the quota is often asked for first."""
    session.ask(user("quota"), tools=(), system="")
    session.ask(user("title, please"), tools=(), system="You write titles.")
    assert session.ask(GO).lane.main
    assert [lane.main for lane in session.record.lanes] == [False, False, True]


def test_lanes_that_are_over_go_first(session: Recorded) -> None:
    """Many titles and probes do not push out sub-agents at work, nor one that was stopped."""
    session.ask(GO, a())
    session.ask(user("sub"), a(), lane=1)
    session.ask(user("sub"), a(), lane=2)
    session.stop()
    session.finish()
    for number in range(12):
        session.ask(user(f"title {number}"), tools=(), system="You write titles.")
        session.finish()
    assert session.ask(user("sub"), a(), a(), lane=2).lane.stop is not None
    assert shown(session.ask(user("sub"), a(), a(), lane=1)) == ["a1", "a1"]
    assert len([lane for lane in session.record.lanes if lane.name]) == 2


def test_one_prompt_asked_in_parallel_is_one_lane_until_the_answers_differ(session: Recorded) -> None:
    """Samplers."""
    session.ask(GO)
    session.ask(GO)
    assert len(session.record.lanes) == 1
    session.ask(GO, a(id="1"))
    assert shown(session.ask(GO, b(id="2"))) == ["b1"]
    assert len(session.record.lanes) == 2


def test_of_two_lanes_the_one_with_this_prompt_is_meant(session: Recorded) -> None:
    """Where both know the answers, since nothing in them is unique."""
    first: list[Turn] = [GO, a(id=NO_ID)]
    second: list[Turn] = [user("other"), a(id=NO_ID)]
    session.ask(*first)
    session.ask(user("other"))
    session.ask(*second)
    assert len(session.record.lanes) == 2
    assert session.ask(*second, b()).lane.seed == session.record.lanes[1].seed


def test_equal_answers_alone_are_no_evidence(session: Recorded) -> None:
    """A sub-agent without ids for its calls begins as the main lane did, for another prompt."""
    session.live(GO, a(id=NO_ID), b())
    assert shown(session.ask(user("sub"), a(id=NO_ID))) == ["a1"]
    assert shown(session.ask(user("sub"), a(id=NO_ID), a(id=NO_ID))) == ["a1", "a1"]
    assert len(session.record.lanes) == 2


def test_a_prompt_that_changes_in_place_is_the_same_lane(session: Recorded) -> None:
    """Some clients write reminders and clock times into the first text: all answers are known."""
    session.live(user("go, it is noon"), a(), a())
    session.stop()
    assert session.ask(user("go, it is one"), a(), a()).lane.stop is not None


# ---- answers that no history carries


def test_an_answer_to_a_client_that_keeps_none_counts_as_made(session: Recorded) -> None:
    """Given in full before the same history came again."""
    session.ask(GO, a())
    for _ in range(2):
        session.deliver(11)
    assert shown(session.ask(GO, a())) == ["a1", "a?", "a?"]
    assert shown(session.ask(GO, a(), a())) == ["a1", "a1"]


@pytest.mark.parametrize("why_not", ["unnamed", "retry", "cut", "later"])
def test_an_answer_counts_only_when_it_must_have_arrived(session: Recorded, why_not: str) -> None:
    """Not without a name for the session, not for a marked retry, not cut, not while it was still being given."""
    session.ask(GO, a())
    session.deliver(11, cut=why_not == "cut", ended=99.0 if why_not == "later" else None)
    place = session.ask(GO, a(), named=why_not != "unnamed", retry=why_not == "retry", whole=True)
    assert shown(place) == ["a1"]
    assert place.trail.made == {}


def test_over_a_whole_session_every_delivered_call_is_known(session: Recorded) -> None:
    """How often each was made, once an answer, and what came last; a cut answer is none."""
    session.ask(GO)
    name_index(session.record, "a")
    session.deliver(11, 11, 12)
    session.deliver(11)
    session.deliver(13, cut=True)
    trail = session.ask(user("other"), whole=True).trail
    assert (trail.made, trail.latest) == ({11: 2, 12: 1}, (Entry(11, "a"),))
    assert session.ask(user("other"), whole=True, retry=True).trail.latest == ()
    for trail in (session.ask(user("other")).trail, Recorded().ask(GO, whole=True).trail):
        assert (trail.steps, trail.made, trail.latest) == ((), {}, ())


# ---- nudges


def test_a_nudge_is_known_in_its_run_alone(session: Recorded) -> None:
    """With its calls."""
    session.ask(GO, a(), a())
    given = session.nudge("a")
    place = session.ask(GO, a(), a(), a())
    assert (place.nudges(), place.trail.nudged) == ([given], {given.calls[0]: 0})
    place = session.ask(GO, a(), a(), a(), said("ok"), user("next"), a())
    assert (place.nudges(), place.trail.nudged) == ([], {})


def test_a_nudge_without_its_place_is_lost(session: Recorded) -> None:
    """A user text that reads otherwise now; a clock in it does not matter, nor does a shorter request."""
    session.ask(user("it is 12:00:01"), said("x"), user("it is 12:00:02"))
    session.nudge("t")
    session.ask(user("it is 12:00:01"), said("x"), user("it is 12:00:03"))
    assert [nudge.message for nudge in session.place.lane.nudges] == [-1]
    session.ask(user("it is 12:00:01"), said("x"), user("it is late"))
    assert [nudge.message for lane in session.record.lanes for nudge in lane.nudges] == [LOST]


def test_a_nudge_after_the_end_of_a_shorter_request_is_not_lost(session: Recorded) -> None:
    """It is an older one, sent again."""
    session.ask(GO, a(), a())
    session.nudge("a")
    session.ask(GO, a())
    assert [nudge.message for nudge in session.place.lane.nudges] == [1]
    session.ask(GO, a(), a(None))
    assert [nudge.message for nudge in session.place.lane.nudges] == [LOST]


def test_a_nudge_of_an_older_request_outlives_a_full_record(session: Recorded) -> None:
    """Sub-agents fill it, and the lane is shortened: the older request, sent again, is of that lane still."""
    turns: list[Turn] = [GO, *(called("a", {"n": number}) for number in range(100))]
    session.ask(*turns)
    session.ask(*turns[:21])
    given = session.nudge("a")
    for lane in range(1, 8):
        session.ask(*turns, lane=lane)
    place = session.ask(*turns[:21])
    assert len(place.lane.answers) < 100
    assert (place.lane.main, place.nudges()) == (True, [given])


def test_where_nothing_stands_there_is_no_place() -> None:
    """A message without a result, beyond the end, no item."""
    asked = request(GO, a(None))
    told = read(asked, PRINTS)
    places = [(0, -1), (1, -1), (-1, -1), (-1, len(asked.items)), (LOST, -1)]
    assert [place_mark(asked, told, PRINTS, *place) for place in places] == [0] * len(places)
    assert place_mark(asked, told, PRINTS, -1, [item.role for item in asked.items].index(Role.USER)) != 0
    assert place_mark(asked, read(msgspec.structs.replace(asked, items=()), PRINTS), PRINTS, 0, -1) == 0


# ---- the rest of the session


def test_a_call_that_stopped_an_earlier_run_is_compared_with_its_result_there(session: Recorded) -> None:
    """By normal text: the clock in it has moved on. Nothing is said of the run that it stopped itself."""
    turns: list[Turn] = [GO, *(a(f"ok at 12:00:0{second}") for second in range(3))]
    entry = session.ask(*turns).trail.steps[-1].calls[0]
    session.record.relapses = [Relapse(entry.call, entry.result)]
    session.stop()
    session.record.lanes[0].stop.calls = [entry.call]  # type: ignore[union-attr]
    session.save()
    assert session.ask(*turns).trail.relapsed == {}
    session.ask(*turns, user("once more"))
    place = session.ask(*turns, user("once more"), a("ok at 13:00:00"))
    assert place.trail.relapsed == {entry.call: place.trail.steps[-1].calls[0].result}
    place = session.ask(*turns, user("once more"), a("ok at 13:00:00"), a("better"))
    assert place.trail.relapsed[entry.call] == place.trail.steps[0].calls[0].result != place.trail.steps[1].calls[0].result


def test_nowhere_is_a_place_without_a_past() -> None:
    """Until a record has been loaded."""
    assert (Place.nowhere().trail, Place.nowhere().current, Place.nowhere().nudges()) == (Trail(), False, [])


def test_a_session_of_two_thousand_calls_stays_small_and_whole(session: Recorded) -> None:
    """History says which calls exist; the record keeps the newest, and goes on where they stand."""
    turns: list[Turn] = [GO, *(called("a", {"n": number}) for number in range(2000))]
    assert len(session.ask(*turns).trail.steps) == 2000
    assert len(session.ask(*turns, a()).trail.steps) == 2001
    kept = load(session.data, KEY)
    assert [len(lane.answers) for lane in kept.lanes] == [MAX_CALLS]
    assert kept.lanes[0].offset == 2001 - MAX_CALLS
    assert shown(session.ask(GO, a("other"))) == ["a1"]
    session.ask(GO, *(called("b", {"n": number}) for number in range(2001)))
    assert [lane.offset for lane in session.record.lanes] == [2001 - MAX_CALLS, 0, 2001 - MAX_CALLS]


def test_ten_thousand_parallel_calls_are_one_message(session: Recorded) -> None:
    """All are in the trail, again and again, though few are remembered."""
    turns: list[Turn] = [GO, together(*(called("a", {"n": number}) for number in range(10_000)))]
    for _ in range(2):
        assert [len(step.calls) for step in session.ask(*turns).trail.steps] == [10_000]


def test_many_lanes_and_huge_names_fit_the_record(session: Recorded) -> None:
    """Twelve sub-agents with tools of absurd names; the main lane is still there."""
    session.ask(GO, a())
    for lane in range(1, 13):
        names = [f"{lane}{number}" + "\U0001f600" * 1000 for number in range(20)]
        session.ask(GO, *(called(name) for name in names), lane=lane)
        session.nudge(names[0])
    assert shown(session.ask(GO, a(), a())) == ["a1", "a1"]
    assert [lane.main for lane in load(session.data, KEY).lanes].count(True) == 1


@pytest.mark.parametrize(("pause", "rested"), [(890.0, 0), (910.0, 1)])
def test_a_lane_taken_up_after_a_while_has_rested(pause: float, rested: int) -> None:
    """Then it had as many messages as its history has."""
    house = House()
    house.ask([user("status?")], "Fine.")
    house.now += pause
    x = house.ask([user("status?"), said("Fine."), user("status?")], "Fine.")
    assert x.place.lane.rested == rested
