"""The `openai` SDK's Responses API and the tool loop that everybody writes around it.

`chained` agents leave their history with the server and go on from the last response; the others send all of it.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from openai.types.responses import Response

from tests.clients import KEY, MODEL, PROMPT, TOOLS, TURN_CAP, Agent, Endpoint, NotStopped, Workshop

ERROR = openai.BadRequestError
OWN_TOOLS: list[Any] = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
Ask = Callable[[openai.OpenAI, dict[str, Any]], Response]
AskAsync = Callable[[openai.AsyncOpenAI, dict[str, Any]], Awaitable[Response]]


class _Talk:
    """What an agent sends next, and what it was told."""

    def __init__(self, *, chained: bool) -> None:
        self._chained = chained
        self._items: list[Any] = [{"role": "user", "content": PROMPT}]
        self._previous: str | None = None

    @property
    def asked(self) -> dict[str, Any]:
        where: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
        if self._chained:
            where = {} if self._previous is None else {"previous_response_id": self._previous}
        return {"model": MODEL, "instructions": "You are careful.", "tools": OWN_TOOLS, "input": self._items, **where}

    def take(self, response: Response, workshop: Workshop) -> bool:
        """Adds an answer and what its calls return; whether there were any."""
        calls = [item for item in response.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": workshop.tools[call.name](**json.loads(call.arguments))}
            for call in calls
        ]
        said = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        self._items = results if self._chained else [*self._items, *said, *results]
        self._previous = response.id
        return bool(calls)


def _agent(ask: Ask, *, chained: bool = False) -> Agent:
    def run(endpoint: Endpoint, workshop: Workshop) -> str:
        talk = _Talk(chained=chained)
        with openai.OpenAI(base_url=endpoint.base_url, api_key=KEY, default_headers=endpoint.headers) as client:
            for _ in range(TURN_CAP):
                response = ask(client, talk.asked)
                if not talk.take(response, workshop):
                    return response.output_text
        raise NotStopped

    return run


def _async_agent(ask: AskAsync, *, chained: bool = False) -> Agent:
    async def run(endpoint: Endpoint, workshop: Workshop) -> str:
        talk = _Talk(chained=chained)
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY, default_headers=endpoint.headers) as client:
            for _ in range(TURN_CAP):
                response = await ask(client, talk.asked)
                if not talk.take(response, workshop):
                    return response.output_text
        raise NotStopped

    return run


def _create(client: openai.OpenAI, asked: dict[str, Any]) -> Response:
    response: Response = client.responses.create(**asked)
    return response


def _stream(client: openai.OpenAI, asked: dict[str, Any]) -> Response:
    with client.responses.create(**asked, stream=True) as events:
        return _joined(list(events))


def _accumulate(client: openai.OpenAI, asked: dict[str, Any]) -> Response:
    with client.responses.stream(**asked) as events:
        return events.get_final_response()


async def _acreate(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Response:
    response: Response = await client.responses.create(**asked)
    return response


async def _astream(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Response:
    async with await client.responses.create(**asked, stream=True) as events:
        return _joined([event async for event in events])


async def _aaccumulate(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> Response:
    async with client.responses.stream(**asked) as events:
        return await events.get_final_response()


def _joined(events: list[Any]) -> Response:
    """The response as somebody builds it who looks at each item when it is done."""
    response: Response = events[0].response
    response.output = [event.item for event in events if event.type == "response.output_item.done"]
    assert events[-1].type == "response.completed"
    return response


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "sync": _agent(_create),
    "sync stream=True": _agent(_stream),
    "sync .stream()": _agent(_accumulate),
    "async": _async_agent(_acreate),
    "async stream=True": _async_agent(_astream),
    "async .stream()": _async_agent(_aaccumulate),
    "sync chained": _agent(_create, chained=True),
    "async chained .stream()": _async_agent(_aaccumulate, chained=True),
}
