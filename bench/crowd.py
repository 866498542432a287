"""Many clients at once, in one event loop: each sends one streamed or whole request over a connection of its own and reads to the end."""

import asyncio
import re
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from enum import StrEnum

PATIENCE_SECONDS = 60.0
_ACTION = re.compile(rb"\r\nx-lastcall-action: *([a-z]+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ENDS = (b"0\r\n\r\n", b"data: [DONE]\n\n")


class End(StrEnum):
    """How a request ended for its client: as it should, on purpose in the middle, or in a way that no client should meet."""

    WHOLE = "whole"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True)
class Seen:
    """What a client saw. first_byte: seconds until the first byte of the body, 0.0 without one. action: what Lastcall said it did."""

    end: End
    first_byte: float = 0.0
    action: str = ""


async def ask(port: int, request: bytes, *, leaves: bool = False) -> Seen:
    """One request. leaves: the client hangs up with the first byte. Never raises for what the server does."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                return await _read(reader, started, leaves=leaves)
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return Seen(End.FAILED)


async def _read(reader: asyncio.StreamReader, started: float, *, leaves: bool) -> Seen:
    head = await reader.readuntil(b"\r\n\r\n")
    told = _ACTION.search(head)
    action = told[1].decode() if told else ""
    if b" 200 " not in head[:13]:
        return Seen(End.FAILED, action=action)
    length = _LENGTH.search(head)
    body = await reader.read(65_536)
    first_byte = time.monotonic() - started
    if leaves:
        return Seen(End.LEFT, first_byte, action)
    if length is not None:
        await reader.readexactly(int(length[1]) - len(body))
        return Seen(End.WHOLE, first_byte, action)
    tail = body[-64:]
    while not tail.endswith(_ENDS[0]):
        more = await reader.read(65_536)
        if not more:
            return Seen(End.FAILED, first_byte, action)
        tail = (tail + more)[-64:]
    return Seen(End.WHOLE if _ENDS[1] in tail else End.FAILED, first_byte, action)


async def over(seconds: float, work: Iterable[Coroutine[object, object, Seen]], count: int) -> list[Seen]:
    """`count` pieces of work, begun evenly over that many seconds, all awaited."""
    begun = asyncio.get_running_loop().time()
    tasks = []
    for number, one in enumerate(work):
        wait = begun + seconds * number / count - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one))
    return await asyncio.gather(*tasks)
