"""The same conversation in the words of every dialect: a streamed request whose history repeats one call, and what a model says to it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests import messages, responses, upstreams
from tests.upstreams import Asked, Says

READ = {"path": "a.txt"}
USER = {"role": "user", "content": "What is in a.txt?"}


@dataclass(frozen=True)
class Spoken:
    """One dialect. asks: a request whose history holds `READ_A` so many times. streams, wholly: an answer as events, as a body."""

    asks: Callable[..., bytes]
    streams: Callable[[Says], list[bytes]]
    wholly: Callable[[Says], bytes]


def _body(history: list[dict[str, Any]], listed: str, tools: list[dict[str, Any]] | None, **members: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, listed: history} | members | ({"tools": tools} if tools else {})).encode()


def _chat(times: int, *, tools: bool = True, **members: Any) -> bytes:
    history: list[dict[str, Any]] = [USER]
    for number in range(times):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read_file", "arguments": json.dumps(READ)}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{number}", "content": "one line"})
    offered = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    return _body(history, "messages", offered if tools else None, **members)


def _responses(times: int, *, tools: bool = True, **members: Any) -> bytes:
    items: list[dict[str, Any]] = [USER]
    for number in range(times):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read_file", "arguments": json.dumps(READ)}
        items += [call, {"type": "function_call_output", "call_id": f"c{number}", "output": "one line"}]
    return _body(items, "input", responses.TOOLS if tools else None, store=False, **members)


def _messages(times: int, *, tools: bool = True, **members: Any) -> bytes:
    history: list[dict[str, Any]] = [USER]
    for number in range(times):
        history.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"c{number}", "name": "read_file", "input": READ}]})
        history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": "one line"}]})
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
