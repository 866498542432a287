"""Whole messages answers: what one says, what it cost, and how calls are taken out of one."""

from collections.abc import Collection
from typing import Any, Literal

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects import notice as lastcall
from proxy.dialects.messages_blocks import (
    BLOCKS,
    CALL,
    HOSTED,
    TEXT,
    THINKING,
    arguments_of,
    call_of,
    calls_of,
    joined_texts,
    only_thoughts,
)
from proxy.dialects.raw_json import (
    FIELDS,
    UNREADABLE,
    Count,
    Shape,
    list_of,
    object_of,
    plain,
    present,
    quoted,
    raw_list,
    read,
    text,
    whole,
)
from proxy.dialects.searches import searches_in
from proxy.models import Answer, Choice, Notice, ToolCall, Usage


class Body(Struct, gc=False):
    """An answer; also the `message` that opens a stream."""

    type: Any = None
    id: Any = None
    model: Any = None
    content: Raw = Raw()
    stop_reason: Any = None
    usage: Raw = Raw()
    error: Raw = Raw()


# An answer as the standard has it, of words, thoughts and calls, as nearly every one is: read at once, in half the time that it takes to
# ask of each value what it is. What is `None` here must be null or missing.


class _UsualCreation(Struct, gc=False):
    ephemeral_1h_input_tokens: Count | None = None


class _UsualSearches(Struct, gc=False):
    web_search_requests: Count | None = None


class _UsualUsage(Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _UsualCreation | None = None
    server_tool_use: _UsualSearches | None = None
    service_tier: str | None = None


class _UsualBlock(Struct, gc=False):
    type: Literal["text", "thinking", "redacted_thinking", "tool_use"]
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class _UsualBody(Struct, gc=False):
    content: list[_UsualBlock]
    type: str | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _UsualUsage | None = None
    error: None = None


_USUAL = Decoder(_UsualBody)

_BODY = Decoder(Body)
MESSAGE = Shape(Body)


def read_usage(raw: bytes, before: Usage | None = None) -> Usage | None:
    """The token counts of a `usage` object, over those known before: a stream gives some at its start and others at its end.

    The API's `input_tokens` leaves out what came from the cache or went into it; here it is all input.
    """
    usage = plain(raw) if present(raw) else None
    if not isinstance(usage, dict):
        return before
    fresh, produced = whole(usage.get("input_tokens")), whole(usage.get("output_tokens"))
    if fresh is None and produced is None:
        return before
    known = before or Usage()
    cached, written = whole(usage.get("cache_read_input_tokens")), whole(usage.get("cache_creation_input_tokens"))
    cached = known.cached_tokens if cached is None else cached
    written = known.written_tokens if written is None else written
    if fresh is None:
        fresh = known.input_tokens - known.cached_tokens - known.written_tokens
    produced = known.output_tokens if produced is None else produced
    kept = _kept(usage)
    return Usage(
        fresh + cached + written,
        produced,
        cached,
        0,
        written,
        known.kept_tokens if kept is None else min(kept, written),
        tier=text(usage.get("service_tier")) or known.tier,
        searches=max(known.searches, searches_in(usage)),
    )


def _kept(usage: dict[str, Any]) -> int | None:
    """Of what was written to the cache, what stays there for an hour; None where the object does not say."""
    written = usage.get("cache_creation")
    return whole(written.get("ephemeral_1h_input_tokens")) if isinstance(written, dict) else None


def read_answer(body: bytes) -> Answer:
    """Reads a whole answer. It is complete when it could be read to its end and is a message."""
    try:
        usual = _USUAL.decode(body)
    except UNREADABLE:
        return _read_any(body)
    choice = _usual_choice(usual.content, usual.stop_reason or None)
    usage = None if usual.usage is None else _usual_usage(usual.usage)
    return Answer((choice,), usage, usual.id or None, usual.model or None, None, True, usual.type == "error")


def _usual_choice(blocks: list[_UsualBlock], finish: str | None) -> Choice:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        kind = block.type
        if kind == CALL:
            calls.append(ToolCall(block.id or None, block.name or "", arguments_of(block.input)))
        elif kind == TEXT and block.text is not None:
            texts.append(block.text)
        elif kind == THINKING and block.thinking is not None:
            thoughts.append(block.thinking)
    said = joined_texts(texts)
    return Choice(said, tuple(calls), finish, (), (), "" if calls or said.strip() else joined_texts(thoughts))


def _usual_usage(usage: _UsualUsage) -> Usage:
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    created, searches = usage.cache_creation, usage.server_tool_use
    return Usage(
        usage.input_tokens + cached + written,
        usage.output_tokens,
        cached,
        0,
        written,
        0 if created is None else min(created.ephemeral_1h_input_tokens or 0, written),
        tier=usage.service_tier or "",
        searches=0 if searches is None else searches.web_search_requests or 0,
    )


def _read_any(body: bytes) -> Answer:
    """The same of an answer in which some value may be another than the standard has it, or some block a rarer one."""
    try:
        wire = read(_BODY, body)
    except UNREADABLE:
        return Answer()
    failed = present(wire.error) or wire.type == "error"
    if not present(wire.content):
        return Answer(error=failed)
    blocks = BLOCKS.many(wire.content)
    texts = [block.text for block in blocks if block.type == TEXT and isinstance(block.text, str)]
    thoughts = [block.thinking for block in blocks if block.type == THINKING and isinstance(block.thinking, str)]
    hosted = tuple([call_of(block) for block in blocks if block.type in HOSTED])
    return Answer(
        choices=(
            Choice(joined_texts(texts), calls_of(blocks), text(wire.stop_reason), hosted, thought=only_thoughts(blocks, texts, thoughts)),
        ),
        usage=read_usage(wire.usage),
        id=text(wire.id),
        model=text(wire.model),
        complete=True,
        error=failed,
    )


def prune(body: bytes, drop: Collection[tuple[int, int]], notice: Notice) -> bytes:
    """The answer without the calls at these (choice, call) positions of `read_answer`, plus the notice.

    Without calls left it ends as text does, and says the notice's message if it would say nothing: an assistant message that is empty
    is refused once it stands in the history. An unreadable answer is returned as it is.
    """
    try:
        members = read(FIELDS, body)
        content = members["content"]
        raws, blocks = raw_list(content), BLOCKS.many(content)
    except (*UNREADABLE, KeyError):
        return body
    dropped = {call for choice, call in drop if choice == 0}
    calls = [place for place, block in enumerate(blocks) if block.type == CALL]
    gone = {place for number, place in enumerate(calls) if number in dropped}
    kept = [raw for place, raw in enumerate(raws) if place not in gone]
    if len(gone) == len(calls):
        members["stop_reason"] = Raw(b'"end_turn"')
        if not any(block.type == TEXT and text(block.text) for block in blocks):
            kept.append(Raw(b'{"type":"text","text":' + quoted(notice.message) + b"}"))
    members["content"] = Raw(list_of(kept))
    members["lastcall"] = lastcall.raw(notice)
    return object_of(members)
