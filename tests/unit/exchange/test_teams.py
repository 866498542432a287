"""Exchanges of teams: who is let in, under whose rules, and that teams share nothing."""

import asyncio
from datetime import UTC
from typing import Any

import pytest

from proxy.config import Config
from proxy.exchange import Way
from proxy.keys import digest_of
from proxy.prices import Prices
from proxy.tenants import Tenants
from tests.in_process import Proxy, ScriptedUpstream, Slow, answer, called, looping, request


def tenants(**teams: dict[str, Any]) -> Tenants:
    """Teams whose key is their name."""
    given = {name: {"keys": [digest_of(name)]} | team for name, team in teams.items()}
    return Tenants(Config.model_validate({"policy": {"on_stop": "message"}, "teams": given}), zone=UTC, prices=Prices({}, {}))


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x_lastcall_key": "wrong", "authorization": "Bearer red"}])
async def test_a_key_of_no_team_is_refused(headers: dict[str, Any]) -> None:
    """With 401 in the dialect's shape, no retry, and nobody asked; it is counted under no team."""
    proxy = Proxy(tenants=tenants(red={}))
    conversation = await proxy.ask(request(), **headers)

    assert (conversation.status, conversation.json["error"]["code"]) == (401, "lastcall_unknown_key")
    assert conversation.headers["x-should-retry"] == "false"
    assert proxy.upstream.sent == []
    assert (proxy.ended.status, proxy.ended.team) == (401, "")


async def test_a_teams_exchange_counts_as_the_teams() -> None:
    """Whichever way it showed its key."""
    proxy = Proxy(answer("hi"), endless=True, tenants=tenants(red={}))
    ways: list[dict[str, Any]] = [{"authorization": "Bearer red"}, {"x_api_key": "red"}, {"x_lastcall_key": "red"}]
    for headers in ways:
        assert (await proxy.ask(request(), **headers)).status == 200

    assert [ended.team for ended in proxy.telemetry.exchanges] == ["red"] * 3


async def test_a_model_that_is_not_the_teams_is_refused() -> None:
    """With 403; the model and what is allowed are named."""
    proxy = Proxy(tenants=tenants(red={"models": ["o3"]}))
    conversation = await proxy.ask(request(), authorization="Bearer red")

    assert (conversation.status, conversation.json["error"]["code"]) == (403, "lastcall_model_not_allowed")
    assert "'gpt-5'; it may use o3" in conversation.json["error"]["message"]
    assert (proxy.ended.status, proxy.ended.team) == (403, "red")


async def test_a_teams_rules_are_those_of_its_exchanges() -> None:
    """Another team's are not."""
    strict = {"policy": {"models": {"gpt-*": {"budgets": {"steps": 1}, "on_stop": "error"}}}}
    proxy = Proxy(answer("hi"), endless=True, tenants=tenants(red=strict, blue={}))

    red = [await proxy.ask(request(), x_lastcall_key="red", x_lastcall_session="s") for _ in range(2)]
    blue = [await proxy.ask(request(), x_lastcall_key="blue", x_lastcall_session="s") for _ in range(2)]

    assert [conversation.status for conversation in red + blue] == [200, 400, 200, 200]
    assert red[1].json["error"]["code"] == "lastcall_step_budget"
    assert [conversation.lastcall["step"] for conversation in [*red[:1], *blue]] == ["1/1", "1", "2"]


@pytest.mark.parametrize("on_stop", ["wrap_up", "message", "error"])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("limit", "session", "seconds"), [("requests", "s", range(1, 6)), ("sessions", "t", range(30, 59))])
async def test_too_many_at_once_is_told_to_come_again(limit: str, session: str, seconds: range, streamed: bool, on_stop: str) -> None:
    """With 429 and a time, spread so that a crowd does not come back at once; whatever the policy does at a run's end, it is none.

    Asking again is no loop and no insisting: it is served as soon as there is room.
    """
    slow = Slow(answer("hi"))
    rules = {f"concurrent_{limit}": 1, "policy": {"on_stop": on_stop}}
    proxy = Proxy(slow, answer("hi"), tenants=tenants(red=rules))
    first = asyncio.create_task(proxy.ask(request(), x_lastcall_key="red", x_lastcall_session="s"))
    await slow.asked.wait()
    body = request(looping(2), stream=streamed)  # one repeat more and the model is told
    refused = [await proxy.ask(body, x_lastcall_key="red", x_lastcall_session=session) for _ in range(4)]
    slow.done.set()
    await first
    proxy.clock.now += 301  # then the first session is there no more
    served = await proxy.ask(body, x_lastcall_key="red", x_lastcall_session=session)

    assert [conversation.status for conversation in refused] == [429] * 4
    assert all(int(conversation.headers["retry-after"]) in seconds for conversation in refused)
    assert len({conversation.headers["retry-after"] for conversation in refused}) == 4
    assert "x-should-retry" not in refused[0].headers
    assert (refused[0].lastcall["action"], refused[0].lastcall["reason"]) == ("refuse", "team_budget")
    error = refused[0].json["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "lastcall_team_budget")
    assert f"limit of 1 {limit.removesuffix('s')} at once is reached. Try again when others have ended." in error["message"]
    assert (served.status, served.lastcall["action"]) == (200, "allow")
    assert all(not entry.book.stop for entry in proxy.store._sessions.values())


async def test_none_at_once_is_no_matter_of_time() -> None:
    """Who comes again would come for ever."""
    proxy = Proxy(tenants=tenants(red={"concurrent_requests": 0, "policy": {"on_stop": "error"}}))
    conversation = await proxy.ask(request(), x_lastcall_key="red")

    assert (conversation.status, conversation.headers["x-should-retry"]) == (400, "false")
    assert "retry-after" not in conversation.headers


@pytest.mark.parametrize("named", [True, False])
async def test_two_teams_with_the_same_session_user_and_transcript_share_nothing(named: bool) -> None:
    """Not even where one goes on with what the other was answered, which would find the session without teams."""

    def body(turn: int) -> bytes:
        return request(looping(turn), user="somebody").replace(b'"c', b'"call_a1b2c3d4')

    answers = [answer(None, called("ls", "{}", f"call_a1b2c3d4{turn}")) for turn in range(3)]
    headers: dict[str, Any] = {"x_lastcall_session": "s"} if named else {}

    async def steps(proxy: Proxy, *keys: str) -> list[str]:
        seen = [await proxy.ask(body(turn), x_lastcall_key=key, **headers) for turn, key in enumerate(keys)]
        return [conversation.lastcall["step"] for conversation in seen]

    teams, keys = Proxy(*answers, tenants=tenants(red={}, blue={})), Proxy(*answers)
    assert await steps(teams, "red", "red", "blue") == ["1", "2", "1"]
    assert len(teams.store._sessions) == 2
    assert await steps(keys, "red", "red", "blue") == ["1", "2", "3" if named else "1"]


async def test_keys_of_one_team_share_their_sessions() -> None:
    """A key that is replaced ends nothing."""
    config = {"teams": {"red": {"keys": [digest_of("old"), digest_of("new")]}}}
    proxy = Proxy(answer("hi"), endless=True, tenants=Tenants(Config.model_validate(config), zone=UTC, prices=Prices({}, {})))

    steps = [(await proxy.ask(request(), x_lastcall_key=key, x_lastcall_session="s")).lastcall["step"] for key in ("old", "new")]

    assert steps == ["1", "2"]


async def test_an_upstream_that_gets_the_clients_credentials_gets_no_teams_key() -> None:
    """Said with 401, in words that name the header to use."""
    upstream = ScriptedUpstream(answer("hi"))
    proxy = Proxy(tenants=tenants(red={}), ways=[Way("main", upstream, lambda *_: True, passthrough=True)])

    wrong = await proxy.ask(request(), authorization="Bearer red")
    right = await proxy.ask(request(), authorization="Bearer sk", x_lastcall_key="red")

    assert (wrong.status, wrong.json["error"]["code"], right.status) == (401, "lastcall_key_not_for_upstream", 200)
    assert len(upstream.sent) == 1


async def test_a_team_is_served_by_its_own_upstreams() -> None:
    """A model that only others' serve is served by none of its."""
    ways = [
        Way("all", ScriptedUpstream(answer("hi")), lambda *_: True),
        Way("small", ScriptedUpstream(answer("hi")), lambda _, model: model == "o3"),
    ]
    upstreams = {name: {"base_url": "http://h/v1"} for name in ("all", "small")}
    config = {"upstreams": upstreams, "teams": {"red": {"keys": [digest_of("red")], "upstreams": ["small"]}}}
    proxy = Proxy(tenants=Tenants(Config.model_validate(config), zone=UTC, prices=Prices({}, {})), ways=ways)

    statuses = [(await proxy.ask(request(model=model), x_lastcall_key="red")).status for model in ("o3", "gpt-5")]

    assert statuses == [200, 404]
    assert [len(way.upstream.sent) for way in ways if isinstance(way.upstream, ScriptedUpstream)] == [0, 1]
