"""What happened, as values: the one source of every metric and log line. No content, no keys: names, numbers and hashes."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proxy.models import Action, Reason


class Outcome(StrEnum):
    """How an exchange ended, seen from the client: the closed set of `ExchangeEnded.outcome`."""

    __hash__ = str.__hash__  # the one of Enum is written in Python

    COMPLETED = "completed"
    UPSTREAM_ERROR = "upstream_error"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"
    FAILED = "failed"


class NudgeOutcome(StrEnum):
    """How a nudged run ended: the closed set of `NudgeEnded.outcome`."""

    RECOVERED = "recovered"
    STOPPED = "stopped"


class UpstreamError(StrEnum):
    """Why one upstream call gave no usable answer.

    unreachable: no connection. timeout: no byte in time. cut: the connection ended inside an answer. rate_limited: HTTP 429.
    client_error, server_error: any other HTTP 4xx, 5xx. reported: an error inside a successful response.
    """

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CUT = "cut"
    RATE_LIMITED = "rate_limited"
    CLIENT_ERROR = "client_error"
    SERVER_ERROR = "server_error"
    REPORTED = "reported"


def error_of(status: int) -> UpstreamError | None:
    """What an HTTP status says; None below 400."""
    if status < 400:
        return None
    if status == 429:
        return UpstreamError.RATE_LIMITED
    return UpstreamError.CLIENT_ERROR if status < 500 else UpstreamError.SERVER_ERROR


class ReloadOutcome(StrEnum):
    """What came of reading the configuration again: put in force, as it was, or not usable."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


class StoreOperation(StrEnum):
    """The calls of a `Store` that can fail."""

    SECRET = "secret"
    FIND = "find"
    OPEN = "open"
    COMMIT = "commit"
    PING = "ping"


class FindingSeen(msgspec.Struct, frozen=True, gc=False):
    """A detector reached a rung. action: `nudge` or `stop`, what that rung calls for (in observe mode: would have)."""

    reason: Reason
    action: Action


class NudgeEnded(msgspec.Struct, frozen=True, gc=False):
    """A run that reached a nudge came to its end. outcome: a `NudgeOutcome`; recovered means an answer of its own.

    nudged: its model was told; it was not in a run that was held out, or only observed.
    """

    outcome: str
    nudged: bool = True


class ExchangeEnded(msgspec.Struct, frozen=True, gc=False):
    """One exchange, from request to settled answer. Emitted once for every request on a judged route.

    dialect: `chat`, …. run: number of the message that the lane's run began at. model: as asked (telemetry maps it to a closed
    set). action: in observe mode what would have been done.
    tool/count/limit describe the loop, where there is one. status: HTTP status sent, 499 when the client left first. outcome: an
    `Outcome`. Seconds are wall time: overhead is what Lastcall added before the upstream was asked, but for what the request waited until
    others gave back what they held of a budget (waited_seconds); upstream_seconds from there to its
    last byte; first_byte_seconds from the request to the first byte for the client (None when there was none). pruned: tool calls left
    out of the answer for `reason`. upstream_errors: one entry for every upstream call that failed, whether or not another succeeded.
    cached_tokens: the part of the input that the provider read from its cache. avoided_tokens: what the input of one more call would have
    come to, from its size, where the request was answered without the upstream.
    team: its name in the configuration, "" without teams and for a caller whom no team knows.
    """

    dialect: str
    model: str
    session: str
    lane: int
    step: int
    action: Action
    run: int = 0
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
    cost: int = 0
    warned: Reason | None = None
    usage_estimated: bool = False
    overhead_seconds: float = 0.0
    waited_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    findings: tuple[FindingSeen, ...] = ()
    nudge_ended: NudgeEnded | None = None
    pruned: int = 0
    upstream_errors: tuple[UpstreamError, ...] = ()
    cached_tokens: int = 0
    avoided_tokens: int = 0
    team: str = ""


class StoreChanged(msgspec.Struct, frozen=True, gc=False):
    """The store went away (`up` False) or came back. cause: the error's class name, no addresses or secrets. node: the address of the one
    server that did, where the others of a cluster go on."""

    up: bool
    cause: str = ""
    node: str = ""


class StoreFailed(msgspec.Struct, frozen=True, gc=False):
    """One store call failed or ran out of time, whether or not the store is known to be away. cause: as in `StoreChanged`."""

    operation: StoreOperation
    cause: str = ""


class UnjudgedEnded(msgspec.Struct, frozen=True, gc=False):
    """A request on a route that Lastcall forwards without judging it.

    refused: why it was, in `mode`. model, team, tokens, cost: as in `ExchangeEnded`; nothing for what nobody is charged for.
    usage_estimated: the answer reported no tokens.
    """

    status: int
    seconds: float
    team: str = ""
    model: str = ""
    refused: Reason | None = None
    mode: str = "enforce"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: int = 0
    usage_estimated: bool = False


class ConfigReloaded(msgspec.Struct, frozen=True, gc=False):
    """The configuration was read again. cause: why it was rejected, in the words of `ConfigError`, which hold no secret."""

    outcome: ReloadOutcome
    cause: str = ""


class BudgetSeen(msgspec.Struct, frozen=True, gc=False):
    """A team's budget in force, in the window of the moment. unit, per: as in the configuration. limit, spent: in that unit.

    resets_at: when the window ends, epoch seconds.
    """

    team: str
    unit: str
    per: str
    limit: float
    spent: float
    resets_at: float


class BudgetsSeen(msgspec.Struct, frozen=True, gc=False):
    """Every budget of every team, as a look at the store found them; none where it could not be asked."""

    budgets: tuple[BudgetSeen, ...]


class OperatorAction(StrEnum):
    """What an operator can do to a session; `raise` also to a team's budgets."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESET = "reset"
    RAISE = "raise"
    ALLOW = "allow"


class OperatorActed(msgspec.Struct, frozen=True, gc=False):
    """An operator changed a session, or a team's budgets. who: the beginning of the digest of the key that was shown.

    session: its key in hex, "" where it is the team that was changed; name: what its client calls it, "" where it was asked for by key;
    team: as in `ExchangeEnded`. change: the limits that were raised by their names, the fingerprints of the calls that were allowed.
    """

    action: OperatorAction
    who: str
    session: str
    name: str = ""
    team: str = ""
    change: Mapping[str, object] = {}


Event = ExchangeEnded | StoreChanged | StoreFailed | UnjudgedEnded | ConfigReloaded | OperatorActed | BudgetsSeen
