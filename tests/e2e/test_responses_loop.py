"""An agent that speaks Responses, its history its own, whose model has collapsed: one nudge, then a stop that ends it with an answer."""

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from tests.responses import TOOLS, Agent, Items, Kept, Turn, events, output_of, response_of
from tests.running import running
from tests.upstreams import DONE, READ_A, STREAM, WHOLE, Asked, Reply, Says, Upstream

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def check_ended(turns: list[Turn]) -> None:
    """Nudged in the fourth request, stopped in place of the fifth call."""
    assert [turn.status for turn in turns] == [200] * 5
    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    stop = turns[-1].lastcall
    assert stop is not None
    assert (stop["action"], stop["reason"], stop["tool"], stop["count"], stop["limit"]) == ("stop", "repeated_call", "read_file", 5, 5)
    assert turns[-1].text.lstrip("\n").startswith("[lastcall stop] Lastcall stopped this run: read_file ")


def results(asked: Asked) -> list[str]:
    return [item["output"] for item in asked.json["input"] if item.get("type") == "function_call_output"]


@STREAMED
@pytest.mark.parametrize("concluding", [DONE, READ_A], ids=["obeys", "ignores"])
async def test_the_run_ends_after_six_upstream_calls(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, concluding: Says, stream: bool
) -> None:
    """Nudged inside the last result, at the same place in the same words from then on; the stop is well-formed in every event."""
    upstream.model = Kept(concluding=concluding)
    async with running(upstream.url, store=either_store) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()
    exchanges = proxy.exchanges()

    check_ended(turns)
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]
    noted = {text for request in upstream.asked for text in results(request) if "[lastcall] " in text and "[lastcall stop]" not in text}
    assert len(noted) == 1
    assert noted.pop().startswith("one line\n\n[lastcall] read_file ")
    assert [request.tools_off for request in upstream.asked] == [False] * 5 + [True]
    assert turns[-1].text.endswith(DONE.text or "") is (concluding is DONE)
    assert len({turn.response["id"] for turn in turns if turn.response}) == 5
    assert {exchange["dialect"] for exchange in exchanges} == {"responses"}
    assert [exchange["input_tokens"] for exchange in exchanges] == [100, 100, 100, 100, 200]
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1


@STREAMED
@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_two_replicas_in_turn_give_the_verdicts_of_one(
    upstream: Upstream, http: aiohttp.ClientSession, redis_url: str, named: bool, stream: bool
) -> None:
    """No request of the run is seen by the replica that saw the one before."""
    upstream.model = Kept()
    async with running(upstream.url, store=redis_url) as one, running(upstream.url, store=redis_url) as other:
        urls = itertools.cycle([one.v1, other.v1])
        headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
        turns = await Agent(http, lambda: next(urls), stream=stream, headers=headers).run()

    check_ended(turns)
    assert [request.nudges for request in upstream.asked] == [0, 0, 0, 1, 1, 1]
    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
    assert [len(proxy.exchanges()) for proxy in (one, other)] == [3, 2]


@STREAMED
async def test_text_before_the_stopped_call_is_kept(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """What the client has seen of a stream stands in its last event too, beside the conclusion."""
    upstream.model = Kept(lambda _: replace(READ_A, text="I look once more."))
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    assert turns[-1].text.startswith("I look once more.\n\n[lastcall stop]")
    assert len(upstream.asked) == 6


@STREAMED
async def test_a_healthy_run_is_byte_identical(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Both ways."""
    steps = [READ_A, Says("Now a search.", (("search", '{"q": "x"}'),)), DONE]
    upstream.model = Kept(lambda history: steps[sum(item.get("type") == "function_call" for item in history)])
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        for number in range(3):
            sent = agent.payload()
            turn = await agent.ask()
            assert upstream.asked[number].body == sent
            assert turn.body == upstream.sent[number]
            agent.take(turn)

    assert [turn.calls for turn in [turn]] == [[]]


@STREAMED
async def test_a_repeated_call_is_left_out_of_an_answer_whose_other_calls_are_not(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """Reasoning and the other calls stay as they were; the second time the same loop has to be pruned, the run ends."""
    known = Says(calls=(("search", '{"q": "x"}'),))
    both = Says(calls=READ_A.calls + known.calls)

    def turn(_: Items) -> Says:
        made = len(upstream.asked) - 1
        return known if made == 0 else READ_A if made < 5 else both

    upstream.model = Kept(turn)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    pruned = turns[5]
    assert [item["type"] for item in pruned.output] == ["reasoning", "function_call"]
    assert [call["name"] for call in pruned.calls] == ["search"]
    assert pruned.output[0]["x_vendor"] == 1.5
    assert pruned.lastcall is not None
    assert (pruned.lastcall["scope"], pruned.lastcall["tool"]) == ("call", "read_file")
    assert not turns[-1].calls
    assert turns[-1].text.startswith("[lastcall stop]")
    assert len(turns) == 7


@STREAMED
@pytest.mark.parametrize("on_stop", ["message", "error"])
async def test_other_stops(upstream: Upstream, http: aiohttp.ClientSession, on_stop: str, stream: bool) -> None:
    """Five upstream calls; an error is one in the dialect's shape, its status free until the decision."""
    upstream.model = Kept()
    async with running(upstream.url, f"policy: {{on_stop: {on_stop}}}") as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    assert len(upstream.asked) == 5
    if on_stop == "message":
        check_ended(turns)
    else:
        assert turns[-1].status == 400
        assert turns[-1].error is not None
        assert turns[-1].error["code"] == "lastcall_repeated_call"
        assert turns[-1].headers["x-should-retry"] == "false"


async def test_the_output_limit_is_clamped_to_what_is_left(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """By the name it has in this dialect; the session's spending is what the provider said."""
    upstream.model = Kept()
    async with running(upstream.url, "policy: {budgets: {tokens: 20000}}") as proxy:
        turn = await Agent(http, proxy.v1).ask()

    assert turn.status == 200
    assert upstream.asked[0].json["max_output_tokens"] == 2500


@STREAMED
async def test_a_session_is_found_again_through_the_providers_own_calls(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, stream: bool
) -> None:
    """An answer that ends as text after searches is part of the history under no id of the client's; its searches are not touched."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}

    def model(asked: Asked) -> Reply:
        response = response_of([search, *output_of(DONE)], asked)
        return Reply(b"".join(events(response)), headers=STREAM) if stream else Reply(json.dumps(response).encode(), headers=WHOLE)

    upstream.model = model
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, tools=[*TOOLS, {"type": "web_search"}])
        turns = []
        for text in ("And now?", "And now?", "And then?"):
            turns.append(await agent.ask())
            agent.take(turns[-1])
            agent.say(text)

    assert len({turn.headers["x-lastcall-session"] for turn in turns}) == 1
    assert [turn.body for turn in turns] == upstream.sent


async def test_a_deadline_ends_a_dripping_stream_well_formed(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """What was open is closed, and the last event repeats what the client has."""
    forever = asyncio.Event()

    async def dripping(asked: Asked) -> AsyncIterator[bytes]:
        written = events(response_of(output_of(Says("This will take a very long time.")), asked))
        for event in written[: next(at for at, event in enumerate(written) if b"output_text.done" in event)]:
            yield event
        await forever.wait()

    upstream.model = lambda asked: Reply(dripping(asked), headers=STREAM)
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1, stream=True, headers={"x-lastcall-deadline": "1"}).ask()

    assert turn.lastcall is not None
    assert turn.lastcall["reason"] == "deadline"
    assert turn.text.startswith("This will take a very long time.\n\n[lastcall stop]")
    assert [item["type"] for item in turn.output] == ["reasoning", "message", "message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/responses/resp_1?include=x"),
        ("DELETE", "/responses/resp_1"),
        ("POST", "/responses/resp_1/cancel"),
        ("GET", "/responses/resp_1/input_items"),
        ("POST", "/responses/compact"),
    ],
)
async def test_what_is_kept_at_the_server_is_reached_as_ever(
    upstream: Upstream, http: aiohttp.ClientSession, method: str, path: str
) -> None:
    """Forwarded, not judged."""
    upstream.model = lambda asked: Reply(asked.body or b"{}", 200)
    async with running(upstream.url) as proxy, http.request(method, f"{proxy.v1}{path}", data=b'{"x": 1.0}') as response:
        assert (response.status, await response.read()) == (200, b'{"x": 1.0}')

    assert (upstream.asked[0].method, upstream.asked[0].target) == (method, f"/v1{path}")


async def test_a_websocket_is_told_to_speak_http(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """With the status on which Codex goes on over HTTP; the upstream is not asked."""
    async with running(upstream.url) as proxy:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{proxy.v1}/responses")

    assert refused.value.status == 426
    assert not upstream.asked
