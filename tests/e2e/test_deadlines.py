"""A session's deadline on a real socket, in each dialect: whatever is slow ends within a second of the limit, as the official SDKs read it.

Seconds count here as nowhere else: that an end comes in time is what is promised.
"""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests import messages, responses
from tests.running import running
from tests.upstreams import STREAM, WHOLE, Asked, Model, Reply, Says, Upstream, chunks, completion, pieces

LIMIT = 1.0
LATE = 1.0  # how much later than the limit an end may come
EARLY = 0.05  # clocks differ a little
PAUSE = 0.05  # between two pieces of what drips, which takes half a minute
HEAD = 12  # pieces that come at once, the first words among them: how far a busy machine gets within the limit is not what is asked
QUESTION = "What is in a.txt?"
PROMPT: Any = [{"role": "user", "content": QUESTION}]
ASKED: dict[str, Any] = {"model": "gpt-4o"}
TALKS = Says("It goes on and on. " * 100)
CALLS = Says(calls=(("search", json.dumps({"text": "x" * 4_000})),))
BRIEF = Says("It holds one line.")


@dataclass(frozen=True)
class Sdks:
    """The official clients, at one proxy."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic


@dataclass(frozen=True)
class Way:
    """A dialect, streamed or not, as its SDK asks. ask: the text that came, and its finish reason."""

    ask: Callable[[Sdks, dict[str, str]], Awaitable[tuple[str, str | None]]]
    streamed: bool


async def chat(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    choice = (await sdks.openai.chat.completions.create(**ASKED, messages=PROMPT, extra_headers=headers)).choices[0]
    return choice.message.content or "", choice.finish_reason


async def chat_streamed(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    async with sdks.openai.chat.completions.stream(**ASKED, messages=PROMPT, extra_headers=headers) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    return choice.message.content or "", choice.finish_reason


async def response(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    answer = await sdks.openai.responses.create(**ASKED, input=QUESTION, extra_headers=headers)
    return answer.output_text, answer.status


async def response_streamed(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    async with sdks.openai.responses.stream(**ASKED, input=QUESTION, extra_headers=headers) as stream:
        answer = await stream.get_final_response()
    return answer.output_text, answer.status


async def message(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    answer = await sdks.anthropic.messages.create(**ASKED, max_tokens=1_000, messages=PROMPT, extra_headers=headers)
    return "\n".join(block.text for block in answer.content if block.type == "text"), answer.stop_reason


async def message_streamed(sdks: Sdks, headers: dict[str, str]) -> tuple[str, str | None]:
    async with sdks.anthropic.messages.stream(**ASKED, max_tokens=1_000, messages=PROMPT, extra_headers=headers) as stream:
        answer = await stream.get_final_message()
    return "\n".join(block.text for block in answer.content if block.type == "text"), answer.stop_reason


WAYS = [Way(chat, False), Way(chat_streamed, True), Way(response, False), Way(response_streamed, True)]
WAYS += [Way(message, False), Way(message_streamed, True)]
FINISHED = ("stop", "completed", "end_turn")


def parts_of(says: Says, asked: Asked) -> tuple[list[bytes], tuple[tuple[str, str], ...]]:
    """An answer in the dialect that was asked in: events, or a body in small pieces."""
    streamed = bool(asked.json.get("stream"))
    if asked.target.endswith("/chat/completions"):
        written = chunks(says, asked) if streamed else [completion(says)]
    elif asked.target.endswith("/responses"):
        answer = responses.response_of(responses.output_of(says), asked)
        written = responses.events(answer) if streamed else [json.dumps(answer).encode()]
    else:
        answer = messages.message_of(says, asked.json)
        written = messages.events(answer) if streamed else [json.dumps(answer).encode()]
    if not streamed:
        written = [written[0][at : at + 4] for at in range(0, len(written[0]), 4)]
    return written, STREAM if streamed else WHOLE


def dripping(says: Says) -> Model:
    """A model whose answer comes bit by bit, and takes far longer than anybody may wait."""

    async def drip(parts: list[bytes]) -> AsyncIterator[bytes]:
        for part in parts[:HEAD]:
            yield part
        for part in parts[HEAD:]:
            await asyncio.sleep(PAUSE)
            yield part

    def answer(asked: Asked) -> Reply:
        parts, headers = parts_of(says, asked)
        return Reply(drip(parts), headers=headers)

    return answer


def at_once(says: Says) -> Model:
    def answer(asked: Asked) -> Reply:
        parts, headers = parts_of(says, asked)
        return Reply(pieces(parts), headers=headers)

    return answer


@asynccontextmanager
async def sdks_at(upstream: str, store: str) -> AsyncIterator[Sdks]:
    """The SDKs before a proxy before an upstream. Each way is tried once, so that nobody waits for an import or a connection later."""
    async with (
        running(upstream, store=store) as proxy,
        openai.AsyncOpenAI(base_url=proxy.v1, api_key="sk-test", max_retries=0) as one,
        anthropic.AsyncAnthropic(base_url=proxy.url, api_key="sk-test", max_retries=0) as other,
    ):
        sdks = Sdks(one, other)
        for way in WAYS:
            assert "[lastcall stop]" in (await way.ask(sdks, limited("0")))[0]
        yield sdks


def limited(limit: str = "1") -> dict[str, str]:
    """A session of its own. limit: its seconds."""
    return {"x-lastcall-session": f"late-{uuid.uuid4()}", "x-lastcall-deadline": limit}


async def timed(sdks: Sdks, way: Way, headers: dict[str, str] | None = None) -> tuple[float, str, str | None]:
    """How long an answer took, its text and its finish reason."""
    began = time.monotonic()
    text, finish = await way.ask(sdks, headers or limited())
    return time.monotonic() - began, text, finish


def check_ended(took: float, text: str, finish: str | None) -> None:
    """In time, and as an ordinary answer that says why."""
    assert LIMIT - EARLY <= took <= LIMIT + LATE
    assert "[lastcall stop] Lastcall stopped this run: the time of 1 second" in text
    assert finish in FINISHED


@asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """The base URL of an endpoint that takes requests and says nothing at all."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_a_slow_first_byte_ends_in_time(either_store: str) -> None:
    """Not even a status has come."""
    async with mute() as url, sdks_at(url, either_store) as sdks:
        ends = await asyncio.gather(*(timed(sdks, way) for way in WAYS))
    for took, text, finish in ends:
        check_ended(took, text, finish)
        assert text.startswith("[lastcall stop]")


async def test_a_dripping_answer_ends_in_time(upstream: Upstream, either_store: str) -> None:
    """What a streamed one has said stays, and the upstream is left."""
    upstream.model = dripping(TALKS)
    async with sdks_at(upstream.url, either_store) as sdks:
        ends = await asyncio.gather(*(timed(sdks, way) for way in WAYS))
        await upstream.until(lambda: len(upstream.broken_off) == len(WAYS))
    for way, (took, text, finish) in zip(WAYS, ends, strict=True):
        check_ended(took, text, finish)
        assert text.startswith("It goes on" if way.streamed else "[lastcall stop]")


async def test_half_a_call_that_drips_ends_in_time_with_an_error(upstream: Upstream, either_store: str) -> None:
    """Nobody may carry it out; the reason is in what the SDK raises, or in the response that failed."""
    upstream.model = dripping(CALLS)

    async def raised(sdks: Sdks, way: Way) -> tuple[float, str]:
        began = time.monotonic()
        with pytest.raises((openai.APIError, anthropic.APIError)) as error:
            await timed(sdks, way)
        return time.monotonic() - began, str(error.value)

    async def failed(sdks: Sdks) -> tuple[float, str]:
        began = time.monotonic()
        async with sdks.openai.responses.stream(**ASKED, input=QUESTION, extra_headers=limited()) as stream:
            events = [event async for event in stream]
        last = events[-1]
        assert last.type == "response.failed" and last.response.error is not None
        assert events[0].type == "response.created" and events[0].response.id == last.response.id
        return time.monotonic() - began, last.response.error.message

    async with sdks_at(upstream.url, either_store) as sdks:
        ends = await asyncio.gather(raised(sdks, Way(chat_streamed, True)), failed(sdks), raised(sdks, Way(message_streamed, True)))
    for took, said in ends:
        assert LIMIT - EARLY <= took <= LIMIT + LATE
        assert "Stopped by Lastcall: the time of 1 second" in said


async def test_an_idle_session_is_over_at_its_limit(upstream: Upstream, either_store: str) -> None:
    """It is answered at once when it comes back, without the upstream."""
    upstream.model = at_once(BRIEF)
    async with sdks_at(upstream.url, either_store) as sdks:
        sessions = [limited() for _ in WAYS]
        first = await asyncio.gather(*(timed(sdks, way, headers) for way, headers in zip(WAYS, sessions, strict=True)))
        asked = len(upstream.asked)
        await asyncio.sleep(LIMIT)
        ends = await asyncio.gather(*(timed(sdks, way, headers) for way, headers in zip(WAYS, sessions, strict=True)))

    assert [text.strip() for _, text, _ in first] == [BRIEF.text] * len(WAYS)
    for took, text, finish in ends:
        assert took <= LATE
        assert text.startswith("[lastcall stop] Lastcall stopped this run: the time of 1 second")
        assert finish in FINISHED
    assert len(upstream.asked) == asked
