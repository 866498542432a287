"""SWE-agent trajectories (`.traj`): steps of a thought, an action, which is one command, and what it showed."""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.models import Item, Role, ToolCall
from proxy.replay.formats.entries import encoded, name_of, quoted_text
from proxy.replay.formats.format import Format
from proxy.replay.recording import Recording, Unreadable

_TOOL = "shell"


class SweAgent(Format):
    """One of `FORMATS`."""

    name = "swe_agent"
    expects = "an object with a `trajectory` of steps with `action` and `observation` (SWE-agent)"

    def whole(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("trajectory"), list)

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        opening = list(_opening(value.get("history")))
        steps = [item for number, step in enumerate(value["trajectory"]) for item in _step(number, step)]
        return Recording(name_of(value, "id", "instance_id") or id, (*opening, *steps))


def _opening(history: Any) -> Iterator[Item]:
    """What stands in the history before the first answer: system text and the task, demonstrations left out."""
    for message in history if isinstance(history, list) else ():
        if not isinstance(message, Mapping) or (message.get("role") == "assistant" and not message.get("is_demo")):
            return
        if message.get("role") in ("system", "user") and not message.get("is_demo") and "content" in message:
            yield Item(Role(message["role"]), encoded(message["content"]))


def _step(number: int, step: Any) -> Iterator[Item]:
    match step:
        case {"action": str() as action}:
            said, shown = quoted_text(step.get("thought") or step.get("response")), quoted_text(step.get("observation"))
        case _:
            raise Unreadable(f"step {number + 1} is none: expected `action` and `observation`")
    if not action.strip():  # the answer held no command, and was told so
        yield Item(Role.ASSISTANT, said)
        yield Item(Role.USER, shown)
        return
    call = ToolCall(f"step{number}", _TOOL, encoded({"command": action.strip()}).decode())
    yield Item(Role.ASSISTANT, said, (call,))
    yield Item(Role.TOOL, shown, (), call.id)
