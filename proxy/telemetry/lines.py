"""The shape of every log line, as JSON: what it says, in which order, and how text that a client wrote is kept harmless in it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from proxy.events import OperatorAction, StoreOperation, UpstreamError
from proxy.models import Action, Reason

LogLevel = Literal["debug", "info", "warning", "error"]

MAX_TEXT = 200
"""Characters of a text that a client wrote."""


class Line(msgspec.Struct, tag_field="event", omit_defaults=True, gc=False, kw_only=True):
    """What every log line has. ts: RFC 3339, UTC, milliseconds. A field that is None is left out."""

    ts: str
    level: LogLevel


class ExchangeLine(Line, tag="exchange_ended", kw_only=True):
    session: str
    lane: int
    run: int = 0
    step: int
    action: Action
    reason: Reason | None = None
    mode: str
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    pruned: int = 0
    nudge_outcome: str | None = None
    nudged: bool = True
    status: int
    outcome: str
    dialect: str
    model: str
    streamed: bool
    overhead_ms: float
    waited_ms: float | None = None
    upstream_ms: float | None = None
    first_byte_ms: float | None = None
    upstream_calls: int
    upstream_errors: tuple[UpstreamError, ...] = ()
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None
    usage_estimated: bool
    degraded: bool
    retry: bool
    team: str = ""


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
    text = text[:MAX_TEXT]
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def milliseconds(seconds: float) -> float:
    return int(seconds * 1_000_000 + 0.5) / 1000  # a third of what `round` takes
