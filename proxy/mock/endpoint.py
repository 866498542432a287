"""The scripted model behind HTTP: every wire format it speaks, on one port."""

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from proxy.errors import ConfigError
from proxy.listening import listen, url_of
from proxy.mock.asked import Asked, Said, answer
from proxy.mock.chat import Chat
from proxy.mock.messages import Messages
from proxy.mock.responses import Responses
from proxy.mock.script import Script, parse_script

BYTES_PER_TOKEN = 4


class Wire(Protocol):
    """A wire format. path: under /v1. called: its name for people. Tokens: sent and written, as counts."""

    path: str
    called: str

    def read(self, body: bytes) -> Asked:
        """Raises `msgspec.DecodeError` on what is no request of it."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]: ...

    def whole(self, asked: Asked, said: Said, sent: int, written: int) -> dict[str, Any]: ...

    def events(self, asked: Asked, said: Said, sent: int, written: int) -> Iterator[str]: ...


WIRES: tuple[Wire, ...] = (Chat(), Responses(), Messages())


class Served(msgspec.Struct, frozen=True):
    """What one chat request got. said: the calls or the text, for people. Tokens are bytes / 4, rounded up; 0 for an error."""

    body: bytes
    status: int
    said: str
    input_tokens: int = 0
    output_tokens: int = 0


def build(script: Script | None = None, *, on_served: Callable[[Served], None] = lambda served: None) -> FastAPI:
    """The endpoint as an ASGI application. on_served is told of every request to the model before its answer is sent."""
    script = script or Script()
    app = FastAPI(title="Lastcall mock upstream", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "mock", "object": "model", "created": 0, "owned_by": "lastcall"}]}

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> dict[str, int]:
        return {"input_tokens": _tokens(await request.body())}

    for wire in WIRES:
        app.post(f"/v1{wire.path}")(_route(wire, script, on_served))
    return app


def _route(wire: Wire, script: Script, on_served: Callable[[Served], None]) -> Callable[[Request], Any]:
    async def model(request: Request) -> Response:
        body = await request.body()

        def failed(status: int, message: str) -> Response:
            on_served(Served(body, status, message))
            return JSONResponse(wire.error(status, message), status)

        try:
            asked = wire.read(body)
        except msgspec.DecodeError as error:
            return failed(400, f"not a {wire.called} request: {error}")
        step = script.steps[min(asked.turns, len(script.steps) - 1)]
        if step.status is not None:
            return failed(step.status, f"the script says {step.status}")
        forbidden = asked.forbidden and not script.ignores_none
        heeded = script.heeds_nudge and b"[lastcall]" in body
        said = answer(asked, step, may_call=not (forbidden or heeded))
        sent, written = _tokens(body), _tokens(str(said).encode())
        on_served(Served(body, 200, str(said), sent, written))
        if asked.stream:
            return StreamingResponse(_sent(wire.events(asked, said, sent, written)), media_type="text/event-stream")
        return JSONResponse(wire.whole(asked, said, sent, written))

    return model


def _tokens(text: bytes) -> int:
    return math.ceil(len(text) / BYTES_PER_TOKEN)


async def _sent(events: Iterator[str]) -> AsyncIterator[str]:
    for event in events:
        yield event


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
