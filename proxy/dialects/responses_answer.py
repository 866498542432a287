"""Whole Responses answers: what one says, what it cost, and how calls are taken out of one."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects import notice as lastcall
from proxy.dialects.raw_json import FIELDS, UNREADABLE, Shape, list_of, object_of, plain, present, raw_list, read, text, whole
from proxy.dialects.responses_items import ITEMS, MESSAGE, REASONING, WireItem, call_of, hosted_call, joined_texts, kind_of, texts_of
from proxy.dialects.responses_render import message_item
from proxy.dialects.searches import with_searches
from proxy.models import Answer, Choice, Head, Notice, Usage


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
