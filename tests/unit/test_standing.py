"""What the store's answer means, in the units of people."""

import pytest

from proxy.budgets import Spending
from proxy.models import Allowance, Reason
from proxy.standing import deadline_of, spending_of
from proxy.store import Account, Ceiling, Ledger, Opened, Unit
from proxy.store.contract import Kind, Mark, Refusal, Standing

NOON = 1_700_000_000.0
DAY = Ceiling(Unit.COST, 5_000_000_000, "day 2026-11-29", NOON)


def opened(
    *standings: Standing,
    refused: Refusal | None = None,
    last: Standing | None = None,
    deadline: float | None = None,
    age: float = 0.0,
    ends_at: float | None = None,
    stops: tuple[str, ...] = (),
) -> Opened:
    ledger = Ledger(started_at=NOON - age)
    ends_at = ends_at if deadline is None else min(NOON - age + deadline, ends_at or NOON * 2)
    return Opened(None, 0, NOON, ledger, standings, deadline, refused, 1, None, last, (), ends_at, stops)


def test_nothing_is_said_while_enough_is_left() -> None:
    """A ceiling far away is not worth a word."""
    assert spending_of(opened(Standing(Ceiling(Unit.STEPS, 10), 7, 1), deadline=100, age=79)) == Spending()
    assert deadline_of(opened()) is None


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refusal(Kind.STEPS, 5, 5, 0, Ceiling(Unit.STEPS, 5)), Allowance(Reason.STEP_BUDGET, "steps", 5, 5)),
        (Refusal(Kind.INPUT, 5, 4, 9, Ceiling(Unit.INPUT, 5), need=2), Allowance(Reason.TOKEN_BUDGET, "input", 5, 4)),
        (Refusal(Kind.INPUT, 5, 4, 9, Ceiling(Unit.INPUT, 5), need=1), Allowance(Reason.TOKEN_BUDGET, "input", 5, 4, held=9)),
        (
            Refusal(Kind.COST, 5e9, 1e9, 3_900_000_000, DAY, need=10**9),
            Allowance(Reason.COST_BUDGET, "cost", 5.0, 1.0, "session", "day", NOON, 3.9),
        ),
        (Refusal(Kind.COST, 5e9, 49e8, 0, DAY), Allowance(Reason.COST_BUDGET, "cost", 5.0, 4.9, "session", "day", NOON)),
        (Refusal(Kind.DEADLINE, 60, 61.23456), Allowance(Reason.DEADLINE, "deadline", 60, 61.235)),
    ],
)
def test_a_refusal_names_its_budget(refusal: Refusal, said: Allowance) -> None:
    """With what was spent of it and when it is renewed."""
    assert spending_of(opened(Standing(Ceiling(Unit.STEPS, 5), 5, 0), refused=refusal)) == Spending(said)


def test_what_is_counted_is_whole() -> None:
    """Steps and tokens are no fractions, for whoever reads them in an answer or in the log."""
    refusal = Refusal(Kind.STEPS, 5, 3, 2, Ceiling(Unit.STEPS, 5), need=1)
    told = spending_of(opened(refused=refusal)).refused
    assert told is not None
    assert [type(one) for one in (told.limit, told.spent, told.held)] == [int, int, int]


def test_a_last_call_names_the_budget_it_exhausts() -> None:
    """Money is shown in dollars."""
    last = Standing(DAY, 4_500_000_000, 100)
    said = Allowance(Reason.COST_BUDGET, "cost", 5.0, 4.5, "session", "day", NOON)
    assert spending_of(opened(last, last=last)) == Spending(None, said, (said,))


def test_budgets_are_nearly_used_up_at_four_fifths() -> None:
    """Each of them, the time too."""
    told = spending_of(opened(Standing(Ceiling(Unit.STEPS, 10), 8, 1), Standing(Ceiling(Unit.TOKENS, 0), 0, 0), deadline=100, age=80))
    assert told.nearly == (
        Allowance(Reason.STEP_BUDGET, "steps", 10, 8),
        Allowance(Reason.TOKEN_BUDGET, "tokens", 0, 0),
        Allowance(Reason.DEADLINE, "deadline", 100, 80.0),
    )


def test_the_time_of_a_session_is_over_as_a_whole() -> None:
    """However late one looks; of two, the one that ends first."""
    own, parents = Allowance(Reason.DEADLINE, "deadline", 60, 60), Allowance(Reason.DEADLINE, "deadline", 0, 0, "parent")
    assert deadline_of(opened(deadline=60, age=5)) == own
    assert deadline_of(opened(deadline=60, ends_at=NOON + 90)) == own
    assert deadline_of(opened(deadline=60, ends_at=NOON + 30)) == parents
    assert deadline_of(opened(ends_at=NOON + 30)) == parents


ACCOUNTS = (Account(b"p"), Account(b"t", team=True))


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refusal(Kind.STEPS, 5, 5, 0, Ceiling(Unit.STEPS, 5), 0), Allowance(Reason.STEP_BUDGET, "steps", 5, 5, "parent")),
        (Refusal(Kind.COST, 5e9, 5e9, 0, DAY, 1), Allowance(Reason.TEAM_BUDGET, "cost", 5.0, 5.0, "team", "day", NOON)),
        (Refusal(Kind.DEADLINE, 60, 61, account=0), Allowance(Reason.DEADLINE, "deadline", 60, 61, "parent")),
        (Refusal(Kind.OPERATOR, 0, 0, account=0, mark=Mark.PAUSED), Allowance(Reason.OPERATOR, "paused", 0, 0, "parent")),
        (Refusal(Kind.CALLS, 4, 4, account=1), Allowance(Reason.TEAM_BUDGET, "calls", 4, 4, "team")),
    ],
)
def test_a_refusal_names_whose_budget_it_is(refusal: Refusal, said: Allowance) -> None:
    """A parent's is like one's own; a team's has a reason of its own."""
    assert spending_of(opened(refused=refusal), ACCOUNTS) == Spending(said)


def test_a_stop_above_is_passed_on() -> None:
    """The nearest first; a team is never stopped so."""
    assert spending_of(opened(stops=("", "cycle", "repeated_call")), ACCOUNTS) == Spending(above=Reason.CYCLE)
    last = Standing(DAY, 4_500_000_000, 100, 1)
    told = spending_of(opened(last, last=last), ACCOUNTS)
    assert (told.last and told.last.scope, [one.scope for one in told.nearly]) == ("team", ["team"])
