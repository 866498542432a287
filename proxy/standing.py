"""What a store's answer means to the one who asks: refused by which budget, at its end, or nearly used up."""

from collections.abc import Iterator

from proxy.budgets import NOTICE_AT, REASONS, Spending
from proxy.models import Allowance, Reason
from proxy.store import Ceiling, Opened, Unit

_NANO = 1e9


def spending_of(opened: Opened) -> Spending:
    """What the ledger said to a request."""
    refused, last = opened.refused, opened.last
    if refused is not None:
        if refused.ceiling is not None:
            return Spending(_allowance(refused.ceiling, refused.spent))
        return Spending(Allowance(REASONS[refused.kind], refused.kind, refused.limit, round(refused.spent, 3)))
    nearly = tuple(_nearly(opened))
    return Spending(None, None if last is None else _allowance(last.ceiling, last.spent), nearly)


def deadline_of(opened: Opened) -> Allowance | None:
    """The session's time, all of it spent; None without a deadline."""
    if opened.deadline is None:
        return None
    return Allowance(Reason.DEADLINE, "deadline", opened.deadline, opened.deadline)


def _nearly(opened: Opened) -> Iterator[Allowance]:
    for one in opened.standings:
        if one.spent >= NOTICE_AT * one.ceiling.limit:
            yield _allowance(one.ceiling, one.spent)
    if opened.deadline is not None and (spent := opened.now - opened.ledger.started_at) >= NOTICE_AT * opened.deadline:
        yield Allowance(Reason.DEADLINE, "deadline", opened.deadline, round(spent, 3))


def _allowance(ceiling: Ceiling, spent: float) -> Allowance:
    scale = _NANO if ceiling.unit is Unit.COST else 1
    per = ceiling.window.partition(" ")[0]
    return Allowance(REASONS[ceiling.unit], ceiling.unit, ceiling.limit / scale, spent / scale, "session", per, ceiling.until)
