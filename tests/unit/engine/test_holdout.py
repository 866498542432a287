"""Runs that are left alone for comparison, and how the end of a nudged run is told."""

from collections.abc import Sequence

import pytest

from proxy.events import FindingSeen, NudgeEnded
from proxy.models import Action, Reason
from proxy.policy import Mode, NudgeRule, Policy
from tests.driver import Agent, House, Reply
from tests.transcripts import called, user

HELD = Policy(nudge=NudgeRule(holdout=1.0))
LOOP = called("bash")


def ends(replies: Sequence[Reply], policy: Policy | None = None, between: str = "continue") -> list[NudgeEnded]:
    """The ends that were told of while an agent got these replies."""
    agent = Agent(House(policy), user("do it"), tools=("bash",))
    told = []
    for reply in replies:
        x = agent.step(reply)
        told += [] if x.ended is None else [x.ended]
        if isinstance(x.given, str):
            agent.turns.append(user(between))
    return told


def test_a_run_that_is_held_out_is_not_told() -> None:
    """It is seen, nothing is changed, and the stop comes as ever."""
    agent = Agent(House(HELD), user("do it"), tools=("bash",))
    exchanges = [agent.step(LOOP) for _ in range(5)]
    assert [x.decision for x in exchanges] == ["ok", "ok", "ok", "ok", "stop"]
    assert exchanges[3].seen == (FindingSeen(Reason.REPEATED_CALL, Action.NUDGE),)
    assert all(not x.edits[0].inserts for x in exchanges[:4])
    assert exchanges[4].ended == NudgeEnded("stopped", nudged=False)


def test_the_share_is_that_of_the_runs() -> None:
    """By chance over sessions and runs, and the same for the same run."""
    policy = Policy(nudge=NudgeRule(holdout=0.3))
    held = 0
    for number in range(300):
        house = House(policy)
        twice = []
        for _ in range(2):
            x = house.begin([user(f"task {number}"), LOOP, LOOP, LOOP], tools=("bash",))
            twice.append(x.plan.nudge is not None and x.plan.nudge.held)
        assert twice[0] == twice[1]
        held += twice[0]
    assert 60 < held < 120


@pytest.mark.parametrize(
    ("policy", "nudged"), [(Policy(), True), (HELD, False), (Policy(mode=Mode.OBSERVE), False)], ids=["told", "held out", "observed"]
)
def test_the_end_of_a_run_says_whether_its_model_was_told(policy: Policy, nudged: bool) -> None:
    """So that the two can be compared."""
    assert ends([LOOP, LOOP, LOOP, called("bash", {"a": 1}), "Done."], policy) == [NudgeEnded("recovered", nudged)]
    assert ends([LOOP] * 5, policy) == [NudgeEnded("stopped", nudged)]


def test_a_loop_of_texts_ends_with_another_text_or_a_call() -> None:
    """Once, and by a stop otherwise."""
    loop = ["I will do it."] * 3
    assert ends([*loop, "Here it is: 5.", "Anything else?", "Well."]) == [NudgeEnded("recovered")]
    assert ends([*loop, LOOP, "Done."]) == [NudgeEnded("recovered")]
    assert ends([*loop, loop[0], loop[0]]) == [NudgeEnded("stopped")]
    assert ends(["", "", "", "Hm."]) == [NudgeEnded("recovered")]
