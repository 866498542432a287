"""Teams on a real socket: keys, models, upstreams, what stays apart, and an address that is not listened on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp

from proxy.keys import digest_of
from tests.agents import Agent
from tests.running import running
from tests.servers import free_port
from tests.upstreams import WHOLE, Reply, Upstream, looping

TEAMS = json.dumps(
    {
        "upstreams": {"default": {"api_key": "passthrough"}},
        "teams": {
            "red": {"keys": [digest_of("lc-red"), digest_of("lc-red-2")], "policy": {"budgets": {"steps": 3}, "on_stop": "error"}},
            "blue": {"keys": [digest_of("lc-blue")], "models": ["gpt-4o*"], "other_endpoints": "refuse"},
        },
    }
)


async def ask(http: aiohttp.ClientSession, url: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer; a GET without a body."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.request("POST" if body else "GET", url, data=body or None, headers=fields) as response:
        return response.status, await response.json(content_type=None)


async def test_who_may_ask_for_what(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """401 without a team's key, 403 for a model or an endpoint that is not the team's; the upstream hears of none of them."""
    upstream.model = looping()
    async with running(upstream.url, TEAMS) as proxy:
        payload = json.dumps({"model": "o3", "messages": [{"role": "user", "content": "hi"}]}).encode()
        chat = f"{proxy.v1}/chat/completions"
        answers = [
            await ask(http, chat, payload),
            await ask(http, chat, payload, authorization="Bearer sk-provider"),
            await ask(http, chat, payload, x_lastcall_key="lc-green", authorization="Bearer sk-provider"),
            await ask(http, chat, payload, authorization="Bearer lc-red"),
            await ask(http, chat, payload, x_lastcall_key="lc-blue", authorization="Bearer sk-provider"),
            await ask(http, f"{proxy.v1}/embeddings", payload, x_lastcall_key="lc-blue", authorization="Bearer sk-provider"),
            await ask(http, f"{proxy.v1}/models"),
        ]
        refused = len(upstream.asked)
        served = await ask(http, chat, payload, x_lastcall_key="lc-red", authorization="Bearer sk-provider")

    assert [(status, body["error"]["code"].removeprefix("lastcall_")) for status, body in answers] == [
        *[(401, "unknown_key")] * 3,
        (401, "key_not_for_upstream"),
        (403, "model_not_allowed"),
        (403, "endpoint_not_allowed"),
        (401, "unknown_key"),
    ]
    assert (refused, served[0]) == (0, 200)
    assert upstream.asked[0].header("authorization") == "Bearer sk-provider"
    assert not any("lc-" in value for _, value in upstream.asked[0].headers)


async def test_a_key_of_the_upstreams_own_takes_the_place_of_the_teams(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Then a client needs nothing but its key, where it keeps any API's."""
    config = TEAMS.replace('"passthrough"', '"${K}"')
    upstream.model = lambda _: Reply(b"{}", headers=WHOLE)
    async with running(upstream.url, config, env={"K": "sk-operator"}) as proxy:
        status, _ = await ask(http, f"{proxy.v1}/models", authorization="Bearer lc-red")

    assert status == 200
    assert upstream.asked[0].header("authorization") == "Bearer sk-operator"
    assert "lc-red" not in str(upstream.asked[0].headers)


async def test_a_list_of_models_is_the_teams(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The unrestricted team sees all, the other its own."""
    upstream.model = lambda _: Reply(b'{"object":"list","data":[{"id":"gpt-4o"},{"id":"o3"}]}', headers=WHOLE)
    async with running(upstream.url, TEAMS) as proxy:
        seen = [
            [model["id"] for model in (await ask(http, f"{proxy.v1}/models", x_lastcall_key=key))[1]["data"]]
            for key in ("lc-red", "lc-blue")
        ]

    assert seen == [["gpt-4o", "o3"], ["gpt-4o"]]


async def test_teams_with_one_session_id_and_transcript_share_nothing(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """One runs into its budget of three steps, the other climbs its own ladder from the bottom; a second key is the same team's."""
    upstream.model = looping()
    async with running(upstream.url, TEAMS) as proxy:

        def agent(key: str) -> Agent:
            headers = {"x-lastcall-key": key, "authorization": "Bearer sk", "x-lastcall-session": "shared"}
            return Agent(http, proxy.v1, task="the same task", headers=headers)

        red, blue = agent("lc-red"), agent("lc-blue")
        turns = [(await red.ask(), await blue.ask()) for _ in range(3)]
        red.headers["x-lastcall-key"] = "lc-red-2"
        over = await red.ask()
        after = await blue.ask()
        metrics = await (await http.get(f"{proxy.url}/metrics")).text()

    assert [[turn.headers["x-lastcall-step"] for turn in pair] for pair in turns] == [["1/3", "1"], ["2/3", "2"], ["3/3", "3"]]
    assert (over.status, over.headers["x-lastcall-reason"]) == (400, "step_budget")
    assert (after.status, after.headers["x-lastcall-step"]) == (200, "4")
    assert 'lastcall_refusals_total{mode="enforce",reason="step_budget",team="red"} 1.0' in metrics
    assert 'lastcall_requests_total{action="refuse",dialect="chat",outcome="refused",team="red"} 1.0' in metrics


def test_an_address_beyond_this_machine_is_not_listened_on_with_a_key_and_no_teams(tmp_path: Path) -> None:
    """Exit status 1 and one sentence; `server.open` says that it is meant, and then it does listen."""
    config = "upstreams: {a: {base_url: 'http://127.0.0.1:9/v1', api_key: '${K}'}}\nserver: {host: 0.0.0.0}\n"
    (tmp_path / "config.yaml").write_text(config)
    command = [sys.executable, "-c", "from proxy.cli import main; main()", "serve", "--port", str(free_port())]
    environ = {"K": "sk-operator", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "server.host: '0.0.0.0' can be reached from elsewhere" in done.stderr
    assert "sk-operator" not in done.stderr
