"""Histories that the upstream keeps: chains by `previous_response_id` and by `conversation`, nudged once, stopped, usable after the stop.

The model refuses what the real one refuses: a call without its result, a result without its call.
"""

import itertools
import uuid

import aiohttp
import pytest

from tests.responses import Agent, Items, Kept, Turn
from tests.running import running
from tests.upstreams import DONE, READ_A, Asked, Reply, Says, Upstream

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MODES = pytest.mark.parametrize("mode", ["previous", "conversation"])
NAMED = pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])


def kept(mode: str, **says: object) -> tuple[Kept, str]:
    """A model and the name of what an agent goes on from."""
    model = Kept(**says)  # type: ignore[arg-type]
    if mode == "previous":
        return model, mode
    name = f"conv_{uuid.uuid4().hex}"
    model.histories[name] = []
    return model, name


def check_ended(turns: list[Turn]) -> None:
    """Nudged in the fourth request, stopped in place of the fifth call."""
    assert [turn.status for turn in turns] == [200] * 5
    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert turns[-1].lastcall is not None
    assert (turns[-1].lastcall["reason"], turns[-1].lastcall["count"]) == ("repeated_call", 5)
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1


def nudges(history: Items) -> int:
    return sum("[lastcall] " in str(item.get("output", "")) for item in history)


async def check_goes_on(agent: Agent, model: Kept) -> None:
    """A person speaks: the model is asked again, and the history it has is one it accepts, with the nudge in it once."""
    model.turn = lambda _: DONE
    agent.say("Then tell me its size.")
    turn = await agent.ask()
    assert (turn.status, turn.action, turn.text) == (200, "allow", DONE.text)
    assert model.refused == []
    agent.take(turn)
    agent.say("And its name?")
    assert (await agent.ask()).status == 200
    assert model.refused == []


@STREAMED
@MODES
@NAMED
@pytest.mark.parametrize("concluding", [DONE, READ_A], ids=["obeys", "ignores"])
async def test_a_chain_is_nudged_once_stopped_and_usable_after_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, mode: str, named: bool, concluding: Says, stream: bool
) -> None:
    """Six upstream calls; what the model has is well-formed at every step."""
    model, name = kept(mode, concluding=concluding)
    upstream.model = model
    headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode=name, stream=stream, headers=headers)
        turns = await agent.run()

        check_ended(turns)
        assert model.refused == []
        assert len(upstream.asked) == 6
        assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 0, 0]
        assert upstream.asked[-1].tools_off
        await check_goes_on(agent, model)
    longest = max(model.histories.values(), key=len)
    assert nudges(longest) == 1


@STREAMED
@MODES
async def test_two_replicas_in_turn_give_the_verdicts_of_one(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, mode: str, stream: bool
) -> None:
    """No request of the chain is seen by the replica that saw the one before."""
    model, name = kept(mode)
    upstream.model = model
    async with running(upstream.url, store=redis_url) as one, running(upstream.url, store=redis_url) as other:
        urls = itertools.cycle([one.v1, other.v1])
        agent = Agent(http, lambda: next(urls), mode=name, stream=stream)
        turns = await agent.run()
        check_ended(turns)
        await check_goes_on(agent, model)


@MODES
async def test_a_useless_conclusion_is_asked_for_again(upstream: Upstream, http: aiohttp.ClientSession, mode: str) -> None:
    """In a conversation each try is a message of its own: what was said before it stays there and is not sent twice."""
    model, name = kept(mode)
    tries = iter([Says(""), DONE])

    def concluding(asked: Asked) -> Reply:
        if asked.tools_off:
            model.concluding = next(tries)
        return model(asked)

    upstream.model = concluding
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode=name)
        turns = await agent.run()
        check_ended(turns)
        assert turns[-1].text.endswith(DONE.text or "")
        assert len(upstream.asked) == 7
        await check_goes_on(agent, model)
    if mode == "conversation":
        assert [item["role"] for item in upstream.asked[6].json["input"]] == ["user"]


@STREAMED
@MODES
async def test_a_local_stop_is_usable_after_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, mode: str, stream: bool
) -> None:
    """The withheld call gets a result that says so; so does what came in requests that the stop answered."""
    model, name = kept(mode)
    upstream.model = model
    async with running(upstream.url, "policy: {on_stop: message}", store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode=name, stream=stream)
        check_ended(await agent.run())
        for _ in range(2):
            agent.say("continue")
            turn = await agent.ask()
            agent.take(turn)
            assert (turn.action, turn.calls) == ("stop", [])
        assert len(upstream.asked) == 5
        await check_goes_on(agent, model)

    owed = [item for item in upstream.asked[5].json["input"] if item.get("type") == "function_call_output"]
    assert [item["output"] for item in owed] == ["[lastcall stop] not executed"]


@MODES
async def test_a_stop_by_error_leaves_a_conversation_usable(upstream: Upstream, http: aiohttp.ClientSession, mode: str) -> None:
    """A client that goes on from what it had, or in the conversation that has moved on."""
    model, name = kept(mode)
    upstream.model = model
    async with running(upstream.url, "policy: {on_stop: error}") as proxy:
        agent = Agent(http, proxy.v1, mode=name)
        turns = await agent.run()
        assert turns[-1].status == 400
        if name != "previous":
            agent.items = []
        await check_goes_on(agent, model)


@STREAMED
@MODES
async def test_a_call_left_out_of_an_answer_is_answered_for_the_client(
    upstream: Upstream, http: aiohttp.ClientSession, mode: str, stream: bool
) -> None:
    """The upstream has it in its history."""
    search = Says(calls=(("search", '{"q": "x"}'),))
    both = Says(calls=READ_A.calls + search.calls)

    def turn(_: Items) -> Says:
        made = len(upstream.asked) - 1
        return search if made == 0 else READ_A if made < 5 else both if made == 5 else DONE

    model, name = kept(mode, turn=turn)
    upstream.model = model
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, mode=name, stream=stream).run()

    assert [[call["name"] for call in turn.calls] for turn in turns[5:]] == [["search"], []]
    assert turns[-1].text == DONE.text
    assert model.refused == []


async def test_branches_of_a_chain_count_on_their_own(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Both go on from one response, turn by turn; what came before the fork counts for each."""
    model = Kept()
    upstream.model = model
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode="previous")
        agent.take(await agent.ask())
        other = Agent(http, proxy.v1, mode="previous", key=agent.headers["authorization"].removeprefix("Bearer "))
        other.previous, other.items = agent.previous, list(agent.items)
        turns: dict[Agent, list[Turn]] = {agent: [], other: []}
        for _ in range(4):
            for one, had in turns.items():
                had.append(await one.ask())
                one.take(had[-1])

    for had in turns.values():
        assert [turn.action for turn in had[:3]] == ["allow", "allow", "nudge"]
        assert [bool(turn.calls) for turn in had] == [True, True, True, False]
    assert model.refused == []
    assert len({turn.headers["x-lastcall-session"] for had in turns.values() for turn in had}) == 1


async def test_a_request_sent_again_counts_once(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Its first answer failed; the second one goes on from the same response."""
    model = Kept()
    failing = itertools.cycle([True, False])

    def flaky(asked: Asked) -> Reply:
        return Reply(b'{"error": {"message": "overloaded"}}', 503) if not asked.tools_off and next(failing) else model(asked)

    upstream.model = flaky
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode="previous", headers={"x-lastcall-session": uuid.uuid4().hex})
        turns: list[Turn] = []
        while not turns or turns[-1].calls:
            assert (await agent.ask()).status == 503
            turns.append(await agent.ask())
            agent.take(turns[-1])

    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert model.refused == []


@MODES
async def test_progress_in_a_chain_is_seen(upstream: Upstream, http: aiohttp.ClientSession, mode: str) -> None:
    """A call whose results change is no loop; results that differ in nothing but a time are the same."""
    model, name = kept(mode, turn=lambda history: DONE if sum(i.get("type") == "function_call" for i in history) >= 8 else READ_A)
    upstream.model = model
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, mode=name, tool=lambda *call: f"line {call[2]}").run()
        assert [turn.action for turn in turns] == ["allow"] * 9
        model, name = kept(mode)
        upstream.model = model
        turns = await Agent(http, proxy.v1, mode=name, tool=lambda *call: f"done in {call[2]}.5 seconds").run()
        check_ended(turns)


@pytest.mark.parametrize("mode", ["full", "previous", "conversation"])
async def test_texts_that_say_the_same_are_nudged_and_stopped(upstream: Upstream, http: aiohttp.ClientSession, mode: str) -> None:
    """Alike, whoever keeps the history."""
    model, name = kept(mode) if mode != "full" else (Kept(), mode)
    model.turn = lambda _: Says("Still working on it.")
    upstream.model = model
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode=name)
        turns = []
        for _ in range(5):
            turns.append(await agent.ask())
            agent.take(turns[-1])
            agent.say("continue")

    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert turns[-1].lastcall is not None
    assert turns[-1].lastcall["reason"] == "repeated_text"
    assert model.refused == []


@MODES
async def test_budgets_know_what_the_upstream_reads(upstream: Upstream, http: aiohttp.ClientSession, mode: str) -> None:
    """A request of a few bytes that goes on from a long history is charged in advance for all of it: never over the limit."""
    model, name = kept(mode, turn=lambda _: Says("Go on."))
    upstream.model = model
    async with running(upstream.url, "policy: {budgets: {tokens: 4000}}") as proxy:
        agent = Agent(http, proxy.v1, mode=name, tools=[], headers={"x-lastcall-session": "budget"})
        turns = []
        for number in range(40):
            turn = await agent.ask()
            turns.append(turn)
            if turn.response is None or turn.action == "refuse":
                break
            agent.take(turn)
            agent.say(f"More, {number}.")

    assert turns[-1].action == "refuse"
    assert len(upstream.asked) * 110 <= 4000
