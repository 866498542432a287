"""What a client hears while it waits: in every dialect, and for as long as something of Lastcall's is the reason."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from proxy.asgi import Message
from proxy.client import Client
from proxy.dialects import DIALECTS
from proxy.exchange import reply
from proxy.exchange.reply import Reply
from proxy.policy import OnStop, Policy
from proxy.upstream.http import Response
from tests.in_process import (
    OPENING,
    Conversation,
    Piece,
    Proxy,
    ScriptedResponse,
    answer,
    begins,
    call_stream,
    delta,
    looping,
    request,
    stream,
    tool,
)
from tests.spoken import SPOKEN
from tests.upstreams import DONE, READ_A, Says

STOP = "[lastcall stop]"
ERROR = Policy(on_stop=OnStop.ERROR)
FINISH = {
    "type": "function",
    "function": {"name": "attempt_completion", "parameters": {"type": "object", "properties": {"result": {"type": "string"}}}},
}
MARKUP = Says('<tool_call>{"name":"ls","arguments":{}}</tool_call> And so on.')
every_dialect = pytest.mark.parametrize("path", DIALECTS)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "KEEP_ALIVE_SECONDS", 0.005)


def heard(path: str, then: asyncio.Event) -> Callable[[Message], None]:
    """Sets the event once the client was told that there is more to come."""
    return lambda message: then.set() if message.get("body") == DIALECTS[path].keep_alive else None


def halting(events: list[bytes], at: int) -> tuple[tuple[bytes | asyncio.Event, ...], asyncio.Event]:
    """A stream that stops after so many events until it may go on."""
    more = asyncio.Event()
    return (*events[:at], more, *events[at:]), more


async def told(proxy: Proxy, path: str, body: bytes, watch: Callable[[Message], None]) -> Conversation:
    conversation = Conversation((body,), watch=watch)
    async with asyncio.timeout(10):
        await proxy.run(conversation, f"/v1{path}")
    return conversation


# ---- held streams


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("begun", [False, True], ids=["before its first byte", "within a call"])
async def test_a_stream_is_kept_alive_until_it_is_decided_and_concluded(path: str, begun: bool) -> None:
    """While nothing comes of an answer that may be stopped, and again while the model writes its conclusion."""
    spoken = SPOKEN[path]
    call, done = spoken.streams(READ_A), spoken.streams(DONE)
    keep_alive = DIALECTS[path].keep_alive
    more, conclude = asyncio.Event(), asyncio.Event()
    waiting = [more]

    async def slow() -> Response:
        waiting.append(conclude)
        await conclude.wait()
        return stream(*done)

    def watch(message: Message) -> None:
        if message.get("body") == keep_alive:
            waiting[-1].set()

    at = len(call) // 2 if begun else 0
    pieces: Sequence[bytes | asyncio.Event] = (*call[:at], more, *call[at:])
    proxy = Proxy(stream(*pieces), slow)
    conversation = Conversation((spoken.asks(4),), watch=watch)
    async with asyncio.timeout(10):
        await proxy.run(conversation, f"/v1{path}")

    assert more.is_set() and conclude.is_set()
    assert b"[lastcall stop]" in conversation.body
    assert b"one line" in conversation.body
    assert conversation.ended


@every_dialect
async def test_a_message_that_is_held_for_its_many_calls_is_kept_alive(path: str) -> None:
    """No stop was near when it began: from the call on that may have to be cut nothing goes out. These differ, and pass."""
    events = SPOKEN[path].streams(Says(calls=tuple([("read_file", f"[{number}]") for number in range(20)])))
    pieces, more = halting(events, len(events) - 6)
    conversation = await told(Proxy(stream(*pieces)), path, SPOKEN[path].asks(0, stream_options={"include_usage": True}), heard(path, more))

    assert more.is_set()
    assert conversation.body.replace(DIALECTS[path].keep_alive, b"") == b"".join(events)


@every_dialect
async def test_text_that_is_held_for_its_markup_is_kept_alive(path: str) -> None:
    """And so is the wait for a better answer, be the first one a stream or, though a stream was asked for, whole."""
    spoken = SPOKEN[path]
    pieces, more = halting(spoken.streams(MARKUP), len(spoken.streams(MARKUP)) - 4)
    again = asyncio.Event()

    async def better() -> Response:
        await again.wait()
        return stream(*spoken.streams(DONE))

    def both(message: Message) -> None:
        heard(path, again if more.is_set() else more)(message)

    streamed = await told(Proxy(stream(*pieces), better), path, spoken.asks(0, tools=False), both)
    assert b"one line" in streamed.body
    assert b"tool_call>" not in streamed.body

    again.clear()
    whole = await told(Proxy(ScriptedResponse(spoken.wholly(MARKUP)), better), path, spoken.asks(0, tools=False), both)
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert whole.writes[0] == DIALECTS[path].keep_alive
    assert b"one line" in whole.body


@every_dialect
async def test_nothing_is_put_into_a_stream_that_nothing_holds(path: str) -> None:
    """However long its upstream is silent: the client hears what it would hear without Lastcall."""
    events = SPOKEN[path].streams(Says("Let me see.", READ_A.calls))

    async def slow() -> Response:
        await asyncio.sleep(0.03)
        return Halting(*events, kind=b"text/event-stream")

    class Halting(ScriptedResponse):
        async def chunks(self) -> AsyncIterator[bytes]:
            async for chunk in super().chunks():
                await asyncio.sleep(0.01)
                yield chunk

    conversation = await told(Proxy(slow), path, SPOKEN[path].asks(0, stream_options={"include_usage": True}), lambda _: None)

    assert [piece for piece in conversation.writes if piece] == events


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_slow_conclusion_keeps_a_stream_alive(streamed: bool) -> None:
    """Comments in a stream; nothing before a whole answer."""
    come = asyncio.Event()
    ticks: list[bytes] = []

    async def slow() -> Response:
        if streamed:
            await come.wait()
        else:
            await asyncio.sleep(0.03)
        return answer("Done.")

    def watch(message: Message) -> None:
        if message.get("body", b"").startswith(b":"):
            ticks.append(message["body"])
            if len(ticks) == 3:
                come.set()

    proxy = Proxy(slow)
    conversation = Conversation((request(looping(5), stream=streamed),), watch=watch)
    await proxy.run(conversation)

    assert conversation.text.endswith("Done.")
    assert (len(ticks) >= 3) is streamed
    assert set(ticks) <= {b": keep-alive\n\n"}


async def test_a_held_stream_is_kept_alive() -> None:
    """While the call it holds is still being written."""
    more = asyncio.Event()
    proxy = Proxy(stream(OPENING, begins("cat", '{"path": "b"}'), more, *call_stream()[2:]))
    conversation = Conversation(
        (request(looping(4), stream=True),), watch=lambda message: more.set() if message.get("body") == b": keep-alive\n\n" else None
    )
    await proxy.run(conversation)

    assert conversation.writes[1] == b": keep-alive\n\n"
    assert conversation.calls == ["cat"]


async def test_a_held_stream_that_trickles_is_kept_alive() -> None:
    """What comes from the upstream and is held does not reach the client: time is counted from what last did."""
    ticked = asyncio.Event()
    blank = delta({"tool_calls": [{"index": 0, "function": {"arguments": " "}}]})

    class Trickle(ScriptedResponse):
        async def chunks(self) -> AsyncIterator[bytes]:
            async for chunk in super().chunks():
                proxy.clock.now += 4
                yield chunk

    pieces: tuple[Piece, ...] = (OPENING, begins("cat"), blank, blank, blank, ticked, *call_stream()[2:])
    proxy = Proxy(Trickle(*pieces, kind=b"text/event-stream"))
    conversation = Conversation(
        (request(looping(4), stream=True),), watch=lambda message: ticked.set() if message.get("body") == b": keep-alive\n\n" else None
    )
    async with asyncio.timeout(5):
        await proxy.run(conversation)

    assert conversation.writes[1] == b": keep-alive\n\n"
    assert conversation.body.endswith(b"data: [DONE]\n\n")


@every_dialect
async def test_a_mute_stream_gives_its_free_status_up_in_the_end(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a client, or what stands before it, gives up: from then on it is kept alive. A stop ends it in an error all the same, but in
    messages, where Claude Code would ask once more; that it stands is answered with a status."""
    monkeypatch.setattr(reply, "FREE_STATUS_SECONDS", 0.0)
    pieces, more = halting(SPOKEN[path].streams(READ_A), 1)
    proxy = Proxy(stream(*pieces), policy=ERROR)
    body = SPOKEN[path].asks(4)
    conversation = Conversation((body,), watch=heard(path, more))
    await proxy.run(conversation, f"/v1{path}", x_lastcall_session="s")
    said = conversation.body.decode()

    assert conversation.status == 200
    assert conversation.writes[0] == DIALECTS[path].keep_alive
    assert '"lastcall":{"action":"stop","reason":"repeated_call"' in said
    code = {"/chat/completions": '"code":"lastcall_repeated_call"', "/responses": '"code":"invalid_prompt"'}.get(path)
    assert (STOP in said, code is not None and code in said) == ((True, False) if code is None else (False, True))
    again = await proxy.ask(body, f"/v1{path}", x_lastcall_session="s")
    assert (again.status, len(proxy.upstream.sent)) == (400 if code is None else 401, 1)


async def test_a_stream_that_fails_too_late_ends_with_the_call_that_its_client_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error ends a run of Roo Code's."""
    monkeypatch.setattr(reply, "FREE_STATUS_SECONDS", 0.0)
    pieces, more = halting(call_stream(), 1)
    asked = request(looping(4), stream=True, tools=[tool("ls"), FINISH])
    conversation = Conversation((asked,), watch=heard("/chat/completions", more))
    await Proxy(stream(*pieces), policy=ERROR).run(conversation, user_agent="RooCode/3")

    assert conversation.calls == ["attempt_completion"]


async def test_a_mute_stream_is_not_kept_alive() -> None:
    """Its status is not decided yet: there is nothing to write into."""
    more = asyncio.Event()
    proxy = Proxy(stream(OPENING, more, *call_stream()[1:]), policy=ERROR)
    asking = asyncio.create_task(proxy.ask(request(looping(4), stream=True)))
    await asyncio.sleep(0.03)
    more.set()

    assert (await asking).status == 400


# ---- own calls end in time


@every_dialect
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_conclusion_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch, path: str, streamed: bool) -> None:
    """Before clients give up and ask again; the run ends all the same, and the call is paid."""
    monkeypatch.setattr(reply, "ANSWER_SECONDS", 0.02)
    begun = asyncio.Event()

    async def never() -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    proxy = Proxy(never)
    conversation = await told(proxy, path, SPOKEN[path].asks(5, stream=streamed), lambda _: None)

    assert begun.is_set()
    assert STOP.encode() in conversation.body
    assert b"gave no closing answer" in conversation.body
    assert proxy.ended.upstream_calls == 1
    assert proxy.ledger()[2] == 0


async def test_a_better_answer_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is good of the first one is given."""
    monkeypatch.setattr(reply, "ANSWER_SECONDS", 0.0)

    async def never() -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    conversation = await Proxy(answer(MARKUP.text), never).ask(request(tools=None))

    assert conversation.text.strip().startswith("And so on.\n\n[lastcall stop] Lastcall cut this answer")


# ---- waiting


def replying(keep_alive: bytes = b": tick\n\n") -> tuple[Reply, Conversation]:
    """A reply under way, and what its client is sent."""
    conversation = Conversation()
    client = Client({"type": "http", "headers": []}, conversation.receive, conversation.send)
    return Reply(client, keep_alive, lambda: 0.0, lambda: ()), conversation


async def test_a_failure_of_the_work_is_raised_where_its_result_would_be() -> None:
    """Also a time-out of its own, which is not the one that clients set."""

    async def fails(error: Exception) -> None:
        raise error

    waiting, _ = replying()
    with pytest.raises(ZeroDivisionError):
        await waiting.outlast(fails(ZeroDivisionError()))
    with pytest.raises(TimeoutError):
        await waiting.outlast_own(fails(TimeoutError()))


async def test_whoever_stops_waiting_ends_the_work() -> None:
    """Nothing goes on reading."""
    ended = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            ended.set()

    coming = chunks()
    waiting = asyncio.ensure_future(replying()[0].outlast(anext(coming, None)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.wait_for(ended.wait(), 1)


async def test_a_silence_is_filled_until_it_ends() -> None:
    """A word for every so many seconds, once there is a stream to say it in."""
    waiting, conversation = replying()
    waiting.prepare(200, ())
    await waiting.open()
    more = asyncio.Event()
    conversation.watch = lambda message: more.set() if len(conversation.sent) == 3 else None
    await waiting.outlast(more.wait())

    assert set(conversation.writes) == {b": tick\n\n"}
    assert len(conversation.writes) >= 3
