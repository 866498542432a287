"""Responses: request bodies and logs with `input`, lists of items, one item a line."""

from collections.abc import Sequence
from typing import Any

from proxy.dialects.responses import Responses
from proxy.dialects.responses_items import CALLS, RESULTS
from proxy.replay.formats.entries import name_of
from proxy.replay.formats.format import Format
from proxy.replay.formats.wire import Found, answer_in, recorded, request_in
from proxy.replay.recording import Recording

_ITEMS = CALLS | frozenset(RESULTS) | {"reasoning"}


class ResponsesLog(Format):
    """One of `FORMATS`."""

    name = "responses"
    expects = "objects with `input`, or items with a `type` such as function_call (Responses)"
    grows = True

    def known_by(self, value: dict[str, Any]) -> bool:
        body = request_in(value, _has_input)
        return name_of(value, "type") in _ITEMS or (body is not None and (_is_told(body) or answer_in(value, _is_answer) is not None))

    def whole(self, value: dict[str, Any]) -> bool:
        return request_in(value, _has_input) is not None

    def part(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("type"), str) or isinstance(value.get("role"), str)

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        body = request_in(value, _has_input) or {}
        return recorded(Responses(), name_of(value, "id", "custom_id", "session_id", "trace_id") or id, body, answer_in(value, _is_answer))

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        return [recorded(Responses(), id, {"input": list(values)})]


def _has_input(value: Found) -> bool:
    given = value.get("input")
    return isinstance(given, str) or (isinstance(given, list) and all(isinstance(item, dict) for item in given))


def _is_told(body: Found) -> bool:
    """Whether a body with `input` can only be one of this format: other requests have such a member too."""
    given = body["input"]
    if isinstance(given, str):
        return "model" in body and "messages" not in body
    return any(name_of(item, "type") in _ITEMS or item.get("role") in ("user", "assistant", "system", "developer") for item in given)


def _is_answer(value: Found) -> bool:
    return isinstance(value.get("output"), list) and (value.get("object") == "response" or "status" in value)
