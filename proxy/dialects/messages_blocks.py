"""Content blocks as the messages dialect writes them: calls among them, and the text of an answer.

Blocks that are neither text nor a call of the client's tools (thinking, tools that run at the provider, what comes later) are never read
and stay where they are.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects.raw_json import UNREADABLE, Shape, argument_text, text
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
    source: Raw = Raw()


class UsualBlock(Struct, gc=False):
    """A block of a history as nearly all are, without its text."""

    type: str
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    content: Raw = Raw()
    is_error: bool | None = None
    source: Raw = Raw()


BLOCKS = Shape(Block)
_USUAL = Decoder(list[UsualBlock])


def blocks_of(content: bytes) -> Sequence[Block | UsualBlock]:
    """The blocks of a message in a history; none of what is no list.

    Not searched for first: a search in JSON, where every needle ends in a quote, takes longer than reading it.
    """
    if not content.startswith(b"["):
        return ()
    try:
        return _USUAL.decode(content)
    except UNREADABLE:
        return BLOCKS.many(content)


def call_of(block: Block | UsualBlock) -> ToolCall:
    """The call that a block makes. A tool without arguments is called with an empty object."""
    asked = bytes(block.input)
    arguments = asked.decode("utf-8", "replace") if asked.startswith(b"{") else argument_text(asked) or "{}"
    return ToolCall(text(block.id), text(block.name) or "", arguments)


def read_calls(content: bytes) -> tuple[ToolCall, ...]:
    """The calls of a message's content."""
    return tuple([call_of(block) for block in blocks_of(content) if block.type == CALL])


def joined_texts(texts: list[str]) -> str:
    """The texts of a message's blocks as one: joined as `models.text_of` joins them when they come back in a history."""
    return "\n".join(texts)
