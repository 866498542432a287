"""Histories whose answers are named by the ids of their items, as the Vercel AI SDK writes them by default."""

import itertools
import uuid

import aiohttp
import pytest

from tests.responses import Agent, Items, Kept
from tests.running import running
from tests.upstreams import DONE, READ_A, Says, Upstream

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMED
@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
@pytest.mark.parametrize("on_stop", ["wrap_up", "message"])
async def test_a_loop_is_nudged_once_stopped_and_usable_after_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, on_stop: str, named: bool, stream: bool
) -> None:
    """What Lastcall itself said is known to no upstream: it is left out of what goes there."""
    model = Kept()
    upstream.model = model
    headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
    async with running(upstream.url, f"policy: {{on_stop: {on_stop}}}", store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode="named", stream=stream, headers=headers)
        turns = await agent.run()

        assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
        assert [bool(turn.calls) for turn in turns] == [True] * 4 + [False]
        assert turns[-1].lastcall is not None
        assert (turns[-1].lastcall["reason"], turns[-1].lastcall["count"]) == ("repeated_call", 5)
        assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
        agent.say("continue")
        again = await agent.ask()
        assert (again.action, again.calls) == ("stop", [])
        agent.take(again)
        model.turn = lambda _: DONE
        for question in ("Then tell me its size.", "And its name?"):
            agent.say(question)
            turn = await agent.ask()
            assert (turn.status, turn.action, turn.text) == (200, "allow", DONE.text)
            agent.take(turn)
    assert model.refused == []
    later = len(upstream.asked) - 3
    assert later == (5 if on_stop == "wrap_up" else 4)
    assert [request.nudges for request in upstream.asked] == [0, 0, 0] + [1] * later


async def test_two_replicas_in_turn_give_the_verdicts_of_one(upstream: Upstream, http: aiohttp.ClientSession, redis_url: str) -> None:
    """No request of the run is seen by the replica that saw the one before."""
    upstream.model = Kept()
    async with running(upstream.url, store=redis_url) as one, running(upstream.url, store=redis_url) as other:
        urls = itertools.cycle([one.v1, other.v1])
        turns = await Agent(http, lambda: next(urls), mode="named").run()

    assert [turn.action for turn in turns] == ["allow", "allow", "allow", "nudge", "stop"]


async def test_work_passes_to_the_byte(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Calls whose results change, and texts of people in between."""

    def turn(history: Items) -> Says:
        return DONE if history[-1].get("role") == "user" and len(history) > 4 else READ_A if len(history) % 7 else DONE

    upstream.model = Kept(turn)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode="named", tool=lambda *call: f"line {call[2]}")
        bodies = []
        for number in range(10):
            bodies.append(agent.payload())
            answered = await agent.ask()
            assert (answered.status, answered.action) == (200, "allow")
            agent.take(answered)
            if not answered.calls:
                agent.say(f"And then, {number}?")

    assert [asked.body for asked in upstream.asked] == bodies
