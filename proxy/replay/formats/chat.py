"""Chat completions: request bodies, logs that hold `messages` (and perhaps the answer), lists of messages, one message a line."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.dialects.chat import Chat
from proxy.errors import BadRequest
from proxy.models import Answer, Item, Role
from proxy.replay.formats.entries import encoded, name_of, quoted_text
from proxy.replay.recording import Note, Recording, Unreadable

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ASKED_IN = ("request", "body", "request_body", "kwargs", "input", "params")
_ANSWERED_IN = ("response", "output", "response_body", "completion", "answer")


class ChatLog:
    """Implements `Format`. Reads as the proxy does, with its dialect."""

    name = "chat"
    expects = "objects with `messages`, or messages with a `role` (chat completions)"
    grows = True

    def whole(self, value: dict[str, Any]) -> bool:
        return _request_in(value) is not None

    def part(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("role"), str) and value["role"] in _ROLES

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        body = _request_in(value) or {}
        answer = _answer_in(value)
        return _recording(name_of(value, "id", "custom_id", "session_id", "trace_id") or id, body, answer)

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        return [_recording(id, {"messages": list(values)}, None)]


def _request_in(value: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any] | None:
    """The part of a log entry that has the messages: itself, or a member in which gateways keep the request."""
    messages = value.get("messages")
    if isinstance(messages, list) and any(isinstance(message, dict) and "role" in message for message in messages):
        return value
    nested = [value[key] for key in _ASKED_IN if isinstance(value.get(key), dict)] if depth < 3 else []
    return next((found for member in nested if (found := _request_in(member, depth + 1)) is not None), None)


def _answer_in(value: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any] | None:
    if isinstance(value.get("choices"), list):
        return value
    nested = [value[key] for key in (*_ANSWERED_IN, "body") if isinstance(value.get(key), dict)] if depth < 3 else []
    return next((found for member in nested if (found := _answer_in(member, depth + 1)) is not None), None)


def _recording(id: str, body: Mapping[str, Any], answer: Mapping[str, Any] | None) -> Recording:
    chat = Chat()
    try:
        request = chat.parse(encoded({key: value for key, value in body.items() if key != "stream"}))
    except BadRequest as error:
        raise Unreadable(error.message) from None
    items = list(request.items)
    notes: dict[int, Note] = {}
    if answer is not None:
        read = chat.read_answer(encoded(answer))
        items += _said(read)
        notes = {len(request.items): Note(read.usage, read.choices[0].finish)} if len(items) > len(request.items) else {}
    asked = "model" in body and not notes
    return Recording(id, tuple(items), request.tools, request.tools_raw, request.model, notes, asked=asked)


def _said(answer: Answer) -> Iterable[Item]:
    """An answer as the item it becomes in the next request."""
    return [Item(Role.ASSISTANT, quoted_text(choice.text), choice.calls) for choice in answer.choices[:1]]
