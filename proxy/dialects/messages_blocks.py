"""Content blocks as the messages dialect writes them: calls among them, and the text of an answer.

A **call** is for the client to carry out. What the provider carries out itself (search, code, the servers of its MCP connector) stands in
the answer with its result and is **hosted**: it is seen in a history and never touched. Thinking is read of answers alone. Other blocks
(what comes later) are never read and stay where they are.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects.raw_json import UNREADABLE, Shape, argument_text, quoted, text
from proxy.models import ToolCall

CALL = "tool_use"
RESULT = "tool_result"
TEXT = "text"
THINKING = "thinking"
_WORDS_AND_THOUGHTS = (TEXT, THINKING, "redacted_thinking")
_MCP = "mcp_tool_use"
HOSTED = ("server_tool_use", _MCP)
_HOSTED_RESULT = "_tool_result"  # ends the types of their results
# One offered tool that is called under several names, and what all of them are called here.
_RUNS_CODE = "code_execution"


class Block(Struct, gc=False):
    """A block of a message, or the start of a streamed one."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    id: Any = None
    name: Any = None
    input: Raw = Raw()
    tool_use_id: Any = None
    content: Raw = Raw()
    is_error: Any = None
    source: Raw = Raw()
    server_name: Any = None


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
    server_name: str | None = None


class _Content(Struct, gc=False):
    type: Any = None


BLOCKS = Shape(Block)
_CONTENT = Shape(_Content)
_USUAL = Decoder(list[UsualBlock])


def blocks_of(content: bytes) -> Sequence[Block | UsualBlock]:
    """The blocks of a message in a history; none of what is no list.

    Not searched for first: a search in JSON, where every needle ends in a quote, takes longer than reading it.
    """
    if content[:1] != b"[":
        return ()
    try:
        return _USUAL.decode(content)
    except UNREADABLE:
        return BLOCKS.many(content)


def arguments_of(input: bytes) -> str:
    """A call's arguments. A tool without any is called with an empty object."""
    asked = str(input, "utf-8", "replace")
    return asked if asked[:1] == "{" else argument_text(input) or "{}"


def call_of(block: Block | UsualBlock, arguments: str = "") -> ToolCall:
    """The call that a block makes, with the arguments that were streamed for it, else its own.

    The id of a hosted call is left out: it means nothing to a client.
    """
    if not arguments:
        arguments = arguments_of(block.input)
    name = text(block.name) or ""
    if block.type == CALL:
        return ToolCall(text(block.id), name, arguments)
    if block.type == _MCP:
        return ToolCall(None, text(block.server_name) or "mcp", f"[{quoted(name).decode()},{arguments}]")
    return ToolCall(None, _RUNS_CODE if name.endswith(_RUNS_CODE) else name, arguments)


def calls_of(blocks: Sequence[Block | UsualBlock]) -> tuple[ToolCall, ...]:
    """The calls of a message for the client to carry out."""
    return tuple([call_of(block) for block in blocks if block.type == CALL])


def hosted_of(blocks: Sequence[Block | UsualBlock]) -> list[tuple[ToolCall, bytes, bool]]:
    """The calls of a message that the provider carried out, each with the raw result it shows (b"" for none) and whether that is an error.

    What a search found is no result to compare: it is encrypted anew each time.
    """
    made: list[tuple[ToolCall, bytes, bool]] = []
    results = {text(block.tool_use_id): block for block in blocks if isinstance(block.type, str) and block.type.endswith(_HOSTED_RESULT)}
    for block in [block for block in blocks if block.type in HOSTED]:
        found = results.get(text(block.id))
        if found is None:
            made.append((call_of(block), b"", False))
            continue
        failed = found.is_error is True or str(_CONTENT.one(found.content).type).endswith("_error")
        opaque = block.name == "web_search" and not failed
        made.append((call_of(block), b"" if opaque else bytes(found.content), failed))
    return made


def only_thoughts(blocks: Sequence[Block], texts: list[str], thoughts: list[str]) -> str:
    """What an answer of these blocks, with these texts, thought where it holds nothing else."""
    speaks = "".join(texts).strip() or any(block.type not in _WORDS_AND_THOUGHTS for block in blocks)
    return "" if speaks else joined_texts(thoughts)


def joined_texts(texts: list[str]) -> str:
    """The texts of a message's blocks as one: joined as `models.text_of` joins them when they come back in a history."""
    return "\n".join(texts)
