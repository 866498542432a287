"""Decisions on requests: what is nudged, once, in the same words, and what is let through."""

from typing import Any

import pytest

from proxy.budgets import Spending
from proxy.effects import Effect
from proxy.engine import Serve, runaway
from proxy.events import FindingSeen
from proxy.models import Action, Edits, Reason
from proxy.policy import Counting, Ladder, Mode, NudgeRule, OnStop, Policy, ToolRule, WrapUpRule
from proxy.trail import read
from tests.driver import CONCLUSION, Agent, House, steps, tokens
from tests.transcripts import Call, Turn, called, request, said, together, user

A = called("read_file", {"path": "a"}, "alpha")
B = called("bash", {"c": "pytest"}, "1 failed")


def edit(number: int) -> Call:
    return called("edit", {"n": number}, f"edited {number}")


def agent(policy: Policy | None = None, **options: Any) -> Agent:
    return Agent(House(policy), user("go"), **options)


def test_the_third_repeat_is_nudged_and_the_fifth_stopped() -> None:
    """The nudge comes with the request after the third result, the stop in place of the fifth call: six upstream calls in all."""
    loop = agent()
    played = [loop.step(A) for _ in range(5)]
    assert [x.decision for x in played] == ["ok", "ok", "ok", "nudge", "stop"]
    assert sum(len(x.edits) for x in played) == 6
    assert played[4].given == CONCLUSION


def test_the_nudge_stands_at_the_last_result_and_stays_word_for_word() -> None:
    """In every later request at the same place, and never twice in one."""
    loop = agent()
    played = [loop.step(reply) for reply in (A, A, A, edit(1), edit(2), A, "done")]
    texts = [x.texts for x in played]
    assert texts[:3] == [[], [], []]
    assert len(texts[3]) == 1
    assert texts[3][0][0] == 7  # system, user, three times call and result
    assert all(later == texts[3] for later in texts[3:])
    assert [x.body.count("[lastcall]") for x in played] == [0, 0, 0, 1, 1, 1, 1]
    assert [x.decision for x in played[3:]] == ["nudge", "ok", "ok", "ok"]


def test_a_nudge_stays_through_the_next_run() -> None:
    """The model's context holds it, and the provider's prefix cache."""
    loop = agent()
    loop.play([A, A, A, "done"])
    loop.turns.append(user("And now b."))
    x = loop.step("done")
    assert (x.decision, len(x.texts)) == ("ok", 1)


def test_a_nudge_that_is_not_kept_is_sent_once() -> None:
    """`keep: false`."""
    loop = agent(Policy(nudge=NudgeRule(keep=False)))
    assert [len(loop.step(A).texts) for _ in range(3)] == [0, 0, 0]
    assert len(loop.step(edit(1)).texts) == 1
    assert loop.step(edit(2)).texts == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_nudge_whose_answer_failed_is_in_the_request_sent_again(keep: bool) -> None:
    """The model must see it, however it is kept."""
    loop = agent(Policy(nudge=NudgeRule(keep=keep)))
    loop.play([A, A, A])
    first, second = loop.house.ask(loop.turns, edit(1), full=False), loop.step(edit(1))
    assert first.texts == second.texts
    assert len(second.texts) == 1


def test_without_any_result_the_nudge_stands_at_the_last_text_of_the_user() -> None:
    """A client that keeps no history."""
    house = House()
    played = [house.ask([user("go")], A) for _ in range(5)]
    assert [x.decision for x in played] == ["ok", "ok", "ok", "nudge", "stop"]
    assert [item for item, _ in played[3].texts] == [1]
    assert house.ask([user("go")], A).decision == "stop"


def test_nothing_is_nudged_where_there_is_no_place_for_it() -> None:
    """No result and no text of a user: the loop goes to its stop."""
    house = House()
    assert [house.ask([], A).decision for _ in range(5)] == ["ok", "ok", "ok", "ok", "stop"]


def test_a_request_without_tools_is_not_nudged() -> None:
    """It cannot go on with the loop; the next one that can is."""
    loop = agent()
    loop.play([A, A, A])
    assert loop.house.ask(loop.turns, "a title", tools=()).decision == "ok"
    assert loop.step(A).decision == "nudge"


def test_a_model_that_calls_what_nobody_offers_it_is_nudged_and_stopped() -> None:
    """Its upstream has tools of its own."""
    loop = agent()
    assert [loop.step(A, tools=()).decision for _ in range(5)] == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_request_for_a_summary_keeps_old_nudges_and_gets_no_new_one() -> None:
    """It is no step of the loop, and does not end the run."""
    loop = agent()
    loop.play([A, A, A])
    ask = user("Please summarize the conversation so far.")
    x = loop.house.ask([*loop.turns, ask], "Summary.")
    assert (x.decision, x.texts) == ("ok", [])
    nudged = loop.step(A)
    x = loop.house.ask([*loop.turns, ask], "Summary.")
    assert (x.decision, x.texts, x.ended) == ("ok", nudged.texts, None)


def test_another_loop_of_the_run_goes_to_its_stop_without_a_nudge() -> None:
    """One nudge a run."""
    assert agent().play([A, A, A, edit(1), B, B, B, B, B]) == ["ok", "ok", "ok", "nudge", "ok", "ok", "ok", "ok", "stop"]


def test_another_loop_is_nudged_where_the_policy_allows_two() -> None:
    """`max_per_run: 2`; both nudges stay."""
    loop = agent(Policy(nudge=NudgeRule(max_per_run=2)))
    assert loop.play([A, A, A, edit(1), B, B, B, B]) == ["ok", "ok", "ok", "nudge", "ok", "ok", "ok", "nudge"]
    assert len(loop.step("done").texts) == 2


def test_a_place_holds_one_nudge() -> None:
    """A request sent again is no occasion for a second one."""
    loop = agent(Policy(nudge=NudgeRule(max_per_run=2)))
    loop.play([together(A, B)] * 3)
    first, second = loop.house.ask(loop.turns, A, full=False), loop.house.ask(loop.turns, edit(1))
    assert (first.decision, second.decision, first.texts) == ("nudge", "ok", second.texts)
    assert len(first.texts) == 1


def test_no_nudge_at_all_where_the_policy_allows_none() -> None:
    """`max_per_run: 0`."""
    assert agent(Policy(nudge=NudgeRule(max_per_run=0))).play([A] * 5) == ["ok", "ok", "ok", "ok", "stop"]


def test_a_new_run_may_be_nudged_again() -> None:
    """New text from a person begins one, and counts afresh."""
    loop = agent()
    loop.play([A, A, A, "done"])
    loop.turns.append(user("And now b."))
    assert loop.play([B, B, B, B, B]) == ["ok", "ok", "ok", "nudge", "stop"]


@pytest.mark.parametrize("text", ["continue", "Go on.", "<system-reminder>x</system-reminder>"])
def test_a_bare_go_on_is_no_new_run(text: str) -> None:
    """The count goes on."""
    loop = agent()
    loop.play([A, A, "let me see"])
    loop.turns.append(user(text))
    assert loop.play([A, A, A]) == ["ok", "nudge", "stop"]


def test_a_nudged_call_is_stopped_by_one_more_repeat_after_news_from_others() -> None:
    """News from other calls takes it back only to the middle; a gate after each edit goes on."""
    assert agent().play([B, B, B, edit(1), B, edit(2), B, edit(3), B, B]) == ["ok"] * 3 + ["nudge"] + ["ok"] * 5 + ["stop"]


def test_a_nudge_does_not_stop_what_it_nudged() -> None:
    """Edits before the nudge took the count back to 1, and still do once it was given."""
    test = [B, edit(1), B, edit(2), B, B, B]
    assert agent().play([*test, edit(3), B, edit(4), "done"]) == ["ok"] * 7 + ["nudge"] + ["ok"] * 3


def test_a_nudged_call_with_a_new_result_starts_afresh() -> None:
    """It made progress."""
    other = called("bash", {"c": "pytest"}, "0 failed")
    assert agent().play([B, B, B, other, other, other, other]) == ["ok"] * 3 + ["nudge"] + ["ok"] * 3


def test_a_cycle_is_nudged_in_its_third_round_and_stopped_in_its_fifth() -> None:
    """A, B, A, B, … with the same results."""
    decisions = agent().play([A, B] * 6)
    assert decisions.index("nudge") <= 6
    assert decisions.index("stop") <= 9
    assert decisions.count("nudge") == 1


def test_a_cycle_alone_is_named_and_its_nudge_covers_every_call_of_it() -> None:
    """Where only the cycle detector is on."""
    loop = agent(Policy(ladders={Reason.CYCLE: Ladder(3, 5)}))
    assert loop.play([A, B] * 3) == ["ok"] * 6
    x = loop.step(A)
    assert (x.decision, x.plan.reason, x.plan.tool, x.plan.count, x.plan.limit) == ("nudge", Reason.CYCLE, "bash", 3, 5)
    assert loop.play([B, A, B]) == ["ok", "ok", "stop"]


@pytest.mark.parametrize(("repeats", "decision"), [(2, "ok"), (3, "nudge"), (4, "nudge"), (5, "stop"), (9, "stop")])
def test_a_history_that_arrives_with_a_loop_is_judged_at_once(repeats: int, decision: str) -> None:
    """Adoption: at the nudge rung it is nudged, at the stop rung stopped, with one upstream call."""
    x = House().ask([user("go"), *[A] * repeats], edit(1))
    assert (x.decision, len(x.edits)) == (decision, 1)


def test_what_was_adopted_with_a_nudge_has_its_chance() -> None:
    """News from before the nudge keeps its effect: two more calls, not none."""
    loop = Agent(House(), user("go"), A, A, A, edit(1), A, A, A)
    assert loop.play([A, A]) == ["nudge", "stop"]


def test_a_lost_nudge_is_given_once_more_before_the_stop() -> None:
    """The summary left it out; then the fifth call is stopped. Another loop gets none: the run has had its nudge."""
    house = House()
    loop = Agent(house, user("go"))
    loop.play([A, A, A])
    first = loop.step(A)
    house.ask([*loop.turns, user("Please summarize the conversation so far.")], "Summary.")
    loop.turns = [user("Summary: a was read.")]
    again = loop.step(edit(1))
    assert (again.decision, [item for item, _ in again.texts]) == ("nudge", [1])
    assert again.texts[0][1].startswith("[lastcall] read_file has now been called 4 times")
    assert first.texts != again.texts
    assert loop.step(B).texts == again.texts
    assert loop.play([A, A]) == ["ok", "stop"]


def test_a_run_whose_nudge_was_lost_has_had_its_nudge() -> None:
    """Another loop goes to its stop without."""
    house = House()
    loop = Agent(house, user("go"))
    loop.play([A, A, A, edit(1), edit(2)])
    house.ask([*loop.turns, user("Please summarize the conversation so far.")], "Summary.")
    loop.turns = [user("Summary: a was read.")]
    assert loop.play([B, B, B, B, B]) == ["ok", "ok", "ok", "ok", "stop"]


def test_a_lost_nudge_waits_for_a_request_that_can_use_it() -> None:
    """Not one for the next summary."""
    house = House()
    loop = Agent(house, user("go"))
    loop.play([A, A, A, A])
    ask = user("Please summarize the conversation so far.")
    house.ask([*loop.turns, ask], "Summary.")
    loop.turns = [user("Summary: a was read.")]
    assert house.ask([*loop.turns, ask], "Summary.").texts == []
    assert loop.step(edit(1)).decision == "nudge"


def test_the_repeat_is_shown_from_the_second_one_on() -> None:
    """With the rung it is going to, a dash where there is none."""
    loop = agent()
    assert [loop.step(A).plan.repeat for _ in range(5)] == [None, None, None, "read_file 3/5", "read_file 5/5"]
    loop = agent(Policy(tools={"read_file": ToolRule(sets_stop=True)}))
    assert [loop.step(A).plan.repeat for _ in range(5)][-1] == "read_file 4/-"
    loop = agent(Policy(ladders={}))
    assert [loop.step(A).plan.repeat for _ in range(5)][-1] == "read_file 4/-"


def test_streams_are_armed_only_when_one_more_call_could_stop() -> None:
    """And not for an answer that is the last anyway."""
    loop = agent()
    assert [loop.step(A).plan.armed for _ in range(5)] == [False, False, False, False, True]
    assert not House().begin([user("go"), *[A] * 5]).plan.armed


@pytest.mark.parametrize(
    ("rule", "decisions"),
    [
        (ToolRule(nudge_at=2, stop_at=4, sets_nudge=True, sets_stop=True), ["ok", "ok", "nudge", "stop"]),
        (ToolRule(sets_nudge=True, stop_at=2, sets_stop=True), ["ok", "stop"]),
        (ToolRule(sets_nudge=True), ["ok", "ok", "ok", "ok", "stop"]),
        (ToolRule(sets_stop=True), ["ok", "ok", "ok", "nudge", "ok", "ok", "ok", "ok"]),
        (ToolRule(sets_nudge=True, sets_stop=True), ["ok"] * 8),
        (ToolRule(exempt=True), ["ok"] * 8),
        (ToolRule(effect=Effect.BOOKKEEPING), ["ok", "ok", "ok", "nudge", "stop"]),
    ],
)
def test_a_tool_has_the_rungs_that_it_was_given(rule: ToolRule, decisions: list[str]) -> None:
    """One may be missing, or both; an exempt tool has none."""
    assert agent(Policy(tools={"read_file": rule})).play([A] * 8) == decisions


def test_finish_tools_do_not_loop() -> None:
    """A client that asks for the same again after `submit` is its own affair."""
    assert agent().play([called("submit", {"x": 1}, "ok")] * 8) == ["ok"] * 8


@pytest.mark.parametrize("result", ["Error: branch not clean", '{"error": "branch not clean"}'])
def test_a_finish_tool_that_keeps_failing_loops_as_any_other(result: str) -> None:
    """Chat completions has no mark for a failed call: what the result says has to do."""
    loop = Agent(House(), user("go"), tools=("submit",))
    assert loop.play([called("submit", {"x": 1}, result)] * 8) == ["ok", "ok", "ok", "nudge", "stop"]


def test_a_finish_tool_that_failed_and_then_works_does_not_loop() -> None:
    """Failures in between are work."""
    failing, done = called("submit", {"x": 1}, "Error: branch not clean"), called("submit", {"x": 1}, "submitted")
    assert Agent(House(), user("go"), tools=("submit",)).play([failing, failing, *[done] * 6]) == ["ok"] * 8


def test_a_stop_may_force_the_finish_tool() -> None:
    """For agents whose runs end only by it; where it is not on offer, tools are forbidden as usual."""
    policy = Policy(wrap_up=WrapUpRule(force_finish_tool="submit"))
    history: list[Turn] = [user("go"), *[A] * 5]
    forced = House(policy).ask(history, A, tools=("read_file", "submit"))
    assert (forced.edits[0].force_tool, forced.edits[0].no_tools) == ("submit", False)
    plain = House(policy).ask(history, A)
    assert (plain.edits[0].force_tool, plain.edits[0].no_tools) == (None, True)


def test_the_instruction_to_conclude_stands_after_everything() -> None:
    """At the last result, or at the last text; without either there is only the ban on tools."""
    x = House().ask([user("go"), *[A] * 5], A)
    assert [(item, text.split(":")[0]) for item, text in x.texts] == [(11, "[lastcall stop] This run ends here")]
    later = House().ask([user("go"), A, A, A, A, A, user("please continue")], A)
    assert [item for item, _ in later.texts] == [12]
    bare = House()
    assert [bare.ask([], A).decision for _ in range(5)][-1] == "stop"
    assert bare.data is not None


def test_messages_run_away_by_equal_calls_of_one_tool() -> None:
    """Counted while they are being written, with what the next bytes may bring."""
    assert not runaway(Policy(), {})
    assert not runaway(Policy(), {"a": 15, "b": 15})
    assert runaway(Policy(), {"a": 16})
    assert runaway(Policy(), {"a": 10}, coming=6)
    for policy in (
        Policy(mode=Mode.OBSERVE),
        Policy(ladders={}),
        Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(5, None)}),
    ):
        assert not runaway(policy, {"a": 99})


# ---- budgets


def test_a_spent_budget_refuses() -> None:
    """Without the upstream, before anything else is looked at."""
    x = House().ask([user("go"), *[A] * 5], A, spending=Spending(steps(50, 50)))
    assert (x.decision, x.edits, x.plan.reason, x.plan.budget) == ("refuse", [], Reason.STEP_BUDGET, steps(50, 50))
    assert x.plan.serve is Serve.LOCAL
    assert isinstance(x.given, str) and x.given.startswith("[lastcall stop] ")


def test_the_last_step_of_a_budget_is_the_wrap_up() -> None:
    """One upstream call, without tools, so that the client ends with an answer."""
    x = agent().step(A, spending=Spending(last=steps(50, 49)))
    assert (x.decision, x.plan.reason, x.given) == ("stop", Reason.STEP_BUDGET, CONCLUSION)
    assert [edits.no_tools for edits in x.edits] == [True]
    assert x.place.lane.stop is None  # the budget itself says no from here on


def test_a_nudge_that_falls_on_the_last_step_is_not_given() -> None:
    """Nothing of a loop is left in what is said about the budget."""
    loop = agent()
    loop.play([A, A, A])
    x = loop.step(A, spending=Spending(last=tokens(1_000, 900)))
    assert (x.decision, x.plan.reason, x.seen) == ("stop", Reason.TOKEN_BUDGET, ())
    assert (x.plan.nudge, x.plan.finding, x.plan.tool) == (None, None, None)
    assert not any(text.startswith("[lastcall] ") for _, text in x.texts)
    assert x.place.lane.nudges == []


def test_a_loop_is_named_before_a_last_step() -> None:
    """A stop is a stop, whatever the ledger says."""
    x = House().ask([user("go"), *[A] * 5], A, spending=Spending(last=steps(50, 49)))
    assert (x.decision, x.plan.reason) == ("stop", Reason.REPEATED_CALL)


def test_a_session_whose_parent_stands_stopped_is_stopped() -> None:
    """Without the upstream, for the parent's reason; a budget that is used up is named before it."""
    x = agent().step(A, spending=Spending(above=Reason.CYCLE))
    assert (x.decision, x.edits, x.plan.reason, x.plan.scope) == ("stop", [], Reason.CYCLE, "parent")
    assert x.plan.cause == "the parent session was stopped (cycle)"
    assert agent().step(A, spending=Spending(steps(5, 5), above=Reason.CYCLE)).decision == "refuse"


def test_the_model_is_told_once_that_a_budget_is_nearly_used_up() -> None:
    """In a text of its own that stays where it is; a loop is still nudged later, and a raised budget tells anew."""
    loop = agent()
    loop.step(A)
    told = loop.step(edit(1), spending=Spending(nearly=(steps(10, 8),)))
    assert (told.decision, told.seen, told.texts[0][1][:31]) == ("ok", (), "[lastcall budget] 80 % of this ")
    again = loop.step(edit(2), spending=Spending(nearly=(steps(10, 9),)))
    assert again.texts == told.texts
    raised = loop.step(A, spending=Spending(nearly=(steps(20, 16),)))
    assert [text.startswith("[lastcall budget]") for _, text in raised.texts] == [True, True]
    assert loop.play([A, A, A]) == ["ok", "ok", "nudge"]


def test_a_loops_nudge_goes_before_a_budgets_notice() -> None:
    """The notice comes with the next request."""
    loop = agent()
    loop.play([A, A, A])
    nudged = loop.step(A, spending=Spending(nearly=(steps(10, 8),)))
    assert (nudged.decision, [text[:11] for _, text in nudged.texts]) == ("nudge", ["[lastcall] "])
    told = loop.step(edit(1), spending=Spending(nearly=(steps(10, 9),)))
    assert [text[:11] for _, text in told.texts] == ["[lastcall] ", "[lastcall b"]


def test_nothing_is_said_of_a_budget_where_nothing_may_be_added() -> None:
    """Without tools there is no work to bring to an end."""
    x = agent().step("done", tools=(), spending=Spending(nearly=(steps(10, 8),)))
    assert (x.texts, x.plan.warning) == ([], None)


def test_a_notice_that_did_not_arrive_is_said_again() -> None:
    """With nudges that are not kept, that takes an answer that came through."""
    house = House(Policy(nudge=NudgeRule(keep=False)))
    loop = Agent(house, user("go"))
    loop.step(edit(1))
    nearly = Spending(nearly=(steps(10, 8),))
    lost = house.ask(loop.turns, edit(2), full=False, spending=nearly)
    told = loop.step(edit(2), spending=nearly)
    assert len(lost.texts) == len(told.texts) == 1
    assert loop.step(edit(3), spending=nearly).texts == []


@pytest.mark.parametrize(
    ("policy", "tools"),
    [(Policy(on_stop=OnStop.MESSAGE), ("read_file",)), (Policy(on_stop=OnStop.ERROR), ("read_file",)), (Policy(), ())],
)
def test_the_last_step_goes_through_where_no_wrap_up_is_wanted(policy: Policy, tools: tuple[str, ...]) -> None:
    """Or where it would be an answer anyway."""
    x = House(policy).ask([user("go")], "done", tools=tools, spending=Spending(last=steps(50, 49)))
    assert (x.decision, x.given) == ("ok", "done")


# ---- observe


def test_observing_changes_nothing_and_says_everything_once() -> None:
    """One would-be nudge and one would-be stop, however long it goes on."""
    loop = agent(Policy(mode=Mode.OBSERVE))
    played = [loop.step(A) for _ in range(12)]
    assert all(x.edits == [Edits()] for x in played)
    assert all(x.body.encode() == x.request.body for x in played)
    assert [x.given for x in played] == [A] * 12
    assert [x.seen for x in played if x.seen] == [
        (FindingSeen(Reason.REPEATED_CALL, Action.NUDGE),),
        (FindingSeen(Reason.REPEATED_CALL, Action.STOP),),
    ]
    assert [x.plan.action for x in played[:4]] == [Action.ALLOW, Action.ALLOW, Action.ALLOW, Action.NUDGE]
    assert [x.plan.repeat for x in played][2:7] == [None, "read_file 3/5", "read_file 5/5", "read_file 5/5", "read_file 6/5"]


def test_observing_a_history_with_a_loop_lets_it_through() -> None:
    """A would-be stop of the request."""
    x = House(Policy(mode=Mode.OBSERVE)).ask([user("go"), *[A] * 5], A)
    assert (x.plan.action, x.plan.serve, x.given, x.body.encode()) == (Action.STOP, Serve.FORWARD, A, x.request.body)
    assert x.seen == (FindingSeen(Reason.REPEATED_CALL, Action.STOP),)


@pytest.mark.parametrize(
    ("spending", "action"),
    [
        (Spending(steps(50, 50)), Action.REFUSE),
        (Spending(last=steps(50, 49)), Action.STOP),
    ],
)
def test_observing_a_budget_says_what_it_would_have_done(spending: Spending, action: Action) -> None:
    """And lets the call through."""
    x = agent(Policy(mode=Mode.OBSERVE)).step(A, spending=spending)
    assert (x.plan.action, x.plan.reason, x.given, x.plan.serve) == (action, Reason.STEP_BUDGET, A, Serve.FORWARD)


def test_observing_a_new_run_speaks_again() -> None:
    """A would-be stop ends with its run."""
    loop = agent(Policy(mode=Mode.OBSERVE))
    loop.play([*[A] * 6, "done"])
    loop.turns.append(user("And now b."))
    seen = [loop.step(B).seen for _ in range(6)]
    assert [entry[0].action for entry in seen if entry] == [Action.NUDGE, Action.STOP]


def test_reminders_beside_results_do_not_begin_a_run_while_observing() -> None:
    """Only a client that was really sent away comes back with a person's words."""
    loop = agent(Policy(mode=Mode.OBSERVE))
    for number in range(7):
        loop.step(A)
        loop.turns.append(user(f"The build clock says {number}."))
    assert loop.house.record.lanes[0].stop is not None


# ---- ways of counting


def test_counting_consecutively_is_blind_to_rounds() -> None:
    """Which is why the cycle detector sees them."""
    policy = Policy(counting=Counting.CONSECUTIVE, ladders={Reason.REPEATED_CALL: Ladder(3, 5)})
    assert agent(policy).play([A, B] * 8) == ["ok"] * 16
    assert agent(policy).play([A] * 5) == ["ok", "ok", "ok", "nudge", "stop"]


def test_the_driver_numbers_calls_as_histories_do() -> None:
    """Otherwise every test above would be about another history than the one answered."""
    asked = request(user("go"), together(A, B), said("x"))
    assert [call.id for message in read(asked, House().prints).messages for call in message.calls] == ["call_0", "call_1"]
