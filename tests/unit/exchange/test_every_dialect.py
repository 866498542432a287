"""Every known client, in every dialect, when its run ends by an error; and a stream that ends by one."""

import json

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.sse import Splitter, data_of
from proxy.errors import UpstreamCut
from proxy.known_clients import CLIENTS, STRANGER, Known
from proxy.policy import OnStop, Policy
from tests.in_process import Proxy, stream
from tests.spoken import SPOKEN
from tests.upstreams import DONE


@pytest.mark.parametrize("client", [*CLIENTS, STRANGER], ids=lambda client: client.word or "stranger")
@pytest.mark.parametrize("path", DIALECTS)
async def test_an_error_ends_the_run_of_every_client(client: Known, path: str) -> None:
    """By 400, said once or again, where that ends it; else by 400, 401 and 404 in turn, from memory. No finishing tool is offered here."""
    proxy = Proxy(policy=Policy(on_stop=OnStop.ERROR))
    body = json.loads(SPOKEN[path].asks(4))
    key = "input" if "input" in body else "messages"
    said = body[key]
    again = [json.loads(json.dumps(one).replace("c3", "c4")) for one in said[-2:]]
    whole = json.dumps(body | {key: [*said, *again]}).encode()

    asked = [await proxy.ask(whole, f"/v1{path}", x_lastcall_session="s", user_agent=f"{client.word or 'x'}/1.0") for _ in range(4)]

    assert [one.status for one in asked] == ([400] * 4 if client.ends_on_400 else [400, 401, 404, 404])
    assert {one.headers["x-should-retry"] for one in asked} == {"false"}
    assert all("Stopped by Lastcall" in one.json["error"]["message"] for one in asked)
    assert proxy.upstream.sent == []


async def test_a_cut_stream_fails_as_the_response_that_it_was() -> None:
    """Clients of Responses take another id for a fault of their own."""
    spoken = SPOKEN["/responses"]
    said = spoken.streams(DONE)
    proxy = Proxy(stream(*said[: len(said) // 2], UpstreamCut("the upstream broke off")))
    conversation = await proxy.ask(spoken.asks(0), "/v1/responses")
    told = [json.loads(data) for event in Splitter().feed(conversation.body) if (data := data_of(event))]
    first, last = told[0], told[-1]

    assert (first["type"], last["type"], last["response"]["error"]["code"]) == ("response.created", "response.failed", "server_error")
    assert last["response"]["id"] == first["response"]["id"]
    assert [one["sequence_number"] for one in told] == list(range(len(told)))
