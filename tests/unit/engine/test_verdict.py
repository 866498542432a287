"""Decisions on answers: what is stopped in place of a call, what is left out of a message, and how long a stop lasts."""

import msgspec
import pytest

from proxy.engine import Serve, Verdict, judge, notice_of
from proxy.events import FindingSeen, NudgeEnded
from proxy.models import Action, Answer, Choice, Notice, Reason, ToolCall
from proxy.policy import Counting, Ladder, OnStop, Policy, Scope, ToolRule
from tests.driver import CONCLUSION, Agent, House
from tests.trails import trail
from tests.transcripts import Call, Together, Turn, called, said, together, user

A = called("read_file", {"path": "a"}, "alpha")
B = called("bash", {"c": "ls"}, "beta")
LOCAL = "[lastcall stop] Lastcall stopped this run: read_file was asked for 5 times in the same way without anything new."


def edit(number: int) -> Call:
    return called("edit", {"n": number}, f"edited {number}")


def stopped(policy: Policy | None = None) -> Agent:
    """A client whose fifth call was just stopped."""
    loop = Agent(House(policy), user("go"))
    assert loop.play([A] * 5)[-1] == "stop"
    return loop


@pytest.mark.parametrize("on_stop", list(OnStop))
def test_the_offending_call_never_reaches_the_client(on_stop: OnStop) -> None:
    """It gets a last answer by the model, a local message, or an error."""
    loop = Agent(House(Policy(on_stop=on_stop)), user("go"))
    x = [loop.step(A) for _ in range(5)][-1]
    assert (x.decision, x.plan.reason, x.plan.tool, x.plan.count, x.plan.limit) == ("stop", Reason.REPEATED_CALL, "read_file", 5, 5)
    assert x.seen == (FindingSeen(Reason.REPEATED_CALL, Action.STOP),)
    assert len(x.edits) == (2 if on_stop is OnStop.WRAP_UP else 1)
    match on_stop:
        case OnStop.WRAP_UP:
            assert x.given == CONCLUSION
        case OnStop.MESSAGE:
            assert isinstance(x.given, str) and x.given.startswith(LOCAL)
        case OnStop.ERROR:
            assert x.given is None


@pytest.mark.parametrize("on_stop", list(OnStop))
def test_a_stop_stands_for_the_rest_of_its_run(on_stop: OnStop) -> None:
    """Without the upstream, however the client goes on but with new text from a person."""
    loop = stopped(Policy(on_stop=on_stop))
    for more in ([], [user("continue")], [user("[ERROR] You did not use a tool in your previous response!")]):
        turns: list[Turn] = [*loop.turns, *more]
        x = loop.house.ask(turns, edit(1))
        assert (x.decision, x.edits, x.plan.serve) == ("stop", [], Serve.LOCAL)
        assert x.plan.repeat == ("read_file 4/5" if on_stop is OnStop.ERROR else None)
        assert (x.plan.tool, x.plan.count, x.plan.limit, x.seen) == ("read_file", 5, 5, ())


@pytest.mark.parametrize("on_stop", list(OnStop))
@pytest.mark.parametrize("keeps", [True, False])
def test_new_text_from_a_person_ends_a_stop(on_stop: OnStop, keeps: bool) -> None:
    """Whether or not the client kept the answer it got."""
    loop = stopped(Policy(on_stop=on_stop))
    if not keeps and on_stop is not OnStop.ERROR:
        loop.turns.pop()
    loop.turns.append(user("Look at b instead."))
    assert loop.play([B, B, "done"]) == ["ok", "ok", "ok"]


def test_a_stopped_call_has_less_patience_in_a_later_run() -> None:
    """With the same result it stops at its second repeat, and is not nudged before."""
    loop = stopped()
    loop.turns.append(user("Look again."))
    assert loop.play([A, A, A]) == ["ok", "ok", "stop"]
    assert loop.house.record.relapses[0].call == loop.house.prints.call("read_file", '{"path":"a"}')
    assert len(loop.house.record.relapses) == 1


def test_lines_that_are_at_work_while_another_is_stopped_keep_their_patience() -> None:
    """A branch, and a sub-agent whose history is summarised then; the runs that they begin afterwards have less."""
    house = House()
    one, two, other = (Agent(house, user(f"task {lane}"), lane=lane) for lane in (1, 2, 3))
    for agent in (two, other):
        assert agent.play([A, B]) == ["ok", "ok"]
    assert one.play([A] * 5) == ["ok", "ok", "ok", "nudge", "stop"]
    other.turns = [user("What was done so far: the file was read.")]
    for agent in (two, other):
        assert agent.play([A] * 5)[-3:] == ["ok", "nudge", "stop"]
    for agent in (two, Agent(house, user("task 4"), lane=4)):
        agent.turns.append(user("Look again."))
        assert agent.play([A, A, A]) == ["ok", "ok", "stop"]
    assert [relapse.number for relapse in house.record.relapses] == [1]


def test_a_stopped_call_with_a_new_result_has_all_its_patience_again() -> None:
    """The world has changed."""
    loop = stopped()
    loop.turns.append(user("Look again."))
    other = called("read_file", {"path": "a"}, "omega")
    assert loop.play([other] * 5) == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_repeated_call_is_left_out_of_a_message_and_the_others_go_through() -> None:
    """The first time in a run."""
    loop = Agent(House(), user("go"))
    loop.play([B, A, A, A, A])
    x = loop.step(together(B, A, text="both"))
    assert (x.decision, x.given, len(x.edits)) == ("prune", together(B), 1)
    assert x.seen == (FindingSeen(Reason.REPEATED_CALL, Action.STOP),)
    assert (x.verdict.stop, x.plan.action) == (None, Action.ALLOW)


def test_a_loops_second_pruning_in_a_run_stops_the_run() -> None:
    """The model was not to be talked out of it."""
    loop = Agent(House(), user("go"))
    loop.play([B, A, A, A, A])
    assert [loop.step(together(B, A)).decision for _ in range(2)] == ["prune", "stop"]


def test_a_loops_pruning_is_forgotten_with_its_run() -> None:
    """In the next run it is the first again."""
    loop = Agent(House(), user("go"))
    loop.play([B, A, A, A, A])
    loop.step(together(B, A))
    loop.step("done")
    loop.turns.append(user("Look again."))
    loop.play([B, A, A, A, A])
    assert loop.step(together(B, A)).decision == "prune"


def test_the_repeated_call_is_left_out_beside_a_new_one() -> None:
    """A result not yet seen is no news, in whatever order the calls stand; once it is there, it speaks for the whole message."""
    for message in (together(A, edit(1)), together(edit(1), A)):
        loop = Agent(House(), user("go"))
        loop.play([A, A, A, A])
        assert [loop.step(reply).decision for reply in (message, A)] == ["prune", "ok"]


def test_a_message_of_nothing_but_repeated_calls_is_stopped() -> None:
    """Nothing would be left of it."""
    loop = Agent(House(), user("go"))
    assert loop.play([together(A, B)] * 5) == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_runaway_message_is_cut_at_its_sixteenth_call() -> None:
    """Everything from there on goes; a second one stops the run."""
    loop = Agent(House(), user("go"))
    x = loop.step(together(B, *[A] * 20, B))
    assert x.decision == "prune"
    assert isinstance(x.given, Together) and [call.name for call in x.given.calls] == ["bash", *["read_file"] * 15]
    assert loop.step(together(*[A] * 43)).decision == "stop"


def test_five_equal_calls_in_one_message_are_nudged_after_it() -> None:
    """And never stopped for it."""
    loop = Agent(House(), user("go"))
    assert loop.play([together(*[A] * 5), "done"]) == ["ok", "nudge"]


def test_every_alternative_of_an_answer_is_judged() -> None:
    """One that would lose all its calls ends the run."""
    house = House()
    x = house.begin([user("go"), B, A, A, A, A])
    a, b = ToolCall("1", "read_file", '{"path":"a"}'), ToolCall("2", "bash", '{"c":"ls"}')
    kept = judge(x, Answer((Choice("", (b,)), Choice("", (b, a)))))
    assert (kept.drop, kept.stop) == (frozenset({(1, 1)}), None)
    gone = judge(x, Answer((Choice("", (b,)), Choice("", (a,)))))
    assert gone.drop == {(1, 0)}
    assert gone.stop is not None and (gone.stop.tool, gone.stop.count, gone.stop.limit) == ("read_file", 5, 5)
    assert judge(x, Answer((Choice("text"),))) == Verdict()


# ---- sub-agents


def test_three_stopped_sub_agents_stop_the_main_lane() -> None:
    """Each was sent away; the one that sends them must end too, until a person speaks."""
    house = House()
    main = Agent(house, user("go"))
    main.play([edit(0)])
    for lane in (1, 2, 3):
        assert main.step(edit(lane)).decision == "ok"
        assert Agent(house, user(f"sub {lane}"), lane=lane).play([A] * 5)[-1] == "stop"
    x = main.step(edit(9))
    assert (x.decision, x.plan.tool, x.plan.count, x.plan.limit) == ("stop", "sub-agents", 3, 3)
    assert x.plan.cause == "sub-agents of this session were stopped 3 times"
    again = house.ask(main.turns, edit(10))
    assert (again.decision, again.plan.cause, again.edits) == ("stop", x.plan.cause, [])
    main.turns.append(user("Do it yourself."))
    assert main.step(edit(11)).decision == "ok"


def test_sub_agents_without_a_lane_of_their_own_are_told_by_their_system_text() -> None:
    """A branch of the main line of work is none."""
    house = House()
    main = Agent(house, user("go"))
    main.play([edit(0)])
    for number in range(3):
        assert Agent(house, user(f"branch {number}")).play([A] * 5)[-1] == "stop"
    assert main.step(edit(1)).decision == "ok"
    for number in range(3):
        other = Agent(house, user(f"sub {number}"), system="You are a sub-agent.")
        other.play([called("bash", {"n": number}, "same")] * 5)
    assert main.step(edit(2)).decision == "stop"


def test_a_sub_agent_is_not_stopped_for_the_others() -> None:
    """Only the main lane is."""
    house = House()
    Agent(house, user("go")).play([edit(0)])
    for lane in (1, 2, 3):
        Agent(house, user(f"sub {lane}"), lane=lane).play([called("bash", {"n": lane}, "same")] * 5)
    assert Agent(house, user("sub 4"), lane=4).play([edit(1), "done"]) == ["ok", "ok"]


# ---- what is told


def test_a_stop_is_told_field_by_field() -> None:
    """The `lastcall` object."""
    loop = Agent(House(), user("go"))
    loop.play([B, A, A, A, A])
    x = loop.step(A)
    assert notice_of(x.plan, x.place, None, "s1") == Notice(
        action=Action.STOP,
        reason=Reason.REPEATED_CALL,
        detector="repeated_call",
        message="Stopped by Lastcall: read_file was asked for 5 times in the same way without anything new. Send a new message to go on.",
        tool="read_file",
        count=5,
        limit=5,
        scope="run",
        session="s1",
        degraded=True,
        trail=({"tool": "bash", "count": 1, "outcome": "same result"}, {"tool": "read_file", "count": 4, "outcome": "same result"}),
    )


def test_calls_left_out_are_told_as_such() -> None:
    """Their scope is the call; the run goes on."""
    loop = Agent(House(), user("go"))
    loop.play([B, A, A, A, A])
    x = loop.step(together(B, A))
    notice = notice_of(x.plan, x.place, x.verdict.finding, "s1")
    assert (notice.action, notice.scope, notice.degraded) == (Action.STOP, "call", None)
    assert (notice.tool, notice.count, notice.limit) == ("read_file", 5, 5)
    assert notice.message.startswith("Lastcall left calls out of this message: read_file")


def test_the_trail_that_is_told_ends_with_the_loop() -> None:
    """Sixteen calls, the newest last, with what became of each."""
    x = House().begin([user("go")])
    many = " ".join(f"{letter}1" for letter in "BCDEFGHIJKLMNOPQRSTUV")
    place = msgspec.structs.replace(x.place, trail=trail(f"A1 {many} W X1! Y1 Y2 A1 A1"))
    shown = notice_of(x.plan, place, None, "s1").trail
    assert len(shown) == 16
    assert shown[-4:] == (
        {"tool": "W", "count": 1, "outcome": "no result"},
        {"tool": "X", "count": 1, "outcome": "error"},
        {"tool": "Y", "count": 2, "outcome": "results differ"},
        {"tool": "A", "count": 3, "outcome": "same result"},
    )


def test_a_plan_without_a_reason_is_told_as_the_plain_loop() -> None:
    """Nothing is ever told without a reason."""
    x = House().begin([user("go")])
    assert notice_of(x.plan, x.place, None, "s").reason is Reason.REPEATED_CALL


# ---- how a nudged run ends


def test_a_nudged_run_recovers_by_an_answer_of_its_own() -> None:
    """Told once."""
    loop = Agent(House(), user("go"))
    loop.play([A, A, A, A])
    ended = loop.step("Here it is.").ended
    assert ended == NudgeEnded("recovered")
    loop.turns.append(user("continue"))
    assert loop.step("Nothing more.").ended is None


def test_a_nudged_run_that_is_stopped_did_not_recover() -> None:
    """Told once, however often the client comes back."""
    loop = Agent(House(), user("go"))
    played = [loop.step(A) for _ in range(5)]
    assert [x.ended for x in played] == [None, None, None, None, NudgeEnded("stopped")]
    assert loop.house.ask(loop.turns, A).ended is None


def test_a_stop_without_a_nudge_ends_no_nudged_run() -> None:
    """There was none."""
    loop = Agent(House(Policy(ladders={Reason.REPEATED_CALL: Ladder(None, 5)})), user("go"))
    assert [loop.step(A).ended for _ in range(5)][-1] is None


# ---- the whole session


def test_the_plain_rule_counts_over_the_whole_session() -> None:
    """New text from a person starts nothing afresh, but is heard: the loop of before is not stopped again until it goes on."""
    policy = Policy(counting=Counting.CUMULATIVE, scope=Scope.SESSION, on_stop=OnStop.ERROR)
    loop = Agent(House(policy), user("go"))
    assert loop.play([A] * 5) == ["ok", "ok", "ok", "nudge", "stop"]
    loop.turns.append(user("Look at b instead."))
    assert loop.play([B, B, A]) == ["ok", "ok", "stop"]


def test_a_tool_that_is_never_stopped_is_not_left_out_of_a_message_either() -> None:
    """A missing rung is missing everywhere."""
    loop = Agent(House(Policy(tools={"read_file": ToolRule(sets_stop=True)})), user("go"))
    assert "stop" not in loop.play([B, *[A] * 6])
    assert loop.step(together(A, B)).decision == "ok"


def test_an_answer_kept_by_a_client_after_a_stop_is_no_call() -> None:
    """The history stays well-formed: the stopped call is in no request."""
    loop = stopped()
    assert loop.turns[-1] == said(CONCLUSION)
    assert [turn for turn in loop.turns if isinstance(turn, Call)] == [A] * 4
