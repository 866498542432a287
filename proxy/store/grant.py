"""What ledgers say to a reservation, one by one, and what their answers come to together. Shared by the stores; pure.

The session's ledger is asked together with every account's, in one round trip, so that none knows what another says. Each holds what it
granted itself; the call gets the least of all; one refusal undoes the rest.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from proxy.store.contract import Account, Kind, Ledger, Opened, Refusal, Reservation, Settlement, Standing, Stopped, Unit

_STEPS, _INPUT, _OUTPUT, _TOKENS, _COST = Unit  # the enum's own attributes cost a look-up each time
_BOUNDED = frozenset({Kind.INPUT, Kind.TOKENS, Kind.COST})  # ceilings under which a lower bound of the input leaves more room


class Hold(msgspec.Struct, frozen=True, gc=False):
    """What a call holds of a ledger while its lease lives."""

    steps: int
    input: int
    output: int
    cost: int

    def of(self, unit: Unit) -> int:
        """How much of that it is under a ceiling of that unit."""
        match unit:
            case Unit.STEPS:
                return self.steps
            case Unit.INPUT:
                return self.input
            case Unit.OUTPUT:
                return self.output
            case Unit.TOKENS:
                return self.input + self.output
            case Unit.COST:
                return self.cost


class Grant(msgspec.Struct, frozen=True, gc=False):
    """What one ledger says. standings: of its ceilings in force, this call's hold included. hold: None when it is refused.

    bound: the most input tokens that the call may have, as far as this ledger knows. ends: when its deadline passes, epoch seconds.
    stop: the reason its session's run stands stopped for.
    """

    step: int
    bound: int
    standings: tuple[Standing, ...]
    deadline: float | None
    ends: float | None
    refused: Refusal | None
    output: int | None
    last: Standing | None
    hold: Hold | None
    stop: str = ""


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """What `open` reads of the session beside the grants."""

    record: bytes | None
    version: int
    now: float
    ledger: Ledger
    in_flight: tuple[int, ...]
    fallen: Stopped | None = None
    note: bytes = b""


PICO = 1000  # pico-dollars in a nano-dollar, thousandths of a token in a token


def priced(tokens: int, rate: int) -> int:
    """What tokens come to at a rate in thousandths each, rounded up."""
    return rate and -(-tokens * rate // PICO)


def demand(unit: Unit, wanted: Reservation, bound: int) -> tuple[int, int]:
    """What a call takes of a ceiling before its answer, in the ceiling's unit, and what each token of the answer takes, in thousandths."""
    if unit is _STEPS:
        return wanted.steps, 0
    if unit is _TOKENS:
        return bound, PICO
    if unit is _COST:
        return priced(bound, wanted.input_price) + wanted.beside, wanted.output_price
    return (bound, 0) if unit is _INPUT else (0, PICO)


def fitting(wanted: Reservation, rest: int, held: int, need: int, rate: int) -> int | None:
    """The output tokens to grant of those that the rest pays for; None when they are too few for a useful answer.

    Where the answer costs nothing the input alone must fit, and what takes nothing always does. held: what would come on top of the rest
    if no other call were under way.
    """
    if not rate:
        return 0 if rest >= 0 or need == 0 else None
    available = rest * PICO // rate
    if available >= wanted.output:
        return wanted.output
    if available >= wanted.modest:
        return wanted.modest
    if available < wanted.floor or (wanted.patient and (rest + held) * PICO // rate >= wanted.modest):
        return None
    return available


def refusal_by(standings: Sequence[Standing], wanted: Reservation, bound: int) -> Refusal | None:
    """Which of the ceilings of one ledger has no room: the first that is used up, else the first of which too much is held."""
    found: Refusal | None = None
    for one in standings:
        ceiling, spent, held = one.ceiling, one.spent, one.reserved
        need, rate = demand(ceiling.unit, wanted, bound)
        left = ceiling.limit - spent - need
        if ceiling.limit > 0 and fitting(wanted, left - held, held, need, rate) is not None:
            continue
        output = wanted.modest if wanted.patient and rate and left * PICO // rate >= wanted.modest else wanted.floor
        least = need + priced(output, rate)
        refusal = Refusal(Kind(ceiling.unit), ceiling.limit, spent, held, ceiling, one.account, need=least)
        if not refusal.held:
            return refusal
        found = found or refusal
    return found


_Counted = TypeVar("_Counted", Reservation, Settlement)


def counted(call: _Counted, account: Account) -> _Counted:
    """A reservation, or a settlement, as it is counted in an account."""
    return call if account.steps is None else msgspec.structs.replace(call, steps=account.steps)


def tight(wanted: Reservation, grants: Sequence[Grant]) -> list[int]:
    """The accounts, by their places, to be asked once more with the bound that the session's own ledger knows.

    They first hold the bound that the body's size gives, several times what a session's bodies come to, and what comes of that near a
    limit is no verdict: a refusal, a short answer, a last call. Nothing to ask where a refusal has another reason.
    """
    own = grants[0]
    if own.bound >= wanted.input_bound + wanted.attached:
        return []
    refusals = [grant.refused.kind for grant in grants if grant.refused is not None]
    if own.refused is not None or not _BOUNDED.issuperset(refusals):
        return []
    return [place for place, grant in enumerate(grants[1:]) if _is_tight(grant, wanted)]


def _is_tight(grant: Grant, wanted: Reservation) -> bool:
    if grant.refused is not None or (grant.output is not None and grant.output < wanted.output):
        return True
    return grant.last is not None and Kind(grant.last.ceiling.unit) in _BOUNDED


def lowered(wanted: Reservation, own: Grant) -> Reservation:
    """The same reservation with the session's own bound of the input."""
    return msgspec.structs.replace(wanted, input_bound=own.bound - wanted.attached)


def to_undo(grants: Sequence[Grant]) -> list[int]:
    """The grants, by their places among them, that another ledger's refusal undoes."""
    if all(grant.refused is None for grant in grants):
        return []
    return [place for place, grant in enumerate(grants) if grant.hold is not None]


def opened(loaded: Loaded, grants: Sequence[Grant]) -> Opened:
    """The answer to `open`: the session's grant first, then those of the accounts in their order."""
    own = grants[0]
    refused, output, last = own.refused, own.output, own.last
    ledger, standings, ends = loaded.ledger, own.standings, own.ends
    stops: tuple[str, ...] = ()
    if len(grants) > 1:
        refused = min((grant.refused for grant in grants if grant.refused is not None), key=_is_held, default=None)
        output = min((grant.output for grant in grants if grant.output is not None), default=None)
        last = next((grant.last for grant in grants if grant.last is not None), None)
        ends = min((grant.ends for grant in grants if grant.ends is not None), default=None)
        stops = tuple([grant.stop for grant in grants[1:]])
        if refused is not None:
            output = last = None
            grants = [_undone(grant) for grant in grants]
            ledger = _without(ledger, own.hold)
        standings = tuple([standing for grant in grants for standing in grant.standings])
    return Opened(
        loaded.record,
        loaded.version,
        loaded.now,
        ledger,
        standings,
        own.deadline,
        refused,
        own.step,
        output,
        last,
        loaded.in_flight,
        ends,
        stops,
        loaded.fallen,
        loaded.note,
    )


def has_usage(settlement: Settlement) -> bool:
    """Whether it adds to a row of a team's usage."""
    amounts = (settlement.steps, settlement.input_tokens, settlement.output_tokens, settlement.cost)
    return bool(settlement.day) and any(amounts)


def settled(grant: Grant, account: int) -> Grant:
    """What a ledger says, by its place, that has settled the lease which is asked for again: it holds nothing for it."""
    return msgspec.structs.replace(_undone(grant), refused=Refusal(Kind.SETTLED, 0, 0, account=account), output=None, last=None, hold=None)


def _is_held(refusal: Refusal) -> bool:
    return refusal.held


def _undone(grant: Grant) -> Grant:
    if grant.hold is None:
        return grant
    hold = grant.hold
    freed = [msgspec.structs.replace(one, reserved=one.reserved - hold.of(one.ceiling.unit)) for one in grant.standings]
    return msgspec.structs.replace(grant, standings=tuple(freed))


def _without(ledger: Ledger, hold: Hold | None) -> Ledger:
    if hold is None:
        return ledger
    return msgspec.structs.replace(
        ledger,
        reserved_steps=ledger.reserved_steps - hold.steps,
        reserved_tokens=ledger.reserved_tokens - hold.input - hold.output,
        reserved_cost=ledger.reserved_cost - hold.cost,
    )
