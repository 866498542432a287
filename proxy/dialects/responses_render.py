"""Responses answers, stream endings and errors that Lastcall writes itself.

Clients read different events of a stream: one takes an item when it is added, another when it is done, a third only what the last
event repeats. So every item is written in all of these places, alike, under an id that no other answer has.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode

from proxy.dialects import notice as lastcall
from proxy.dialects.raw_json import Fields, members_of, object_of, plain
from proxy.dialects.responses_items import OWN
from proxy.models import Begun, Head, Notice, ToolCall, Usage

KEEP_ALIVE = b": keep-alive\n\n"


class Part(Struct, frozen=True, gc=False):
    """A part of a message that is not closed yet. kind: `text` or `refusal`."""

    index: int
    kind: str
    text: str

    def wire(self) -> dict[str, Any]:
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}


class Shown(Struct, frozen=True, gc=False):
    """An item that the client has, as far as it has it. raw: its JSON. open: it has not been told that it is done; parts: nor those."""

    index: int
    raw: bytes
    open: bool = False
    parts: tuple[Part, ...] = ()


class Standing(Struct, frozen=True, gc=False):
    """How far a stream has come. number: of the next event; response: raw JSON of the one it belongs to; spoke: text was among it."""

    number: int = 0
    response: bytes = b""
    shown: tuple[Shown, ...] = ()
    spoke: bool = False


def completion(head: Head, text: str, usage: Usage | None, notice: Notice, calls: tuple[ToolCall, ...] = ()) -> bytes:
    """A whole answer that says `text`, or makes `calls`."""
    items = _items(head, text, calls, 0)
    return encode(_response(head, "completed", items, usage) | lastcall.member(notice))


def standing_of(begun: Begun) -> Standing:
    """How far a stream has come."""
    return begun.sent if isinstance(begun.sent, Standing) else Standing()


def stream_tail(begun: Begun, text: str, calls: tuple[ToolCall, ...], usage: Usage | None, notice: Notice | None) -> bytes:
    """Brings a stream to its end from where it stands: closes what is open, adds an item for the text and one for each call, completes.

    The notice stands in the last event, and in the response it holds.
    """
    head, standing = begun.head, standing_of(begun)
    events = Events(standing.number)
    if not begun.started:
        opening = _response(head, "in_progress", [], None)
        events.add("response.created", response=opening)
        events.add("response.in_progress", response=opening)
    _close(events, standing.shown)
    start = max((item.index for item in standing.shown), default=-1) + 1
    items = _items(head, text.removeprefix("\n") if standing.spoke else text, calls, start)
    for index, item in enumerate(items, start):
        _tell(events, index, item)
    return _complete(events, head, items, usage, notice, standing)


def stream_end(head: Head, usage: Usage | None, notice: Notice | None, standing: Standing) -> bytes:
    """The same for a stream that said all it had to."""
    events = Events(standing.number)
    _close(events, standing.shown)
    return _complete(events, head, [], usage, notice, standing)


def _complete(
    events: "Events", head: Head, items: Sequence[dict[str, Any]], usage: Usage | None, notice: Notice | None, standing: Standing
) -> bytes:
    output: list[Any] = [*(Raw(item.raw) for item in standing.shown), *items]
    response = _ended(head, "completed", output, usage, standing.response) | lastcall.member(notice)
    events.add("response.completed", response=response, **lastcall.member(notice))
    return events.bytes()


class Events:
    """Events as they are written, numbered from `number` on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._written: list[bytes] = []

    def add(self, kind: str, **members: Any) -> None:
        self._write(kind.encode(), encode({"type": kind, "sequence_number": self.number, **members}))

    def put(self, name: bytes, members: Fields) -> None:
        """An event of the upstream's, under a number of its place here. name: b"" where it had none."""
        if "sequence_number" in members:
            members["sequence_number"] = Raw(b"%d" % self.number)
        self._write(name, object_of(members))

    def keep(self, event: bytes) -> None:
        """An event that no number counts."""
        self._written.append(event)

    def _write(self, name: bytes, data: bytes) -> None:
        self.number += 1
        self._written.append(b"%bdata: %b\n\n" % (b"event: %b\n" % name if name else b"", data))

    def bytes(self) -> bytes:
        return b"".join(self._written)


def _close(events: Events, shown: Iterable[Shown]) -> None:
    for item in shown:
        if not item.open:
            continue
        item_id = plain(members_of(item.raw).get("id", b""))
        for part in item.parts:
            place = {"item_id": item_id, "output_index": item.index, "content_index": part.index}
            if part.kind == "refusal":
                events.add("response.refusal.done", **place, refusal=part.text)
            else:
                events.add("response.output_text.done", **place, text=part.text, logprobs=[])
            events.add("response.content_part.done", **place, part=part.wire())
        events.add("response.output_item.done", output_index=item.index, item=Raw(item.raw))


def _tell(events: Events, index: int, item: dict[str, Any]) -> None:
    """An item from its beginning to its end."""
    place = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            (part,) = item["content"]
            events.add("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "content": []})
            place["content_index"] = 0
            events.add("response.content_part.added", **place, part=part | {"text": ""})
            events.add("response.output_text.delta", **place, delta=part["text"], logprobs=[])
            events.add("response.output_text.done", **place, text=part["text"], logprobs=[])
            events.add("response.content_part.done", **place, part=part)
        case "function_call":
            events.add("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "arguments": ""})
            events.add("response.function_call_arguments.delta", **place, delta=item["arguments"])
            events.add("response.function_call_arguments.done", **place, name=item["name"], arguments=item["arguments"])
        case _:
            events.add("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "input": ""})
            events.add("response.custom_tool_call_input.delta", **place, delta=item["input"])
            events.add("response.custom_tool_call_input.done", **place, input=item["input"])
    events.add("response.output_item.done", output_index=index, item=item)


def stream_error(code: str, message: str, notice: Notice | None, begun: Begun | None) -> bytes:
    """A response that failed. A stop says so with the one code that no client takes for a fault to be tried again; a fault does not.

    It is the response that the stream began with, under the next number: a parser takes no other.
    """
    known = "server_error" if notice is None else "invalid_prompt"
    begun = begun or Begun(Head(_mint("resp_lastcall_", Head(code, "", 0), 0), "", 0), started=True)
    standing = standing_of(begun)
    events = Events(standing.number)
    if not begun.started:
        events.add("response.created", response=_response(begun.head, "in_progress", [], None))
    output = [Raw(item.raw) for item in standing.shown if not item.open]
    failed = _ended(begun.head, "failed", output, None, standing.response) | {"error": {"code": known, "message": message}}
    events.add("response.failed", response=failed | lastcall.member(notice), **lastcall.member(notice))
    return events.bytes()


def _response(head: Head, status: str, output: Sequence[Any], usage: Usage | None) -> dict[str, Any]:
    """A response object with every member that clients take for granted."""
    return {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": head.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None if usage is None else _usage(usage),
        "user": None,
    }


def _ended(head: Head, status: str, output: Sequence[Any], usage: Usage | None, response: bytes) -> dict[str, Any]:
    """The response of a stream at its end: the one it began with, where it did."""
    if not response:
        return _response(head, status, output, usage)
    begun: dict[str, Any] = dict(members_of(response))
    ended = {"status": status, "error": None, "incomplete_details": None, "output": output}
    return begun | ended | {"usage": None if usage is None else _usage(usage)}


def _items(head: Head, text: str, calls: tuple[ToolCall, ...], start: int) -> list[dict[str, Any]]:
    items = [message_item(head, start, text)] if text or not calls else []
    return items + [_call_item(head, position, call) for position, call in enumerate(calls, start + len(items))]


def message_item(head: Head, position: int, text: str) -> dict[str, Any]:
    """An assistant message. position: its place among the items, which its id follows from."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": _mint(f"msg{OWN}", head, position), "type": "message", "status": "completed", "role": "assistant", "content": content}


def _call_item(head: Head, position: int, call: ToolCall) -> dict[str, Any]:
    call_id = call.id or _mint("call_", head, position)
    if call.custom:
        item = {"id": _mint(f"ctc{OWN}", head, position), "type": "custom_tool_call", "input": call.arguments}
    else:
        item = {"id": _mint(f"fc{OWN}", head, position), "type": "function_call", "arguments": call.arguments}
    return item | {"status": "completed", "call_id": call_id, "name": call.name}


def _mint(kind: str, head: Head, position: int) -> str:
    """An id for what the upstream did not make: the same each time, and another in each answer."""
    return kind + hashlib.blake2b(f"{head.id}/{position}".encode(), digest_size=12).hexdigest()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.written_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
