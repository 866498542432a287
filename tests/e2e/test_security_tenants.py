"""What tenants may not learn of each other or do to each other, and where secrets may not show, tried against the running proxy."""

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from proxy.keys import digest_of
from tests import messages, responses
from tests.agents import Agent
from tests.running import Proxy, running
from tests.upstreams import Asked, Model, Reply, Upstream, looping

RED, BLUE, OPERATOR, PROVIDER = "lc-red-key", "lc-blue-key", "lc-operator-key", "sk-provider-key"
ENV = {"RED": RED, "BLUE": BLUE, "OPERATOR": OPERATOR, "PROVIDER": PROVIDER}
CONFIG = json.dumps(
    {
        "server": {"admin_key": "${OPERATOR}"},
        "upstreams": {"default": {"api_key": "${PROVIDER}"}},
        "teams": {"red": {"keys": ["${RED}"]}, "blue": {"keys": ["${BLUE}"], "models": ["gpt-*"]}},
        "policy": {"budgets": {"steps": 20}},
    }
)


async def desk(http: aiohttp.ClientSession, proxy: Proxy, path: str) -> Any:
    async with http.get(f"{proxy.url}/admin{path}", headers={"authorization": f"Bearer {OPERATOR}"}) as response:
        assert response.status == 200
        return await response.json()


async def test_a_guess_teaches_nothing(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """However near: a key's beginning, its hash, another place for it, a key of another kind. One answer for all of them."""
    guesses = [
        "x",
        RED[:-1],
        RED + "x",
        RED.upper(),
        digest_of(RED),
        hashlib.sha256(RED.encode()).hexdigest(),
        OPERATOR,
        PROVIDER,
        "é",
        "x" * 9999,
    ]
    async with running(upstream.url, CONFIG, env=ENV) as proxy:
        told = {(turn.status, turn.body) for turn in [await Agent(http, proxy.v1, key=guess).ask() for guess in guesses]}
        refused = set()
        for guess in [RED, BLUE, PROVIDER, digest_of(OPERATOR), OPERATOR[:-1], ""]:
            async with http.get(f"{proxy.url}/admin/sessions", headers={"authorization": f"Bearer {guess}"}) as response:
                refused.add((response.status, await response.read()))
        assert upstream.asked == []

    assert [status for status, _ in told] == [401]
    assert [status for status, _ in refused] == [401]


async def test_another_teams_session_cannot_be_read_stopped_or_spent(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str
) -> None:
    """Neither by its id, nor as a parent, nor by its whole transcript with the ids of its calls, which a team may have seen somewhere."""
    async with running(upstream.url, CONFIG, store=either_store, env=ENV) as proxy:
        red = Agent(http, proxy.v1, key=RED, headers={"x-lastcall-session": "theirs"})
        for _ in range(2):
            red.take(await red.ask())
        before = await desk(http, proxy, "/sessions/theirs?team=red")
        named = Agent(http, proxy.v1, key=BLUE, headers={"x-lastcall-session": "theirs", "x-lastcall-max-steps": "1"})
        child = Agent(http, proxy.v1, key=BLUE, headers={"x-lastcall-session": "child", "x-lastcall-parent": "theirs"})
        copied = Agent(http, proxy.v1, key=BLUE)
        copied.messages = list(red.messages)
        refreshed = Agent(http, proxy.v1, key=BLUE, headers={"x-lastcall-session": "theirs2"})
        refreshed.messages = list(red.messages)
        turns = [await named.ask(), await named.ask(), await child.ask(), await copied.ask(), await refreshed.ask()]
        after = await desk(http, proxy, "/sessions/theirs?team=red")
        own = await red.ask()
        listed = await desk(http, proxy, "/sessions?team=blue")

    assert [turn.headers.get("x-lastcall-step") for turn in turns] == ["1/1", "1/1", "1/20", "1/20", "1/20"]
    assert turns[1].headers["x-lastcall-reason"] == "step_budget"
    assert before == after | {"expires_at": before["expires_at"]}  # read from a time to live in whole milliseconds
    assert (own.action, own.headers["x-lastcall-step"]) == ("allow", "3/20")
    assert {row["team"] for row in listed["sessions"]} == {"blue"}


class _Users(messages.Agent):
    """One of many agents of one user."""

    def payload(self) -> bytes:
        return json.dumps(json.loads(super().payload()) | {"metadata": {"user_id": "somebody"}}).encode()


SAME: dict[str, Any] = {"user": "somebody"}
AGENTS: dict[str, Callable[..., Any]] = {
    "chat": lambda http, url, headers: Agent(http, url, headers=headers, **SAME),
    "responses": lambda http, url, headers: responses.Agent(http, url, headers=headers, **SAME),
    "responses kept": lambda http, url, headers: responses.Agent(http, url, mode="previous", headers=headers, **SAME),
    "messages": lambda http, url, headers: _Users(http, url, headers=headers),
}
MODELS: dict[str, Callable[[], Model]] = {"chat": looping, "messages": messages.Strict}


@pytest.mark.parametrize("way", AGENTS)
@pytest.mark.parametrize("named", [True, False], ids=["named", "derived"])
async def test_two_teams_with_one_session_user_and_transcript_share_nothing(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, way: str, named: bool
) -> None:
    """One loops to its stop; the other, word for word the same, climbs the whole ladder by itself. Ledgers and views are apart."""
    upstream.model = MODELS.get(way, responses.Kept)()
    session = f"one-{uuid.uuid4()}"
    headers = {"x-lastcall-session": session} if named else {}
    config = CONFIG.replace('"models": ["gpt-*"]', '"models": ["*"]')
    async with running(upstream.url, config, store=either_store, env=ENV) as proxy:
        red, blue = [AGENTS[way](http, proxy.v1, {"x-lastcall-key": key, **headers}) for key in (RED, BLUE)]
        runs = [await agent.run() for agent in (red, blue)]
        rows = [(await desk(http, proxy, f"/sessions?team={team}&count=1"))["sessions"][0] for team in ("red", "blue")]
        views = [await desk(http, proxy, f"/sessions/{row['session']}") for row in rows]
        spent = [(await desk(http, proxy, f"/teams/{team}"))["spent"] for team in ("red", "blue")]
        again = [(await agent.ask()).action for agent in (red, blue)]

    for turns in runs:
        assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
        assert turns[-1].lastcall["reason"] == "repeated_call"
        assert [turn.headers["x-lastcall-step"] for turn in turns] == [f"{number}/20" for number in range(1, 6)]
    assert len(upstream.asked) == 12
    assert rows[0]["session"] != rows[1]["session"]
    assert {(row["team"], row["state"], row["steps"]) for row in rows} == {("red", "stopped", 6), ("blue", "stopped", 6)}
    assert [view["spent"]["steps"] for view in views] == [6, 6]
    calls = [{call["call"] for lane in view["lanes"] for call in lane["trail"]} for view in views]
    assert all(len(one) == 1 for one in calls)
    assert again == ["stop", "stop"]
    assert spent[0]["input_tokens"] >= views[0]["spent"]["input_tokens"]


async def test_another_teams_response_is_nothing_to_go_on_from(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """What Lastcall knows of it: its calls do not count for the other, whether the chain is by response or by conversation."""
    model = responses.Kept(histories={"conv_theirs": []})
    upstream.model = model
    async with running(upstream.url, CONFIG, env=ENV) as proxy:
        for mode in ("previous", "conv_theirs"):
            red = responses.Agent(http, proxy.v1, mode=mode, key=RED)
            for _ in range(4):
                red.take(await red.ask())
            thief = responses.Agent(http, proxy.v1, mode=mode, key=BLUE)
            thief.previous, thief.items = red.previous, list(red.items)
            own, stolen = await red.ask(), await thief.ask()

            assert own.action == "stop"
            assert (stolen.action, stolen.headers["x-lastcall-step"]) == ("allow", "1/20")


async def test_no_secret_shows_anywhere(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Not in an answer, an error, the log, the metrics or the operator's views, whatever goes wrong."""
    seen: list[bytes] = []

    async def see(method: str, url: str, **options: Any) -> None:
        async with http.request(method, url, **options) as response:
            seen.append(await response.read() + repr(response.headers).encode())

    upstream.model = lambda asked: Reply(b"{}")
    async with running(upstream.url, CONFIG, env=ENV) as proxy:
        for key in (RED, BLUE, OPERATOR):
            headers = {"authorization": f"Bearer {key}"}
            agent = Agent(http, proxy.v1, headers=headers, key=key)
            seen += [(await agent.ask()).body, (await agent.ask_raw(b"{")).body]
            for path in ("/v1/models/o3", "/v1/../x", "/v1/embeddings", "/nowhere", "/metrics", "/livez", "/readyz", "/admin/sessions"):
                await see("GET", proxy.url + path, headers=headers)
                await see("TRACE", proxy.url + path, headers=headers)
                await see("POST", proxy.url + path, headers=headers, data=b"{")
        upstream.model = lambda asked: Reply(b'{"error": {}}', 500)
        seen.append((await Agent(http, proxy.v1, key=RED).ask()).body)
        for path in ("/sessions", "/teams", "/teams/red/usage", "/policy?model=gpt-4o&team=red", "/sessions/none", "/openapi.json"):
            await see("GET", f"{proxy.url}/admin{path}", headers={"authorization": f"Bearer {OPERATOR}"})
        log = b"".join(proxy.log)

    everything = b"".join(seen) + log
    assert len(everything) > 50_000
    for secret in (PROVIDER, OPERATOR, BLUE):
        assert secret.encode() not in everything
        assert digest_of(secret).removeprefix("sha256:").encode() not in everything
    assert all(asked.header("authorization") == f"Bearer {PROVIDER}" for asked in upstream.asked)
    assert not any(key in str(asked) for asked in upstream.asked for key in (RED, BLUE, OPERATOR))


async def test_no_cookie_and_no_key_of_lastcalls_crosses(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Either way: a jar that clients share would carry one's to the other."""

    def model(asked: Asked) -> Reply:
        return Reply(b"{}", 200, (("Set-Cookie", "id=1"), ("X-Lastcall-Session", "forged"), ("Connection", "x-hop"), ("X-Hop", "1")))

    upstream.model = model
    headers = {"authorization": f"Bearer {RED}", "cookie": "id=2", "x-lastcall-key": RED, "connection": "x-mine", "x-mine": "1"}
    async with running(upstream.url, CONFIG, env=ENV) as proxy, http.get(f"{proxy.v1}/models", headers=headers) as response:
        answered = {name.lower() for name in response.headers}

    assert not {"set-cookie", "x-lastcall-session", "x-hop"} & answered
    assert not {"cookie", "x-lastcall-key", "x-mine"} & {name.lower() for name, _ in upstream.asked[0].headers}
