"""`openai-agents` as it comes, on the Responses API: its runner owns the loop. Chained, it leaves the history with the server."""

import openai
from agents import Agent as SdkAgent
from agents import ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool

from tests.clients import KEY, MODEL, PROMPT, TURN_CAP, Agent, Endpoint, Workshop

ERROR = openai.BadRequestError
_QUIET = RunConfig(tracing_disabled=True)  # traces go to api.openai.com, wherever the model is


async def _run(endpoint: Endpoint, workshop: Workshop, *, stream: bool = False, chained: bool = False) -> str:
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY) as client:
        agent = SdkAgent(
            name="worker",
            model=OpenAIResponsesModel(model=MODEL, openai_client=client),
            model_settings=ModelSettings(extra_headers=dict(endpoint.headers)),
            tools=[function_tool(tool) for tool in workshop.tools.values()],
        )
        if not stream:
            done = await Runner.run(agent, PROMPT, max_turns=TURN_CAP, run_config=_QUIET, auto_previous_response_id=chained)
            return str(done.final_output)
        streamed = Runner.run_streamed(agent, PROMPT, max_turns=TURN_CAP, run_config=_QUIET, auto_previous_response_id=chained)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)


async def close() -> None:
    """Each agent has closed its own client."""


AGENTS: dict[str, Agent] = {
    "run": _run,
    "run_streamed": lambda endpoint, workshop: _run(endpoint, workshop, stream=True),
    "run chained": lambda endpoint, workshop: _run(endpoint, workshop, chained=True),
    "run_streamed chained": lambda endpoint, workshop: _run(endpoint, workshop, stream=True, chained=True),
}
