"""The contract of every store where a call spends from more than its session: teams, ancestor sessions, windows, numbers at once."""

import asyncio
import os
from typing import Any

import msgspec
import pytest

from proxy.store import Account, Ceiling, Opened, Settlement, Stopped, Store, Unit, Usage
from proxy.store.memory import MemoryStore
from tests.stores import TTL, call, ceilings, limited, refused, settle, tightened, until_expired

FOREVER = 4e9


@pytest.fixture
def team() -> bytes:
    return b"team" + os.urandom(12)


def account(key: bytes, *, day: str = "", **members: Any) -> Account:
    """A team's. Limits by unit are for the day, if one is named."""
    of_day = [Ceiling(unit, members.pop(unit), day, FOREVER if day else None) for unit in Unit if unit in members]
    settled: dict[str, Any] = {"ceilings": tuple(of_day), "team": True}
    return Account(key, **settled | members)


def paid(lease: str, *accounts: Account, **members: Any) -> Settlement:
    """100 tokens of input, 50 of output, one step, 7 nano-dollars."""
    usual: dict[str, Any] = {"steps": 1, "input_tokens": 100, "output_tokens": 50, "body_bytes": 0, "cost": 7}
    return Settlement(lease, accounts=accounts, **usual | members)


def used(opened: Opened, place: int = 0) -> list[tuple[str, int, int]]:
    """Of each ceiling of the account at that place: its unit, what is spent and what is held."""
    return [(str(one.ceiling.unit), one.spent, one.reserved) for one in opened.standings if one.account == place]


async def spent(store: Store, key: bytes) -> dict[str, list[int]]:
    """What is spent and held in a team's ledger, by unit."""
    everything = Account(key, ceilings(**dict.fromkeys(Unit, 10**12)), team=True)
    looking = call("look", steps=0, input_bound=0, output=0, modest=0, floor=0, accounts=(everything,))
    opened = await store.open(os.urandom(16), looking, TTL)
    return {unit: amounts for unit, *amounts in used(opened)}


# All or nothing


async def test_a_call_holds_and_pays_in_every_ledger(store: Store, session: bytes, team: bytes) -> None:
    """The session, its ancestor and the team, each under its own ceilings."""
    parent = os.urandom(16)
    accounts = (account(team, day="day 1", tokens=9000, cost=99), Account(parent, ceilings(steps=5)))
    opened = await store.open(session, call("a", **limited(steps=9), input_price=1000, output_price=10, accounts=accounts), TTL)
    await settle(store, session, paid("a", *accounts))
    again = await store.open(session, call("b", **limited(steps=9), input_price=1, output_price=1, accounts=accounts), TTL)

    assert refused(opened) == "cost"  # 1000 tokens of input at a nano-dollar each
    assert refused(again) is None
    assert used(again, -1) == [("steps", 1, 1)]
    assert used(again, 0) == [("tokens", 150, 1500), ("cost", 7, 2)]
    assert used(again, 1) == [("steps", 1, 1)]


async def test_a_call_may_be_a_step_in_one_ledger_and_none_in_another(store: Store, session: bytes, team: bytes) -> None:
    """Reserved, refused, settled and given back as each counts it; in the rows of a team's usage too."""
    parent, rows = os.urandom(16), account(team, steps=1, tokens=9000)
    counting = msgspec.structs.replace(rows, steps=1)
    free = Account(parent, ceilings(steps=1))
    wanted = {"steps": 0, "accounts": (free, counting), **limited(steps=1)}
    granted = await store.open(session, call("a", **wanted), TTL)
    crowded = await store.open(session, call("b", **wanted), TTL)
    held = await spent(store, team)
    uncounted = (free, msgspec.structs.replace(rows, steps=0))
    await settle(store, session, paid("a", *uncounted, steps=0, model="m", day="2026-11-29"))
    await store.open(session, call("c", **wanted), TTL)
    await settle(store, session, paid("c", free, counting, steps=0, model="m", day="2026-11-29"))

    assert (refused(granted), used(granted, -1), used(granted, 0)) == (None, [("steps", 0, 0)], [("steps", 0, 0)])
    assert used(granted, 1) == [("steps", 0, 1), ("tokens", 0, 1500)]
    assert refused(crowded) == "steps"
    assert held["steps"] == [0, 1]
    assert (await spent(store, team))["steps"] == [1, 0]
    assert await store.usage(team, ["2026-11-29"]) == [Usage("2026-11-29", "m", 1, 200, 100, 14)]
    (own,) = await store.peek([Account(session)])
    assert own is not None and (own.ledger.steps, own.ledger.tokens) == (0, 300)


async def test_a_call_that_cost_more_than_can_be_counted_breaks_no_ledger(store: Store, session: bytes, team: bytes) -> None:
    """An upstream may report what it likes, and as often as it likes: everything is settled, and calls are refused and served as before."""
    rows = account(team, day="day 1", cost=10**12)
    usual: dict[str, Any] = {"input_price": 1, "output_price": 1, "accounts": (rows,)}
    absurd = {"input_tokens": 2**53, "output_tokens": 2**53, "cost": 10**21, "model": "m", "day": "2026-11-29"}
    await store.open(session, call("0", **usual), TTL)
    for many in range(3):
        await settle(store, session, *[paid(f"{many}:{one}", rows, **absurd) for one in range(1000)])
    refusing = await store.open(session, call("a", **usual), TTL)
    serving = await store.open(session, call("b", **limited(steps=10_000)), TTL)
    (own,) = await store.peek([Account(session)])
    (row,) = await store.usage(team, ["2026-11-29"])

    assert refused(refusing) == "cost"
    assert refused(serving) is None
    assert own is not None
    assert (own.ledger.steps, serving.ledger.reserved_steps) == (3000, 2)
    assert min(own.ledger.tokens, own.ledger.cost, row.input_tokens, row.output_tokens, row.cost) >= 2**53


async def test_one_refusal_undoes_the_rest(store: Store, session: bytes, team: bytes) -> None:
    """What the session and the other accounts had granted is given back before the answer, and told so."""
    rich, poor = account(team, tokens=9000), account(team + b"'", tokens=1200)
    first = await store.open(session, call("a", **limited(tokens=5000), accounts=(rich, poor)), TTL)
    second = await store.open(session, call("b", **limited(tokens=5000), accounts=(rich, poor)), TTL)
    third = await store.open(session, call("c", **limited(tokens=5000), accounts=(rich,)), TTL)

    assert (refused(first), first.output) == (None, 200)
    assert second.refused is not None
    assert (second.refused.account, second.refused.kind, second.refused.limit, second.refused.reserved) == (1, "tokens", 1200, 1200)
    assert (second.output, second.last) == (None, None)
    assert (second.ledger, second.standings) == (first.ledger, first.standings)
    assert used(third) == [("tokens", 0, 3000)]
    assert (await spent(store, team + b"'"))["tokens"] == [0, 1200]


async def test_the_sessions_own_refusal_comes_first(store: Store, session: bytes, team: bytes) -> None:
    """Then the accounts' in their order; nobody holds anything."""
    accounts = (account(team, steps=0), account(team + b"'", tokens=0))
    own = await store.open(session, call("a", **limited(steps=0), accounts=accounts), TTL)
    others = await store.open(session, call("b", accounts=accounts), TTL)

    assert own.refused is not None and others.refused is not None
    assert (own.refused.account, others.refused.account) == (-1, 0)
    assert [one.reserved for one in own.standings + others.standings] == [0] * 5


async def test_the_call_gets_the_least_of_all(store: Store, session: bytes, team: bytes) -> None:
    """The output that the poorest grants; the first ceiling that leaves no room for another call; the earliest deadline."""
    accounts = (account(team, output=300), account(team + b"'", deadline=50.0, tokens=2000))
    opened = await store.open(session, call("a", **limited(steps=9, deadline=90.0), accounts=accounts), TTL)

    assert (refused(opened), opened.output, opened.deadline) == (None, 200, 90.0)
    assert opened.last is not None
    assert (opened.last.account, opened.last.ceiling.unit) == (1, Unit.TOKENS)
    assert opened.ends_at is not None
    assert abs(opened.ends_at - opened.now - 50.0) < 5.0


@pytest.mark.parametrize("limits", [{"steps": 30}, {"tokens": 30 * 1500}, {"calls": 30}])
async def test_concurrent_sessions_never_pass_an_accounts_limit(store: Store, team: bytes, limits: dict[str, Any]) -> None:
    """Every session is another one: only the account can hold them."""
    paying = account(team, **limits)
    calls = (store.open(os.urandom(16), call(f"{i}", modest=500, floor=500, accounts=(paying,)), TTL) for i in range(120))
    answers = await asyncio.gather(*calls)

    assert sum(answer.refused is None for answer in answers) == 30
    assert (await spent(store, team))["tokens"] == [0, 30 * 1500]


# Settling


async def test_every_account_is_charged_once(store: Store, session: bytes, team: bytes) -> None:
    """However often the settlement comes, also after its lease is gone."""
    paying = account(team, tokens=9000)
    await store.open(session, call("a", accounts=(paying,)), TTL)
    for _ in range(3):
        await settle(store, session, paid("a", paying), paid("late", paying))

    assert await spent(store, team) == {"steps": [2, 0], "input": [200, 0], "output": [100, 0], "tokens": [300, 0], "cost": [14, 0]}


async def test_a_call_is_charged_to_the_window_it_was_reserved_in(store: Store, session: bytes, team: bytes) -> None:
    """It may end in the next one, where it neither holds nor costs anything."""
    today, tomorrow = account(team, day="day 1", tokens=9000), account(team, day="day 2", tokens=9000)
    await store.open(session, call("a", accounts=(today,)), TTL)
    meanwhile = await store.open(session, call("b", accounts=(tomorrow,)), TTL)
    await settle(store, session, paid("a", today))
    later = await store.open(session, call("c", accounts=(tomorrow,)), TTL)
    looking_back = await store.open(session, call("d", accounts=(today,)), TTL)

    assert used(meanwhile) == [("tokens", 0, 1500)]
    assert used(later) == [("tokens", 0, 3000)]
    assert used(looking_back) == [("tokens", 150, 1500)]


async def test_a_window_long_over_is_forgotten(store: Store, session: bytes, team: bytes) -> None:
    """When another begins: what is kept does not grow with the days."""
    old = Account(team, (Ceiling(Unit.TOKENS, 9000, "day 1", 1000.0),), team=True)
    new = Account(team, (Ceiling(Unit.TOKENS, 9000, "day 2", FOREVER),), team=True)
    await store.open(session, call("a", accounts=(old,)), TTL)
    await store.open(session, call("b", accounts=(new,)), TTL)
    await settle(store, session, paid("a", new))
    again = await store.open(session, call("c", accounts=(old, Account(team + b"'", team=True))), TTL)

    assert used(again) == [("tokens", 0, 1500)]


# At once


async def test_calls_at_once_are_bounded(store: Store, session: bytes, team: bytes) -> None:
    """Whoever ends makes room."""
    paying = account(team, calls=2)
    answers = [await store.open(os.urandom(16), call(lease, accounts=(paying,)), TTL) for lease in "abc"]
    await settle(store, session, paid("a", paying))
    after = await store.open(session, call("d", accounts=(paying,)), TTL)

    assert [refused(answer) for answer in answers] == [None, None, "calls"]
    assert answers[2].refused is not None
    assert (answers[2].refused.limit, answers[2].refused.spent, answers[2].refused.account) == (2, 2, 0)
    assert refused(after) is None


async def test_sessions_at_once_are_bounded(store: Store, team: bytes) -> None:
    """A session goes on being there between its calls; new names do not help; a child may count as its ancestor."""
    paying = account(team, sessions=2)
    one, two, three, child = (os.urandom(16) for _ in range(4))
    for who in (one, two):
        await store.open(who, call("first", accounts=(paying,)), TTL)
        await settle(store, who, paid("first", paying))
    newcomer = await store.open(three, call("a", accounts=(paying,)), TTL)
    old = await store.open(one, call("b", accounts=(paying,)), TTL)
    below = await store.open(child, call("c", accounts=(account(team, sessions=2, member=one),)), TTL)

    assert newcomer.refused is not None
    assert (newcomer.refused.kind, newcomer.refused.limit, newcomer.refused.spent) == ("sessions", 2, 2)
    assert (refused(old), refused(below)) == (None, None)


async def test_an_idle_session_leaves(store: Store, team: bytes) -> None:
    """Some time after its last call; a renewed lease keeps it there."""
    paying, longer = account(team, sessions=1, idle=0.05), account(team, sessions=1, idle=60.0)
    one, two, three = (os.urandom(16) for _ in range(3))
    await store.open(one, call("a", accounts=(paying,)), TTL)
    await until_expired(store, os.urandom(16), 0.1)
    second = await store.open(two, call("b", accounts=(paying,)), TTL)
    assert await store.renew(two, "b", (longer,), 600.0)
    await until_expired(store, os.urandom(16), 0.1)
    third = await store.open(three, call("c", accounts=(paying,)), TTL)

    assert (refused(second), refused(third)) == (None, "sessions")


async def test_whoever_was_refused_is_not_there(store: Store, team: bytes) -> None:
    """A session that another ledger refused takes no place; one that has another call keeps it."""
    paying, none = account(team, sessions=1), account(team + b"'", steps=0)
    one, two = os.urandom(16), os.urandom(16)
    turned_away = await store.open(one, call("a", accounts=(paying, none)), TTL)
    first = await store.open(two, call("b", accounts=(paying,)), TTL)
    await store.open(two, call("c", accounts=(paying, none)), TTL)
    third = await store.open(one, call("d", accounts=(paying,)), TTL)

    assert [refused(answer) for answer in (turned_away, first, third)] == ["steps", None, "sessions"]


async def test_none_at_once_is_none_at_all(store: Store, session: bytes, team: bytes) -> None:
    """Zero is a limit."""
    answers = [await store.open(session, call("a", accounts=(none,)), TTL) for none in (account(team, calls=0), account(team, sessions=0))]

    assert [refused(answer) for answer in answers] == ["calls", "sessions"]


# Leases


async def test_nothing_stays_held_longer_than_its_lease(store: Store, session: bytes, team: bytes) -> None:
    """In no ledger, and a renewed one no shorter."""
    paying = account(team, calls=2, tokens=9000)
    await store.open(session, call("crashed", expires_in=0.05, accounts=(paying,)), TTL)
    await store.open(session, call("alive", expires_in=0.05, accounts=(paying,)), TTL)
    assert await store.renew(session, "alive", (paying,), 600.0)
    await until_expired(store, os.urandom(16), 0.1)
    opened = await store.open(session, call("next", accounts=(paying,)), TTL)

    assert refused(opened) is None
    assert used(opened) == [("tokens", 0, 3000)]
    assert opened.ledger.reserved_steps == 2


async def test_a_lease_that_is_gone_cannot_be_renewed(store: Store, session: bytes, team: bytes) -> None:
    """Settled, let go by one ledger, or never opened."""
    paying = account(team, tokens=9000)
    for lease in "ab":
        await store.open(session, call(lease, accounts=(paying,)), TTL)
    await settle(store, session, paid("a", paying))
    await settle(store, os.urandom(16), paid("b", paying))

    assert not await store.renew(session, "a", (paying,), 600.0)
    assert not await store.renew(session, "b", (paying,), 600.0)
    assert await store.renew(session, "b", (), 600.0)
    assert not await store.renew(os.urandom(16), "c", (Account(os.urandom(16)),), 600.0)


async def test_an_open_sent_again_holds_once_in_every_ledger(store: Store, session: bytes, team: bytes) -> None:
    """Also where it made its session count."""
    paying, none = account(team, calls=1, sessions=1, tokens=9000), account(team + b"'", steps=0)
    for _ in range(3):
        opened = await store.open(session, call("a", accounts=(paying,)), TTL)
    await store.open(session, call("a", accounts=(paying, none)), TTL)
    other = await store.open(os.urandom(16), call("b", accounts=(paying,)), TTL)

    assert (refused(opened), used(opened)) == (None, [("tokens", 0, 1500)])
    assert refused(other) is None


# The bound of the input


async def test_an_account_that_is_nearly_used_up_is_asked_again_with_the_sessions_own_bound(
    store: Store, session: bytes, team: bytes
) -> None:
    """It holds the plain bound first, a multiple of what bodies come to: near its limit that would refuse, shorten or end what fits."""
    plenty, enough, little = (account(team + name, tokens=limit) for name, limit in ((b"1", 99_999), (b"2", 4000), (b"3", 900)))
    await settle(store, session, Settlement("a", 1, 100, 10, 1000))
    sized = {"body_bytes": 1000, "input_bound": 3000, "modest": 500, "floor": 500}
    answers = [
        await store.open(session, call(name, **sized, accounts=(paying,)), TTL)
        for name, paying in (("b", plenty), ("c", enough), ("d", little))
    ]

    assert [(refused(answer), answer.output, answer.last) for answer in answers[:2]] == [(None, 500, None)] * 2
    assert [used(answer) for answer in answers[:2]] == [[("tokens", 0, 3500)], [("tokens", 0, 111 + 512 + 500)]]
    assert refused(answers[2]) == "tokens"
    assert answers[2].ledger.reserved_tokens == 2 * (111 + 512 + 500)


async def test_an_account_is_not_asked_again_where_that_cannot_help(store: Store, session: bytes, team: bytes) -> None:
    """Its own refusal stands when steps are used up, whatever the tokens would have said."""
    await settle(store, session, Settlement("a", 1, 100, 10, 1000))
    paying = account(team, steps=0, tokens=100)
    opened = await store.open(session, call("b", body_bytes=1000, accounts=(paying, account(team + b"'", tokens=1))), TTL)

    assert refused(opened) == "steps"


# Ancestors


async def test_an_ancestor_is_held_to_what_it_was_opened_with(store: Store, session: bytes, team: bytes) -> None:
    """Its own ceilings and its headers', which the child's proxy need not know, and its deadline."""
    parent = os.urandom(16)
    await store.open(parent, call("p", **limited(steps=3, deadline=100.0), **tightened(tokens=4000)), TTL)
    above = Account(parent)
    answers = [await store.open(session, call(lease, modest=500, floor=500, accounts=(above,)), TTL) for lease in "abc"]
    late = await store.open(session, call("d", accounts=(Account(parent, (), 0.0),)), TTL)

    assert [refused(answer) for answer in answers] == [None, "tokens", "tokens"]
    assert used(answers[0]) == [("steps", 0, 2), ("tokens", 0, 3000)]
    assert answers[0].ends_at is not None
    assert answers[0].deadline is None
    assert late.refused is not None
    assert (late.refused.kind, late.refused.account, late.refused.limit) == ("deadline", 0, 0.0)


async def test_an_ancestor_never_opened_has_no_ceilings(store: Store, session: bytes) -> None:
    """But a ledger from then on, which its own first request finds."""
    parent = os.urandom(16)
    opened = await store.open(session, call("a", accounts=(Account(parent),)), TTL)
    await settle(store, session, paid("a", Account(parent)))
    above = await store.open(parent, call("p", **limited(steps=1)), TTL)

    assert (refused(opened), used(opened)) == (None, [])
    assert (refused(above), above.ledger.steps) == ("steps", 1)


async def test_calls_of_descendants_are_none_of_the_sessions_own(store: Store, session: bytes) -> None:
    """They hold, but do not look like a request sent twice."""
    parent = os.urandom(16)
    await store.open(session, call("a", tag=5, accounts=(Account(parent),)), TTL)
    await store.open(parent, call("p", tag=6), TTL)
    above = await store.open(parent, call("q", tag=7), TTL)

    assert (above.in_flight, above.ledger.reserved_steps, above.step) == ((6,), 3, 3)


async def test_a_stop_is_seen_above_and_below(store: Store, session: bytes, team: bytes) -> None:
    """A descendant sees that its ancestor's run stands stopped, until it goes on; an ancestor which session below was stopped last."""
    parent = os.urandom(16)
    accounts = (Account(team, (), team=True), Account(parent))
    before = await store.open(session, call("a", accounts=accounts), TTL)
    await settle(store, parent, paid("p", stop="repeated_call"))
    stopped = await store.open(session, call("b", accounts=accounts), TTL)
    await settle(store, parent, paid("q"))
    still = await store.open(session, call("c", accounts=accounts), TTL)
    await settle(store, parent, paid("r", stop=""))
    over = await store.open(session, call("d", accounts=accounts), TTL)
    await settle(store, session, paid("a", *accounts, stop="cycle"), paid("b", *accounts), paid("c", *accounts, stop=""))
    above = await store.open(parent, call("s"), TTL)
    of_team = await store.open(team, call("t"), TTL)

    assert [one.stops for one in (before, stopped, still, over)] == [("", ""), ("", "repeated_call"), ("", "repeated_call"), ("", "")]
    assert (above.fallen, of_team.fallen, before.fallen) == (Stopped(session, "cycle"), None, None)


# What lives how long


async def test_a_teams_ledger_outlives_sessions_under_any_pressure() -> None:
    """The store in memory drops sessions, never a team that is still used."""
    now = [1000.0]
    store = MemoryStore(lambda: now[0], os.urandom, max_sessions=2)
    paying = account(b"team", tokens=9000)
    for i in range(10):
        await store.open(b"%d" % i, call(f"{i}", accounts=(paying,)), 60.0)
        await settle(store, b"%d" % i, paid(f"{i}", paying), ttl=60.0)
    now[0] += 399 * 86_400
    kept = await store.open(b"x", call("x", accounts=(paying,)), 60.0)
    now[0] += 401 * 86_400
    await store.open(b"y", call("y", accounts=(account(b"other", tokens=9000),)), 60.0)

    assert used(kept) == [("tokens", 1500, 1500)]
    assert list(store._teams) == [b"other"]
