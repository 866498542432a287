"""`langchain-openai`: a chat model with bound tools, called until it asks for none; on chat completions or on the Responses API.

Chained, it goes on from the last response and sends what is new.
"""

from typing import Any

import openai
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.clients import KEY, MODEL, PROMPT, TURN_CAP, Agent, Endpoint, NotStopped, Workshop

ERROR = openai.BadRequestError
Model = Runnable[Any, AIMessage]
_used: list[ChatOpenAI] = []
_RESPONSES: dict[str, Any] = {"use_responses_api": True}


def _bound(endpoint: Endpoint, workshop: Workshop, **options: Any) -> tuple[Model, dict[str, BaseTool]]:
    tools: dict[str, BaseTool] = {name: StructuredTool.from_function(tool) for name, tool in workshop.tools.items()}
    model = ChatOpenAI(model=MODEL, base_url=endpoint.base_url, api_key=SecretStr(KEY), default_headers=endpoint.headers, **options)
    _used.append(model)
    return model.bind_tools(list(tools.values())), tools


def _run(endpoint: Endpoint, workshop: Workshop, *, stream: bool, **options: Any) -> str:
    model, tools = _bound(endpoint, workshop, **options)
    history: list[BaseMessage] = [HumanMessage(PROMPT)]
    for _ in range(TURN_CAP):
        answer = _sum(list(model.stream(history))) if stream else model.invoke(history)
        if not answer.tool_calls:
            return str(answer.text)
        results: list[ToolMessage] = [tools[call["name"]].invoke(call) for call in answer.tool_calls]
        history += [answer, *results]
    raise NotStopped


async def _arun(endpoint: Endpoint, workshop: Workshop, *, stream: bool) -> str:
    model, tools = _bound(endpoint, workshop)
    history: list[BaseMessage] = [HumanMessage(PROMPT)]
    for _ in range(TURN_CAP):
        answer = _sum([chunk async for chunk in model.astream(history)]) if stream else await model.ainvoke(history)
        if not answer.tool_calls:
            return str(answer.text)
        results: list[ToolMessage] = [await tools[call["name"]].ainvoke(call) for call in answer.tool_calls]
        history += [answer, *results]
    raise NotStopped


def _sum(chunks: list[Any]) -> AIMessageChunk:
    whole: AIMessageChunk = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


async def close() -> None:
    """Models share their connections, by URL, for the process."""
    for model in _used:
        model.root_client.close()
        await model.root_async_client.close()
    _used.clear()


AGENTS: dict[str, Agent] = {
    "invoke": lambda endpoint, workshop: _run(endpoint, workshop, stream=False),
    "stream": lambda endpoint, workshop: _run(endpoint, workshop, stream=True),
    "ainvoke": lambda endpoint, workshop: _arun(endpoint, workshop, stream=False),
    "astream": lambda endpoint, workshop: _arun(endpoint, workshop, stream=True),
    "invoke responses": lambda endpoint, workshop: _run(endpoint, workshop, stream=False, **_RESPONSES),
    "stream responses": lambda endpoint, workshop: _run(endpoint, workshop, stream=True, **_RESPONSES),
    "invoke chained": lambda endpoint, workshop: _run(endpoint, workshop, stream=False, use_previous_response_id=True, **_RESPONSES),
}
