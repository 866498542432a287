"""Responses requests: what Lastcall reads of one, and the edits it can make in one.

An answer comes back as several items: the messages and calls that follow each other become one item of history, since they were made
at once. What the provider carried out itself stands before them as a call with its result. What it made of a longer history is user text
that says nothing here. Other items are passed over.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects.body import TOO_DEEP, Hinted, hints_of, read_body, read_more, tier_of
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
    quoted,
    read,
    text,
    whole,
)
from proxy.dialects.responses_items import (
    ITEMS,
    MESSAGE,
    OWN,
    RESULTS,
    SEARCHED,
    UsualItem,
    WireItem,
    call_id_of,
    call_of,
    hosted_call,
    in_namespace,
    kind_of,
    list_in,
    merged_contents,
    referred,
    result_of,
)
from proxy.dialects.searches import most_searches
from proxy.errors import BadRequest
from proxy.models import HOSTED, Edits, Insert, Item, Reference, Request, Role, ToolCall

_INSTRUCTIONS = -1  # the place of the item that no list holds
_OUTPUT_LIMIT = "max_output_tokens"
_ROLES = {"assistant": Role.ASSISTANT, "system": Role.SYSTEM, "developer": Role.SYSTEM}
_USER, _ASSISTANT, _TOOL = Role.USER, Role.ASSISTANT, Role.TOOL  # looking one up costs as much as an item
_COMPACTED = ("compaction", "compaction_summary", "context_compaction")  # in the place of a history, encrypted
_TOOL_BRINGERS = (SEARCHED, "additional_tools")  # items that offer tools beside those of the body
# Built-in tools by the word their type begins with, and what their calls are called here.
_BUILT_IN = ("local_shell", "shell", "apply_patch", "computer", "tool_search", "web_search", "file_search", "code_interpreter")


class _Body(Hinted, kw_only=True, gc=False):
    input: str | list[WireItem] | None = None
    model: str = ""
    instructions: Raw = Raw()
    tools: Raw = Raw()
    tool_choice: Raw = Raw()
    stream: Raw = Raw()
    max_output_tokens: Raw = Raw()
    max_tool_calls: Raw = Raw()
    previous_response_id: Raw = Raw()
    store: Raw = Raw()
    background: Raw = Raw()


class _UsualBody(_Body, kw_only=True, gc=False):
    """A body as nearly all are: read in one pass."""

    input: str | list[UsualItem] | None = None  # type: ignore[assignment]


class _Tool(Struct, gc=False):
    type: Any = None
    name: Any = None
    server_label: Any = None
    tools: Raw = Raw()


class _Part(Struct, gc=False):
    type: Any = None
    image_url: Raw = Raw()


_NOTHING = Edits()
_BODY = Decoder(_Body)
_USUAL_BODY = Decoder(_UsualBody)
_USUAL_ITEMS = Decoder(list[UsualItem])
_TOOLS = Shape(_Tool)
_PARTS = Shape(_Part)


def parse_request(body: bytes) -> Request:
    """Reads a request. Raises `BadRequest` on bytes that are not one."""
    wire = read_body(body, _USUAL_BODY, _BODY, "input")
    asked = wire.input if isinstance(wire.input, list) else []
    items = [Item(Role.SYSTEM, bytes(wire.instructions), place=_INSTRUCTIONS)] if present(wire.instructions) else []
    if isinstance(wire.input, str):
        items.append(Item(Role.USER, quoted(wire.input)))
    refers: list[Reference] = []
    items += _items(asked, refers, before=len(items))
    attachments, picture_bytes = _attached(items)
    hints = hints_of(wire)
    previous = text(plain(wire.previous_response_id))
    return Request(
        body=body,
        model=wire.model,
        items=tuple(items),
        tools=tuple(_tool_names([bytes(wire.tools), *(bytes(item.tools) for item in asked if item.type in _TOOL_BRINGERS)])),
        tools_raw=bytes(wire.tools),
        tools_off=plain(wire.tool_choice) == "none",
        stream=flag(plain(wire.stream)),
        wants_usage=True,  # no stream of this dialect is without
        max_output=whole(plain(wire.max_output_tokens)) or None,
        hints=hints,
        attachments=attachments,
        picture_bytes=picture_bytes,
        refers=tuple(refers),
        elements=len(asked),
        goes_on_from=previous or hints.get("conversation"),
        conversation=previous is None and "conversation" in hints,
        tier=tier_of(wire),
        searches=most_searches(bytes(wire.tools), whole(plain(wire.max_tool_calls))),
        background=flag(plain(wire.background)),
        kept=plain(wire.store) is not False or (previous is None and "conversation" in hints),
    )


def grow_request(request: Request, body: bytes, elements: bytes) -> Request | None:
    """The request with further items; None where they are unusual, bring tools, or may belong to the answer before them."""
    last = request.items[-1] if request.items else None
    if last is None or last.role is _ASSISTANT or (last.role is _TOOL and last.call_id is None):
        return None
    asked = read_more(elements, _USUAL_ITEMS)
    if asked is None:
        return None
    for item in asked:
        if item.type in _TOOL_BRINGERS:
            return None
    refers = list(request.refers)
    items = _items(asked, refers, request.elements)
    if refers:
        return None
    return request.grown(body, tuple(items), len(asked), *_attached(items))


def _items(wire: Iterable[WireItem], refers: list[Reference], first: int = 0, before: int = 0) -> list[Item]:
    """refers: gets what is only named. first: place of the first element; before: how many items come before those of the list.

    The messages and calls of one answer are gathered until something else comes.
    """
    items: list[Item] = []
    contents: list[bytes] = []
    calls: list[ToolCall] = []
    begun = 0  # place of the answer: that of its first message, else of its first call
    for place, item in enumerate(wire, first):
        kind = item.type if item.type and isinstance(item.type, str) else kind_of(item)  # nearly always the type: a call less for each
        named = None
        if kind == MESSAGE:
            said_by = item.role
            role = _ROLES.get(said_by, _USER) if isinstance(said_by, str) else _USER
            if role is _ASSISTANT:
                begun = begun if contents else place
                contents.append(bytes(item.content))
                continue
            new = Item(role, bytes(item.content), (), None, False, place)
        elif kind in RESULTS:
            result = bytes(item.tools if kind == SEARCHED else item.output)
            new = Item(_TOOL, result, (), call_id_of(item), item.status == "failed", place, RESULTS[kind])
        elif (call := call_of(item, kind)) is not None:
            begun = begun if calls or contents else place
            calls.append(call)
            continue
        elif (named := referred(item, kind)) is None:
            items += _hosted_items(item, kind, place)
            continue
        if calls or contents:
            items.append(_answer(contents, calls, begun))
            contents, calls = [], []
        if named is None:
            items.append(new)
        else:
            refers.append(Reference(named, before + len(items), place))
    if calls or contents:
        items.append(_answer(contents, calls, begun))
    return items


def _answer(contents: list[bytes], calls: list[ToolCall], place: int) -> Item:
    return Item(_ASSISTANT, merged_contents(contents) if contents else b"", tuple(calls), None, False, place)


def _hosted_items(item: WireItem, kind: str, place: int) -> list[Item]:
    """A call that the provider carried out, with its result; a summary of its; nothing of any other item."""
    hosted = hosted_call(item, kind)
    if hosted is None:
        return [Item(_USER, place=place, kind=kind)] if kind in _COMPACTED else []
    call, result = hosted
    made = [Item(_ASSISTANT, b"", (call,), place=place, kind=HOSTED)]
    return [*made, Item(_TOOL, result, (), None, present(item.error), place, HOSTED)] if result else made


def _tool_names(lists: Iterable[bytes]) -> list[str]:
    """What calls of the offered tools are called, here and in `responses_items`."""
    names: list[str] = []
    for tool in [tool for raw in lists for tool in _TOOLS.many(raw)]:
        kind, name = text(tool.type) or "", text(tool.name)
        if kind == "namespace":
            names += [in_namespace(name, inner) for inner in _tool_names([bytes(tool.tools)])]
        elif kind == "mcp":
            names.append(text(tool.server_label) or kind)
        elif kind in ("function", "custom") or name is not None:
            names += [name] if name is not None else []
        else:
            names.append(next((known for known in _BUILT_IN if kind.startswith(known)), kind))
    return names


_NO_TEXT = re.compile(rb'"type"(?!: ?"(?:in|out)put_text")')  # looked for in one go: most parts are texts
_PARTS_OF_TEXT = ("input_text", "output_text", "text", "refusal")
_PICTURE = b'"data:image/'


def _attached(items: Sequence[Item]) -> tuple[int, int]:
    """How many parts are no text, and how many bytes of them are pictures written out. Parts that say nothing else are not decoded."""
    count = size = 0
    for item in items:
        content = item.content
        first = content[:1]
        if (first != b"[" or _NO_TEXT.search(content) is None) and first != b"{":
            continue
        parts = _PARTS.many(content) if first == b"[" else [_PARTS.one(content)]
        attached = [part for part in parts if part.type is not None and part.type not in _PARTS_OF_TEXT]
        count += len(attached)
        size += sum(len(bytes(part.image_url)) for part in attached if _PICTURE in bytes(part.image_url))
    return count, size


def rewrite_request(request: Request, edits: Edits) -> bytes:
    """The body with the edits made; the same object when they change nothing.

    The top-level object and the touched items are written anew around their values, which stay as they were. Raises `BadRequest` where the
    body is too deep to be read again.
    """
    unknown = {reference.place for reference in request.refers if OWN in reference.id}  # to the upstream: Lastcall said it
    if not unknown and (edits == _NOTHING or msgspec.structs.replace(edits, ask_usage=False) == _NOTHING):
        return request.body
    try:
        members = read(FIELDS, request.body)
        before = dict(members)
        _insert(members, request.items, edits.inserts)
        if unknown:
            elements = list_in(members["input"])
            members["input"] = Raw(list_of([element for place, element in enumerate(elements) if place not in unknown]))
        _choose_tool(members, edits)
        if edits.no_tools or edits.force_tool is not None:
            members.pop("background", None)  # a last answer is waited for
        _limit_output(members, edits.max_output)
        _go_on(members, edits)
        return request.body if members == before else object_of(members)
    except RecursionError:
        # How deep is too deep depends on how deep the caller's stack is, so `parse` may just have managed.
        raise BadRequest(TOO_DEEP) from None


def _insert(members: Fields, items: Sequence[Item], inserts: Iterable[Insert]) -> None:
    """Appends each text to its item. What cannot hold any (a picture of a screen, a summary) hands it to the nearest item that can."""
    given = bytes(members.get("input", b""))
    elements = list_in(given)
    for insert in inserts:
        item = items[insert.item]
        if item.place == _INSTRUCTIONS:
            members["instructions"] = Raw(append_text(bytes(members["instructions"]), insert.text))
        elif not elements:
            members["input"] = Raw(append_text(given, insert.text))
        else:
            others = reversed(items[: insert.item]) if item.role is _TOOL else ()
            if item.kind in _COMPACTED:
                others = (other for other in reversed(items[: insert.item]) if other.role is _USER)
            _add(elements, [item, *others], insert.text)
    if elements:
        members["input"] = Raw(list_of(elements))


def _add(elements: list[Raw], candidates: Iterable[Item], addition: str) -> None:
    for item in candidates:
        appended = _appended(elements[item.place], addition) if item.place != _INSTRUCTIONS else None
        if appended is not None:
            elements[item.place] = Raw(appended)
            return


def _appended(raw: Raw, addition: str) -> bytes | None:
    """The item with text added, None where it cannot hold any."""
    item, members = ITEMS.one(raw), fields(raw)
    kind = kind_of(item)
    if kind == MESSAGE:
        part = "output_text" if item.role == "assistant" else "input_text"
        members["content"] = Raw(append_text(bytes(item.content), addition, part=part))
    elif kind == "shell_call_output":
        return _to_shell_output(members, addition)
    elif kind in RESULTS and not bytes(item.output).startswith(b"{") and kind != SEARCHED:
        members["output"] = Raw(append_text(bytes(item.output), addition, part="input_text"))
    else:
        return None
    return object_of(members)


def _to_shell_output(members: Fields, addition: str) -> bytes | None:
    """The output of a shell is a list of what its commands wrote: the text goes behind the last of them."""
    commands = list_in(members.get("output", b""))
    if not commands:
        return None
    last = fields(commands[-1])
    last["stdout"] = Raw(append_text(bytes(last.get("stdout", b"")), addition))
    members["output"] = Raw(list_of([*commands[:-1], Raw(object_of(last))]))
    return object_of(members)


def _choose_tool(members: Fields, edits: Edits) -> None:
    """Forces the named tool if it is offered, or forbids those that are."""
    tools = _TOOLS.many(members.get("tools", b""))
    forced = next((tool for tool in tools if tool.name == edits.force_tool and tool.type in ("function", "custom")), None)
    if edits.force_tool is not None and forced is not None:
        members["tool_choice"] = Raw(encode({"type": forced.type, "name": forced.name}))
    elif edits.no_tools and tools:
        members["tool_choice"] = Raw(b'"none"')


def _go_on(members: Fields, edits: Edits) -> None:
    """Goes on from another response, or from none, and brings the results that are missing there."""
    if edits.go_on_from:
        members["previous_response_id"] = Raw(quoted(edits.go_on_from))
    elif edits.go_on_from is not None:
        members.pop("previous_response_id", None)
    if not edits.owed and not edits.asked:
        return
    given = quoted(edits.asked) if edits.asked else bytes(members.get("input", b""))
    said = [Raw(encode({"role": "user", "content": Raw(given)}))] if given.startswith(b'"') else list_in(given)
    results = [Raw(encode(result_of(owed, edits.owed_text))) for owed in edits.owed]
    members["input"] = Raw(list_of(results if edits.alone else results + said))


def _limit_output(members: Fields, limit: int | None) -> None:
    own = whole(plain(members.get(_OUTPUT_LIMIT, b"")))
    if limit is not None and (not own or own > limit):
        members[_OUTPUT_LIMIT] = Raw(encode(limit))
