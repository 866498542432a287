"""What a store's answer means to the one who asks: refused by which budget, at its end, nearly used up, or stopped from above."""

from collections.abc import Iterator, Sequence

from proxy.budgets import NOTICE_AT, REASONS, Spending
from proxy.models import Allowance, Reason
from proxy.store import Account, Ceiling, Kind, Opened, Unit

_NANO = 1e9
_NO_WORD = Spending()


def spending_of(opened: Opened, accounts: Sequence[Account] = ()) -> Spending:
    """What the ledgers said to a request. accounts: those it was reserved with."""
    refused, last = opened.refused, opened.last
    if refused is None and last is None and not opened.standings and not opened.stops and opened.deadline is None:
        return _NO_WORD
    if refused is not None:
        scope = _scope(accounts, refused.account)
        if refused.ceiling is not None:
            return Spending(_allowance(refused.ceiling, refused.spent, scope, held=refused.reserved if refused.held else None))
        if refused.kind is Kind.OPERATOR:
            return Spending(Allowance(Reason.OPERATOR, refused.mark, 0, 0, scope))
        reason = Reason.TEAM_BUDGET if scope == "team" else REASONS[refused.kind]
        return Spending(Allowance(reason, refused.kind, refused.limit, round(refused.spent, 3), scope))
    return Spending(
        last=None if last is None else _allowance(last.ceiling, last.spent, _scope(accounts, last.account)),
        nearly=tuple(_nearly(opened, accounts)),
        above=next((Reason(stop) for stop in opened.stops if stop), None),
    )


def deadline_of(opened: Opened) -> Allowance | None:
    """The time of the session, or of one above it, all of it spent; None without a deadline."""
    if opened.ends_at is None:
        return None
    own = opened.deadline
    if own is not None and opened.ledger.started_at + own <= opened.ends_at:
        return Allowance(Reason.DEADLINE, "deadline", own, own)
    return Allowance(Reason.DEADLINE, "deadline", 0, 0, "parent")


def _nearly(opened: Opened, accounts: Sequence[Account]) -> Iterator[Allowance]:
    for one in opened.standings:
        if one.spent >= NOTICE_AT * one.ceiling.limit:
            yield _allowance(one.ceiling, one.spent, _scope(accounts, one.account))
    if opened.deadline is not None and (spent := opened.now - opened.ledger.started_at) >= NOTICE_AT * opened.deadline:
        yield Allowance(Reason.DEADLINE, "deadline", opened.deadline, round(spent, 3))


def _scope(accounts: Sequence[Account], place: int) -> str:
    """Whose ledger stands at a place: -1 is the session's own."""
    if place < 0:
        return "session"
    return "team" if accounts[place].team else "parent"


def _allowance(ceiling: Ceiling, spent: float, scope: str, *, held: float | None = None) -> Allowance:
    limit: float = ceiling.limit
    if ceiling.unit is Unit.COST:
        limit, spent, held = limit / _NANO, spent / _NANO, None if held is None else held / _NANO
    reason = Reason.TEAM_BUDGET if scope == "team" else REASONS[ceiling.unit]
    return Allowance(reason, ceiling.unit, limit, spent, scope, ceiling.window.partition(" ")[0], ceiling.until, held)
