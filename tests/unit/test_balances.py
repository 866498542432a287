"""What is left of teams' budgets: told at every look, as unknown while the store cannot be asked."""

import asyncio
import contextlib
from typing import Any

from proxy.balances import watch
from proxy.errors import StoreUnavailable
from proxy.events import BudgetSeen, BudgetsSeen
from proxy.views import Limit, Spent, TeamView

SPENT = Spent(0, 0, 0, 0.0, 0, 0, 0.0)
RED = TeamView(
    "red", [Limit("tokens", 900, 300, 50, "day", 5e9, False), Limit("cost_usd", 2.5, 0, 0, "month", 6e9, True)], SPENT, 0, 1, 0, 1
)


class Desk:
    """Whose store answers, is away, and answers again."""

    def __init__(self) -> None:
        self.answers: list[list[TeamView] | None] = [[RED], None, [RED, TeamView("blue", [], SPENT, 0, None, 0, None)]]

    async def teams(self) -> list[TeamView]:
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if answer is None:
            raise StoreUnavailable("away")
        return answer


async def test_every_look_is_told() -> None:
    """All budgets of all teams, or that nothing is known; until it is cancelled."""
    told: list[BudgetsSeen] = []
    desk: Any = Desk()
    with contextlib.suppress(asyncio.CancelledError):
        await watch(desk, told.append, every=0)

    red = (BudgetSeen("red", "tokens", "day", 900, 300, 5e9), BudgetSeen("red", "cost_usd", "month", 2.5, 0, 6e9))
    assert [one.budgets for one in told] == [red, (), red]
