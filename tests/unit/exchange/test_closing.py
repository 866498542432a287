"""Runs that end: looping answers held and replaced, stops on arrival, the model's last word and what stands in for it."""

import asyncio
import json
from typing import Any

import pytest

from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import NudgeEnded, Outcome
from proxy.models import Action
from proxy.policy import Budgets, OnStop, Policy, WrapUpRule
from proxy.upstream.http import Response
from tests.in_process import (
    DONE,
    LS,
    OPENING,
    Conversation,
    Proxy,
    ScriptedResponse,
    answer,
    call_stream,
    called,
    delta,
    looping,
    request,
    stream,
    text_stream,
    tool,
)

STOP = "[lastcall stop]"
MARKUP = '<tool_call>\n{"name": "ls"}'
MESSAGE, ERROR = Policy(on_stop=OnStop.MESSAGE), Policy(on_stop=OnStop.ERROR)


# ---- armed streams


async def test_an_armed_stream_lets_a_different_call_through() -> None:
    """Held until it is whole, then let go as it came."""
    proxy = Proxy(stream(*call_stream("cat", '{"path": "b"}')))
    conversation = await proxy.ask(request(looping(4), stream=True, stream_options={"include_usage": True}))

    assert conversation.body == b"".join(call_stream("cat", '{"path": "b"}'))
    assert conversation.writes[0] == OPENING
    assert proxy.ledger() == (1, 13, 0)


async def test_a_conclusion_may_write_no_more_than_its_own_reservation() -> None:
    """What the looping answer took is gone, and what it held beyond that is free again."""
    costly = {"prompt_tokens": 100, "completion_tokens": 4_600, "total_tokens": 4_700}
    looped = answer(None, called("ls", "{}", "c4"), usage=costly)
    proxy = Proxy(looped, answer("There is a.txt."), policy=Policy(budgets=Budgets(tokens=6_000)))
    await proxy.ask(request(looping(4)))
    first, last = (sent.json for sent in proxy.upstream.sent)

    assert (last["tool_choice"], proxy.ledger()) == ("none", (2, 4_713, 0))
    assert 256 <= last["max_completion_tokens"] < first["max_completion_tokens"]
    assert last["max_completion_tokens"] <= 6_000 - 4_700


async def test_an_armed_stream_lets_text_through() -> None:
    """The model came out of its loop."""
    proxy = Proxy(stream(*text_stream()))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.text == "hello"
    assert conversation.body.endswith(DONE)
    assert proxy.ended.action is Action.NUDGE


async def test_a_looping_answer_is_stopped_and_wrapped_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamed: text before the call stays, the call never goes out, the model concludes in the same answer."""
    proxy = Proxy(stream(OPENING, delta({"content": "Let me look."}), *call_stream()[1:]), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.text.startswith(f"Let me look.\n\n{STOP} Lastcall stopped this run")
    assert conversation.text.endswith("There is a.txt.")
    assert conversation.calls == []
    assert conversation.events[-1]["choices"][0]["finish_reason"] == "stop"
    assert {one["id"] for one in conversation.events} == {"chatcmpl-up"}
    assert conversation.notice["action"] == "stop"
    last = proxy.upstream.sent[1].json
    assert (last["tool_choice"], STOP in last["messages"][-1]["content"]) == ("none", True)
    assert proxy.ledger() == (2, 26, 0)
    ended = proxy.ended
    assert (ended.action, ended.count, ended.upstream_calls, ended.pruned) == (Action.STOP, 5, 2, 0)
    assert ended.nudge_ended == NudgeEnded("stopped")


async def test_a_stop_after_streamed_text_is_known_again_by_all_of_it() -> None:
    """A history that carries what the client saw is that of the session, also where no call id shows it."""
    before = looping(4)
    for call in (call for message in before for call in message.get("tool_calls") or ()):
        del call["id"]
    proxy = Proxy(stream(OPENING, delta({"content": "Let me look."}), *call_stream()[1:]), answer("There is a.txt."), answer("More."))
    first = await proxy.ask(request(before, stream=True))
    after = [*before, {"role": "assistant", "content": first.text}, {"role": "user", "content": "And now something else?"}]
    second = await proxy.ask(request(after))

    assert second.lastcall["session"] == first.lastcall["session"]


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
    assert conversation.notice["reason"] == "repeated_call"


async def test_a_whole_looping_answer_is_stopped_and_wrapped_up() -> None:
    """One completion: what the model said before, the stop line, its conclusion."""
    proxy = Proxy(answer("Let me look.", LS), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4)))

    before, line, after = conversation.text.split("\n\n")
    assert (before, after) == ("Let me look.", "There is a.txt.")
    assert line.startswith(STOP)
    assert "tool_calls" not in conversation.json["choices"][0]["message"]
    assert conversation.lastcall["action"] == "stop"
    assert conversation.json["usage"]["total_tokens"] == 26


@pytest.mark.parametrize("policy", [Policy(), MESSAGE, ERROR], ids=["wrap up", "message", "error"])
async def test_a_stop_is_in_the_store_before_the_client_hears_of_it(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next request may reach another replica at once, and that must know."""
    proxy = Proxy(answer(None, called("ls", "{}", "c4")), answer("There is a.txt."), policy=policy)
    written, commit = asyncio.Event(), proxy.store.commit

    async def slow(*arguments: Any, record: bytes | None, **more: Any) -> Any:
        if record is not None:
            await written.wait()
        return await commit(*arguments, record=record, **more)

    monkeypatch.setattr(proxy.store, "commit", slow)
    conversation = Conversation((request(looping(4)),))
    asked = asyncio.create_task(proxy.run(conversation))
    for _ in range(50):
        await asyncio.sleep(0)
    assert (asked.done(), conversation.body) == (False, b"")
    written.set()
    await asked

    assert conversation.lastcall["action"] == "stop"


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

    assert conversation.text.startswith(STOP)
    assert len(proxy.upstream.sent) == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_stop_as_an_error_is_an_http_400(streamed: bool) -> None:
    """Also of a stream: its header waited for the decision."""
    proxy = Proxy(stream(*call_stream()) if streamed else answer("Let me look.", LS), policy=ERROR)
    conversation = await proxy.ask(request(looping(4), stream=streamed))

    assert (conversation.status, conversation.headers["x-should-retry"]) == (400, "false")
    assert conversation.json["error"]["code"] == "lastcall_repeated_call"
    assert (conversation.notice["action"], conversation.lastcall["action"]) == ("stop", "stop")
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
    assert conversation.text.startswith(STOP)
    assert conversation.body.endswith(DONE)
    assert conversation.ended


async def test_a_whole_answer_to_a_streaming_request_is_stopped_as_a_stream() -> None:
    """The client reads one."""
    proxy = Proxy(answer(None, LS), answer("There is a.txt."))
    conversation = await proxy.ask(request(looping(4), stream=True))

    assert conversation.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert conversation.text.endswith("There is a.txt.")


# ---- stops on arrival, wrap-ups


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_history_at_the_stop_rung_gets_one_last_call(streamed: bool) -> None:
    """Without tools; and then, while the run lasts, none at all."""
    proxy = Proxy(answer("There is a.txt."))
    first = await proxy.ask(request(looping(5), stream=streamed), x_lastcall_session="s")
    second = await proxy.ask(request(looping(5), stream=streamed), x_lastcall_session="s")

    assert first.text.endswith("There is a.txt.")
    assert second.text.startswith(STOP)
    assert [sent.json["tool_choice"] for sent in proxy.upstream.sent] == ["none"]
    assert [(ended.action, ended.upstream_calls) for ended in proxy.telemetry.exchanges] == [(Action.STOP, 1), (Action.STOP, 0)]
    assert proxy.ledger() == (1, 13, 0)


async def test_a_standing_stop_as_an_error() -> None:
    """Each further request of the run."""
    proxy = Proxy(policy=ERROR)
    first, second = [await proxy.ask(request(looping(5), stream=True), x_lastcall_session="s") for _ in range(2)]

    assert first.json["error"] == second.json["error"]
    assert proxy.upstream.sent == []


async def test_who_asks_the_same_again_after_an_error_gets_one_that_ends_its_run() -> None:
    """Some clients retry on 400 and end on 401 or 404. A history that has grown is answered as the first one was."""
    proxy = Proxy(policy=ERROR)

    async def status(messages: list[dict[str, Any]], agent: str = "OpenAI/Python 3.57.0") -> int | None:
        answered = await proxy.ask(request(messages), x_lastcall_session="s", user_agent=agent)
        assert answered.headers["x-should-retry"] == "false"
        return answered.status

    assert [await status(looping(5)) for _ in range(4)] == [400, 401, 404, 404]
    assert [await status(looping(6)) for _ in range(2)] == [400, 401]
    assert [await status(looping(7), agent="claude-cli/2.1.197 (external, cli)") for _ in range(3)] == [400, 400, 400]
    assert proxy.upstream.sent == []


async def test_a_budgets_error_is_given_the_same_way() -> None:
    """It is no stop, and yet the run is over."""
    proxy = Proxy(policy=Policy(on_stop=OnStop.ERROR, budgets=Budgets(steps=0)))
    statuses = [(await proxy.ask(request(), x_lastcall_session="s")).status for _ in range(3)]

    assert statuses == [400, 401, 404]


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

    assert conversation.text.endswith("Done.")
    instructions = {sent.json["messages"][-1]["content"] for sent in proxy.upstream.sent}
    assert len(instructions) == len(proxy.upstream.sent) == asked
    assert proxy.ledger() == (asked, 13 * asked, 0)


@pytest.mark.parametrize(
    ("answers", "asked", "last_error"),
    [
        ([answer("")] * 9, 4, None),
        ([answer(None, LS)], 1, None),
        ([answer("I will look.", LS)], 1, None),
        ([ScriptedResponse(b"no", status=500)], 1, "the upstream 'main' answered with status 500"),
        ([UpstreamFailed("refused")], 1, "refused"),
        ([stream(OPENING, UpstreamCut("half"))], 1, "half"),
        ([answer(""), UpstreamFailed("refused")], 2, "refused"),
        ([ScriptedResponse(b'{"error": {"message": "secret"}}')], 1, "the upstream 'main' reported an error inside its answer"),
        ([answer("", choices=0)] * 9, 4, None),
    ],
)
async def test_a_conclusion_that_does_not_come_is_replaced_by_a_message(answers: list[Any], asked: int, last_error: str | None) -> None:
    """After a bounded number of calls the client gets its answer all the same, and is told what the upstream did, if it failed."""
    proxy = Proxy(*answers)
    conversation = await proxy.ask(request(looping(5)))

    assert conversation.status == 200
    assert conversation.text.startswith(STOP)
    assert conversation.notice["last_error"] == last_error
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

    assert conversation.text.startswith(STOP)
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

    assert conversation.text.startswith(STOP)
    assert len(proxy.upstream.sent) == 1


async def test_a_client_that_ends_by_a_tool_alone_is_given_its_call() -> None:
    """Also without the model, and however often it asks: text would make it ask again."""
    complete = tool("attempt_completion")
    complete["function"]["parameters"] = {"properties": {"result": {"type": "string"}}, "required": ["result"]}
    body = request(looping(5), tools=[tool("ls"), complete])
    proxy = Proxy(answer("no"), policy=MESSAGE)
    for agent in ("RooCode/3.38", "Kilo-Code/4.100"):
        said = (await proxy.ask(body, x_lastcall_session=agent[:3], user_agent=agent)).json["choices"][0]
        (call,) = said["message"]["tool_calls"]
        assert call["function"]["name"] == "attempt_completion"
        assert json.loads(call["function"]["arguments"])["result"].startswith(STOP)
        assert said["finish_reason"] == "tool_calls"
    assert (await proxy.ask(body, x_lastcall_session="other")).text.startswith(STOP)


async def test_a_finish_tool_that_is_not_offered_is_not_forced() -> None:
    """Then the model concludes in words."""
    proxy = Proxy(answer("Done."), policy=Policy(wrap_up=WrapUpRule(force_finish_tool="finish")))

    assert (await proxy.ask(request(looping(5)))).text.endswith("Done.")
