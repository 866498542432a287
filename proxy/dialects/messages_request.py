"""Messages requests: what Lastcall reads of one, and the edits it can make in one.

A user message holds tool results beside text. Each result becomes an item, what stands beside them (reminders, environment details) one
user item behind them. What the provider carried out itself stands before its answer as a call with its result. Text that is added to a
result stands as a block of its own behind all results of its message, where the API wants it; nothing else moves, so that signed thinking
stays bound to what came before it and `cache_control` marks the same blocks.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects.body import TOO_DEEP, Hinted, hints_of, read_body, read_more, tier_of
from proxy.dialects.messages_blocks import BLOCKS, CALL, RESULT, Block, UsualBlock, blocks_of, call_of, hosted_of
from proxy.dialects.messages_blocks import HOSTED as HOSTED_TYPES
from proxy.dialects.raw_json import (
    FIELDS,
    Fields,
    Shape,
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
from proxy.dialects.searches import most_searches
from proxy.errors import BadRequest
from proxy.models import HOSTED, Edits, Insert, Item, Request, Role, ToolCall, text_of

LEAST_THINKING = 1_024  # tokens: the least `budget_tokens` that the API takes
_SYSTEM_PLACE = -1
_ROLES = {"assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_USER, _ASSISTANT, _TOOL = Role.USER, Role.ASSISTANT, Role.TOOL  # looking one up costs as much as an item
# Claude Code's first system block names its version and a checksum of the request: another one each time.
_ATTRIBUTION = "x-anthropic-billing-header"


class _Message(Struct, gc=False):
    role: Any = None
    content: Raw = Raw()


class _Body(Hinted, kw_only=True, gc=False):
    messages: list[_Message]
    model: str = ""
    system: Raw = Raw()
    tools: Raw = Raw()
    mcp_servers: Raw = Raw()
    tool_choice: Raw = Raw()
    stream: Raw = Raw()
    max_tokens: Raw = Raw()


class _UsualMessage(Struct, gc=False):
    role: str
    content: Raw = Raw()


class _UsualBody(_Body, kw_only=True, gc=False):
    """A body as nearly all are."""

    messages: list[_UsualMessage]  # type: ignore[assignment]


class _Tool(Struct, gc=False):
    name: Any = None
    mcp_server_name: Any = None


class _Choice(Struct, gc=False):
    type: Any = None


_BODY = Decoder(_Body)
_USUAL_BODY = Decoder(_UsualBody)
_USUAL_MESSAGES = Decoder(list[_UsualMessage])
_TOOLS = Shape(_Tool)
_CHOICE = Shape(_Choice)


def parse_request(body: bytes) -> Request:
    """Reads a request. Raises `BadRequest` on bytes that are not one."""
    wire = read_body(body, _USUAL_BODY, _BODY, "messages")
    items = [Item(Role.SYSTEM, _without_attribution(bytes(wire.system)), place=_SYSTEM_PLACE)] if present(wire.system) else []
    attached: list[Block | UsualBlock] = []
    for place, message in enumerate(wire.messages):
        items += _items(message, place, attached)
    return Request(
        body=body,
        model=wire.model,
        items=tuple(items),
        tools=tuple(_tool_names(wire)),
        tools_raw=bytes(wire.tools),
        tools_off=_CHOICE.one(wire.tool_choice).type == "none",
        stream=flag(plain(wire.stream)),
        wants_usage=True,  # no stream of this dialect is without
        max_output=whole(plain(wire.max_tokens)) or None,
        hints=hints_of(wire),
        tier=tier_of(wire),
        searches=most_searches(bytes(wire.tools)),
        attachments=len(attached),
        picture_bytes=_picture_bytes(attached),
        elements=len(wire.messages),
    )


def grow_request(request: Request, body: bytes, elements: bytes) -> Request | None:
    """The request with further messages; None where they are unusual."""
    messages = read_more(elements, _USUAL_MESSAGES)
    if messages is None:
        return None
    attached: list[Block | UsualBlock] = []
    items: list[Item] = []
    for place, message in enumerate(messages, request.elements):
        items += _items(message, place, attached)
    return request.grown(body, tuple(items), len(messages), len(attached), _picture_bytes(attached) if attached else 0)


def _picture_bytes(attached: list[Block | UsualBlock]) -> int:
    return sum([len(block.source) for block in attached if block.type == "image" and b'"base64"' in bytes(block.source)])


def _tool_names(wire: _Body) -> list[str]:
    """What calls of the offered tools are called here: those of a server are known by its name."""
    named = [tool.name if tool.mcp_server_name is None else tool.mcp_server_name for tool in _TOOLS.many(wire.tools)]
    if present(wire.mcp_servers):
        named += [server.name for server in _TOOLS.many(wire.mcp_servers) if server.name not in named]
    return [name for name in named if isinstance(name, str)]


def _without_attribution(system: bytes) -> bytes:
    if _ATTRIBUTION.encode() not in system or not system.startswith(b"["):
        return system
    blocks = zip(raw_list(system), BLOCKS.many(system), strict=True)
    kept = [raw for raw, block in blocks if not (isinstance(block.text, str) and block.text.startswith(_ATTRIBUTION))]
    return list_of(kept)


_ATTACHED = ("image", "document", "container_upload")


def _items(message: _Message | _UsualMessage, place: int, attached: list[Block | UsualBlock]) -> list[Item]:
    """What a message holds. attached: gets the parts that are no text, of what people and tools say."""
    content, said_by = bytes(message.content), message.role
    role = _ROLES.get(said_by, _USER) if isinstance(said_by, str) else _USER
    blocks = blocks_of(content)
    if role is _ASSISTANT:
        return _answered(content, blocks, place)
    results = []
    for block in blocks:
        if block.type == RESULT:
            said = bytes(block.content)
            results.append(Item(_TOOL, said, (), text(block.tool_use_id), block.is_error is True, place))
            if said[:1] == b"[":
                attached += [part for part in blocks_of(said) if part.type in _ATTACHED]
        elif block.type in _ATTACHED:
            attached.append(block)
    if not results:
        return [Item(role, content, place=place)]
    if len(results) < len(blocks):
        beside = [raw for raw, block in zip(raw_list(content), blocks, strict=True) if block.type != RESULT]
        results.append(Item(role, list_of(beside), place=place))
    return results


def _answered(content: bytes, blocks: Sequence[Block | UsualBlock], place: int) -> list[Item]:
    calls: list[ToolCall] = []
    hosted = False
    for block in blocks:
        if block.type == CALL:
            calls.append(call_of(block))
        elif block.type in HOSTED_TYPES:
            hosted = True
    answer = Item(_ASSISTANT, content, tuple(calls), None, False, place)
    if not hosted:
        return [answer]
    made = _hosted_items(hosted_of(blocks), place)
    return [*made, answer] if calls or text_of(content).strip() else made


def _hosted_items(hosted: Sequence[tuple[ToolCall, bytes, bool]], place: int) -> list[Item]:
    """What the provider carried out itself: calls, each with its result, before the answer that they are part of, if that says anything."""
    items: list[Item] = []
    for call, result, failed in hosted:
        items.append(Item(_ASSISTANT, b"", (call,), place=place, kind=HOSTED))
        if result:
            items.append(Item(_TOOL, result, (), None, failed, place, HOSTED))
    return items


def rewrite_request(request: Request, edits: Edits) -> bytes:
    """The body with the edits made; the same object when they change nothing.

    The top-level object and the touched messages are written anew around their values, which stay as they were. Raises `BadRequest` where
    the body is too deep to be read again.
    """
    if not edits.inserts and not edits.no_tools and edits.force_tool is None and edits.max_output is None:
        return request.body
    try:
        members = read(FIELDS, request.body)
        before = dict(members)
        _insert(members, request, edits.inserts)
        _choose_tool(members, edits)
        _limit_output(members, edits.max_output)
    except RecursionError:
        # How deep is too deep depends on how deep the caller's stack is, so `parse` may just have managed.
        raise BadRequest(TOO_DEEP) from None
    return request.body if members == before else object_of(members)


def _insert(members: Fields, request: Request, inserts: tuple[Insert, ...]) -> None:
    """Appends to the message that an item was read from: in a message with tool results that is behind them."""
    if not inserts:
        return
    messages = raw_list(members["messages"])
    for insert in inserts:
        place = _place(request.items, insert.item)
        if place == _SYSTEM_PLACE:
            members["system"] = Raw(append_text(bytes(members["system"]), insert.text))
            continue
        message = fields(messages[place])
        message["content"] = Raw(append_text(bytes(message.get("content", b"")), insert.text))
        messages[place] = Raw(object_of(message))
    members["messages"] = Raw(list_of(messages))


def _place(items: Sequence[Item], index: int) -> int:
    """Where text goes that is added to an item. Inside an answer nothing can be added to a result: it goes to what stands before that."""
    own = items[index]
    answers = {item.place for item in items[:index] if item.role is Role.ASSISTANT} if own.role is Role.TOOL else set()
    return next((item.place for item in reversed(items[: index + 1]) if item.place not in answers), own.place)


def _choose_tool(members: Fields, edits: Edits) -> None:
    """Forces the named tool if it is offered, or forbids those that are. What forces a tool allows no thinking."""
    names = [tool.name for tool in _TOOLS.many(members.get("tools", b""))]
    if edits.force_tool is not None and edits.force_tool in names:
        members["tool_choice"] = Raw(encode({"type": "tool", "name": edits.force_tool}))
        if present(members.get("thinking", b"")):
            members["thinking"] = Raw(b'{"type":"disabled"}')
    elif edits.no_tools and names:
        members["tool_choice"] = Raw(b'{"type":"none"}')


def _limit_output(members: Fields, limit: int | None) -> None:
    """Lowers the output limit, and with it what thinking may take of it: the API wants that to be less."""
    if limit is None:
        return
    own = whole(plain(members.get("max_tokens", b"")))
    if own and own <= limit:
        return
    members["max_tokens"] = Raw(encode(limit))
    thinking = plain(members.get("thinking", b""))
    budget = whole(thinking.get("budget_tokens")) if isinstance(thinking, dict) else None
    if budget is None or budget < limit:
        return
    if limit // 2 < LEAST_THINKING:
        members["thinking"] = Raw(b'{"type":"disabled"}')
    else:
        members["thinking"] = Raw(object_of(fields(members["thinking"]) | {"budget_tokens": Raw(encode(limit // 2))}))
