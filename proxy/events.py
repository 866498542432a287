"""What happened, as values: the one source of every metric and log line. No content, no keys: names, numbers and hashes."""

import msgspec

from proxy.models import Action, Reason


class FindingSeen(msgspec.Struct, frozen=True, gc=False):
    """A detector reached a rung. action: `nudge` or `stop`, what that rung calls for (in observe mode: would have)."""

    reason: Reason
    action: Action


class NudgeEnded(msgspec.Struct, frozen=True, gc=False):
    """A nudged run came to its end: `recovered` (an answer of its own) or `stopped`."""

    outcome: str


class ExchangeEnded(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One exchange, from request to settled answer. Emitted once for every request on a judged route.

    dialect: `chat`, …. model: as asked (telemetry maps it to a closed set). status: HTTP status sent, 499 when the client left first.
    outcome: `completed`, `upstream_error`, `disconnected`, `refused`, `failed`. Seconds are wall time: overhead is what Lastcall
    added before the upstream was asked; upstream_seconds from there to its last byte; first_byte_seconds from the request to the first byte for
    the client (None when there was none). tool/count/limit describe the loop, where there is one.
    """

    dialect: str
    model: str
    session: str
    lane: int
    step: int
    action: Action
    reason: Reason | None = None
    mode: str = "enforce"
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    status: int = 200
    outcome: str = "completed"
    streamed: bool = False
    degraded: bool = False
    retry: bool = False
    upstream_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usage_estimated: bool = False
    overhead_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    findings: tuple[FindingSeen, ...] = ()
    nudge_ended: NudgeEnded | None = None


class StoreChanged(msgspec.Struct, frozen=True, gc=False):
    """The store went away (`up` False) or came back. cause: the error's class name, no addresses or secrets."""

    up: bool
    cause: str = ""


class UnjudgedEnded(msgspec.Struct, frozen=True, gc=False):
    """A request on a route that Lastcall forwards without judging it."""

    status: int
    seconds: float


Event = ExchangeEnded | StoreChanged | UnjudgedEnded
