"""What the scripted model was asked and what it says to that, whatever wire format it came in."""

import json
import re
import secrets
from typing import Any

import msgspec

from proxy.mock.script import Call, Step

FRAGMENT = re.compile(r"(?s).{1,16}")
# Tools that look and do not touch, best first. The samples below are for these alone: a tool of unknown nature (it may delete) is
# called with values that name nothing on the client's disk.
HARMLESS = ("bash", "shell", "terminal", "command", "exec", "status", "read", "view", "cat", "grep", "search", "list", "ls")
SAMPLES = dict.fromkeys(("command", "cmd"), "git status") | dict.fromkeys(("path", "file_path", "filePath"), "README.md")
BLANKS: dict[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "null": None}


class Tool(msgspec.Struct, frozen=True):
    """A tool that a request offers. schema: the JSON schema of its arguments."""

    name: str
    schema: dict[str, Any] = {}


class Asked(msgspec.Struct, frozen=True):
    """A request. turns: assistant messages in its history. forced: the tool it wants called. last_result: text of the newest result."""

    model: str
    turns: int
    tools: tuple[Tool, ...] = ()
    forbidden: bool = False
    forced: str | None = None
    last_result: str = ""
    stream: bool = False
    wants_usage: bool = True


class Made(msgspec.Struct, frozen=True):
    """A call in an answer. arguments: as text."""

    name: str
    arguments: str

    def id(self, prefix: str) -> str:
        """A new id."""
        return prefix + secrets.token_hex(12)


class Said(msgspec.Struct, frozen=True):
    """An answer: text, or calls."""

    text: str = ""
    calls: tuple[Made, ...] = ()

    def __str__(self) -> str:
        return ", ".join([f"{call.name}({call.arguments})" for call in self.calls]) or self.text


def answer(asked: Asked, step: Step, *, may_call: bool) -> Said:
    """The step's text or calls; the text of a model that concludes where it may not, or cannot, call."""
    if step.text is not None:
        return Said(step.text)
    if not (may_call and asked.tools):
        first_line = asked.last_result.strip().partition("\n")[0]
        return Said(f"This is what I know: {first_line}" if first_line else "I have nothing to add.")
    calls = step.calls or (step,)
    if asked.forced is not None:
        calls = (Call(asked.forced),)
    return Said(calls=tuple([_made(call, asked.tools) for call in calls]))


def _made(call: Call, offered: tuple[Tool, ...]) -> Made:
    if call.name is None:
        tool = min(offered, key=lambda tool: _rank(tool.name))
    else:
        tool = next((tool for tool in offered if tool.name == call.name), Tool(call.name))
    samples = SAMPLES if _rank(tool.name) < len(HARMLESS) else {}
    arguments = _required(tool.schema, samples) if call.arguments is None else call.arguments
    return Made(tool.name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def _rank(name: str) -> int:
    """The place of the tool's best word in `HARMLESS`; its length when no word of the name is there."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return next((place for place, word in enumerate(HARMLESS) if word in words), len(HARMLESS))


def _required(schema: dict[str, Any], samples: dict[str, str]) -> dict[str, Any]:
    """The least object that fits a JSON schema: its required properties."""
    properties = schema.get("properties") or {}
    return {name: _value(properties.get(name), samples.get(name, "example")) for name in schema.get("required") or ()}


def _value(schema: Any, sample: str) -> Any:
    """A value for one property: what its schema names, else one of its type; `sample` where that is text."""
    match schema:
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]}:
            return _value(first, sample)
        case {"type": [kind, *_]}:
            return _value({**schema, "type": kind}, sample)
        case {"type": "object"}:
            return _required(schema, {})
        case {"type": "array", "items": {"type": "string"}}:
            return sample.split()
        case {"type": str(kind)}:
            return BLANKS.get(kind, sample)
        case _:
            return sample
