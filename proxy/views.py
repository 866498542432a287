"""What an operator is shown of sessions, teams and rules: names, counts, hashes and sums. No content and no keys. Pure.

Fingerprints are 16 hexadecimal digits, made under a secret of the store: equal ones are equal calls or results, and nobody can turn them
back. Money is in dollars, times are epoch seconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxy.fingerprint import UNSEEN
from proxy.lineage import sender_of, stopped_above, stopped_below
from proxy.outcomes import FAILED, VOID
from proxy.pardon import Pardon, pardon_of
from proxy.policy import Policy
from proxy.prices import Price
from proxy.state import KeptCall, Lane, Record, Stop, name_at
from proxy.store import Account, Ceiling, Listed, Mark, Peeked, Standing, Unit, Usage

_NANO = 1e9
_UNITS = {Unit.COST: "cost_usd"}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a session or team has spent, and what its calls under way hold."""

    steps: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    reserved_steps: int
    reserved_tokens: int
    reserved_cost_usd: float


@dataclass(frozen=True, slots=True)
class Limit:
    """A ceiling in force. unit: steps, input, output, tokens, cost_usd or deadline (seconds). per: the stretch of the calendar it is for,
    "" for the whole life; resets_at: when that ends. raised: an operator put it there."""

    unit: str
    limit: float
    spent: float
    reserved: float
    per: str
    resets_at: float | None
    raised: bool


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in a list. session: its key, what the other routes are asked with; name: what its client calls it, null where it is not
    known. state: active, stopped (its main line), paused, or ended (forgotten since). reason: why it stands stopped."""

    session: str
    name: str | None
    team: str | None
    state: str
    reason: str | None
    seen: float | None
    steps: int
    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A part of the list, those used last first. next: ask with it as `after` for the next part, null at the end; a part may be short,
    or empty, and not the last."""

    sessions: list[SessionRow]
    next: str | None


@dataclass(frozen=True, slots=True)
class Made:
    """A call in a trail. message: its number in the conversation, null before a compaction. result: null where it was never needed."""

    message: int | None
    tool: str
    call: str
    result: str | None
    failed: bool
    void: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """How often a call is in a trail, and with how many different results."""

    tool: str
    call: str
    times: int
    results: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a run was stopped: the reason, how often, at which rung, and the calls that were in the loop."""

    reason: str
    tool: str
    count: int
    limit: int
    calls: list[str]


@dataclass(frozen=True, slots=True)
class Nudged:
    """Something that the model was told. forgiven: before a reset."""

    reason: str
    tool: str
    count: int
    message: int
    forgiven: bool


@dataclass(frozen=True, slots=True)
class LaneView:
    """A line of history. run: the message that its current run began at; since: the one from which it counts, after a reset.

    sent_by: the place in the list of the lane that sent it, as far as the client says so. above_reason: why that one, or one above it,
    stands stopped, and this one with it. below_reason: why the last of those that it sent was stopped. open: its last answer made calls.
    pruned: calls left out of a message. allowed: calls that an operator allowed once.
    """

    main: bool
    sent_by: int | None
    above_reason: str | None
    below_reason: str | None
    used: float
    run: int
    since: int
    open: bool
    stopped: Stopped | None
    nudges: list[Nudged]
    pruned: list[str]
    allowed: list[str]
    calls: list[Counted]
    trail: list[Made]


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session: what it spent, its limits, its family, and each lane's trail. above: keys of the sessions it also spends from, the
    nearest first. fallen: the one below it that was stopped last. relapses: calls that stopped earlier runs."""

    session: str
    name: str | None
    state: str
    reason: str | None
    started_at: float
    expires_at: float
    calls_under_way: int
    spent: Spent
    limits: list[Limit]
    above: list[str]
    fallen: str | None
    fallen_reason: str | None
    relapses: list[str]
    stopped_lanes: int
    lanes: list[LaneView]


@dataclass(frozen=True, slots=True)
class TeamView:
    """What a team spends now. limits: its budgets in the windows of this moment. max_calls, max_sessions: the most at once."""

    team: str
    limits: list[Limit]
    spent: Spent
    calls_under_way: int
    max_calls: int | None
    sessions: int
    max_sessions: int | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a team spent in a day on a model."""

    day: str
    model: str
    steps: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The rules for a team's requests to a model. upstreams: those that would be asked, by dialect. price: dollars a million tokens.

    team_limits: the team's budgets in the windows of this moment, raised ones as they are in force; policy: the rest, by name.
    """

    team: str
    model: str
    allowed: bool
    counted_as: str
    upstreams: dict[str, str | None]
    price: dict[str, float] | None
    team_limits: list[Limit]
    policy: dict[str, Any]


def row_of(listed: Listed, peeked: Peeked | None) -> SessionRow:
    """A session of the index with its ledger, None where it has ended."""
    state, reason = ("ended", None) if peeked is None else _state(peeked)
    ledger = peeked.ledger if peeked is not None else None
    return SessionRow(
        listed.session.hex(),
        listed.listing.label,
        listed.listing.tenant or None,
        state,
        reason,
        listed.seen,
        ledger.steps if ledger else 0,
        ledger.tokens if ledger else 0,
        ledger.cost / _NANO if ledger else 0.0,
    )


def session_view(key: bytes, name: str | None, peeked: Peeked, record: Record) -> SessionView:
    """All that is known of a session."""
    state, reason = _state(peeked)
    return SessionView(
        key.hex(),
        name,
        state,
        reason,
        peeked.ledger.started_at,
        peeked.expires_at,
        peeked.calls,
        _spent(peeked),
        limits_of(peeked),
        [above.hex() for above in record.line],
        peeked.fallen.session.hex() if peeked.fallen is not None else None,
        peeked.fallen.reason if peeked.fallen is not None else None,
        [hashed(relapse.call) for relapse in record.relapses],
        record.stopped,
        _lanes(record, pardon_of(peeked.note)),
    )


def team_view(name: str, account: Account, peeked: Peeked | None) -> TeamView:
    """What a team spends. peeked: None for one that never spent."""
    if peeked is None:
        limits = [_limit(Standing(ceiling, 0, 0), raised=False) for ceiling in account.ceilings or ()]
        return TeamView(name, limits, Spent(0, 0, 0, 0.0, 0, 0, 0.0), 0, account.calls, 0, account.sessions)
    return TeamView(name, limits_of(peeked), _spent(peeked), peeked.calls, account.calls, peeked.sessions, account.sessions)


def usage_rows(rows: Iterable[Usage]) -> list[UsageRow]:
    """A team's usage, in dollars."""
    return [UsageRow(one.day, one.model, one.steps, one.input_tokens, one.output_tokens, one.cost / _NANO) for one in rows]


def policy_values(policy: Policy) -> dict[str, Any]:
    """Every rule by its name, money in dollars; a detector that is off is not there."""
    values = asdict(policy)
    cost = values["budgets"].pop("cost")
    values["budgets"]["cost_usd"] = None if cost is None else cost / _NANO
    return values


def price_values(price: Price | None) -> dict[str, float] | None:
    """A price, without its steps for long inputs."""
    return None if price is None else {"input": price.rates.input / 1e6, "output": price.rates.output / 1e6}


def unit_name(unit: Unit) -> str:
    """A unit as people say it: money in dollars."""
    return _UNITS.get(unit, str(unit))


def hashed(fingerprint: int) -> str:
    """A fingerprint as it is shown."""
    return f"{fingerprint:016x}"


def limits_of(peeked: Peeked) -> list[Limit]:
    """Every ceiling in force, and the deadline."""
    raised = {(one.unit, one.window) for one in peeked.raised}
    limits = [_limit(one, raised=(one.ceiling.unit, one.ceiling.window) in raised) for one in peeked.standings]
    if peeked.deadline is not None:
        elapsed = round(max(peeked.now - peeked.ledger.started_at, 0.0), 3)
        limits.append(Limit("deadline", peeked.deadline, elapsed, 0, "", None, peeked.raised_deadline is not None))
    return limits


def _limit(standing: Standing, *, raised: bool) -> Limit:
    ceiling: Ceiling = standing.ceiling
    scale = _NANO if ceiling.unit is Unit.COST else 1.0
    return Limit(
        unit_name(ceiling.unit),
        ceiling.limit / scale,
        standing.spent / scale,
        standing.reserved / scale,
        ceiling.window.partition(" ")[0],
        ceiling.until,
        raised,
    )


def _state(peeked: Peeked) -> tuple[str, str | None]:
    if peeked.mark is Mark.PAUSED:
        return "paused", "operator"
    if peeked.mark is Mark.STOPPED:
        return "stopped", "operator"
    return ("stopped", peeked.stop) if peeked.stop else ("active", None)


def _spent(peeked: Peeked) -> Spent:
    ledger = peeked.ledger
    return Spent(
        ledger.steps,
        ledger.input_tokens,
        ledger.output_tokens,
        ledger.cost / _NANO,
        ledger.reserved_steps,
        ledger.reserved_tokens,
        ledger.reserved_cost / _NANO,
    )


def _lanes(record: Record, pardon: Pardon) -> list[LaneView]:
    """The main one first, then those used last."""
    lanes = sorted(record.lanes, key=lambda lane: (not lane.main, -lane.used))
    return [_lane(record, lane, lanes, pardon) for lane in lanes]


def _lane(record: Record, lane: Lane, lanes: Sequence[Lane], pardon: Pardon) -> LaneView:
    sender = sender_of(record, lane)
    kept: list[tuple[int | None, KeptCall]] = [(None, call) for node in lane.before for call in node.calls]
    kept += [(number, call) for number, calls in enumerate(lane.kept, lane.offset) for call in calls]
    return LaneView(
        lane.main,
        next((place for place, one in enumerate(lanes) if one is sender), None),
        _reason(stopped_above(record, lane, pardon)),
        _reason(stopped_below(record, lane, pardon)),
        lane.used,
        lane.run,
        lane.since,
        lane.open,
        _stopped(lane.stop),
        [Nudged(str(one.reason), one.tool, one.count, one.message, one.run < 0) for one in lane.nudges],
        [hashed(call) for call in lane.pruned],
        [hashed(one.call) for one in lane.excused],
        _counted(record, [call for _, call in kept]),
        [_made(record, number, call) for number, call in kept],
    )


def _reason(stop: Stop | None) -> str | None:
    return None if stop is None else str(stop.reason)


def _stopped(stop: Stop | None) -> Stopped | None:
    return None if stop is None else Stopped(str(stop.reason), stop.tool, stop.count, stop.limit, [hashed(call) for call in stop.calls])


def _made(record: Record, number: int | None, kept: KeptCall) -> Made:
    result = None if kept.result == UNSEEN else hashed(kept.result)
    return Made(number, name_at(record, kept.name), hashed(kept.call), result, bool(kept.flags & FAILED), bool(kept.flags & VOID))


def _counted(record: Record, kept: Sequence[KeptCall]) -> list[Counted]:
    """The calls of a trail, the most frequent first."""
    found: dict[int, list[KeptCall]] = {}
    for one in kept:
        found.setdefault(one.call, []).append(one)
    counted = [
        Counted(name_at(record, same[0].name), hashed(call), len(same), len({one.result for one in same if one.result != UNSEEN}))
        for call, same in found.items()
    ]
    return sorted(counted, key=lambda one: -one.times)
