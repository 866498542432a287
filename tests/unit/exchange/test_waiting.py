"""Exchanges that find a budget held by others, and not used up: they wait a while, then go on or are told to come again."""

import asyncio
from datetime import UTC
from typing import Any

import pytest

from proxy.config import Config
from proxy.prices import Prices
from proxy.tenants import Tenants
from tests.in_process import CHAT, LS, Conversation, Proxy, Slow, answer, request

EMBEDDINGS = "/v1/embeddings"


def tenants(tokens: int, **policy: Any) -> Tenants:
    """One team, whose key is `red`."""
    budgets = [{"tokens": tokens, "per": "day"}]
    team = {"keys": ["red-key-of-a-test"], "budgets": budgets, "policy": policy}
    return Tenants(Config.model_validate({"teams": {"red": team}}), zone=UTC, prices=Prices({}, {}))


def asked(session: str) -> dict[str, Any]:
    return {"x_lastcall_key": "red-key-of-a-test", "x_lastcall_session": session, "content_length": str(len(BODY))}


BODY = request(max_tokens=100, tools=None)  # without tools a budget's last call is an answer as any
ONE = len(BODY) + 256 + 100  # what a call holds
KINDS = [(CHAT, BODY), (EMBEDDINGS, BODY)]


async def waits(task: "asyncio.Task[Any]") -> None:
    for _ in range(30):
        await asyncio.sleep(0)
    assert not task.done()


@pytest.mark.parametrize(("path", "body"), KINDS)
async def test_a_request_waits_for_what_others_hold(path: str, body: bytes) -> None:
    """It goes on when they have ended, as if nothing had been; how long it waited stands in the log, and is no overhead."""
    slow = Slow(answer("hi"))
    proxy = Proxy(slow, answer("hi"), tenants=tenants(ONE + 20))
    first = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    second = asyncio.create_task(proxy.ask(body, path, **asked("t")))
    await waits(second)
    assert len(proxy.upstream.sent) == 1
    proxy.clock.now += 3
    slow.done.set()

    assert [(await one).status for one in (first, second)] == [200, 200]
    assert len(proxy.upstream.sent) == 2
    if path == CHAT:
        ended = proxy.telemetry.exchanges[-1]
        assert (ended.waited_seconds, ended.overhead_seconds, ended.action) == (3, 0, "allow")


@pytest.mark.parametrize("on_stop", ["wrap_up", "message", "error"])
@pytest.mark.parametrize(("path", "body"), KINDS)
async def test_whoever_waited_in_vain_is_told_to_come_again(path: str, body: bytes, on_stop: str) -> None:
    """Whatever the policy does at a run's end, it is none: the budget, what is used of it, what is held and the limit are named."""
    slow = Slow(answer("hi"))
    proxy = Proxy(slow, answer("hi"), tenants=tenants(ONE + 20, on_stop=on_stop))
    for leases in (proxy.sessions._leases, proxy.setting.bills._leases):
        leases._room._patience = 0.02
    first = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    second = await proxy.ask(body, path, **asked("t"))
    slow.done.set()
    await first
    third = await proxy.ask(body, path, **asked("t"))

    assert (second.status, second.json["error"]["code"], third.status) == (429, "lastcall_team_budget", 200)
    assert second.headers["retry-after"] in {"1", "2", "3", "4", "5"}
    assert "x-should-retry" not in second.headers
    told = second.json["lastcall"]
    assert (told["spent"], told["held"], told["limit"], told["scope"]) == (0, ONE, ONE + 20, "team")
    said = second.json["error"]["message"]
    assert f"calls under way hold {ONE} of the team's budget of {ONE + 20:,} a day, of which 0 is used. Try again" in said


async def test_a_budget_that_is_used_up_is_final() -> None:
    """At once, also while others hold some of it."""
    slow = Slow(answer("hi"))
    proxy = Proxy(answer("hi"), slow, tenants=tenants(ONE + 20, on_stop="error"))
    await proxy.ask(BODY, **asked("s"))
    held = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    second = await proxy.ask(request(max_tokens=150, tools=None), **asked("t"))
    slow.done.set()
    await held

    assert (second.status, second.headers["x-should-retry"]) == (400, "false")
    assert "held" not in second.json["lastcall"]


async def test_rules_that_are_only_watched_keep_nobody_waiting() -> None:
    """What would have been is noted."""
    slow = Slow(answer("hi"))
    proxy = Proxy(slow, answer("hi"), tenants=tenants(ONE + 20, mode="observe"))
    first = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    second = await proxy.ask(BODY, **asked("t"))
    slow.done.set()
    await first

    assert second.status == 200
    assert [(ended.action, ended.waited_seconds) for ended in proxy.telemetry.exchanges] == [("refuse", 0), ("allow", 0)]


async def test_a_client_that_leaves_while_it_waits_holds_nothing() -> None:
    """And counts as one that left."""
    slow = Slow(answer("hi"))
    proxy = Proxy(slow, answer("hi"), tenants=tenants(ONE + 20))
    first = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    leaving = Conversation((BODY,))
    second = asyncio.create_task(proxy.run(leaving, CHAT, **asked("t")))
    await waits(second)
    proxy.clock.now += 1
    leaving.gone.set()
    await asyncio.wait_for(second, 5)
    slow.done.set()
    await first

    assert (leaving.sent, len(proxy.upstream.sent), proxy.ledger()[2]) == ([], 1, 0)
    left = proxy.telemetry.exchanges[0]
    assert (left.status, left.outcome, left.waited_seconds, left.team) == (499, "disconnected", 1, "red")


async def test_requests_that_were_sent_at_once_are_no_loop_though_they_wait_for_one_another() -> None:
    """Samplers of one history: each gets the same call, and none of them came after another's answer. Whoever asks again afterwards did."""
    body = request(max_tokens=100)
    others, samples = [Slow(answer("hi")) for _ in range(9)], [Slow(answer(None, LS)) for _ in range(6)]
    proxy = Proxy(*others, *samples, *[answer(None, LS)] * 3, tenants=tenants(10 * (len(body) + 256 + 100) + 200))
    held = [asyncio.create_task(proxy.ask(body, **asked("t"))) for _ in others]
    for other in others:
        await other.asked.wait()
    sent = [asyncio.create_task(proxy.ask(body, **asked("s"))) for _ in samples]
    for number, sample in enumerate(samples, start=1):
        await sample.asked.wait()
        await asyncio.sleep(0)
        assert len(proxy.upstream.sent) == len(others) + number
        proxy.clock.now += 1
        sample.done.set()
    heard = [await one for one in sent]
    for other in others:
        other.done.set()
    await asyncio.gather(*held)

    assert [one.lastcall["action"] for one in heard] == ["allow"] * len(samples)
    assert max(ended.waited_seconds for ended in proxy.telemetry.exchanges) == 5
    actions = []
    for _ in range(3):
        proxy.clock.now += 1
        actions.append((await proxy.ask(body, **asked("s"))).lastcall["action"])
    assert actions == ["allow", "allow", "nudge"]


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize(("path", "body"), KINDS)
async def test_a_client_that_leaves_as_room_is_found_holds_nothing(path: str, body: bytes, steps: int) -> None:
    """Granted, and gone some steps of the event loop later, before it heard of it."""
    slow = Slow(answer("hi"))
    proxy = Proxy(slow, answer("hi"), tenants=tenants(ONE + 20))
    first = asyncio.create_task(proxy.ask(BODY, **asked("s")))
    await slow.asked.wait()
    second = asyncio.create_task(proxy.ask(body, path, **asked("t")))
    await waits(second)
    (team,) = proxy.store._teams.values()
    before = set(team.book.leases)
    slow.done.set()
    while team.book.leases.keys() <= before:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    for _ in range(30):
        await asyncio.sleep(0)

    assert (dict(team.book.leases), proxy.ledger()[2]) == ({}, 0)
