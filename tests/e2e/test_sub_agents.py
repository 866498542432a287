"""Sub-agents that share their parent's session, as Codex and Claude Code have them: a stop goes down, on any store and from any replica."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from proxy.keys import digest_of
from tests import messages, responses
from tests.running import Proxy, running
from tests.upstreams import READ_A, Says, Upstream

OPERATOR = "operators-key"
CONFIG = f'server: {{admin_key: "{digest_of(OPERATOR)}"}}'
LOOKS = Says(calls=(("search", '{"text": "x"}'),))


def obliging(history: object) -> Says:
    """In a loop until a person speaks again; a sub-agent looks for something else."""
    return LOOKS if "sub-agent" in str(history) or "Another way" in str(history) else READ_A


@pytest.fixture
async def replicas(upstream: Upstream, either_store: str) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """Two ways in to the same sessions: one process on its own memory, or two on a Redis."""
    async with AsyncExitStack() as stack:
        count = 1 if either_store == "memory://" else 2
        proxies = [await stack.enter_async_context(running(upstream.url, CONFIG, store=either_store)) for _ in range(count)]
        yield proxies[0], proxies[-1]


async def lanes(http: aiohttp.ClientSession, proxy: Proxy, session: str) -> list[dict[str, Any]]:
    """As an operator sees them."""
    headers = {"authorization": f"Bearer {OPERATOR}"}
    async with http.get(f"{proxy.url}/admin/sessions/{session}", headers=headers) as response:
        found: list[dict[str, Any]] = (await response.json())["lanes"]
        return found


async def test_claude_codes_agents_stop_with_the_line_that_sent_them(
    upstream: Upstream, http: aiohttp.ClientSession, replicas: tuple[Proxy, Proxy]
) -> None:
    """One that they sent too; a person's next message lets all go on, and the stop of one is told to those above it."""
    upstream.model = messages.Strict(turn=lambda asked: obliging(asked.json))
    one, other = replicas
    session, key = f"s-{uuid.uuid4()}", f"sk-{uuid.uuid4()}"
    shared = {"user-agent": "claude-cli/2.1.197", "x-claude-code-session-id": session, "x-api-key": key}
    nested_in = {"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    main = messages.Agent(http, one.v1, headers=shared)
    sub = messages.Agent(http, other.v1, headers=shared | {"x-claude-code-agent-id": "a1"}, task="You are a sub-agent.")
    nested = messages.Agent(http, one.v1, headers=shared | nested_in, task="You are a sub-agent's sub-agent.")

    main.take(await main.ask())
    before = [(await agent.ask()).action for agent in (sub, nested)]
    stopped = (await main.run())[-1]
    asked = len(upstream.asked)
    during = [await agent.ask() for agent in (sub, nested)]
    seen = await lanes(http, other, session)
    main.say("Another way, please.")
    after = [(await agent.ask()).action for agent in (main, sub, nested)]

    assert (before, stopped.action, after) == (["allow", "allow"], "stop", ["allow", "allow", "allow"])
    assert [(turn.action, turn.headers["x-lastcall-reason"]) for turn in during] == [("stop", "repeated_call")] * 2
    assert [turn.lastcall and turn.lastcall["scope"] for turn in during] == ["parent", "parent"]
    assert "the agent above this sub-agent was stopped (repeated_call)" in during[0].text
    assert len(upstream.asked) == asked + 3
    assert [(lane["main"], lane["sent_by"] is not None, lane["above_reason"]) for lane in seen] == [
        (True, False, None),
        (False, True, "repeated_call"),
        (False, True, "repeated_call"),
    ]
    assert seen[seen[1]["sent_by"]]["main"] or seen[seen[2]["sent_by"]]["main"]


async def test_codexs_threads_stop_with_the_thread_that_sent_them(
    upstream: Upstream, http: aiohttp.ClientSession, replicas: tuple[Proxy, Proxy]
) -> None:
    """Its own stop is told to its parent, in the header and in the record; a thread beside it goes on."""
    upstream.model = responses.Kept(obliging)
    one, other = replicas
    session, key = f"s-{uuid.uuid4()}", f"Bearer sk-{uuid.uuid4()}"
    shared = {"user-agent": "codex_cli_rs/0.171.0", "session-id": session, "authorization": key}
    root = responses.Agent(http, one.v1, headers=shared | {"thread-id": "t1"}, task="Go on as a sub-agent would.")
    sub = responses.Agent(http, other.v1, headers=shared | {"thread-id": "t2", "x-codex-parent-thread-id": "t1"})
    nested = responses.Agent(
        http, one.v1, headers=shared | {"thread-id": "t3", "x-codex-parent-thread-id": "t2"}, task="You are a sub-agent."
    )
    beside = responses.Agent(http, one.v1, headers=shared | {"thread-id": "t4"}, task="Beside it, a sub-agent of nobody.")

    for agent in (root, nested, beside):
        assert (await agent.ask()).action == "allow"
    stopped = (await sub.run())[-1]
    told = [await agent.ask() for agent in (root, nested, beside)]
    seen = await lanes(http, one, session)

    assert (stopped.action, stopped.lastcall and stopped.lastcall["scope"]) == ("stop", "run")
    assert [turn.action for turn in told] == ["allow", "stop", "allow"]
    assert [turn.headers.get("x-lastcall-child-stopped") for turn in told] == ["repeated_call", None, None]
    assert [lane["below_reason"] for lane in seen] == ["repeated_call", None, None, None]
