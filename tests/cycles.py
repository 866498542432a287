"""Requests on a connection without a socket: the server's side of one, of Lastcall's making or of uvicorn's."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from proxy.asgi import EXTENSION, Cycle, GatheringTransport, Message, Receive, Scope, Send
from proxy.client import Client


class Transport:
    """Keeps what is written to it; as uvloop's, it raises when it is written to after its end. responses: how many were complete."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.reading = True
        self.responses = 0

    def write(self, data: bytes) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def completed(self) -> None:
        self.responses += 1

    @property
    def data(self) -> bytes:
        return b"".join(self.written)


class Seen:
    """An ASGI application that reads every request to its end and keeps it."""

    def __init__(self) -> None:
        self.requests: list[tuple[Scope, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        message: Message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
        self.requests.append((scope, body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def gathering(transport: Transport) -> GatheringTransport:
    return GatheringTransport(transport, asyncio.get_running_loop())  # type: ignore[arg-type]


Fields = Sequence[tuple[bytes, bytes]]


def cycle_of(method: str = "POST", fields: Fields = (), *, keep_alive: bool = True) -> tuple[Cycle, Transport, FlowControl]:
    """One of Lastcall's, and what it writes to."""
    transport = Transport()
    flow = FlowControl(transport)  # type: ignore[arg-type]
    cycle = Cycle({"method": method, "headers": list(fields)}, gathering(transport), flow, transport.completed)
    cycle.keep_alive = keep_alive
    cycle.headers = {name.decode(): value.decode("latin-1") for name, value in fields}
    return cycle, transport, flow


def uvicorns(method: str = "POST", *, keep_alive: bool = True) -> tuple[RequestResponseCycle, Transport]:
    """One of uvicorn's own."""
    transport, log = Transport(), logging.getLogger("unheard")
    flow = FlowControl(transport)  # type: ignore[arg-type]
    scope: Any = {"method": method, "headers": []}
    event = asyncio.Event()
    return RequestResponseCycle(scope, transport, flow, log, log, False, [], event, False, keep_alive, transport.completed), transport  # type: ignore[arg-type]


def client_on(cycle: Cycle, fields: Fields = ()) -> Client:
    """The client whose request that is."""
    return Client({"headers": list(fields), "extensions": {EXTENSION: cycle}}, cycle.receive, cycle.send)
