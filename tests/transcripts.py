"""Histories written as lists of turns, made into requests by way of a real chat-completions body.

A history reads as it happened: `request(user("find it"), called("grep", {"q": "x"}, result="a.txt"), said("There."), user("Next?"))`.
Calls without an `id` are numbered by their place, so that a history that grows keeps its ids; where turns are left out (a compaction
that keeps its tail), write the ids.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proxy.dialects.chat import Chat
from proxy.models import Request

NO_ID = ""  # as a call's id: neither the call nor its result carries one

Wire = dict[str, Any]


class Call(msgspec.Struct, frozen=True):
    """A call with its result (None: not answered yet), by itself a whole turn. arguments: an object, or raw text."""

    name: str
    arguments: dict[str, Any] | str
    result: str | list[Any] | None
    id: str | None
    text: str


class Together(msgspec.Struct, frozen=True):
    """Calls of one assistant message, answered in order."""

    calls: tuple[Call, ...]
    text: str


class Plain(msgspec.Struct, frozen=True):
    """A message that is nothing but its wire form."""

    message: Wire


Turn = Call | Together | Plain


def user(text: str | list[Any]) -> Plain:
    """A message of the user role."""
    return Plain({"role": "user", "content": text})


def said(text: str | None) -> Plain:
    """An assistant message without calls."""
    return Plain({"role": "assistant", "content": text})


def system(text: str) -> Plain:
    """A further message of the system role, in the place where it is written."""
    return Plain({"role": "system", "content": text})


def answered(result: str, id: str | None) -> Plain:
    """A tool result on its own, for calls written with `result=None`."""
    return Plain({"role": "tool", "content": result} | ({"tool_call_id": id} if id else {}))


def called(
    name: str = "read_file",
    arguments: dict[str, Any] | str | None = None,
    result: str | list[Any] | None = "ok",
    *,
    id: str | None = None,
    text: str = "",
) -> Call:
    """An assistant message with one call, and its result. id: None numbers it by its place, `NO_ID` leaves it out."""
    return Call(name, arguments if arguments is not None else {}, result, id, text)


def together(*calls: Call, text: str = "") -> Together:
    """An assistant message with several calls, then their results in order."""
    return Together(calls, text)


def messages(turns: Sequence[Turn]) -> Iterator[Wire]:
    """The wire form of a history."""
    number = 0
    for turn in turns:
        match turn:
            case Plain(message):
                yield message
            case Call() | Together():
                calls = (turn,) if isinstance(turn, Call) else turn.calls
                ids = [f"call_{number + place}" if call.id is None else call.id for place, call in enumerate(calls)]
                number += len(calls)
                yield {"role": "assistant", "content": turn.text or None, "tool_calls": list(map(_wire_call, calls, ids))}
                yield from (
                    answered("", id).message | {"content": call.result}
                    for call, id in zip(calls, ids, strict=True)
                    if call.result is not None
                )


def _wire_call(call: Call, id: str) -> Wire:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return ({"id": id} if id else {}) | {"type": "function", "function": {"name": call.name, "arguments": arguments}}


def body(
    *turns: Turn, tools: Sequence[str] = ("read_file", "bash", "edit"), system: str | None = "s", stream: bool = False, **fields: Any
) -> bytes:
    """A chat-completions body. system: the leading system message, None for none. fields: further top-level fields."""
    head = [] if system is None else [{"role": "system", "content": system}]
    offered = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in tools]
    wire: Wire = {"model": "m", "messages": [*head, *messages(turns)]}
    return json.dumps(wire | ({"tools": offered} if tools else {}) | ({"stream": True} if stream else {}) | fields).encode()


def request(
    *turns: Turn, tools: Sequence[str] = ("read_file", "bash", "edit"), system: str | None = "s", stream: bool = False, **fields: Any
) -> Request:
    """A request with this history, as the chat dialect reads it."""
    return Chat().parse(body(*turns, tools=tools, system=system, stream=stream, **fields))
