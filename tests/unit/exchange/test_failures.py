"""Exchanges that fail: upstreams that refuse, break off or cannot be reached, and clients that leave before their answer is whole."""

import asyncio

import pytest

from proxy.asgi import Message
from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import Outcome, UpstreamError
from proxy.policy import OnStop, Policy
from proxy.upstream.http import Response
from tests.in_process import (
    DONE,
    OPENING,
    Conversation,
    Proxy,
    ScriptedResponse,
    answer,
    begins,
    delta,
    looping,
    request,
    stream,
    text_stream,
)

ERROR = Policy(on_stop=OnStop.ERROR)


async def leave_after(proxy: Proxy, body: bytes, messages: int) -> Conversation:
    """Asks, and leaves once that many messages have come."""
    conversation = Conversation((body,))

    def watch(_: Message) -> None:
        if len(conversation.sent) + 1 >= messages:
            conversation.gone.set()

    conversation.watch = watch
    await proxy.run(conversation)
    return conversation


# ---- upstreams that fail


async def test_an_upstreams_refusal_passes_as_it_is() -> None:
    """Status, header and body; nothing was spent."""
    proxy = Proxy(ScriptedResponse(b'{"error": "slow down"}', status=429, headers=[(b"retry-after", b"7")]))
    conversation = await proxy.ask(request())

    assert (conversation.status, conversation.body) == (429, b'{"error": "slow down"}')
    assert conversation.headers["retry-after"] == "7"
    assert proxy.ledger() == (0, 0, 0)
    assert (proxy.ended.outcome, proxy.ended.status) == (Outcome.UPSTREAM_ERROR, 429)
    assert proxy.ended.upstream_errors == (UpstreamError.RATE_LIMITED,)


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_upstream_that_cannot_be_reached_is_a_502(streamed: bool) -> None:
    """In the dialect's error shape, with Lastcall's headers."""
    proxy = Proxy(UpstreamFailed("The upstream refused the connection."))
    conversation = await proxy.ask(request(stream=streamed))

    assert (conversation.status, conversation.json["error"]["code"]) == (502, "lastcall_upstream_unreachable")
    assert conversation.lastcall["action"] == "allow"
    assert proxy.ledger() == (0, 0, 0)
    assert proxy.ended.outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize("times", [0, 4])
async def test_a_stream_that_breaks_off_ends_in_an_error(times: int) -> None:
    """Healthy or armed: what came is there, a data event says what happened, what was produced is paid for, no step."""
    proxy = Proxy(stream(OPENING, delta({"content": "12345678"}), UpstreamCut("The upstream broke off.")))
    conversation = await proxy.ask(request(looping(times), stream=True))

    assert conversation.text == "12345678"
    assert conversation.events[-1]["error"]["message"] == "The upstream broke off."
    assert conversation.ended
    ended = proxy.ended
    assert (ended.outcome, ended.upstream_errors, ended.output_tokens) == (Outcome.UPSTREAM_ERROR, (UpstreamError.CUT,), 2)
    assert proxy.ledger()[0::2] == (0, 0)


async def test_a_call_held_when_a_stream_breaks_off_never_goes_out() -> None:
    """It was not whole."""
    proxy = Proxy(stream(OPENING, begins("cat"), UpstreamCut("half")))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.calls == []
    assert conversation.events[-1]["error"]["code"] == "lastcall_upstream_unreachable"


async def test_a_mute_stream_that_breaks_off_is_a_502() -> None:
    """Nothing had gone out."""
    proxy = Proxy(stream(OPENING, UpstreamCut("half")), policy=ERROR)

    assert (await proxy.ask(request(looping(4), stream=True))).status == 502


async def test_a_whole_answer_that_breaks_off_is_a_502() -> None:
    """Nothing of it went out; it pays for its input."""
    proxy = Proxy(ScriptedResponse(b'{"choi', UpstreamCut("half")))
    conversation = await proxy.ask(request())

    assert conversation.status == 502
    assert (proxy.ledger()[0], proxy.ledger()[1] > 0, proxy.ledger()[2]) == (0, True, 0)


async def test_a_stream_that_breaks_off_after_its_terminator_is_whole() -> None:
    """No error after the end."""
    proxy = Proxy(stream(*text_stream(), UpstreamCut("late")))
    conversation = await proxy.ask(request(stream=True))

    assert conversation.body.endswith(DONE)
    assert conversation.ended
    assert proxy.ended.outcome is Outcome.COMPLETED
    assert proxy.ledger() == (1, 13, 0)


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_inside_an_answer_is_noted(streamed: bool) -> None:
    """It passes as it is."""
    error = b'{"error": {"message": "overloaded"}}'
    proxy = Proxy(stream(b"data: " + error + b"\n\n") if streamed else ScriptedResponse(error))
    conversation = await proxy.ask(request(stream=streamed))

    assert error in conversation.body
    assert proxy.ended.upstream_errors == (UpstreamError.REPORTED,)


# ---- clients that leave


async def test_a_client_that_leaves_before_the_answer_is_noticed() -> None:
    """The upstream is let go, the input is paid for."""
    proxy = Proxy()
    conversation = Conversation((request(),))

    async def never() -> Response:
        conversation.gone.set()
        await asyncio.Event().wait()
        raise AssertionError

    proxy.upstream.answers.append(never)
    await proxy.run(conversation)

    assert conversation.sent == []
    assert (proxy.ended.outcome, proxy.ended.status) == (Outcome.DISCONNECTED, 499)
    assert (proxy.ledger()[0], proxy.ledger()[1] > 0, proxy.ledger()[2]) == (0, True, 0)


@pytest.mark.parametrize("times", [0, 4])
async def test_a_client_that_leaves_a_stream_pays_for_what_was_produced(times: int) -> None:
    """Healthy or armed: no step, no lease left, the upstream let go."""
    upstream = stream(OPENING, delta({"content": "12345678"}), delta({"content": ""}), asyncio.Event())
    proxy = Proxy(upstream)
    await leave_after(proxy, request(looping(times), stream=True), 4)

    assert upstream.closed
    ended = proxy.ended
    assert (ended.outcome, ended.status, ended.output_tokens, ended.usage_estimated) == (Outcome.DISCONNECTED, 499, 2, True)
    assert proxy.ledger()[0::2] == (0, 0)


@pytest.mark.parametrize(("times", "policy"), [(0, None), (4, None), (4, ERROR)])
async def test_a_client_that_leaves_while_a_stream_is_silent_is_noticed(times: int, policy: Policy | None) -> None:
    """Healthy, armed or mute: nothing has to come first."""
    silence = asyncio.Event()
    upstream = stream(OPENING, delta({"content": "12345678"}), delta({"content": ""}), silence)
    proxy = Proxy(upstream, policy=policy)
    conversation = Conversation((request(looping(times), stream=True),))
    asyncio.get_running_loop().call_later(0.2, conversation.gone.set)  # when what there is has come, on a busy machine too
    await proxy.run(conversation)

    assert upstream.closed
    assert (proxy.ended.outcome, proxy.ended.output_tokens) == (Outcome.DISCONNECTED, 2)
    assert proxy.ledger()[0::2] == (0, 0)


async def test_a_client_that_leaves_a_wrap_up_ends_it() -> None:
    """The last call is broken off as well, and settled."""
    proxy = Proxy()
    cancelled = asyncio.Event()
    conversation = Conversation((request(looping(5), stream=True),))

    async def never() -> Response:
        conversation.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    proxy.upstream.answers.append(never)
    await proxy.run(conversation)
    await asyncio.wait_for(cancelled.wait(), 1)

    assert proxy.ended.outcome is Outcome.DISCONNECTED
    assert proxy.ledger()[2] == 0


async def test_a_client_that_hangs_up_on_the_terminator_has_its_answer() -> None:
    """Many do not wait for the connection's end."""
    proxy = Proxy(stream(*text_stream(), asyncio.Event()))
    conversation = await leave_after(proxy, request(stream=True), 5)

    assert conversation.writes[-1] == DONE
    assert (proxy.ended.outcome, proxy.ended.status) == (Outcome.COMPLETED, 200)
    assert proxy.ledger() == (1, 13, 0)


async def test_a_client_that_leaves_while_it_is_read_from_is_no_exchange() -> None:
    """Nothing was asked, nothing is emitted."""
    proxy = Proxy()
    conversation = Conversation((b"{", b"}"))
    conversation.gone.set()
    await proxy.run(conversation)

    assert (conversation.sent, proxy.telemetry.exchanges, proxy.ledger()) == ([], [], (0, 0, 0))


# ---- mistakes of ours


@pytest.mark.parametrize("place", ["proxy.exchange.flow.admit", "proxy.exchange.flow.Calls", "proxy.sessions.conclude"])
async def test_a_fault_inside_gives_back_what_the_exchange_held(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Wherever it strikes: nothing is renewed for ever. What the upstream charged is paid."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    proxy = Proxy(answer("hi"), closed=True)
    monkeypatch.setattr(place, broken)
    conversation = await proxy.ask(request(), x_lastcall_session="s")
    await proxy.sessions.drain()

    called = bool(proxy.upstream.sent)
    assert called == (place == "proxy.sessions.conclude")
    assert conversation.status == 500
    assert proxy.ledger() == ((1, 13, 0) if called else (0, 0, 0))
    assert proxy.sessions._leases._held == {}
