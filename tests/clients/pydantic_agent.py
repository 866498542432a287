"""`pydantic-ai` with its chat completions model or its Responses model: its graph owns the loop."""

from collections.abc import Awaitable, Callable

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.clients import KEY, MODEL, PROMPT, TURN_CAP, Agent, Endpoint, Workshop

ERROR = ModelHTTPError
_LIMITS = UsageLimits(request_limit=TURN_CAP)
Run = Callable[[PydanticAgent[None, str]], Awaitable[str]]


def _agent(run: Run, kind: type[OpenAIChatModel] | type[OpenAIResponsesModel] = OpenAIChatModel) -> Agent:
    async def work(endpoint: Endpoint, workshop: Workshop) -> str:
        model = kind(MODEL, provider=OpenAIProvider(base_url=endpoint.base_url, api_key=KEY))
        settings = ModelSettings(extra_headers=dict(endpoint.headers))
        async with PydanticAgent(model, model_settings=settings, tools=list(workshop.tools.values())) as agent:
            return await run(agent)

    return work


async def _run(agent: PydanticAgent[None, str]) -> str:
    return (await agent.run(PROMPT, usage_limits=_LIMITS)).output


async def _run_stream(agent: PydanticAgent[None, str]) -> str:
    async with agent.run_stream(PROMPT, usage_limits=_LIMITS) as result:
        return await result.get_output()


async def _iter(agent: PydanticAgent[None, str]) -> str:
    async with agent.iter(PROMPT, usage_limits=_LIMITS) as run:
        async for node in run:
            if PydanticAgent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for _ in events:
                        pass
        assert run.result is not None
        return run.result.output


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "run": _agent(_run),
    "run_stream": _agent(_run_stream),
    "iter": _agent(_iter),
    "run responses": _agent(_run, OpenAIResponsesModel),
    "iter responses": _agent(_iter, OpenAIResponsesModel),
}
