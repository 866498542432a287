"""An operator acts on a session through one replica, and another one obeys at its next request."""

import asyncio
import csv
import io
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from yarl import URL

from proxy.keys import digest_of
from tests.agents import Agent
from tests.running import process, running
from tests.servers import free_port
from tests.upstreams import DONE, Asked, Says, Upstream, looping, saying

KEY = "operators-key"
TEAMS = {
    "red": {"keys": [digest_of("lc-red")], "budgets": [{"steps": 50, "per": "day"}], "policy": {"on_stop": "error"}},
    "blue": {"keys": [digest_of("lc-blue")], "models": ["gpt-4o*"]},
}
CONFIG: dict[str, Any] = {"server": {"admin_key": digest_of(KEY)}, "store": {"timeout": "5s"}, "policy": {"budgets": {"steps": 12}}}


def counting(asked: Asked) -> Says:
    return Says(calls=(("search", json.dumps({"page": asked.turn})),))


def told(name: str, arguments: str, number: int) -> str:
    return f"{arguments} holds {'abcdefghijklmnopqrstuvwxyz'[number] * 5}"


@dataclass
class Replicas:
    """Two ways in to the same sessions. first, second: base URLs; the operator speaks to the first, agents to the second."""

    first: str
    second: str
    http: aiohttp.ClientSession

    async def operate(self, method: str, path: str, key: str = KEY, **options: Any) -> tuple[int, Any]:
        """Status and body of an operator's request. path: percent-encoded."""
        headers = {"authorization": f"Bearer {key}"}
        url = URL(f"{self.first}/admin{path}", encoded=True)
        async with self.http.request(method, url, headers=headers, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if "json" in response.headers["content-type"] else text

    async def change(self, agent: Agent, action: str, **body: Any) -> Any:
        """The session of an agent, changed."""
        name = agent.headers["x-lastcall-session"]
        status, view = await self.operate("POST", f"/sessions/{name}/{action}", json=body if action == "raise" else None)
        assert status == 200, view
        return view

    def agent(self, **options: Any) -> Agent:
        """An agent in a session of its own, which talks to the second replica."""
        return Agent(self.http, self.second + "/v1", key="k", headers={"x-lastcall-session": f"s-{uuid.uuid4()}"}, **options)


@pytest.fixture(params=["memory", "redis"])
async def replicas(request: pytest.FixtureRequest, upstream: Upstream, http: aiohttp.ClientSession) -> AsyncIterator[Replicas]:
    """One process on its own memory, and two on a Redis."""
    with ExitStack() as stack:
        store = "memory://" if request.param == "memory" else str(request.getfixturevalue("redis_url"))
        ways = [
            await asyncio.to_thread(stack.enter_context, process(upstream.url, "--store", store, config=json.dumps(CONFIG)))
            for _ in range(1 if request.param == "memory" else 2)
        ]
        yield Replicas(ways[0].url, ways[-1].url, http)


async def test_a_pause_is_obeyed_at_the_next_request(upstream: Upstream, replicas: Replicas) -> None:
    """Without a call upstream; the run goes on where it was once it is resumed."""
    upstream.model = looping(counting)
    agent = replicas.agent(tool=told)
    agent.take(await agent.ask())
    paused = await replicas.change(agent, "pause")
    refused = await agent.ask()
    asked = len(upstream.asked)
    shown = await replicas.operate("GET", f"/sessions/{agent.headers['x-lastcall-session']}")
    await replicas.change(agent, "resume")
    after = await agent.ask()

    assert (paused["state"], shown[1]["state"], shown[1]["reason"]) == ("paused", "paused", "operator")
    assert refused.lastcall is not None
    assert (refused.action, refused.lastcall["reason"], asked) == ("refuse", "operator", 1)
    assert (after.action, after.headers["x-lastcall-step"]) == ("allow", "2/12")


async def test_a_stop_ends_a_session_and_those_below_it(upstream: Upstream, replicas: Replicas) -> None:
    """Until it is resumed."""
    upstream.model = lambda asked: saying(DONE, asked)
    agent, child = replicas.agent(), replicas.agent()
    child.headers["x-lastcall-parent"] = agent.headers["x-lastcall-session"]
    await agent.ask()
    await child.ask()
    await replicas.change(agent, "stop")
    stopped = [(await one.ask()).lastcall for one in (agent, child)]
    resumed = await replicas.change(agent, "resume")
    after = [(await one.ask()).action for one in (child, agent)]

    assert resumed["state"] == "active"
    assert [(said["reason"], said["scope"]) for said in stopped if said] == [("operator", "session"), ("operator", "parent")]
    assert after == ["allow", "allow"]


async def test_a_raised_budget_lets_a_session_go_on(upstream: Upstream, replicas: Replicas) -> None:
    """As far as it was raised, and its children too."""
    upstream.model = looping(counting)
    agent = replicas.agent(tool=told)
    child = replicas.agent(tool=told)
    child.headers["x-lastcall-parent"] = agent.headers["x-lastcall-session"]
    spent = (await agent.run())[-1]
    below = await child.ask()
    view = await replicas.change(agent, "raise", steps=14)
    more = [await agent.ask(), await child.ask(), await agent.ask()]

    assert (spent.headers["x-lastcall-reason"], below.action) == ("step_budget", "refuse")
    assert [(limit["unit"], limit["limit"], limit["raised"]) for limit in view["limits"]] == [("steps", 14, True)]
    assert [turn.headers["x-lastcall-action"] for turn in more] == ["allow", "stop", "refuse"]
    assert len(upstream.asked) == 14


async def test_a_reset_begins_anew(upstream: Upstream, replicas: Replicas) -> None:
    """Steps, counts, the nudge and the stop."""
    upstream.model = looping()
    agent = replicas.agent()
    before = [turn.action for turn in await agent.run()]
    view = await replicas.change(agent, "reset")
    after = await agent.run()

    assert before == ["allow", "allow", "allow", "nudge", "stop"]
    assert (view["state"], view["spent"]["steps"]) == ("active", 0)
    assert [turn.action for turn in after] == before
    assert after[0].headers["x-lastcall-step"] == "1/12"


async def test_a_call_that_was_stopped_is_allowed_once(upstream: Upstream, replicas: Replicas) -> None:
    """It reaches the agent; the repeat after it does not."""
    upstream.model = looping()
    agent = replicas.agent()
    await agent.run()
    stands = await agent.ask()
    view = await replicas.change(agent, "allow")
    after = [await agent.ask()]
    agent.take(after[0])
    after.append(await agent.ask())

    assert (stands.action, view["state"]) == ("stop", "active")
    assert [(turn.action, len(turn.calls)) for turn in after] == [("allow", 1), ("stop", 0)]
    assert (await replicas.operate("POST", "/sessions/of-nobody/allow"))[0] == 404


async def test_sessions_are_listed_searched_and_shown(upstream: Upstream, replicas: Replicas) -> None:
    """By name or key, part by part, with what they called as hashes, and nothing of what was said."""
    upstream.model = looping()
    run = uuid.uuid4().hex
    agents = [replicas.agent(task="the secret task") for _ in range(5)]
    for number, agent in enumerate(agents):
        agent.headers["x-lastcall-session"] = f"{run}/{number}"
        await agent.run()
    first = (await replicas.operate("GET", "/sessions", params={"search": run, "count": 3}))[1]
    rest = (await replicas.operate("GET", "/sessions", params={"search": run, "count": 3, "after": first["next"]}))[1]
    rows = [*first["sessions"], *rest["sessions"]]
    views = [(await replicas.operate("GET", f"/sessions/{way}"))[1] for way in (rows[0]["session"], f"{run}%2F4", f"{run}/4")]

    assert [row["name"] for row in rows] == [f"{run}/{number}" for number in (4, 3, 2, 1, 0)]
    assert rest["next"] is None
    assert {(row["state"], row["reason"], row["steps"]) for row in rows} == {("stopped", "repeated_call", 6)}
    assert [view["name"] for view in views] == [None, f"{run}/4", f"{run}/4"]
    assert views[0]["lanes"] == views[1]["lanes"] == views[2]["lanes"]
    (lane,) = views[0]["lanes"]
    assert lane["calls"] == [{"tool": "read_file", "call": lane["stopped"]["calls"][0], "times": 4, "results": 1}]
    assert [nudge["count"] for nudge in lane["nudges"]] == [3]
    for said in ("secret", "one line", "a.txt", "helpful"):
        assert said not in json.dumps([rows, views])


async def test_only_the_operators_key_opens_the_desk(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """401 for a team's key, for another and for none, before a body is read; 404 where there is no such key."""
    teams = json.dumps({**CONFIG, "teams": TEAMS, "upstreams": {"default": {"api_key": "${K}"}}})
    async with running(upstream.url, teams, env={"K": "sk"}) as proxy:
        desk = Replicas(proxy.url, proxy.url, http)
        statuses = [(await desk.operate("GET", "/sessions", key=key))[0] for key in (KEY, "lc-red", "other", "")]
        posted = await desk.operate("POST", "/sessions/x/raise", key="other", data=b"{")
        async with http.get(f"{proxy.url}/admin/openapi.json") as response:
            described = await response.json()
        policies = []
        for path, key in (("openapi.json", ""), ("sessions", ""), ("nowhere", KEY)):
            async with http.get(f"{proxy.url}/admin/{path}", headers={"authorization": f"Bearer {key}"}) as response:
                policies.append(response.headers["content-security-policy"])
                assert (response.headers["cache-control"], response.headers["x-content-type-options"]) == ("no-store", "nosniff")
        docs = (await desk.operate("GET", "/docs"))[0]
    async with running(upstream.url) as proxy:
        off = [(await Replicas(proxy.url, proxy.url, http).operate("GET", path))[0] for path in ("/sessions", "/openapi.json", "")]

    assert statuses == [200, 401, 401, 401]
    assert docs == 404
    assert [policy.partition(";")[0] for policy in policies] == ["default-src 'none'"] * 3
    assert (posted[0], posted[1]["error"]["code"]) == (401, "lastcall_unknown_key")
    assert {"/sessions/{session}/allow", "/teams/{team}/raise"} <= described["paths"].keys()
    answers = [set(operation["responses"]) for path in described["paths"].values() for operation in path.values()]
    assert answers == [{"200", "4XX", "503"}] * 13
    assert off == [404, 404, 404]


async def test_what_cannot_be_meant_is_refused_and_harms_nobody(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """With an error of one shape; no odd place, name or body is an outage of the store's, which every agent would feel."""
    upstream.model = lambda asked: saying(DONE, asked)
    name = f"s-{uuid.uuid4()}"
    bodies = [
        "[" * 60_000,
        "x" * 70_000,
        '{"steps": 1e400}',
        '{"cost_usd": NaN}',
        '{"cost_usd": Infinity}',
        '{"steps": 1.5}',
        '{"steps": "5"}',
        '{"cost_usd": "5"}',
        '{"steps": true}',
        '{"restore": "yes"}',
        '"x"',
        "",
        "{}",
    ]
    async with running(upstream.url, json.dumps(CONFIG), store=either_store) as proxy:
        desk = Replicas(proxy.url, proxy.url, http)
        agent = Agent(http, proxy.v1, headers={"x-lastcall-session": name})
        await agent.ask()
        odd = [
            f"/sessions?after={place}" for place in ("nan%20ab", "inf%20ab", "1e999%20ab", "-inf%20ab", "9" * 6000, "5%20" + "ab" * 3000)
        ]
        odd += [f"/sessions?search={text}" for text in ("%00%ff%1f", "%ed%a0%80", "9" * 6000, "%25%5b")]
        listed = [(await desk.operate("GET", path))[0] for path in odd]
        names = [(await desk.operate("GET", f"/sessions/{text}"))[0] for text in ("%00%ff", "%F0%9F%98%80", "9" * 6000)]
        ends = [await desk.operate("POST", f"/sessions/{name}/raise", data=body) for body in bodies]
        wrong = [await desk.operate(*asked) for asked in (("DELETE", f"/sessions/{name}"), ("POST", f"/sessions/{name}/dance"))]
        raised = await desk.operate("POST", f"/sessions/{name}/raise", data='{"steps": 3}')  # as curl sends it
        turn = await agent.ask()
        away = [line for line in map(json.loads, proxy.log) if line["event"] == "store_changed"]

    assert (set(listed), names) == ({200}, [404] * 3)
    assert [status for status, _ in ends] == [400, 413, *[400] * 11]
    assert ends[6][1]["error"]["message"] == "steps is '5': Input should be a valid integer; see /admin/openapi.json"
    assert all(set(body["error"]) == {"code", "message"} for _, body in [*ends, *wrong])
    assert [status for status, _ in wrong] == [405, 405]
    assert (raised[0], turn.headers["x-lastcall-step"], away) == (200, "2/3", [])


async def test_two_teams_with_one_name_of_a_session(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Two sessions: which one is meant has to be said, and what is done to one leaves the other alone."""
    upstream.model = lambda asked: saying(DONE, asked)
    config = json.dumps({**CONFIG, "teams": TEAMS, "upstreams": {"default": {"api_key": "${K}"}}})
    name = f"s-{uuid.uuid4()}"
    async with running(upstream.url, config, store=either_store, env={"K": "sk"}) as proxy:
        desk = Replicas(proxy.url, proxy.url, http)
        red, blue = (Agent(http, proxy.v1, key=key, headers={"x-lastcall-session": name}) for key in ("lc-red", "lc-blue"))
        await red.ask()
        await blue.ask()
        unsaid = await desk.operate("POST", f"/sessions/{name}/pause")
        said = await desk.operate("POST", f"/sessions/{name}/pause", params={"team": "blue"})
        unknown = await desk.operate("GET", "/sessions", params={"team": "green"})
        listed = (await desk.operate("GET", "/sessions", params={"team": "red", "search": name}))[1]["sessions"]
        actions = [(await agent.ask()).action for agent in (red, blue)]
        lines = [json.loads(line) for line in proxy.log]

    assert (unsaid[0], said[0], unknown[0]) == (409, 200, 404)
    assert [row["team"] for row in listed] == ["red"]
    assert actions == ["allow", "refuse"]
    (acted,) = [line for line in lines if line["event"] == "operator_acted"]
    assert (acted["action"], acted["name"], acted["team"]) == ("pause", name, "blue")
    assert acted["who"] == digest_of(KEY)[7:15] and KEY not in json.dumps(lines)


async def test_what_teams_spend_is_shown_now_and_by_day(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """As JSON and as CSV; and the rules of a team, by its name or its key."""
    upstream.model = lambda asked: saying(DONE, asked)
    config = json.dumps({**CONFIG, "teams": TEAMS, "upstreams": {"default": {"api_key": "${K}"}}})
    async with running(upstream.url, config, store=either_store, env={"K": "sk"}) as proxy:
        desk = Replicas(proxy.url, proxy.url, http)
        before = (await desk.operate("GET", "/teams/red"))[1]
        await Agent(http, proxy.v1, key="lc-red").ask()
        teams = {view["team"]: view for view in (await desk.operate("GET", "/teams"))[1]}
        rows = (await desk.operate("GET", "/teams/red/usage"))[1]
        table = (await desk.operate("GET", "/teams/red/usage", params={"format": "csv"}))[1]
        odd = ("from=2026-13-01", "from=2020-01-01", "format=x")
        faulty = [(await desk.operate("GET", f"/teams/red/usage?{query}"))[0] for query in odd]
        by_name = await desk.operate("GET", "/policy", params={"team": "red", "model": "gpt-4o"})
        async with http.get(
            f"{proxy.url}/admin/policy?model=o3", headers={"authorization": f"Bearer {KEY}", "x-lastcall-team-key": "lc-blue"}
        ) as response:
            by_key = await response.json()

    assert (teams["red"]["limits"][0]["unit"], teams["red"]["limits"][0]["limit"], teams["red"]["limits"][0]["per"]) == ("steps", 50, "day")
    assert teams["red"]["limits"][0]["spent"] - before["limits"][0]["spent"] == 1
    assert rows[-1]["model"] == "gpt-*" and rows[-1]["steps"] >= 1
    assert list(csv.DictReader(io.StringIO(table)))[-1]["input_tokens"] == str(rows[-1]["input_tokens"])
    assert faulty == [400, 400, 400]
    assert (by_name[1]["policy"]["on_stop"], by_name[1]["upstreams"]["chat"], by_name[1]["allowed"]) == ("error", "default", True)
    assert (by_key["team"], by_key["allowed"]) == ("blue", False)


async def test_a_teams_budget_is_raised_until_its_window_ends(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """By one replica, for the requests to another; and taken back. The log says who raised what."""
    upstream.model = lambda asked: saying(DONE, asked)
    budgets = [{"steps": 0, "per": "month"}, {"tokens": 10**9, "per": "day"}]
    red = {"keys": [digest_of("lc-red")], "policy": {"on_stop": "error"}, "budgets": budgets}
    config = json.dumps({**CONFIG, "teams": {"red": red}, "upstreams": {"default": {"api_key": "${K}"}}})
    async with AsyncExitStack() as stack:
        ways = [
            await stack.enter_async_context(running(upstream.url, config, store=either_store, env={"K": "sk"}))
            for _ in range(1 if either_store == "memory://" else 2)
        ]
        desk = Replicas(ways[0].url, ways[-1].url, http)
        agent = Agent(http, desk.second + "/v1", key="lc-red")
        turns = [await agent.ask()]
        raised = await desk.operate("POST", "/teams/red/raise", json={"steps": 10**6, "per": "month"})
        turns.append(await agent.ask())
        rules = await desk.operate("GET", "/policy", params={"team": "red", "model": "gpt-4o"})
        back = await desk.operate("POST", "/teams/red/raise", json={"restore": True})
        turns.append(await agent.ask())
        odd = [{"tokens": 1, "per": "month"}, {"stpes": 1}, {"steps": "many"}, {"steps": -1, "per": "month"}, [], None]
        faulty = [(await desk.operate("POST", "/teams/red/raise", json=body))[0] for body in odd]
        acted = [line for line in map(json.loads, ways[0].log) if line["event"] == "operator_acted"]

    assert [turn.status for turn in turns] == [400, 200, 400]
    assert [(one["unit"], one["per"], one["limit"], one["raised"]) for one in raised[1]["limits"]] == [
        ("steps", "month", 10**6, True),
        ("tokens", "day", 10**9, False),
    ]
    assert rules[1]["team_limits"][0]["limit"] == 10**6
    assert back[1]["limits"][0]["limit"] == 0
    assert faulty == [400] * 6
    assert [(line["team"], line["action"], line["change"]) for line in acted] == [
        ("red", "raise", {"per": "month", "steps": 10**6}),
        ("red", "raise", {"restore": True}),
    ]
    assert {line["who"] for line in acted} == {digest_of(KEY)[7:15]}


async def test_the_desk_may_have_a_port_of_its_own(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Which serves nothing else, and the API's serves no desk."""
    upstream.model = lambda asked: saying(DONE, asked)
    port = free_port()
    config = {**CONFIG, "server": {"admin_key": digest_of(KEY), "admin_port": port}}
    with ExitStack() as stack:
        served = await asyncio.to_thread(stack.enter_context, process(upstream.url, config=json.dumps(config)))
        own, api = f"http://127.0.0.1:{port}", served.url
        asked = [(await Replicas(base, base, http).operate("GET", "/sessions"))[0] for base in (own, api)]
        turns = [await Agent(http, base + "/v1").ask() for base in (own, api)]
        async with http.post(own + "/v1/chat/completions", json={}) as lost:
            said = await lost.text()

    assert "This port is server.admin_port" in said
    assert asked == [200, 404]
    assert [turn.status for turn in turns] == [404, 200]
