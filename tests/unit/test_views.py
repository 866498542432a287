"""What operators are shown: the shapes, the units, and that nothing else is in them."""

from dataclasses import asdict

import pytest

from proxy.models import Reason
from proxy.outcomes import FAILED, VOID
from proxy.policy import Budgets, Policy
from proxy.prices import Price, rates_of
from proxy.state import Excused, KeptCall, Lane, Node, Nudge, Record, Relapse, Stop
from proxy.store import Account, Ceiling, Ledger, Listed, Listing, Mark, Peeked, Standing, Stopped, Unit, Usage
from proxy.views import limits_of, policy_values, price_values, row_of, session_view, team_view, usage_rows

KEY = bytes(range(16))
DAY = Ceiling(Unit.COST, 5_000_000_000, "day 2026-11-29", 1700.0)
LEDGER = Ledger(3, 100, 50, 7_000_000, 1, 200, 9_000_000, started_at=900.0)


def peeked(**changed: object) -> Peeked:
    values: dict[str, object] = {
        "record": None,
        "version": 1,
        "now": 1000.0,
        "expires_at": 4600.0,
        "ledger": LEDGER,
        "standings": (Standing(Ceiling(Unit.STEPS, 10), 3, 1), Standing(DAY, 7_000_000, 0)),
        "deadline": 300.0,
        "calls": 1,
        "sessions": 0,
    }
    return Peeked(**(values | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, ("active", None)),
        ({"stop": "cycle"}, ("stopped", "cycle")),
        ({"stop": "cycle", "mark": Mark.PAUSED}, ("paused", "operator")),
        ({"mark": Mark.STOPPED}, ("stopped", "operator")),
    ],
)
def test_a_row_says_how_a_session_stands(changed: dict[str, object], state: tuple[str, str | None]) -> None:
    """An operator's word before the run's own end; dollars; a session without a team has none."""
    row = row_of(Listed(KEY, Listing("", "run 1"), 990.0), peeked(**changed))
    assert (row.state, row.reason) == state
    assert (row.session, row.name, row.team, row.steps, row.tokens, row.cost_usd) == (KEY.hex(), "run 1", None, 3, 150, 0.007)


def test_a_session_that_has_ended_is_a_row_without_sums() -> None:
    """The index may outlive it."""
    row = row_of(Listed(KEY, Listing("red", "run 1"), 990.0), None)
    assert (row.state, row.team, row.steps, row.cost_usd) == ("ended", "red", 0, 0.0)


def test_limits_are_in_the_units_of_people() -> None:
    """Dollars and seconds; what an operator raised is marked."""
    steps, cost, deadline = limits_of(peeked(raised=(Ceiling(Unit.STEPS, 10),), raised_deadline=300.0))
    assert (steps.unit, steps.limit, steps.spent, steps.reserved, steps.raised) == ("steps", 10, 3, 1, True)
    assert (cost.unit, cost.limit, cost.spent, cost.per, cost.resets_at, cost.raised) == ("cost_usd", 5.0, 0.007, "day", 1700.0, False)
    assert (deadline.unit, deadline.limit, deadline.spent, deadline.raised) == ("deadline", 300.0, 100.0, True)
    assert len(limits_of(peeked(deadline=None, standings=()))) == 0


def test_a_session_is_shown_lane_by_lane() -> None:
    """The main one first, its calls in order and counted, what it was told and why it stands stopped."""
    kept = [(KeptCall(5, 70, 0),), (KeptCall(5, 0, 0), KeptCall(6, 71, 1, FAILED | VOID))]
    main = Lane(0, 0, 0, 5.0, 4, [1, 2], kept, run=4, main=True, pruned=[6], excused=[Excused(5, 6)])
    main.before = [Node(3, (KeptCall(5, 72, 0),))]
    main.stop = Stop(Reason.CYCLE, "read", 5, 5, [5, 6])
    main.nudges = [Nudge(4, -1, 1, -1, Reason.CYCLE, "read", 3, [5])]
    record = Record(1, 7, ["read", "bash"], [Lane(1, 0, 0, 9.0), main], relapses=[Relapse(6, 1)], stopped=1, line=[b"\x01" * 16])
    view = session_view(KEY, "run 1", peeked(fallen=Stopped(b"\x02" * 16, "cycle")), record)
    shown, other = view.lanes

    assert (view.above, view.fallen, view.fallen_reason, view.relapses) == (["01" * 16], "02" * 16, "cycle", ["0000000000000006"])
    assert (shown.main, other.main, other.stopped, shown.run) == (True, False, None, 4)
    assert [(made.message, made.tool, made.call[-1], made.result and made.result[-2:], made.failed, made.void) for made in shown.trail] == [
        (None, "read", "5", "48", False, False),
        (4, "read", "5", "46", False, False),
        (5, "read", "5", None, False, False),
        (5, "bash", "6", "47", True, True),
    ]
    assert [(call.tool, call.times, call.results) for call in shown.calls] == [("read", 3, 2), ("bash", 1, 1)]
    assert shown.stopped is not None and shown.stopped.calls == ["0000000000000005", "0000000000000006"]
    assert (shown.nudges[0].count, shown.nudges[0].forgiven, shown.pruned, shown.allowed) == (3, True, shown.pruned, ["0000000000000005"])
    assert session_view(KEY, None, peeked(), Record(1, 7)).fallen is None


def test_a_team_is_shown_before_it_ever_spent() -> None:
    """With its budgets, and nothing spent of them."""
    account = Account(KEY, (DAY,), calls=4, sessions=2, team=True)
    new, used = team_view("red", account, None), team_view("red", account, peeked(sessions=1))
    assert [(limit.unit, limit.spent) for limit in new.limits] == [("cost_usd", 0.0)]
    assert (new.max_calls, new.max_sessions, new.spent.steps) == (4, 2, 0)
    assert (used.sessions, used.calls_under_way, used.spent.reserved_cost_usd) == (1, 1, 0.009)


def test_rules_and_prices_are_in_dollars() -> None:
    """A million tokens at a time; None stays none."""
    values = policy_values(Policy(budgets=Budgets(cost=1_500_000_000)))
    assert (values["budgets"]["cost_usd"], "cost" in values["budgets"], values["mode"]) == (1.5, False, "enforce")
    assert policy_values(Policy())["budgets"]["cost_usd"] is None
    assert price_values(Price(rates_of(2_500_000, 10_000_000))) == {"input": 2.5, "output": 10.0}
    assert price_values(None) is None
    assert asdict(usage_rows([Usage("2026-11-29", "gpt-*", 1, 2, 3, 4_000_000)])[0])["cost_usd"] == 0.004
