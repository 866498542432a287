"""The scripted model as an endpoint of the Responses API.

It keeps nothing, so that the number of turns before a response stands in its id: a request that goes on from one is at that step.
"""

import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proxy.mock.asked import FRAGMENT, Asked, Said, Tool
from proxy.models import text_of

_ID = re.compile(r"resp_(\d{1,6})t_[0-9a-f]+")


class _Tool(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    parameters: dict[str, Any] | None = None


class _Item(msgspec.Struct, frozen=True):
    type: str = "message"
    role: str = ""
    output: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def spoken(self) -> bool:
        """Whether it is part of an answer."""
        return self.role == "assistant" or self.type in ("function_call", "custom_tool_call", "reasoning")


class _Body(msgspec.Struct, frozen=True):
    input: str | list[_Item] = ""
    model: str = "mock"
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    previous_response_id: str | None = None


class Responses:
    """Implements `Wire`."""

    path = "/responses"
    called = "responses"

    def read(self, body: bytes) -> Asked:
        wire = msgspec.json.decode(body, type=_Body)
        items = wire.input if isinstance(wire.input, list) else []
        results = [text_of(bytes(item.output)) for item in items if item.type.endswith("_call_output")]
        before = _ID.fullmatch(wire.previous_response_id or "")
        choice = wire.tool_choice if isinstance(wire.tool_choice, dict) else {}
        return Asked(
            model=wire.model,
            turns=_turns(items) + (int(before.group(1)) if before else 0),
            tools=tuple([Tool(tool.name, tool.parameters or {}) for tool in wire.tools or () if tool.type == "function"]),
            forbidden=wire.tool_choice == "none",
            forced=choice.get("name"),
            last_result=results[-1] if results else "",
            stream=bool(wire.stream),
        )

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def whole(self, asked: Asked, said: Said, sent: int, written: int) -> dict[str, Any]:
        return _response(asked) | {"status": "completed", "output": _output(said), "usage": _usage(sent, written)}

    def events(self, asked: Asked, said: Said, sent: int, written: int) -> Iterator[str]:
        begun = _response(asked)
        output = _output(said)
        ended = begun | {"status": "completed", "output": output, "usage": _usage(sent, written)}
        told = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
        told += [event for index, item in enumerate(output) for event in _telling(index, item)]
        told.append(("response.completed", {"response": ended}))
        for number, (kind, members) in enumerate(told):
            yield f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': number} | members)}\n\n"


def _turns(items: Sequence[_Item]) -> int:
    """Answers in a history: items of one follow each other."""
    return sum(item.spoken and not (before is not None and before.spoken) for before, item in zip([None, *items], items, strict=False))


def _response(asked: Asked) -> dict[str, Any]:
    return {
        "id": f"resp_{asked.turns + 1}t_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": asked.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "none" if asked.forbidden else "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _output(said: Said) -> list[dict[str, Any]]:
    ended = {"status": "completed"}
    if not said.calls:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        return [{"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", **ended, "content": content}]
    return [
        {
            "id": call.id("fc_"),
            "type": "function_call",
            **ended,
            "call_id": call.id("call_"),
            **_named(call.name),
            "arguments": call.arguments,
        }
        for call in said.calls
    ]


def _named(name: str) -> dict[str, str]:
    """A tool's name, which holds no dot, or that of one in a namespace, written `namespace.name`."""
    namespace, _, own = name.rpartition(".")
    return {"name": own, "namespace": namespace} if namespace else {"name": own}


def _telling(index: int, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of one item: announced, filled piece by piece, done."""
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        part, content = item["content"][0], place | {"content_index": 0}
        yield "response.output_item.added", {"output_index": index, "item": item | {"status": "in_progress", "content": []}}
        yield "response.content_part.added", content | {"part": part | {"text": ""}}
        for piece in FRAGMENT.findall(part["text"]):
            yield "response.output_text.delta", content | {"delta": piece, "logprobs": []}
        yield "response.output_text.done", content | {"text": part["text"], "logprobs": []}
        yield "response.content_part.done", content | {"part": part}
    else:
        yield "response.output_item.added", {"output_index": index, "item": item | {"status": "in_progress", "arguments": ""}}
        for piece in FRAGMENT.findall(item["arguments"]):
            yield "response.function_call_arguments.delta", place | {"delta": piece}
        yield "response.function_call_arguments.done", place | {"name": item["name"], "arguments": item["arguments"]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _usage(sent: int, written: int) -> dict[str, Any]:
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + written,
    }
