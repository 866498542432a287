"""A model that has collapsed: a scripted chat-completions endpoint to try an agent against, without a key or a network.

It keeps no state. What it answers follows from the request alone, so that a retry gets the same answer (under a new id) and any
number of clients can use it at once. Unless a script says otherwise it asks for the same call for as long as tools are offered.
"""

import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from proxy.errors import ConfigError
from proxy.listening import listen, url_of
from proxy.models import text_of

BYTES_PER_TOKEN = 4
FRAGMENT = re.compile(r"(?s).{1,16}")
# Tools that look and do not touch, best first. The samples below are for these alone: a tool of unknown nature (it may delete) is
# called with values that name nothing on the client's disk.
HARMLESS = ("bash", "shell", "terminal", "command", "exec", "status", "read", "view", "cat", "grep", "search", "list", "ls")
SAMPLES = dict.fromkeys(("command", "cmd"), "git status") | dict.fromkeys(("path", "file_path", "filePath"), "README.md")
BLANKS: dict[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "null": None}


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call to ask for. None: a harmless-looking tool, arguments from its schema. A string as arguments is sent as it stands."""

    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class Step(Call, frozen=True, forbid_unknown_fields=True):
    """One answer: an error status, else text, else several calls at once, else one call."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None


Steps = Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model does. The answer to a history of n assistant messages is step n; the last step repeats.

    ignores_none: asks for calls although `tool_choice` is `none`. heeds_nudge: answers with text once the request holds a nudge.
    """

    steps: Steps = (Step(),)
    ignores_none: bool = False
    heeds_nudge: bool = False


class Served(msgspec.Struct, frozen=True):
    """What one chat request got. said: the calls or the text, for people. Tokens are bytes / 4, rounded up; 0 for an error."""

    body: bytes
    status: int
    said: str
    input_tokens: int = 0
    output_tokens: int = 0


class _Function(msgspec.Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Asked(msgspec.Struct, frozen=True):
    """The part of a chat request that matters here."""

    messages: list[_Message]
    model: str = "mock"
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None

    @property
    def functions(self) -> list[_Function]:
        return [tool.function for tool in self.tools or () if tool.function]


def parse_script(text: str) -> Script:
    """Reads a script file: a JSON list of steps, or an object with `steps` and the options of `Script`. Raises `ConfigError`."""
    try:
        script: Script | Steps = msgspec.json.decode(text, type=Script | Steps)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the script cannot be used: {error}; see docs/mock.md") from error
    return script if isinstance(script, Script) else Script(script)


def build(script: Script | None = None, *, on_served: Callable[[Served], None] = lambda served: None) -> FastAPI:
    """The endpoint as an ASGI application. on_served is told of every chat request before its answer is sent."""
    script = script or Script()
    app = FastAPI(title="Lastcall mock upstream", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "mock", "object": "model", "created": 0, "owned_by": "lastcall"}]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.body()
        try:
            asked = msgspec.json.decode(body, type=_Asked)
        except msgspec.DecodeError as error:
            return _error(body, 400, f"not a chat completions request: {error}", on_served)
        turns = sum(message.role == "assistant" for message in asked.messages)
        step = script.steps[min(turns, len(script.steps) - 1)]
        if step.status is not None:
            return _error(body, step.status, f"the script says {step.status}", on_served)
        forbidden = asked.tool_choice == "none" and not script.ignores_none
        heeded = script.heeds_nudge and b"[lastcall]" in body
        message = _message(asked, step, may_call=not (forbidden or heeded))
        usage = _usage(body, message)
        on_served(Served(body, 200, _said(message), usage["prompt_tokens"], usage["completion_tokens"]))
        return _response(asked, message, usage)

    return app


def serve(*, host: str, port: int, script: str | None) -> None:
    """Serves the endpoint until it is told to end, a line for each request. script: path of a script file. Raises `ConfigError`."""
    try:
        steps = parse_script(Path(script).read_text(encoding="utf-8")) if script else Script()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the script {script!r} cannot be read: {error}") from error
    listener = listen(host, port)
    click.echo(f"Point your agent's base URL at {url_of(listener)}/v1 (any key will do). Ctrl-C ends it.")
    server = uvicorn.Server(uvicorn.Config(build(steps, on_served=_announce), access_log=False, log_level="warning"))
    with contextlib.suppress(KeyboardInterrupt):  # so a server that SIGINT has ended in good order hands it on
        server.run(sockets=[listener])


def _announce(served: Served) -> None:
    click.echo(f"{served.status}  {len(served.body):>9,} bytes  {served.input_tokens:>7,} tokens in  {served.said}")


def _message(asked: _Asked, step: Step, *, may_call: bool) -> dict[str, Any]:
    """The assistant message of the answer: the step's, or the text of a model that concludes."""
    if step.text is not None:
        return {"role": "assistant", "content": step.text}
    if not (may_call and asked.functions):
        return {"role": "assistant", "content": _conclusion(asked)}
    calls = step.calls or (step,)
    match asked.tool_choice:
        case {"function": {"name": str(forced)}}:
            calls = (Call(forced),)
    return {"role": "assistant", "content": None, "tool_calls": [_tool_call(call, asked.functions) for call in calls]}


def _conclusion(asked: _Asked) -> str:
    results = [text_of(bytes(message.content)) for message in asked.messages if message.role == "tool"]
    first_line = results[-1].strip().partition("\n")[0] if results else ""
    return f"This is what I know: {first_line}" if first_line else "I have nothing to add."


def _tool_call(call: Call, offered: list[_Function]) -> dict[str, Any]:
    if call.name is None:
        function = min(offered, key=lambda function: _rank(function.name))
    else:
        function = next((function for function in offered if function.name == call.name), _Function(call.name))
    samples = SAMPLES if _rank(function.name) < len(HARMLESS) else {}
    arguments = _required(function.parameters or {}, samples) if call.arguments is None else call.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": {"name": function.name, "arguments": text}}


def _rank(name: str) -> int:
    """The place of the tool's best word in `HARMLESS`; its length when no word of the name is there."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return next((place for place, word in enumerate(HARMLESS) if word in words), len(HARMLESS))


def _required(schema: dict[str, Any], samples: dict[str, str]) -> dict[str, Any]:
    """The least object that fits a JSON schema: its required properties."""
    properties = schema.get("properties") or {}
    return {name: _value(properties.get(name), samples.get(name, "example")) for name in schema.get("required") or ()}


def _value(schema: Any, sample: str) -> Any:
    """A value for one property: what its schema names, else one of its type; `sample` where that is text."""
    match schema:
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]}:
            return _value(first, sample)
        case {"type": [kind, *_]}:
            return _value({**schema, "type": kind}, sample)
        case {"type": "object"}:
            return _required(schema, {})
        case {"type": "array", "items": {"type": "string"}}:
            return sample.split()
        case {"type": str(kind)}:
            return BLANKS.get(kind, sample)
        case _:
            return sample


def _said(message: dict[str, Any]) -> str:
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())]
    return ", ".join(calls) or str(message["content"])


def _usage(body: bytes, message: dict[str, Any]) -> dict[str, int]:
    sent, written = (math.ceil(len(text) / BYTES_PER_TOKEN) for text in (body, _said(message).encode()))
    return {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}


def _error(body: bytes, status: int, message: str, on_served: Callable[[Served], None]) -> Response:
    on_served(Served(body, status, message))
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)


def _response(asked: _Asked, message: dict[str, Any], usage: dict[str, int]) -> Response:
    head: dict[str, Any] = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": asked.model}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    if not asked.stream:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    wants_usage = bool((asked.stream_options or {}).get("include_usage"))
    head |= {"object": "chat.completion.chunk"} | ({"usage": None} if wants_usage else {})
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in _deltas(message)]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = [{**head, "choices": [choice]} for choice in choices]
    chunks += [{**head, "choices": [], "usage": usage}] if wants_usage else []
    return StreamingResponse(_events(chunks), media_type="text/event-stream")


async def _events(chunks: list[dict[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message in fragments, as providers stream it: the role, then text, then each call's head and its arguments piece by piece."""
    yield {"role": "assistant", "content": "" if message["content"] else None}
    for piece in FRAGMENT.findall(message["content"] or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in FRAGMENT.findall(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
