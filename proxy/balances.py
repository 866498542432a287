"""What is left of teams' budgets, looked at regularly for those who watch metrics; no request does anything for it."""

import asyncio
from collections.abc import Callable

from proxy.desk import Desk
from proxy.errors import StoreUnavailable
from proxy.events import BudgetSeen, BudgetsSeen
from proxy.views import Limit, TeamView

LOOK_EVERY = 15.0
"""Seconds. A look is one round trip to the store, for all teams."""


async def watch(desk: Desk, tell: Callable[[BudgetsSeen], object], *, every: float = LOOK_EVERY) -> None:
    """Looks until it is cancelled. What it cannot see it tells as unknown: a number of yesterday would pass for today's."""
    while True:
        try:
            tell(seen(await desk.teams()))
        except StoreUnavailable:
            tell(BudgetsSeen(()))
        await asyncio.sleep(every)


def seen(teams: list[TeamView]) -> BudgetsSeen:
    """The budgets of all teams."""
    return BudgetsSeen(tuple([_budget(view.team, limit) for view in teams for limit in view.limits]))


def _budget(team: str, limit: Limit) -> BudgetSeen:
    return BudgetSeen(team, limit.unit, limit.per, limit.limit, limit.spent, limit.resets_at or 0.0)
