"""What clients of every dialect are given while they wait, and every known client when its run ends by an error."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.client import Message
from proxy.dialects import DIALECTS
from proxy.exchange import reply
from proxy.known_clients import CLIENTS, STRANGER, Known
from proxy.policy import OnStop, Policy
from proxy.upstream.http import Response
from tests import messages, responses
from tests.in_process import Conversation, Proxy, call_stream, looping, request, stream, text_stream
from tests.upstreams import DONE, READ_A, Asked, Says

READ, TIMES = {"path": "a.txt"}, 4
USER = {"role": "user", "content": "What is in a.txt?"}


def chat() -> tuple[bytes, list[bytes], list[bytes]]:
    """A streamed request whose history holds one call four times; the same call as an answer, and a text as another."""
    arguments = json.dumps(READ)
    history = looping(TIMES, name="ls", arguments=arguments)
    return request(history, stream=True), call_stream("ls", arguments), text_stream(DONE.text or "")


def of_responses() -> tuple[bytes, list[bytes], list[bytes]]:
    """The same in the words of Responses."""
    items: list[dict[str, Any]] = [USER]
    for number in range(TIMES):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read_file", "arguments": json.dumps(READ)}
        items += [call, {"type": "function_call_output", "call_id": f"c{number}", "output": "one line"}]
    body = json.dumps({"model": "m", "stream": True, "store": False, "tools": responses.TOOLS, "input": items}).encode()

    def said(says: Says) -> list[bytes]:
        return responses.events(responses.response_of(responses.output_of(says), Asked("POST", "/", [], body)))

    return body, said(READ_A), said(DONE)


def of_messages() -> tuple[bytes, list[bytes], list[bytes]]:
    """The same in the words of Messages."""
    history: list[dict[str, Any]] = [USER]
    for number in range(TIMES):
        history.append({"role": "assistant", "content": [{"type": "tool_use", "id": f"t{number}", "name": "read_file", "input": READ}]})
        history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "one line"}]})
    body = {"model": "m", "max_tokens": 1000, "stream": True, "tools": messages.TOOLS, "messages": history}

    def said(says: Says) -> list[bytes]:
        return messages.events(messages.message_of(says, body))

    return json.dumps(body).encode(), said(READ_A), said(DONE)


SPOKEN = {"/chat/completions": chat, "/responses": of_responses, "/messages": of_messages}


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("begun", [False, True], ids=["before its first byte", "within a call"])
async def test_a_stream_is_kept_alive_until_it_is_decided_and_concluded(monkeypatch: pytest.MonkeyPatch, path: str, begun: bool) -> None:
    """While nothing comes of an answer that may be stopped, and again while the model writes its conclusion."""
    monkeypatch.setattr(reply, "KEEP_ALIVE_SECONDS", 0.005)
    body, call, done = SPOKEN[path]()
    keep_alive = DIALECTS[path].keep_alive
    more, conclude = asyncio.Event(), asyncio.Event()
    waiting = [more]

    async def slow() -> Response:
        waiting.append(conclude)
        await conclude.wait()
        return stream(*done)

    def watch(message: Message) -> None:
        if message.get("body") == keep_alive:
            waiting[-1].set()

    at = len(call) // 2 if begun else 0
    pieces: Sequence[bytes | asyncio.Event] = (*call[:at], more, *call[at:])
    proxy = Proxy(stream(*pieces), slow)
    conversation = Conversation((body,), watch=watch)
    async with asyncio.timeout(10):
        await proxy.run(conversation, f"/v1{path}")

    assert more.is_set() and conclude.is_set()
    assert b"[lastcall stop]" in conversation.body
    assert b"one line" in conversation.body
    assert conversation.ended


@pytest.mark.parametrize("client", [*CLIENTS, STRANGER], ids=lambda client: client.word or "stranger")
@pytest.mark.parametrize("path", DIALECTS)
async def test_an_error_ends_the_run_of_every_client(client: Known, path: str) -> None:
    """By 400, said once or again, where that ends it; else by 400, 401 and 404 in turn, from memory. No finishing tool is offered here."""
    proxy = Proxy(policy=Policy(on_stop=OnStop.ERROR))
    body = json.loads(SPOKEN[path]()[0])
    key = "input" if "input" in body else "messages"
    said = body[key]
    again = [json.loads(json.dumps(one).replace("c3", "c4").replace("t3", "t4")) for one in said[-2:]]
    whole = json.dumps(body | {key: [*said, *again]}).encode()

    asked = [await proxy.ask(whole, f"/v1{path}", x_lastcall_session="s", user_agent=f"{client.word or 'x'}/1.0") for _ in range(4)]

    assert [one.status for one in asked] == ([400] * 4 if client.ends_on_400 else [400, 401, 404, 404])
    assert {one.headers["x-should-retry"] for one in asked} == {"false"}
    assert all("Stopped by Lastcall" in one.json["error"]["message"] for one in asked)
    assert proxy.upstream.sent == []
