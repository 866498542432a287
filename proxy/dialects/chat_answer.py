"""Whole chat-completions answers: what one says, and how calls are taken out of one."""

from collections.abc import Collection
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects import notice as lastcall
from proxy.dialects.chat_calls import UsualCall, read_calls, usual_calls
from proxy.dialects.raw_json import (
    FIELDS,
    UNREADABLE,
    Count,
    Fields,
    Shape,
    fields,
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
from proxy.dialects.token_details import TokenDetails, detailed_usage
from proxy.models import Answer, Choice, Notice, ToolCall, Usage


class Body(Struct, gc=False):
    """An answer, or one chunk of a streamed one. x_groq: where one provider keeps its usage."""

    id: Any = None
    model: Any = None
    created: Any = None
    choices: Raw = Raw()
    usage: Raw = Raw()
    error: Raw = Raw()
    x_groq: Raw = Raw()
    service_tier: Any = None


class WireChoice(Struct, gc=False):
    """One alternative, with `message` when whole and `delta` when streamed. One provider keeps its usage in here."""

    index: Any = None
    message: Raw = Raw()
    delta: Raw = Raw()
    finish_reason: Any = None
    usage: Raw = Raw()


class WireMessage(Struct, gc=False):
    """A message, or what a chunk adds to one."""

    content: Any = None
    refusal: Any = None
    tool_calls: Raw = Raw()
    function_call: Raw = Raw()
    reasoning_content: Any = None
    reasoning: Any = None
    audio: Raw = Raw()
    images: Raw = Raw()

    def thought(self) -> str:
        """What is shown of the model's reasoning, under either of the names that servers give it."""
        return _text_of(self.reasoning_content) or _text_of(self.reasoning)

    def shows(self) -> bool:
        """Whether there is something for a person besides words: sound, or a picture."""
        parts = self.content if isinstance(self.content, list) else ()
        return present(self.audio) or present(self.images) or any(_is_shown(part) for part in parts)

    def text(self) -> str:
        """What a person reads: the content, be it text or parts, or the refusal in its place."""
        return _text_of(self.content) + _text_of(self.refusal)


# An answer as the standard has it, which nearly every one is: read at once, in a fifth of the time that it takes to ask of each value
# what it is. What is `None` here must be null or missing.


class _UsualInput(TokenDetails, gc=False):
    web_search_requests: None = None


class _UsualUsage(Struct, gc=False):
    prompt_tokens: Count
    completion_tokens: Count
    prompt_tokens_details: _UsualInput | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: None = None
    num_search_queries: None = None
    server_tool_use: None = None
    service_tier: None = None


class UsualWords(Struct, gc=False):
    """What a message or a chunk says, but for its calls."""

    content: str | None = None
    refusal: str | None = None
    function_call: None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    audio: None = None
    images: None = None


class _UsualMessage(UsualWords, gc=False):
    tool_calls: list[UsualCall] | None = None


class _UsualChoice(Struct, gc=False):
    message: _UsualMessage
    finish_reason: str | None = None
    usage: None = None


class _UsualBody(Struct, gc=False):
    choices: list[_UsualChoice]
    id: str | None = None
    model: str | None = None
    created: Count | None = None
    usage: _UsualUsage | None = None
    error: None = None
    x_groq: None = None
    service_tier: str | None = None


_USUAL = Decoder(_UsualBody)

BODY = Decoder(Body)
CHOICES = Shape(WireChoice)
MESSAGE = Shape(WireMessage)
_ELSEWHERE = Shape(Body)


def _text_of(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join([_text_of(part.get("text")) for part in content if isinstance(part, dict)]) if isinstance(content, list) else ""


def _is_shown(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") not in (None, "text", "thinking", "refusal")


def only_thought(thought: str, text: str, calls: tuple[ToolCall, ...], *, shows: bool) -> str:
    """What an answer thought, where it holds nothing else."""
    return "" if calls or shows or text.strip() else thought


def read_usage(raw: bytes, tier: object = None) -> Usage | None:
    """The token counts of a `usage` object; None when it holds none. tier: the service tier that stands beside it."""
    usage = plain(raw) if present(raw) else None
    if not isinstance(usage, dict):
        return None
    spent, produced = whole(usage.get("prompt_tokens")), whole(usage.get("completion_tokens"))
    if spent is None and produced is None:
        return None
    spent, produced = spent or 0, produced or 0
    of_input, of_output = _details(usage, "prompt_tokens_details"), _details(usage, "completion_tokens_details")
    cached = whole(of_input.get("cached_tokens")) or whole(usage.get("prompt_cache_hit_tokens")) or 0
    cached = min(cached, spent)
    return Usage(
        spent,
        produced,
        cached,
        min(whole(of_output.get("reasoning_tokens")) or 0, produced),
        min(whole(of_input.get("cache_write_tokens")) or 0, spent - cached),
        audio_input=whole(of_input.get("audio_tokens")) or 0,
        audio_output=whole(of_output.get("audio_tokens")) or 0,
        image_input=whole(of_input.get("image_tokens")) or 0,
        image_output=whole(of_output.get("image_tokens")) or 0,
        tier=text(tier) or text(usage.get("service_tier")) or "",
        searches=searches_in(usage) or whole(usage.get("num_search_queries")) or whole(of_input.get("web_search_requests")) or 0,
    )


def _details(usage: dict[str, Any], group: str) -> dict[str, Any]:
    details = usage.get(group)
    return details if isinstance(details, dict) else {}


def usage_in(body: Body, choices: list[WireChoice]) -> Usage | None:
    """The usage, wherever the server put it."""
    places = [choice.usage for choice in choices if choice.usage]
    if not (body.usage or places or body.x_groq):  # of a stream nearly every chunk
        return None
    for raw in (body.usage, *places, _ELSEWHERE.one(body.x_groq).usage):
        if (usage := read_usage(raw, body.service_tier)) is not None:
            return usage
    return None


def read_answer(body: bytes) -> Answer:
    """Reads a whole answer. It is complete when it could be read to its end and holds a choice."""
    try:
        usual = _USUAL.decode(body)
    except UNREADABLE:
        return _read_any(body)
    choices = []
    failed = False
    for choice in usual.choices:
        choices.append(_usual_choice(choice))
        if choice.finish_reason == "error":
            failed = True
    usage = None if usual.usage is None else _usual_usage(usual.usage, usual.service_tier)
    return Answer(tuple(choices), usage, usual.id or None, usual.model or None, usual.created, bool(choices), failed)


def _usual_choice(choice: _UsualChoice) -> Choice:
    message = choice.message
    said = message.content or ""
    if message.refusal:
        said += message.refusal
    calls = usual_calls(message.tool_calls) if message.tool_calls else ()
    thought = message.reasoning_content or message.reasoning
    if not thought:
        return Choice(said, calls, choice.finish_reason or None)
    return Choice(said, calls, choice.finish_reason or None, thought=only_thought(thought, said, calls, shows=False))


def _usual_usage(usage: _UsualUsage, tier: str | None) -> Usage:
    of_input, of_output = usage.prompt_tokens_details, usage.completion_tokens_details
    return detailed_usage(usage.prompt_tokens, usage.completion_tokens, of_input, of_output, tier)


def _read_any(body: bytes) -> Answer:
    """The same of an answer in which some value may be another than the standard has it."""
    try:
        wire = read(BODY, body)
    except UNREADABLE:
        return Answer()
    choices = CHOICES.many(wire.choices)
    return Answer(
        choices=tuple([_choice(choice) for choice in choices]),
        usage=usage_in(wire, choices),
        id=text(wire.id),
        model=text(wire.model),
        created=whole(wire.created),
        complete=bool(choices),
        error=present(wire.error) or any(choice.finish_reason == "error" for choice in choices),
    )


def _choice(choice: WireChoice) -> Choice:
    message = MESSAGE.one(choice.message)
    calls = read_calls(message.tool_calls, message.function_call)
    said = message.text()
    thought = only_thought(message.thought(), said, calls, shows=message.shows())
    return Choice(said, calls, text(choice.finish_reason), thought=thought)


def prune(body: bytes, drop: Collection[tuple[int, int]], notice: Notice) -> bytes:
    """The answer without the calls at these (choice, call) positions of `read_answer`, plus the notice.

    A choice left without calls ends as text does, and says the notice's message if it would say nothing: an assistant message with
    neither text nor calls is refused by upstreams once it stands in the history. An unreadable answer is returned as it is.
    """
    try:
        members = read(FIELDS, body)
        choices = raw_list(members["choices"])
        for position in sorted({choice for choice, _ in drop if 0 <= choice < len(choices)}):
            dropped = {call for choice, call in drop if choice == position}
            choices[position] = _prune_choice(choices[position], dropped, notice.message)
    except (*UNREADABLE, KeyError):
        return body
    members["choices"] = Raw(list_of(choices))
    members["lastcall"] = lastcall.raw(notice)
    return object_of(members)


def _prune_choice(raw: Raw, dropped: set[int], message_if_empty: str) -> Raw:
    choice = fields(raw)
    message = fields(choice["message"])
    _drop_calls(message, dropped)
    if "tool_calls" not in message and "function_call" not in message:
        choice["finish_reason"] = Raw(b'"stop"')
        if not MESSAGE.one(choice["message"]).text():
            message["content"] = Raw(quoted(message_if_empty))
    choice["message"] = Raw(object_of(message))
    return Raw(object_of(choice))


def _drop_calls(message: Fields, dropped: set[int]) -> None:
    """Takes the calls out of a message; the legacy one counts as the last. Empty members go too."""
    tool_calls = message.get("tool_calls", b"")
    calls = raw_list(tool_calls) if present(tool_calls) else []
    kept = [call for position, call in enumerate(calls) if position not in dropped]
    if len(calls) in dropped or not present(message.get("function_call", b"")):
        message.pop("function_call", None)
    if not kept:
        message.pop("tool_calls", None)
    elif len(kept) < len(calls):
        message["tool_calls"] = Raw(list_of(kept))
