"""`openai-agents` in chat mode: its runner owns the loop."""

import openai
from agents import Agent as SdkAgent
from agents import ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

from tests.clients import KEY, MODEL, PROMPT, TURN_CAP, Agent, Endpoint, Workshop

ERROR = openai.BadRequestError
_QUIET = RunConfig(tracing_disabled=True)  # traces go to api.openai.com, wherever the model is


async def _run(endpoint: Endpoint, workshop: Workshop, *, stream: bool) -> str:
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY) as client:
        agent = SdkAgent(
            name="worker",
            model=OpenAIChatCompletionsModel(model=MODEL, openai_client=client),
            model_settings=ModelSettings(extra_headers=dict(endpoint.headers)),
            tools=[function_tool(tool) for tool in workshop.tools.values()],
        )
        if not stream:
            return str((await Runner.run(agent, PROMPT, max_turns=TURN_CAP, run_config=_QUIET)).final_output)
        streamed = Runner.run_streamed(agent, PROMPT, max_turns=TURN_CAP, run_config=_QUIET)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "run": lambda endpoint, workshop: _run(endpoint, workshop, stream=False),
    "run_streamed": lambda endpoint, workshop: _run(endpoint, workshop, stream=True),
}
