"""The composition root: routes and sessions in paths, what is only forwarded, the one error boundary, health, metrics, serving."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from proxy import app as root
from proxy.app import create_app
from proxy.asgi import Message
from proxy.config import Config, UpstreamConfig, load
from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import UnjudgedEnded
from proxy.upstream.http import Response
from tests.in_process import CHAT, Conversation, Proxy, ScriptedResponse, answer, request, stream, text_stream

OWN_PORT = "server: {metrics_port: 9100}"

# ---- sessions in paths


@pytest.mark.parametrize(
    ("path", "session"),
    [("/s/build-7/v1/chat/completions", "build-7"), ("/s/a%20b%2Fc/v1/chat/completions", "a b/c"), ("/s/x/v1/chat/completions/", "x")],
)
async def test_a_session_can_stand_in_the_path(path: str, session: str) -> None:
    """Decoded; the upstream never sees it."""
    proxy = Proxy(answer("hi"))
    conversation = await proxy.ask(request(), path)

    assert (conversation.status, conversation.lastcall["session"]) == (200, session)
    assert proxy.upstream.sent[0].path.removesuffix("/") == "/chat/completions"


@pytest.mark.parametrize("session", ["%C3%A9", "%FF", "a%0Ab", "%00", "x" * 257])
async def test_a_session_in_the_path_that_no_header_could_hold_is_refused(session: str) -> None:
    """Before anything is asked."""
    proxy = Proxy()
    conversation = await proxy.ask(request(), f"/s/{session}/v1/chat/completions")

    assert (conversation.status, conversation.json["error"]["code"]) == (400, "lastcall_bad_request")
    assert "1 to 256 printable ASCII" in conversation.json["error"]["message"]


@pytest.mark.parametrize("path", ["/s/build-7/chat/completions", "/s//v1/chat/completions", "/s/build-7", "/s/" + "x" * 500])
async def test_a_session_path_without_its_version_names_no_route(path: str) -> None:
    """The message shows how it is written."""
    conversation = await Proxy().ask(request(), path)

    assert (conversation.status, conversation.json["error"]["code"]) == (404, "lastcall_no_route")
    assert "/s/<session>/v1/" in conversation.json["error"]["message"]
    assert len(conversation.body) < 400


async def test_a_server_without_raw_paths_will_do() -> None:
    """ASGI makes them optional; a query in them is none of the path."""
    for scope in ({"path": CHAT}, {"path": "/x", "raw_path": b"/v1/chat/completions?a=/b"}):
        proxy = Proxy(answer("hi"))
        conversation = Conversation((request(),))
        full = {"type": "http", "method": "POST", "headers": [], **scope}
        await proxy.front(full, conversation.receive, conversation.send)
        assert (conversation.status, proxy.upstream.sent[0].path) == (200, "/chat/completions")


@pytest.mark.parametrize(
    "path", ["//chat/completions", "/chat//completions/", "/chat%2Fcompletions", "/%63hat/completions", "/./chat/completions//"]
)
async def test_no_spelling_of_a_judged_route_goes_unjudged(path: str) -> None:
    """A base URL that ends in a slash is a usual slip, and upstreams serve such paths; it is sent on as it came."""
    proxy = Proxy(answer("hi"))
    conversation = await proxy.ask(request(), f"/v1{path}")

    assert (conversation.status, conversation.lastcall["action"]) == (200, "allow")
    assert proxy.upstream.sent[0].path == path


# ---- what is only forwarded


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", "/v1/models", b"", {}),
        ("GET", "/v1/chat/completions", b"", {"content_length": "0"}),
        ("POST", "/v1/embeddings", b'{"input": "x"}', {"content_length": "14"}),
        ("POST", "/v1/audio/transcriptions", b"\x00\xff", {"transfer_encoding": "chunked"}),
        ("DELETE", "/s/build-7/v1/files/a", b"", {}),
    ],
)
async def test_any_other_route_is_forwarded_as_it_is(method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Method, path, query and body one way, status, header and body the other; no header of Lastcall's, no session."""
    proxy = Proxy(ScriptedResponse(b"\x00some", b"thing", status=203, headers=[(b"x-a", b"1")]))
    conversation = await proxy.ask(body, path, method=method, query=b"a=b", **headers)

    (sent,) = proxy.upstream.sent
    assert (sent.method, sent.path, sent.query, sent.body, sent.plain) == (method, path[path.index("/v1") + 3 :], b"a=b", body, False)
    assert (conversation.status, conversation.body, conversation.headers["x-a"]) == (203, b"\x00something", "1")
    assert (conversation.lastcall, conversation.ended) == ({}, True)
    assert proxy.telemetry.unjudged == [UnjudgedEnded(status=203, seconds=0.0)]
    assert proxy.telemetry.exchanges == []


async def test_a_forwarded_route_goes_to_an_upstream_of_its_dialect() -> None:
    """By its path; one that nobody serves goes to the first."""
    asked: list[tuple[str, str]] = []

    def serves(dialect: str, model: str) -> bool:
        asked.append((dialect, model))
        return False

    for path in ("/v1/models", "/v1/responses/r1", "/v1/messages/count_tokens"):
        proxy = Proxy(ScriptedResponse(b"ok"))
        (way,) = proxy.setting.ways
        proxy.setting.ways = [type(way)("first", way.upstream, serves), type(way)("second", Proxy().upstream, serves)]
        assert (await proxy.ask(b"", path, method="GET")).body == b"ok"

    assert asked == [(dialect, "") for dialect in ("chat", "responses", "messages") for _ in range(2)]


async def test_what_a_messages_client_asks_goes_to_an_upstream_of_its_dialect() -> None:
    """Whatever the route: its clients name the API's version in a header."""
    proxy = Proxy(ScriptedResponse(b"ok"))
    (way,) = proxy.setting.ways
    elsewhere = type(way)("elsewhere", Proxy().upstream, lambda dialect, model: dialect == "chat")
    proxy.setting.ways = [elsewhere, type(way)("here", way.upstream, lambda dialect, model: dialect == "messages")]

    assert (await proxy.ask(b"", "/v1/models", method="GET", anthropic_version="2023-06-01")).body == b"ok"


async def test_a_messages_client_is_refused_in_its_own_words() -> None:
    """An error in the shape of its API, also where no route was found."""
    for path, body in (("/v1/messages", b"{"), ("/s/x", b"")):
        refused = await Proxy().ask(body, path, anthropic_version="2023-06-01")
        told = json.loads(refused.body)
        assert (told["type"], told["error"]["type"][-6:]) == ("error", "_error")


async def test_a_version_said_twice_is_a_usual_slip() -> None:
    """Clients of the messages API add it to their base URL themselves."""
    proxy = Proxy(ScriptedResponse(b'{"type": "message", "content": []}'))
    conversation = await proxy.ask(b'{"messages": []}', "/v1/v1/messages", query=b"beta=true")

    assert (conversation.status, conversation.lastcall["action"]) == (200, "allow")
    assert (proxy.upstream.sent[0].path, proxy.upstream.sent[0].query) == ("/messages", b"beta=true")


async def test_an_upload_is_passed_on_as_it_arrives() -> None:
    """Larger than any limit on judged bodies, and never in memory as a whole."""
    proxy = Proxy(ScriptedResponse(b"ok"), max_body=4)
    conversation = Conversation((b"12345", b"67890"))
    await proxy.run(conversation, "/v1/files", transfer_encoding="chunked")

    assert (conversation.status, proxy.upstream.sent[0].body) == (200, b"1234567890")


async def test_a_forwarded_route_whose_upstream_is_away_is_a_502() -> None:
    """Said in an error body."""
    proxy = Proxy(UpstreamFailed("refused"))
    conversation = await proxy.ask(b"", "/v1/models", method="GET")

    assert (conversation.status, conversation.json["error"]["code"]) == (502, "lastcall_upstream_unreachable")
    assert proxy.telemetry.unjudged == [UnjudgedEnded(status=502, seconds=0.0)]


async def test_a_forwarded_body_that_breaks_off_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is added to it, and the server, left without the last message, breaks the connection off."""
    response = ScriptedResponse(b"half", UpstreamCut("broke off"))
    proxy = Proxy(response)
    conversation = await proxy.ask(b"", "/v1/files/a/content", method="GET")

    assert (conversation.status, conversation.body, conversation.ended) == (200, b"half", False)
    assert response.closed
    assert caplog.records == []


async def test_a_client_that_leaves_a_forwarded_body_lets_the_upstream_go() -> None:
    """Its status is the one it had been given."""
    response = ScriptedResponse(b"half", asyncio.Event())
    proxy = Proxy(response)
    conversation = Conversation()

    def watch(message: Message) -> None:
        if message.get("body") == b"half":
            conversation.gone.set()

    conversation.watch = watch
    await proxy.run(conversation, "/v1/files/a/content", method="GET")

    assert response.closed
    assert proxy.telemetry.unjudged == [UnjudgedEnded(status=200, seconds=0.0)]


async def test_a_client_that_leaves_before_a_forwarded_answer_is_noticed() -> None:
    """Counted as such."""
    proxy = Proxy()
    conversation = Conversation()

    async def never() -> Response:
        conversation.gone.set()
        await asyncio.Event().wait()
        raise AssertionError

    proxy.upstream.answers.append(never)
    await proxy.run(conversation, "/v1/models", method="GET")

    assert conversation.sent == []
    assert proxy.telemetry.unjudged == [UnjudgedEnded(status=499, seconds=0.0)]


async def test_a_transfer_coding_that_nobody_undoes_is_refused() -> None:
    """What arrived would not be the body."""
    proxy = Proxy()
    conversation = await proxy.ask(request(), transfer_encoding="gzip, chunked")

    assert (conversation.status, conversation.json["error"]["code"]) == (501, "lastcall_bad_encoding")
    assert proxy.upstream.sent == []


# ---- the error boundary


async def raising() -> Response:
    raise ZeroDivisionError("the prompt was: secret")


async def test_an_unexpected_fault_is_a_500_that_says_nothing_of_its_content(caplog: pytest.LogCaptureFixture) -> None:
    """The log names kind and place."""
    proxy = Proxy(raising)
    conversation = await proxy.ask(request())

    assert (conversation.status, conversation.json["error"]["code"]) == (500, "lastcall_internal_error")
    assert conversation.headers["x-should-retry"] == "false"
    assert "secret" not in conversation.body.decode() + caplog.text
    assert "unexpected ZeroDivisionError at " in caplog.text
    assert "test_app.py" in caplog.text


async def test_a_fault_in_a_stream_ends_it_with_an_error() -> None:
    """Its status has gone out."""
    proxy = Proxy(stream(*text_stream()[:2], ZeroDivisionError("secret")))
    conversation = await proxy.ask(request(stream=True))

    assert conversation.status == 200
    assert conversation.events[-1]["error"]["code"] == "lastcall_internal_error"
    assert conversation.ended
    assert "secret" not in conversation.body.decode()


async def test_a_fault_after_the_answer_adds_nothing_to_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""
    proxy = Proxy(answer("hi"))

    def emit(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(proxy.telemetry, "emit", emit)
    conversation = await proxy.ask(request())

    assert [message["type"] for message in conversation.sent] == ["http.response.start", "http.response.body"]
    assert "unexpected ZeroDivisionError" in caplog.text


async def test_a_refusal_tells_whether_to_try_again() -> None:
    """A bad request will not become a good one."""
    conversation = await Proxy().ask(b"{")

    assert (conversation.status, conversation.headers["x-should-retry"]) == (400, "false")


@pytest.mark.parametrize("answers", [[answer("hi")], [raising], []])
async def test_requests_in_flight_are_counted_back_however_they_end(answers: list[Any]) -> None:
    """The gauge returns to where it was."""
    proxy = Proxy(*answers)
    await proxy.ask(request() if answers else b"{")

    exposition = proxy.telemetry.exposition(None)[0].decode()
    (line,) = [line for line in exposition.splitlines() if "in_flight" in line and not line.startswith("#")]
    assert line.endswith(" 0.0")


# ---- the application


@asynccontextmanager
async def application(config: Config, log: Callable[[bytes], object] = lambda _: None) -> AsyncIterator[FastAPI]:
    app = create_app(config, environ={}, log=log)
    async with app.router.lifespan_context(app):
        yield app


async def ask(app: FastAPI, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Conversation:
    conversation = Conversation((body,))
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": fields,
        "app": app,
    }
    await app(scope, conversation.receive, conversation.send)
    return conversation


def away(mode: str) -> Config:
    """A store at an address that nothing listens on."""
    return load(f"store: {{url: 'redis://127.0.0.1:1/0', timeout: 1s, failure_mode: {mode}}}", {})


async def test_an_application_answers_its_health_routes() -> None:
    """Alive and ready."""
    async with application(Config()) as app:
        live, ready = await ask(app, "/livez"), await ask(app, "/readyz")

    assert (live.status, live.json) == (200, {"status": "ok"})
    assert (ready.status, ready.json) == (200, {"status": "ok"})


async def test_before_its_life_an_application_is_alive() -> None:
    """Readiness needs no store that is not there yet."""
    app = create_app(Config(), environ={}, log=lambda _: None)

    assert (await ask(app, "/readyz")).json == {"status": "ok"}


@pytest.mark.parametrize(
    ("mode", "status", "said"), [("open", 200, {"status": "degraded", "store": "away"}), ("closed", 503, {"status": "store away"})]
)
async def test_readiness_depends_on_the_store_as_the_failure_mode_says(mode: str, status: int, said: dict[str, str]) -> None:
    """Open serves without it."""
    async with application(away(mode)) as app:
        ready, live = await ask(app, "/readyz"), await ask(app, "/livez")

    assert (ready.status, ready.json) == (status, said)
    assert live.status == 200


async def test_metrics_stand_beside_the_api() -> None:
    """Unless they have a port of their own."""
    async with application(Config()) as app:
        beside = await ask(app, "/metrics", accept="text/plain")
    async with application(load(OWN_PORT, {})) as app:
        elsewhere = await ask(app, "/metrics")

    assert beside.status == 200
    assert b"lastcall_" in beside.body
    assert beside.headers["content-type"].startswith("text/plain")
    assert elsewhere.status == 404


@pytest.mark.parametrize("path", ["/chat/completions", "/", "/" + "x" * 500])
async def test_a_base_url_without_its_version_is_told_so(path: str) -> None:
    """The commonest slip, in a shape that clients show."""
    async with application(Config()) as app:
        conversation = await ask(app, path, method="POST")

    assert (conversation.status, conversation.json["error"]["code"]) == (404, "lastcall_no_route")
    assert "/v1" in conversation.json["error"]["message"]
    assert len(conversation.body) < 600


async def test_an_operator_without_a_desk_is_told_what_it_takes() -> None:
    """The commands show this message, to whom a base URL means nothing."""
    async with application(Config()) as app:
        conversation = await ask(app, "/admin/sessions")

    assert (conversation.status, conversation.json["error"]["code"]) == (404, "lastcall_no_route")
    assert "server.admin_key" in conversation.json["error"]["message"] and "base_url" not in conversation.json["error"]["message"]


async def test_both_kinds_of_path_lead_to_the_front() -> None:
    """Judged requests are read there, and nothing is answered by the framework."""
    async with application(Config()) as app:
        for path in (CHAT, "/s/build-7" + CHAT):
            assert (await ask(app, path, method="POST", body=b"{")).json["error"]["code"] == "lastcall_bad_request"


async def test_a_configured_closed_store_that_is_away_refuses_and_logs() -> None:
    """Every part has been handed what the file says."""
    log: list[bytes] = []
    async with application(away("closed"), log.append) as app:
        conversation = await ask(app, CHAT, method="POST", body=request())

    assert conversation.status == 503
    assert [json.loads(line)["event"] for line in log][:1] == ["store_changed"]


async def test_an_upstream_that_cannot_be_reached_is_named() -> None:
    """The whole way through the application, real client included."""
    upstream = UpstreamConfig(base_url="http://127.0.0.1:1/v1")
    async with application(Config(upstreams={"local": upstream})) as app:
        conversation = await ask(app, CHAT, method="POST", body=request())

    assert (conversation.status, conversation.json["error"]["code"]) == (502, "lastcall_upstream_unreachable")
    assert "local" in conversation.json["error"]["message"]


def test_exposition_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several workers it reads files: requests do not wait for it."""
    threads: list[int] = []

    async def run() -> Conversation:
        async with application(Config()) as app:
            expose = app.state.telemetry.exposition

            def exposition(accept: str | None) -> tuple[bytes, str]:
                threads.append(threading.get_ident())
                result: tuple[bytes, str] = expose(accept)
                return result

            monkeypatch.setattr(app.state.telemetry, "exposition", exposition)
            return await ask(app, "/metrics")

    assert asyncio.run(run()).status == 200
    assert threads != [threading.get_ident()]


def test_the_proxys_own_log_has_its_own_name() -> None:
    """So that operators can route it."""
    assert root._log is logging.getLogger("lastcall")
