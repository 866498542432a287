"""`litellm` as a library, its OpenAI-compatible route, and a tool loop around it.

The caller has set `LITELLM_LOCAL_MODEL_COST_MAP` before this is imported: the import fetches a price list over the network otherwise.
"""

import json
from collections.abc import Iterable
from typing import Any

import litellm
import openai
from litellm.exceptions import BadRequestError

from tests.clients import KEY, MODEL, PROMPT, TOOLS, TURN_CAP, Agent, Endpoint, NotStopped, Workshop

ERROR = BadRequestError
litellm.telemetry = False
litellm.suppress_debug_info = True


def _options(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "model": f"openai/{MODEL}",
        "base_url": endpoint.base_url,
        "api_key": KEY,
        "extra_headers": dict(endpoint.headers),
        "tools": TOOLS,
    }


def _run(endpoint: Endpoint, workshop: Workshop, *, stream: bool) -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    for _ in range(TURN_CAP):
        answer: Any = litellm.completion(messages=history, stream=stream, **_options(endpoint))
        if stream:
            answer = litellm.stream_chunk_builder(list(answer))
        message = answer.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        history += [message, *_results(message, workshop)]
    raise NotStopped


async def _arun(endpoint: Endpoint, workshop: Workshop, *, stream: bool) -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    for _ in range(TURN_CAP):
        answer: Any = await litellm.acompletion(messages=history, stream=stream, **_options(endpoint))
        if stream:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer])
        message = answer.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        history += [message, *_results(message, workshop)]
    raise NotStopped


def _results(message: Any, workshop: Workshop) -> Iterable[dict[str, Any]]:
    for call in message.tool_calls:
        tool = workshop.tools[call.function.name]
        yield {"role": "tool", "tool_call_id": call.id, "content": tool(**json.loads(call.function.arguments))}


async def close() -> None:
    """litellm keeps its clients for the process, in a cache that can be emptied but not closed."""
    kept: Any = litellm.in_memory_llm_clients_cache
    for client in kept.cache_dict.values():
        if isinstance(client, openai.OpenAI):
            client.close()
        elif isinstance(client, openai.AsyncOpenAI):
            await client.close()


AGENTS: dict[str, Agent] = {
    "completion": lambda endpoint, workshop: _run(endpoint, workshop, stream=False),
    "completion stream=True": lambda endpoint, workshop: _run(endpoint, workshop, stream=True),
    "acompletion": lambda endpoint, workshop: _arun(endpoint, workshop, stream=False),
    "acompletion stream=True": lambda endpoint, workshop: _arun(endpoint, workshop, stream=True),
}
