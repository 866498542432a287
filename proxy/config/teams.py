"""The keys of `teams` and `prices`: who may ask, what each may use and spend, and what tokens cost."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from proxy.config.shape import Section, TeamPolicy, some
from proxy.config.values import KeyDigest, Limit, Money, Name, Rate, fault, shown

LEAST_PER_MILLION = 1e-4  # dollars: no model has ever been so cheap, and a price per token always is
MOST_PER_TOKEN = 1e-2

UNITS = ("steps", "input", "output", "tokens", "cost_usd")
"""What a window may limit, in the order in which limits are asked."""


class WindowBudget(Section):
    """What a team may spend in one window of the calendar. Null: no limit; 0: none at all."""

    per: Literal["minute", "hour", "day", "week", "month"]
    """The window; it begins anew with the calendar, in `timezone`."""
    steps: Limit | None = None
    """Completed model calls."""
    input: Limit | None = None
    """Tokens read."""
    output: Limit | None = None
    """Tokens written."""
    tokens: Limit | None = None
    """Both together."""
    cost_usd: Money | None = None
    """Dollars."""

    @model_validator(mode="after")
    def _says_something(self) -> "WindowBudget":
        if not self.model_fields_set & set(UNITS):
            raise fault(f"limits nothing; name at least one of {', '.join(UNITS)}")
        return self


class TeamConfig(Section):
    """One team: its keys, and what differs for it."""

    keys: Annotated[tuple[KeyDigest, ...], Field(strict=False), AfterValidator(some)]
    """Its keys, each as `sha256:…` or as ${VAR}; `lastcall keygen` makes one."""
    models: Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(some)] = ("*",)
    """Models it may use, as names or globs."""
    upstreams: Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(some)] | None = None
    """Upstreams it may use, the first that fits; null: all, in the order of the file."""
    budgets: Annotated[tuple[WindowBudget, ...], Field(strict=False)] = ()
    """What all its sessions together may spend in a window of the calendar."""
    concurrent_sessions: Limit | None = None
    """Sessions at once, each from its first call until five minutes after its last; null: no limit."""
    concurrent_requests: Limit | None = None
    """Calls under way at once; null: no limit."""
    other_endpoints: Literal["allow", "charge", "refuse"] = "charge"
    """Paths that are not judged: `allow` forwards, `charge` also counts what they use, `refuse` answers 403."""
    policy: TeamPolicy = TeamPolicy()
    """What differs from everybody's rules."""

    @field_validator("budgets")
    @classmethod
    def _once(cls, value: tuple[WindowBudget, ...]) -> tuple[WindowBudget, ...]:
        seen: dict[tuple[str, str], int] = {}
        for position, budget in enumerate(value):
            for unit in budget.model_fields_set & set(UNITS):
                first = seen.setdefault((unit, budget.per), position)
                if first != position:
                    raise fault(f"{unit} per {budget.per} is limited twice, first in budgets[{first}]; keep one", below=(position, unit))
        return value


class PriceConfig(Section):
    """What tokens of a model cost, in dollars."""

    per: Literal["million", "token"] = "million"
    """How many tokens the numbers below are for."""
    input: Rate
    """Input."""
    output: Rate
    """Output."""
    cached: Rate | None = None
    """Input read from the provider's cache; null: as input."""
    cache_write: Rate | None = None
    """Input written to the provider's cache; null: as input."""
    cache_write_1h: Rate | None = None
    """Input written to it to stay for an hour; null: as cache_write."""
    reasoning: Rate | None = None
    """Output that was reasoning; null: as output."""
    image: Rate | None = None
    """A picture made, where its answer reports no tokens; null: nothing."""
    second: Rate | None = None
    """A second of sound or film, likewise."""
    search: Rate | None = None
    """A search of the web that the provider makes while it answers. Null: nothing."""
    training: Rate | None = None
    """Tokens that a model is trained with. Null: as input."""

    @field_validator("input", "output", "cached", "cache_write", "cache_write_1h", "reasoning")
    @classmethod
    def _in_its_unit(cls, value: float | None, info: ValidationInfo) -> float | None:
        per = info.data.get("per")
        if value and per == "million" and value < LEAST_PER_MILLION:
            raise fault(f"{shown(value)} dollars for a million tokens is too little to be meant; is it for one? Then add per: token")
        if value and per == "token" and value > MOST_PER_TOKEN:
            raise fault(f"{shown(value)} dollars for one token is too much to be meant; is it for a million? Then take per: token out")
        return value
