"""Tool calls as chat completions write them: whole in requests and answers, in fragments in a stream."""

from collections.abc import Iterable
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects.raw_json import UNREADABLE, Shape, argument_text, plain, present, text, whole
from proxy.models import ToolCall


class Function(Struct, gc=False):
    """`function` of a call or of an offered tool, `function_call`, or a legacy function."""

    name: Any = None
    arguments: Raw = Raw()


class Custom(Struct, gc=False):
    """`custom` of a call or of an offered tool, whose input is free text."""

    name: Any = None
    input: Raw = Raw()


class WireCall(Struct, gc=False):
    """A call, or a fragment of one."""

    index: Any = None
    id: Any = None
    function: Function | None = None
    custom: Custom | None = None


class _UsualFunction(Struct, gc=False):
    name: str
    arguments: str


class UsualCall(Struct, gc=False):
    """A function call as the standard has it."""

    id: str
    function: _UsualFunction


_USUAL_CALLS = Decoder(list[UsualCall])
CALLS = Shape(WireCall)
FUNCTION = Shape(Function)


def read_calls(tool_calls: bytes, function_call: bytes = b"") -> tuple[ToolCall, ...]:
    """The calls of a message, a legacy one last. An unreadable call keeps its place, without a name."""
    if not tool_calls and not function_call:
        return ()
    try:
        # A history holds hundreds of calls and nearly all are like this: a third of the time of the general way below.
        calls = usual_calls(_USUAL_CALLS.decode(tool_calls))
    except UNREADABLE:
        calls = tuple([_whole_call(call) for call in CALLS.many(tool_calls)])
    return (*calls, _whole_call(WireCall(function=FUNCTION.one(function_call)))) if present(function_call) else calls


def usual_calls(calls: Iterable[UsualCall]) -> tuple[ToolCall, ...]:
    """Calls that are as the standard has them."""
    return tuple([ToolCall(call.id or None, call.function.name, call.function.arguments) for call in calls])


def _whole_call(call: WireCall) -> ToolCall:
    name, arguments = _said(call)
    return ToolCall(text(call.id), name, arguments, call.custom is not None)


def _said(call: WireCall) -> tuple[str, str]:
    if call.function is not None:
        return text(call.function.name) or "", argument_text(call.function.arguments)
    if call.custom is not None:
        return text(call.custom.name) or "", argument_text(call.custom.input)
    return "", ""


class _Draft:
    """A call of which not every fragment may have come yet."""

    __slots__ = ("custom", "id", "index", "name", "parts")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.custom = False
        self.parts: list[str] = []

    def is_finished(self) -> bool:
        """Whether the arguments are a whole JSON object, to which nothing can be added."""
        first = next((part for part in self.parts if part.strip()), "")
        last = next((part for part in reversed(self.parts) if part.strip()), "")
        if not first.lstrip().startswith("{") or not last.rstrip().endswith("}"):
            return False
        return isinstance(plain("".join(self.parts).encode("utf-8", "replace")), dict)


class CallMerger:
    """Puts the fragments of one choice's calls together, whatever the server did to their ids and indices.

    A fragment belongs to the call with its id, else to the one at its index, else to the latest; a name where there is one already
    begins another call unless it is a mere repetition. begun: counts each call's name when it is first seen.
    """

    def __init__(self, begun: dict[str, int]) -> None:
        self._begun = begun
        self._drafts: list[_Draft] = []
        self._by_id: dict[str, _Draft] = {}
        self._by_index: dict[int, _Draft] = {}

    def add(self, fragment: WireCall) -> None:
        index, call_id = whole(fragment.index), text(fragment.id)
        name, arguments = _said(fragment)
        draft = self._find(call_id, index, name, arguments)
        if draft is None:
            draft = _Draft(index)
            self._drafts.append(draft)
        if index is not None:
            self._by_index[index] = draft
        if call_id is not None:
            self._by_id[call_id] = draft
            draft.id = draft.id or call_id
        if name and not draft.name:
            draft.name = name
            self._begun[name] = self._begun.get(name, 0) + 1
        draft.custom = draft.custom or fragment.custom is not None
        draft.parts.append(arguments)

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in the order they began."""
        calls = (ToolCall(draft.id, draft.name, "".join(draft.parts), draft.custom) for draft in self._drafts)
        return tuple(call for call in calls if call.id or call.name or call.arguments)

    def _find(self, call_id: str | None, index: int | None, name: str, arguments: str) -> _Draft | None:
        """The call that a fragment continues; None when it begins one."""
        latest = self._drafts[-1] if self._drafts else None
        here = latest if index is None else self._by_index.get(index)
        if call_id is not None:
            known = self._by_id.get(call_id)
            if known is None:
                # Without a name it cannot be an opening: some servers send the id late, or another one with each fragment.
                return None if name else here
            moved = index is not None and known.index is not None and index != known.index
            return None if _opens_another(known, name, arguments, moved) else known
        if here is None:
            return None if name else latest
        return None if _opens_another(here, name, arguments, index is None) else here


def _opens_another(draft: _Draft, name: str, arguments: str, elsewhere: bool) -> bool:
    """Whether a fragment with a name begins a call of its own although its id or index leads to a call that has one.

    elsewhere: whether id and index disagree, or neither is there. Some servers repeat name and id with every fragment, so a name
    alone does not tell.
    """
    if not name or not draft.name:
        return False
    return elsewhere or name != draft.name or (bool(arguments.strip()) and draft.is_finished())
