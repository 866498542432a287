"""A fleet of agents of every kind that the metrics tell apart, at work through real proxies: what dashboards are filled with.

What an agent is like stands in its task; the model behind the proxies reads it there.
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from proxy.keys import digest_of
from tests.agents import Agent
from tests.running import Process, process
from tests.servers import Server, free_port, redis_server
from tests.upstreams import DONE, READ_A, Asked, Model, Reply, Says, looping, pieces, upstream_running

TEAMS = {"research": 3, "support": 2, "platform": 1}
"""How many of six agents are of a team."""
PRICES = "{'gpt-*': {input: 1.25, cached: 0.125, output: 10}, 'claude-*': {input: 3, cached: 0.3, output: 15}}"
MODELS = ("gpt-5", "gpt-5-mini", "claude-sonnet-4-5", "in-house-7b")
TURNS = 12
STEPS = "10"  # of those who spend


def _another(asked: Asked) -> Says:
    """Another file each turn."""
    return Says(calls=(("read_file", json.dumps({"path": f"{asked.turn}.txt"})),))


def _work(asked: Asked) -> Says:
    """The same, and an answer in the end."""
    return DONE if asked.turn >= 6 else _another(asked)


def _round(asked: Asked) -> Says:
    return Says(calls=((("search", "read_file", "edit")[asked.turn % 3], "{}"),))


KINDS: dict[str, tuple[float, Callable[[Asked], Says]]] = {
    "works": (70, _work),
    "loops": (5, lambda _: READ_A),
    "heeds": (16, lambda asked: DONE if asked.nudges else READ_A),
    "circles": (3, _round),
    "stutters": (2, lambda _: Says(calls=READ_A.calls * 20)),
    "spends": (4, _another),
}
"""How many of a hundred agents are of a kind, and what the model tells them."""
FAILURES = (500, 429, 503)


@dataclass
class Fleet:
    """The proxies under load. store: the Redis behind the first of them. due: agents that come first, so that there is one of each kind."""

    proxies: list[Process]
    targets: list[str]
    store: Server
    http: aiohttp.ClientSession
    chance: random.Random
    due: list[tuple[str, Process]]

    async def work(self, seconds: float, agents: int) -> None:
        """As many agents at a time for so long. Half way the store is away for a moment, one agent leaves in the midst of a stream, and the
        configuration changes, once to something that is not valid.
        """
        end = time.monotonic() + seconds
        busy = [asyncio.ensure_future(self._one_after_another(end)) for _ in range(agents)]
        await asyncio.sleep(seconds / 2)
        self.store.pause()
        await asyncio.sleep(min(2.0, seconds / 8))
        self.store.resume()
        await self._leave()
        await asyncio.to_thread(self._change_configuration)
        await asyncio.gather(*busy)

    async def _one_after_another(self, end: float) -> None:
        while time.monotonic() < end:
            kind, served = self.due.pop() if self.due else self._any()
            team = self.chance.choices(list(TEAMS), list(TEAMS.values()))[0]
            headers = {"x-lastcall-key": f"key-of-{team}", **({"x-lastcall-max-steps": STEPS} if kind == "spends" else {})}
            stream = self.chance.random() < 0.7
            # Most clients ask for a stream's usage; a proxy that only observes does not do it for the others.
            usage: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream and self.chance.random() < 0.8 else {}
            task, name = f"{kind} {self.chance.random()}", self.chance.choice(MODELS)
            agent = Agent(self.http, served.v1, task=task, model=name, stream=stream, headers=headers, **usage)
            with suppress(aiohttp.ClientError):
                turns = await agent.run(cap=TURNS)
                if kind == "spends" and turns[-1].message is not None:
                    await agent.ask()
                async with self.http.get(f"{served.v1}/models", headers=headers) as response:
                    await response.read()

    def _any(self) -> tuple[str, Process]:
        return self.chance.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0], self.chance.choice(self.proxies)

    def _change_configuration(self) -> None:
        proxy = self.proxies[0]
        file = Path(f"/proc/{proxy.pid}/cwd").resolve() / "config.yaml"
        text = file.read_text()
        for changed, outcome in ((text + "]", "rejected"), (text.replace("policy: {", "policy: {budgets: {steps: 500}, "), "applied")):
            file.write_text(changed)
            proxy.send(signal.SIGHUP)
            proxy.wait_for_log(f'"outcome":"{outcome}"')

    async def _leave(self) -> None:
        agent = Agent(self.http, self.proxies[0].v1, stream=True, task="hangs", headers={"x-lastcall-key": "key-of-support"})
        async with self.http.post(f"{self.proxies[0].v1}/chat/completions", data=agent.payload(), headers=agent.headers) as response:
            await response.content.readany()
            response.close()


def model(chance: random.Random, pace: float) -> Model:
    """Answers as the task's first word says, after thinking about `pace` seconds; now and then it fails as providers do."""

    def reply(asked: Asked) -> Reply:
        if asked.method == "GET":
            return Reply(b'{"object": "list", "data": []}')
        kind = asked.json["messages"][1]["content"].split()[0]
        if kind == "hangs":
            return Reply(_hanging(), headers=(("Content-Type", "text/event-stream"),))
        if chance.random() < 0.02:
            return Reply(b'{"error": {"message": "try again"}}', chance.choice(FAILURES))
        answer = looping(KINDS[kind][1])(asked)
        body = answer.body if not isinstance(answer.body, bytes) else pieces([answer.body])
        return Reply(_thinking(_told(body, len(asked.body) // 4), chance.expovariate(1 / pace)), answer.status, answer.headers)

    return reply


async def _told(body: AsyncIterator[bytes], tokens: int) -> AsyncIterator[bytes]:
    """The answer with a usage that fits the size of the request."""
    async for piece in body:
        read = b'"prompt_tokens": %d, "prompt_tokens_details": {"cached_tokens": %d},' % (tokens, max(tokens - 120, 0))
        yield piece.replace(b'"prompt_tokens": 100,', read).replace(b'"total_tokens": 110,', b'"total_tokens": %d,' % (tokens + 10))


async def _thinking(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    async for piece in body:
        yield piece
        await asyncio.sleep(seconds / 20)


async def _hanging() -> AsyncIterator[bytes]:
    yield b": wait\n\n"
    await asyncio.Event().wait()


def _teams(budgets: dict[str, str]) -> str:
    """Prices and teams of a configuration, each team with its budgets."""
    teams = ", ".join(f"{team}: {{keys: ['{digest_of(f'key-of-{team}')}'], budgets: {budgets.get(team, '[]')}}}" for team in TEAMS)
    return f"prices: {PRICES}, teams: {{{teams}}}"


@asynccontextmanager
async def fleet(seed: int, pace: float, tokens: int) -> AsyncIterator[Fleet]:
    """Two proxies: one enforces with a Redis behind it, one only observes. tokens: what the smallest team has for a day."""
    async with AsyncExitStack() as stack:
        store = stack.enter_context(redis_server())
        upstream = await stack.enter_async_context(upstream_running(model(random.Random(seed), pace)))
        ports = free_port(), free_port()
        budgets = {"platform": f"[{{tokens: {tokens}, per: day}}, {{cost_usd: 500, per: month}}]"}
        held_out = "policy: {nudge: {holdout: 0.3}}"
        configs = (
            f"{{server: {{metrics_port: {ports[0]}}}, store: {{url: '{store.url}', timeout: 250ms}}, {_teams(budgets)}, {held_out}}}",
            f"{{server: {{metrics_port: {ports[1]}}}, policy: {{mode: observe}}, {_teams({})}}}",  # which would be spent, and not kept
        )
        proxies = [stack.enter_context(process(upstream.url, config=config)) for config in configs]
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), auto_decompress=False))
        due = [(kind, served) for kind in KINDS for served in proxies]
        yield Fleet(proxies, [f"127.0.0.1:{port}" for port in ports], store, http, random.Random(seed), due)
