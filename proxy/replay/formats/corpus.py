"""The format of collected runs: one an object, with turns of a user, an assistant with its calls, and a tool with its result.

Of users only the length of what they wrote is kept: two of their texts never count as the same. Results are cut; the hash of the whole
stands for what is missing.
"""

from hashlib import sha256
from typing import Any

import msgspec

from proxy.models import Item, Role
from proxy.replay.formats.entries import made_call, name_of, quoted_text
from proxy.replay.formats.format import Format
from proxy.replay.recording import Recording, Unreadable


class Corpus(Format):
    """One of `FORMATS`."""

    name = "corpus"
    expects = "objects with `id` and `turns` of the roles user, assistant and tool (collected runs)"

    def whole(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("turns"), list)

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        items = [_item(number, turn) for number, turn in enumerate(value["turns"])]
        return Recording(name_of(value, "id") or id, tuple(items), model=name_of(value, "model") or "")


def _item(number: int, turn: Any) -> Item:
    match turn:
        case {"role": "user"}:
            return Item(Role.USER, quoted_text(_user_text(number, turn)))
        case {"role": "assistant", "calls": list() as calls}:
            return Item(Role.ASSISTANT, quoted_text(turn.get("text")), tuple([made_call(call) for call in calls]))
        case {"role": "tool", "result": result}:
            return Item(Role.TOOL, _content(result, turn.get("result_sha")), (), name_of(turn, "id"), turn.get("error") is True)
    raise Unreadable(f"turn {number + 1} is none: expected role user, role assistant with `calls`, or role tool with `result`")


def _user_text(number: int, turn: dict[str, Any]) -> str:
    text, length = turn.get("text"), turn.get("text_len")
    if isinstance(text, str):
        return text
    return f"turn {number}: {length} characters" if length else ""


def _content(result: Any, digest: Any) -> bytes:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    cut = isinstance(digest, str) and sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest
    return quoted_text(f"{text}\n[cut, sha256 {digest}]" if cut else text)
