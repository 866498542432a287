"""Chat completions: request bodies, logs that hold `messages` (and perhaps the answer), lists of messages, one message a line."""

from collections.abc import Sequence
from typing import Any

from proxy.dialects.chat import Chat
from proxy.replay.formats.entries import name_of
from proxy.replay.formats.format import Format
from proxy.replay.formats.wire import Found, answer_in, recorded, request_in
from proxy.replay.recording import Recording

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def has_messages(value: Found) -> bool:
    """Whether an object is a request by its list of messages."""
    messages = value.get("messages")
    return isinstance(messages, list) and any(isinstance(message, dict) and "role" in message for message in messages)


class ChatLog(Format):
    """One of `FORMATS`."""

    name = "chat"
    expects = "objects with `messages`, or messages with a `role` (chat completions)"
    grows = True

    def whole(self, value: dict[str, Any]) -> bool:
        return request_in(value, has_messages) is not None

    def part(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("role"), str) and value["role"] in _ROLES

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        body, answer = request_in(value, has_messages) or {}, answer_in(value, lambda found: isinstance(found.get("choices"), list))
        return recorded(Chat(), name_of(value, "id", "custom_id", "session_id", "trace_id") or id, body, answer)

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        return [recorded(Chat(), id, {"messages": list(values)})]
