"""Answers that say nothing and hold their tool call in the reasoning: asked for again, or given as the call they mean."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.sse import Splitter
from proxy.models import Action, Answer, Reason
from proxy.policy import Mode, Policy, WrapUpRule
from tests import messages, responses
from tests.in_process import DONE, OPENING, USAGE_EVENT, Proxy, ScriptedResponse, answer, delta, event, stream
from tests.upstreams import Asked

CALL = '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
GLM = "I look.\n<tool_call>ls\n<arg_key>path</arg_key>\n<arg_value>.</arg_value>\n</tool_call>"
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
)
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def of_chat(body: dict[str, Any], thought: str, text: str) -> ScriptedResponse:
    if not body["stream"]:
        message = {"role": "assistant", "content": text, "reasoning_content": thought}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return ScriptedResponse(json.dumps({"id": "c", "model": "m", "created": 1, "choices": [choice]}).encode())
    thoughts = [delta({"reasoning_content": thought[at : at + 7]}) for at in range(0, len(thought), 7)]
    return stream(OPENING, *thoughts, *([delta({"content": text})] if text else []), delta({}, "stop"), USAGE_EVENT, DONE)


def of_messages(body: dict[str, Any], thought: str, text: str) -> ScriptedResponse:
    content = [{"type": "thinking", "thinking": thought, "signature": "s"}, *([{"type": "text", "text": text}] if text else [])]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "end_turn"}
    whole = message | {"stop_sequence": None, "usage": messages.USAGE}
    return stream(*messages.events(whole)) if body["stream"] else ScriptedResponse(json.dumps(whole).encode())


def of_responses(body: dict[str, Any], thought: str, text: str) -> ScriptedResponse:
    items: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": thought}]}]
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    whole = responses.response_of(items, Asked("POST", "/", [], json.dumps(body).encode()))
    return stream(*responses.events(whole)) if body["stream"] else ScriptedResponse(json.dumps(whole).encode())


class Spoken:
    """One dialect: how a request looks, and an answer that thinks and says something."""

    def __init__(self, says: Callable[[dict[str, Any], str, str], ScriptedResponse], body: dict[str, Any], tool: dict[str, Any]) -> None:
        self.says, self.body, self.tool = says, body, tool


SPOKEN = {
    "/chat/completions": Spoken(
        of_chat, {"messages": [USER]}, {"type": "function", "function": {"name": "ls", "description": "", "parameters": SCHEMA}}
    ),
    "/messages": Spoken(of_messages, {"messages": [USER], "max_tokens": 1000}, {"name": "ls", "input_schema": SCHEMA}),
    "/responses": Spoken(of_responses, {"input": [USER], "store": False}, {"type": "function", "name": "ls", "parameters": SCHEMA}),
}


class Case:
    """A client of one dialect that is given an answer."""

    def __init__(self, path: str, *, streamed: bool, tools: bool = False) -> None:
        self._path, self._spoken, self._streamed = path, SPOKEN[path], streamed
        self.body = {"model": "m", "stream": streamed} | self._spoken.body | ({"tools": [self._spoken.tool]} if tools else {})

    def says(self, thought: str = "", text: str = "") -> ScriptedResponse:
        return self._spoken.says(self.body, thought, text)

    async def ask(self, proxy: Proxy) -> tuple[bytes, Answer]:
        """The bytes that the client got, and what it reads in them."""
        conversation = await proxy.ask(json.dumps(self.body).encode(), f"/v1{self._path}")
        dialect = DIALECTS[self._path]
        if not self._streamed:
            return conversation.body, dialect.read_answer(conversation.body)
        reader = dialect.reader()
        for one in Splitter().feed(conversation.body):
            reader.feed(one)
        return conversation.body, reader.answer()


every = pytest.mark.parametrize("path", SPOKEN)
either_way = pytest.mark.parametrize("streamed", [True, False])


@every
@either_way
@pytest.mark.parametrize("thought", [CALL, GLM, KIMI])
async def test_a_call_that_stands_only_in_the_reasoning_is_asked_for_again(path: str, streamed: bool, thought: str) -> None:
    """Where no tool can be called. The client would see an empty answer, and its run would end without a word."""
    case = Case(path, streamed=streamed)
    proxy = Proxy(case.says(thought), case.says(text="There is a.txt."))
    _, given = await case.ask(proxy)

    assert given.complete
    assert given.choices[0].text.strip() == "There is a.txt."
    assert len(proxy.upstream.sent) == 2
    assert b"held a tool call written as text" in proxy.upstream.sent[1].body
    assert (proxy.ended.action, proxy.ended.reason) == (Action.NUDGE, Reason.TOOL_MARKUP)


@every
@either_way
async def test_if_it_stays_there_the_answer_says_so(path: str, streamed: bool) -> None:
    """There is nothing else to give."""
    case = Case(path, streamed=streamed)
    proxy = Proxy(case.says(CALL), case.says(CALL), policy=Policy(wrap_up=WrapUpRule(retries=1)))
    _, given = await case.ask(proxy)

    assert given.choices[0].text.strip() == "[lastcall stop] Lastcall cut this answer: the model wrote a tool call as text."
    assert (proxy.ended.action, proxy.ended.reason) == (Action.STOP, Reason.TOOL_MARKUP)


@every
@either_way
@pytest.mark.parametrize(
    ("thought", "text"),
    [(CALL, "Here it is."), ("I think so.", ""), ("", ""), (f"```\n{CALL}\n```", ""), ("All thought.</think>", "")],
)
async def test_other_reasoning_passes_as_it_is(path: str, streamed: bool, thought: str, text: str) -> None:
    """What stands beside an answer, what is no call, what is only shown: to the byte."""
    case = Case(path, streamed=streamed)
    upstream = case.says(thought, text)
    proxy = Proxy(upstream)
    body, _ = await case.ask(proxy)

    assert body == await upstream.read() or (
        streamed and path == "/chat/completions" and body == (await upstream.read()).replace(USAGE_EVENT, b"")
    )
    assert proxy.ended.action is Action.ALLOW


@every
@either_way
async def test_where_tools_can_be_called_it_is_given_as_the_call_it_means(path: str, streamed: bool) -> None:
    """With `repair_calls`; without, the answer stays what it is: empty."""
    case = Case(path, streamed=streamed, tools=True)
    repaired = Proxy(case.says(GLM), policy=Policy(repair_calls=True))
    _, given = await case.ask(repaired)

    assert [(call.name, json.loads(call.arguments)) for call in given.choices[0].calls] == [("ls", {"path": "."})]
    assert given.choices[0].text == ""
    assert repaired.ended.reason is Reason.TOOL_MARKUP

    upstream = case.says(GLM)
    left = Proxy(upstream)
    _, given = await case.ask(left)
    assert (given.choices[0].calls, given.choices[0].text, left.ended.action) == ((), "", Action.ALLOW)


def chat_that(body: dict[str, Any], finish: str = "stop", **holds: Any) -> ScriptedResponse:
    """A chat answer that has its call in its reasoning, ends in this way and holds this besides."""
    if not body["stream"]:
        message = {"role": "assistant", "content": None, "reasoning": CALL} | holds
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return ScriptedResponse(json.dumps({"id": "c", "model": "m", "created": 1, "choices": [choice]}).encode())
    return stream(OPENING, delta({"reasoning": CALL}), *([delta(holds)] if holds else []), delta({}, finish), DONE)


def message_that(body: dict[str, Any], *blocks: dict[str, Any], stop: str = "end_turn") -> ScriptedResponse:
    """The same of the messages dialect."""
    content = [{"type": "thinking", "thinking": CALL, "signature": "s"}, *blocks]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop}
    whole = message | {"stop_sequence": None, "usage": messages.USAGE}
    return stream(*messages.events(whole)) if body["stream"] else ScriptedResponse(json.dumps(whole).encode())


def response_that(body: dict[str, Any], item: dict[str, Any]) -> ScriptedResponse:
    """The same of Responses."""
    items = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": CALL}]}, item]
    whole = responses.response_of(items, Asked("POST", "/", [], json.dumps(body).encode()))
    return stream(*responses.events(whole)) if body["stream"] else ScriptedResponse(json.dumps(whole).encode())


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
OTHERS: dict[str, tuple[str, Callable[[dict[str, Any]], ScriptedResponse]]] = {
    "cut at the limit": ("/chat/completions", lambda body: chat_that(body, "length")),
    "withheld": ("/chat/completions", lambda body: chat_that(body, "content_filter")),
    "sound": ("/chat/completions", lambda body: chat_that(body, audio={"id": "a", "data": "AAAA", "transcript": "There."})),
    "pictures": ("/chat/completions", lambda body: chat_that(body, images=[PICTURE])),
    "a picture as a part": ("/chat/completions", lambda body: chat_that(body, content=[PICTURE])),
    "refused": ("/messages", lambda body: message_that(body, stop="refusal")),
    "paused": ("/messages", lambda body: message_that(body, SEARCH, stop="pause_turn")),
    "a provider's tool": ("/messages", lambda body: message_that(body, SEARCH)),
    "a drawn picture": ("/responses", lambda body: response_that(body, {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"})),
    "a question": (
        "/responses",
        lambda body: response_that(body, {"type": "mcp_approval_request", "id": "a", "name": "x", "arguments": "{}", "server_label": "s"}),
    ),
}


@either_way
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("repairs", [False, True])
async def test_an_answer_that_holds_something_else_or_was_ended_passes_as_it_is(other: str, streamed: bool, repairs: bool) -> None:
    """To the byte, whatever it thought: it is not empty, or another is to say why it is."""
    path, says = OTHERS[other]
    case = Case(path, streamed=streamed, tools=repairs)
    upstream = says(case.body)
    proxy = Proxy(upstream, policy=Policy(repair_calls=repairs))
    body, _ = await case.ask(proxy)

    assert body == await upstream.read()
    assert proxy.ended.action is Action.ALLOW


@either_way
async def test_observing_says_what_would_have_been_done(streamed: bool) -> None:
    """And changes nothing."""
    case = Case("/chat/completions", streamed=streamed)
    proxy = Proxy(case.says(CALL), policy=Policy(mode=Mode.OBSERVE))
    _, given = await case.ask(proxy)

    assert given.choices[0].text == ""
    assert (proxy.ended.action, proxy.ended.reason, proxy.ended.mode) == (Action.NUDGE, Reason.TOOL_MARKUP, "observe")


async def test_reasoning_under_its_other_name() -> None:
    """OpenRouter and newer servers call it `reasoning`."""
    events = [OPENING, event({"id": "c", "choices": [{"index": 0, "delta": {"reasoning": CALL}}]}), delta({}, "stop"), DONE]
    case = Case("/chat/completions", streamed=True)
    _, given = await case.ask(Proxy(stream(*events), answer("There is a.txt.")))

    assert given.choices[0].text.strip() == "There is a.txt."
