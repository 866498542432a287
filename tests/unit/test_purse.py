"""What is reserved for a call in every ledger, and what is charged in the end."""

import msgspec

from proxy.budgets import TEMPLATE_TOKENS, Estimate
from proxy.identity import Identity, Tighten
from proxy.models import Request, Usage
from proxy.policy import Budgets
from proxy.prices import Price, Units, rates_of
from proxy.purse import LEASE_SECONDS, Purse, accounts_of, ceilings_of
from proxy.store import Account, Ceiling, Settlement, Unit
from proxy.tenants import Cap, Quota

DOLLAR_A_MILLION = 1_000_000  # pico-dollars a token
PRICE = Price(rates_of(DOLLAR_A_MILLION, 10 * DOLLAR_A_MILLION, cached=DOLLAR_A_MILLION // 2))
REQUEST = Request(b"x" * 1_000, "m", (), max_output=100)
PARENT, TEAM = Account(b"p"), Account(b"t", team=True)


def identity(tighten: Tighten) -> Identity:
    return Identity("k", None, "derived", None, False, tighten)


def test_a_reservation_holds_the_worst_case() -> None:
    """In tokens, and at the dearest price that a token may have."""
    purse = Purse(PRICE, (PARENT, TEAM))
    asked = purse.reservation("l", 7, REQUEST, Budgets(steps=5, cost=9, deadline=60), identity(Tighten(tokens=50, cost=3)))

    assert (asked.lease, asked.tag, asked.steps, asked.expires_in) == ("l", 7, 1, LEASE_SECONDS)
    assert (asked.input_bound, asked.output) == (1_000 + TEMPLATE_TOKENS, 100)
    assert (asked.input_price, asked.output_price) == (DOLLAR_A_MILLION, 10 * DOLLAR_A_MILLION)
    assert asked.ceilings == (Ceiling(Unit.STEPS, 5), Ceiling(Unit.COST, 9))
    assert asked.tighten == (Ceiling(Unit.TOKENS, 50), Ceiling(Unit.COST, 3))
    assert (asked.deadline, asked.tighten_deadline, asked.accounts) == (60, None, (PARENT, TEAM))


def test_the_tier_that_is_asked_for_is_held() -> None:
    """As far as it is dearer."""
    purse = Purse(Price(rates_of(1, 2), tiers=(("priority", Price(rates_of(3, 4))), ("flex", Price(rates_of(0, 1))))))
    asked = [
        purse.reservation("l", 7, msgspec.structs.replace(REQUEST, tier=tier), Budgets(), identity(Tighten()))
        for tier in ("", "priority", "flex", "x")
    ]
    assert [(one.input_price, one.output_price) for one in asked] == [(1, 2), (3, 4), (1, 2), (1, 2)]


def test_what_is_paid_beside_tokens_is_held_whole() -> None:
    """However little a session's bodies come to; the searches that a request names among it."""
    purse = Purse(Price(rates_of(1_000, 0), units=Units(search=10_000_000)))
    asked = purse.holding("l", 0, Estimate(300, 7, 0, 0, 0), 0, beside=1_000_001)
    searching = purse.reservation("l", 7, msgspec.structs.replace(REQUEST, searches=3), Budgets(), identity(Tighten()))
    unpriced = Purse().reservation("l", 7, msgspec.structs.replace(REQUEST, searches=3), Budgets(), identity(Tighten()))
    assert [(one.input_price, one.beside) for one in (asked, searching, unpriced)] == [(1_000, 1_000_001), (1_000, 30_000), (0, 0)]


def test_without_a_price_nothing_is_held_in_money() -> None:
    """A model that nobody prices, where that is allowed."""
    asked = Purse().reservation("l", 7, REQUEST, Budgets(), identity(Tighten()))
    assert (asked.input_price, asked.output_price, asked.ceilings, asked.tighten) == (0, 0, (), ())


def test_a_call_is_charged_by_kind_of_token() -> None:
    """100 plain at a dollar a million, 100 cached at half of it, 10 out at ten."""
    settled = Purse(PRICE, (TEAM,)).settlement("l", Usage(200, 10, cached_tokens=100), completed=True, body_bytes=900)
    assert settled == Settlement("l", 1, 200, 10, 900, 250_000, accounts=(TEAM,))


def test_what_is_no_step_is_charged_all_the_same() -> None:
    """And what broke off is no step either."""
    assert Purse(PRICE, steps=0).settlement("l", Usage(100, 0), completed=True, body_bytes=0) == Settlement("l", 0, 100, 0, 0, 100_000)
    assert Purse().settlement("l", Usage(100, 3), completed=False, body_bytes=0) == Settlement("l", 0, 100, 3, 0)


def test_a_call_that_was_never_made_costs_nothing_anywhere() -> None:
    """Its leases end."""
    assert Purse(PRICE, (PARENT, TEAM)).nothing("l") == Settlement("l", 0, 0, 0, 0, accounts=(PARENT, TEAM))


def test_ceilings_stand_in_the_order_of_their_units() -> None:
    """None is none; zero is one."""
    assert ceilings_of(None, None, None, None, None) == ()
    assert [one.unit for one in ceilings_of(1, 2, 3, 4, 5)] == list(Unit)
    assert ceilings_of(None, None, None, 0, None) == (Ceiling(Unit.TOKENS, 0),)


def test_who_else_pays() -> None:
    """The sessions above, the nearest first, then the team, where the eldest counts as the session."""
    quota = Quota((Cap("cost", 5, "day 2026-11-29+0000", 9.0),), requests=4, sessions=2)
    ceiling = Ceiling(Unit.COST, 5, "day 2026-11-29+0000", 9.0)
    assert accounts_of((), b"", Quota()) == ()
    assert accounts_of((b"p", b"g"), b"", Quota()) == (Account(b"p"), Account(b"g"))
    assert accounts_of((), b"t", Quota()) == (Account(b"t", (), team=True),)
    assert accounts_of((b"p", b"g"), b"t", quota)[2] == Account(b"t", (ceiling,), calls=4, sessions=2, member=b"g", team=True)
