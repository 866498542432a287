"""What Lastcall writes, read by the official SDKs in their strict mode: nudged requests, and stopped or pruned answers, in every dialect.

The SDKs talk to the proxy in this process, which gives them its streams byte by byte. `create` and the `stream` helpers parse differently.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
import pydantic
import pytest
from anthropic.types import message_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from proxy.errors import UpstreamCut
from proxy.policy import OnStop, Policy
from tests.in_process import Answer, Proxy, ScriptedResponse, stream
from tests.spoken import SPOKEN, Spoken
from tests.upstreams import DONE, READ_A, Says

STOP = "[lastcall stop]"
LOOKING = Says("Let me look.", READ_A.calls)


class Wire(httpx2.AsyncBaseTransport):
    """The way to a proxy in this process."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        conversation = await self._proxy.ask(await request.aread(), request.url.path)
        headers = [(name, value) for name, value in conversation.sent[0]["headers"] if name != b"content-length"]
        return httpx2.Response(conversation.status, headers=headers, stream=OneByOne(conversation.body))


class OneByOne(httpx2.AsyncByteStream):
    """A body, byte by byte."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(len(self._body)):
            yield self._body[at : at + 1]


@dataclass(frozen=True)
class Said:
    """An answer as an SDK reads it. calls: names of the tools that it calls. raw: all of it."""

    text: str
    calls: list[str]
    ends: str | None
    raw: Any


Ask = Callable[[Any, dict[str, Any]], Awaitable[Said]]


def _of_completion(completion: Any) -> Said:
    message = completion.choices[0].message
    calls = [call.function.name for call in message.tool_calls or ()]
    return Said(message.content or message.refusal or "", calls, completion.choices[0].finish_reason, completion)


async def _chat(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    return _of_completion(await client.chat.completions.create(**asked | {"stream": False}))


async def _chat_chunks(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    text, calls, ends, chunks = "", [], [], []
    async for chunk in await client.chat.completions.create(**asked):
        chunks.append(chunk)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += [call.function.name for call in choice.delta.tool_calls or () if call.function and call.function.name]
            ends += [choice.finish_reason] if choice.finish_reason else []
    (end,) = ends
    return Said(text, calls, end, chunks[-1])


async def _chat_held(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    async with client.chat.completions.stream(**{name: value for name, value in asked.items() if name != "stream"}) as events:
        async for _ in events:
            pass
        return _of_completion(await events.get_final_completion())


def _of_response(response: Any) -> Said:
    calls = [item.name for item in response.output if item.type == "function_call"]
    return Said(response.output_text, calls, response.status, response)


async def _responses(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    return _of_response(await client.responses.create(**asked | {"stream": False}))


async def _responses_events(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    """Put together from the events themselves, which must agree with the last one."""
    text, calls, numbers, last = "", [], [], None
    async for event in await client.responses.create(**asked):
        numbers.append(event.sequence_number)
        text += event.delta if event.type == "response.output_text.delta" else ""
        calls += [event.item.name] if event.type == "response.output_item.done" and event.item.type == "function_call" else []
        last = event.response if event.type in ("response.completed", "response.incomplete", "response.failed") else last
    said = _of_response(last)
    assert numbers == list(range(len(numbers)))
    assert (text, calls) == (said.text, said.calls)
    return said


async def _responses_held(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Said:
    async with client.responses.stream(**{name: value for name, value in asked.items() if name != "stream"}) as events:
        async for event in events:
            if event.type == "response.failed":
                return _of_response(event.response)
        return _of_response(await events.get_final_response())


def _of_message(message: Any) -> Said:
    text = "".join(block.text for block in message.content if block.type == "text")
    return Said(text, [block.name for block in message.content if block.type == "tool_use"], message.stop_reason, message)


async def _messages(client: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> Said:
    return _of_message(await client.messages.create(**asked | {"stream": False}))


async def _messages_events(client: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> Said:
    """Each block opened, filled and closed, under numbers without a gap."""
    text, calls, end, open_, closed = "", [], None, -1, []
    async for event in await client.messages.create(**asked):
        match event.type:
            case "content_block_start":
                open_ = event.index
                calls += [event.content_block.name] if event.content_block.type == "tool_use" else []
            case "content_block_delta":
                assert event.index == open_
                text += event.delta.text if event.delta.type == "text_delta" else ""
            case "content_block_stop":
                assert event.index == open_
                closed.append(event.index)
            case "message_delta":
                end = event.delta.stop_reason
    assert closed == list(range(len(closed)))
    return Said(text, calls, end, None)


async def _messages_held(client: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> Said:
    async with client.messages.stream(**{name: value for name, value in asked.items() if name != "stream"}) as events:
        async for _ in events:
            pass
        return _of_message(await events.get_final_message())


@dataclass(frozen=True)
class Sdk:
    """One way to ask. path: of the dialect. ends: how an answer of text ends, and one that calls. streams: whether it streams."""

    path: str
    ask: Ask
    ends: tuple[str, str]
    streams: bool

    @property
    def spoken(self) -> Spoken:
        return SPOKEN[self.path]

    def answer(self, says: Says) -> ScriptedResponse:
        """The upstream's, in the form that was asked for."""
        return stream(*self.spoken.streams(says)) if self.streams else ScriptedResponse(self.spoken.wholly(says))

    async def __call__(self, proxy: Proxy, times: int) -> Said:
        """Asks with a history of so many equal calls."""
        asked = json.loads(self.spoken.asks(times))
        async with httpx2.AsyncClient(transport=Wire(proxy)) as http:
            members: dict[str, Any] = {"api_key": "k", "http_client": http, "max_retries": 0, "_strict_response_validation": True}
            if self.path == "/messages":
                return await self.ask(anthropic.AsyncAnthropic(base_url="http://lastcall", **members), asked)
            return await self.ask(openai.AsyncOpenAI(base_url="http://lastcall/v1", **members), asked)


WAYS = {
    "chat whole": Sdk("/chat/completions", _chat, ("stop", "tool_calls"), False),
    "chat streamed": Sdk("/chat/completions", _chat_chunks, ("stop", "tool_calls"), True),
    "chat helper": Sdk("/chat/completions", _chat_held, ("stop", "tool_calls"), True),
    "responses whole": Sdk("/responses", _responses, ("completed", "completed"), False),
    "responses streamed": Sdk("/responses", _responses_events, ("completed", "completed"), True),
    "responses helper": Sdk("/responses", _responses_held, ("completed", "completed"), True),
    "messages whole": Sdk("/messages", _messages, ("end_turn", "tool_use"), False),
    "messages streamed": Sdk("/messages", _messages_events, ("end_turn", "tool_use"), True),
    "messages helper": Sdk("/messages", _messages_held, ("end_turn", "tool_use"), True),
}
REQUESTS: dict[str, Any] = {
    "/chat/completions": completion_create_params.CompletionCreateParamsNonStreaming,
    "/responses": response_create_params.ResponseCreateParamsNonStreaming,
    "/messages": message_create_params.MessageCreateParamsNonStreaming,
}
every_way = pytest.mark.parametrize("sdk", [pytest.param(sdk, id=name) for name, sdk in WAYS.items()])


@every_way
@pytest.mark.parametrize("says", [READ_A, LOOKING], ids=["call", "text and call"])
@pytest.mark.parametrize("on_stop", [OnStop.WRAP_UP, OnStop.MESSAGE])
async def test_a_stop_is_an_ordinary_answer(sdk: Sdk, on_stop: OnStop, says: Says) -> None:
    """Text that came before the call, the stop line, the conclusion; no call, and an end like any other."""
    answers: list[Answer] = [sdk.answer(says), *([sdk.answer(DONE)] if on_stop is OnStop.WRAP_UP else [])]
    said = await sdk(Proxy(*answers, policy=Policy(on_stop=on_stop)), 4)

    assert (said.calls, said.ends) == ([], sdk.ends[0])
    before, _, after = said.text.partition(STOP)
    assert before.strip() == (says.text or "")
    assert ("one line" in after) is (on_stop is OnStop.WRAP_UP)


@every_way
async def test_an_error_is_the_sdks_own_for_400(sdk: Sdk) -> None:
    """With what happened in its body, streamed or not."""
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="Stopped by Lastcall"):
        await sdk(Proxy(sdk.answer(READ_A), policy=Policy(on_stop=OnStop.ERROR)), 4)


@every_way
async def test_a_stop_on_arrival_is_an_ordinary_answer(sdk: Sdk) -> None:
    """Nothing of the upstream's stands before it: it has its own opening."""
    said = await sdk(Proxy(policy=Policy(on_stop=OnStop.MESSAGE)), 5)

    assert (said.text.startswith(STOP), said.calls, said.ends) == (True, [], sdk.ends[0])


@every_way
async def test_a_pruned_answer_is_an_ordinary_one(sdk: Sdk) -> None:
    """A message of twenty equal calls is cut to one; what is left of it can be carried out."""
    said = await sdk(Proxy(sdk.answer(Says("All of them.", READ_A.calls * 20))), 0)

    assert said.text.strip() == "All of them."
    assert 1 <= len(said.calls) < 20
    assert said.ends == sdk.ends[1]


@every_way
async def test_an_answer_that_breaks_off_is_an_error(sdk: Sdk) -> None:
    """Never taken for a whole one."""
    cut = UpstreamCut("the connection broke")
    said = sdk.spoken.streams(DONE)
    answer = stream(*said[: len(said) // 2], cut) if sdk.streams else ScriptedResponse(b"{", cut)
    try:
        given = await sdk(Proxy(answer), 0)
    except (openai.APIError, anthropic.APIError) as error:
        assert "the connection broke" in str(error)
    else:
        assert given.ends == "failed"


@pytest.mark.parametrize("path", SPOKEN)
@pytest.mark.parametrize("times", [3, 5], ids=["nudged", "asked to conclude"])
async def test_an_edited_request_is_one_that_the_sdk_may_send(path: str, times: int) -> None:
    """By its own types. What was added is said once."""
    spoken = SPOKEN[path]
    proxy = Proxy(ScriptedResponse(spoken.wholly(DONE)))
    await proxy.ask(spoken.asks(times, stream=False), f"/v1{path}")
    sent = proxy.upstream.sent[0].json

    pydantic.TypeAdapter(REQUESTS[path]).validate_python(sent)
    assert json.dumps(sent).count("[lastcall") == 1
