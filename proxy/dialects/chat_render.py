"""Chat-completions answers, stream endings and errors that Lastcall writes itself.

They keep to what the strictest client accepts: an index from 0 in every fragment, an id and a name that are never null, arguments as
text, an object as delta, one finish chunk for each choice, `choices: []` beside usage, `[DONE]`.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec.json import encode

from proxy.dialects import notice as lastcall
from proxy.models import Begun, Head, Notice, ToolCall, Usage

KEEP_ALIVE = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"


def completion(head: Head, text: str, usage: Usage | None, notice: Notice, choices: int, calls: tuple[ToolCall, ...] = ()) -> bytes:
    """A whole answer that says `text`, or makes `calls`, in each choice."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
    if calls:
        message["tool_calls"] = [
            {key: value for key, value in _call(head, position, call).items() if key != "index"} for position, call in enumerate(calls)
        ]
    finish = "tool_calls" if calls else "stop"
    body: dict[str, Any] = {
        **_head(head, "chat.completion"),
        "choices": [{"index": index, "message": message, "logprobs": None, "finish_reason": finish} for index in range(choices)],
    }
    if usage is not None:
        body["usage"] = _usage(usage)
    return encode(body | lastcall.member(notice))


def stream_tail(begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
    """Brings a stream to its end: the text in each choice, the calls in the first one, finish, usage if given, terminator.

    The notice stands in the last finish chunk and, since that is the last data event then, in the usage chunk.
    """
    rendered = [_call(begun.head, position, call) for position, call in enumerate(calls)]
    chunks = list(_chunks(begun, text, rendered, "tool_calls" if calls or begun.called else "stop"))
    chunks[-1] |= lastcall.member(notice)
    if usage is not None:
        chunks.append({"choices": [], "usage": _usage(usage), **lastcall.member(notice)})
    opening = _head(begun.head, "chat.completion.chunk")
    return b"".join([_event(opening | chunk) for chunk in chunks]) + _DONE


def _chunks(begun: Begun, text: str, calls: list[dict[str, Any]], finish: str) -> Iterator[dict[str, Any]]:
    for index in range(begun.choices):
        if not begun.started:
            yield _chunk(index, {"role": "assistant", "content": ""})
        if text:
            yield _chunk(index, {"content": text})
    for call in calls:
        yield _chunk(0, {"tool_calls": [call]})
    for index in range(begun.choices):
        yield _chunk(index, {}, finish if index == 0 else "stop")


def stream_error(code: str, message: str, notice: Notice | None) -> bytes:
    """One data event with an `error` object: the SDKs raise with its message. A type that names a server fault would be retried."""
    return _event(_error("invalid_request_error", code, message) | lastcall.member(notice))


def error(status: int, code: str, message: str, notice: Notice | None) -> bytes:
    """The body of an error response."""
    kind = "upstream_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    return encode(_error(kind, code, message) | lastcall.member(notice))


def _error(kind: str, code: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def _head(head: Head, kind: str) -> dict[str, Any]:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _chunk(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _call(head: Head, position: int, call: ToolCall) -> dict[str, Any]:
    opening = {"index": position, "id": call.id or _mint(head, position)}
    if call.custom:
        return opening | {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return opening | {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _mint(head: Head, position: int) -> str:
    """An id for a call that came without one: the same each time, and another in each answer."""
    return "call_" + hashlib.blake2b(f"{head.id}/{position}".encode(), digest_size=12).hexdigest()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + encode(value) + b"\n\n"
