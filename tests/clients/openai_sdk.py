"""The `openai` SDK and the tool loop that everybody writes around it."""

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk

from tests.clients import KEY, MODEL, PROMPT, TOOLS, TURN_CAP, Agent, Endpoint, NotStopped, Workshop

ERROR = openai.BadRequestError
Ask = Callable[[openai.OpenAI, list[Any]], dict[str, Any]]
AskAsync = Callable[[openai.AsyncOpenAI, list[Any]], Awaitable[dict[str, Any]]]


def _agent(ask: Ask) -> Agent:
    def run(endpoint: Endpoint, workshop: Workshop) -> str:
        history: list[Any] = [{"role": "user", "content": PROMPT}]
        with openai.OpenAI(base_url=endpoint.base_url, api_key=KEY, default_headers=endpoint.headers) as client:
            for _ in range(TURN_CAP):
                message = ask(client, history)
                if not message.get("tool_calls"):
                    return str(message["content"])
                history += [message, *_results(message, workshop)]
        raise NotStopped

    return run


def _async_agent(ask: AskAsync) -> Agent:
    async def run(endpoint: Endpoint, workshop: Workshop) -> str:
        history: list[Any] = [{"role": "user", "content": PROMPT}]
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY, default_headers=endpoint.headers) as client:
            for _ in range(TURN_CAP):
                message = await ask(client, history)
                if not message.get("tool_calls"):
                    return str(message["content"])
                history += [message, *_results(message, workshop)]
        raise NotStopped

    return run


def _results(message: dict[str, Any], workshop: Workshop) -> Iterable[dict[str, Any]]:
    for call in message["tool_calls"]:
        tool = workshop.tools[call["function"]["name"]]
        yield {"role": "tool", "tool_call_id": call["id"], "content": tool(**json.loads(call["function"]["arguments"]))}


def _create(client: openai.OpenAI, history: list[Any]) -> dict[str, Any]:
    completion = client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS)
    return completion.choices[0].message.model_dump(exclude_none=True)


def _stream(client: openai.OpenAI, history: list[Any]) -> dict[str, Any]:
    with client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS, stream=True) as chunks:
        return _joined(list(chunks))


def _accumulate(client: openai.OpenAI, history: list[Any]) -> dict[str, Any]:
    with client.chat.completions.stream(model=MODEL, messages=history, tools=TOOLS) as events:
        return events.get_final_completion().choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})


async def _acreate(client: openai.AsyncOpenAI, history: list[Any]) -> dict[str, Any]:
    completion = await client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS)
    return completion.choices[0].message.model_dump(exclude_none=True)


async def _astream(client: openai.AsyncOpenAI, history: list[Any]) -> dict[str, Any]:
    async with await client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS, stream=True) as chunks:
        return _joined([chunk async for chunk in chunks])


async def _aaccumulate(client: openai.AsyncOpenAI, history: list[Any]) -> dict[str, Any]:
    async with client.chat.completions.stream(model=MODEL, messages=history, tools=TOOLS) as events:
        return (await events.get_final_completion()).choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})


def _joined(chunks: list[ChatCompletionChunk]) -> dict[str, Any]:
    """The message that its fragments make."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    for delta in (choice.delta for chunk in chunks for choice in chunk.choices):
        message["content"] += delta.content or ""
        for piece in delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] += piece.id or ""
            if piece.function is not None:
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""
    return message | ({"tool_calls": list(calls.values())} if calls else {})


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "sync": _agent(_create),
    "sync stream=True": _agent(_stream),
    "sync .stream()": _agent(_accumulate),
    "async": _async_agent(_acreate),
    "async stream=True": _async_agent(_astream),
    "async .stream()": _async_agent(_aaccumulate),
}
