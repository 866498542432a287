"""The bare passthrough that Lastcall is compared with: the least that the same server and client do.

`python -m bench.bare --port N --upstream URL`. Plain ASGI on uvicorn; the body is read whole, sent on over pooled connections, and the
answer handed back as it comes. It judges nothing, watches nothing and does not survive errors.
"""

import argparse
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import uvicorn

Message = dict[str, Any]
_NOT_PASSED_ON = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding"})
_OWN_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Passthrough:
    """The ASGI application. upstream: scheme, host and port."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"] if name not in _NOT_PASSED_ON]
        url = self._upstream + scope["path"]
        async with self._session.request(scope["method"], url, headers=headers, data=await _body(receive)) as response:
            fields = [
                (name.lower(), value) for name, value in response.raw_headers if name.lower() not in _NOT_PASSED_ON - {b"content-length"}
            ]
            await send({"type": "http.response.start", "status": response.status, "headers": fields})
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _live(self, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        await receive()
        async with self._client() as self._session:
            gc.collect()
            gc.freeze()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(limit=0)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=jar, auto_decompress=False, skip_auto_headers=_OWN_HEADERS
        ) as session:
            yield session


async def _body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--upstream", required=True)
    given = arguments.parse_args()
    uvicorn.run(
        Passthrough(given.upstream),
        port=given.port,
        http="httptools",
        loop="uvloop",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
    )
