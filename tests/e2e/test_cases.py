"""Reported loops, and reported work that was taken for loops, driven through the running proxy by a scripted client and model.

`tests/cases/loops.jsonl` holds them: calls with what came back, and the verdict of a person. `ok` is never stopped, `nudge` is told in
time and never stopped, `stop` is told and stopped in time. docs/detection.md says where a label is disputed.
"""

import asyncio
import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.agents import Agent, Turn
from tests.running import running
from tests.upstreams import DONE, Asked, Reply, Says, Upstream, saying

Case = dict[str, Any]
CASES: list[Case] = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "loops.jsonl").read_text().splitlines()]
CALLS = [case for case in CASES if case["signal"] == "tool_call" and case["calls"]]
# One message holds all the calls: there is no request before its end to tell anything in, and its count is known when it ends.
ONE_MESSAGE = {"goose-9136", "mlx-1027"}
NEEDS_A_NAME = {"openclaw-126545", "openclaw-77474"}  # a compacted history that nothing else ties to its session
AT_ONCE = 8


@dataclass
class Course:
    """What became of a case, counted in calls: when the model was told, when the client was stopped."""

    told: int | None = None
    stopped: int | None = None
    says: Says = DONE
    asked: list[Asked] = field(default_factory=list)


def messages(case: Case) -> Iterator[list[Case]]:
    """The calls of one assistant message after the other; pseudo calls alone."""
    for _ in range(case["repeats"]):
        if case["layout"] == "parallel":
            yield case["calls"] * (1 if len(case["calls"]) > 1 else case["repeats"])
            if len(case["calls"]) == 1:
                return
        else:
            yield from ([call] for call in case["calls"])


def result(call: Case, number: int) -> str:
    """What the tool says, as the case describes it. number: of the call."""
    kind, volatile = call["result_kind"], call.get("volatile") or []
    text = f"output: {call.get('result_group') or call['name'] + ' ' + json.dumps(call['arguments'], sort_keys=True)}\nline two\nline three"
    if kind == "error":
        missing = call.get("error_type") == "unknown_tool"
        text = call.get("error_text") or (
            f"Error: tool '{call['name']}' not found" if missing else f"Error: {call['name']} failed: no such file"
        )
    elif kind == "empty":
        text = ""
    elif kind == "changing" and not volatile:
        text = f"output {number}: " + " ".join(random.Random(number).choices(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"], k=12))
    drift = {
        "messageId": f"messageId: msg_{uuid.uuid4().hex[:16]}",
        "timestamp": f"2026-08-{number % 27 + 1:02d}T10:{number % 60:02d}:07Z",
        "timestamps": f"10:{number % 60:02d}:07 started",
        "pid": f"pid {4_000 + number * 7}",
        "durationMs": f"durationMs: {100 + number * 13}",
        "duration": f"took {number * 0.37:.2f}s",
        "attempt counter": f"attempt {number} of 99",
    }
    return "\n".join([text, *(drift.get(part, f"read {number}x this session") for part in volatile)])


class Driver:
    """The client's side of one case, and the model's: it says what the case says."""

    def __init__(self, case: Case, http: aiohttp.ClientSession, url: str, *, named: bool) -> None:
        self.case = case
        self.id = f"{case['id']}~{uuid.uuid4().hex[:8]}"
        self.course = Course()
        names = sorted(
            {call["name"] for call in case["calls"] if not call["name"].startswith("__") and call.get("error_type") != "unknown_tool"}
        )
        tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names or ["read_file"]]
        headers = {"x-lastcall-session": self.id} if named else {}
        self.agent = Agent(http, url, headers=headers, tools=tools, task=f"Do the task of {self.id}.")

    async def run(self) -> Course:
        made = 0
        for calls in messages(self.case):
            if self._pseudo(calls[0]):
                continue
            arguments = [call["arguments"].get("__raw__") or json.dumps(call["arguments"]) for call in calls]
            self.course.says = Says(calls=tuple((call["name"], text) for call, text in zip(calls, arguments, strict=True)))
            turn = await self._ask(made)
            made += len(calls)
            if len(turn.calls) < len(calls):
                assert turn.status == 200 and turn.lastcall is not None
                self.course.stopped = made
                break
            assert turn.message is not None
            self.agent.messages.append(turn.message)
            for place, (call, back) in enumerate(zip(calls, turn.calls, strict=True)):
                content = result(call, made - len(calls) + place + 1)
                self.agent.messages.append({"role": "tool", "tool_call_id": back["id"], "content": content})
        if self.course.stopped is None:
            self.course.says = DONE
            await self._ask(made)
        return self.course

    async def _ask(self, made: int) -> Turn:
        """One request, after so many calls."""
        known = len(self.course.asked)
        turn = await self.agent.ask()
        if self.course.told is None and any(asked.nudges for asked in self.course.asked[known : known + 1]):
            self.course.told = made
        return turn

    def _pseudo(self, call: Case) -> bool:
        if call["name"] == "__compaction__":
            self.agent.messages[1:] = [{"role": "user", "content": f"Summary: the task of {self.id} is under way. Continue."}]
        elif call["name"] == "__user_continue__":
            self.agent.say(call["arguments"].get("text", "continue"))
        return str(call["name"]).startswith("__")


def fault(case: Case, course: Course, *, named: bool) -> str | None:
    """What is wrong with a course; None if it is as the case asks."""
    expected, id = case["expected"], case["id"]
    if id in ONE_MESSAGE or (id in NEEDS_A_NAME and not named):
        return None
    told_late = expected.get("nudge_at") is not None and (course.told is None or course.told > expected["nudge_at"])
    match expected["verdict"]:
        case "ok":
            wrong = course.stopped is not None
        case "nudge":
            wrong = course.stopped is not None or course.told is None or told_late
        case _:
            wrong = course.stopped is None or course.stopped > expected["at_call"] or told_late
    return f"{id}: told {course.told}, stopped {course.stopped}, expected {expected}" if wrong else None


@pytest.mark.parametrize("named", [False, True], ids=["derived", "named"])
async def test_every_reported_case_ends_as_it_should(upstream: Upstream, http: aiohttp.ClientSession, *, named: bool) -> None:
    """All of them at once, each in a session of its own."""
    drivers: dict[str, Driver] = {}

    def model(asked: Asked) -> Reply:
        driver = next(driver for id, driver in drivers.items() if id.encode() in asked.body)
        driver.course.asked.append(asked)
        return saying(DONE if asked.tools_off else driver.course.says, asked)

    upstream.model = model
    several = asyncio.Semaphore(AT_ONCE)

    async def driven(driver: Driver) -> Course:
        async with several:
            return await driver.run()

    async with running(upstream.url) as proxy:
        for case in CALLS:
            driver = Driver(case, http, proxy.v1, named=named)
            drivers[driver.id] = driver
        courses = await asyncio.gather(*map(driven, drivers.values()))
    assert [said for case, course in zip(CALLS, courses, strict=True) if (said := fault(case, course, named=named))] == []
    assert max(asked.nudges for course in courses for asked in course.asked) == 1


async def test_a_message_that_does_not_end_is_cut(upstream: Upstream, http: aiohttp.ClientSession) -> None:
    """At the sixteenth equal call, the fifteen before it made."""
    case = next(case for case in CALLS if case["id"] == "mlx-1027")
    async with running(upstream.url) as proxy:
        driver = Driver(case, http, proxy.v1, named=False)
        upstream.model = lambda asked: saying(driver.course.says, asked)
        call = case["calls"][0]
        driver.course.says = Says(calls=((call["name"], json.dumps(call["arguments"])),) * case["repeats"])
        turn = await driver.agent.ask()
    assert len(turn.calls) == 15
