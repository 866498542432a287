"""Exchanges from request to settled answer, in process: every way an answer can come about, and what the client, the upstream, the ledger
and the operator see of it.
"""

import asyncio
import json
from typing import Any

import pytest

from proxy import exchange
from proxy.client import Message
from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import FindingSeen, NudgeEnded, Outcome, UpstreamError
from proxy.models import Action, Reason
from proxy.policy import Budgets, Ladder, Mode, OnStop, Policy, WrapUpRule
from proxy.upstream.http import Response
from tests.in_process import (
    DONE,
    OPENING,
    USAGE_EVENT,
    Conversation,
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
    text_stream,
    tool,
)

LS = called("ls", "{}", "n0")
CAT = called("cat", '{"path": "a.txt"}', "n1")
STOP = "[lastcall stop]"
MARKUP = '<tool_call>\n{"name": "ls"}'
MESSAGE, ERROR = Policy(on_stop=OnStop.MESSAGE), Policy(on_stop=OnStop.ERROR)
OBSERVE = Policy(mode=Mode.OBSERVE)


def text_of(conversation: Conversation) -> str:
    """What the assistant says, streamed or whole."""
    if conversation.headers["content-type"].startswith("text/event-stream"):
        deltas = [choice["delta"] for one in conversation.events for choice in one.get("choices", ())]
        return "".join(one.get("content") or "" for one in deltas)
    text: str = conversation.json["choices"][0]["message"]["content"]
    return text


def calls_of(conversation: Conversation) -> list[str]:
    """The names of the calls a streamed answer makes."""
    deltas = [choice["delta"] for one in conversation.events for choice in one.get("choices", ())]
    return [call["function"]["name"] for one in deltas for call in one.get("tool_calls") or ()]


def notice_of(conversation: Conversation) -> Any:
    """The `lastcall` object, wherever it stands."""
    if conversation.headers["content-type"].startswith("text/event-stream"):
        return conversation.events[-1].get("lastcall")
    return conversation.json.get("lastcall")


async def leave_after(proxy: Proxy, body: bytes, messages: int) -> Conversation:
    """Asks, and leaves once that many messages have come."""
    conversation = Conversation((body,))

    def watch(_: Message) -> None:
        if len(conversation.sent) + 1 >= messages:
            conversation.gone.set()

    conversation.watch = watch
    await proxy.run(conversation)
    return conversation


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
    assert conversation.lastcall | {"session": ""} == {
        "session": "",
        "step": "4" if conversation.lastcall["step"] == "4" else "1",
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


# ---- armed streams


async def test_an_armed_stream_lets_a_different_call_through() -> None:
    """Held until it is whole, then let go as it came."""
    proxy = Proxy(stream(*call_stream("cat", '{"path": "b"}')))
    conversation = await proxy.ask(request(looping(4), stream=True, stream_options={"include_usage": True}))

    assert conversation.body == b"".join(call_stream("cat", '{"path": "b"}'))
    assert conversation.writes[0] == OPENING
    assert proxy.ledger() == (1, 13, 0)


async def test_an_armed_stream_lets_text_through() -> None:
    """The model came out of its loop."""
    proxy = Proxy(stream(*text_stream()))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert text_of(conversation) == "hello"
    assert conversation.body.endswith(DONE)
    assert proxy.ended.action is Action.NUDGE


async def test_a_looping_answer_is_stopped_and_wrapped_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamed: text before the call stays, the call never goes out, the model concludes in the same answer."""
    proxy = Proxy(stream(OPENING, delta({"content": "Let me look."}), *call_stream()[1:]), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert "Let me look." in text_of(conversation)
    assert f"{STOP} Lastcall stopped this run" in text_of(conversation)
    assert text_of(conversation).endswith("There is a.txt.")
    assert calls_of(conversation) == []
    assert conversation.events[-1]["choices"][0]["finish_reason"] == "stop"
    assert {one["id"] for one in conversation.events} == {"chatcmpl-up"}
    assert notice_of(conversation)["action"] == "stop"
    last = proxy.upstream.sent[1].json
    assert (last["tool_choice"], STOP in last["messages"][-1]["content"]) == ("none", True)
    assert proxy.ledger() == (2, 26, 0)
    ended = proxy.ended
    assert (ended.action, ended.count, ended.upstream_calls, ended.pruned) == (Action.STOP, 5, 2, 0)
    assert ended.nudge_ended == NudgeEnded("stopped")


async def test_a_comment_first_stream_is_opened_by_the_stop() -> None:
    """Comments are no opening: the role still has to come."""
    proxy = Proxy(stream(b": PROCESSING\n\n", *call_stream()[1:]), policy=MESSAGE)
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.writes[0] == b": PROCESSING\n\n"
    assert conversation.events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert conversation.events[0]["id"].startswith("chatcmpl-lastcall-")


async def test_usage_of_all_calls_stands_in_the_answer_that_lastcall_ends() -> None:
    """Where the client asked for it."""
    proxy = Proxy(stream(*call_stream()), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4), stream=True, stream_options={"include_usage": True}))

    assert conversation.events[-1]["usage"]["prompt_tokens"] == 20
    assert notice_of(conversation)["reason"] == "repeated_call"


async def test_a_whole_looping_answer_is_stopped_and_wrapped_up() -> None:
    """One completion: what the model said before, the stop line, its conclusion."""
    proxy = Proxy(answer("Let me look.", LS), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4)))

    before, line, after = text_of(conversation).split("\n\n")
    assert (before, after) == ("Let me look.", "There is a.txt.")
    assert line.startswith(STOP)
    assert "tool_calls" not in conversation.json["choices"][0]["message"]
    assert conversation.lastcall["action"] == "stop"
    assert conversation.json["usage"]["total_tokens"] == 26


async def test_a_stop_with_several_choices_answers_each() -> None:
    """The client asked for that many."""
    proxy = Proxy(answer(None, LS, choices=2), policy=MESSAGE)
    conversation = await proxy.ask(request(looping(4), n=2))

    assert [choice["index"] for choice in conversation.json["choices"]] == [0, 1]
    assert all(STOP in choice["message"]["content"] for choice in conversation.json["choices"])


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_stop_as_a_message_asks_nobody(streamed: bool) -> None:
    """The local text, no further call."""
    proxy = Proxy(stream(*call_stream()) if streamed else answer(None, LS), policy=MESSAGE)
    conversation = await proxy.ask(request(looping(4), stream=streamed))

    assert text_of(conversation).startswith(STOP)
    assert len(proxy.upstream.sent) == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_stop_as_an_error_is_an_http_400(streamed: bool) -> None:
    """Also of a stream: its header waited for the decision."""
    proxy = Proxy(stream(*call_stream()) if streamed else answer("Let me look.", LS), policy=ERROR)
    conversation = await proxy.ask(request(looping(4), stream=streamed))

    assert (conversation.status, conversation.headers["x-should-retry"]) == (400, "false")
    assert conversation.json["error"]["code"] == "lastcall_repeated_call"
    assert (notice_of(conversation)["action"], conversation.lastcall["action"]) == ("stop", "stop")
    assert proxy.ledger() == (1, 13, 0)
    assert proxy.ended.status == 400


async def test_a_mute_stream_that_turns_out_well_goes_out_whole() -> None:
    """Its header and everything held."""
    proxy = Proxy(stream(*text_stream()), policy=ERROR)
    conversation = await proxy.ask(request(looping(4), stream=True, stream_options={"include_usage": True}))

    assert (conversation.status, conversation.body) == (200, b"".join(text_stream()))


async def test_an_unasked_stream_that_is_stopped_ends_as_the_stream_it_is() -> None:
    """Some servers stream whatever was asked for."""
    proxy = Proxy(stream(*call_stream()), policy=MESSAGE)
    conversation = await proxy.ask(request(looping(4)))

    assert conversation.headers["content-type"].startswith("text/event-stream")
    assert text_of(conversation).startswith(STOP)
    assert conversation.body.endswith(DONE)
    assert conversation.ended


async def test_a_whole_answer_to_a_streaming_request_is_stopped_as_a_stream() -> None:
    """The client reads one."""
    proxy = Proxy(answer(None, LS), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert text_of(conversation).endswith("There is a.txt.")


# ---- stops on arrival, wrap-ups


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_history_at_the_stop_rung_gets_one_last_call(streamed: bool) -> None:
    """Without tools; and then, while the run lasts, none at all."""
    proxy = Proxy(answer("There is a.txt."))
    first = await proxy.ask(request(looping(5), stream=streamed), x_lastcall_session="s")
    second = await proxy.ask(request(looping(5), stream=streamed), x_lastcall_session="s")

    assert text_of(first).endswith("There is a.txt.")
    assert text_of(second).startswith(STOP)
    assert [sent.json["tool_choice"] for sent in proxy.upstream.sent] == ["none"]
    assert [(ended.action, ended.upstream_calls) for ended in proxy.telemetry.exchanges] == [(Action.STOP, 1), (Action.STOP, 0)]
    assert proxy.ledger() == (1, 13, 0)


async def test_a_standing_stop_as_an_error() -> None:
    """Each further request of the run."""
    proxy = Proxy(policy=ERROR)
    first, second = [await proxy.ask(request(looping(5), stream=True), x_lastcall_session="s") for _ in range(2)]

    assert (first.status, second.status) == (400, 400)
    assert first.json["error"] == second.json["error"]
    assert proxy.upstream.sent == []


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([answer(""), answer(" \n"), answer(MARKUP), answer("Done.")], 4),
        ([answer(MARKUP), answer("Done.")], 2),
        ([stream(OPENING, *text_stream("Done.")[1:])], 1),
    ],
)
async def test_an_empty_or_leaking_conclusion_is_asked_for_again(answers: list[Any], asked: int) -> None:
    """With another instruction each time; each call pays."""
    proxy = Proxy(*answers)
    conversation = await proxy.ask(request(looping(5)))

    assert text_of(conversation).endswith("Done.")
    instructions = {sent.json["messages"][-1]["content"] for sent in proxy.upstream.sent}
    assert len(instructions) == len(proxy.upstream.sent) == asked
    assert proxy.ledger() == (asked, 13 * asked, 0)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([answer("")] * 9, 4),
        ([answer(None, LS)], 1),
        ([answer("I will look.", LS)], 1),
        ([ScriptedResponse(b"no", status=500)], 1),
        ([UpstreamFailed("refused")], 1),
        ([ScriptedResponse(b'{"error": {"message": "overloaded"}}')], 1),
        ([answer("", choices=0)] * 9, 4),
    ],
)
async def test_a_conclusion_that_does_not_come_is_replaced_by_a_message(answers: list[Any], asked: int) -> None:
    """After a bounded number of calls the client gets its answer all the same."""
    proxy = Proxy(*answers)
    conversation = await proxy.ask(request(looping(5)))

    assert conversation.status == 200
    assert text_of(conversation).startswith(STOP)
    assert len(proxy.upstream.sent) == asked
    assert proxy.ledger()[2] == 0
    assert proxy.ended.outcome is Outcome.COMPLETED


async def test_a_conclusion_respects_the_budget() -> None:
    """The time was over when the looping answer came: no second call."""
    proxy = Proxy(policy=Policy(budgets=Budgets(deadline=60)))

    async def slow() -> Response:
        proxy.clock.now += 61
        return answer(None, LS)

    proxy.upstream.answers.append(slow)
    conversation = await proxy.ask(request(looping(4)))

    assert text_of(conversation).startswith(STOP)
    assert len(proxy.upstream.sent) == 1
    assert proxy.ledger() == (1, 13, 0)


async def test_a_finish_tool_can_be_forced() -> None:
    """For agents that end only by it: that one call goes out, and the tool choice asks for it."""
    finish = called("finish", '{"answer": "a.txt"}', "f1")
    policy = Policy(wrap_up=WrapUpRule(force_finish_tool="finish"))
    proxy = Proxy(answer("noise", LS, finish, finish), policy=policy)
    conversation = await proxy.ask(request(looping(5), tools=[tool("ls"), tool("finish")]))

    message = conversation.json["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["finish"]
    assert conversation.json["choices"][0]["finish_reason"] == "tool_calls"
    assert proxy.upstream.sent[0].json["tool_choice"] == {"type": "function", "function": {"name": "finish"}}


async def test_a_finish_tool_that_is_not_called_gives_the_message() -> None:
    """It is asked once."""
    policy = Policy(wrap_up=WrapUpRule(force_finish_tool="finish"))
    proxy = Proxy(answer("no"), policy=policy)
    conversation = await proxy.ask(request(looping(5), tools=[tool("ls"), tool("finish")]))

    assert text_of(conversation).startswith(STOP)
    assert len(proxy.upstream.sent) == 1


async def test_a_finish_tool_that_is_not_offered_is_not_forced() -> None:
    """Then the model concludes in words."""
    proxy = Proxy(answer("Done."), policy=Policy(wrap_up=WrapUpRule(force_finish_tool="finish")))

    assert text_of(await proxy.ask(request(looping(5)))).endswith("Done.")


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_slow_conclusion_keeps_a_stream_alive(monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    """Comments in a stream; nothing before a whole answer."""
    monkeypatch.setattr(exchange, "KEEP_ALIVE_SECONDS", 0.005)
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

    assert text_of(conversation).endswith("Done.")
    assert (len(ticks) >= 3) is streamed
    assert set(ticks) <= {b": keep-alive\n\n"}


async def test_a_held_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the call it holds is still being written."""
    monkeypatch.setattr(exchange, "KEEP_ALIVE_SECONDS", 0.005)
    more = asyncio.Event()
    proxy = Proxy(stream(OPENING, begins("cat", '{"path": "b"}'), more, *call_stream()[2:]))
    conversation = Conversation(
        (request(looping(4), stream=True),), watch=lambda message: more.set() if message.get("body") == b": keep-alive\n\n" else None
    )
    await proxy.run(conversation)

    assert conversation.writes[1] == b": keep-alive\n\n"
    assert calls_of(conversation) == ["cat"]


async def test_a_mute_stream_is_not_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status is not decided yet: there is nothing to write into."""
    monkeypatch.setattr(exchange, "KEEP_ALIVE_SECONDS", 0.005)
    more = asyncio.Event()
    proxy = Proxy(stream(OPENING, more, *call_stream()[1:]), policy=ERROR)
    asking = asyncio.create_task(proxy.ask(request(looping(4), stream=True)))
    await asyncio.sleep(0.03)
    more.set()

    assert (await asking).status == 400


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
    assert (notice_of(conversation)["scope"], conversation.lastcall["reason"]) == ("call", "repeated_call")
    ended = proxy.ended
    assert (ended.pruned, ended.upstream_calls, ended.reason) == (1, 1, Reason.REPEATED_CALL)


async def test_a_repeated_call_among_others_is_left_out_of_a_stream() -> None:
    """The others go out with their ids, and the usage if it was asked for."""
    events = [OPENING, begins("ls"), begins("cat", CAT["function"]["arguments"], position=1), delta({}, "tool_calls"), USAGE_EVENT, DONE]
    proxy = Proxy(stream(*events))
    conversation = await proxy.ask(request(about_to_loop(), stream=True, stream_options={"include_usage": True}))

    assert calls_of(conversation) == ["cat"]
    assert conversation.events[-1]["usage"]["prompt_tokens"] == 10
    assert notice_of(conversation)["scope"] == "call"
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
    assert text_of(second).startswith(STOP)
    assert second.lastcall["action"] == "stop"


RUNAWAY = Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(None, 3)})


def parallel(times: int) -> list[bytes]:
    return [begins("ls", position=position) for position in range(times)]


async def test_a_runaway_message_is_cut() -> None:
    """What went out stays, the rest is left out, the upstream is let go, the answer ends as one that made calls."""
    upstream = stream(OPENING, *parallel(6), asyncio.Event())
    proxy = Proxy(upstream, policy=RUNAWAY)
    conversation = await proxy.ask(request(stream=True))

    assert calls_of(conversation) == ["ls", "ls"]
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

    assert calls_of(conversation) == ["ls", "ls"]
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

    assert calls_of(conversation) == []
    assert text_of(conversation).startswith(STOP)
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

    assert calls_of(second) == ["ls", "ls"]
    assert text_of(third).startswith(STOP)
    assert len(proxy.upstream.sent) == 2


# ---- budgets


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_used_up_budget_refuses(streamed: bool) -> None:
    """A message, no upstream call, nothing reserved."""
    proxy = Proxy(policy=Policy(budgets=Budgets(steps=0)))
    conversation = await proxy.ask(request(stream=streamed))

    assert STOP in text_of(conversation)
    notice = notice_of(conversation)
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

    assert text_of(conversation).endswith("Done.")
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

    assert text_of(conversation) == "hi"
    assert (proxy.ended.action, proxy.ended.reason) == (Action.REFUSE, Reason.STEP_BUDGET)


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

    assert text_of(conversation) == "12345678"
    assert conversation.events[-1]["error"]["message"] == "The upstream broke off."
    assert conversation.ended
    ended = proxy.ended
    assert (ended.outcome, ended.upstream_errors, ended.output_tokens) == (Outcome.UPSTREAM_ERROR, (UpstreamError.CUT,), 2)
    assert proxy.ledger()[0::2] == (0, 0)


async def test_a_call_held_when_a_stream_breaks_off_never_goes_out() -> None:
    """It was not whole."""
    proxy = Proxy(stream(OPENING, begins("cat"), UpstreamCut("half")))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert calls_of(conversation) == []
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
    asyncio.get_running_loop().call_later(0.02, conversation.gone.set)
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

    assert (healthy.lastcall["degraded"], healthy.lastcall["step"], text_of(healthy)) == ("store", "1", "hi")
    assert (stopped.lastcall["degraded"], stopped.lastcall["step"]) == ("store", "6")
    assert text_of(stopped).endswith("Done.")
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
