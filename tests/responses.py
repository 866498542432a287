"""Both ends of the Responses API for tests: a model that keeps what it answered as the real one does, and a plain agent over raw HTTP.

The model is strict where the real one is: a call without a result, or a result without its call, is refused with 400.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.agents import TURN_CAP, Tool, events_of
from tests.upstreams import DONE, READ_A, STREAM, WHOLE, Asked, Reply, Says, pieces

Items = list[dict[str, Any]]
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 110,
}
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    for name in ("read_file", "search", "edit", "pytest")
]


@dataclass
class Kept:
    """A model with its memory. turn: what it says to a history of items; concluding: once it may call no tool.

    histories: what stands before and in each response, by its id, and in each conversation. items: those of its answers, by id. refused:
    the errors it gave.
    """

    turn: Callable[[Items], Says] = lambda _: READ_A
    concluding: Says = DONE
    histories: dict[str, Items] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, asked: Asked) -> Reply:
        body = asked.json
        before = body.get("previous_response_id") or body.get("conversation")
        if before is not None and before not in self.histories:
            return self._refusal(f"Previous response with id '{before}' not found.")
        given = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        unknown = [item["id"] for item in given if item.get("type") == "item_reference" and item["id"] not in self.items]
        if unknown:
            return self._refusal(f"Item with id '{unknown[0]}' not found.")
        given = [self.items[item["id"]] if item.get("type") == "item_reference" else item for item in given]
        history = [*self.histories.get(before, []), *given]
        fault = fault_of(history)
        if fault is not None:
            return self._refusal(fault)
        says = self.concluding if asked.tools_off else self.turn(history)
        output = output_of(says)
        response = response_of(output, asked)
        if body.get("store", True):
            self.items |= {item["id"]: item for item in output}
            self.histories[response["id"]] = [*history, *output]
        if body.get("conversation"):
            self.histories[body["conversation"]] = [*history, *output]
        if not body.get("stream"):
            return Reply(json.dumps(response, indent=1).encode(), headers=WHOLE)
        return Reply(pieces(events(response)), headers=STREAM)

    def _refusal(self, message: str) -> Reply:
        self.refused.append(message)
        return Reply(
            json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": None, "param": "input"}}).encode(), 400
        )


def fault_of(history: Items) -> str | None:
    """What the API would say to it."""
    calls = [item["call_id"] for item in history if item.get("type") == "function_call"]
    results = [item["call_id"] for item in history if item.get("type") == "function_call_output"]
    for call in calls:
        if results.count(call) != 1:
            return f"No tool output found for function call {call}." if call not in results else f"Duplicate output for {call}."
    stray = [result for result in results if result not in calls]
    return f"No tool call found for function call output with call_id {stray[0]}." if stray else None


def output_of(says: Says) -> Items:
    """Reasoning, then text, then calls."""
    output: Items = [{"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": [], "x_vendor": 1.5}]
    if says.text is not None:
        content = [{"type": "output_text", "text": says.text, "annotations": [], "logprobs": []}]
        output.append({"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "status": "completed", "content": content})
    for name, arguments in says.calls:
        ids = {"id": f"fc_{uuid.uuid4().hex}", "call_id": f"call_{uuid.uuid4().hex[:16]}"}
        output.append({"type": "function_call", **ids, "name": name, "arguments": arguments, "status": "completed"})
    return output


def response_of(output: Items, asked: Asked) -> dict[str, Any]:
    """A whole response, with members nobody knows."""
    body = asked.json
    echoed = {key: body.get(key) for key in ("instructions", "previous_response_id", "max_output_tokens", "metadata")}
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "model": "gpt-5-2026",
        "error": None,
        "incomplete_details": None,
        "vendor": {"x": [1.50]},
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "store": body.get("store", True),
        "output": output,
        "usage": USAGE,
        **echoed,
    }


def events(response: dict[str, Any]) -> list[bytes]:
    """The same as a stream, in small pieces."""
    written: list[bytes] = [b": hello\n\n"]

    def event(kind: str, **members: Any) -> None:
        data = {"type": kind, "sequence_number": len(written) - 1, **members, "x_event": "ü"}
        written.append(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())

    begun = response | {"status": "in_progress", "output": [], "usage": None}
    event("response.created", response=begun)
    event("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        place = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "message":
                event("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "content": []})
                part = item["content"][0]
                event("response.content_part.added", **place, content_index=0, part=part | {"text": ""})
                for at in range(0, len(part["text"]), 7):
                    event("response.output_text.delta", **place, content_index=0, delta=part["text"][at : at + 7], logprobs=[])
                event("response.output_text.done", **place, content_index=0, text=part["text"], logprobs=[])
                event("response.content_part.done", **place, content_index=0, part=part)
            case "function_call":
                event("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "arguments": ""})
                for at in range(0, len(item["arguments"]), 7):
                    event("response.function_call_arguments.delta", **place, delta=item["arguments"][at : at + 7])
                event("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])
            case _:
                event("response.output_item.added", output_index=index, item=item)
        event("response.output_item.done", output_index=index, item=item)
    event("response.completed", response=response)
    return written


@dataclass(frozen=True)
class Turn:
    """One answer. response: None where there is none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    response: dict[str, Any] | None
    error: dict[str, Any] | None

    @property
    def action(self) -> str:
        return self.headers["x-lastcall-action"]

    @property
    def output(self) -> Items:
        return (self.response or {}).get("output") or []

    @property
    def calls(self) -> Items:
        return [item for item in self.output if item["type"] == "function_call"]

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for item in self.output if item["type"] == "message" for part in item["content"])

    @property
    def lastcall(self) -> dict[str, Any] | None:
        return (self.response or {}).get("lastcall")


class Agent:
    """One run of work. mode: `full` sends the whole history each time, `named` too, its answers by the ids of their items; `previous` goes
    on from the last response, else a conversation's id.

    url: the base URL, /v1 included, asked for before each request. tool: what its tools return.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str | Callable[[], str],
        *,
        mode: str = "full",
        tool: Tool = lambda name, arguments, number: "one line",
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        task: str = "What is in a.txt?",
        **body: Any,
    ) -> None:
        self.mode = mode
        self.items: Items = [{"role": "user", "content": task}]
        self.previous: str | None = None
        self.headers = {"authorization": f"Bearer {key or 'sk-' + uuid.uuid4().hex}", **(headers or {})}
        self.body = {"model": "gpt-5", "instructions": "You are helpful.", "tools": TOOLS, **({"stream": True} if stream else {}), **body}
        self._http = http
        self._url = url
        self._tool = tool
        self._results = 0

    def payload(self) -> bytes:
        where: dict[str, Any] = {"store": False} if self.mode == "full" else {"conversation": self.mode}
        if self.mode == "named":
            where = {}
        if self.mode == "previous":
            where = {"previous_response_id": self.previous} if self.previous else {}
        return json.dumps({**self.body, **where, "input": self.items}).encode()

    async def ask(self, **headers: str) -> Turn:
        """Sends what there is to send once. headers: further ones, `_` for `-`."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        url = self._url if isinstance(self._url, str) else self._url()
        sent = {"content-type": "application/json", **self.headers, **more}
        async with self._http.post(f"{url}/responses", data=self.payload(), headers=sent) as response:
            return turn_of(response.status, response.headers, await response.read())

    def take(self, turn: Turn) -> None:
        """Keeps an answer, here or at the server, and carries out its calls."""
        assert turn.response is not None
        self.previous = turn.response["id"]
        answer = [{"type": "item_reference", "id": item["id"]} for item in turn.output] if self.mode == "named" else turn.output
        self.items = [*self.items, *answer] if self.mode in ("full", "named") else []
        for call in turn.calls:
            result = self._tool(call["name"], call["arguments"], self._results)
            self._results += 1
            self.items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})

    def say(self, text: str) -> None:
        """A person speaks."""
        self.items.append({"role": "user", "content": text})

    async def run(self, *, cap: int = TURN_CAP, between: Callable[[], Awaitable[object]] | None = None) -> list[Turn]:
        """Until an answer without calls, an error, or the cap. between: awaited after each turn but the last."""
        turns: list[Turn] = []
        while len(turns) < cap:
            turn = await self.ask()
            turns.append(turn)
            if turn.response is not None:
                self.take(turn)
            if not turn.calls:
                break
            if between is not None:
                await between()
        return turns


def turn_of(status: int, headers: Mapping[str, str], body: bytes) -> Turn:
    """Reads an answer, whole or streamed; every event of a stream must agree with its last one."""
    if not headers.get("content-type", "").startswith("text/event-stream"):
        decoded = json.loads(body) if headers.get("content-type", "").startswith("application/json") else {}
        return Turn(status, headers, body, decoded if "output" in decoded else None, decoded.get("error"))
    response = error = None
    done: dict[int, dict[str, Any]] = {}
    told: dict[int, str] = {}
    numbers = []
    for event in events_of(body):
        numbers.append(event["sequence_number"])
        if event["type"] == "response.output_item.done":
            done[event["output_index"]] = event["item"]
        elif event["type"] == "response.output_item.added":
            told[event["output_index"]] = ""
        elif event["type"] in ("response.function_call_arguments.delta", "response.output_text.delta"):
            told[event["output_index"]] += event["delta"]
        elif event["type"] == "response.completed":
            response = event["response"]
        elif event["type"] == "response.failed":
            error = event["response"]["error"]
    if response is not None:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # from 0, or where a resumed stream goes on
        assert [done[index] for index in sorted(done)] == response["output"]
        assert [told[index] for index in sorted(told)] == [_said(item) for item in response["output"]]
    return Turn(status, headers, body, response, error)


def _said(item: dict[str, Any]) -> str:
    if item["type"] == "message":
        return "".join(part["text"] for part in item["content"])
    return str(item.get("arguments", ""))
