"""The calls that tool markup spells out, read back: name and arguments, whatever family wrote them.

Only whole calls: what was cut short, or is not JSON where it should be, spells nothing. Values that stand as bare text are text where the
tool's schema says so, else what they are as JSON.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Spelled = tuple[str, dict[str, Any]]
"""A call's name and arguments."""

_NAME = r"(?P<name>[\w.-]{1,128})"
_BARS = r"[|\uff5c\u2016]{1,2}"
_PARTS = re.compile(
    rf'<(?:{_BARS}DSML{_BARS}|[\w]+:)?invoke\s+name="{_NAME}"\s*>(?P<body>.*?)</(?:{_BARS}DSML{_BARS}|[\w]+:)?invoke>'
    rf"|<function={_NAME.replace('name', 'name2')}>(?P<body2>.*?)</function>"
    rf"|<(?:longcat_)?tool_call>\s*{_NAME.replace('name', 'name3')}\s*"
    r"(?P<body3>(?:<(?:longcat_)?arg_key>.*?)?)\s*</(?:longcat_)?tool_call>",
    re.DOTALL,
)
_MEMBERS = re.compile(
    rf'<(?:{_BARS}DSML{_BARS}|[\w]+:)?parameter\s+name="(?P<key>[^"]{{1,200}})"(?:\s+string="(?P<string>true|false)")?\s*>(?P<value>.*?)'
    rf"</(?:{_BARS}DSML{_BARS}|[\w]+:)?parameter>"
    r"|<parameter=(?P<key2>[^>\n]{1,200})>\n?(?P<value2>.*?)\n?</parameter>"
    r"|<(?:longcat_)?arg_key>(?P<key3>[^<]{1,200})</(?:longcat_)?arg_key>\s*<(?:longcat_)?arg_value>(?P<value3>.*?)</(?:longcat_)?arg_value>",
    re.DOTALL,
)
# A name, and after it the arguments as a JSON object.
_NAMED = re.compile(
    r"functions\.(?P<name>[\w.-]{1,128})(?::\d{1,6})?\s*(?:<\|tool_call_argument_begin\|>|[^\n{]{0,80}<\|message\|>|\()\s*(?=\{)"
    r"|(?P<name2>[\w-]{1,128})(?:\[CALL_ID\]\w{1,64})?\[ARGS\]\s*(?=\{)"
    r"|<[|\uff5c]tool[\u2581_]sep[|\uff5c]>(?P<name3>[\w.-]{1,128})\s*(?:```json)?\s*(?=\{)"
    r"|(?P<name4>[\w.-]{1,128})<[|\uff5c]tool[\u2581_]sep[|\uff5c]>\s*(?=\{)"
)


def spelled(markup: str, schemas: Mapping[str, Mapping[str, Any]]) -> list[Spelled] | None:
    """The calls in a piece of markup, in order; None unless all of it is calls that fit their tools.

    schemas: the JSON schema of the arguments of each tool that is offered, by its name.
    """
    for read in (_tagged, _named, _objects):
        found = list(read(markup, schemas))
        if found:
            return found if all(_fits(call, schemas) for call in found) else None
    return None


def _tagged(markup: str, schemas: Mapping[str, Mapping[str, Any]]) -> Iterator[Spelled]:
    for call in _PARTS.finditer(markup):
        name, body = _of(call, "name"), _of(call, "body")
        arguments: dict[str, Any] = {}
        for member in _MEMBERS.finditer(body):
            key, value = _of(member, "key").strip(), _of(member, "value")
            text = member["string"] == "true" or (member["string"] is None and _is_text(schemas.get(name, {}), key))
            arguments[key] = value if text else _value(value)
        yield name, arguments


def _named(markup: str, _: Mapping[str, Mapping[str, Any]]) -> Iterator[Spelled]:
    for call in _NAMED.finditer(markup):
        arguments = _object_at(markup, call.end())
        if arguments is not None:
            yield _of(call, "name"), arguments


def _objects(markup: str, _: Mapping[str, Mapping[str, Any]]) -> Iterator[Spelled]:
    """Objects with a name and arguments, one after another or in a list."""
    at = markup.find("{")
    while at >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(markup, at)
        except (ValueError, RecursionError):
            return
        name = value.get("name") or value.get("tool_name")
        arguments: Any = next((value[key] for key in ("arguments", "parameters", "args") if key in value), {})
        if isinstance(arguments, str):
            arguments = _value(arguments)
        if isinstance(name, str) and isinstance(arguments, dict):
            yield name, arguments
        at = markup.find("{", end)


def _of(found: re.Match[str], group: str) -> str:
    """The group of that name, or of that name with a number, that took part."""
    return next((value for key, value in found.groupdict().items() if value is not None and key.rstrip("0123456789") == group), "")


def _object_at(text: str, at: int) -> dict[str, Any] | None:
    try:
        value = json.JSONDecoder().raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _kinds(schema: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The types that a tool's schema allows for one argument; none where it does not say."""
    properties = schema.get("properties")
    member = properties.get(key) if isinstance(properties, dict) else None
    kinds = member.get("type") if isinstance(member, dict) else None
    return (kinds,) if isinstance(kinds, str) else tuple(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else ()


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    return "string" in _kinds(schema, key)


def _fits(call: Spelled, schemas: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the tool is offered, all that it needs is there, and each argument is of a type that it takes."""
    name, arguments = call
    schema = schemas.get(name)
    if schema is None:
        return False
    required = schema.get("required")
    if isinstance(required, list) and not all(key in arguments for key in required):
        return False
    kinds = {key: _kinds(schema, key) for key in arguments}
    return all(not kinds[key] or any(_KINDS.get(kind, lambda _: True)(value) for kind in kinds[key]) for key, value in arguments.items())
