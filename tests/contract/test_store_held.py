"""What is used up and what is only held by calls under way: two different refusals, on every store."""

import os
from typing import Any

import pytest

from proxy.store import Account, Ceiling, Opened, Store, Unit
from tests.contract.test_store_accounts import team
from tests.stores import TTL, call, ceilings, cost, limited, refused, settle

__all__ = ["team"]

ONE = 1500  # tokens that a call holds, 1000 of them for its input


def held(opened: Opened) -> tuple[str, bool, int, int] | None:
    """By which limit a call was refused, whether that is only held, what is held, and what the call takes at least."""
    one = opened.refused
    return None if one is None else (str(one.kind), one.held, one.reserved, one.need)


@pytest.mark.parametrize(
    ("limits", "unit", "reserved", "need"),
    [
        ({"tokens": 2 * ONE}, "tokens", 2 * ONE, 1100),
        ({"steps": 2}, "steps", 2, 1),
        ({"input": 2000}, "input", 2000, 1000),
        ({"output": 1000}, "output", 1000, 100),
    ],
)
async def test_what_calls_under_way_hold_is_not_used_up(
    store: Store, session: bytes, limits: dict[str, int], unit: str, reserved: int, need: int
) -> None:
    """It is in the way of a third call, and of the same call when it is settled."""
    rules = limited(**limits)
    for lease in ("a", "b"):
        assert refused(await store.open(session, call(lease, **rules), TTL)) is None
    third = await store.open(session, call("c", **rules), TTL)
    for lease in ("a", "b"):
        await settle(store, session, cost(lease, input_tokens=1000, output_tokens=500, body_bytes=0))
    fourth = await store.open(session, call("d", **rules), TTL)

    assert held(third) == (unit, True, reserved, need)
    assert held(fourth) == (unit, False, 0, need)


async def test_money_that_is_held_is_not_used_up(store: Store, session: bytes, team: bytes) -> None:
    """In a team's window too, by the bounds of the call that asks."""
    day = Ceiling(Unit.COST, 2_000, "day 1", 4e9)
    paying = Account(team, (day,), team=True)
    priced: dict[str, Any] = {"input_price": 1_000, "output_price": 1_000, "accounts": (paying,)}  # a nano-dollar for each token
    first = await store.open(os.urandom(16), call("a", **priced), TTL)
    second = await store.open(session, call("b", **priced), TTL)
    larger = await store.open(session, call("c", input_bound=1950, **priced), TTL)

    assert (refused(first), held(second), held(larger)) == (None, ("cost", True, 1500, 1100), ("cost", False, 1500, 2050))
    assert second.refused is not None and (second.refused.account, second.refused.ceiling) == (0, day)


async def test_what_is_used_up_speaks_before_what_is_only_held(store: Store, session: bytes, team: bytes) -> None:
    """Within one ledger and between two: whoever would wait for the one would wait in vain."""
    await store.open(session, call("a", **limited(steps=1)), TTL)
    within = await store.open(session, call("b", **limited(steps=1, tokens=50)), TTL)
    spent_team = Account(team, ceilings(tokens=50), team=True)
    between = await store.open(session, call("b", **limited(steps=1), accounts=(spent_team,)), TTL)
    only = await store.open(session, call("b", **limited(steps=1)), TTL)

    assert (held(within), held(between), held(only)) == (("tokens", False, ONE, 1100), ("tokens", False, 0, 1100), ("steps", True, 1, 1))
    assert between.refused is not None and between.refused.account == 0


async def test_a_patient_call_is_not_cut_short_for_what_others_hold(store: Store, session: bytes) -> None:
    """Less than a modest answer is granted where so much is left for anybody, and to whoever cannot wait."""
    rules = limited(tokens=ONE + 1150)
    await store.open(session, call("a", **rules), TTL)
    patient = await store.open(session, call("b", patient=True, **rules), TTL)
    at_once = await store.open(session, call("b", **rules), TTL)
    await settle(store, session, cost("a", input_tokens=1000, output_tokens=500, body_bytes=0), cost("b", input_tokens=0, output_tokens=0))
    alone = await store.open(session, call("c", patient=True, **rules), TTL)

    assert held(patient) == ("tokens", True, ONE, 1200)
    assert (at_once.refused, at_once.output) == (None, 150)
    assert (alone.refused, alone.output) == (None, 150)


async def test_a_last_call_is_one_by_what_is_used_up(store: Store, session: bytes) -> None:
    """The tokens that others hold mostly come back; their steps do not."""
    first = await store.open(session, call("a", **limited(tokens=2 * ONE + 1099)), TTL)
    second = await store.open(session, call("b", **limited(tokens=2 * ONE + 1099)), TTL)
    third = await store.open(session, call("c", **limited(steps=3)), TTL)
    await settle(store, session, *(cost(lease, input_tokens=1000, output_tokens=500, body_bytes=0) for lease in "abc"))
    fourth = await store.open(session, call("d", **limited(tokens=4 * ONE + 1099)), TTL)

    assert (first.last, second.last) == (None, None)
    assert third.last is not None and third.last.ceiling.unit is Unit.STEPS
    assert fourth.last is not None and fourth.last.ceiling.unit is Unit.TOKENS


async def test_a_lease_that_is_settled_is_not_held_again(store: Store, session: bytes, team: bytes) -> None:
    """However late it is asked for again, as by a process that did not know: in no ledger, whichever of them has settled it."""
    paying = Account(team, ceilings(tokens=10 * ONE), team=True)
    asked = call("a", accounts=(paying,), **limited(tokens=10 * ONE))
    await store.open(session, asked, TTL)
    late = call("a", accounts=(paying,), again=True, **limited(tokens=10 * ONE))
    lapsed = await store.open(session, late, TTL)
    await settle(store, session, cost("a"))  # in the session's ledger alone: the other's is still to come
    half = await store.open(session, late, TTL)
    looks = await store.peek([Account(session), paying])

    assert (refused(lapsed), refused(half)) == (None, "settled")
    assert [(one.calls, one.ledger.reserved_tokens) for one in looks if one is not None] == [(0, 0), (0, 0)]

    other = os.urandom(16)
    await store.open(other, asked, TTL)
    await settle(store, other, cost("z"))
    (reply,) = [await store.open(other, late, TTL)]
    assert refused(reply) is None  # of another session, and never settled there
