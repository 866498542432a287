"""The fixed fast upstream: answers every completion at once, from what it prepared. `python -m bench.upstream --port N`.

Which call the answer makes is told by the header `x-bench` (conversation, turn). A stream is 100 events a millisecond apart, each
with the time it was sent; `x-bench-stream` (events, milliseconds) asks for another.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import cast

import uvloop

from bench.dialects import CHAT, DIALECTS, MODEL, Dialect
from bench.transcripts import number, said

CHUNKS = 100
SENT = re.compile(rb"@(\d+)@")  # nanoseconds of the machine's monotonic clock
_GAP_SECONDS = 0.001
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
ASKED = re.compile(rb"\r\nx-bench: *([0-9a-f]{8})-(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_PACE = re.compile(rb"\r\nx-bench-stream: *(\d+)-(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\nserver: bench\r\ncontent-type: "


def completion(dialect: Dialect, conversation: bytes, turn: int) -> bytes:
    """A whole answer that makes the conversation's call of that turn."""
    body = json.dumps(dialect.answer(*said(conversation, turn))).encode()
    return b"%bapplication/json\r\ncontent-length: %d\r\n\r\n%b" % (_HEAD, len(body), body)


_IDENTITY = f'"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1760000000, "model": "{MODEL}"'


def _event(delta: str, finish: str) -> bytes:
    data = f'{{{_IDENTITY}, "choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]}}'
    return f"data: {data}\n\n".encode()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answering(asyncio.Protocol):
    """One connection. Requests on it come one after the other."""

    def __init__(self) -> None:
        self._got = bytearray()
        self._wanted = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._wanted:
            head = self._got.find(b"\r\n\r\n")
            if head < 0:
                return
            length = _LENGTH.search(bytes(self._got[:head]))
            self._wanted = head + 4 + (int(length[1]) if length else 0)
        if len(self._got) >= self._wanted:
            self._answer(bytes(self._got[: self._wanted]))
            del self._got[: self._wanted]
            self._wanted = 0

    def _answer(self, request: bytes) -> None:
        if _STREAM.search(request):
            self._transport.write(_HEAD + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            pace = _PACE.search(request)
            chunks, gap = (int(pace[1]), int(pace[2]) / 1e3) if pace else (CHUNKS, _GAP_SECONDS)
            self._stream(chunks, gap, asyncio.get_running_loop().call_later)
            return
        asked = ASKED.search(request)
        path = request[: request.find(b" HTTP/1.")]
        dialect = next((one for one in DIALECTS if path.endswith(one.path.encode())), CHAT)
        self._transport.write(completion(dialect, asked[1], int(asked[2])) if asked else completion(dialect, number(0), 0))

    def _stream(self, left: int, gap: float, later: Callable[..., object]) -> None:
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(_chunked(_event("{}", '"stop"')) + _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        self._transport.write(_chunked(_event(f'{{"content": "word @{time.monotonic_ns()}@ "}}', "null")))
        later(gap, self._stream, left - 1, gap, later)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(arguments.parse_args().port))
