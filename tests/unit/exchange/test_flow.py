"""Exchanges from request to settled answer, in process: what the client, the upstream, the ledger and the operator see of them.

Beside it: `test_closing` (how runs end), `test_pruning` (what is left out of an answer, or only observed) and
`test_failures`.
"""

import asyncio
import gc
import json
from typing import Any

import pytest

from proxy.calls import Calls
from proxy.client import Client
from proxy.events import FindingSeen, NudgeEnded, Outcome
from proxy.exchange import Exchange
from proxy.forwarding import Forwarder
from proxy.models import Action, Reason
from proxy.policy import Budgets, OnStop, Policy
from proxy.sessions import Session
from proxy.upstream.http import Response
from tests.in_process import (
    LS,
    OPENING,
    USAGE_EVENT,
    Conversation,
    Proxy,
    ScriptedResponse,
    answer,
    called,
    looping,
    request,
    stream,
    text_stream,
)

STOP = "[lastcall stop]"


def held_by_exchanges() -> list[object]:
    return [one for one in gc.get_objects() if type(one) in (Client, Exchange, Calls, Session, Forwarder)]


# ---- healthy


@pytest.mark.parametrize("upstream", [answer("hi"), answer(None, LS), answer("hi", choices=3), ScriptedResponse(b"not json")])
async def test_a_healthy_exchange_changes_no_byte(upstream: ScriptedResponse) -> None:
    """Request and answer pass as they are; the headers say what Lastcall thinks of it."""
    body = request(x_unknown={"a": [1.50, None]})
    proxy = Proxy(upstream)
    conversation = await proxy.ask(body, query=b"api-version=1", user_agent="test")

    (sent,) = proxy.upstream.sent
    assert (sent.body, sent.path, sent.query) == (body, "/chat/completions", b"api-version=1")
    assert conversation.body == await upstream.read()
    assert conversation.status == 200
    assert conversation.lastcall == {"session": proxy.ended.session, "step": "1", "action": "allow"}
    assert proxy.ended.outcome is Outcome.COMPLETED


async def test_a_healthy_exchange_settles_its_usage() -> None:
    """One step, the provider's own numbers, no lease left."""
    proxy = Proxy(answer("hi"))
    await proxy.ask(request())

    assert proxy.ledger() == (1, 13, 0)
    ended = proxy.ended
    assert (ended.input_tokens, ended.output_tokens, ended.usage_estimated, ended.upstream_calls) == (10, 3, False, 1)


async def test_a_healthy_stream_settles_its_usage_too() -> None:
    """Before its last event goes out; what the client did not ask for is taken out again."""
    proxy = Proxy(stream(*text_stream()))
    ledgers: list[tuple[int, int, int]] = []
    conversation = Conversation((request(stream=True),), watch=lambda message: ledgers.append(proxy.ledger()))
    await proxy.run(conversation)

    assert conversation.body == b"".join(piece for piece in text_stream() if piece != USAGE_EVENT)
    assert proxy.upstream.sent[0].json["stream_options"] == {"include_usage": True}
    assert proxy.ledger() == (1, 13, 0)
    ended = proxy.ended
    assert (ended.input_tokens, ended.output_tokens, ended.usage_estimated, ended.streamed) == (10, 3, False, True)
    assert ledgers[-1] == (1, 13, 0)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
async def test_an_exchange_leaves_nothing_to_the_garbage_collector(streamed: bool, stopped: bool) -> None:
    """What holds a whole request is free with its end: circles would keep hundreds of them, until a collection stops everything."""
    proxy = Proxy(stream(*text_stream()) if streamed else answer("hi"))
    body = request(looping(6) if stopped else None, stream=streamed)
    gc.collect()
    others = held_by_exchanges()
    gc.disable()
    try:
        await proxy.ask(body)
        for _ in range(3):  # a watch that was called off ends
            await asyncio.sleep(0)
        left = [type(one).__name__ for one in held_by_exchanges() if not any(one is other for other in others)]
    finally:
        gc.enable()

    assert left == []


async def test_a_stream_that_asks_for_usage_passes_as_it_is() -> None:
    """Both ways, to the byte."""
    body = request(stream=True, stream_options={"include_usage": True})
    proxy = Proxy(stream(b"".join(text_stream())))
    conversation = await proxy.ask(body)

    assert (proxy.upstream.sent[0].body, conversation.body) == (body, b"".join(text_stream()))


async def test_a_stream_without_a_terminator_is_settled_at_its_end() -> None:
    """Some servers just stop."""
    proxy = Proxy(stream(*text_stream()[:-1]))
    await proxy.ask(request(stream=True))

    assert proxy.ledger() == (1, 13, 0)
    assert proxy.ended.outcome is Outcome.COMPLETED


async def test_a_stream_is_forwarded_piece_by_piece() -> None:
    """Nothing waits for what comes after it."""
    more = asyncio.Event()
    proxy = Proxy(stream(OPENING, more, *text_stream()[1:]))
    conversation = Conversation((request(stream=True),), watch=lambda message: more.set() if message.get("body") == OPENING else None)
    await proxy.run(conversation)

    assert conversation.writes[0] == OPENING


async def test_overhead_and_first_byte_are_measured() -> None:
    """In seconds of the process's own clock."""
    proxy = Proxy()

    async def slow() -> Response:
        proxy.clock.now += 2
        return answer("hi")

    proxy.upstream.answers.append(slow)
    await proxy.ask(request())

    ended = proxy.ended
    assert (ended.overhead_seconds, ended.upstream_seconds, ended.first_byte_seconds) == (0.0, 2.0, 2.0)


async def test_the_first_way_that_serves_a_model_is_taken() -> None:
    """And a model that none serves is named in a 404."""
    proxy = Proxy()
    conversation = await proxy.ask(request(model="unserved"))

    assert (conversation.status, conversation.json["error"]["code"]) == (404, "lastcall_no_upstream")
    assert "'unserved'" in conversation.json["error"]["message"]
    assert (proxy.ended.status, proxy.ended.outcome) == (404, Outcome.REFUSED)
    assert proxy.upstream.sent == []


async def test_a_request_that_cannot_be_read_is_counted() -> None:
    """Refused, without a session."""
    proxy = Proxy()
    conversation = await proxy.ask(b"{")

    assert conversation.status == 400
    assert (proxy.ended.outcome, proxy.ended.session, proxy.ended.upstream_calls) == (Outcome.REFUSED, "", 0)


# ---- the nudge


async def test_the_third_repeat_is_nudged() -> None:
    """The text stands in the last tool result; headers and event say so."""
    proxy = Proxy(answer("done"))
    conversation = await proxy.ask(request(looping(3)))

    sent = proxy.upstream.sent[0].json["messages"]
    assert sent[-1]["content"].startswith("a.txt\n\n[lastcall] ")
    assert sent[:-1] == looping(3)[:-1]
    assert conversation.lastcall == {
        "session": proxy.ended.session,
        "step": "1",
        "action": "nudge",
        "reason": "repeated_call",
        "repeat": "ls 3/5",
    }
    ended = proxy.ended
    assert (ended.action, ended.reason, ended.tool, ended.count, ended.limit) == (Action.NUDGE, Reason.REPEATED_CALL, "ls", 3, 5)
    assert ended.findings == (FindingSeen(Reason.REPEATED_CALL, Action.NUDGE),)
    assert ended.nudge_ended == NudgeEnded("recovered")


async def test_a_tool_name_no_header_can_hold_is_shown_as_it_can() -> None:
    """Printable ASCII, cut."""
    proxy = Proxy(answer("done"))
    name = "läs\n" + "x" * 300
    conversation = await proxy.ask(request(looping(3, name=name)))

    repeat = conversation.lastcall["repeat"]
    assert repeat.isascii()
    assert len(repeat) <= 200
    assert repeat.endswith("x 3/5")


# ---- budgets


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_used_up_budget_refuses(streamed: bool) -> None:
    """A message, no upstream call, nothing reserved."""
    proxy = Proxy(policy=Policy(budgets=Budgets(steps=0)))
    conversation = await proxy.ask(request(stream=streamed))

    assert STOP in conversation.text
    notice = conversation.notice
    assert (notice["action"], notice["reason"], notice["scope"], notice["limit"], notice["spent"]) == (
        "refuse",
        "step_budget",
        "session",
        0,
        0,
    )
    assert conversation.lastcall["action"] == "refuse"
    assert (proxy.ended.outcome, proxy.ended.action) == (Outcome.REFUSED, Action.REFUSE)
    assert proxy.ledger() == (0, 0, 0)
    assert proxy.upstream.sent == []


async def test_a_used_up_budget_as_an_error() -> None:
    """With the budget's own code."""
    proxy = Proxy(policy=Policy(budgets=Budgets(steps=0), on_stop=OnStop.ERROR))
    conversation = await proxy.ask(request())

    assert (conversation.status, conversation.json["error"]["code"]) == (400, "lastcall_step_budget")


async def test_the_last_step_of_a_budget_is_the_wrap_up() -> None:
    """Shown as step 1 of 1."""
    proxy = Proxy(answer("Done."), policy=Policy(budgets=Budgets(steps=1)))
    conversation = await proxy.ask(request())

    assert conversation.text.endswith("Done.")
    assert (conversation.lastcall["step"], conversation.lastcall["action"]) == ("1/1", "stop")
    assert proxy.upstream.sent[0].json["tool_choice"] == "none"


async def test_what_was_granted_limits_the_answer() -> None:
    """The upstream is told; the client's own lower limit is left alone."""
    proxy = Proxy(answer("hi"), answer("hi"), policy=Policy(budgets=Budgets(tokens=100_000)))
    await proxy.ask(request())
    await proxy.ask(request(max_tokens=50))

    first, second = [sent.json for sent in proxy.upstream.sent]
    assert max(first.get("max_tokens", 0), first.get("max_completion_tokens", 0)) == 4096
    assert second["max_tokens"] == 50


# ---- the store away


class Away(Exception):
    """A store's failure."""


def take_away(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise Away

    for name in ("secret", "find", "open", "commit"):
        monkeypatch.setattr(proxy.store, name, fail)


async def test_without_its_store_an_exchange_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failure mode open: judged from history alone, nudged and stopped all the same."""
    proxy = Proxy(answer("hi"), answer("Done."))
    take_away(proxy, monkeypatch)
    healthy = await proxy.ask(request())
    stopped = await proxy.ask(request(looping(5)))

    assert (healthy.lastcall["degraded"], healthy.lastcall["step"], healthy.text) == ("store", "1", "hi")
    assert (stopped.lastcall["degraded"], stopped.lastcall["step"]) == ("store", "6")
    assert stopped.text.endswith("Done.")
    assert [ended.degraded for ended in proxy.telemetry.exchanges] == [True, True]


async def test_without_its_store_a_closed_proxy_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503, before the upstream is asked, and the client may try again."""
    proxy = Proxy(closed=True)
    take_away(proxy, monkeypatch)
    conversation = await proxy.ask(request())

    assert (conversation.status, conversation.json["error"]["code"]) == (503, "lastcall_store_unavailable")
    assert "x-should-retry" not in conversation.headers
    assert (proxy.ended.outcome, proxy.ended.status) == (Outcome.FAILED, 503)


# ---- what must not happen


async def test_a_fault_inside_an_exchange_settles_and_is_told() -> None:
    """The call under way is paid for, its lease given back, and the event says it failed."""

    async def fault() -> Response:
        raise ZeroDivisionError("secret prompt")

    proxy = Proxy(fault)
    conversation = await proxy.ask(request())

    assert (conversation.status, conversation.json["error"]["code"]) == (500, "lastcall_internal_error")
    assert (proxy.ended.outcome, proxy.ended.status) == (Outcome.FAILED, 500)
    assert proxy.ledger()[0::2] == (0, 0)


async def test_a_retry_is_marked_in_the_event() -> None:
    """As the client said."""
    proxy = Proxy(answer("hi"))
    await proxy.ask(request(), x_stainless_retry_count="2")

    assert proxy.ended.retry


async def test_a_conversation_of_many_exchanges_is_one_session() -> None:
    """An agent that always asks for the same call: nudged at the third, stopped at the fifth, six upstream calls in all."""
    proxy = Proxy(endless=True)
    turns = iter(range(100))

    async def model() -> Response:
        sent = proxy.upstream.sent[-1].json
        return answer("Done.") if sent.get("tool_choice") == "none" else answer(None, called("ls", "{}", f"c{next(turns)}"))

    proxy.upstream.answers.append(model)
    history: list[dict[str, Any]] = [{"role": "user", "content": "list it"}]
    actions: list[str] = []
    while len(actions) < 20:
        conversation = await proxy.ask(request(history))
        actions.append(conversation.lastcall["action"])
        message = conversation.json["choices"][0]["message"]
        if not message.get("tool_calls"):
            break
        history.append(message)
        history += [{"role": "tool", "tool_call_id": call["id"], "content": "a.txt"} for call in message["tool_calls"]]

    assert actions == ["allow", "allow", "allow", "nudge", "stop"]
    assert len({ended.session for ended in proxy.telemetry.exchanges}) == 1
    assert len(proxy.upstream.sent) == 6
    assert json.dumps(proxy.upstream.sent[-1].json).count("[lastcall] ") == 1
    assert proxy.ledger() == (6, 78, 0)


@pytest.mark.parametrize(
    ("sub_agent", "main"),
    [
        ({"user_agent": "codex_cli_rs/0.171.0", "thread_id": "t2", "x_codex_parent_thread_id": "t1"}, {"thread_id": "t1"}),
        ({"user_agent": "claude-cli/2.1.197", "x_claude_code_agent_id": "a1"}, {}),
    ],
    ids=["codex", "claude code"],
)
async def test_the_main_line_is_told_why_a_sub_agent_was_stopped(sub_agent: dict[str, Any], main: dict[str, Any]) -> None:
    """Where both share the session; the sub-agent itself is told of its own stop, and another one of nothing."""
    client: dict[str, Any] = {"user_agent": sub_agent["user_agent"], "x_lastcall_session": "s"}
    proxy = Proxy(answer("hi"), endless=True, policy=Policy(on_stop=OnStop.MESSAGE))
    before = await proxy.ask(request(), **(client | main))
    stopped = await proxy.ask(request(looping(5, task="look into it")), **(client | sub_agent))
    after = await proxy.ask(request(), **(client | main))
    beside = await proxy.ask(request([{"role": "user", "content": "something else"}]), **(client | {"x_lastcall_lane": "another"}))

    assert stopped.headers["x-lastcall-action"] == "stop"
    said = [one.headers.get("x-lastcall-child-stopped") for one in (before, stopped, after, beside)]
    assert said == [None, None, "repeated_call", None]
