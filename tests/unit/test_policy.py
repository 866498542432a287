"""From the configuration to the rules of a request."""

import pytest

from proxy.config import Config, PolicyConfig, load
from proxy.effects import Effect
from proxy.models import Reason
from proxy.policy import (
    DEFAULT_LADDERS,
    NEVER,
    Budgets,
    Canonical,
    Counting,
    Ladder,
    Mode,
    NudgeRule,
    OnStop,
    Policy,
    Scope,
    ToolRule,
    WrapUpRule,
    layered,
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


# ---- layers


def over(below: str, above: str) -> Policy:
    """Rules for a model above everybody's."""
    config = Config.model_validate({"policy": {"models": {"m": load(f"policy: {above}", {}).policy.model_dump(exclude_unset=True)}}})
    return layered(policy(below), config.policy.models["m"])


def test_a_layer_without_a_word_changes_nothing() -> None:
    """Whatever lies below."""
    below = "{preset: plain, mode: observe, budgets: {steps: 5}, tools: {t: {effect: poll}}, detectors: {cycle: {stop_at: 9}}}"
    assert over(below, "{}") == policy(below)


def test_every_kind_of_rule_may_be_replaced_alone() -> None:
    """What stands beside it stays."""
    below = "{nudge: {text: hey, keep: false}, wrap_up: {retries: 1}, budgets: {steps: 5, deadline: 9}, finish_tools: [a]}"
    rules = over(below, "{nudge: {max_per_run: 2}, wrap_up: {force_finish_tool: done}, budgets: {deadline: null}, finish_tools: []}")

    assert rules.nudge == NudgeRule(max_per_run=2, text="hey", keep=False)
    assert rules.wrap_up == WrapUpRule(force_finish_tool="done", retries=1)
    assert rules.budgets == Budgets(steps=5)
    assert rules.finish_tools == ()


def test_a_preset_goes_before_what_is_written_beside_it_and_after_what_lies_below() -> None:
    """It stands for four keys, and touches no other."""
    rules = over("{counting: consecutive, on_stop: error, detectors: {repeated_call: {stop_at: 9}}}", "{preset: plain, scope: run}")

    assert (rules.counting, rules.scope, rules.canonical, rules.on_stop) == (Counting.CUMULATIVE, Scope.RUN, Canonical.EXACT, OnStop.ERROR)
    assert rules.ladders == {Reason.REPEATED_CALL: Ladder(3, 5)}


def test_limits_of_tokens_and_money_by_layer() -> None:
    """A number is the total; null lifts every limit of tokens; dollars become nano-dollars."""

    def budgets(*layers: dict[str, object]) -> Budgets:
        rules = Policy()
        for layer in layers:
            rules = layered(rules, Config.model_validate({"policy": {"budgets": layer}}).policy)
        return rules.budgets

    assert budgets({"tokens": {"input": 7, "output": 3}, "cost_usd": 0.25}) == Budgets(input=7, output=3, cost=250_000_000)
    assert budgets({"tokens": {"input": 7, "output": 3}}, {"tokens": 9}) == Budgets(tokens=9, input=7, output=3)
    assert budgets({"tokens": {"input": 7, "output": 3}}, {"tokens": {"input": None, "total": 9}}) == Budgets(tokens=9, output=3)
    assert budgets({"tokens": {"input": 7, "total": 3}, "cost_usd": 5}, {"tokens": None, "cost_usd": None}) == Budgets()


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        (Policy(), 3),
        (Policy(ladders={}), NEVER),
        (Policy(ladders={}, tools={"A": ToolRule(stop_at=2, sets_stop=True)}), NEVER),
        (Policy(ladders={Reason.REPEATED_CALL: Ladder(3, None)}), NEVER),
        (Policy(ladders={Reason.REPEATED_CALL: Ladder(3, None)}, tools={"A": ToolRule(stop_at=20, sets_stop=True)}), 3),
        (Policy(tools={"A": ToolRule(stop_at=2, sets_stop=True)}), 2),
        (Policy(tools={"A": ToolRule(exempt=True)}), 3),
    ],
)
def test_the_least_stop_rung_of_any_call(policy: Policy, least: int) -> None:
    """Below it nothing can be stopped; a call that stopped an earlier run may stop at 3 whatever its ladder."""
    assert policy.least_stop == least
