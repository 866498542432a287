"""The wire formats of the benchmark's conversations: what a client sends in each, and what the fixed upstream answers."""

import json
from collections.abc import Sequence
from typing import Protocol

Json = dict[str, object]

MODEL = "gpt-5-mini"
READ, WRITTEN = 14_000, 60  # tokens, as every answer says
_CREATED = 1_760_000_000


class Dialect(Protocol):
    """One wire format. name: as Lastcall calls it; path: of its route.

    Calls are made of an id, the tool's name and its raw arguments.
    """

    name: str
    path: str

    def opening(self, instructions: str, task: str, tools: Sequence[Json]) -> tuple[Json, list[Json]]:
        """The body without its items, whose member comes last and is empty, and the first items. tools: functions as chat names them."""
        ...

    def answered(self, text: str, call: tuple[str, str, str], result: str) -> list[Json]:
        """The items of one turn: an answer with a text and a call, and the call's result."""
        ...

    def answer(self, text: str, call: tuple[str, str, str]) -> Json:
        """A whole answer of the upstream's."""
        ...


class Chat:
    """Chat completions."""

    name = "chat"
    path = "/chat/completions"

    def opening(self, instructions: str, task: str, tools: Sequence[Json]) -> tuple[Json, list[Json]]:
        said: list[Json] = [{"role": "system", "content": instructions}, {"role": "user", "content": task}]
        return {"model": MODEL, "tools": [{"type": "function", "function": tool} for tool in tools], "messages": []}, said

    def answered(self, text: str, call: tuple[str, str, str], result: str) -> list[Json]:
        return [self._message(text, call), {"role": "tool", "tool_call_id": call[0], "content": result}]

    def answer(self, text: str, call: tuple[str, str, str]) -> Json:
        choice: Json = {"index": 0, "message": self._message(text, call), "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": READ, "completion_tokens": WRITTEN, "total_tokens": READ + WRITTEN}
        head: Json = {"id": "chatcmpl-bench", "object": "chat.completion", "created": _CREATED, "model": MODEL}
        return head | {"choices": [choice], "usage": usage}

    def _message(self, text: str, call: tuple[str, str, str]) -> Json:
        id, name, arguments = call
        made: Json = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": text, "tool_calls": [made]}


class Responses:
    """Responses, with the whole history in every request."""

    name = "responses"
    path = "/responses"

    def opening(self, instructions: str, task: str, tools: Sequence[Json]) -> tuple[Json, list[Json]]:
        functions: list[Json] = [{"type": "function", **tool} for tool in tools]
        said: list[Json] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": task}]}]
        return {"model": MODEL, "instructions": instructions, "store": False, "tools": functions, "input": []}, said

    def answered(self, text: str, call: tuple[str, str, str], result: str) -> list[Json]:
        return [*self._output(text, call), {"type": "function_call_output", "call_id": call[0], "output": result}]

    def answer(self, text: str, call: tuple[str, str, str]) -> Json:
        usage = {"input_tokens": READ, "output_tokens": WRITTEN, "total_tokens": READ + WRITTEN}
        head: Json = {"id": "resp_bench", "object": "response", "created_at": _CREATED, "status": "completed", "model": MODEL}
        return head | {"output": self._output(text, call), "usage": usage}

    def _output(self, text: str, call: tuple[str, str, str]) -> list[Json]:
        id, name, arguments = call
        said: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}
        return [said, {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}]


class Messages:
    """Anthropic messages."""

    name = "messages"
    path = "/messages"

    def opening(self, instructions: str, task: str, tools: Sequence[Json]) -> tuple[Json, list[Json]]:
        known: list[Json] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools
        ]
        system: list[Json] = [{"type": "text", "text": instructions}]
        return {"model": MODEL, "max_tokens": 8_192, "system": system, "tools": known, "messages": []}, [{"role": "user", "content": task}]

    def answered(self, text: str, call: tuple[str, str, str], result: str) -> list[Json]:
        came: Json = {"type": "tool_result", "tool_use_id": call[0], "content": result}
        return [{"role": "assistant", "content": self._content(text, call)}, {"role": "user", "content": [came]}]

    def answer(self, text: str, call: tuple[str, str, str]) -> Json:
        head: Json = {"id": "msg_bench", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "tool_use"}
        return head | {"content": self._content(text, call), "usage": {"input_tokens": READ, "output_tokens": WRITTEN}}

    def _content(self, text: str, call: tuple[str, str, str]) -> list[Json]:
        id, name, arguments = call
        return [{"type": "text", "text": text}, {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}]


CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
DIALECTS: tuple[Dialect, ...] = (CHAT, RESPONSES, MESSAGES)
