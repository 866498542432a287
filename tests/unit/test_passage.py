"""Routes that are not judged, with teams: who may use them, for which models, and what a list of models shows."""

import json
from datetime import UTC
from typing import Any

import pytest

from proxy.config import Config
from proxy.errors import UpstreamCut
from proxy.events import UnjudgedEnded
from proxy.exchange import Way
from proxy.keys import digest_of
from proxy.passage import list_for
from proxy.prices import Prices
from proxy.tenants import Tenants
from tests.in_process import Conversation, Proxy, ScriptedResponse, ScriptedUpstream

LISTING = b'{"object": "list", "data": [ {"id": "gpt-5", "x": 1.50}, {"id":"o3"}, {"no": "id"} ], "more": [1.0]}'


def tenants(**team: Any) -> Tenants:
    """One team `red` whose key is `k`."""
    return Tenants(Config.model_validate({"teams": {"red": {"keys": [digest_of("k")]} | team}}), zone=UTC, prices=Prices({}, {}))


def proxy(*answers: ScriptedResponse, **team: Any) -> Proxy:
    return Proxy(*answers or (ScriptedResponse(b"ok"),), tenants=tenants(**team))


def form(*models: str) -> bytes:
    fields = [f'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n' for model in models]
    return "".join(['--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n', *fields, "--b--\r\n"]).encode()


async def test_a_key_of_no_team_is_refused_before_the_body_is_read() -> None:
    """With 401, and the upstream hears nothing of it."""
    served = proxy()
    conversation = await served.ask(b"{}", "/v1/embeddings", content_length="2", authorization="Bearer wrong")

    assert (conversation.status, conversation.json["error"]["code"]) == (401, "lastcall_unknown_key")
    assert conversation.headers["x-should-retry"] == "false"
    assert served.upstream.sent == []
    assert served.telemetry.unjudged == [UnjudgedEnded(status=401, seconds=0.0)]


async def test_a_teams_request_goes_through_and_counts_as_the_teams() -> None:
    """Its key stays here."""
    served = proxy()
    conversation = await served.ask(b'{"model":"m"}', "/v1/embeddings", content_length="13", x_lastcall_key="k")

    assert (conversation.status, conversation.body) == (200, b"ok")
    assert served.upstream.sent[0].body == b'{"model":"m"}'
    counted = UnjudgedEnded(status=200, seconds=0.0, team="red", model="m", input_tokens=256, usage_estimated=True)
    assert served.telemetry.unjudged == [counted]


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/v1/embeddings", "POST", 403), ("/v1/models", "GET", 200), ("/v1/models", "DELETE", 403)]
)
async def test_other_endpoints_refused(path: str, method: str, status: int) -> None:
    """Which models there are may be asked all the same."""
    conversation = await proxy(other_endpoints="refuse").ask(b"", path, method=method, x_lastcall_key="k")

    assert conversation.status == status


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"model": "gpt-5", "input": "x"}', "application/json", 200),
        (b'{"model": "o3"}', "application/json", 403),
        (b'{"model": "o3"}', "", 403),
        (b'{"purpose": "x"}', "application/json", 200),
        (form("gpt-5"), "multipart/form-data; boundary=b", 200),
        (form("gpt-5", "o3"), "Multipart/Form-Data; boundary=b", 403),
        (b'{"Model": "o3", "model": "gpt-5"}', "application/json", 403),
        (b'{"model": "o3", "x": NaN}', "application/json", 400),
        (b'{"model": "o3"}', "multipart/form-data; boundary=b", 403),
        (b"\xff\x00", "audio/wav", 400),
        (b"", "application/json", 200),
    ],
)
async def test_a_body_may_name_only_models_of_the_team(body: bytes, kind: str, status: int) -> None:
    """In JSON or in a form; what goes through goes byte for byte."""
    served = proxy(models=["gpt-*"])
    conversation = await served.ask(body, "/v1/other", content_length=str(len(body)), content_type=kind, x_lastcall_key="k")

    assert conversation.status == status
    assert [sent.body for sent in served.upstream.sent] == ([body] if status == 200 else [])


@pytest.mark.parametrize("path", ["/v1/engines/o3/completions", "/v1/openai/deployments/o3/embeddings", "/v1/engines%2Fo3/x"])
async def test_a_model_in_the_path_must_be_one_of_the_teams(path: str) -> None:
    """As some providers had it, or have it."""
    served = proxy(models=["gpt-*"])

    assert (await served.ask(b"", path, x_lastcall_key="k")).status == 403
    assert (await served.ask(b"", path.replace("o3", "gpt-5"), x_lastcall_key="k")).status == 200
    assert len(served.upstream.sent) == 1


@pytest.mark.parametrize("method", ["TRACE", "TRACK"])
async def test_what_would_echo_the_upstreams_key_is_not_forwarded(method: str) -> None:
    """The answer shows the request as the upstream got it."""
    served = proxy()
    conversation = await served.ask(b"", "/v1/models", method=method, x_lastcall_key="k")

    assert (conversation.status, conversation.json["error"]["code"]) == (405, "lastcall_bad_method")
    assert served.upstream.sent == []


async def test_a_compressed_body_of_a_restricted_team_is_refused() -> None:
    """It would have to be unpacked to be looked into."""
    served = proxy(models=["gpt-*"])
    conversation = await served.ask(b"xx", "/v1/other", x_lastcall_key="k", transfer_encoding="chunked", content_encoding="gzip")

    assert (conversation.status, served.upstream.sent) == (415, [])


async def test_an_unrestricted_team_uploads_as_it_comes() -> None:
    """Larger than any limit on judged bodies."""
    served = Proxy(ScriptedResponse(b"ok"), tenants=tenants(), max_body=4)
    conversation = Conversation((b"12345", b"67890"))
    await served.run(conversation, "/v1/files", transfer_encoding="chunked", content_encoding="gzip", x_lastcall_key="k")

    assert (conversation.status, served.upstream.sent[0].body) == (200, b"1234567890")


@pytest.mark.parametrize("path", ["/v1/models", "/v1//models/", "/s/x/v1/%6Dodels"])
async def test_a_list_of_models_shows_those_of_the_team(path: str) -> None:
    """The entries themselves are left as they are."""
    served = proxy(ScriptedResponse(LISTING, headers=((b"x-own", b"1"),)), models=["gpt-*"])
    conversation = await served.ask(b"", path, method="GET", x_lastcall_key="k")

    assert json.loads(conversation.body) == {"object": "list", "data": [{"id": "gpt-5", "x": 1.5}], "more": [1.0]}
    assert b'{"id": "gpt-5", "x": 1.50}' in conversation.body
    assert (conversation.headers["x-own"], conversation.headers["content-length"]) == ("1", str(len(conversation.body)))
    assert served.upstream.sent[0].plain


async def test_an_unrestricted_list_goes_through_as_it_is() -> None:
    """To the byte."""
    assert (await proxy(ScriptedResponse(LISTING)).ask(b"", "/v1/models", method="GET", x_lastcall_key="k")).body == LISTING


@pytest.mark.parametrize(("model", "status"), [("gpt-5", 200), ("o3", 403), ("o3%2Fx", 403)])
async def test_one_model_may_be_looked_up_if_it_is_the_teams(model: str, status: int) -> None:
    """Others are not shown."""
    assert (await proxy(models=["gpt-*"]).ask(b"", f"/v1/models/{model}", method="GET", x_lastcall_key="k")).status == status


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": 5}', b'{"data": [5]}', b'{"error": "no"}', b"\xff"])
def test_what_is_no_list_stays_as_it_is(body: bytes) -> None:
    """An error of the upstream's, for instance."""
    assert list_for(tenants(models=["gpt-*"]).of({"x-lastcall-key": "k"}), body) == body


async def test_an_upstream_that_gets_the_clients_credentials_gets_no_teams_key() -> None:
    """The key has a header of its own there."""
    upstream = ScriptedUpstream(ScriptedResponse(b"ok"), endless=True)
    served = Proxy(tenants=tenants(), ways=[Way("main", upstream, lambda *_: True, passthrough=True)])

    wrong = await served.ask(b"", "/v1/models", method="GET", authorization="Bearer k")
    right = await served.ask(b"", "/v1/models", method="GET", authorization="Bearer sk", x_lastcall_key="k")

    assert (wrong.status, wrong.json["error"]["code"], right.status) == (401, "lastcall_key_not_for_upstream", 200)
    assert len(upstream.sent) == 1


async def test_a_team_goes_to_its_own_upstreams() -> None:
    """In its order, whatever the file's."""
    ways = [Way(name, ScriptedUpstream(ScriptedResponse(name.encode())), lambda *_: True) for name in "ab"]
    upstreams = {name: {"base_url": "http://h/v1"} for name in "ab"}
    config = {"upstreams": upstreams, "teams": {"red": {"keys": [digest_of("k")], "upstreams": ["b"]}}}
    served = Proxy(tenants=Tenants(Config.model_validate(config), zone=UTC, prices=Prices({}, {})), ways=ways)

    assert (await served.ask(b"", "/v1/models", method="GET", x_lastcall_key="k")).body == b"b"


async def test_a_list_that_breaks_off_is_an_error_that_may_be_tried_again() -> None:
    """Nothing was sent yet."""
    served = proxy(ScriptedResponse(UpstreamCut("gone")), models=["gpt-*"])
    conversation = await served.ask(b"", "/v1/models", method="GET", x_lastcall_key="k")

    assert conversation.status == 502
    assert served.telemetry.unjudged == [UnjudgedEnded(status=502, seconds=0.0, team="red")]
