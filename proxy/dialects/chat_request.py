"""Chat-completions requests: what Lastcall reads of one, and the edits it can make in one.

Only `messages` has to be what the dialect says (a list of objects) and `model`, where it is there, a string. Any other value of a wrong
type is read as absent and passed on: judging it is the upstream's business.
"""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects.body import TOO_DEEP, Hinted, hints_of, read_body, read_more, tier_of
from proxy.dialects.chat_calls import Custom, Function, UsualCall, read_calls
from proxy.dialects.raw_json import (
    FIELDS,
    Fields,
    Shape,
    add_member,
    append_text,
    fields,
    flag,
    list_of,
    object_of,
    plain,
    present,
    raw_list,
    read,
    text,
    whole,
)
from proxy.errors import BadRequest
from proxy.models import Edits, Insert, Item, Request, Role, ToolCall

MOST_CHOICES = 128
_OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_USER = Role.USER  # looking it up costs as much as an item


class _Message(Struct, gc=False):
    role: Any = None
    content: Raw = Raw()
    tool_calls: Raw = Raw()
    function_call: Raw = Raw()
    tool_call_id: Any = None


class _Body(Hinted, kw_only=True, gc=False):
    messages: list[_Message]
    model: str = ""
    tools: Raw = Raw()
    functions: Raw = Raw()
    tool_choice: Raw = Raw()
    function_call: Raw = Raw()
    stream: Raw = Raw()
    stream_options: Raw = Raw()
    n: Raw = Raw()
    max_completion_tokens: Raw = Raw()
    max_tokens: Raw = Raw()
    web_search_options: Raw = Raw()


class _UsualMessage(Struct, gc=False):
    role: str
    content: Raw = Raw()
    tool_calls: list[UsualCall] | None = None
    function_call: Raw = Raw()
    tool_call_id: str | None = None


class _UsualBody(_Body, kw_only=True, gc=False):
    """A body as nearly all are: read in one pass, in a third of the time."""

    messages: list[_UsualMessage]  # type: ignore[assignment]


class _Part(Struct, gc=False):
    type: Any = None
    image_url: Raw = Raw()


class _StreamOptions(Struct, gc=False):
    include_usage: Any = None


class _Tool(Struct, gc=False):
    function: Function | None = None
    custom: Custom | None = None


_BODY = Decoder(_Body)
_USUAL_BODY = Decoder(_UsualBody)
_USUAL_MESSAGES = Decoder(list[_UsualMessage])
_STREAM_OPTIONS = Shape(_StreamOptions)
_TOOLS = Shape(_Tool)
_PARTS = Shape(_Part)
_FUNCTIONS = Shape(Function)


def parse_request(body: bytes) -> Request:
    """Reads a request. Raises `BadRequest` on bytes that are not one."""
    wire = read_body(body, _USUAL_BODY, _BODY, "messages")
    choices, searched = min(whole(plain(wire.n)) or 1, MOST_CHOICES), present(wire.web_search_options)
    items = _usual_items(wire.messages) if isinstance(wire, _UsualBody) else tuple([_item(message) for message in wire.messages])
    attachments, picture_bytes = _attached(items)
    return Request(
        body=body,
        model=wire.model,
        items=items,
        tools=_tool_names(wire.tools, wire.functions),
        tools_raw=bytes(wire.tools if present(wire.tools) else wire.functions),
        tools_off=plain(wire.tool_choice) == "none" or plain(wire.function_call) == "none",
        stream=flag(plain(wire.stream)),
        wants_usage=flag(_STREAM_OPTIONS.one(wire.stream_options).include_usage),
        choices=choices,
        max_output=_output_limit(wire),
        hints=hints_of(wire),
        tier=tier_of(wire),
        searches=choices if searched else 0,
        searched=searched,
        attachments=attachments,
        picture_bytes=picture_bytes,
        elements=len(wire.messages),
    )


def grow_request(request: Request, body: bytes, elements: bytes) -> Request | None:
    """The request with further messages; None where they are unusual."""
    messages = read_more(elements, _USUAL_MESSAGES)
    if messages is None:
        return None
    items = _usual_items(messages)
    return request.grown(body, items, len(messages), *_attached(items))


def _usual_items(messages: list[_UsualMessage]) -> tuple[Item, ...]:
    items = []
    for message in messages:
        role, calls = _ROLES.get(message.role, _USER), message.tool_calls
        if message.function_call:
            items.append(_item(_Message(role, message.content, Raw(encode(calls)), message.function_call, message.tool_call_id)))
            continue
        made = tuple([ToolCall(call.id or None, call.function.name, call.function.arguments) for call in calls]) if calls else ()
        items.append(Item(role, bytes(message.content), made, message.tool_call_id or None))
    return tuple(items)


def _item(message: _Message) -> Item:
    role = message.role
    return Item(
        _ROLES.get(role, _USER) if isinstance(role, str) else _USER,
        bytes(message.content),
        read_calls(message.tool_calls, message.function_call),
        text(message.tool_call_id),
    )


def _tool_names(tools: bytes, functions: bytes) -> tuple[str, ...]:
    offered = [tool.function or tool.custom for tool in _TOOLS.many(tools)] + _FUNCTIONS.many(functions)
    return tuple([tool.name for tool in offered if tool is not None and isinstance(tool.name, str)])


_TEXTS = (b'"type":"text"', b'"type": "text"')
_PARTS_OF_TEXT = ("text", "refusal")
_PICTURE = b'"data:image/'


def _attached(items: tuple[Item, ...]) -> tuple[int, int]:
    """How many parts are no text, and how many bytes of them are pictures written out. Parts that say nothing else are not decoded."""
    count = size = 0
    for item in items:
        content = item.content
        if content[:1] != b"[" or content.count(b'"type"') == sum([content.count(text) for text in _TEXTS]):
            continue
        attached = [part for part in _PARTS.many(content) if part.type is not None and part.type not in _PARTS_OF_TEXT]
        count += len(attached)
        size += sum(len(bytes(part.image_url)) for part in attached if _PICTURE in bytes(part.image_url))
    return count, size


def _output_limit(wire: _Body) -> int | None:
    """The larger one if both are there, since some upstreams know only one. 0 and less mean no limit to some."""
    limits = [whole(plain(wire.max_completion_tokens)), whole(plain(wire.max_tokens))]
    return max((limit for limit in limits if limit), default=None)


def rewrite_request(request: Request, edits: Edits) -> bytes:
    """The body with the edits made; the same object when they change nothing.

    Where something changes, the top-level object and the touched messages are written anew around their values, which stay as they
    were; a mere `ask_usage` leaves even the space between them. Raises `BadRequest` where the body is too deep to be read again.
    """
    try:
        body = _edit_members(request.body, edits)
        return _ask_usage(body) if edits.ask_usage and not request.wants_usage else body
    except RecursionError:
        # How deep is too deep depends on how deep the caller's stack is, so `parse` may just have managed.
        raise BadRequest(TOO_DEEP) from None


def _edit_members(body: bytes, edits: Edits) -> bytes:
    if not edits.inserts and not edits.no_tools and edits.force_tool is None and edits.max_output is None:
        return body
    members = read(FIELDS, body)
    before = dict(members)
    _insert(members, edits.inserts)
    _choose_tool(members, edits)
    _limit_output(members, edits.max_output)
    return body if members == before else object_of(members)


def _insert(members: Fields, inserts: tuple[Insert, ...]) -> None:
    if not inserts:
        return
    messages = raw_list(members["messages"])
    for insert in inserts:
        message = fields(messages[insert.item])
        message["content"] = Raw(append_text(bytes(message.get("content", b"")), insert.text))
        messages[insert.item] = Raw(object_of(message))
    members["messages"] = Raw(list_of(messages))


def _choose_tool(members: Fields, edits: Edits) -> None:
    """Forces the named tool if it is offered, or forbids those that are; old-style functions have a switch of their own."""
    tools, functions = _TOOLS.many(members.get("tools", b"")), _FUNCTIONS.many(members.get("functions", b""))
    name = edits.force_tool
    if name is not None and any(tool.function and tool.function.name == name for tool in tools):
        members["tool_choice"] = Raw(encode({"type": "function", "function": {"name": name}}))
    elif name is not None and any(tool.custom and tool.custom.name == name for tool in tools):
        members["tool_choice"] = Raw(encode({"type": "custom", "custom": {"name": name}}))
    elif name is not None and any(function.name == name for function in functions):
        members["function_call"] = Raw(encode({"name": name}))
    elif edits.no_tools:
        members |= {"tool_choice": Raw(b'"none"')} if tools else {}
        members |= {"function_call": Raw(b'"none"')} if functions else {}


def _limit_output(members: Fields, limit: int | None) -> None:
    if limit is None:
        return
    sent = [name for name in _OUTPUT_LIMITS if present(members.get(name, b""))]
    for name in sent or _OUTPUT_LIMITS[:1]:
        own = whole(plain(members.get(name, b"")))
        if not own or own > limit:
            members[name] = Raw(encode(limit))


def _ask_usage(body: bytes) -> bytes:
    wish = b'"stream_options":{"include_usage":true}'
    if b"stream_options" not in body:
        return add_member(body, wish)
    members = read(FIELDS, body)
    options = bytes(members.get("stream_options", b""))
    if not options:
        return add_member(body, wish)
    if options == b"null":
        members["stream_options"] = Raw(b'{"include_usage":true}')
    elif options.startswith(b"{"):
        members["stream_options"] = Raw(object_of(fields(options) | {"include_usage": Raw(b"true")}))
    else:
        return body
    return object_of(members)
