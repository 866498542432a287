"""Messages answers, stream endings and errors that Lastcall writes itself.

They keep to what the strictest client accepts: blocks numbered without a gap, each opened and closed, `usage` in `message_delta`, an id
that no other message has, never an empty text block.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from proxy.dialects import notice as lastcall
from proxy.dialects.messages_stream import Standing
from proxy.dialects.raw_json import plain
from proxy.models import Begun, Head, Notice, ToolCall, Usage

KEEP_ALIVE = b'event: ping\ndata: {"type": "ping"}\n\n'
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def completion(head: Head, text: str, usage: Usage | None, notice: Notice, calls: tuple[ToolCall, ...] = ()) -> bytes:
    """A whole answer that says `text`, or makes `calls`."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [_opened(head, position, call) | {"input": _input(call)} for position, call in enumerate(calls)]
    ending = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return encode(_message(head, content) | ending | {"usage": _usage(usage or Usage())} | lastcall.member(notice))


def standing_of(begun: Begun) -> Standing:
    """How far a stream has come."""
    return begun.sent if isinstance(begun.sent, Standing) else Standing()


def stream_tail(begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
    """Brings a stream to its end from where it stands: closes the open block, adds one for the text and one for each call, ends.

    The notice stands in the last event.
    """
    head, standing = begun.head, standing_of(begun)
    spent = _usage(usage or Usage())
    events: list[dict[str, Any]] = []
    if not begun.started:
        opening = _message(head, []) | {"stop_reason": None, "stop_sequence": None, "usage": spent | {"output_tokens": 0}}
        events.append({"type": "message_start", "message": opening})
    said = _paragraph(text, standing)
    if standing.open is not None and standing.blank and said:  # an empty block would be refused once it stands in a history
        events.append(_delta(standing.open, said))
        said = ""
    if standing.open is not None:
        events.append({"type": "content_block_stop", "index": standing.open})
    events += _blocks(head, said, calls, standing.next)
    reason = "tool_use" if calls or begun.called else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": spent})
    events.append({"type": "message_stop", **lastcall.member(notice)})
    return b"".join([_event(event) for event in events])


def _delta(index: int, said: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": said}}


def _paragraph(text: str, standing: Standing) -> str:
    """Text that goes on after other text. A block joins the one before it with a line end (`models.text_of`), so one of two goes."""
    return text.removeprefix("\n") if standing.spoke else text


def _blocks(head: Head, text: str, calls: tuple[ToolCall, ...], start: int) -> Iterator[dict[str, Any]]:
    filled = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
    for position, call in enumerate(calls):
        delta = {"type": "input_json_delta", "partial_json": call.arguments}
        filled.append((_opened(head, position, call) | {"input": {}}, delta))
    for index, (block, delta) in enumerate(filled, start):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def stream_error(code: str, message: str, notice: Notice | None) -> bytes:
    """The event that ends a stream with an error: clients show it, or ask once more for the whole answer."""
    return _event(_error("api_error", code, message) | lastcall.member(notice))


def error(status: int, code: str, message: str, notice: Notice | None) -> bytes:
    """The body of an error response."""
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return encode(_error(kind, code, message) | lastcall.member(notice))


def _error(kind: str, code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, "code": code}}


def _message(head: Head, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": head.id, "type": "message", "role": "assistant", "model": head.model, "content": content}


def _opened(head: Head, position: int, call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id or _mint(head, position), "name": call.name}


def _mint(head: Head, position: int) -> str:
    """An id for a call that came without one: the same each time, and another in each answer."""
    return "toolu_" + hashlib.blake2b(f"{head.id}/{position}".encode(), digest_size=12).hexdigest()


def _input(call: ToolCall) -> Raw:
    """The arguments as the object that the API wants; an empty one for what is none."""
    arguments = call.arguments.encode("utf-8", "replace")
    return Raw(arguments if isinstance(plain(arguments), dict) else b"{}")


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0),
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(value["type"]).encode(), encode(value))
