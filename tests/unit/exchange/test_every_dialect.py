"""Every known client, in every dialect, when its run ends by an error."""

import json

import pytest

from proxy.dialects import DIALECTS
from proxy.known_clients import CLIENTS, STRANGER, Known
from proxy.policy import OnStop, Policy
from tests.in_process import Proxy
from tests.spoken import SPOKEN


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
