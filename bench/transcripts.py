"""What coding agents send and models answer: made from a seed, the same on every machine.

A transcript is rendered once; every conversation made of it has call ids and a first text of its own, and no call that occurs twice.
"""

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.dialects import CHAT, Dialect, Json

_MARK = b"########"  # stands for the conversation's number wherever one may not look like another
_TOOLS = (
    "read_file",
    "edit_file",
    "grep",
    "list_directory",
    "run_shell",
    "write_file",
    "fetch_url",
    "git_diff",
    "run_tests",
    "apply_patch",
    "ask_user",
    "todo_write",
)
_CALLED = ("read_file", "grep", "run_shell", "edit_file", "list_directory")
_WORDS = re.findall(
    r"\w+",
    "session budget stream client upstream policy record lane result answer history parse render commit settle reserve index value "
    "self return raise await async for while if else not None True False import from class def yield with as lambda match case",
)


@dataclass(frozen=True)
class Shape:
    """How large a conversation is: `turns` assistant messages of one call each make a body of about `name`."""

    name: str
    turns: int
    tools: int
    system_bytes: int
    result_bytes: int


SMALL = Shape("14 KB", turns=6, tools=5, system_bytes=2_000, result_bytes=850)
MEDIUM = Shape("56 KB", turns=20, tools=12, system_bytes=6_000, result_bytes=1_650)
LARGE = Shape("450 KB", turns=80, tools=12, system_bytes=12_000, result_bytes=5_100)
SHAPES = (SMALL, MEDIUM, LARGE)


def call(turn: int) -> tuple[str, str]:
    """Name and raw arguments of the call a model makes in a turn: never the same twice."""
    name = _CALLED[turn % len(_CALLED)]
    return name, json.dumps({"path": f"src/part_{turn:04d}/module.py", "query": f"item {turn}", "limit": 200})


def said(conversation: bytes, turn: int, asked: int | None = None) -> tuple[str, tuple[str, str, str]]:
    """What a model says in a turn: a short text and one call, with an id of its own. asked: the turn whose call it is; its own."""
    return f"Next I look at part {turn}.", (f"call_{conversation.decode()}{turn:04d}", *call(turn if asked is None else asked))


def number(conversation: int) -> bytes:
    """How a conversation is written into its ids."""
    return f"{conversation:08x}".encode()


class Transcript:
    """A conversation of one shape in one dialect, to be sent at any length up to `most` turns.

    loops: every turn asks for the same and gets the same.
    """

    def __init__(self, shape: Shape, most: int, dialect: Dialect = CHAT, *, stream: bool = False, loops: bool = False) -> None:
        dice = random.Random(shape.name)
        tools = [_tool(name, dice) for name in _TOOLS[: shape.tools]]
        task = f"Task {_MARK.decode()}: "
        options: Json = {"stream": True} if stream else {}
        body, opening = dialect.opening(_text(dice, shape.system_bytes), task + _text(dice, 400), tools)
        self.dialect = dialect
        self._start = json.dumps(options | body).removesuffix("]}").encode() + _joined(opening)
        results = itertools.repeat(_text(dice, shape.result_bytes)) if loops else iter(lambda: _text(dice, shape.result_bytes), "")
        asked = 0 if loops else None
        self._turns = [b", " + _joined(dialect.answered(*said(_MARK, turn, asked), result=next(results))) for turn in range(most)]

    def body(self, conversation: int, turns: int) -> bytes:
        """The request that follows `turns` answered calls."""
        whole = b"".join((self._start, *self._turns[:turns], b"]}"))
        return whole.replace(_MARK, number(conversation))


def _joined(items: Sequence[Json]) -> bytes:
    return ", ".join([json.dumps(item) for item in items]).encode()


def _tool(name: str, dice: random.Random) -> Json:
    properties = {word: {"type": "string", "description": _prose(dice, 90)} for word in ("path", "query", "limit")}
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    return {"name": name, "description": _prose(dice, 350), "parameters": parameters}


def _prose(dice: random.Random, size: int) -> str:
    return " ".join(_words(dice, size))


def _text(dice: random.Random, size: int) -> str:
    """Something like source code: lines, indentation, quotes, numbers."""
    lines, length = list[str](), 0
    while length < size:
        line = f'{dice.randrange(999):4d}{" " * 4 * dice.randrange(4)}{_prose(dice, 45)} = "{dice.getrandbits(32):x}"'
        lines.append(line)
        length += len(line) + 5  # a line break and two quotes are escaped
    return "\n".join(lines)


def _words(dice: random.Random, size: int) -> Iterator[str]:
    while size > 0:
        word = dice.choice(_WORDS)
        size -= len(word) + 1
        yield word
