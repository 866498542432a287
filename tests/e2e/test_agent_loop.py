"""An agent whose model has collapsed, pointed at the proxy: one nudge, then a stop that ends it with an answer.

Third repeat nudged (in the request that brings the third result), fifth stopped, at most six upstream calls.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.running import running
from tests.upstreams import DONE, READ_A, STREAM, Asked, Cut, Model, Reply, Says, Upstream, chunks, halting, looping, saying

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MARKUP = Says('<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>')


def check_ended(turns: list[Turn], *, nudged: bool = True) -> None:
    """Nudged in the fourth request, stopped in place of the fifth call; everything is an answer.

    nudged: the exchange that decided on the nudge is among the turns, and not an attempt before one of them.
    """
    assert [turn.status for turn in turns] == [200] * 5
    assert [turn.action for turn in turns[:4]] == ["allow", "allow", "allow", "nudge" if nudged else "allow"]
    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    stop = turns[-1].lastcall
    assert stop is not None
    assert (stop["action"], stop["reason"], stop["tool"], stop["count"], stop["limit"]) == ("stop", "repeated_call", "read_file", 5, 5)
    assert turns[-1].text.startswith("[lastcall stop] Lastcall stopped this run: read_file ")


def check_nudges(asked: list[Asked]) -> None:
    """First in the request after the third result, at the same place and in the same words from then on, never two."""
    assert [request.nudges for request in asked] == [int(request.turn >= 3) for request in asked]
    noted = [
        message["content"] for request in asked if request.turn >= 3 for message in request.json["messages"] if message["role"] == "tool"
    ]
    assert {text for text in noted if "[lastcall] " in text} == {noted[2]}
    assert noted[2].startswith("one line\n\n[lastcall] read_file ")


@STREAMED
async def test_a_model_that_obeys_ends_the_run_in_its_own_words(
    upstream: Upstream, http: aiohttp.ClientSession, store: str, stream: bool
) -> None:
    """Six upstream calls: five turns and the wrap-up, in which tools are listed but off."""
    async with running(upstream.url, store=store) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    check_ended(turns)
    check_nudges(upstream.asked)
    assert len(upstream.asked) == 6
    assert DONE.text is not None
    assert turns[-1].text.rstrip().endswith(DONE.text)
    assert [request.tools_off for request in upstream.asked] == [False] * 5 + [True]
    assert upstream.asked[-1].json["tools"] == upstream.asked[0].json["tools"]


@STREAMED
async def test_a_model_that_ignores_tool_choice_ends_after_exactly_six_calls(
    upstream: Upstream, http: aiohttp.ClientSession, store: str, stream: bool
) -> None:
    """A wrap-up that calls a tool is not tried again: Lastcall answers itself."""
    upstream.model = looping(concluding=READ_A)
    async with running(upstream.url, store=store) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    check_ended(turns)
    check_nudges(upstream.asked)
    assert len(upstream.asked) == 6
    assert turns[-1].text.endswith("The model gave no closing answer. Send a new message to go on.")


@STREAMED
@pytest.mark.parametrize("concluding", [MARKUP, Says(""), Says(None)], ids=["markup", "empty", "null"])
async def test_a_useless_wrap_up_is_asked_for_three_times_more(
    upstream: Upstream, http: aiohttp.ClientSession, concluding: Says, stream: bool
) -> None:
    """More firmly each time, then Lastcall's own message; the markup never reaches the client."""
    upstream.model = looping(concluding=concluding)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    check_ended(turns)
    assert "tool_call>" not in turns[-1].text
    wrap_ups = [request.json["messages"][-1]["content"] for request in upstream.asked if request.tools_off]
    assert len(wrap_ups) == len(set(wrap_ups)) == 4


@STREAMED
async def test_a_wrap_up_that_succeeds_at_the_second_try_is_used(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """The answer is the model's own."""
    tries = iter([MARKUP, DONE])
    upstream.model = lambda asked: saying(next(tries) if asked.tools_off else READ_A, asked)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    check_ended(turns)
    assert turns[-1].text.rstrip().endswith("a.txt holds one line.")
    assert len(upstream.asked) == 7


@STREAMED
async def test_an_upstream_that_fails_in_the_wrap_up_still_leaves_an_answer(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """The stop does not depend on the model."""
    upstream.model = lambda asked: Reply(b'{"error": {"message": "overloaded"}}', 503) if asked.tools_off else saying(READ_A, asked)
    async with running(upstream.url) as proxy:
        check_ended(await Agent(http, proxy.v1, stream=stream).run())
    assert len(upstream.asked) == 6


@STREAMED
async def test_a_model_that_heeds_the_nudge_is_not_stopped(upstream: Upstream, http: aiohttp.ClientSession, stream: bool) -> None:
    """Its own answer goes through as it stands."""
    upstream.model = looping(lambda asked: DONE if asked.nudges else READ_A)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    assert [turn.action for turn in turns] == ["allow", "allow", "allow", "nudge"]
    assert turns[-1].text.strip() == DONE.text
    assert turns[-1].lastcall is None
    assert len(upstream.asked) == 4


def flaky(inner: Model, broken: Callable[[Asked], Reply]) -> Model:
    """Each request but a wrap-up fails the first time it is made."""
    tried: Counter[bytes] = Counter()

    def model(asked: Asked) -> Reply:
        tried[asked.body] += 1
        return broken(asked) if tried[asked.body] == 1 and not asked.tools_off else inner(asked)

    return model


def refusing(_: Asked) -> Reply:
    return Reply(b'{"error": {"message": "overloaded"}}', 503)


def breaking(asked: Asked) -> Reply:
    """Half an answer, with the call already in it."""

    async def half(parts: list[bytes]) -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        raise Cut

    whole = saying(READ_A, asked)
    if isinstance(whole.body, bytes):
        return replace(whole, body=half([whole.body[:-60]]))
    return Reply(half(chunks(READ_A, asked)[:-3]), headers=STREAM)


@STREAMED
@pytest.mark.parametrize("marked", [False, True], ids=["unmarked", "marked"])
@pytest.mark.parametrize("broken", [refusing, breaking])
async def test_requests_whose_first_attempt_fails_count_once(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, broken: Callable[[Asked], Reply], marked: bool, stream: bool
) -> None:
    """Every request is sent twice, since its first answer failed or broke off: the same verdicts at the same turns."""
    upstream.model = flaky(looping(), broken)
    headers = {"x-lastcall-session": f"retry-{broken.__name__}-{marked}-{stream}"}
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, headers=headers)
        turns: list[Turn] = []
        while not turns or turns[-1].calls:
            first = await agent.ask()
            assert first.status != 200 or first.error is not None
            assert "x-lastcall-session" in first.headers
            turns.append(await agent.ask(**({"x_stainless_retry_count": "1"} if marked else {})))
            agent.take(turns[-1])

    check_ended(turns, nudged=False)
    check_nudges(upstream.asked)


@STREAMED
@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_requests_repeated_after_a_lost_answer_count_once(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, named: bool, stream: bool
) -> None:
    """The client got its answer (as far as anybody can tell), asks again marked as a retry, and goes on from the second one."""
    headers = {"x-lastcall-session": f"lost-{stream}"} if named else {}
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, headers=headers)
        turns: list[Turn] = []
        while not turns or turns[-1].calls:
            await agent.ask()
            turns.append(await agent.ask(x_stainless_retry_count="1"))
            agent.take(turns[-1])

    assert [bool(turn.calls) for turn in turns] == [True, True, True, True, False]
    check_nudges(upstream.asked)


def more_than(found: list[Asked], number: int) -> bool:
    return len(found) > number


@STREAMED
async def test_a_repeat_cut_by_the_client_counts_once(
    upstream: Upstream, http: aiohttp.ClientSession, either_store: str, stream: bool
) -> None:
    """Each request is first sent by a client that hangs up in the middle of the answer."""
    hold = asyncio.Event()
    first: Counter[bytes] = Counter()

    async def slow(parts: list[bytes]) -> AsyncIterator[bytes]:
        yield parts[0]
        await hold.wait()

    def model(asked: Asked) -> Reply:
        first[asked.body] += 1
        if first[asked.body] == 1 and not asked.tools_off:
            return Reply(slow(chunks(READ_A, asked) if stream else [b" "]), headers=STREAM if stream else ())
        return looping()(asked)

    upstream.model = model
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1, stream=stream, headers={"x-lastcall-session": f"hung-up-{stream}"})
        turns: list[Turn] = []
        while not turns or turns[-1].calls:
            seen = len(upstream.asked)
            asking = asyncio.create_task(agent.ask())
            await upstream.until(partial(more_than, upstream.asked, seen))
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await upstream.until(partial(more_than, upstream.broken_off, len(turns)))
            turns.append(await agent.ask())
            agent.take(turns[-1])

    check_ended(turns, nudged=False)
    check_nudges(upstream.asked)


async def test_the_stop_persists_until_a_person_speaks(upstream: Upstream, http: aiohttp.ClientSession, either_store: str) -> None:
    """Further requests of the run cost nothing; new text begins a new run, in which the stopped call stops at its second repeat."""
    async with running(upstream.url, store=either_store) as proxy:
        agent = Agent(http, proxy.v1)
        await agent.run()
        for automatic in ("continue", "Please continue."):
            agent.say(automatic)
            turn = await agent.ask()
            agent.take(turn)
            assert (turn.action, turn.calls) == ("stop", [])
        assert len(upstream.asked) == 6

        agent.say("Then look at it once more, and tell me its size.")
        turns = await agent.run()

    assert [turn.action for turn in turns[:2]] == ["allow", "allow"]
    assert [bool(turn.calls) for turn in turns] == [True, True, False]
    assert turns[-1].lastcall is not None
    assert turns[-1].lastcall["reason"] == "repeated_call"


async def test_the_history_stays_well_formed_after_a_stop(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Every call has its result, every result its call, and only roles that the client itself sent reach the upstream."""
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1)
        await agent.run()
        agent.say("And b.txt?")
        await agent.ask()

    for request in upstream.asked:
        messages = request.json["messages"]
        made = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        assert made == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert {message["role"] for message in messages} <= {"system", "user", "assistant", "tool"}
        roles = [message["role"] for message in messages]
        assert len(roles) == 2 + 2 * request.turn or roles[-2:] == ["assistant", "user"]


@STREAMED
async def test_a_repeated_call_is_left_out_of_a_message_whose_other_calls_are_not(
    upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    """The others go through; the second time the same loop has to be pruned, the run ends."""

    known = Says(calls=(("search", '{"q": "x"}'),))
    both = Says(calls=READ_A.calls + known.calls)
    upstream.model = looping(lambda asked: known if asked.turn == 0 else READ_A if asked.turn < 5 else both)
    async with running(upstream.url) as proxy:
        turns = await Agent(http, proxy.v1, stream=stream).run()

    pruned = turns[5]
    assert [call["function"]["name"] for call in pruned.calls] == ["search"]
    assert pruned.lastcall is not None
    assert (pruned.lastcall["scope"], pruned.lastcall["tool"]) == ("call", "read_file")
    assert not turns[-1].calls
    assert turns[-1].text.startswith("[lastcall stop]")
    assert len(turns) == 7


async def test_an_endless_stream_of_equal_calls_is_cut(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """At the sixteenth, and the upstream is let go; what the client has is well-formed."""

    async def endless(asked: Asked) -> AsyncIterator[bytes]:
        head, call = chunks(READ_A, asked)[1], chunks(READ_A, asked)[2:5]
        yield head
        index = 0
        while True:
            for part in call:
                event = json.loads(part[6:])
                for one in event["choices"][0]["delta"]["tool_calls"]:
                    one["index"] = index
                    if "id" in one:
                        one["id"] = f"call_{index}"
                yield b"data: " + json.dumps(event).encode() + b"\n\n"
            index += 1
            await asyncio.sleep(0)

    upstream.model = lambda asked: Reply(endless(asked), headers=STREAM)
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1, stream=True).ask()
        await upstream.until(lambda: upstream.broken_off)

    assert turn.message is not None
    assert len(turn.calls) == 15
    assert turn.lastcall is not None
    assert turn.lastcall["reason"] == "parallel_repeat"
    assert turn.body.endswith(b"data: [DONE]\n\n")
    assert {call["function"]["name"] for call in turn.calls} == {"read_file"}


async def test_sixteen_equal_calls_in_a_whole_answer_are_cut_too(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """Fifteen remain, the rest of the message does not."""
    upstream.model = looping(lambda _: Says(calls=READ_A.calls * 20))
    async with running(upstream.url) as proxy:
        turn = await Agent(http, proxy.v1).ask()

    assert len(turn.calls) == 15
    assert turn.lastcall is not None
    assert turn.lastcall["reason"] == "parallel_repeat"


async def test_text_before_the_stopped_call_is_kept(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """It is the model's own; Lastcall's part begins with the stop line."""
    upstream.model = looping(lambda _: replace(READ_A, text="Let me read that again."))
    async with running(upstream.url) as proxy:
        whole = await Agent(http, proxy.v1).run()
        streamed = await Agent(http, proxy.v1, stream=True).run()

    for turns in (whole, streamed):
        assert len(turns) == 5
        kept, _, rest = turns[-1].text.partition("[lastcall stop]")
        assert kept.strip() == "Let me read that again."
        assert "Lastcall stopped this run" in rest


async def test_pieces_of_the_upstream_arrive_before_the_stream_ends(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """A stream is forwarded as it comes."""
    go_on = asyncio.Event()
    upstream.model = halting(go_on)
    async with running(upstream.url) as proxy:
        agent = Agent(http, proxy.v1, stream=True)
        async with http.post(f"{proxy.v1}/chat/completions", data=agent.payload(), headers=agent.headers) as response:
            first = await asyncio.wait_for(response.content.readany(), 5)
            go_on.set()
            rest = await response.read()

    assert b'"content": "a.txt ' in first
    assert rest.endswith(b"data: [DONE]\n\n")
