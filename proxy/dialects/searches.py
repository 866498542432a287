"""Searches of the web that a provider makes while it answers, which are paid by the piece: how many may be made, and how many were."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from proxy.dialects.raw_json import Shape, plain, text, whole
from proxy.models import Choice, Usage

_MARK = b'"web_search'


class _Tool(Struct, gc=False):
    type: Any = None
    max_uses: Any = None


_TOOLS = Shape(_Tool)


def most_searches(tools: bytes, calls: int | None = None) -> int:
    """The most that a request names: by its tools, or by the calls of hosted tools it allows; 0 where it names none."""
    if _MARK not in tools:
        return 0
    offered = [tool for tool in _TOOLS.many(Raw(tools)) if (text(tool.type) or "").startswith("web_search")]
    named = [uses for tool in offered if (uses := whole(tool.max_uses)) is not None]
    return sum(named) if named else (calls or 0) if offered else 0


def searches_in(usage: dict[str, Any]) -> int:
    """How many a usage object says were made, as Anthropic says it."""
    told = usage.get("server_tool_use")
    return (whole(told.get("web_search_requests")) or 0) if isinstance(told, dict) else 0


def with_searches(usage: Usage | None, choices: tuple[Choice, ...]) -> Usage | None:
    """The usage with the searches that the answer's own items show: opening a page that one found is none."""
    made = sum(call.name == "web_search" and _action(call.arguments) in (None, "search") for choice in choices for call in choice.hosted)
    return msgspec.structs.replace(usage, searches=made) if usage is not None and made else usage


def _action(arguments: str) -> str | None:
    value = plain(Raw(arguments.encode("utf-8", "surrogatepass")))
    return text(value.get("type")) if isinstance(value, dict) else None
