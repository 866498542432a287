"""Items as the Responses dialect writes them, in requests, in answers and in streams: which are calls, what they say, what they returned.

A **call** is for the client to carry out: functions, custom tools, its shell, patches, its computer. What the provider carries out itself
(MCP, search, code) holds its own result and is **hosted**: it is seen in a history and never touched. Reasoning is read of answers that say
nothing else. Other items (compaction, images, what comes later) are passed over.
"""

from typing import Any

from msgspec import Raw, Struct

from proxy.dialects.raw_json import Shape, argument_text, list_of, plain, present, quoted, raw_list, text
from proxy.models import Owed, ToolCall

MESSAGE = "message"
REASONING = "reasoning"


class WireItem(Struct, gc=False):
    """An item. A message may come without `type`."""

    type: Any = None
    role: Any = None
    content: Raw = Raw()
    summary: Raw = Raw()
    id: Any = None
    call_id: Any = None
    name: Any = None
    namespace: Any = None
    arguments: Raw = Raw()
    input: Raw = Raw()
    action: Raw = Raw()
    actions: Raw = Raw()
    operation: Raw = Raw()
    output: Raw = Raw()
    status: Any = None
    tools: Raw = Raw()
    server_label: Any = None
    queries: Raw = Raw()
    results: Raw = Raw()
    code: Raw = Raw()
    outputs: Raw = Raw()
    error: Raw = Raw()


class UsualItem(WireItem, gc=False):
    """An item as nearly all are: its strings are read in the same pass."""

    type: str = ""
    arguments: str = ""  # type: ignore[assignment]
    input: str = ""  # type: ignore[assignment]


class Part(Struct, gc=False):
    """A part of a message's or a result's content."""

    type: Any = None
    text: Any = None
    refusal: Any = None


ITEMS = Shape(WireItem)
PARTS = Shape(Part)

# The calls of built-in tools that clients carry out: what the tool is called, and which member says what to do.
_BUILT_IN = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
    "tool_search_call": ("tool_search", "arguments"),
}
CALLS = frozenset({"function_call", "custom_tool_call", *_BUILT_IN})
SEARCHED = "tool_search_output"
_REFERENCE = "item_reference"
OWN = "_lastcall_"  # in the ids of items that the upstream never had
RESULTS = {f"{kind}_output": kind for kind in CALLS if kind != "function_call"} | {SEARCHED: "tool_search_call", "function_call_output": ""}
_BLANK = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Hosted calls that show what was asked for: the tool's name, or where it stands; the members that ask; the one that answers.
_HOSTED: dict[str, tuple[str, str, str]] = {
    "web_search_call": ("web_search", "action", ""),
    "file_search_call": ("file_search", "queries", "results"),
    "code_interpreter_call": ("code_interpreter", "code", "outputs"),
}


def kind_of(item: WireItem) -> str:
    """The item's type; what has a role and no type is a message."""
    kind = item.type
    if kind and isinstance(kind, str):
        return kind
    return MESSAGE if item.role is not None else ""


def referred(item: WireItem, kind: str) -> str | None:
    """The id of an item that is only named; None for any other."""
    return text(item.id) if kind in (_REFERENCE, "") else None


def call_of(item: WireItem, kind: str) -> ToolCall | None:
    """The call that an item makes, None when it makes none. The link to its result is `call_id`, not the item's own id."""
    if kind == "function_call":
        return ToolCall(call_id_of(item), _named(item), _string(item.arguments))
    if kind not in CALLS or (kind == "tool_search_call" and item.call_id is None):  # without, the provider searches its own tools
        return None
    call_id = call_id_of(item)
    if kind == "custom_tool_call":
        return ToolCall(call_id, _named(item), _string(item.input), custom=True)
    name, member = _BUILT_IN[kind]
    asked: Raw = getattr(item, member)
    return ToolCall(call_id, name, argument_text(asked if present(asked) else item.actions), kind=kind)


def _string(value: Raw | str) -> str:
    return value if isinstance(value, str) else argument_text(value)


def _named(item: WireItem) -> str:
    name = item.name if isinstance(item.name, str) else ""
    return name if item.namespace is None else in_namespace(text(item.namespace), name)


def in_namespace(namespace: str | None, name: str) -> str:
    """Tools of two namespaces may share a name and are two tools."""
    return f"{namespace}.{name}" if namespace else name


def hosted_call(item: WireItem, kind: str) -> tuple[ToolCall, bytes] | None:
    """A call that the provider carried out, with the raw result it shows (b"" for none); None for any other item.

    Its id is left out: it means nothing to a client, and some leave it out when they send the item back.
    """
    if kind == "mcp_call":
        asked = f"[{quoted(text(item.name) or '').decode()},{quoted(_string(item.arguments)).decode()}]"
        return ToolCall(None, text(item.server_label) or "mcp", asked), bytes(item.output if present(item.output) else item.error)
    known = _HOSTED.get(kind)
    if known is None:
        return None
    name, question, answer = known
    return ToolCall(None, name, argument_text(getattr(item, question))), bytes(getattr(item, answer)) if answer else b""


def result_of(owed: Owed, text: str) -> dict[str, Any]:
    """A result that says `text`, in the form that its kind of call takes."""
    link = {"type": f"{owed.kind or 'function_call'}_output", "call_id": owed.id}
    match owed.kind:
        case "shell_call":
            return link | {"output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]}
        case "apply_patch_call":
            return link | {"status": "failed", "output": text}
        case "computer_call":  # there is no place for words
            return link | {"output": {"type": "computer_screenshot", "image_url": _BLANK}}
        case "tool_search_call":
            return link | {"type": SEARCHED, "execution": "client", "tools": []}
        case "local_shell_call":
            return link | {"id": owed.id, "output": text}
        case _:
            return link | {"output": text}


def call_id_of(item: WireItem) -> str | None:
    """The call that an item makes or answers. One older kind names it in its own id."""
    call_id = item.call_id
    return call_id if call_id and isinstance(call_id, str) else text(item.id)


def list_in(raw: bytes) -> list[Raw]:
    """A list's members as they were written, none of what is no list."""
    return raw_list(raw) if bytes(raw).startswith(b"[") else []


def texts_of(content: bytes) -> list[str]:
    """What a person reads of a message's content, part by part: texts, and refusals in their place."""
    if bytes(content).startswith(b'"'):
        return [plain(content) or ""]
    said = [text(part.text) or text(part.refusal) for part in PARTS.many(content)]
    return [piece for piece in said if piece]


def joined_texts(texts: list[str]) -> str:
    """The texts of an answer as one: joined as `models.text_of` joins the parts that come back in a history."""
    return "\n".join(texts)


def merged_contents(contents: list[bytes]) -> bytes:
    """The contents of the messages that make up one answer, as the content of one."""
    if len(contents) == 1:
        return contents[0]
    parts: list[Raw] = []
    for content in contents:
        if content.startswith(b"["):
            parts += raw_list(content)
        elif content.startswith(b'"'):
            parts.append(Raw(b'{"type":"output_text","text":' + content + b"}"))
    return list_of(parts) if parts else b""
