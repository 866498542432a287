"""The same conversation in the words of every dialect: a streamed request whose history repeats one call, and what a model says to it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests import messages, responses, upstreams
from tests.upstreams import READ_A, Asked, Says

Calls = Sequence[tuple[str, str]]
USER = {"role": "user", "content": "What is in a.txt?"}


@dataclass(frozen=True)
class Spoken:
    """One dialect. asks: a request whose history makes the same calls so many times. streams, wholly: an answer as events, as a body."""

    asks: Callable[..., bytes]
    streams: Callable[[Says], list[bytes]]
    wholly: Callable[[Says], bytes]


def _body(history: list[dict[str, Any]], listed: str, tools: list[dict[str, Any]] | None, **members: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, listed: history} | members | ({"tools": tools} if tools else {})).encode()


def _numbered(number: int, calls: Calls) -> list[tuple[str, str, str]]:
    """The calls of a message, each under an id of its own."""
    return [(f"c{number}" + "_" * place, name, arguments) for place, (name, arguments) in enumerate(calls)]


def _chat(times: int, *, calls: Calls = READ_A.calls, tools: bool = True, **members: Any) -> bytes:
    history: list[dict[str, Any]] = [USER]
    for number in range(times):
        made = _numbered(number, calls)
        called = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id, name, arguments in made]
        history.append({"role": "assistant", "content": None, "tool_calls": called})
        history += [{"role": "tool", "tool_call_id": id, "content": "one line"} for id, _, _ in made]
    offered = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    return _body(history, "messages", offered if tools else None, **members)


def _responses(times: int, *, calls: Calls = READ_A.calls, tools: bool = True, **members: Any) -> bytes:
    items: list[dict[str, Any]] = [USER]
    for number in range(times):
        made = _numbered(number, calls)
        items += [{"type": "function_call", "call_id": id, "name": name, "arguments": arguments} for id, name, arguments in made]
        items += [{"type": "function_call_output", "call_id": id, "output": "one line"} for id, _, _ in made]
    return _body(items, "input", responses.TOOLS if tools else None, store=False, **members)


def _messages(times: int, *, calls: Calls = READ_A.calls, tools: bool = True, **members: Any) -> bytes:
    history: list[dict[str, Any]] = [USER]
    for number in range(times):
        made = _numbered(number, calls)
        uses = [{"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)} for id, name, arguments in made]
        history.append({"role": "assistant", "content": uses})
        history.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "one line"} for id, _, _ in made]}
        )
    return _body(history, "messages", messages.TOOLS if tools else None, max_tokens=1000, **members)


def _response(says: Says) -> dict[str, Any]:
    return responses.response_of(responses.output_of(says), Asked("POST", "/", [], _responses(0)))


def _message(says: Says) -> dict[str, Any]:
    return messages.message_of(says, json.loads(_messages(0)))


SPOKEN = {
    "/chat/completions": Spoken(_chat, lambda says: upstreams.chunks(says, Asked("POST", "/", [], _chat(0))), upstreams.completion),
    "/responses": Spoken(_responses, lambda says: responses.events(_response(says)), lambda says: json.dumps(_response(says)).encode()),
    "/messages": Spoken(_messages, lambda says: messages.events(_message(says)), lambda says: json.dumps(_message(says)).encode()),
}
