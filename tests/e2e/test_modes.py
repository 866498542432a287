"""What a stopped client gets, as configured; and observing without acting."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.agents import Agent, events_of
from tests.running import running
from tests.upstreams import DONE, READ_A, STREAM, Asked, Reply, Says, Upstream, chunks, looping, saying

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
OBJECT_KEYS = [
    *(
        "action",
        "reason",
        "detector",
        "tool",
        "count",
        "limit",
        "scope",
        "spent",
        "resets_at",
        "session",
        "degraded",
        "last_error",
        "trail",
    ),
    "message",
]


@STREAMED
async def test_a_message_costs_no_upstream_call(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Five calls, the fifth withheld, and Lastcall's own words."""
    async with running(upstream.url, "policy: {on_stop: message}") as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    assert len(upstream.asked) == len(turns) == 5
    assert turns[-1].status == 200
    assert turns[-1].text.startswith("[lastcall stop] Lastcall stopped this run: read_file ")
    assert turns[-1].lastcall is not None
    assert turns[-1].lastcall["degraded"] is not None


@STREAMED
async def test_an_error_comes_with_its_status(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Streams too: an armed one keeps its status until the decision. The error persists for the run; who insists gets others."""
    async with running(upstream.url, "policy: {on_stop: error}") as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        turns = await agent.run()
        again = [await agent.ask() for _ in range(3)]

    assert [turn.status for turn in turns] == [200, 200, 200, 200, 400]
    assert [turn.status for turn in again] == [401, 404, 404]
    for turn in (turns[-1], *again):
        assert turn.error is not None
        assert turn.lastcall is not None
        assert turn.headers["content-type"] == "application/json"
        assert turn.headers["x-should-retry"] == "false"
        assert (turn.error["type"], turn.error["code"], turn.error["param"]) == ("invalid_request_error", "lastcall_repeated_call", None)
        assert list(turn.lastcall) == OBJECT_KEYS
    assert len(upstream.asked) == 5


@STREAMED
async def test_a_harmless_answer_in_an_armed_error_stream_goes_through(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """The wait for the decision changes no byte of it."""
    upstream.model = looping(lambda asked: DONE if asked.turn == 4 else READ_A)
    async with running(upstream.url, "policy: {on_stop: error}") as proxy:
        turns = await Agent(http, proxy.v1, stream=stream, stream_options={"include_usage": True} if stream else None).run()

    assert len(turns) == 5
    assert turns[-1].body == upstream.sent[-1]


@STREAMED
async def test_the_lastcall_object_tells_what_happened(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Top-level in a completion; in the last data event of a stream."""
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream, headers={"x-lastcall-session": "told"}).run()

    told = turns[-1].lastcall
    assert told is not None
    assert list(told) == OBJECT_KEYS
    assert (told["action"], told["reason"], told["detector"], told["tool"]) == ("stop", "repeated_call", "repeated_call", "read_file")
    assert (told["count"], told["limit"], told["session"]) == (5, 5, "told")
    assert told["trail"]
    assert told["trail"][0]["tool"] == "read_file"
    assert "a.txt" not in json.dumps(told)
    if stream:
        assert "lastcall" in events_of(turns[-1].body)[-1]
        assert all("lastcall" not in event for turn in turns[:-1] for event in events_of(turn.body))


async def test_a_stopped_stream_shows_usage_only_to_who_asked(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Of both calls together; and the last data event holds the decision either way."""
    async with running(upstream.url) as proxy:
        plain = await Agent(http, proxy.v1, stream=True).run()
        asking = await Agent(http, proxy.v1, stream=True, stream_options={"include_usage": True}).run()

    assert not any(event.get("usage") for event in events_of(plain[-1].body))
    usage = events_of(asking[-1].body)[-1]
    assert usage["usage"]["total_tokens"] == 220
    assert usage["choices"] == []
    assert usage["lastcall"]["action"] == "stop"


async def test_text_of_an_armed_stream_is_not_held_back(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Only from the first tool call on."""
    go_on = asyncio.Event()

    async def talking(asked: Asked) -> AsyncIterator[bytes]:
        parts = chunks(Says("Hmm. Once more.", READ_A.calls), asked)
        yield b"".join(parts[:5])
        await go_on.wait()
        yield b"".join(parts[5:])

    upstream.model = lambda asked: Reply(talking(asked), headers=STREAM) if asked.turn == 4 and not asked.tools_off else looping()(asked)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True)
        for _ in range(4):
            agent.take(await agent.ask())
        async with http.post(f"{proxy.v1}/chat/completions", data=agent.payload(), headers=agent.headers) as response:
            first = await asyncio.wait_for(response.content.readany(), 5)
            assert b"Hmm." in first
            go_on.set()
            rest = await response.read()

    body = first + rest
    assert b"tool_calls" not in body.replace(b'"finish_reason":"tool_calls"', b"")
    assert len({event["id"] for event in events_of(body)}) == 1
    assert b"[lastcall stop]" in rest


@STREAMED
async def test_observing_changes_nothing_and_tells_what_would_have_happened(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """Byte for byte in both directions; the log and `x-lastcall-repeat` know."""
    async with running(upstream.url, "policy: {mode: observe, budgets: {steps: 6}}") as proxy:
        agent = Agent(http, proxy.v1, stream=stream)
        turns, sent = [], []
        for _ in range(8):
            sent.append(agent.payload())
            turns.append(await agent.ask())
            agent.take(turns[-1])
        async with http.get(f"{proxy.url}/metrics") as response:
            metrics = await response.text()

    assert [request.body for request in upstream.asked] == sent
    assert [turn.body for turn in turns] == upstream.sent
    assert {turn.action for turn in turns} == {"allow"}
    assert turns[3].headers["x-lastcall-repeat"] == "read_file 3/5"
    lines = proxy.exchanges()
    assert {line["mode"] for line in lines} == {"observe"}
    assert [line["action"] for line in lines] == ["allow"] * 3 + ["nudge", "stop", "allow", "refuse", "refuse"]
    assert [line.get("reason") for line in lines][3:5] == ["repeated_call"] * 2
    decided = [line for line in metrics.splitlines() if 'mode="' in line and not line.endswith(" 0.0")]
    assert {line.partition("{")[0].removeprefix("lastcall_") for line in decided} == {
        *("findings_total", "tools_total", "nudges_total", "stops_total", "refusals_total")
    }
    assert all('mode="observe"' in line for line in decided)


@STREAMED
async def test_a_forced_finish_tool_ends_the_run(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """For agents that end by a tool: the wrap-up is that call, and the stop says so."""

    def model(asked: Asked) -> Reply:
        choice = asked.json.get("tool_choice")
        forced = isinstance(choice, dict)
        return saying(Says(calls=(("submit", '{"answer": "one line"}'),)) if forced else READ_A, asked)

    upstream.model = model
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("read_file", "submit")]
    async with running(upstream.url, "policy: {wrap_up: {force_finish_tool: submit}}") as proxy:
        turns = await Agent(http, proxy.v1, stream=stream, tools=tools).run(cap=5)

    assert len(upstream.asked) == 6
    assert upstream.asked[-1].json["tool_choice"] == {"type": "function", "function": {"name": "submit"}}
    assert [call["function"]["name"] for call in turns[-1].calls] == ["submit"]
    assert turns[-1].lastcall is not None
