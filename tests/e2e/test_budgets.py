"""What a session may spend: an agent that never repeats itself ends by its budget, with an answer, and nothing is spent beyond."""

import asyncio
import json
import uuid

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.running import running
from tests.upstreams import DONE, READ_A, Asked, Reply, Says, Upstream, looping, saying

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def counting(asked: Asked) -> Says:
    """New arguments every time."""
    return Says(calls=(("search", json.dumps({"page": asked.turn})),))


def told(name: str, arguments: str, number: int) -> str:
    return f"{arguments} holds {'abcdefghijklmnopqrstuvwxyz'[number] * 5}"


@STREAMED
@pytest.mark.parametrize("steps", [1, 7])
async def test_n_steps_are_exactly_n_upstream_calls_and_an_answer(
    upstream: Upstream, http: aiohttp.ClientSession, store: str, stream: bool, steps: int
) -> None:
    """The last allowed step is already the wrap-up; the agent was never nudged."""
    upstream.model = looping(counting)
    async with running(upstream.url, f"policy: {{budgets: {{steps: {steps}}}}}", store=store) as proxy:
        turns = await Agent(http, proxy.v1, tool=told, stream=stream).run()

    assert len(upstream.asked) == len(turns) == steps
    assert [turn.headers["x-lastcall-step"] for turn in turns] == [f"{step}/{steps}" for step in range(1, steps + 1)]
    assert [turn.action for turn in turns] == ["allow"] * (steps - 1) + ["stop"]
    assert turns[-1].headers["x-lastcall-reason"] == "step_budget"
    assert DONE.text is not None
    assert turns[-1].text.startswith("[lastcall stop]")
    assert turns[-1].text.rstrip().endswith(DONE.text)
    assert not any(request.nudges for request in upstream.asked)


@STREAMED
async def test_a_model_that_ignores_the_wrap_up_still_costs_no_step_more(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """Nor one that answers it with markup: the tries are bounded by the budget."""
    for concluding in (READ_A, Says('<tool_call>{"name": "search"}</tool_call>')):
        upstream.asked.clear()
        upstream.model = looping(counting, concluding)
        async with running(upstream.url, "policy: {budgets: {steps: 4}}") as proxy:
            turns = await Agent(http, proxy.v1, tool=told, stream=stream).run()
        assert len(upstream.asked) == 4
        assert turns[-1].text.startswith("[lastcall stop]")
        assert "tool_call" not in turns[-1].text


async def test_a_spent_session_is_refused_without_the_upstream(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Also after new text from a person: the budget is the session's."""
    upstream.model = looping(counting)
    async with running(upstream.url, "policy: {budgets: {steps: 2}}", store=either_store) as proxy:
        agent = Agent(http, proxy.v1, tool=told, headers={"x-lastcall-session": f"spent-{uuid.uuid4()}"})
        await agent.run()
        agent.say("And now something else.")
        turn = await agent.ask()

    assert (turn.status, turn.action, turn.headers["x-lastcall-reason"]) == (200, "refuse", "step_budget")
    assert turn.lastcall is not None
    assert (turn.lastcall["action"], turn.lastcall["limit"], turn.lastcall["spent"]) == ("refuse", 2, 2)
    assert len(upstream.asked) == 2


@STREAMED
async def test_a_spent_budget_as_an_error(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """HTTP 400 in the dialect's shape, before any header of a stream, and no retry."""
    upstream.model = looping(counting)
    async with running(upstream.url, "policy: {on_stop: error, budgets: {steps: 3}}") as proxy:
        turns = await Agent(http, proxy.v1, tool=told, stream=stream).run()

    assert [turn.status for turn in turns] == [200, 200, 200, 400]
    assert turns[-1].headers["x-should-retry"] == "false"
    assert turns[-1].error is not None
    assert turns[-1].error["code"] == "lastcall_step_budget"
    assert len(upstream.asked) == 3


async def test_a_header_tightens_the_session_and_never_loosens_it(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str
) -> None:
    """What it tightened stays, and does not reach the upstream."""
    upstream.model = looping(counting)
    async with running(upstream.url, "policy: {budgets: {steps: 4}}", store=either_store) as proxy:
        agent = Agent(http, proxy.v1, tool=told, headers={"x-lastcall-session": f"tight-{uuid.uuid4()}"})
        agent.take(await agent.ask(x_lastcall_max_steps="3"))
        agent.take(await agent.ask(x_lastcall_max_steps="100"))
        turn = await agent.ask()
        loose = await Agent(http, proxy.v1, tool=told).ask(x_lastcall_max_steps="100")

    assert (turn.action, turn.headers["x-lastcall-step"]) == ("stop", "3/3")
    assert loose.headers["x-lastcall-step"] == "1/4"
    assert not any(name.lower().startswith("x-lastcall") for request in upstream.asked for name, _ in request.headers)


@STREAMED
async def test_a_token_budget_ends_the_run_with_an_answer(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, stream: bool
) -> None:
    """Usage comes from the upstream (110 a call here), whether the client asked for it or not."""
    upstream.model = looping(counting)
    async with running(upstream.url, "policy: {budgets: {tokens: 4000}}", store=either_store) as proxy:
        turns = await Agent(http, proxy.v1, tool=told, stream=stream, max_tokens=300).run()

    assert turns[-1].text.startswith("[lastcall stop]")
    assert turns[-1].headers["x-lastcall-reason"] == "token_budget"
    assert 2 <= len(upstream.asked) == len(turns)
    assert 110 * len(upstream.asked) <= 4000


async def test_an_answer_may_not_cost_more_than_what_is_left(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """The output limit that is sent upstream is lowered to what was granted."""
    async with running(upstream.url, "policy: {budgets: {tokens: 3000}}") as proxy:
        await Agent(http, proxy.v1, max_tokens=100_000).ask()

    assert upstream.asked[0].json["max_tokens"] <= 3000


async def test_tokens_are_estimated_where_the_upstream_reports_none(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """And the log says so."""

    def model(asked: Asked) -> Reply:
        answer = json.loads(saying(counting(asked), asked).body)  # type: ignore[arg-type]
        del answer["usage"]
        return Reply(json.dumps(answer).encode())

    upstream.model = model
    async with running(upstream.url) as proxy:
        await Agent(http, proxy.v1).ask()

    (line,) = proxy.exchanges()
    assert line["usage_estimated"] is True
    assert line["input_tokens"] == -(-len(upstream.asked[0].body) // 4)
    assert line["output_tokens"] > 0


async def test_a_deadline_ends_the_run(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Once the time is over nothing goes upstream any more."""
    upstream.model = looping(counting)
    async with running(upstream.url, "policy: {budgets: {deadline: 1h}}", store=either_store) as proxy:
        agent = Agent(http, proxy.v1, tool=told, headers={"x-lastcall-session": f"late-{uuid.uuid4()}", "x-lastcall-deadline": "0.2"})
        turn = await agent.ask()
        if turn.action == "allow":  # on a busy machine the time may be over already
            agent.take(turn)
        async with asyncio.timeout(5):
            while turn.action == "allow":
                turn = await agent.ask(x_stainless_retry_count="1")
        again = await agent.ask()
        asked = len(upstream.asked)
        last = await agent.ask()

    assert turn.action in ("stop", "refuse")  # the limit may come while an answer is on its way
    assert (again.action, again.headers["x-lastcall-reason"]) == ("refuse", "deadline")
    assert turn.text.startswith("[lastcall stop]")
    assert (last.action, len(upstream.asked)) == ("refuse", asked)


async def test_a_step_budget_holds_under_concurrency(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Twenty requests of one session at once, five steps."""
    upstream.model = lambda asked: saying(DONE, asked)
    async with running(upstream.url, "policy: {budgets: {steps: 5}}", store=either_store) as proxy:
        headers = {"x-lastcall-session": f"crowd-{uuid.uuid4()}"}
        key = "sk-crowd"
        agents = [Agent(http, proxy.v1, headers=headers, key=key, task=f"part {number}") for number in range(20)]
        turns: list[Turn] = await asyncio.gather(*(agent.ask() for agent in agents))

    assert len(upstream.asked) == 5
    assert sorted(turn.action for turn in turns).count("refuse") == 15
    assert all(turn.status == 200 for turn in turns)


async def test_an_error_of_the_upstream_costs_no_step(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Only completed calls count."""
    upstream.model = lambda _: Reply(b"{}", 500)
    async with running(upstream.url, "policy: {budgets: {steps: 2}}") as proxy:
        agent = Agent(http, proxy.v1, headers={"x-lastcall-session": "errors"})
        failed = [await agent.ask() for _ in range(4)]
        upstream.model = looping(counting)
        turn = await agent.ask()

    assert [answer.status for answer in failed] == [500] * 4
    assert (turn.action, turn.headers["x-lastcall-step"]) == ("allow", "1/2")
