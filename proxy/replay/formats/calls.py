"""A plain list of calls, with or without their results: each counts as a message of its own.

A result that is not recorded is one that was not seen: it is no news.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.models import Item, Role
from proxy.replay.formats.entries import encoded, made_call, name_of
from proxy.replay.formats.format import Format
from proxy.replay.recording import Recording, Unreadable

_NAMES = ("name", "tool", "tool_name")
_ARGUMENTS = ("arguments", "args", "input")
_RESULTS = ("result", "output", "observation", "response")


class Calls(Format):
    """One of `FORMATS`."""

    name = "calls"
    expects = "calls as {name, arguments} and perhaps result, or objects with a list of such `calls`"

    def whole(self, value: dict[str, Any]) -> bool:
        calls = value.get("calls")
        return isinstance(calls, list) and any(isinstance(call, dict) and self.part(call) for call in calls)

    def part(self, value: dict[str, Any]) -> bool:
        named = any(isinstance(value.get(key), str) for key in _NAMES)
        return named and any(key in value for key in (*_ARGUMENTS, *_RESULTS))

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        return _recording(name_of(value, "id", "session_id", "run") or id, value["calls"])

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        return [_recording(id, values)]


def _recording(id: str, calls: Sequence[Any]) -> Recording:
    return Recording(id, tuple(item for number, call in enumerate(calls) for item in _items(number, call)))


def _items(number: int, value: Any) -> Iterator[Item]:
    if not isinstance(value, Mapping):
        raise Unreadable(f"call {number + 1} is none: expected {{name, arguments}} and perhaps result")
    yield Item(Role.ASSISTANT, b"", (made_call(value),))
    key = next((key for key in _RESULTS if key in value), None)
    failure = value.get("error")
    if key is not None or failure:
        result = value.get(key) if key is not None else failure
        failed = bool(failure) or value.get("is_error") is True
        yield Item(Role.TOOL, encoded(result), (), name_of(value, "id", "call_id"), failed)
