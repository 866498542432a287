"""Which lanes stand above which: a sub-agent is stopped with the agent that sent it, and goes on with it."""

import pytest

from proxy.engine import Serve, notice_of
from proxy.lineage import sender_of, stopped_above, stopped_below
from proxy.models import Reason
from proxy.pardon import NOTHING, Pardon
from proxy.policy import Mode, OnStop, Policy
from proxy.state import MAIN, NOBODY, Lane, Record, Stop
from tests.driver import Agent, House
from tests.transcripts import Call, called, said, user

A = called("read_file", {"path": "a"}, "alpha")
LOOP = Stop(Reason.REPEATED_CALL, "read_file", 5, 5, [7])


def edit(number: int) -> Call:
    return called("edit", {"n": number}, f"edited {number}")


def family(policy: Policy | None = None) -> tuple[House, Agent, Agent]:
    """A session's own line at work, and a sub-agent that it sent, which has made a step."""
    house = House(policy)
    main, sub = Agent(house, user("go")), Agent(house, user("look into it"), lane=5, sent_by=MAIN)
    assert [main.step(edit(0)).decision, sub.step(edit(1)).decision] == ["ok", "ok"]
    return house, main, sub


# ---- the stop that comes from above


@pytest.mark.parametrize("on_stop", list(OnStop))
def test_a_sub_agent_is_stopped_with_the_one_that_sent_it(on_stop: OnStop) -> None:
    """Without the upstream, told whose stop it is and why; new text from a person lets both go on."""
    house, main, sub = family(Policy(on_stop=on_stop))
    assert main.play([A] * 5)[-1] == "stop"
    x = sub.step(edit(2))

    assert (x.decision, x.plan.serve, x.edits, x.plan.scope) == ("stop", Serve.LOCAL, [], "parent")
    assert (x.plan.reason, x.plan.tool, x.plan.count, x.plan.limit) == (Reason.REPEATED_CALL, "read_file", 5, 5)
    notice = notice_of(x.plan, x.place, None, "s")
    assert (notice.scope, notice.tool, notice.detector) == ("parent", "read_file", None)
    assert notice.message == (
        "Stopped by Lastcall: the agent above this sub-agent was stopped (repeated_call). It can go on when the one above it does."
    )
    assert house.ask(sub.turns, edit(3), **sub.options).decision == "stop"
    main.turns.append(user("Do something else."))
    assert [main.step(edit(4)).decision, house.ask(sub.turns, edit(5), **sub.options).decision] == ["ok", "ok"]


def test_a_stop_from_above_is_none_of_the_sub_agents_own() -> None:
    """It does not count among the sub-agents stopped, leaves no call that gets less patience, and nothing is counted for it."""
    house, main, sub = family()
    main.play([A] * 5)
    sub.step(edit(2))
    main.turns.append(user("Do something else."))
    main.step(edit(3))
    lane = next(lane for lane in house.record.lanes if lane.name == 5)

    assert (house.record.stopped, lane.stop) == (0, None)
    assert sub.play([called("bash", {"c": "ls"}, "x")] * 9) == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_stop_of_its_own_is_told_before_the_one_above() -> None:
    """It is what the sub-agent can do something about."""
    _, main, sub = family()
    sub.play([called("bash", {"c": "ls"}, "x")] * 5)
    main.play([A] * 5)
    again = sub.step(edit(3))
    assert (again.decision, again.plan.tool, again.plan.scope) == ("stop", "bash", "run")


@pytest.mark.parametrize("sent_by", [NOBODY, 99])
def test_who_is_sent_by_nobody_stands_alone(sent_by: int) -> None:
    """A branch, or a lane that the client merely gives a name; one whose sender is not known is a sub-agent all the same."""
    house = House()
    main, other = Agent(house, user("go")), Agent(house, user("beside"), lane=5, sent_by=sent_by)
    main.step(edit(0))
    other.step(edit(1))
    main.play([A] * 5)
    assert other.step(edit(2)).decision == ("ok" if sent_by is NOBODY else "stop")


def test_a_sub_agents_stop_stops_those_that_it_sent_and_no_others() -> None:
    """Neither the line above nor a sibling."""
    house, main, sub = family()
    sibling = Agent(house, user("and that"), lane=6, sent_by=MAIN)
    nested = Agent(house, user("deeper"), lane=7, sent_by=5)
    deepest = Agent(house, user("deeper still"), lane=8, sent_by=7)
    for number, agent in enumerate((sibling, nested, deepest)):
        assert agent.step(edit(10 + number)).decision == "ok"
    assert sub.play([A] * 5)[-1] == "stop"

    said = [agent.step(edit(20 + number)).decision for number, agent in enumerate((main, sibling, nested, deepest))]
    assert said == ["ok", "ok", "stop", "stop"]


def test_the_next_person_at_the_sender_is_the_one_that_counts() -> None:
    """Whoever goes back before the loop, or begins another conversation in the session, leaves a stopped line behind."""
    for turns in ([user("go"), edit(0), said("so far"), user("other")], [user("something new")]):
        house = House()
        main = Agent(house, user("go"))
        main.step(edit(0))
        main.step("so far")
        main.turns.append(user("next"))
        assert main.play([A] * 5)[-1] == "stop"
        beside = Agent(house, *turns)
        assert beside.step(edit(7)).decision == "ok"
        assert Agent(house, user("sent"), lane=5, sent_by=MAIN).step(edit(8)).decision == "ok"


def test_a_title_is_no_line_that_sends_anybody() -> None:
    """Nor is what the client calls no turn of its agent: the line that was stopped stays the one above."""
    house, main, sub = family()
    main.play([A] * 5)
    house.ask([user("title, please")], "A title", tools=(), system="You write titles.")
    house.ask([user("memory")], "Noted", side=True)
    assert sub.step(edit(2)).decision == "stop"


def test_what_an_operator_forgave_above_holds_below_at_once() -> None:
    """Before the line above has asked again: a reset, or an allowance of the call that it was stopped for."""
    for forgiven in (Pardon(reset=3), None):
        house, main, sub = family()
        main.play([A] * 5)
        assert house.ask(sub.turns, edit(2), **sub.options).decision == "stop"
        calls = [call for lane in house.record.lanes if lane.stop is not None for call in lane.stop.calls]
        house.pardon = forgiven or NOTHING.with_allowed(calls, 1)
        assert house.ask(sub.turns, edit(2), **sub.options).decision == "ok"


def test_a_summary_asked_for_in_a_sub_agents_name_makes_nobody_one() -> None:
    """A lane keeps the sender that its turns named, also where a later request does not name it."""
    house, main, sub = family()
    house.ask(main.turns, "A summary", side=True, sent_by=5)
    sub.options.pop("sent_by")
    sub.step(edit(2))
    main.play([A] * 5)

    assert [lane.sent_by for lane in house.record.lanes if lane.main] == [NOBODY]
    assert sub.step(edit(3)).decision == "stop"


def test_a_sub_agent_is_never_the_main_line() -> None:
    """Not even where it is heard of first: the record may have been lost."""
    house = House()
    Agent(house, user("sub"), lane=5, sent_by=MAIN).step(edit(1))
    Agent(house, user("go")).step(edit(0))
    assert [(lane.name, lane.main) for lane in house.record.lanes] == [(5, False), (0, True)]


def test_nothing_is_stopped_from_above_where_all_is_only_watched() -> None:
    """The line above goes on too."""
    _, main, sub = family(Policy(mode=Mode.OBSERVE))
    main.play([A] * 7)
    assert sub.step(edit(2)).decision == "ok"


def test_three_stopped_sub_agents_stop_the_main_lane_and_with_it_the_others() -> None:
    """As soon as it has been told."""
    house, main, sub = family()
    for lane in (6, 7, 8):
        Agent(house, user(f"sub {lane}"), lane=lane, sent_by=MAIN).play([called("bash", {"n": lane}, "same")] * 5)
    assert sub.step(edit(2)).decision == "ok"
    assert main.step(edit(3)).decision == "stop"
    assert sub.step(edit(4)).decision == "stop"


# ---- whom the lanes of a record lead to


def lane(name: int, sent_by: int = NOBODY, used: float = 0.0, *, stop: Stop | None = None, works: bool = True, main: bool = False) -> Lane:
    return Lane(name, 1, name, used, stop=stop, works=works, main=main, sent_by=sent_by)


def names(record: Record) -> list[int | None]:
    """Of each lane, the name of the one that sent it."""
    return [None if (sender := sender_of(record, one)) is None else sender.name for one in record.lanes]


def test_a_sender_is_the_lane_of_its_name_that_was_used_last() -> None:
    """One that is not remembered is above all one of the session's; titles send nobody; nobody sends the session's own."""
    record = Record(1, 7, lanes=[lane(0, main=True), lane(5, MAIN), lane(6, 5), lane(7, 99), lane(0, used=3.0, works=False)])
    assert names(record) == [None, 0, 5, 0, None]
    record.lanes.append(lane(5, MAIN, used=2.0, stop=LOOP))
    assert sender_of(record, record.lanes[2]) is record.lanes[-1]
    assert names(Record(1, 7, lanes=[lane(5, MAIN), lane(6, 5)])) == [None, 5]


def test_what_clients_say_may_lead_in_a_circle() -> None:
    """Each lane is looked at once; whoever in it stands stopped stops the others."""
    record = Record(1, 7, lanes=[lane(5, 7), lane(6, 5), lane(7, 6), lane(8, 8)])
    assert names(record) == [7, 5, 6, 8]
    assert [stopped_above(record, one, NOTHING) for one in record.lanes] == [None] * 4
    record.lanes[1].stop = LOOP
    assert [stopped_above(record, one, NOTHING) for one in record.lanes] == [LOOP, None, LOOP, None]
    assert [stopped_below(record, one, NOTHING) for one in record.lanes] == [LOOP, None, LOOP, None]


def test_the_stop_told_above_is_the_last_below() -> None:
    """The main line hears of every sub-agent, also of one that is told by its system text alone; others of those that they sent."""
    old, new = LOOP, Stop(Reason.CYCLE, "bash", 5, 5, [8])
    main, sub, nested, text = lane(0, main=True), lane(5, MAIN), lane(6, 5, 2.0, stop=new), Lane(0, 9, 9, 1.0, stop=old, works=True)
    record = Record(1, 7, lanes=[main, sub, nested, text])

    assert [stopped_below(record, one, NOTHING) for one in record.lanes] == [new, new, None, None]
    record.lanes.reverse()
    assert stopped_below(record, main, NOTHING) == new
    nested.stop = None
    assert [stopped_below(record, one, NOTHING) for one in (main, sub)] == [old, None]
    assert stopped_below(record, main, Pardon(reset=1)) is None
    assert stopped_below(Record(1, 7, lanes=[main]), main, NOTHING) is None
