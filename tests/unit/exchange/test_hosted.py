"""Answers that are nothing but what the provider ran itself: paused turns and the like, sent back to be gone on with."""

import json
from typing import Any

import pytest

from proxy.policy import OnStop, Policy
from tests.in_process import Proxy, ScriptedResponse

RAN = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}}
SHOWED = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {"type": "code_execution_result", "stdout": "1"}}
ASKED = {"type": "mcp_call", "id": "m1", "server_label": "wiki", "name": "find", "arguments": "{}", "output": "1"}
BLOCKS: dict[str, list[Any]] = {"messages": [RAN, SHOWED], "responses": [ASKED]}
TOOLS: dict[str, Any] = {
    "messages": {"name": "code_execution", "type": "code_execution_20250825"},
    "responses": {"type": "mcp", "server_label": "wiki"},
}
TASK, GO_ON, OTHER = ({"role": "user", "content": text} for text in ("Count.", "Continue", "And the other file?"))


def says(dialect: str, number: int) -> ScriptedResponse:
    if dialect == "messages":
        whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": BLOCKS[dialect], "stop_reason": "pause_turn"}
    else:
        whole = {"id": f"resp_{number}", "object": "response", "status": "incomplete", "output": BLOCKS[dialect]}
    return ScriptedResponse(json.dumps(whole).encode())


def body(dialect: str, history: list[Any]) -> bytes:
    listed = {"messages": "messages", "responses": "input"}[dialect]
    return json.dumps({"model": "m", "max_tokens": 9, "tools": [TOOLS[dialect]], listed: history, "store": False}).encode()


def answered(dialect: str, history: list[Any], *, merged: bool) -> list[Any]:
    """The history with the answer, in a message of its own or in the one that was paused."""
    if dialect == "responses":
        return [*history, *BLOCKS[dialect]]
    if merged and history[-1]["role"] == "assistant":
        return [*history[:-1], {"role": "assistant", "content": history[-1]["content"] + BLOCKS[dialect]}]
    return [*history, {"role": "assistant", "content": BLOCKS[dialect]}]


@pytest.mark.parametrize(
    ("dialect", "merged", "between"),
    [
        ("messages", True, []),
        ("messages", False, []),
        ("messages", False, [GO_ON]),
        ("responses", False, []),
        ("responses", False, [GO_ON]),
    ],
)
async def test_a_loop_of_the_providers_own_is_one_session_nudged_once_and_stopped(dialect: str, merged: bool, between: list[Any]) -> None:
    """Without a session id: such answers are known again."""
    proxy = Proxy(*(says(dialect, number) for number in range(5)), policy=Policy(on_stop=OnStop.MESSAGE))
    history: list[Any] = [TASK]
    turns = []
    for _ in range(6):
        turns.append(await proxy.ask(body(dialect, history), f"/v1/{dialect}"))
        history = [*answered(dialect, history, merged=merged), *between]

    assert [turn.lastcall["action"] for turn in turns] == ["allow", "allow", "allow", "nudge", "allow", "stop"]
    assert len({turn.lastcall["session"] for turn in turns}) == 1
    assert [sent.body.count(b"[lastcall]") for sent in proxy.upstream.sent] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("dialect", BLOCKS)
async def test_what_a_person_asks_after_it_is_another_run(dialect: str) -> None:
    """Such an answer waits for no result that the text could stand beside."""
    proxy = Proxy(*(says(dialect, number) for number in range(6)))
    history: list[Any] = [TASK]
    actions = []
    for number in range(6):
        turn = await proxy.ask(body(dialect, history), f"/v1/{dialect}")
        actions.append(turn.lastcall["action"])
        history = answered(dialect, history, merged=False) + ([OTHER] if number == 3 else [])

    assert actions == ["allow", "allow", "allow", "nudge", "allow", "allow"]


async def test_a_history_that_the_provider_compacted_goes_on() -> None:
    """As Codex asks for it: what a person said stays, all else is one encrypted item. The nudge is gone with it, and given once more."""

    def made(number: int) -> list[Any]:
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "ls", "arguments": "{}"}
        return [call, {"type": "function_call_output", "call_id": f"call_{number}", "output": "a.txt"}]

    answers = [{"id": f"resp_{at}", "object": "response", "status": "completed", "output": made(at)[:1]} for at in range(9)]
    proxy = Proxy(*(ScriptedResponse(json.dumps(whole).encode()) for whole in answers), policy=Policy(on_stop=OnStop.MESSAGE))
    history: list[Any] = [TASK]
    actions = []
    for number in range(6):
        turn = await proxy.ask(body("responses", history), "/v1/responses", session_id="s", user_agent="codex_cli_rs/0.171.0")
        actions.append(turn.lastcall["action"])
        history = [TASK, {"type": "compaction", "encrypted_content": "x"}] if number == 3 else [*history, *made(number)]

    assert actions == ["allow", "allow", "allow", "nudge", "nudge", "stop"]
