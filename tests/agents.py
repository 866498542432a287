"""A plain agent over raw HTTP: a tool loop that knows nothing of Lastcall, and keeps what it was answered to the byte."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("read_file", "search", "edit", "pytest")
]
TURN_CAP = 20

Tool = Callable[[str, str, int], str]
"""Name, arguments and how many results there were before: the result."""


@dataclass(frozen=True)
class Turn:
    """One answer. message: the assistant's, None where the answer holds none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    message: dict[str, Any] | None
    lastcall: dict[str, Any] | None
    error: dict[str, Any] | None

    @property
    def action(self) -> str:
        return self.headers["x-lastcall-action"]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return (self.message or {}).get("tool_calls") or []

    @property
    def text(self) -> str:
        return (self.message or {}).get("content") or ""


class Agent:
    """One run of work. url: the base URL, /v1 included, asked for before each request. tool: what its tools return."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str | Callable[[], str],
        *,
        tool: Tool = lambda name, arguments, number: "one line",
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        task: str = "What is in a.txt?",
        **body: Any,
    ) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": task}]
        self.headers = {"authorization": f"Bearer {key or 'sk-' + uuid.uuid4().hex}", **(headers or {})}
        self.body = {"model": "gpt-4o", "tools": TOOLS, **({"stream": True} if stream else {}), **body}
        self._http = http
        self._url = url
        self._tool = tool
        self._results = 0

    def payload(self) -> bytes:
        return json.dumps({**self.body, "messages": self.messages}).encode()

    async def ask(self, **headers: str) -> Turn:
        """Sends the history once, and leaves it as it is. headers: further ones, `_` for `-`."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask_raw(self.payload(), **more)

    async def ask_raw(self, payload: bytes, **headers: str) -> Turn:
        url = self._url if isinstance(self._url, str) else self._url()
        sent = {"content-type": "application/json", **self.headers, **headers}
        async with self._http.post(f"{url}/chat/completions", data=payload, headers=sent) as response:
            return turn_of(response.status, response.headers, await response.read())

    def take(self, turn: Turn) -> None:
        """Adds an answer to the history, and carries out its calls."""
        assert turn.message is not None
        self.messages.append(turn.message)
        for call in turn.calls:
            result = self._tool(call["function"]["name"], call["function"]["arguments"], self._results)
            self._results += 1
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def say(self, text: str) -> None:
        """A person speaks."""
        self.messages.append({"role": "user", "content": text})

    async def run(self, *, cap: int = TURN_CAP, between: Callable[[], Awaitable[object]] | None = None) -> list[Turn]:
        """Until an answer without calls, an error, or the cap. between: awaited after each turn but the last."""
        turns: list[Turn] = []
        while len(turns) < cap:
            turn = await self.ask()
            turns.append(turn)
            if turn.message is not None:
                self.take(turn)
            if not turn.calls:
                break
            if between is not None:
                await between()
        return turns


def turn_of(status: int, headers: Mapping[str, str], body: bytes) -> Turn:
    """Reads an answer, whole or streamed."""
    if headers.get("content-type", "").startswith("text/event-stream"):
        return _streamed(status, headers, body)
    decoded = json.loads(body) if headers.get("content-type", "").startswith("application/json") else {}
    choices = decoded.get("choices") or [{}]
    return Turn(status, headers, body, choices[0].get("message"), decoded.get("lastcall"), decoded.get("error"))


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The data events of a stream, but for its terminator."""
    lines = [line[5:].strip() for line in body.decode().split("\n") if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _streamed(status: int, headers: Mapping[str, str], body: bytes) -> Turn:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    lastcall = error = None
    finished = False
    for event in events_of(body):
        lastcall = event.get("lastcall") or lastcall
        error = event.get("error") or error
        for choice in event.get("choices") or ():
            finished = finished or choice["finish_reason"] is not None
            message["content"] += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or ():
                known = calls.setdefault(
                    part["index"], {"id": part.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
                )
                for key, value in part.get("function", {}).items():
                    known["function"][key] += value or ""
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return Turn(status, headers, body, message if finished else None, lastcall, error)
