"""The contract of every store for whoever looks and changes from outside: the index, looks without a trace, amendments, a team's usage."""

import os
import time
from typing import Any

import pytest
import redis

from proxy.store import (
    Account,
    Amendment,
    Ceiling,
    Ledger,
    Listing,
    Mark,
    Opened,
    Page,
    Peeked,
    Settlement,
    Stopped,
    Store,
    Unit,
    Usage,
    open_store,
)
from tests.servers import Server, redis_server
from tests.stores import TTL, call, ceilings, effective, limited, refused, settle, tightened, until_expired

FOREVER = 4e9


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return os.urandom(8).hex()


async def listed(store: Store, tenant: str, label: str, session: bytes | None = None, ttl: float = TTL) -> bytes:
    """A session with a record in the index."""
    key = session or os.urandom(16)
    listing = Listing(tenant, label)
    await store.commit(key, record=b"r", version=0, settlements=(), links=(), ttl=ttl, listing=listing)
    return key


async def peek(store: Store, account: Account) -> Peeked:
    (found,) = await store.peek([account])
    assert found is not None
    return found


async def amend(store: Store, account: Account, amendment: Amendment) -> Peeked:
    """A ledger after a change that goes with any."""
    found = await store.amend(account, amendment, TTL)
    assert found is not None
    return found


async def pages(store: Store, count: int, **wanted: str) -> list[list[bytes]]:
    """Every page of the index, by the sessions on it."""
    found, after = [], ""
    while True:
        page = await store.page(after=after, count=count, **wanted)
        found.append([one.session for one in page.sessions])
        after = page.after
        if not after:
            return found


# The index


async def test_sessions_are_listed_by_tenant_the_last_used_first(store: Store, tenant: str) -> None:
    """With the label they were given; whoever has no record, or no listing, is not there."""
    sessions = [await listed(store, tenant, f"run {i}") for i in range(3)]
    other = await listed(store, tenant + "'", "run 3")
    silent = os.urandom(16)
    await store.commit(silent, record=b"r", version=0, settlements=(), links=(), ttl=TTL)
    await store.commit(os.urandom(16), record=None, version=0, settlements=(), links=(), ttl=TTL, listing=Listing(tenant, "no record"))
    page = await store.page(tenant=tenant)
    everybody = [one.session for one in (await store.page(count=10)).sessions]

    assert [one.session for one in page.sessions] == sessions[::-1]
    assert (page.after, page.sessions[0].listing) == ("", Listing(tenant, "run 2"))
    assert abs(page.sessions[0].seen - time.time()) < 60
    assert everybody[:4] == [other, *sessions[::-1]]
    assert silent not in everybody


async def test_pages_follow_each_other(store: Store, tenant: str) -> None:
    """Each session once, on pages as long as asked for; the last says that it is."""
    sessions = [await listed(store, tenant, f"run {i}") for i in range(7)]
    newest_first = sessions[::-1]

    assert await pages(store, 3, tenant=tenant) == [newest_first[:3], newest_first[3:6], newest_first[6:]]
    assert await pages(store, 7, tenant=tenant) == [newest_first]
    assert await store.page(tenant=tenant + "'") == Page((), "")


async def test_pages_stay_in_place_while_sessions_are_used(store: Store, tenant: str) -> None:
    """Whoever moves to the front is not met again further on, and nobody else is missed or met twice."""
    sessions = [await listed(store, tenant, f"run {i}", ttl=0.4) for i in range(6)]
    first = await store.page(count=2, tenant=tenant)
    await until_expired(store, os.urandom(16), 0.15)
    await store.commit(sessions[4], record=b"r2", version=1, settlements=(), links=(), ttl=60.0, listing=Listing(tenant, "run 4"))
    rest = await store.page(count=9, tenant=tenant, after=first.after)

    assert [one.session for one in first.sessions] == [sessions[5], sessions[4]]
    assert [one.session for one in rest.sessions] == sessions[3::-1]


async def test_labels_are_searched(store: Store, tenant: str) -> None:
    """For any part, as it is written; across pages."""
    odd = await listed(store, tenant, "50% [of] it.*\x1f")
    sessions = [await listed(store, tenant, f"build {i}") for i in range(3)]

    assert await pages(store, 2, tenant=tenant, search="build") == [[sessions[2], sessions[1]], [sessions[0]]]
    assert await pages(store, 2, tenant=tenant, search="% [of] it.*") == [[odd]]
    assert await pages(store, 2, tenant=tenant, search="Build") == [[]]


async def test_an_unknown_place_is_the_beginning(store: Store, tenant: str) -> None:
    """A link that somebody shortened is no error."""
    session = await listed(store, tenant, "run")
    odd = ("nonsense", "1 2 3", "x " + session.hex(), "nan ab", "inf ab", "-inf ab", "1e999 ab", "9" * 9000)
    places = [await store.page(after=after, tenant=tenant) for after in odd]

    assert [[one.session for one in page.sessions] for page in places] == [[session]] * 8


async def test_use_brings_a_session_to_the_front(store: Store, tenant: str) -> None:
    """The index hears of it now and then: at least four times in a ttl."""
    old = await listed(store, tenant, "old", ttl=0.4)
    new = await listed(store, tenant, "new", ttl=60.0)
    await until_expired(store, os.urandom(16), 0.15)
    await store.commit(old, record=b"r2", version=1, settlements=(), links=(), ttl=0.4, listing=Listing(tenant, "old"))

    assert await pages(store, 9, tenant=tenant) == [[old, new]]


async def test_what_is_rare_is_found_in_parts_none_of_which_takes_long(store: Store, tenant: str) -> None:
    """A server that looks through everything at once keeps others waiting: a part may be empty and not the last."""
    rare = await listed(store, tenant, "the first")
    for i in range(2_100):
        await listed(store, tenant, f"run {i}")
    found = await pages(store, 50, tenant=tenant, search="first")
    everybody = await pages(store, 500, tenant=tenant)

    assert [session for page in found for session in page] == [rare]
    assert len(found) == 1 or found[0] == []
    assert len({session for page in everybody for session in page}) == sum(map(len, everybody)) == 2_101


async def test_the_index_keeps_nothing_for_ever() -> None:
    """Neither sessions that ended, nor without an end."""
    with redis_server() as server:
        await _forget(server)


async def _forget(server: Server) -> None:
    store = open_store(server.url, clock=time.time, random_bytes=os.urandom, timeout=5.0)
    with redis.Redis.from_url(server.url) as admin:
        admin.zadd("lastcall:sessions", {b"old\x1ft\x1fl": time.time() - 1e6})
        for i in range(200):  # an entry long over goes with one in eight
            await listed(store, "t", f"{i}")
        left = admin.zscore("lastcall:sessions", b"old\x1ft\x1fl")
        life = admin.pttl("lastcall:sessions")
    await store.close()

    assert left is None
    assert 0 < life <= (TTL + 600) * 1000


# Looking


async def test_a_look_leaves_no_trace(store: Store, session: bytes, tenant: str) -> None:
    """It shows what an `open` would find, makes nothing and prolongs nothing."""
    await listed(store, tenant, "run", session)
    await store.open(session, call("a", **limited(steps=9, deadline=50.0), **tightened(tokens=5000)), TTL)
    await store.open(session, call("b", expires_in=0.01, **limited(steps=9, deadline=50.0)), TTL)
    await settle(store, session, Settlement("a", 1, 100, 50, 4000, 7, stop="cycle"))
    await until_expired(store, os.urandom(16), 0.05)
    first = await peek(store, Account(session))
    second = await peek(store, Account(session))
    nobody = await store.peek([Account(os.urandom(16)), Account(b"team" + os.urandom(8), (), team=True)])

    assert (first.record, first.version, first.calls, first.sessions, first.deadline) == (b"r", 1, 0, 0, 50.0)
    assert [(one.ceiling, one.spent, one.reserved) for one in first.standings] == [
        (Ceiling(Unit.STEPS, 9), 1, 0),
        (Ceiling(Unit.TOKENS, 5000), 150, 0),
    ]
    assert first.ledger == Ledger(1, 100, 50, 7, started_at=first.ledger.started_at)
    assert (first.stop, first.mark, first.note, first.raised) == ("cycle", Mark.NONE, b"", ())
    assert abs(first.expires_at - second.expires_at) < 0.01
    assert abs(first.expires_at - first.now - TTL) < 60
    assert nobody == [None, None]
    assert await store.peek([]) == []


async def test_a_look_at_a_team_shows_its_windows_and_numbers(store: Store, session: bytes) -> None:
    """Under the ceilings named; a window nobody spent in is empty."""
    team = b"team" + os.urandom(8)
    today, tomorrow = Ceiling(Unit.TOKENS, 9000, "day 1", FOREVER), Ceiling(Unit.STEPS, 5, "day 2", FOREVER)
    paying = Account(team, (today,), calls=5, sessions=5, team=True)
    await store.open(session, call("a", accounts=(paying,)), TTL)
    found = await peek(store, Account(team, (today, tomorrow), team=True))

    assert [(one.ceiling, one.spent, one.reserved) for one in found.standings] == [(today, 0, 1500), (tomorrow, 0, 0)]
    assert (found.calls, found.sessions, found.record) == (1, 1, None)


async def test_a_look_at_an_ancestor_shows_its_fallen_child(store: Store, session: bytes) -> None:
    """So that nobody has to look for it."""
    parent = os.urandom(16)
    await settle(store, session, Settlement("a", 1, 1, 1, 1, accounts=(Account(parent),), stop="poll"))

    assert (await peek(store, Account(parent))).fallen == Stopped(session, "poll")


# Amending


async def opened(store: Store, session: bytes, lease: str = "x", **limits: int | float) -> Opened:
    """Opened under these limits, and given back."""
    answer = await store.open(session, call(lease, **limited(**limits)), TTL)  # type: ignore[arg-type]
    await settle(store, session, Settlement(lease, 0, 0, 0, 0))
    return answer


@pytest.mark.parametrize("mark", [Mark.PAUSED, Mark.STOPPED])
async def test_a_mark_lets_no_call_pass_until_it_is_taken_off(store: Store, session: bytes, mark: Mark) -> None:
    """It is asked before every limit, by every ledger that pays."""
    team = Account(b"team" + os.urandom(8), (), team=True)
    there = await amend(store, Account(session), Amendment(mark=mark))
    await amend(store, team, Amendment(mark=mark))
    own = await opened(store, session, "a", steps=0, deadline=0.0)
    still = await amend(store, Account(session), Amendment(note=b"who"))
    await amend(store, Account(session), Amendment(mark=Mark.NONE))
    after = await opened(store, session, "b")
    of_team = await store.open(session, call("c", accounts=(team,)), TTL)

    assert own.refused is not None and of_team.refused is not None
    assert (own.refused.kind, own.refused.mark, own.refused.account) == ("operator", mark, -1)
    assert (there.mark, still.mark, refused(after)) == (mark, mark, None)
    assert (of_team.refused.kind, of_team.refused.mark, of_team.refused.account) == ("operator", mark, 0)
    assert of_team.ledger.reserved_steps == 0


async def test_what_is_raised_is_in_force_instead(store: Store, session: bytes) -> None:
    """Of the policy's limits and of what headers tightened, before and afterwards; until it is restored."""
    await store.open(session, call("a", **limited(steps=5, tokens=9000, deadline=9.0), **tightened(steps=2)), TTL)
    raised = await amend(store, Account(session), Amendment(raised=ceilings(steps=50, cost=7), deadline=90.0))
    later = await store.open(session, call("b", **limited(steps=5, deadline=9.0), **tightened(steps=1, deadline=1.0)), TTL)
    more = await amend(store, Account(session), Amendment(raised=ceilings(steps=60)))
    restored = await amend(store, Account(session), Amendment(restore=True, raised=ceilings(input=70)))
    last = await opened(store, session, "c", steps=5, deadline=9.0)

    assert (raised.raised, raised.raised_deadline, raised.deadline) == (ceilings(steps=50, cost=7), 90.0, 90.0)
    assert [one.ceiling for one in raised.standings] == list(ceilings(steps=50, tokens=9000, cost=7))
    assert effective(later) == {"steps": 50, "cost": 7, "deadline": 90.0}
    assert more.raised == ceilings(steps=60, cost=7)
    assert (restored.raised, restored.raised_deadline) == (ceilings(input=70), None)
    assert effective(last) == {"steps": 1, "input": 70, "deadline": 1.0}


async def test_a_raised_window_ends_with_it(store: Store, session: bytes) -> None:
    """Next month has the limit of the policy again, and nothing is kept of the last one's."""
    team = Account(b"team" + os.urandom(8), (Ceiling(Unit.STEPS, 0, "month 1", FOREVER),), team=True)
    await amend(store, team, Amendment(raised=(Ceiling(Unit.STEPS, 9, "month 0", 1000.0), Ceiling(Unit.STEPS, 9, "month 1", FOREVER))))
    opened = await store.open(session, call("a", accounts=(team,)), TTL)
    seen = await peek(store, team)
    after = await amend(store, team, Amendment())

    assert (refused(opened), [one.ceiling for one in opened.standings]) == (None, [Ceiling(Unit.STEPS, 9, "month 1", FOREVER)])
    assert [one.ceiling for one in seen.standings] == [Ceiling(Unit.STEPS, 9, "month 1", FOREVER)]
    assert after.raised == (Ceiling(Unit.STEPS, 9, "month 1", FOREVER),)


async def test_a_reset_begins_anew(store: Store, session: bytes) -> None:
    """What was settled goes, in every window; what calls under way hold stays; what was learnt and raised too."""
    day = Ceiling(Unit.TOKENS, 9000, "day 1", FOREVER)
    limits: dict[str, Any] = {"ceilings": (Ceiling(Unit.STEPS, 1), day), "deadline": 0.1}
    await store.open(session, call("a", **limits), TTL)
    await settle(store, session, Settlement("a", 1, 100, 50, 1000, 7, windows=("day 1",)))
    await store.open(session, call("b", ceilings=(day,)), TTL)
    await amend(store, Account(session), Amendment(mark=Mark.PAUSED))
    await until_expired(store, os.urandom(16), 0.15)
    done = await amend(store, Account(session), Amendment(reset=True))
    await amend(store, Account(session), Amendment(mark=Mark.NONE))
    again = await store.open(session, call("c", body_bytes=1000, input_bound=5000, **limits | {"ceilings": (day,)}), TTL)

    assert (done.ledger.steps, done.ledger.tokens, done.ledger.cost, done.ledger.reserved_tokens) == (0, 0, 0, 1500)
    assert [(one.spent, one.reserved) for one in done.standings] == [(0, 1500)]
    assert abs(done.ledger.started_at - done.now) < 0.1
    assert done.mark is Mark.PAUSED
    assert (refused(again), again.ledger.reserved_tokens) == (None, 1500 + 111 + 512 + 500)


async def test_a_note_comes_with_every_open(store: Store, session: bytes) -> None:
    """Any bytes, until there are others or none; not to those who are only charged."""
    await amend(store, Account(session), Amendment(note=bytes(range(256))))
    first = await opened(store, session, "a")
    below = await store.open(os.urandom(16), call("c", accounts=(Account(session),)), TTL)
    kept = await amend(store, Account(session), Amendment(mark=Mark.NONE))
    cleared = await amend(store, Account(session), Amendment(note=b""))
    last = await opened(store, session, "b")

    assert (first.note, kept.note, below.note) == (bytes(range(256)), bytes(range(256)), b"")
    assert (cleared.note, last.note) == (b"", b"")


async def test_a_stop_is_lifted(store: Store, session: bytes) -> None:
    """For the session and whoever spends from it; what an amendment does not lift stays."""
    below, parent = os.urandom(16), (Account(session),)
    await store.open(session, call("a"), TTL)
    await settle(store, session, Settlement("a", 1, 10, 5, 100, stop="cycle"))
    await store.open(below, call("b", accounts=parent), TTL)
    await settle(store, below, Settlement("b", 1, 10, 5, 100, accounts=parent, stop="repeated_call"))
    stands = await amend(store, Account(session), Amendment(reset=True))
    during = await store.open(below, call("c", accounts=parent), TTL)
    lifted = await amend(store, Account(session), Amendment(lift=True))
    after = await store.open(below, call("d", accounts=parent), TTL)

    assert (stands.stop, stands.fallen, during.stops) == ("cycle", Stopped(below, "repeated_call"), ("cycle",))
    assert (lifted.stop, lifted.fallen, after.stops) == ("", None, ("",))


async def test_a_session_not_yet_seen_can_be_amended(store: Store, session: bytes) -> None:
    """Paused before it begins."""
    await amend(store, Account(session), Amendment(mark=Mark.PAUSED))

    assert refused(await opened(store, session)) == "operator"


async def test_a_change_decided_on_what_has_changed_meanwhile_is_none(store: Store, session: bytes) -> None:
    """By what operators did or by the run's stop; what is spent is no such change, and every amendment has a stamp of its own."""
    first = await amend(store, Account(session), Amendment(note=b"one"))
    await settle(store, session, Settlement("a", 1, 10, 5, 100))
    spent = await peek(store, Account(session))
    second = await store.amend(Account(session), Amendment(note=b"two", seen=first.stamp), TTL)
    late = await store.amend(Account(session), Amendment(note=b"three", reset=True, lift=True, seen=first.stamp), TTL)
    after = await peek(store, Account(session))
    await settle(store, session, Settlement("b", 1, 10, 5, 100, stop="cycle"))
    stopped = await store.amend(Account(session), Amendment(mark=Mark.PAUSED, seen=after.stamp), TTL)
    nobody = await store.amend(Account(os.urandom(16)), Amendment(mark=Mark.PAUSED, seen=after.stamp), TTL)

    assert second is not None
    assert (spent.stamp, late, stopped, nobody) == (first.stamp, None, None, None)
    assert (after.note, after.ledger.steps, after.mark, after.stamp) == (b"two", 1, Mark.NONE, second.stamp)


# Usage


async def test_usage_is_kept_by_team_day_and_model(store: Store, session: bytes) -> None:
    """Settled once; calls without a day and calls that came to nothing leave no row."""
    team, other = (Account(b"team" + os.urandom(8), (), team=True) for _ in range(2))
    parent = Account(os.urandom(16))

    def paid(lease: str, model: str, day: str, *accounts: Account, steps: int = 1) -> Settlement:
        return Settlement(lease, steps, 100 * steps, 50 * steps, 0, 7 * steps, accounts=accounts, model=model, day=day)

    some = [
        paid("a", "gpt-4o", "2026-11-29", team, parent),
        paid("b", "gpt-4o", "2026-11-29", team),
        paid("c", "a|b", "2026-11-29", team),
        paid("d", "gpt-4o", "2026-11-30", team),
    ]
    for _ in range(2):
        await settle(store, session, *some, paid("e", "gpt-4o", "2026-11-30", other), paid("f", "x", "", team))
        await settle(store, session, paid("g", "nothing", "2026-11-30", team, steps=0))
    rows = await store.usage(team.key, ["2026-11-30", "2026-11-29", "2026-11-28"])

    assert rows == [
        Usage("2026-11-30", "gpt-4o", 1, 100, 50, 7),
        Usage("2026-11-29", "a|b", 1, 100, 50, 7),
        Usage("2026-11-29", "gpt-4o", 2, 200, 100, 14),
    ]
    assert await store.usage(parent.key, ["2026-11-29"]) == []
    assert await store.usage(team.key, []) == []


# Scripts that a server lost


async def test_an_order_of_commands_is_kept_when_only_some_scripts_are_known() -> None:
    """A look behind a change shows it, also when the server knew only how to look."""
    with redis_server() as server:
        store = open_store(server.url, clock=time.time, random_bytes=os.urandom, timeout=5.0)
        await store.peek([Account(b"session")])
        amended = await amend(store, Account(b"session"), Amendment(mark=Mark.PAUSED))
        await store.close()

    assert amended.mark is Mark.PAUSED
