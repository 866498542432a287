"""The loop over the messages API on a real socket, before a model that refuses what the API refuses."""

import itertools

import aiohttp
import pytest

from tests.messages import Agent, Strict, Turn
from tests.running import running
from tests.upstreams import READ_A, Says, Upstream, upstream_running

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BOTH = Says("Both at once.", (("read_file", '{"path": "a.txt"}'), ("search", '{"text": "x"}')))


def check_ended(upstream: Upstream, turns: list[Turn]) -> None:
    """Nudged in the fourth request and once only, stopped in place of the fifth call, six upstream calls."""
    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert "[lastcall stop]" in turns[-1].text
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]


@STREAMED
@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_two_replicas_in_turn_give_the_verdicts_of_one(
    http: aiohttp.ClientSession, redis_url: str, named: bool, stream: bool
) -> None:
    """Moving cache marks, reminders, signed thinking: the model refuses nothing of what it is sent."""
    model = Strict(turn=lambda _: Says("I look.", READ_A.calls))
    async with (
        upstream_running(model) as upstream,
        running(upstream.url, store=redis_url) as one,
        running(upstream.url, store=redis_url) as other,
    ):
        urls = itertools.cycle([one.v1, other.v1])
        headers = {"x-claude-code-session-id": f"messages-{stream}"} if named else None
        turns = await Agent(http, lambda: next(urls), stream=stream, headers=headers).run()

    check_ended(upstream, turns)
    assert model.refused == []
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
    assert turns[-1].text.startswith("I look.\n\n[lastcall stop]")


@STREAMED
@pytest.mark.parametrize("on_stop", ["wrap_up", "message", "error"])
async def test_a_history_is_well_formed_after_any_stop(http: aiohttp.ClientSession, on_stop: str, stream: bool) -> None:
    """A person goes on in it, and the model takes it."""
    model = Strict(turn=lambda asked: Says("Fine.") if b"Something else" in asked.body else READ_A)
    async with upstream_running(model) as upstream, running(upstream.url, f"policy: {{on_stop: {on_stop}}}") as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        turns = await agent.run()
        assert (turns[-1].status, turns[-1].lastcall is not None) == (400 if on_stop == "error" else 200, True)
        agent.say("Something else, please.")
        after = await agent.ask()

    assert (after.text, after.action) == ("Fine.", "allow")
    assert model.refused == []


@STREAMED
async def test_of_two_calls_the_repeated_one_is_left_out(http: aiohttp.ClientSession, stream: bool) -> None:
    """The other goes on, with the thinking before it as it was."""

    def turn(asked: object) -> Says:
        return next(said)

    fresh = [Says(None, (*READ_A.calls, ("search", f'{{"text": "{number}"}}'))) for number in range(2)]
    said = iter([READ_A, READ_A, READ_A, READ_A, *fresh])
    model = Strict(turn=turn)
    async with upstream_running(model) as upstream, running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        turns = await agent.run(cap=5)

    assert [call["name"] for call in turns[4].calls] == ["search"]
    assert (turns[4].content[0]["type"], turns[4].lastcall and turns[4].lastcall["scope"]) == ("thinking", "call")
    assert model.refused == []


@STREAMED
async def test_work_passes_to_the_byte(http: aiohttp.ClientSession, stream: bool) -> None:
    """Both ways."""
    steps = [BOTH, Says(None, (("edit", '{"text": "y"}'),)), Says(None, (("pytest", "{}"),)), Says("Done.")]
    model = Strict(turn=lambda asked: steps[sum(message["role"] == "assistant" for message in asked.json["messages"])])
    async with upstream_running(model) as upstream, running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        sent: list[bytes] = []
        turns: list[Turn] = []
        while not turns or turns[-1].calls:
            sent.append(agent.payload())
            turns.append(await agent.ask())
            agent.take(turns[-1])

    assert [request.body for request in upstream.asked] == sent
    assert [turn.body for turn in turns] == upstream.sent
    assert [turn.action for turn in turns] == ["allow"] * 4
    assert {request.header("anthropic-version") for request in upstream.asked} == {"2023-06-01"}


async def test_a_text_cut_while_it_is_written_ends_well(http: aiohttp.ClientSession) -> None:
    """Its block is closed, another says why; a person goes on."""
    endless = Says("I will check the file once more and then report back to you. " * 400)
    model = Strict(turn=lambda asked: Says("Fine.") if b"Something else" in asked.body else endless)
    async with upstream_running(model) as upstream, running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True)
        cut = await agent.ask()
        agent.take(cut)
        agent.say("Something else, please.")
        after = await agent.ask()

    assert [block["type"] for block in cut.content] == ["thinking", "text", "text"]
    assert cut.content[-1]["text"].lstrip().startswith("[lastcall stop]")
    assert (after.text, model.refused) == ("Fine.", [])
