"""The rules for one request, resolved: what the configuration says, as plain frozen values.

Reading the file is `config`'s business; deciding is `engine`'s. A `Policy` is made once per configuration and shared.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from proxy.config import PolicyConfig, Rungs, ToolConfig
from proxy.models import Reason


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


class Effect(StrEnum):
    """What a call does to the world, where the operator knows."""

    READ = "read"
    WRITE = "write"
    POLL = "poll"
    BOOKKEEPING = "bookkeeping"


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one detector, in repeats. None: no such rung."""

    nudge_at: int | None
    stop_at: int | None


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
    """max_per_run nudges; text replaces the built-in wording; keep: sent again at its place in later requests."""

    max_per_run: int = 1
    text: str | None = None
    keep: bool = True


@dataclass(frozen=True, slots=True)
class WrapUpRule:
    """force_finish_tool: force that tool instead of `tool_choice: none`. retries: for an empty answer or leaked markup."""

    force_finish_tool: str | None = None
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Budgets:
    """Per session. None: no limit; 0: none at all. deadline in seconds."""

    steps: int | None = None
    tokens: int | None = None
    deadline: float | None = None


DEFAULT_LADDERS: dict[Reason, Ladder] = {
    Reason.REPEATED_CALL: Ladder(3, 5),
    Reason.CYCLE: Ladder(3, 5),
    Reason.PARALLEL_REPEAT: Ladder(5, 16),
}

DEFAULT_FINISH_TOOLS = ("finish_exploration", "attempt_completion", "final_answer", "submit", "finish")


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that may differ between two requests' rules. A detector that is off has no entry in `ladders`."""

    mode: Mode = Mode.ENFORCE
    counting: Counting = Counting.NO_PROGRESS
    scope: Scope = Scope.RUN
    canonical: Canonical = Canonical.LOOSE
    ladders: dict[Reason, Ladder] = field(default_factory=lambda: dict(DEFAULT_LADDERS))
    finish_tools: tuple[str, ...] = DEFAULT_FINISH_TOOLS
    tools: dict[str, ToolRule] = field(default_factory=dict)
    nudge: NudgeRule = NudgeRule()
    on_stop: OnStop = OnStop.WRAP_UP
    wrap_up: WrapUpRule = WrapUpRule()
    budgets: Budgets = Budgets()

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


_PRESETS = {
    "standard": Policy(),
    "plain": Policy(
        counting=Counting.CUMULATIVE,
        scope=Scope.SESSION,
        canonical=Canonical.EXACT,
        ladders={Reason.REPEATED_CALL: DEFAULT_LADDERS[Reason.REPEATED_CALL]},
    ),
}


def policy_of(config: PolicyConfig) -> Policy:
    """The rules that a configuration asks for: its preset, and over it every key that was written."""
    preset, written = _PRESETS[config.preset], config.model_fields_set
    nudge, wrap_up, budgets = config.nudge, config.wrap_up, config.budgets
    return Policy(
        mode=Mode(config.mode),
        counting=Counting(config.counting) if "counting" in written else preset.counting,
        scope=Scope(config.scope) if "scope" in written else preset.scope,
        canonical=Canonical(config.canonical) if "canonical" in written else preset.canonical,
        ladders=_ladders(config, preset.ladders),
        finish_tools=config.finish_tools,
        tools={name: _tool_rule(tool) for name, tool in config.tools.items()},
        nudge=NudgeRule(max_per_run=nudge.max_per_run, text=nudge.text, keep=nudge.keep),
        on_stop=OnStop(config.on_stop),
        wrap_up=WrapUpRule(force_finish_tool=wrap_up.force_finish_tool, retries=wrap_up.retries),
        budgets=Budgets(steps=budgets.steps, tokens=budgets.tokens, deadline=budgets.deadline),
    )


def _ladders(config: PolicyConfig, preset: dict[Reason, Ladder]) -> dict[Reason, Ladder]:
    """The preset's ladders with those that were written; one without any rung is off."""
    ladders = dict(preset)
    for name in config.detectors.model_fields_set:
        rungs: Rungs = getattr(config.detectors, name)
        ladders[Reason(name)] = Ladder(rungs.nudge_at, rungs.stop_at)
    return {reason: ladder for reason, ladder in ladders.items() if ladder != Ladder(None, None)}


def _tool_rule(tool: ToolConfig) -> ToolRule:
    return ToolRule(
        exempt=tool.exempt,
        effect=Effect(tool.effect) if tool.effect else None,
        nudge_at=tool.nudge_at,
        stop_at=tool.stop_at,
        sets_nudge="nudge_at" in tool.model_fields_set,
        sets_stop="stop_at" in tool.model_fields_set,
    )
