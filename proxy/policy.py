"""The rules for one request, resolved: what the configuration says, as plain frozen values.

Reading the file is `config`'s business; deciding is `engine`'s; which layers of rules apply to a request is `tenants`'. A `Policy` is
made once for each combination of layers and shared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from proxy.config import BudgetsConfig, DetectorsConfig, NudgeConfig, PolicyConfig, PolicyRules, Rungs, ToolConfig, WrapUpConfig
from proxy.effects import Effect
from proxy.errors import BadRequest
from proxy.models import Reason
from proxy.prices import nano


class Mode(StrEnum):
    """observe computes everything and changes nothing; enforce acts."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


class Counting(StrEnum):
    """What makes a call a repeat; see docs/detection.md."""

    NO_PROGRESS = "no_progress"
    CONSECUTIVE = "consecutive"
    CUMULATIVE = "cumulative"


class Scope(StrEnum):
    """How far back a trail reaches: the current run, or everything the session did."""

    RUN = "run"
    SESSION = "session"


class Canonical(StrEnum):
    """How alike arguments must be: see `fingerprint`."""

    LOOSE = "loose"
    EXACT = "exact"


class OnStop(StrEnum):
    """What a stopped client gets: a last answer by the model, a local message, or an error."""

    WRAP_UP = "wrap_up"
    MESSAGE = "message"
    ERROR = "error"


class Unpriced(StrEnum):
    """What becomes of a call whose model nobody prices."""

    ALLOW = "allow"
    REFUSE = "refuse"


NEVER = 1 << 30  # repeats
RELAPSE_STOPS_AT = 3  # the second repeat of a call that stopped an earlier run


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one detector, in repeats. None: no such rung."""

    nudge_at: int | None
    stop_at: int | None
    least: int = field(init=False, repr=False, compare=False)
    """The lower of its rungs; beyond any count without one."""

    def __post_init__(self) -> None:
        rungs = [rung for rung in (self.nudge_at, self.stop_at) if rung is not None]
        object.__setattr__(self, "least", min(rungs, default=NEVER))

    def as_patient_as(self, other: "Ladder") -> "Ladder":
        """With the same nudge, and a stop no earlier than the other's."""
        return Ladder(self.nudge_at, _higher(self.stop_at, other.stop_at))


@dataclass(frozen=True, slots=True)
class ToolRule:
    """What the operator says about one tool. A rung left out (`unset`) falls back to the detector's."""

    exempt: bool = False
    effect: Effect | None = None
    nudge_at: int | None = None
    stop_at: int | None = None
    sets_nudge: bool = False
    sets_stop: bool = False


@dataclass(frozen=True, slots=True)
class NudgeRule:
    """max_per_run nudges; text replaces the built-in wording; keep: sent again at its place in later requests.

    holdout: share of the runs whose model is not told, to compare them with the others.
    """

    max_per_run: int = 1
    text: str | None = None
    keep: bool = True
    holdout: float = 0.0


@dataclass(frozen=True, slots=True)
class WrapUpRule:
    """force_finish_tool: force that tool instead of `tool_choice: none`. retries: for an empty answer or leaked markup."""

    force_finish_tool: str | None = None
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer's text must hold, and what it must not, as plain text."""

    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budgets:
    """Per session. None: no limit; 0: none at all. tokens: input and output together. cost in nano-dollars, deadline in seconds."""

    steps: int | None = None
    tokens: int | None = None
    deadline: float | None = None
    input: int | None = None
    output: int | None = None
    cost: int | None = None


NO_LADDER = Ladder(None, None)
DEFAULT_LADDERS = {Reason(name): Ladder(rungs.nudge_at, rungs.stop_at) for name, rungs in DetectorsConfig()}

DEFAULT_FINISH_TOOLS = ("finish_exploration", "attempt_completion", "final_answer", "submit", "finish")


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that may differ between two requests' rules. A detector that is off has no entry in `ladders`.

    changing_nudge_at: the second rung of `poll`, for calls in a row with changing results. least_stop: the lowest stop rung that any
    repeated call can have; `NEVER` when none has one.
    """

    mode: Mode = Mode.ENFORCE
    counting: Counting = Counting.NO_PROGRESS
    scope: Scope = Scope.RUN
    canonical: Canonical = Canonical.LOOSE
    ladders: dict[Reason, Ladder] = field(default_factory=lambda: dict(DEFAULT_LADDERS))
    changing_nudge_at: int | None = DetectorsConfig().poll.changing_nudge_at
    finish_tools: tuple[str, ...] = DEFAULT_FINISH_TOOLS
    tools: dict[str, ToolRule] = field(default_factory=dict)
    nudge: NudgeRule = NudgeRule()
    on_stop: OnStop = OnStop.WRAP_UP
    wrap_up: WrapUpRule = WrapUpRule()
    repair_calls: bool = False
    stages: dict[str, Expectation] = field(default_factory=dict)
    budgets: Budgets = Budgets()
    unpriced: Unpriced = Unpriced.ALLOW
    least_stop: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ladder = self.ladders.get(Reason.REPEATED_CALL)
        rungs = [] if ladder is None else [ladder.stop_at, *(rule.stop_at for rule in self.tools.values() if rule.sets_stop)]
        known = [rung for rung in rungs if rung is not None]
        object.__setattr__(self, "least_stop", min(RELAPSE_STOPS_AT, *known) if known else NEVER)

    def stage(self, name: str | None) -> Expectation | None:
        """What the stage of that name expects of an answer. Raises `BadRequest` for one that is not configured."""
        if name is None:
            return None
        if name not in self.stages:
            known = ", ".join(sorted(self.stages)) or "none"
            raise BadRequest(f"header 'x-lastcall-stage' names {name[:80]!r}, which is not under policy.stages; known here: {known}")
        return self.stages[name]

    def ladder(self, reason: Reason, tool: str) -> Ladder | None:
        """The rungs of a detector for one tool; None when the detector is off or the tool exempt from it."""
        ladder = self.ladders.get(reason)
        rule = self.tools.get(tool)
        if ladder is None or rule is None:
            return ladder
        return Ladder(
            rule.nudge_at if rule.sets_nudge else ladder.nudge_at,
            rule.stop_at if rule.sets_stop else ladder.stop_at,
        )

    def patient_ladder(self, reason: Reason, tool: str) -> Ladder:
        """The rungs of a detector that looks beyond single calls: what is said of a tool can only raise them or take them away."""
        ladder = self.ladders.get(reason, NO_LADDER)
        rule = self.tools.get(tool)
        if rule is None:
            return ladder
        return Ladder(
            _higher(ladder.nudge_at, rule.nudge_at) if rule.sets_nudge else ladder.nudge_at,
            _higher(ladder.stop_at, rule.stop_at) if rule.sets_stop else ladder.stop_at,
        )


def _higher(rung: int | None, other: int | None) -> int | None:
    return None if rung is None or other is None else max(rung, other)


_PRESETS = {
    "standard": Policy(),
    "plain": Policy(
        counting=Counting.CUMULATIVE,
        scope=Scope.SESSION,
        canonical=Canonical.EXACT,
        ladders={Reason.REPEATED_CALL: DEFAULT_LADDERS[Reason.REPEATED_CALL]},
    ),
}


# What is one value in both, and its type here.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "mode": Mode,
    "counting": Counting,
    "scope": Scope,
    "canonical": Canonical,
    "finish_tools": tuple,
    "on_stop": OnStop,
    "repair_calls": bool,
    "unpriced": Unpriced,
}
_Rule = TypeVar("_Rule", NudgeRule, WrapUpRule)


def policy_of(config: PolicyConfig) -> Policy:
    """The rules that everybody's part of a configuration asks for."""
    return layered(Policy(), config)


def layered(below: Policy, rules: PolicyRules) -> Policy:
    """The rules below, under those that a layer states: every key that was written, down to the single rung, and no other.

    A preset stands for the keys it sets, and goes before those written beside it.
    """
    base, written, poll = below, rules.model_fields_set, rules.detectors.poll
    if "preset" in written:
        preset = _PRESETS[rules.preset]
        base = replace(base, counting=preset.counting, scope=preset.scope, canonical=preset.canonical, ladders=preset.ladders)
    return replace(
        base,
        **{name: kind(getattr(rules, name)) for name, kind in _VALUES.items() if name in written},
        ladders=_ladders(base.ladders, rules),
        changing_nudge_at=poll.changing_nudge_at if "changing_nudge_at" in poll.model_fields_set else base.changing_nudge_at,
        stages=base.stages | {name: Expectation(stage.expect.contains, stage.expect.excludes) for name, stage in rules.stages.items()},
        tools=base.tools | {name: _tool_rule(base.tools.get(name, ToolRule()), tool) for name, tool in rules.tools.items()},
        nudge=_over(base.nudge, rules.nudge),
        wrap_up=_over(base.wrap_up, rules.wrap_up),
        budgets=_budgets(base.budgets, rules.budgets),
    )


def _over(rule: _Rule, section: NudgeConfig | WrapUpConfig) -> _Rule:
    return replace(rule, **{name: getattr(section, name) for name in section.model_fields_set})


def _ladders(below: dict[Reason, Ladder], rules: PolicyRules) -> dict[Reason, Ladder]:
    """A rung that a layer leaves out is the one below, or the detector's default where that was off; one without any rung is off."""
    ladders = dict(below)
    for name in rules.detectors.model_fields_set:
        rungs: Rungs = getattr(rules.detectors, name)
        reason, written = Reason(name), {key: getattr(rungs, key) for key in ("nudge_at", "stop_at") if key in rungs.model_fields_set}
        ladders[reason] = replace(ladders.get(reason, DEFAULT_LADDERS[reason]), **written)
    return {reason: ladder for reason, ladder in ladders.items() if ladder != Ladder(None, None)}


def _tool_rule(below: ToolRule, tool: ToolConfig) -> ToolRule:
    written = tool.model_fields_set
    return ToolRule(
        exempt=tool.exempt if "exempt" in written else below.exempt,
        effect=(Effect(tool.effect) if tool.effect else None) if "effect" in written else below.effect,
        nudge_at=tool.nudge_at if "nudge_at" in written else below.nudge_at,
        stop_at=tool.stop_at if "stop_at" in written else below.stop_at,
        sets_nudge="nudge_at" in written or below.sets_nudge,
        sets_stop="stop_at" in written or below.sets_stop,
    )


def _budgets(below: Budgets, budgets: BudgetsConfig) -> Budgets:
    written = budgets.model_fields_set
    limits: dict[str, Any] = {name: getattr(budgets, name) for name in ("steps", "deadline") if name in written}
    if "cost_usd" in written:
        limits["cost"] = None if budgets.cost_usd is None else nano(budgets.cost_usd)
    if "tokens" in written:
        tokens = budgets.tokens
        named = {"input", "output", "total"} if tokens is None else tokens.model_fields_set  # null lifts all three
        limits |= {"tokens" if name == "total" else name: None if tokens is None else getattr(tokens, name) for name in named}
    return replace(below, **limits)
