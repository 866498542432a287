"""Sessions of clients that name none, found again in transcripts as coding agents write them in the messages dialect.

From one request to the next the client moves `cache_control`, turns plain text into blocks and back, sends another clock and checksum
in its system text, and adds reminders to tool results; at some point it compacts.
"""

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.identity import Identity, Tighten
from proxy.models import Answer, Choice, ToolCall
from proxy.policy import Policy
from proxy.sessions import Session
from tests.sessions import World

MESSAGES = DIALECTS["/messages"]
MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("Bash", "Read")]
SUMMARY = "The exporter reads three files below the folder etc and the second one is malformed in its header line"


class Coder:
    """A coding agent without a session id. history: as it keeps it, plain; each request dresses it up anew."""

    def __init__(self, world: World, task: str, *, clock_in_task: bool = False) -> None:
        self.world = world
        self.task = task
        self.clock_in_task = clock_in_task
        self.history: list[dict[str, Any]] = []
        self.asked = 0

    def body(self) -> bytes:
        self.asked += 1
        clock = f"2026-01-01T10:{self.asked:02}:07Z"
        opening: Any = [{"type": "text", "text": f"<system-reminder>It is {clock if self.clock_in_task else 'Monday'}.</system-reminder>"}]
        opening.append({"type": "text", "text": self.task})
        messages = json.loads(json.dumps([{"role": "user", "content": opening}, *self.history]))
        last = messages[-1]
        if isinstance(last["content"], str):
            last["content"] = [{"type": "text", "text": last["content"]}]
        last["content"][-1] |= MARK
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={self.asked:05x};"},
            {"type": "text", "text": f"You are careful.\nNow: {clock}", **MARK},
        ]
        return json.dumps({"model": "m", "max_tokens": 9, "system": system, "messages": messages, "tools": TOOLS}).encode()

    async def ask(self) -> Session:
        identity = Identity("key", None, "derived", None, False, Tighten())
        return await self.world.sessions.open(identity, MESSAGES.parse(self.body()), Policy())

    async def turn(self, number: int, *, command: str = "git status", result: str = "clean") -> Session:
        """Asks, is told to call a tool, and keeps what came of it, a reminder beside it."""
        session = await self.ask()
        block = {"type": "tool_use", "id": f"toolu_{number:02}XyZ8aBc", "name": "Bash", "input": {"command": command}}
        await self.world.commit(session, answer([{"type": "thinking", "thinking": "t", "signature": "s"}, block]).choices[0])
        self.history.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, block]})
        results: list[Any] = [{"type": "tool_result", "tool_use_id": block["id"], "content": result}]
        results.append({"type": "text", "text": f"<system-reminder>Todo list number {number}.</system-reminder>"})
        self.history.append({"role": "user", "content": results})
        return session

    async def say(self, text: str) -> Session:
        """Asks, and is answered with text."""
        session = await self.ask()
        await self.world.commit(session, answer([{"type": "text", "text": text}]).choices[0])
        self.history.append({"role": "assistant", "content": text})
        return session


def answer(content: list[Any]) -> Answer:
    return MESSAGES.read_answer(json.dumps({"id": "msg_1", "type": "message", "content": content, "stop_reason": "x"}).encode())


@pytest.mark.parametrize("clock_in_task", [False, True])
async def test_a_run_is_one_session_and_one_lane(clock_in_task: bool) -> None:
    """Its repeats are counted, whatever moves around them."""
    coder = Coder(World(), "Fix it.", clock_in_task=clock_in_task)
    seen = [await coder.turn(number) for number in range(5)]

    assert len({session.key for session in seen}) == 1
    assert [len(session.place.trail.steps) for session in seen] == [0, 1, 2, 3, 4]
    assert len({entry.call for step in seen[-1].place.trail.steps for entry in step.calls}) == 1
    assert len({entry.result for step in seen[-1].place.trail.steps for entry in step.calls}) == 1
    assert len(seen[-1].record.lanes) == 1 + clock_in_task  # another opening, before any answer tells that it is the same


async def test_reminders_beside_results_begin_no_run_and_a_persons_words_do() -> None:
    """The first come with results, the others after an answer."""
    coder = Coder(World(), "Fix it.")
    for number in range(3):
        await coder.turn(number)
    await coder.say("Done.")
    coder.history.append({"role": "user", "content": "And the docs?"})
    session = await coder.turn(3)
    last = await coder.ask()

    assert session.place.run == last.place.run == 4
    assert [len(step.calls) for step in last.place.trail.steps] == [1]


async def test_two_runs_of_one_prompt_are_two_sessions() -> None:
    """A benchmark's."""
    world = World()
    first, second = Coder(world, "Fix it."), Coder(world, "Fix it.")
    keys = [(await coder.turn(10 * number + place)).key for number in range(3) for place, coder in enumerate((first, second))]

    assert len(set(keys)) == 2
    assert keys[0] == keys[2] == keys[4]


async def test_a_compacted_history_goes_on_with_its_run() -> None:
    """Found by what its summary quotes, though nothing else is left and the clock went on."""
    coder = Coder(World(), "Fix it.")
    for number in range(3):
        session = await coder.turn(number)
    coder.history.append({"role": "user", "content": "Summarize the conversation so far."})
    await coder.say(SUMMARY + ".")
    coder.history, coder.task = [], f"This session is being continued from a previous conversation.\n{SUMMARY}."
    after = await coder.turn(7)

    assert after.key == session.key
    assert [len(step.calls) for step in after.place.trail.steps if step.calls] == [1, 1, 1]
    assert (await coder.ask()).place.trail.steps[-1].calls[0].call == after.place.trail.steps[0].calls[0].call


async def test_a_result_cut_later_is_still_the_one_first_seen() -> None:
    """Old results are cleared in place by the API's context editing; ids stay."""
    coder = Coder(World(), "Fix it.")
    for number in range(3):
        await coder.turn(number, result="clean and long " * 40)
    coder.history[1]["content"][0]["content"] = "[Old tool result content cleared]"
    last = await coder.ask()

    assert len({entry.result for step in last.place.trail.steps for entry in step.calls}) == 1


async def test_a_call_known_by_choice_and_by_history_is_the_same() -> None:
    """Streamed, whole, or come back: spelled differently, one identity."""
    world = World()
    coder = Coder(world, "Fix it.")
    session = await coder.ask()
    await world.commit(session, Choice("", (ToolCall("toolu_9aXyZ8aBc", "Bash", '{"command":"ls"}'),), "tool_use"))
    block = {"type": "tool_use", "id": "toolu_9aXyZ8aBc", "name": "Bash", "input": {"command": "ls"}, **MARK}
    coder.history = [{"role": "assistant", "content": [block]}, {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]

    assert (await coder.ask()).key == session.key
