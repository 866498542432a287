"""Upstreams that do as they are told, in raw bytes on loopback, and the real client pointed at them.

Most follow a script: a list of answers, one a request. Leaving `upstream_at` looks at the pool: no connection may still be in use.
"""

import asyncio
import socket
import ssl
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from proxy.upstream import Target
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Body, Response, Upstream

Handler = Callable[[Reader, Writer], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Seen:
    """What a server received: request heads (lines) and bodies, and how many connections brought them."""

    heads: list[list[str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on a free port, and an end to all its connections."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side went away, or the test is over
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: Reader, seen: Seen) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
    seen.heads.append(head)
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    if "content-length" in fields:
        seen.bodies.append(await reader.readexactly(int(fields["content-length"])))
    elif "transfer-encoding" in fields:
        seen.bodies.append(await reader.readuntil(b"0\r\n\r\n"))


def script(seen: Seen, *answers: bytes | Handler) -> Handler:
    """Answers request after request, over however many connections; b"" hangs up instead."""
    left = iter(answers)

    async def handle(reader: Reader, writer: Writer) -> None:
        seen.connections += 1
        while True:
            await read_request(reader, seen)
            answer = next(left)
            if not answer:
                return
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(reader, writer)
                return

    return handle


@asynccontextmanager
async def upstream_at(port: int, target: Target | None = None, scheme: str = "http") -> AsyncIterator[Upstream]:
    base = target or Target("main", "", connect_timeout=5, read_timeout=5)
    upstream = Upstream(replace(base, base_url=f"{scheme}://127.0.0.1:{port}/v1"))
    try:
        yield upstream
        for _ in range(10):  # turns of the loop in which a cancelled upload ends
            await asyncio.sleep(0)
        assert in_use(upstream) == 0
    finally:
        await upstream.close()


def in_use(upstream: Upstream) -> int:
    """Connections taken from the pool and not given back."""
    connector = upstream._session.connector
    return len(connector._acquired) if connector is not None else 0  # None: closed


async def post(upstream: Upstream, body: Body = b"{}", headers: RawHeaders = (), *, plain: bool = True) -> Response:
    return await upstream.send("POST", "/chat/completions", b"", headers, body, plain=plain)


async def silent(reader: Reader, _: Writer) -> None:
    await reader.read()


async def reset(_: Reader, writer: Writer) -> None:
    """Ends a connection with RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
