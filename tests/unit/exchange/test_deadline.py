"""A session whose time is over while the upstream still answers: each way of being slow ends at the limit, well-formed."""

import asyncio

import pytest

from proxy.events import Outcome
from proxy.models import Action, Reason
from proxy.policy import Budgets, Mode, OnStop, Policy
from tests.in_process import DONE, OPENING, Piece, Proxy, ScriptedResponse, answer, begins, called, delta, looping, request, stream

SECONDS = 0.25  # long enough for a busy machine to pass on what the script gives at once


def policy(**rules: object) -> Policy:
    return Policy(budgets=Budgets(deadline=SECONDS), **rules)  # type: ignore[arg-type]


def never() -> asyncio.Event:
    """A piece that does not come."""
    return asyncio.Event()


async def test_a_slow_answer_is_replaced_by_a_message() -> None:
    """The client gets an ordinary completion that says why; the input is paid for, nothing stays reserved."""
    slow = ScriptedResponse(never())
    proxy = Proxy(slow, policy=policy())
    conversation = await proxy.ask(request())

    assert conversation.status == 200
    assert conversation.text.startswith("[lastcall stop] Lastcall stopped this run: the time of 0.25 seconds")
    notice = conversation.notice
    assert (notice["action"], notice["reason"], notice["scope"], notice["limit"]) == ("stop", "deadline", "session", SECONDS)
    steps, tokens, reserved = proxy.ledger()
    assert (steps, reserved) == (0, 0) and tokens > 0
    assert (proxy.ended.action, proxy.ended.reason, proxy.ended.outcome) == (Action.STOP, Reason.DEADLINE, Outcome.COMPLETED)


async def test_an_upstream_that_does_not_even_begin_is_left() -> None:
    """Time-outs of the upstream may be far longer."""
    proxy = Proxy(policy=policy())

    async def mute() -> ScriptedResponse:
        await asyncio.Event().wait()
        raise AssertionError

    proxy.upstream.answers.append(mute)
    conversation = await proxy.ask(request(stream=True))

    assert conversation.text.startswith("[lastcall stop]")
    assert conversation.body.endswith(DONE)


async def test_an_error_is_given_where_the_policy_says_so() -> None:
    """As long as the status is free."""
    conversation = await Proxy(ScriptedResponse(never()), policy=policy(on_stop=OnStop.ERROR)).ask(request())

    assert (conversation.status, conversation.json["error"]["code"]) == (400, "lastcall_deadline")
    assert conversation.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("on_stop", [OnStop.WRAP_UP, OnStop.MESSAGE])
@pytest.mark.parametrize("pieces", [[], [OPENING], [OPENING, delta({"content": "Let me"})]])
async def test_a_dripping_stream_is_ended(pieces: list[Piece], on_stop: OnStop) -> None:
    """What went out stays, the rest of the answer says why it ends; the stream is as whole as any."""
    slow = stream(*pieces, never())
    proxy = Proxy(slow, policy=policy(on_stop=on_stop))
    conversation = await proxy.ask(request(stream=True))

    said = "Let me\n\n" if len(pieces) == 2 else ""
    assert conversation.text.startswith(f"{said}[lastcall stop]")
    assert conversation.body.endswith(DONE)
    assert len({one["id"] for one in conversation.events}) == 1
    assert [one["choices"][0]["finish_reason"] for one in conversation.events][-1] == "stop"
    assert slow.closed
    assert proxy.ledger()[2] == 0


@pytest.mark.parametrize("pieces", [[], [OPENING, delta({"content": "Let me"})]])
async def test_a_dripping_stream_ends_in_an_error_where_the_policy_says_so(pieces: list[Piece]) -> None:
    """What went out is no answer to go by."""
    conversation = await Proxy(stream(*pieces, never()), policy=policy(on_stop=OnStop.ERROR)).ask(request(stream=True))

    assert (conversation.status, conversation.text) == (200, "Let me" if pieces else "")
    assert conversation.events[-1]["error"]["code"] == "lastcall_deadline"


async def test_half_a_call_ends_in_an_error() -> None:
    """A client must not carry it out."""
    proxy = Proxy(stream(OPENING, begins("ls", '{"pa'), never()), policy=policy())
    conversation = await proxy.ask(request(stream=True))

    assert conversation.events[-1]["error"]["code"] == "lastcall_deadline"
    assert conversation.notice["reason"] == "deadline"
    assert not conversation.body.endswith(DONE)


async def test_a_held_call_does_not_go_out() -> None:
    """It was not shown, so that an ordinary end will do."""
    proxy = Proxy(stream(OPENING, begins("ls", "{}"), never()), policy=policy())
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.calls == []
    assert conversation.text.startswith("[lastcall stop]")
    assert conversation.body.endswith(DONE)


async def test_a_conclusion_that_takes_too_long_is_replaced() -> None:
    """The loop is still what the run was stopped for."""
    looped = answer(None, called("ls", "{}", "c4"))
    proxy = Proxy(looped, ScriptedResponse(never()), policy=policy())
    conversation = await proxy.ask(request(looping(4)))

    assert conversation.notice["reason"] == "repeated_call"
    assert conversation.text.startswith("[lastcall stop]")
    assert proxy.ledger()[2] == 0


async def test_an_answer_that_came_whole_is_left_alone() -> None:
    """The upstream may take its time to hang up."""
    proxy = Proxy(stream(OPENING, delta({"content": "hi"}, "stop"), DONE, never()), policy=policy())
    conversation = await proxy.ask(request(stream=True))

    assert conversation.text == "hi"
    assert proxy.ended.action is Action.ALLOW


async def test_observing_ends_nothing() -> None:
    """The answer comes when it comes."""
    late = asyncio.Event()
    asyncio.get_running_loop().call_later(3 * SECONDS, late.set)
    proxy = Proxy(stream(OPENING, late, delta({"content": "hi"}, "stop"), DONE), policy=policy(mode=Mode.OBSERVE))
    conversation = await proxy.ask(request(stream=True))

    assert conversation.text == "hi"
