"""What readers of recordings share: single values of somebody else's JSON, read without trust."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.dialects.raw_json import quoted
from proxy.models import ToolCall
from proxy.replay.recording import Unreadable

_ARGUMENTS = ("arguments", "args", "input", "parameters")


def name_of(value: Mapping[str, Any], *keys: str) -> str | None:
    """The first of some members that is a text with something in it, or a number."""
    for key in keys:
        found = value.get(key)
        if isinstance(found, str) and found:
            return found
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
    return None


def quoted_text(value: Any) -> bytes:
    """A content value: the text as JSON; nothing for anything that is no text."""
    return quoted(value) if isinstance(value, str) else b""


def encoded(value: Any) -> bytes:
    """Any decoded JSON value as JSON again."""
    return quoted(value) if isinstance(value, str) else msgspec.json.encode(value)


def made_call(value: Any) -> ToolCall:
    """A call as lists of calls write it: a name, and arguments as an object or as its text. Raises `Unreadable`."""
    match value:
        case {"name": str() as name} | {"tool": str() as name} | {"tool_name": str() as name} if name:
            arguments: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
            text = arguments if isinstance(arguments, str) else encoded(arguments).decode()
            return ToolCall(name_of(value, "id", "call_id"), name, text)
    raise Unreadable("a call without a name: expected {name, arguments}")
