"""What teams and families of sessions may spend, in any unit: one ceiling, however many sessions share it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from proxy.keys import digest_of
from tests.agents import Agent, Turn
from tests.running import running
from tests.upstreams import DONE, STREAM, Asked, Reply, Says, Upstream, chunks, looping, saying

# A dollar a million of input, ten of output: the scripted model reports 100 and 10 tokens for each answer, so 0.0002 dollars.
PRICES = {"gpt-4o": {"input": 1.0, "output": 10.0, "cached": 0.5}}


def counting(asked: Asked) -> Says:
    return Says(calls=(("search", json.dumps({"page": asked.turn})),))


def told(name: str, arguments: str, number: int) -> str:
    return f"{arguments} holds {'abcdefghijklmnopqrstuvwxyz'[number] * 5}"


def team(**rules: Any) -> str:
    return json.dumps(
        {"prices": PRICES, "upstreams": {"default": {"api_key": "${K}"}}, "teams": {"red": {"keys": [digest_of("lc")], **rules}}}
    )


KEY = {"env": {"K": "sk-operator"}}


async def one_each(http: aiohttp.ClientSession, url: str, count: int, **options: Any) -> list[Turn]:
    """As many sessions at once, each asking once."""
    agents = [
        Agent(http, url, key="lc", headers={"x-lastcall-session": f"s-{uuid.uuid4()}"}, task=f"part {number}", **options)
        for number in range(count)
    ]
    return list(await asyncio.gather(*(agent.ask() for agent in agents)))


async def test_new_sessions_do_not_escape_a_teams_budget(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Twenty at once and five calls a day; each refusal says whose budget it is and when it is renewed."""
    upstream.model = lambda asked: saying(DONE, asked)
    async with running(upstream.url, team(budgets=[{"steps": 5, "per": "day"}]), store=either_store, **KEY) as proxy:
        turns = await one_each(http, proxy.v1, 20)

    assert len(upstream.asked) == 5
    refused = [turn for turn in turns if turn.action == "refuse"]
    assert len(refused) == 15
    notice = refused[0].lastcall
    assert notice is not None
    assert (notice["reason"], notice["scope"], notice["limit"], notice["spent"]) == ("team_budget", "team", 5, notice["spent"])
    assert notice["resets_at"] is not None and "It is renewed at" in notice["message"]


async def test_a_teams_money_is_a_ceiling(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Whatever runs at once, what the upstream charged stays below it."""
    upstream.model = lambda asked: saying(DONE, asked)
    async with running(upstream.url, team(budgets=[{"cost_usd": 0.02, "per": "hour"}]), store=either_store, **KEY) as proxy:
        turns = await one_each(http, proxy.v1, 40, model="gpt-4o", max_tokens=200)
        more = [turn for _ in range(3) for turn in await one_each(http, proxy.v1, 40, model="gpt-4o", max_tokens=200)]

    served = [turn for turn in [*turns, *more] if turn.action != "refuse"]
    assert 0 < len(served) == len(upstream.asked)
    assert len(upstream.asked) * 0.0002 <= 0.02
    assert all(turn.headers["x-lastcall-reason"] == "team_budget" for turn in [*turns, *more] if turn.action == "refuse")


async def test_so_many_requests_of_a_team_at_once(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """One more is told to come again while they last, and served when one has ended."""
    gate = asyncio.Event()

    def model(asked: Asked) -> Reply:
        async def parts() -> AsyncIterator[bytes]:
            first, *rest = chunks(DONE, asked)
            yield first
            await gate.wait()
            for part in rest:
                yield part

        return Reply(parts(), headers=STREAM)

    upstream.model = model
    async with running(upstream.url, team(concurrent_requests=2), store=either_store, **KEY) as proxy:
        under_way = [asyncio.create_task(one_each(http, proxy.v1, 1, stream=True)) for _ in range(2)]
        await upstream.until(lambda: len(upstream.asked) == 2)
        (refused,) = await one_each(http, proxy.v1, 1, stream=True)
        gate.set()
        await asyncio.gather(*under_way)
        (served,) = await one_each(http, proxy.v1, 1, stream=True)

    assert (refused.status, refused.action, refused.headers["x-lastcall-reason"]) == (429, "refuse", "team_budget")
    assert "retry-after" in refused.headers and "x-should-retry" not in refused.headers
    assert refused.error is not None and "limit of 2 requests at once" in refused.error["message"]
    assert (served.action, len(upstream.asked)) == ("allow", 3)


async def test_a_sessions_money_ends_its_run_with_an_answer(upstream: Upstream, http: aiohttp.ClientSession, store: str) -> None:
    """The header lowers what the policy allows."""
    upstream.model = looping(counting)
    config = json.dumps({"prices": PRICES, "policy": {"budgets": {"cost_usd": 5}}})
    async with running(upstream.url, config, store=store) as proxy:
        agent = Agent(
            http,
            proxy.v1,
            tool=told,
            model="gpt-4o",
            headers={"x-lastcall-session": f"m-{uuid.uuid4()}", "x-lastcall-max-cost-usd": "0.02"},
        )
        turns = await agent.run()

    assert turns[-1].text.startswith("[lastcall stop]")
    assert turns[-1].headers["x-lastcall-reason"] == "cost_budget"
    assert len(upstream.asked) * 0.0002 <= 0.02


async def test_a_model_without_a_price_can_be_refused(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Before anything is spent."""
    config = json.dumps({"prices": PRICES, "policy": {"unpriced": "refuse"}})
    async with running(upstream.url, config) as proxy:
        known = await Agent(http, proxy.v1, model="gpt-4o").ask()
        unknown = await Agent(http, proxy.v1, model="my-model").ask()

    assert known.status == 200
    assert (unknown.status, unknown.error and unknown.error["code"]) == (400, "lastcall_unpriced")
    assert len(upstream.asked) == 1


async def test_titles_and_summaries_are_no_steps(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """They spend tokens all the same."""
    upstream.model = lambda asked: saying(DONE, asked)
    async with running(upstream.url, "policy: {budgets: {steps: 2}}") as proxy:
        headers = {"x-lastcall-session": f"t-{uuid.uuid4()}"}
        title = Agent(http, proxy.v1, headers=headers, task="Generate a short title for this conversation.", tools=[])
        turns = [await title.ask() for _ in range(3)]
        work = await Agent(http, proxy.v1, headers=headers).ask()

    assert [turn.action for turn in turns] == ["allow"] * 3
    assert work.headers["x-lastcall-step"] == "1/2"


@pytest.mark.parametrize("header", ["x-lastcall-parent", "x-parent-session-id"])
async def test_a_child_spends_from_its_parent(upstream: Upstream, http: aiohttp.ClientSession, either_store: str, header: str) -> None:
    """The grandchild too; who is used up above is named, and what happened below is shown above."""
    upstream.model = looping(counting)
    run = uuid.uuid4().hex
    async with running(upstream.url, "policy: {budgets: {steps: 6}}", store=either_store) as proxy:
        parent = Agent(http, proxy.v1, tool=told, key="k", headers={"x-lastcall-session": f"p-{run}"})
        await parent.ask()
        child = Agent(http, proxy.v1, tool=told, key="k", headers={"x-lastcall-session": f"c-{run}", header: f"p-{run}"})
        grandchild = Agent(http, proxy.v1, tool=told, key="k", headers={"x-lastcall-session": f"g-{run}", header: f"c-{run}"})
        await child.ask()
        turns = await grandchild.run()
        asked = len(upstream.asked)
        again = await child.ask()
        above = await parent.ask()

    assert asked == 6
    assert turns[-1].lastcall is not None
    assert (turns[-1].action, turns[-1].lastcall["scope"], turns[-1].lastcall["reason"]) == ("stop", "parent", "step_budget")
    assert again.action == above.action == "refuse"
    assert again.lastcall is not None and again.lastcall["scope"] == "parent"
    assert above.headers["x-lastcall-child-stopped"] == "step_budget"


async def test_a_parents_stop_stops_its_children(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Until it goes on."""
    upstream.model = looping()
    run = uuid.uuid4().hex
    async with running(upstream.url, store=either_store) as proxy:
        parent = Agent(http, proxy.v1, key="k", headers={"x-lastcall-session": f"p-{run}"})
        child = Agent(http, proxy.v1, key="k", headers={"x-lastcall-session": f"c-{run}", "x-lastcall-parent": f"p-{run}"})
        before = await child.ask()
        stopped = (await parent.run())[-1]
        during = await child.ask()
        upstream.model = lambda asked: saying(DONE, asked)
        parent.say("Now something else.")
        await parent.ask()
        after = await child.ask()

    assert (before.action, stopped.action) == ("allow", "stop")
    assert during.lastcall is not None
    assert (during.action, during.lastcall["reason"], during.lastcall["scope"]) == ("stop", "repeated_call", "parent")
    assert after.action == "allow"
