"""The `anthropic` SDK and the tool loop that everybody writes around it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic

from tests.clients import KEY, MODEL, PROMPT, TOOLS, TURN_CAP, Agent, Endpoint, NotStopped, Workshop

ERROR = anthropic.BadRequestError
OWN_TOOLS = [
    {"name": tool["function"]["name"], "description": tool["function"]["description"], "input_schema": tool["function"]["parameters"]}
    for tool in TOOLS
]
Ask = Callable[[Any, list[Any]], Any]
AskAsync = Callable[[Any, list[Any]], Awaitable[Any]]


def _options(endpoint: Endpoint) -> dict[str, Any]:
    return {"base_url": endpoint.base_url.removesuffix("/v1"), "api_key": KEY, "default_headers": dict(endpoint.headers)}


def _asked(history: list[Any]) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 1000, "system": "You are careful.", "messages": history, "tools": OWN_TOOLS}


def _agent(ask: Ask) -> Agent:
    def run(endpoint: Endpoint, workshop: Workshop) -> str:
        history: list[Any] = [{"role": "user", "content": PROMPT}]
        with anthropic.Anthropic(**_options(endpoint)) as client:
            for _ in range(TURN_CAP):
                if not _take(ask(client, history), history, workshop):
                    return _text(history)
        raise NotStopped

    return run


def _async_agent(ask: AskAsync) -> Agent:
    async def run(endpoint: Endpoint, workshop: Workshop) -> str:
        history: list[Any] = [{"role": "user", "content": PROMPT}]
        async with anthropic.AsyncAnthropic(**_options(endpoint)) as client:
            for _ in range(TURN_CAP):
                if not _take(await ask(client, history), history, workshop):
                    return _text(history)
        raise NotStopped

    return run


def _take(message: Any, history: list[Any], workshop: Workshop) -> bool:
    """Adds an answer and what its calls return; whether there were any."""
    history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": workshop.tools[block.name](**block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    if results:
        history.append({"role": "user", "content": results})
    return bool(results)


def _text(history: list[Any]) -> str:
    return "\n".join(block["text"] for block in history[-1]["content"])


def _create(client: Any, history: list[Any]) -> Any:
    return client.messages.create(**_asked(history))


def _stream(client: Any, history: list[Any]) -> Any:
    with client.messages.stream(**_asked(history)) as events:
        return events.get_final_message()


def _raw_stream(client: Any, history: list[Any]) -> Any:
    """The events as they come, put together by the SDK's own types."""
    with client.messages.create(**_asked(history), stream=True) as events:
        return _joined(list(events))


async def _acreate(client: Any, history: list[Any]) -> Any:
    return await client.messages.create(**_asked(history))


async def _astream(client: Any, history: list[Any]) -> Any:
    async with client.messages.stream(**_asked(history)) as events:
        return await events.get_final_message()


async def _araw_stream(client: Any, history: list[Any]) -> Any:
    async with await client.messages.create(**_asked(history), stream=True) as events:
        return _joined([event async for event in events])


def _joined(events: list[Any]) -> Any:
    """The message that its events make, as somebody writes it who does not use the helper."""
    message: Any = None
    pieces: dict[int, str] = {}
    for event in events:
        match event.type:
            case "message_start":
                message = event.message
            case "content_block_start":
                message.content.append(event.content_block)
            case "content_block_delta":
                piece = event.delta.text if event.delta.type == "text_delta" else event.delta.partial_json
                pieces[event.index] = pieces.get(event.index, "") + piece
    for index, piece in pieces.items():
        block = message.content[index]
        if block.type == "text":
            block.text = piece
        else:
            block.input = json.loads(piece)
    return message


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "sync": _agent(_create),
    "sync stream=True": _agent(_raw_stream),
    "sync .stream()": _agent(_stream),
    "async": _async_agent(_acreate),
    "async stream=True": _async_agent(_araw_stream),
    "async .stream()": _async_agent(_astream),
}
