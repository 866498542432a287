"""One request made to be slow, however it is built, costs what it weighs: twice as many calls, twice as much.

The whole exchange is counted, from the first byte of the request to the answer, in calls of functions; the time is printed.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.in_process import Proxy, answer, request, tool

pytestmark = pytest.mark.no_cover  # tens of thousands of calls
Step = tuple[str, Any, str]
LINES = "\n".join(f"line {number} of an answer that is not brief" for number in range(4))
WORDS = ("alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi")


def word(number: int) -> str:
    return "".join(WORDS[number // 14**place % 14] for place in range(4))


STEPS: dict[str, Callable[[int], Step]] = {
    "one call": lambda n: ("ls", {}, "a.txt"),
    "one call, new results": lambda n: ("ls", {}, f"a{n}.txt"),
    "one call, other times": lambda n: ("ls", {}, f"a.txt at 10:00:{n % 60:02d}, pid {n}"),
    "new calls": lambda n: ("ls", {"path": n}, f"a{n}.txt"),
    "one output": lambda n: ("read_file", {"path": word(n)}, LINES),
    "one output, counted up": lambda n: ("read_file", {"page": n}, LINES),
    "failures": lambda n: ("bash", {"command": f"run {word(n)}"}, f"Error: failed to do {word(n)}"),
    "one failure": lambda n: ("bash", {"command": f"run {word(n)}"}, "Error: failed to do it, and will fail again"),
    "messages": lambda n: ("send_message", {"to": "a", "text": word(n)}, "sent"),
    "waiting": lambda n: ("job_status", {"id": n % 5}, "running"),
    "rounds": lambda n: ("read_file", {"path": n % 6}, f"{LINES} {n % 6}"),
    "in turn with others": lambda n: ("bash", {"command": "cargo test"}, "2 failed") if n % 2 else ("read_file", {"path": n}, f"{n}"),
    "tools that are not there": lambda n: ("nope", {"n": n}, "Error: tool nope not found"),
    "no names": lambda n: ("", {"n": n}, ""),
}
TOOLS = [tool(name) for name in ("ls", "read_file", "bash", "send_message", "job_status")]


def history(step: Callable[[int], Step], calls: int, together: int) -> list[dict[str, Any]]:
    """A history of so many calls, so many of them in a message."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for begin in range(0, calls, together):
        made = [(f"c{number}", *step(number)) for number in range(begin, min(begin + together, calls))]
        functions = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}} for id, name, given, _ in made
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": functions})
        messages += [{"role": "tool", "tool_call_id": id, "content": result} for id, _, _, result in made]
    return messages


async def cost(messages: list[dict[str, Any]]) -> tuple[int, float]:
    """Function calls and seconds of an exchange; the seconds of another, that they are not those of counting."""
    body = request(messages, tools=TOOLS)
    seen = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    counted, timed = (Proxy(answer("done"), max_body=1 << 25) for _ in range(2))
    sys.setprofile(count)
    try:
        await counted.ask(body)
    finally:
        sys.setprofile(None)
    started = time.process_time()
    await timed.ask(body)
    return seen, time.process_time() - started


SHAPES = [
    *[(kind, together, 500) for kind in STEPS for together in (1, 100_000)],
    *[(kind, 50, 1_500) for kind in ("one call, other times", "one output", "failures", "rounds")],  # more messages than are looked back at
]


@pytest.mark.parametrize(("kind", "together", "calls"), SHAPES)
async def test_twice_as_many_calls_cost_twice_as_much(kind: str, together: int, calls: int) -> None:
    """In messages of one call, of fifty, and all in one."""
    small, _ = await cost(history(STEPS[kind], calls, together))
    large, seconds = await cost(history(STEPS[kind], 2 * calls, together))
    each = f"{large / calls / 2:.0f} function calls and {seconds / calls * 5e5:.0f} µs a call"
    sys.stderr.write(f"\n{kind}, {min(together, 2 * calls)} at once: {each}\n")
    assert large < 2.5 * small
