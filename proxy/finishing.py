"""The tool that ends a run, for agents that end by nothing else: which it is, and how it is called with a text.

Text without a call makes such an agent ask again. So a stopped run gives it the call that it waits for, but only where the request offers
the tool and the tool's schema says how a text is handed to it.
"""

from typing import Any

import msgspec

from proxy.known_clients import Known
from proxy.models import Request, ToolCall
from proxy.policy import Policy


def closing_tool(request: Request, policy: Policy, client: Known) -> str | None:
    """The tool that a stopped run has to end with: the configured one, or the only one the client ends by; None where text will do."""
    return next(
        (name for name in (policy.wrap_up.force_finish_tool, client.finish_tool) if name is not None and name in request.tools), None
    )


def closing_call(request: Request, name: str, text: str, call_id: str) -> ToolCall | None:
    """A call of that tool which says `text` as its one argument, or has none to say it with. None where it wants something else."""
    schema = _schema_of(request.tools_raw, name)
    properties = None if schema is None else schema.get("properties")
    if schema is None or not isinstance(properties, dict):
        return None
    match schema.get("required") or list(properties):
        case []:
            arguments = {}
        case [str(only)] if _is_text(properties.get(only)):
            arguments = {only: text}
        case _:
            return None
    return ToolCall(call_id, name, msgspec.json.encode(arguments).decode())


def _schema_of(tools_raw: bytes, name: str) -> dict[str, Any] | None:
    """The JSON schema of a tool's arguments, wherever a wire format puts it; None without one."""
    tools = msgspec.json.decode(tools_raw) if tools_raw else None
    for tool in tools if isinstance(tools, list) else []:
        described = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(described, dict) and described.get("name") == name:
            schema = described.get("parameters") or described.get("input_schema")
            return schema if isinstance(schema, dict) else None
    return None


def _is_text(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"
