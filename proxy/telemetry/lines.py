"""The shape of every log line, as JSON: what it says, in which order, and how text that a client wrote is kept harmless in it."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from proxy.events import ExchangeEnded, OperatorAction, StoreOperation, UpstreamError
from proxy.models import Action, Reason

LogLevel = Literal["debug", "info", "warning", "error"]

MAX_TEXT = 200
"""Characters of a text that a client wrote."""


class Line(msgspec.Struct, tag_field="event", omit_defaults=True, gc=False):
    """What every log line has. ts: RFC 3339, UTC, milliseconds. A field that is None is left out."""

    ts: str
    level: LogLevel


class ExchangeLine(Line, tag="exchange_ended"):
    """A field that is UNSET is left out."""

    session: str
    lane: int
    run: int | UnsetType
    step: int
    action: Action
    reason: Reason | UnsetType
    mode: str
    tool: str | UnsetType
    count: int | UnsetType
    limit: float | UnsetType
    pruned: int | UnsetType
    nudge_outcome: str | UnsetType
    nudged: bool | UnsetType
    status: int
    outcome: str
    dialect: str
    model: str
    streamed: bool
    overhead_ms: float
    waited_ms: float | UnsetType
    upstream_ms: float | UnsetType
    first_byte_ms: float | UnsetType
    upstream_calls: int
    upstream_errors: tuple[UpstreamError, ...] | UnsetType
    input_tokens: int
    output_tokens: int
    cost_usd: float | UnsetType
    usage_estimated: bool
    degraded: bool
    retry: bool
    team: str | UnsetType


def exchange_line(event: ExchangeEnded, ts: str, level: LogLevel) -> ExchangeLine:
    """In the order of the fields: to name so many arguments takes longer than everything else that is done for a line."""
    ended = event.nudge_ended
    return ExchangeLine(
        ts,
        level,
        printable(event.session),
        event.lane,
        event.run or UNSET,
        event.step,
        event.action,
        event.reason or UNSET,
        event.mode,
        UNSET if event.tool is None else printable(event.tool),
        UNSET if event.count is None else event.count,
        UNSET if event.limit is None else event.limit,
        event.pruned or UNSET,
        UNSET if ended is None else ended.outcome,
        UNSET if ended is None or ended.nudged else False,
        event.status,
        event.outcome,
        event.dialect,
        printable(event.model),
        event.streamed,
        milliseconds(event.overhead_seconds),
        milliseconds(event.waited_seconds) if event.waited_seconds else UNSET,
        milliseconds(event.upstream_seconds) if event.upstream_calls else UNSET,
        UNSET if event.first_byte_seconds is None else milliseconds(event.first_byte_seconds),
        event.upstream_calls,
        event.upstream_errors or UNSET,
        event.input_tokens,
        event.output_tokens,
        event.cost / 1e9 or UNSET,
        event.usage_estimated,
        event.degraded,
        event.retry,
        event.team or UNSET,
    )


class StoreChangedLine(Line, tag="store_changed", kw_only=True):
    up: bool
    cause: str | None = None
    node: str | None = None


class StoreFailedLine(Line, tag="store_failed", kw_only=True):
    operation: StoreOperation
    cause: str | None = None


class WorkerHungLine(Line, tag="worker_hung", kw_only=True):
    seconds: float


class OperatorLine(Line, tag="operator_acted", kw_only=True):
    action: OperatorAction
    who: str
    session: str = ""
    name: str = ""
    team: str = ""
    change: Mapping[str, object] = {}


class ConfigReloadedLine(Line, tag="config_reloaded", kw_only=True):
    outcome: str
    cause: str | None = None


class UnjudgedLine(Line, tag="unjudged_ended", kw_only=True):
    status: int
    ms: float
    team: str = ""
    model: str = ""
    reason: str | None = None
    mode: str = "enforce"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    usage_estimated: bool = False


def printable(text: str) -> str:
    """At most 200 characters that can neither end a line nor steer a terminal: control, format and surrogate characters become U+FFFD."""
    if len(text) <= MAX_TEXT and text.isprintable():
        return text
    return "".join([char if char.isprintable() else "\ufffd" for char in text[:MAX_TEXT]])


def milliseconds(seconds: float) -> float:
    return (seconds * 1_000_000 + 0.5) // 1 / 1000  # a quarter of what `round` takes
