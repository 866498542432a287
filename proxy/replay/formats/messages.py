"""Anthropic messages: request bodies, logs with request and response, lists of messages. Told from chats by blocks that only they have."""

from collections.abc import Sequence
from typing import Any

from proxy.dialects.messages import Messages
from proxy.dialects.messages_blocks import CALL, RESULT
from proxy.replay.formats.chat import has_messages
from proxy.replay.formats.entries import name_of
from proxy.replay.formats.format import Format
from proxy.replay.formats.wire import Found, answer_in, recorded, request_in
from proxy.replay.recording import Recording


class MessagesLog(Format):
    """One of `FORMATS`."""

    name = "messages"
    expects = "objects with `messages`, or messages with a `role`, that hold tool_use and tool_result blocks (Anthropic messages)"
    grows = True

    def known_by(self, value: dict[str, Any]) -> bool:
        body = request_in(value, has_messages)
        if body is not None:
            return any(map(_has_blocks, body["messages"])) or answer_in(value, _is_answer) is not None
        return self.part(value) and _has_blocks(value)

    def whole(self, value: dict[str, Any]) -> bool:
        return request_in(value, has_messages) is not None

    def part(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("role"), str)

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        body = request_in(value, has_messages) or {}
        return recorded(Messages(), name_of(value, "id", "custom_id", "session_id", "trace_id") or id, body, answer_in(value, _is_answer))

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        return [recorded(Messages(), id, {"messages": list(values)})]


def _has_blocks(message: Any) -> bool:
    blocks = message.get("content") if isinstance(message, dict) else None
    return isinstance(blocks, list) and any(isinstance(block, dict) and block.get("type") in (CALL, RESULT) for block in blocks)


def _is_answer(value: Found) -> bool:
    return value.get("type") == "message" and value.get("role") == "assistant" and isinstance(value.get("content"), list)
