"""Answers that the upstream makes in the background: asked for until they are there, nudged once, stopped, usable after the stop."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest

from tests.agents import events_of
from tests.responses import Agent, Items, Kept, Turn, events, turn_of
from tests.running import running
from tests.upstreams import DONE, READ_A, STREAM, WHOLE, Asked, Cut, Reply, Says, Upstream, pieces

POSTED = ["allow", "allow", "allow", "nudge", "allow", "stop"]


@dataclass
class Background:
    """A model that answers later what is asked in the background. made: its answers, by id; looked: how often each was asked for.

    hangs: its streams fall silent after their first events, and do not break. says: its answers have the member `background`.
    """

    kept: Kept
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    hangs: bool = False
    says: bool = True

    def __call__(self, asked: Asked) -> Reply:
        if asked.method == "GET":
            name, _, query = asked.target.rpartition("/")[2].partition("?")
            return self._streamed(name, query) if "stream=true" in query else self._shown(name)
        body = asked.json
        streams = body.get("stream") and body.get("background")
        reply = self.kept(replace(asked, body=json.dumps(body | {"stream": False}).encode()) if streams else asked)
        if reply.status != 200 or not body.get("background"):
            return reply
        assert isinstance(reply.body, bytes)
        response = json.loads(reply.body) | ({"background": True} if self.says else {})
        if asked.json.get("conversation"):
            response["conversation"] = {"id": asked.json["conversation"]}
        self.made[response["id"]] = response
        return Reply(self._begun(response), headers=STREAM) if streams else self._unfinished(response, "queued")

    async def _begun(self, response: dict[str, Any]) -> AsyncIterator[bytes]:
        """The first events of a stream whose connection then breaks."""
        for event in events(response)[:3]:
            yield event
        if self.hangs:
            await asyncio.Event().wait()
        raise Cut

    def _streamed(self, name: str, query: str) -> Reply:
        """All events behind the one that was seen last."""
        seen = int(query.partition("starting_after=")[2] or -1)
        return Reply(
            pieces([event for event in events(self.made[name])[1:] if events_of(event)[0]["sequence_number"] > seen]), headers=STREAM
        )

    def _shown(self, name: str) -> Reply:
        self.looked[name] = self.looked.get(name, 0) + 1
        if self.looked[name] == 1:
            return self._unfinished(self.made[name], "in_progress")
        return Reply(json.dumps(self.made[name]).encode(), headers=WHOLE)

    def _unfinished(self, response: dict[str, Any], status: str) -> Reply:
        return Reply(json.dumps(response | {"status": status, "output": [], "usage": None}).encode(), headers=WHOLE)


async def answered(agent: Agent, http: aiohttp.ClientSession, v1: str) -> tuple[Turn, Turn]:
    """Asks once, then asks for the answer until it is there: what the first request came to, and the answer."""
    turn = posted = await agent.ask()
    assert turn.response is not None
    while turn.response is not None and turn.response["status"] in ("queued", "in_progress"):
        async with http.get(f"{v1}/responses/{turn.response['id']}", headers=agent.headers) as response:
            turn = turn_of(response.status, response.headers, await response.read())
    agent.take(turn)
    return posted, turn


async def resumed(agent: Agent, http: aiohttp.ClientSession, v1: str) -> tuple[Turn, Turn]:
    """The same by streams: the first breaks off after two events, the next goes on from there."""
    async with http.post(f"{v1}/responses", data=agent.payload(), headers=agent.headers) as response:
        body = await response.read()
        posted = turn_of(response.status, response.headers, body)
    if posted.response is not None and posted.response["status"] == "completed":
        agent.take(posted)
        return posted, posted
    began = events_of(body)
    name, last = began[0]["response"]["id"], began[1]["sequence_number"]
    async with http.get(f"{v1}/responses/{name}?stream=true&starting_after={last}", headers=agent.headers) as response:
        turn = turn_of(response.status, response.headers, await response.read())
    agent.take(turn)
    return posted, turn


@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
@pytest.mark.parametrize("mode", ["previous", "conversation"])
async def test_a_loop_whose_streams_break_off_and_are_resumed_is_nudged_once_stopped_and_usable_after_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, mode: str, named: bool
) -> None:
    """What a resumed stream ends with is the answer; its bytes are the upstream's own."""
    model = Background(Kept())
    name = mode if mode == "previous" else f"conv_{uuid.uuid4().hex}"
    model.kept.histories[name] = []
    upstream.model = model
    headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode=name, headers=headers, background=True, stream=True)
        turns = [await resumed(agent, http, proxy.v1) for _ in POSTED]

        assert [posted.action for posted, _ in turns] == POSTED
        assert [bool(turn.calls) for _, turn in turns] == [True] * 5 + [False]
        shown = [upstream.sent[number] for number, asked in enumerate(upstream.asked) if asked.method == "GET"]
        assert [turn.body for _, turn in turns[:5]] == shown
        assert [asked.nudges for asked in upstream.asked if asked.method == "POST"] == [0, 0, 0, 1, 0, 0]
        model.kept.turn = lambda _: DONE
        agent.say("And its size?")
        posted, turn = await resumed(agent, http, proxy.v1)
        assert (posted.action, turn.text) == ("allow", DONE.text)
    assert model.kept.refused == []


@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_a_client_that_leaves_its_stream_goes_on_from_the_one_that_it_resumes(
    upstream: Upstream, http: aiohttp.ClientSession, named: bool
) -> None:
    """As if it had stayed: the call that it missed counts."""
    model = Background(Kept())
    upstream.model = model
    headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode="previous", headers=headers, background=True, stream=True)
        actions = []
        for _ in range(4):
            model.hangs = True
            async with http.post(f"{proxy.v1}/responses", data=agent.payload(), headers=agent.headers) as response:
                actions.append(response.headers["x-lastcall-action"])
                began = b""
                while b"response.created" not in began:
                    began += await response.content.readany()
            gone = len(actions)
            await upstream.until(lambda gone=gone: len(upstream.broken_off) == gone)  # type: ignore[misc]
            name = events_of(began.rpartition(b"\n\n")[0])[0]["response"]["id"]
            async with http.get(f"{proxy.v1}/responses/{name}?stream=true", headers=agent.headers) as response:
                agent.take(turn_of(response.status, response.headers, await response.read()))

    assert actions == ["allow", "allow", "allow", "nudge"]


@pytest.mark.parametrize(("named", "says"), [(False, True), (True, True), (False, False)], ids=["derived", "named", "not said"])
@pytest.mark.parametrize("mode", ["previous", "conversation"])
async def test_a_loop_in_the_background_is_nudged_once_stopped_and_usable_after_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, mode: str, named: bool, says: bool
) -> None:
    """The fifth call is in an answer that nobody holds; the request that brings its result is stopped, and concluded at once."""
    model = Background(Kept(), says=says)
    name = mode if mode == "previous" else f"conv_{uuid.uuid4().hex}"
    model.kept.histories[name] = []
    upstream.model = model
    headers = {"x-lastcall-session": uuid.uuid4().hex} if named else None
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, mode=name, headers=headers, background=True)
        turns = [await answered(agent, http, proxy.v1) for _ in POSTED]

        assert [posted.action for posted, _ in turns] == POSTED
        assert [bool(turn.calls) for _, turn in turns] == [True] * 5 + [False]
        assert turns[-1][0].text.endswith(DONE.text or "")
        requests = [asked for asked in upstream.asked if asked.method == "POST"]
        assert [asked.nudges for asked in requests] == [0, 0, 0, 1, 0, 0]
        assert "background" not in requests[-1].json
        model.kept.turn = lambda _: DONE
        agent.say("And its size?")
        posted, turn = await answered(agent, http, proxy.v1)
        assert (posted.action, turn.text) == ("allow", DONE.text)
    assert model.kept.refused == []


async def test_work_in_the_background_is_left_alone(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Calls whose results change; answers that are still being made are not empty ones. What is shown of them is what the upstream says."""
    calls = 8

    def turn(history: Items) -> Says:
        return DONE if sum(item.get("type") == "function_call" for item in history) >= calls else READ_A

    model = Background(Kept(turn))
    upstream.model = model
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode="previous", background=True, tool=lambda *call: f"line {call[2]}")
        turns = [await answered(agent, http, proxy.v1) for _ in range(calls + 1)]

    assert {posted.action for posted, _ in turns} == {"allow"}
    assert [turn.response for _, turn in turns] == list(model.made.values())


async def test_an_answer_that_nobody_looks_at_is_no_empty_one(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A client that waits by other means (a webhook) goes on from it all the same."""
    model = Background(Kept(lambda _: Says("Noted.")))
    upstream.model = model
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, mode="previous", background=True)
        actions = []
        for _ in range(8):
            turn = await agent.ask()
            actions.append(turn.action)
            assert turn.response is not None
            agent.previous, agent.items = turn.response["id"], [{"role": "user", "content": "continue"}]

    assert actions == ["allow"] * 8
