"""From the configuration to the rules of a request."""

import pytest

from proxy.config import PolicyConfig, load
from proxy.models import Reason
from proxy.policy import (
    DEFAULT_LADDERS,
    Budgets,
    Canonical,
    Counting,
    Effect,
    Ladder,
    Mode,
    NudgeRule,
    OnStop,
    Policy,
    Scope,
    ToolRule,
    WrapUpRule,
    policy_of,
)


def policy(text: str) -> Policy:
    """The rules of a file that holds only a policy."""
    return policy_of(load(f"policy: {text}", {}).policy)


def test_an_empty_configuration_gives_the_default_policy() -> None:
    """The file's defaults and the program's are the same."""
    assert policy_of(PolicyConfig()) == Policy()
    assert policy("{preset: standard}") == Policy()


def test_every_detector_of_the_file_has_the_same_default_ladder_in_the_program() -> None:
    """Written without rungs, each climbs the ladder it would have climbed unwritten."""
    assert policy("{detectors: {repeated_call: {}, cycle: {}, parallel_repeat: {}}}").ladders == DEFAULT_LADDERS


def test_plain_counts_everything_in_the_session() -> None:
    """The preset is the rule people know: one detector, results ignored, exact arguments."""
    assert policy("{preset: plain}") == Policy(
        counting=Counting.CUMULATIVE,
        scope=Scope.SESSION,
        canonical=Canonical.EXACT,
        ladders={Reason.REPEATED_CALL: Ladder(3, 5)},
    )


def test_a_key_beside_the_preset_overrides_it() -> None:
    """Also one that says what the standard preset would."""
    rules = policy("{preset: plain, counting: no_progress, scope: run, canonical: loose, detectors: {cycle: {stop_at: 9}}}")
    assert (rules.counting, rules.scope, rules.canonical) == (Counting.NO_PROGRESS, Scope.RUN, Canonical.LOOSE)
    assert rules.ladders == {Reason.REPEATED_CALL: Ladder(3, 5), Reason.CYCLE: Ladder(3, 9)}


@pytest.mark.parametrize("off", ["off", "'off'", "false", "{nudge_at: null, stop_at: null}"])
def test_a_detector_that_is_off_has_no_ladder(off: str) -> None:
    """However off is written."""
    assert Reason.CYCLE not in policy(f"{{detectors: {{cycle: {off}}}}}").ladders


def test_a_rung_may_be_taken_away() -> None:
    """The strict rule of some agents: no nudge, stop at the second."""
    assert policy("{detectors: {repeated_call: {nudge_at: null, stop_at: 2}}}").ladders[Reason.REPEATED_CALL] == Ladder(None, 2)


def test_a_tool_overrides_only_the_rungs_it_names() -> None:
    """A rung left out follows the detector's; null is no rung."""
    rules = policy("{tools: {slow: {effect: poll, nudge_at: 6, stop_at: null}, quiet: {exempt: true}, late: {stop_at: 8}}}")
    assert rules.tools["slow"] == ToolRule(effect=Effect.POLL, nudge_at=6, stop_at=None, sets_nudge=True, sets_stop=True)
    assert rules.tools["quiet"] == ToolRule(exempt=True)
    assert rules.ladder(Reason.REPEATED_CALL, "slow") == Ladder(6, None)
    assert rules.ladder(Reason.REPEATED_CALL, "late") == Ladder(3, 8)
    assert rules.ladder(Reason.REPEATED_CALL, "other") == Ladder(3, 5)
    assert policy("{detectors: {cycle: off}, tools: {late: {stop_at: 8}}}").ladder(Reason.CYCLE, "late") is None


def test_everything_else_is_carried_over() -> None:
    """Each remaining key has its place in the rules."""
    rules = policy(
        "{mode: observe, on_stop: error, finish_tools: [done], nudge: {max_per_run: 2, text: 'hey {tool}', keep: false}, "
        "wrap_up: {force_finish_tool: done, retries: 0}, budgets: {steps: 0, tokens: 10, deadline: 90s}}"
    )
    assert (rules.mode, rules.on_stop, rules.finish_tools) == (Mode.OBSERVE, OnStop.ERROR, ("done",))
    assert rules.nudge == NudgeRule(max_per_run=2, text="hey {tool}", keep=False)
    assert rules.wrap_up == WrapUpRule(force_finish_tool="done", retries=0)
    assert rules.budgets == Budgets(steps=0, tokens=10, deadline=90.0)
