"""Both ends of the messages API for tests: a model as strict as the real one, and a plain agent over raw HTTP that writes like Claude Code.

The model refuses with 400 what the API refuses: a call without its result in the next message, a result that does not stand first, an empty
text, thinking that was not written after what now stands before it.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.agents import TURN_CAP, Tool, events_of
from tests.upstreams import DONE, READ_A, STREAM, WHOLE, Asked, Reply, Says, pieces

Blocks = list[dict[str, Any]]
USAGE = {"input_tokens": 60, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 30, "output_tokens": 10, "vendor_tokens": 1}
TOOLS = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in ("read_file", "search", "edit", "pytest")]
MARK = {"cache_control": {"type": "ephemeral"}}


@dataclass
class Strict:
    """A model that thinks before it speaks. turn: what it says; concluding: once it may call no tool. refused: the errors it gave."""

    turn: Callable[[Asked], Says] = lambda _: READ_A
    concluding: Says = DONE
    refused: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Reply:
        body = asked.json
        fault = fault_of(body)
        if fault is not None:
            self.refused.append(fault)
            return Reply(json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": fault}}).encode(), 400)
        says = self.concluding if body.get("tool_choice") == {"type": "none"} else self.turn(asked)
        message = message_of(says, body)
        if not body.get("stream"):
            return Reply(json.dumps(message, indent=1).encode(), headers=WHOLE)
        return Reply(pieces(events(message)), headers=STREAM)


def fault_of(body: dict[str, Any]) -> str | None:
    """What the API would say to it."""
    messages = body["messages"]
    for at, message in enumerate(messages):
        blocks = blocks_of(message)
        if not blocks or any(block["type"] == "text" and not block["text"] for block in blocks):
            return f"messages.{at}: text content blocks must be non-empty"
        if message["role"] == "assistant" and any(b.get("signature") not in (None, bound_to(messages[:at])) for b in blocks):
            return f"messages.{at}: thinking is bound to a different context"
        made = [block["id"] for block in blocks_of(messages[at - 1]) if block["type"] == "tool_use"] if at else []
        first = [block.get("tool_use_id") for block in blocks[: len(made)]]
        if sorted(made) != sorted(str(one) for one in first) or any(block["type"] == "tool_result" for block in blocks[len(made) :]):
            return f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after, or the other way round"
    return None


def blocks_of(message: dict[str, Any]) -> Blocks:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def bound_to(before: Blocks) -> str:
    """The signature of what is thought after these messages: all but where the cache is marked."""
    text = json.dumps([blocks_of(message) for message in before], sort_keys=True).replace(json.dumps(MARK)[1:-1], "")
    return hashlib.sha256(text.replace(", }", "}").replace("{, ", "{").encode()).hexdigest()


def message_of(says: Says, body: dict[str, Any]) -> dict[str, Any]:
    """A whole message, with members nobody knows: thinking, then text, then calls."""
    content: Blocks = [{"type": "thinking", "thinking": "hm…", "signature": bound_to(body["messages"])}]
    content += [{"type": "text", "text": says.text}] if says.text is not None else []
    content += [
        {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name, "input": json.loads(arguments)}
        for name, arguments in says.calls
    ]
    head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": "claude-2026", "vendor": {"x": [1.50]}}
    return {**head, "content": content, "stop_reason": "tool_use" if says.calls else "end_turn", "stop_sequence": None, "usage": USAGE}


def events(message: dict[str, Any]) -> list[bytes]:
    """The same as a stream, in small pieces."""

    def event(kind: str, **members: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **members, 'x_event': 'ü'})}\n\n".encode()

    def delta(index: int, **members: Any) -> bytes:
        return event("content_block_delta", index=index, delta=members)

    begun = message | {"content": [], "stop_reason": None, "usage": USAGE | {"output_tokens": 1}}
    written = [event("message_start", message=begun), event("ping")]
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "thinking":
                written.append(event("content_block_start", index=index, content_block=block | {"thinking": "", "signature": ""}))
                written.append(delta(index, type="thinking_delta", thinking=block["thinking"]))
                written.append(delta(index, type="signature_delta", signature=block["signature"]))
            case "text":
                written.append(event("content_block_start", index=index, content_block={"type": "text", "text": ""}))
                written += [delta(index, type="text_delta", text=piece) for piece in re.findall(r"\S*\s*", block["text"]) if piece]
            case _:
                written.append(event("content_block_start", index=index, content_block=block | {"input": {}}))
                arguments = json.dumps(block["input"])
                written += [
                    delta(index, type="input_json_delta", partial_json=arguments[at : at + 7]) for at in range(0, len(arguments), 7)
                ]
        written.append(event("content_block_stop", index=index))
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [*written, event("message_delta", delta=ending, usage={"output_tokens": 10}), event("message_stop")]


@dataclass(frozen=True)
class Turn:
    """One answer. content: its blocks, [] where it is none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    content: Blocks
    lastcall: dict[str, Any] | None
    error: dict[str, Any] | None

    @property
    def action(self) -> str:
        return self.headers["x-lastcall-action"]

    @property
    def calls(self) -> Blocks:
        return [block for block in self.content if block["type"] == "tool_use"]

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


class Agent:
    """One run of work. url: the base URL, /v1 included, asked for before each request. tool: what its tools return."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str | Callable[[], str],
        *,
        tool: Tool = lambda name, arguments, number: "one line",
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        task: str = "What is in a.txt?",
    ) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
        self._headers = {"x-api-key": f"sk-{uuid.uuid4().hex}", "anthropic-version": "2023-06-01", **(headers or {})}
        self._stream = stream
        self._http = http
        self._url = url
        self._tool = tool
        self._results = 0

    def payload(self) -> bytes:
        """Its history with the end of it marked for the cache, another end each time."""
        messages = json.loads(json.dumps(self.messages))
        last = messages[-1]
        last["content"] = blocks_of(last)
        last["content"][-1] |= MARK
        system = [{"type": "text", "text": "You are helpful.", **MARK}]
        body = {"model": "claude-2026", "max_tokens": 1000, "system": system, "messages": messages, "tools": TOOLS, "stream": self._stream}
        return json.dumps(body).encode()

    async def ask(self) -> Turn:
        """Sends the history once, and leaves it as it is."""
        url = self._url if isinstance(self._url, str) else self._url()
        headers = {"content-type": "application/json", **self._headers}
        async with self._http.post(f"{url}/messages", data=self.payload(), headers=headers) as response:
            return turn_of(response.status, response.headers, await response.read())

    def take(self, turn: Turn) -> None:
        """Adds an answer to the history, and carries out its calls; a reminder beside their results."""
        self.messages.append({"role": "assistant", "content": turn.content})
        results: Blocks = []
        for call in turn.calls:
            result = self._tool(call["name"], json.dumps(call["input"]), self._results)
            self._results += 1
            results.append({"type": "tool_result", "tool_use_id": call["id"], "content": result})
        if results:
            results.append({"type": "text", "text": f"<system-reminder>{self._results} so far.</system-reminder>"})
            self.messages.append({"role": "user", "content": results})

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    async def run(self, *, cap: int = TURN_CAP) -> list[Turn]:
        """Until an answer without calls, an error, or the cap."""
        turns: list[Turn] = []
        while len(turns) < cap:
            turns.append(await self.ask())
            if turns[-1].content:
                self.take(turns[-1])
            if not turns[-1].calls:
                break
        return turns


def turn_of(status: int, headers: Mapping[str, str], body: bytes) -> Turn:
    """Reads an answer, whole or streamed; a stream as strictly as the SDKs do."""
    if not headers.get("content-type", "").startswith("text/event-stream"):
        whole = json.loads(body)
        return Turn(status, headers, body, whole.get("content") or [], whole.get("lastcall"), whole.get("error"))
    content: Blocks = []
    last: dict[str, Any] = {}
    for last in events_of(body):
        match last["type"]:
            case "content_block_start":
                assert last["index"] == len(content), "a gap in the numbers of blocks"
                content.append(dict(last["content_block"]))
                pieces_of_input = ""
            case "content_block_delta":
                block, delta = content[last["index"]], last["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case _:
                        pieces_of_input += delta["partial_json"]
                        block["input"] = json.loads(pieces_of_input) if pieces_of_input.endswith("}") else {}
            case "message_delta":
                assert last["usage"], "no usage"
    assert last["type"] == "message_stop", "the stream has no end"
    return Turn(status, headers, body, content, last.get("lastcall"), None)
