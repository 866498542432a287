"""Whole Responses answers: what one says, what it cost, and how calls are taken out of one."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects import notice as lastcall
from proxy.dialects.raw_json import FIELDS, UNREADABLE, Count, Shape, list_of, object_of, plain, present, raw_list, read, text, whole
from proxy.dialects.responses_items import (
    ITEMS,
    MESSAGE,
    REASONING,
    WireItem,
    call_of,
    hosted_call,
    in_namespace,
    joined_texts,
    kind_of,
    texts_of,
)
from proxy.dialects.responses_render import message_item
from proxy.dialects.searches import with_searches
from proxy.dialects.token_details import TokenDetails, detailed_usage
from proxy.models import Answer, Choice, Head, Notice, ToolCall, Usage


class Body(Struct, gc=False):
    """A response: a whole answer, or what the events at a stream's beginning and end carry."""

    id: Any = None
    model: Any = None
    created_at: Any = None
    status: Any = None
    output: Raw = Raw()
    usage: Raw = Raw()
    error: Raw = Raw()
    incomplete_details: Raw = Raw()
    service_tier: Any = None


class _Incomplete(Struct, gc=False):
    reason: Any = None


# An answer as the standard has it, with the items that most answers are made of: read at once, in a third of the time that it takes to ask
# of each value what it is. What is `None` here must be null or missing.


class _UsualUsage(Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None


class _UsualPart(Struct, gc=False):
    text: str | None = None
    refusal: str | None = None


class _UsualItem(Struct, gc=False):
    type: Literal["message", "function_call", "custom_tool_call", "reasoning"]
    id: str | None = None
    content: list[_UsualPart] | None = None
    summary: list[_UsualPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None


class _UsualIncomplete(Struct, gc=False):
    reason: str | None = None


class _UsualBody(Struct, gc=False):
    output: list[_UsualItem]
    id: str | None = None
    model: str | None = None
    created_at: Count | None = None
    status: str | None = None
    usage: _UsualUsage | None = None
    error: None = None
    incomplete_details: _UsualIncomplete | None = None
    service_tier: str | None = None


_USUAL = Decoder(_UsualBody)

BODY = Decoder(Body)
BODIES = Shape(Body)
_INCOMPLETE = Shape(_Incomplete)


def read_usage(raw: bytes, tier: object = None) -> Usage | None:
    """The token counts of a `usage` object; None when it holds none. tier: the service tier that stands beside it."""
    usage = plain(raw) if present(raw) else None
    if not isinstance(usage, dict):
        return None
    spent, produced = whole(usage.get("input_tokens")), whole(usage.get("output_tokens"))
    if spent is None and produced is None:
        return None
    cached, written = (_detail(usage, "input_tokens_details", name) for name in ("cached_tokens", "cache_write_tokens"))
    reasoning = _detail(usage, "output_tokens_details", "reasoning_tokens")
    spent, produced = spent or 0, produced or 0
    cached = min(cached, spent)
    return Usage(
        spent,
        produced,
        cached,
        min(reasoning, produced),
        min(written, spent - cached),
        audio_input=_detail(usage, "input_tokens_details", "audio_tokens"),
        audio_output=_detail(usage, "output_tokens_details", "audio_tokens"),
        image_input=_detail(usage, "input_tokens_details", "image_tokens"),
        image_output=_detail(usage, "output_tokens_details", "image_tokens"),
        tier=text(tier) or "",
    )


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return (whole(details.get(name)) or 0) if isinstance(details, dict) else 0


def finish_of(body: Body) -> str | None:
    """How it ended, in the upstream's words: the reason for which it is incomplete, else its status."""
    return text(_INCOMPLETE.one(body.incomplete_details).reason) or text(body.status)


def created_of(body: Body) -> int | None:
    """Epoch seconds; some servers give fractions of them."""
    return int(body.created_at) if isinstance(body.created_at, float) and 0 <= body.created_at < 2**53 else whole(body.created_at)


def choice_of(items: Sequence[WireItem], finish: str | None) -> Choice:
    """What the items of an answer say."""
    texts: list[str] = []
    calls, hosted, ids = [], [], []
    for item in items:
        kind = kind_of(item)
        if kind == MESSAGE:
            texts += texts_of(item.content)
            ids.append(item.id)
        elif (call := call_of(item, kind)) is not None:
            calls.append(call)
            ids.append(item.id)
        elif (known := hosted_call(item, kind)) is not None:
            hosted.append(known[0])
    only_thinks = not "".join(texts).strip() and all(item.type == REASONING or kind_of(item) == MESSAGE for item in items)
    thoughts = [piece for item in items if item.type == REASONING for piece in _thoughts_of(item)] if only_thinks else []
    return Choice(joined_texts(texts), tuple(calls), finish, tuple(hosted), tuple([id for id in ids if text(id)]), joined_texts(thoughts))


def _thoughts_of(item: WireItem) -> list[str]:
    """What a reasoning item shows: itself, else its summary."""
    return texts_of(item.content) or texts_of(item.summary)


def read_answer(body: bytes) -> Answer:
    """Reads a whole answer. It is complete when it could be read to its end and holds a list of items."""
    try:
        usual = _USUAL.decode(body)
    except UNREADABLE:
        return _read_any(body)
    status, why = usual.status or None, usual.incomplete_details
    choice = _usual_choice(usual.output, (why.reason if why is not None else None) or status)
    usage = None if usual.usage is None else _usual_usage(usual.usage, usual.service_tier)
    return Answer((choice,), usage, usual.id or None, usual.model or None, usual.created_at, True, status == "failed")


def _usual_choice(items: list[_UsualItem], finish: str | None) -> Choice:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    ids: list[str] = []
    for item in items:
        kind = item.type
        if kind == REASONING:
            thoughts += _usual_texts(item.content) or _usual_texts(item.summary)
            continue
        if item.id:
            ids.append(item.id)
        if kind == MESSAGE:
            texts += _usual_texts(item.content)
            continue
        name = item.name or ""
        if item.namespace:
            name = in_namespace(item.namespace, name)
        if kind == "function_call":
            calls.append(ToolCall(item.call_id or item.id or None, name, item.arguments or ""))
        else:
            calls.append(ToolCall(item.call_id or item.id or None, name, item.input or "", True))
    said = joined_texts(texts)
    return Choice(said, tuple(calls), finish, (), tuple(ids), "" if calls or said.strip() else joined_texts(thoughts))


def _usual_texts(parts: list[_UsualPart] | None) -> list[str]:
    if not parts:
        return []
    return [piece for part in parts if (piece := part.text or part.refusal)]


def _usual_usage(usage: _UsualUsage, tier: str | None) -> Usage:
    return detailed_usage(usage.input_tokens, usage.output_tokens, usage.input_tokens_details, usage.output_tokens_details, tier)


def _read_any(body: bytes) -> Answer:
    """The same of an answer in which some value may be another than the standard has it, or some item a rarer one."""
    try:
        wire = read(BODY, body)
    except UNREADABLE:
        return Answer()
    answered = bytes(wire.output).startswith(b"[")
    choices = (choice_of(ITEMS.many(wire.output), finish_of(wire)),) if answered else ()
    return Answer(
        choices=choices,
        usage=with_searches(read_usage(wire.usage, wire.service_tier), choices),
        id=text(wire.id),
        model=text(wire.model),
        created=created_of(wire),
        complete=answered,
        error=present(wire.error) or wire.status == "failed",
    )


def places_without(items: Sequence[WireItem], dropped: Collection[int]) -> set[int]:
    """Places of the items that go when the calls at these positions do: the calls, and the reasoning that led to nothing else.

    Reasoning that is sent back without an item behind it is refused.
    """
    kinds = [kind_of(item) for item in items]
    calls = [place for place, item in enumerate(items) if call_of(item, kinds[place]) is not None]
    gone = {calls[position] for position in dropped if position < len(calls)}
    last = max(gone, default=-1)
    for place in range(len(items) - 1, -1, -1):
        if place not in gone and kinds[place] != REASONING:
            break
        if place < last:
            gone.add(place)
    return gone


def pruned_output(output: bytes, dropped: Collection[int], notice: Notice, head: Head) -> bytes:
    """A list of items without the calls at these positions. Left without calls and text it says the notice's message."""
    items = ITEMS.many(output)
    gone = places_without(items, dropped)
    kept = [raw for place, raw in enumerate(raw_list(output)) if place not in gone]
    left = choice_of([item for place, item in enumerate(items) if place not in gone], None)
    if gone and not left.calls and not left.text:
        kept.append(Raw(encode(message_item(head, len(kept), notice.message))))
    return list_of(kept)


def prune(body: bytes, drop: Collection[tuple[int, int]], notice: Notice) -> bytes:
    """The answer without the calls at these (choice, call) positions of `read_answer`, plus the notice. What is unreadable stays."""
    try:
        members = read(FIELDS, body)
        head = Head(text(plain(members.get("id", b""))) or "", "", 0)
        members["output"] = Raw(pruned_output(members["output"], {call for choice, call in drop if choice == 0}, notice, head))
    except (*UNREADABLE, KeyError):
        return body
    members["lastcall"] = lastcall.raw(notice)
    return object_of(members)
