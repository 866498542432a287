"""Content blocks as the messages dialect writes them: calls among them, and the text of an answer.

Blocks that are neither text nor a call of the client's tools (thinking, tools that run at the provider, what comes later) are never read
and stay where they are.
"""

from typing import Any

from msgspec import Raw, Struct

from proxy.dialects.raw_json import Shape, argument_text, text
from proxy.models import ToolCall

CALL = "tool_use"
RESULT = "tool_result"


class Block(Struct, gc=False):
    """A block of a message, or the start of a streamed one."""

    type: Any = None
    text: Any = None
    id: Any = None
    name: Any = None
    input: Raw = Raw()
    tool_use_id: Any = None
    content: Raw = Raw()
    is_error: Any = None


BLOCKS = Shape(Block)


def call_of(block: Block) -> ToolCall:
    """The call that a block makes. A tool without arguments is called with an empty object."""
    return ToolCall(text(block.id), text(block.name) or "", argument_text(block.input) or "{}")


def read_calls(content: bytes) -> tuple[ToolCall, ...]:
    """The calls of a message's content."""
    if b'"tool_use"' not in content:
        return ()
    return tuple([call_of(block) for block in BLOCKS.many(content) if block.type == CALL])


def joined_texts(texts: list[str]) -> str:
    """The texts of a message's blocks as one: joined as `models.text_of` joins them when they come back in a history."""
    return "\n".join(texts)
