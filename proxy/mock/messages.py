"""The scripted model as an endpoint of the messages API."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.mock.asked import FRAGMENT, Asked, Said, Tool
from proxy.models import text_of


class _Tool(msgspec.Struct, frozen=True):
    name: str
    input_schema: dict[str, Any] | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Block(msgspec.Struct, frozen=True):
    type: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct, frozen=True):
    messages: list[_Message]
    max_tokens: int
    model: str = "mock"
    tools: list[_Tool] | None = None
    tool_choice: dict[str, Any] | None = None
    stream: bool | None = None


class Messages:
    """Implements `Wire`."""

    path = "/messages"
    called = "messages"

    def read(self, body: bytes) -> Asked:
        wire = msgspec.json.decode(body, type=_Body)
        choice = wire.tool_choice or {}
        results = [text_of(content) for message in wire.messages if message.role == "user" for content in _results(message)]
        return Asked(
            model=wire.model,
            turns=sum(message.role == "assistant" for message in wire.messages),
            tools=tuple([Tool(tool.name, tool.input_schema) for tool in wire.tools or () if tool.input_schema is not None]),
            forbidden=choice.get("type") == "none",
            forced=choice.get("name"),
            last_result=results[-1] if results else "",
            stream=bool(wire.stream),
        )

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "api_error"
        return {"type": "error", "error": {"type": kind, "message": message}}

    def whole(self, asked: Asked, said: Said, sent: int, written: int) -> dict[str, Any]:
        return _message(asked, _blocks(said), _usage(sent, written)) | {"stop_reason": _reason(said)}

    def events(self, asked: Asked, said: Said, sent: int, written: int) -> Iterator[str]:
        yield _event("message_start", message=_message(asked, [], _usage(sent, 1)))
        yield _event("ping")
        for index, block in enumerate(_blocks(said)):
            if block["type"] == "text":
                yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                deltas = [{"type": "text_delta", "text": piece} for piece in FRAGMENT.findall(block["text"])]
            else:
                yield _event("content_block_start", index=index, content_block=block | {"input": {}})
                arguments = said.calls[index].arguments
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *FRAGMENT.findall(arguments))]
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta={"stop_reason": _reason(said), "stop_sequence": None}, usage={"output_tokens": written})
        yield _event("message_stop")


def _results(message: _Message) -> list[bytes]:
    if not bytes(message.content).startswith(b"["):
        return []
    return [bytes(block.content) for block in msgspec.json.decode(message.content, type=list[_Block]) if block.type == "tool_result"]


def _message(asked: Asked, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
    head = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": asked.model}
    return {**head, "content": content, "stop_reason": None, "stop_sequence": None, "usage": usage}


def _blocks(said: Said) -> list[dict[str, Any]]:
    if not said.calls:
        return [{"type": "text", "text": said.text}]
    return [{"type": "tool_use", "id": call.id("toolu_"), "name": call.name, "input": _input(call.arguments)} for call in said.calls]


def _input(arguments: str) -> Any:
    """The object that a script's arguments stand for: where they are no JSON, it cannot be sent whole in this format."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}


def _reason(said: Said) -> str:
    return "tool_use" if said.calls else "end_turn"


def _usage(sent: int, written: int) -> dict[str, int]:
    return {"input_tokens": sent, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": written}


def _event(kind: str, **members: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n"
