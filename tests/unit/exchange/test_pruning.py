"""Answers that are changed in part or not at all: calls left out, runaway messages cut, and mode `observe`."""

import asyncio
import json
from typing import Any

import pytest

from proxy.events import FindingSeen, Outcome
from proxy.models import Action, Reason
from proxy.policy import Budgets, Ladder, Mode, OnStop, Policy
from tests.in_process import (
    CAT,
    DONE,
    LS,
    OPENING,
    USAGE_EVENT,
    Proxy,
    ScriptedResponse,
    answer,
    begins,
    call_stream,
    called,
    delta,
    looping,
    request,
    stream,
)

STOP = "[lastcall stop]"
MESSAGE, OBSERVE = Policy(on_stop=OnStop.MESSAGE), Policy(mode=Mode.OBSERVE)


# ---- pruning


def turn(*calls: dict[str, Any], result: str = "a.txt") -> list[dict[str, Any]]:
    """A message that makes these calls, and what they return."""
    results = [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
    return [{"role": "assistant", "content": None, "tool_calls": list(calls)}, *results]


def about_to_loop() -> list[dict[str, Any]]:
    """`cat` was called once, then `ls` four times: both in one message are no news, and a fifth `ls`."""
    opening, *loop = looping(4)
    return [opening, *turn(CAT | {"id": "first"}), *loop]


async def test_a_repeated_call_among_others_is_left_out() -> None:
    """The rest of a whole answer goes through, with a notice; the run goes on."""
    proxy = Proxy(answer("Both.", LS, CAT))
    conversation = await proxy.ask(request(about_to_loop()))

    message = conversation.json["choices"][0]["message"]
    assert [call["id"] for call in message["tool_calls"]] == ["n1"]
    assert conversation.json["x_unknown"] == [1.0, None]
    assert (conversation.notice["scope"], conversation.lastcall["reason"]) == ("call", "repeated_call")
    ended = proxy.ended
    assert (ended.pruned, ended.upstream_calls, ended.reason) == (1, 1, Reason.REPEATED_CALL)


async def test_a_repeated_call_among_others_is_left_out_of_a_stream() -> None:
    """The others go out with their ids, and the usage if it was asked for."""
    events = [OPENING, begins("ls"), begins("cat", CAT["function"]["arguments"], position=1), delta({}, "tool_calls"), USAGE_EVENT, DONE]
    proxy = Proxy(stream(*events))
    conversation = await proxy.ask(request(about_to_loop(), stream=True, stream_options={"include_usage": True}))

    assert conversation.calls == ["cat"]
    assert conversation.events[-1]["usage"]["prompt_tokens"] == 10
    assert conversation.notice["scope"] == "call"
    assert proxy.ended.pruned == 1


async def test_calls_are_left_out_of_the_choice_that_makes_them() -> None:
    """Another choice of the same answer stays as it is."""
    both = json.loads(await answer(None, LS, CAT, choices=2).read())
    both["choices"][1]["message"] = {"role": "assistant", "content": "Done."}
    proxy = Proxy(ScriptedResponse(json.dumps(both).encode()))
    conversation = await proxy.ask(request(about_to_loop(), n=2))

    first, second = conversation.json["choices"]
    assert [call["id"] for call in first["message"]["tool_calls"]] == ["n1"]
    assert second == both["choices"][1]


async def test_the_second_pruning_of_a_loop_stops_the_run() -> None:
    """The first one was its warning."""
    proxy = Proxy(answer(None, LS, CAT), answer(None, LS, CAT | {"id": "n2"}), policy=MESSAGE)
    first = await proxy.ask(request(about_to_loop()), x_lastcall_session="s")
    second = await proxy.ask(request([*about_to_loop(), *turn(CAT)]), x_lastcall_session="s")

    assert first.json["choices"][0]["finish_reason"] == "tool_calls"
    assert second.text.startswith(STOP)
    assert second.lastcall["action"] == "stop"


RUNAWAY = Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(None, 3)})


def parallel(times: int) -> list[bytes]:
    return [begins("ls", position=position) for position in range(times)]


async def test_a_runaway_message_is_cut() -> None:
    """What went out stays, the rest is left out, the upstream is let go, the answer ends as one that made calls."""
    upstream = stream(OPENING, *parallel(6), asyncio.Event())
    proxy = Proxy(upstream, policy=RUNAWAY)
    conversation = await proxy.ask(request(stream=True))

    assert conversation.calls == ["ls", "ls"]
    assert conversation.events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert conversation.body.endswith(DONE)
    assert upstream.closed
    assert (proxy.ended.reason, proxy.ended.outcome) == (Reason.PARALLEL_REPEAT, Outcome.COMPLETED)
    assert proxy.ledger()[0::2] == (1, 0)


async def test_a_runaway_in_one_event_keeps_its_first_calls() -> None:
    """Servers that send all calls at once: none went out before, so those that stay must go out now."""
    calls = [{"index": position, **LS, "id": f"n{position}"} for position in range(6)]
    proxy = Proxy(stream(OPENING, delta({"tool_calls": calls}), delta({}, "tool_calls"), DONE), policy=RUNAWAY)
    conversation = await proxy.ask(request(stream=True))

    assert conversation.calls == ["ls", "ls"]
    assert conversation.events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert proxy.ended.pruned == 4


async def test_a_whole_runaway_message_is_cut() -> None:
    """At the rung."""
    proxy = Proxy(answer(None, *[called("ls", "{}", f"n{position}") for position in range(6)]), policy=RUNAWAY)
    conversation = await proxy.ask(request())

    assert len(conversation.json["choices"][0]["message"]["tool_calls"]) == 2


async def test_a_runaway_of_different_calls_goes_through() -> None:
    """Many files are no loop: held for the look, let go as it came."""
    events = [
        OPENING,
        *[begins("cat", f'{{"path": {position}}}', position=position) for position in range(6)],
        delta({}, "tool_calls"),
        DONE,
    ]
    proxy = Proxy(stream(*events), policy=RUNAWAY)
    conversation = await proxy.ask(request(stream=True))

    assert conversation.body == b"".join(events)


async def test_an_armed_runaway_of_the_looping_call_is_a_stop() -> None:
    """Nothing of it went out: the run can still end in words."""
    proxy = Proxy(stream(OPENING, *parallel(20), delta({}, "tool_calls"), DONE), policy=MESSAGE)
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.calls == []
    assert conversation.text.startswith(STOP)
    assert proxy.ended.action is Action.STOP


async def test_a_runaway_that_was_pruned_before_stops_the_run_after_it() -> None:
    """Calls that went out cannot be taken back; the next request is answered with the stop."""
    proxy = Proxy(stream(OPENING, *parallel(6)), stream(OPENING, *parallel(6)), policy=RUNAWAY)
    await proxy.ask(request(stream=True), x_lastcall_session="s")
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [called("ls", "{}", "n0"), called("ls", "{}", "n1")]},
        {"role": "tool", "tool_call_id": "n0", "content": "a"},
        {"role": "tool", "tool_call_id": "n1", "content": "a"},
    ]
    second = await proxy.ask(request(history, stream=True), x_lastcall_session="s")
    third = await proxy.ask(request(history, stream=True), x_lastcall_session="s")

    assert second.calls == ["ls", "ls"]
    assert third.text.startswith(STOP)
    assert len(proxy.upstream.sent) == 2


# ---- observe


@pytest.mark.parametrize("streamed", [True, False])
async def test_observing_changes_nothing(streamed: bool) -> None:
    """No byte of request or answer; what would have been done is told to the operator alone."""
    events, whole = b"".join(call_stream()), answer(None, LS)
    proxy = Proxy(stream(events) if streamed else whole, policy=OBSERVE)
    body = request(looping(4), stream=streamed)
    conversation = await proxy.ask(body)

    assert proxy.upstream.sent[0].body == body
    assert conversation.body == (events if streamed else await whole.read())
    assert conversation.lastcall["action"] == "allow"
    assert "reason" not in conversation.lastcall
    assert conversation.lastcall["repeat"].startswith("ls ")
    ended = proxy.ended
    assert (ended.mode, ended.action, ended.reason, ended.count) == ("observe", Action.STOP, Reason.REPEATED_CALL, 5)
    assert FindingSeen(Reason.REPEATED_CALL, Action.STOP) in ended.findings


@pytest.mark.parametrize("pieces", [call_stream(), call_stream()[:-1]])
async def test_a_stop_that_was_observed_is_told_once(pieces: list[bytes]) -> None:
    """It is kept, though nothing was done: the next request of the run does not count it again."""
    proxy = Proxy(stream(*pieces), stream(*pieces), policy=OBSERVE)
    await proxy.ask(request(looping(4), stream=True), x_lastcall_session="s")
    await proxy.ask(request(looping(5), stream=True), x_lastcall_session="s")

    stops = [finding for ended in proxy.telemetry.exchanges for finding in ended.findings if finding.action is Action.STOP]
    assert stops == [FindingSeen(Reason.REPEATED_CALL, Action.STOP)]
    assert len(proxy.upstream.sent) == 2


async def test_an_observed_budget_lets_everything_through() -> None:
    """And says what it would have done."""
    proxy = Proxy(answer("hi"), policy=Policy(mode=Mode.OBSERVE, budgets=Budgets(steps=0)))
    conversation = await proxy.ask(request())

    assert conversation.text == "hi"
    assert (proxy.ended.action, proxy.ended.reason) == (Action.REFUSE, Reason.STEP_BUDGET)
