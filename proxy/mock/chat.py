"""The scripted model as a chat-completions endpoint."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.mock.asked import FRAGMENT, Asked, Said, Tool
from proxy.models import text_of


class _Function(msgspec.Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct, frozen=True):
    messages: list[_Message]
    model: str = "mock"
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None


class Chat:
    """Implements `Wire`."""

    path = "/chat/completions"
    called = "chat completions"

    def read(self, body: bytes) -> Asked:
        wire = msgspec.json.decode(body, type=_Body)
        results = [text_of(bytes(message.content)) for message in wire.messages if message.role == "tool"]
        forced = None
        match wire.tool_choice:
            case {"function": {"name": str(name)}}:
                forced = name
        return Asked(
            model=wire.model,
            turns=sum(message.role == "assistant" for message in wire.messages),
            tools=tuple([Tool(tool.function.name, tool.function.parameters or {}) for tool in wire.tools or () if tool.function]),
            forbidden=wire.tool_choice == "none",
            forced=forced,
            last_result=results[-1] if results else "",
            stream=bool(wire.stream),
            wants_usage=bool((wire.stream_options or {}).get("include_usage")),
        )

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def whole(self, asked: Asked, said: Said, sent: int, written: int) -> dict[str, Any]:
        message = _message(said)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(said)}
        return {**_head(asked), "object": "chat.completion", "choices": [choice], "usage": _usage(sent, written)}

    def events(self, asked: Asked, said: Said, sent: int, written: int) -> Iterator[str]:
        head = _head(asked) | {"object": "chat.completion.chunk"} | ({"usage": None} if asked.wants_usage else {})
        choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in _deltas(_message(said))]
        choices.append({"index": 0, "delta": {}, "finish_reason": _finish(said)})
        chunks = [{**head, "choices": [choice]} for choice in choices]
        chunks += [{**head, "choices": [], "usage": _usage(sent, written)}] if asked.wants_usage else []
        for chunk in chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"


def _head(asked: Asked) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": asked.model}


def _message(said: Said) -> dict[str, Any]:
    if not said.calls:
        return {"role": "assistant", "content": said.text}
    calls = [
        {"id": call.id("call_"), "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in said.calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _finish(said: Said) -> str:
    return "tool_calls" if said.calls else "stop"


def _usage(sent: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message in fragments, as providers stream it: the role, then text, then each call's head and its arguments piece by piece."""
    yield {"role": "assistant", "content": "" if message["content"] else None}
    for piece in FRAGMENT.findall(message["content"] or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in FRAGMENT.findall(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
