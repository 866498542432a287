"""Answers whose text cannot be given as it is: asked for again, cut, or let through where they only looked so."""

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.sse import Splitter
from proxy.events import FindingSeen
from proxy.models import Action, Begun, Head, Notice, Reason, Usage
from proxy.policy import Budgets, Expectation, Mode, OnStop, Policy, WrapUpRule
from tests.in_process import (
    DONE,
    OPENING,
    USAGE_EVENT,
    Conversation,
    Proxy,
    ScriptedResponse,
    Sent,
    answer,
    delta,
    looping,
    request,
    stream,
    text_stream,
    tool,
)

CALL = '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
CUT = "[lastcall stop] Lastcall cut this answer: the model wrote a tool call as text."
OBSERVE = Policy(mode=Mode.OBSERVE)
NO_HEADERS: dict[str, Any] = {}
REVIEW = Policy(stages={"review": Expectation(("VERDICT",), ("DRAFT",))})


def plain(**members: Any) -> bytes:
    return request(tools=None, **members)


def told(sent: Sent) -> str:
    content: str = sent.json["messages"][-1]["content"]
    return content.removeprefix("hi").strip()


def pieces(text: str, size: int = 5) -> list[bytes]:
    """A streamed text, some characters an event."""
    parts = [delta({"content": text[at : at + size]}) for at in range(0, len(text), size)]
    return [OPENING, *parts, delta({}, "stop"), USAGE_EVENT, DONE]


# ---- markup


@pytest.mark.parametrize("members", [{"tools": None}, {"tools": [tool("ls")], "tool_choice": "none"}])
async def test_an_answer_with_markup_is_asked_for_again(members: dict[str, Any]) -> None:
    """The client gets the second one, and is told that there was a first."""
    proxy = Proxy(answer(f"Let me see.\n{CALL}"), answer("There is a.txt."))
    conversation = await proxy.ask(request(**members))

    assert conversation.text == "There is a.txt."
    assert conversation.lastcall | {"session": ""} == {"session": "", "step": "1", "action": "nudge", "reason": "tool_markup"}
    assert (conversation.notice["action"], conversation.notice["scope"], conversation.notice["degraded"]) == ("nudge", "call", False)
    first, second = proxy.upstream.sent
    assert told(first) == ""
    assert told(second).startswith("[lastcall] Your last answer held a tool call written as text.")
    assert proxy.ledger() == (2, 26, 0)
    assert proxy.ended.findings == (FindingSeen(Reason.TOOL_MARKUP, Action.NUDGE),)


async def test_after_three_more_tries_it_is_cut_and_said() -> None:
    """Each try firmer than the one before; what is good of the first answer is kept."""
    proxy = Proxy(answer(f"Let me see.\n{CALL}\nDone."), *[answer(CALL) for _ in range(3)])
    conversation = await proxy.ask(plain())

    assert conversation.text == f"Let me see.\n\nDone.\n\n{CUT}"
    assert (conversation.lastcall["action"], conversation.lastcall["reason"]) == ("stop", "tool_markup")
    assert (conversation.notice["scope"], conversation.notice["degraded"]) == ("call", True)
    assert len({told(sent) for sent in proxy.upstream.sent}) == 4


@pytest.mark.parametrize("second", [answer(None), answer(""), answer("a", choices=0)])
async def test_an_empty_second_answer_is_none(second: ScriptedResponse) -> None:
    """If nothing is left, it is said what happened."""
    proxy = Proxy(answer(CALL), second, policy=Policy(wrap_up=WrapUpRule(retries=1)))
    conversation = await proxy.ask(plain())

    assert conversation.text == CUT


async def test_no_try_goes_beyond_a_budget() -> None:
    """A refused reservation ends them."""
    proxy = Proxy(answer(CALL), policy=Policy(budgets=Budgets(steps=1)))
    conversation = await proxy.ask(plain())

    assert conversation.text == CUT
    assert len(proxy.upstream.sent) == 1


async def test_a_stray_closer_is_left_out() -> None:
    """Nothing is asked again, and the text says nothing of it."""
    proxy = Proxy(answer("All done.]<]minimax[>[</tool_call>"))
    conversation = await proxy.ask(plain())

    assert conversation.text == "All done."
    assert (conversation.lastcall["action"], conversation.lastcall["reason"]) == ("allow", "tool_markup")
    assert proxy.ended.findings == ()


@pytest.mark.parametrize("size", [1, 2, 5, 11, 500])
@pytest.mark.parametrize("chunked", [True, False])
async def test_markup_in_a_stream_never_reaches_the_client(size: int, chunked: bool) -> None:
    """However it is cut; the text before it does, and the better answer follows."""
    events = pieces(f"Let me see.\n{CALL}", size)
    proxy = Proxy(stream(*(events if chunked else [b"".join(events)])), stream(*text_stream("There is a.txt.")))
    conversation = await proxy.ask(plain(stream=True))

    before = conversation.text.removesuffix("There is a.txt.")
    assert "Let me see.".startswith(before.rstrip())
    assert len(before) < len(conversation.text)
    assert conversation.body.endswith(DONE)
    assert [choice["finish_reason"] for one in conversation.events for choice in one["choices"]][-1] == "stop"
    assert conversation.notice["reason"] == "tool_markup"


async def test_a_stream_that_cannot_be_mended_is_cut() -> None:
    """What was held and is good goes out, then what happened."""
    events = [OPENING, delta({"content": f"See <b>it</b>.{CALL[:3]}"}), delta({"content": CALL[3:] + " Bye."}), delta({}, "stop"), DONE]
    proxy = Proxy(stream(*events), answer(CALL), policy=Policy(wrap_up=WrapUpRule(retries=1)))
    conversation = await proxy.ask(plain(stream=True))

    assert conversation.text == f"See <b>it</b>. Bye.\n\n{CUT}"


@pytest.mark.parametrize(
    "text", ["if a < b and c <= d: return <x>", "Use `<tool_call>` there.", "```\n" + CALL + "\n```", "ends with <tool_", "a <"]
)
@pytest.mark.parametrize("size", [1, 3, 500])
async def test_a_stream_that_only_looks_so_passes_as_it_is(text: str, size: int) -> None:
    """To the byte."""
    events = pieces(text, size)
    proxy = Proxy(stream(*events))
    conversation = await proxy.ask(plain(stream=True, stream_options={"include_usage": True}))

    assert conversation.body == b"".join(events)
    assert conversation.lastcall["action"] == "allow"


async def test_text_waits_no_longer_than_it_must() -> None:
    """Each event goes out as soon as it cannot become markup."""
    proxy = Proxy(stream(*pieces("abc <def> ghi", 1)))
    conversation = await proxy.ask(plain(stream=True))

    texts = [
        b"".join(
            json.loads(part[6:])["choices"][0]["delta"].get("content", "").encode()
            for part in write.split(b"\n\n")[:-1]
            if b"choices" in part and b"[DONE]" not in part
        )
        for write in conversation.writes
    ]
    assert texts[:7] == [b"", b"a", b"b", b"c", b" ", b"<d", b"e"]


async def test_a_stream_that_breaks_off_in_markup_is_mended() -> None:
    """What waited was markup after all."""
    proxy = Proxy(stream(OPENING, delta({"content": "All done.</think>"})))
    conversation = await proxy.ask(plain(stream=True))

    assert conversation.text == "All done."
    assert conversation.body.endswith(DONE)


async def test_a_broken_stream_ends_with_what_waited() -> None:
    """Nothing is swallowed."""
    events = [OPENING, delta({"content": "a <"})]
    proxy = Proxy(stream(*events))
    conversation = await proxy.ask(plain(stream=True))

    assert conversation.body == b"".join(events)


@pytest.mark.parametrize("streamed", [True, False])
async def test_observing_changes_nothing(streamed: bool) -> None:
    """It is counted as what it would have been."""
    upstream = stream(*pieces(CALL)) if streamed else answer(CALL)
    whole = await upstream.read()
    proxy = Proxy(upstream, policy=OBSERVE)
    conversation = await proxy.ask(plain(stream=streamed, stream_options={"include_usage": True} if streamed else None))

    assert conversation.body == whole
    assert "reason" not in conversation.lastcall
    assert (proxy.ended.action, proxy.ended.reason, proxy.ended.mode) == (Action.NUDGE, Reason.TOOL_MARKUP, "observe")


# ---- passages without end


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_stream_that_repeats_itself_is_cut(chunked: bool) -> None:
    """After what went out, well-formed; the upstream is not read to its end."""
    events = pieces("Sure: " + "curd " * 3000)
    proxy = Proxy(stream(*(events if chunked else [b"".join(events)])))
    conversation = await proxy.ask(request(stream=True))

    assert conversation.text.startswith("Sure: curd curd")
    assert conversation.text.endswith("\n\n[lastcall stop] Lastcall cut this answer: the model wrote one passage again and again.")
    assert len(conversation.text) < 400
    assert conversation.body.endswith(DONE)
    assert (conversation.notice["action"], conversation.notice["reason"]) == ("stop", "repeated_text")
    assert proxy.ended.action is Action.STOP


async def test_a_whole_answer_that_repeats_itself_keeps_what_came_before() -> None:
    """And says that it was cut."""
    proxy = Proxy(answer("Sure: " + "curd " * 3000))
    conversation = await proxy.ask(request())

    assert conversation.text.startswith("Sure:")
    assert "curd curd" not in conversation.text
    assert conversation.lastcall["reason"] == "repeated_text"


async def test_the_second_such_answer_of_a_run_ends_it() -> None:
    """With a conclusion, as any stop."""
    loop = "curd " * 3000
    proxy = Proxy(answer(loop), answer(loop), answer("I know nothing more."))
    first = await proxy.ask(request(), x_lastcall_session="s")
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first.text}, {"role": "user", "content": "continue"}]
    second = await proxy.ask(request(history), x_lastcall_session="s")

    assert second.text.endswith("I know nothing more.")
    assert second.notice["scope"] == "run"
    again = await proxy.ask(
        request([*history, {"role": "assistant", "content": second.text}, {"role": "user", "content": "continue"}]), x_lastcall_session="s"
    )
    assert again.lastcall["action"] == "stop"
    assert len(proxy.upstream.sent) == 3


async def test_an_observed_stream_that_repeats_itself_goes_on() -> None:
    """All of it."""
    events = pieces("curd " * 100)
    proxy = Proxy(stream(*events), policy=OBSERVE)
    conversation = await proxy.ask(request(stream=True))

    assert conversation.body == b"".join(events)
    assert (proxy.ended.action, proxy.ended.reason) == (Action.STOP, Reason.REPEATED_TEXT)


# ---- stages


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_not_what_its_stage_expects_is_asked_for_again(streamed: bool) -> None:
    """The client gets only the one that is."""
    first = stream(*text_stream("good DRAFT")) if streamed else answer("good DRAFT")
    second = stream(*text_stream("VERDICT: good")) if streamed else answer("VERDICT: good")
    proxy = Proxy(first, second, policy=REVIEW)
    conversation = await proxy.ask(request(stream=streamed), x_lastcall_stage="review")

    assert conversation.text == "VERDICT: good"
    assert conversation.notice["reason"] == "expect"
    assert 'must contain "VERDICT" and not contain "DRAFT"' in told(proxy.upstream.sent[1])


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_as_expected_passes_as_it_is(streamed: bool) -> None:
    """To the byte, and so does any answer without a stage."""
    for stage in ("review", None):
        upstream = stream(*text_stream("VERDICT: good")) if streamed else answer("VERDICT: good")
        proxy = Proxy(upstream, policy=REVIEW)
        conversation = await proxy.ask(
            request(stream=streamed, stream_options={"include_usage": True} if streamed else None),
            **({"x_lastcall_stage": stage} if stage else NO_HEADERS),
        )
        assert conversation.body == await upstream.read()


async def test_if_no_answer_is_right_the_first_is_given_and_marked() -> None:
    """It may be read by a program: nothing is added to it."""
    proxy = Proxy(answer("good"), answer("fine"), policy=Policy(stages=REVIEW.stages, wrap_up=WrapUpRule(retries=1)))
    conversation = await proxy.ask(request(), x_lastcall_stage="review")

    assert conversation.text == "good"
    assert (conversation.lastcall["action"], conversation.lastcall["reason"]) == ("stop", "expect")


async def test_a_call_instead_of_the_expected_answer_goes_through() -> None:
    """The agent is not done yet."""
    proxy = Proxy(
        answer("good"), answer(None, {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}), policy=REVIEW
    )
    conversation = await proxy.ask(request(), x_lastcall_stage="review")

    assert conversation.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "ls"


async def test_a_stage_that_is_not_configured_is_refused() -> None:
    """By name, with those that are."""
    conversation = Conversation((request(),))
    await Proxy(answer("a"), policy=REVIEW).run(conversation, x_lastcall_stage="reviw")

    assert conversation.status == 400
    assert "'reviw'" in conversation.json["error"]["message"]
    assert "known here: review" in conversation.json["error"]["message"]


@pytest.mark.parametrize("on_stop", OnStop)
async def test_how_runs_end_does_not_matter_for_one_answer(on_stop: OnStop) -> None:
    """The run goes on."""
    proxy = Proxy(answer(f"A.\n{CALL}"), answer("B."), policy=Policy(on_stop=on_stop))
    assert (await proxy.ask(plain())).text == "B."


# ---- calls that were written as text

REPAIR = Policy(repair_calls=True)


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_written_as_text_is_given_as_the_call_it_means(streamed: bool, size: int) -> None:
    """With an id of its own, what it said before kept, and the client is told."""
    text = f"Let me see.\n\n{CALL}"
    proxy = Proxy(stream(*pieces(text, size)) if streamed else answer(text), policy=REPAIR)
    conversation = await proxy.ask(request(stream=streamed))

    assert conversation.text.strip() == "Let me see."
    if streamed:
        assert conversation.calls == ["ls"]
        finishes = [choice["finish_reason"] for one in conversation.events for choice in one["choices"]]
        assert finishes[-1] == "tool_calls"
    else:
        (call,) = conversation.json["choices"][0]["message"]["tool_calls"]
        assert (call["function"], call["id"][:5]) == ({"name": "ls", "arguments": "{}"}, "call_")
    assert (conversation.notice["action"], conversation.notice["reason"]) == ("nudge", "tool_markup")
    assert len(proxy.upstream.sent) == 1


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("text", [CALL.replace("ls", "rm"), "<tool_call>\n{", "```\n" + CALL + "\n```"])
async def test_what_means_no_call_passes_as_it_is(text: str, streamed: bool) -> None:
    """A tool that is not offered, half a call, an example."""
    upstream = stream(*pieces(text)) if streamed else answer(text)
    whole = await upstream.read()
    proxy = Proxy(upstream, policy=REPAIR)
    conversation = await proxy.ask(request(stream=streamed, stream_options={"include_usage": True} if streamed else None))

    assert conversation.body == whole


@pytest.mark.parametrize("streamed", [True, False])
async def test_repaired_calls_are_judged_like_any(streamed: bool) -> None:
    """The fifth is stopped."""
    text = CALL
    proxy = Proxy(stream(*pieces(text)) if streamed else answer(text), answer("That is all."), policy=REPAIR)
    conversation = await proxy.ask(request(looping(4), stream=streamed))

    assert conversation.text.endswith("That is all.")
    assert (conversation.notice["action"], conversation.notice["reason"]) == ("stop", "repeated_call")


async def test_without_the_policy_a_call_written_as_text_is_left_alone() -> None:
    """Tools are offered: the ladder speaks of it when it comes again."""
    upstream = answer(CALL)
    conversation = await Proxy(upstream).ask(request())

    assert conversation.body == await upstream.read()


# ---- every dialect

HEAD = Head("id-1", "m", 1_767_225_600)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000},
    "/v1/responses": {"input": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.parametrize("said", [f"Let me see.\n{CALL}", CALL])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("path", BODIES)
async def test_markup_is_mended_in_every_dialect(path: str, streamed: bool, said: str) -> None:
    """Whole or streamed, what reaches the client reads back as one well-formed answer without it."""
    dialect = DIALECTS[path.removeprefix("/v1")]
    usage = Usage(10, 3)

    def says(text: str) -> ScriptedResponse:
        if streamed:
            return stream(dialect.stream_tail(Begun(HEAD), text, (), usage, None))
        notice = Notice(action=Action.STOP, reason=Reason.CYCLE, message="")
        return ScriptedResponse(dialect.completion(HEAD, text, usage, notice, 1))

    proxy = Proxy(says(said), says("There is a.txt."))
    conversation = await proxy.ask(json.dumps({"model": "m", "stream": streamed} | BODIES[path]).encode(), path)
    reader = dialect.reader()
    for one in Splitter().feed(conversation.body) if streamed else ():
        reader.feed(one)
    given = reader.answer() if streamed else dialect.read_answer(conversation.body)

    assert given.complete
    assert given.choices[0].text == "There is a.txt."
    assert b"tool_call>" not in conversation.body
    assert b"tool_markup" in conversation.body
    assert len(proxy.upstream.sent) == 2
