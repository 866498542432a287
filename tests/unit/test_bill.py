"""Routes that are not judged are charged to the team: reserved before, settled with what the answer says, refused when nothing is left."""

import asyncio
import json
from datetime import UTC
from typing import Any

import pytest

from proxy.bill import Bills
from proxy.config import Config
from proxy.errors import StoreUnavailable, UpstreamCut, UpstreamFailed
from proxy.identity import Keys
from proxy.keys import digest_of
from proxy.metering import LEAST_TOKENS, UNREPORTED_TOKENS
from proxy.prices import Price, Prices, rates_of, stated
from proxy.store import Account
from proxy.store.contract import Usage
from proxy.tenants import Tenants
from tests.billed import BODY, DOLLAR_A_MILLION, USED, ask, proxy, spent
from tests.in_process import Answer, Conversation, Proxy, ScriptedResponse, Slow, answer, request


async def test_what_the_answer_says_is_charged() -> None:
    """In tokens, in money and as a step; the bytes pass as they are, and the answer comes in no coding."""
    served = proxy()
    conversation = await ask(served, accept_encoding="gzip")

    assert (conversation.status, conversation.body, served.upstream.sent[0].body) == (200, USED, BODY)
    assert [value for name, value in served.upstream.sent[0].headers if name == b"accept-encoding"] == [b"identity"]
    assert await spent(served) == (1, 8, 0, 8_000, 0)
    keys = Keys(await served.guard.secret())
    assert await served.guard.usage(keys.ledger("red"), ["2023-11-14"]) == [Usage("2023-11-14", "m", 1, 8, 0, 8_000)]


async def test_a_used_up_budget_is_the_same_error_as_on_judged_routes() -> None:
    """HTTP 400 that says whose budget it is, with no retry; the upstream hears nothing."""
    served = proxy(ScriptedResponse(USED), steps=1)
    await ask(served)
    conversation = await ask(served)

    assert conversation.status == 400
    assert (conversation.json["error"]["code"], conversation.headers["x-should-retry"]) == ("lastcall_team_budget", "false")
    assert conversation.lastcall == {"action": "refuse", "reason": "team_budget"}
    assert "the team's budget of 1 step a day is used up" in conversation.json["error"]["message"]
    assert (len(served.upstream.sent), served.telemetry.unjudged[-1].status) == (1, 400)
    assert await spent(served) == (1, 8, 0, 8_000, 0)


async def test_judged_and_other_calls_share_one_budget() -> None:
    """No endpoint is a way around it."""
    served = proxy(ScriptedResponse(USED), steps=1)
    await ask(served)
    served.upstream.answers = [answer("hi")]
    judged = await served.ask(request(model="m"), x_lastcall_key="k")

    assert (judged.lastcall["action"], judged.lastcall["reason"]) == ("refuse", "team_budget")


async def test_the_worst_case_must_fit_whole() -> None:
    """Since the output of such a call cannot be lowered."""
    served = proxy(tokens=1_000)
    refused = await ask(served, b'{"model": "m", "prompt": "x", "max_tokens": 900}', "/v1/completions")
    granted = await ask(served, b'{"model": "m", "prompt": "x", "max_tokens": 500}', "/v1/completions")

    assert (refused.status, granted.status) == (400, 200)


async def test_observed_budgets_refuse_nothing() -> None:
    """And are charged all the same."""
    served = proxy(policy={"mode": "observe"}, steps=1)
    assert [(await ask(served)).status for _ in range(2)] == [200, 200]
    assert (await spent(served))[:2] == (2, 16)


async def test_a_stream_is_charged_what_its_last_event_says() -> None:
    """Usage may come in any of its pieces."""
    pieces = [
        b'data: {"choices":[{"text":"hello"}]}\n\nda',
        b'ta: {"choices":[],"usage":{"prompt_tokens":5,"completion_',
        b'tokens":2}}\n\n',
    ]
    served = proxy(ScriptedResponse(*pieces, kind=b"text/event-stream"))
    conversation = await ask(served, b'{"model": "m", "prompt": "x", "stream": true}', "/v1/completions")

    assert conversation.writes[:-1] == pieces
    assert await spent(served) == (1, 5, 2, 25_000, 0)


@pytest.mark.parametrize("failure", [ScriptedResponse(b'{"usage": {"prompt_tokens": 8}}', status=500), UpstreamFailed("down")])
async def test_a_failure_of_the_upstream_costs_nothing(failure: Answer) -> None:
    """And holds nothing."""
    served = proxy(failure, steps=1)
    assert (await ask(served)).status in (500, 502)
    assert await spent(served) == (0, 0, 0, 0, 0)


async def test_an_answer_that_breaks_off_costs_what_was_produced() -> None:
    """It is no step."""
    served = proxy(ScriptedResponse(b'data: {"choices":[{"text":"12345678"}]}\n\n', UpstreamCut("cut"), kind=b"text/event-stream"))
    await ask(served, path="/v1/completions")
    assert (await spent(served))[:3] == (0, LEAST_TOKENS, 2)


async def test_a_client_that_leaves_pays_for_what_was_produced() -> None:
    """Its lease ends with it."""
    stuck = asyncio.Event()
    served = proxy(ScriptedResponse(b'data: {"choices":[{"text":"12345678"}]}\n\n', stuck, kind=b"text/event-stream"))
    conversation = Conversation((BODY,))
    conversation.watch = lambda message: conversation.gone.set() if message.get("body") else None
    await served.run(conversation, "/v1/completions", content_length=str(len(BODY)), x_lastcall_key="k")

    assert await spent(served) == (0, LEAST_TOKENS, 2, LEAST_TOKENS * 1_000 + 20_000, 0)


async def test_an_upload_passes_as_it_comes_and_costs_the_minimum() -> None:
    """Larger than the limit on bodies; one that never came to its end costs nothing."""
    served = proxy(ScriptedResponse(b'{"id": "file-1"}'))
    served.setting.max_body = 4
    conversation = Conversation((b"12345", b"67890"))
    await served.run(conversation, "/v1/files", transfer_encoding="chunked", content_encoding="br", x_lastcall_key="k")

    assert (conversation.status, served.upstream.sent[0].body) == (200, b"1234567890")
    assert dict(served.upstream.sent[0].headers)[b"content-encoding"] == b"br"
    assert (await spent(served))[:3] == (1, UNREPORTED_TOKENS, 0)
    gone = Conversation((b"12345", b"67890"))
    gone.gone.set()
    await served.run(gone, "/v1/files", transfer_encoding="chunked", x_lastcall_key="k")
    assert (await spent(served))[1:] == (UNREPORTED_TOKENS, 0, 0, 0)


async def test_looking_up_and_counting_are_free() -> None:
    """Also when nothing is left."""
    served = proxy(steps=0)
    assert (await served.ask(b"", "/v1/batches/b", method="GET", x_lastcall_key="k")).status == 200
    assert (await ask(served, path="/v1/messages/count_tokens")).status == 200
    assert (await ask(served)).status == 400


async def test_calls_of_this_kind_are_no_sessions() -> None:
    """They count among the requests at once, and take no session's place."""
    served = proxy()
    for name, place in (("concurrent_sessions", 200), ("concurrent_requests", 400)):
        team = {"keys": [digest_of("k")], name: 0}
        served.setting.tenants = Tenants(Config.model_validate({"teams": {"red": team}}), zone=UTC, prices=Prices({}, {}))
        assert (await ask(served)).status == place


async def test_too_many_at_once_are_told_to_come_again() -> None:
    """As on judged routes."""
    slow = Slow(ScriptedResponse(USED))
    served = proxy(slow)
    team = {"keys": [digest_of("k")], "concurrent_requests": 1}
    served.setting.tenants = Tenants(Config.model_validate({"teams": {"red": team}}), zone=UTC, prices=Prices({}, {}))
    first = asyncio.create_task(ask(served))
    await slow.asked.wait()
    refused = await ask(served)
    slow.done.set()

    assert (await first).status == 200
    assert (refused.status, refused.json["error"]["code"]) == (429, "lastcall_team_budget")
    assert int(refused.headers["retry-after"]) in range(1, 6)
    assert "x-should-retry" not in refused.headers


async def test_a_model_without_a_price_is_refused_where_the_policy_says_so() -> None:
    """Files name none, and are not."""
    served = proxy(policy={"unpriced": "refuse"})
    unknown = await ask(served, b'{"model": "x", "input": "hello"}')

    assert (unknown.status, unknown.json["error"]["code"]) == (400, "lastcall_unpriced")
    assert ((await ask(served)).status, (await ask(served, b"x", "/v1/files")).status) == (200, 200)


@pytest.mark.parametrize(("closed", "status"), [(True, 503), (False, 200)])
async def test_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch, closed: bool, status: int) -> None:
    """Closed refuses. Open forwards, says so, and charges when the store is there again."""
    served = proxy(closed=closed)
    await served.guard.secret()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as during:
        during.setattr(served.store, "open", away)
        during.setattr(served.store, "commit", away)
        conversation = await ask(served)
    served.clock.now += 2
    await served.guard.ping()
    for _ in range(20):
        await asyncio.sleep(0)

    assert conversation.status == status
    assert (conversation.headers.get("x-lastcall-degraded"), len(served.upstream.sent)) == ((None, 0) if closed else ("store", 1))
    assert (await spent(served))[1] == (0 if closed else 8)


async def test_shutting_down_waits_for_what_is_not_settled() -> None:
    """And a body too large to be looked into is refused before."""
    served = proxy()
    served.setting.max_body = 4
    assert (await ask(served)).status == 413
    await served.setting.bills.drain()
    bill_key = Keys(await served.guard.secret())
    assert bill_key.till("red") != bill_key.ledger("red")
    assert json.loads(USED)["usage"]["total_tokens"] == 8


# ---- what is not paid by the token


def drawn(*answers: Answer, budget: float = 1.0, **price: Any) -> Proxy:
    """One team whose key is `k`, with so many dollars a day; what m costs beside its tokens."""
    team: dict[str, Any] = {"keys": [digest_of("k")], "budgets": [{"cost_usd": budget, "per": "day"}]}
    rules = {"teams": {"red": team}, "prices": {"m": {"input": 0, "output": 0, **price}}}
    config = Config.model_validate(rules)
    tenants = Tenants(config, zone=UTC, prices=Prices(stated(config.prices), {}))
    return Proxy(*answers or [ScriptedResponse(b'{"data": [{}]}')], tenants=tenants, endless=True)


PICTURE = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n3\r\n--b--'
)


@pytest.mark.parametrize(
    ("path", "body", "kind", "dollars"),
    [
        ("/v1/images/generations", b'{"model": "m", "prompt": "x"}', "application/json", 0.04),
        ("/v1/images/generations", b'{"model": "m", "prompt": "x", "n": 3}', "application/json", 0.12),
        ("/v1/images/edits", PICTURE, "multipart/form-data; boundary=b", 0.12),
        ("/v1/audio/transcriptions", PICTURE + bytes(40_000 - len(PICTURE)), "multipart/form-data; boundary=b", 0.001),
        ("/v1/videos", b'{"model": "m", "seconds": "8"}', "application/json", 0.0008),
        ("/v1/videos", b'{"model": "m"}', "application/json", 0.0004),
        ("/v1/audio/speech", b'{"model": "m", "input": "' + b"a" * 150 + b'"}', "application/json", 0.001),
    ],
)
async def test_pictures_sound_and_film_are_paid_by_the_piece(path: str, body: bytes, kind: str, dollars: float) -> None:
    """By what the request asks for, where the answer does not say."""
    served = drawn(image=0.04, second=0.0001)
    conversation = await served.ask(body, path, content_length=str(len(body)), content_type=kind, x_lastcall_key="k")

    assert conversation.status == 200
    assert (await spent(served))[3] == round(dollars * 1e9)


async def test_seconds_are_paid_as_the_answer_reports_them() -> None:
    """Rounded up."""
    served = drawn(ScriptedResponse(b'{"text": "hi", "usage": {"type": "duration", "seconds": 8.2}}'), second=0.0001)
    body = PICTURE + bytes(4_000)
    await served.ask(
        body, "/v1/audio/transcriptions", content_length=str(len(body)), content_type="multipart/form-data", x_lastcall_key="k"
    )

    assert (await spent(served))[3] == 900_000


async def test_pictures_that_are_told_as_tokens_are_paid_as_such() -> None:
    """Not by the piece as well."""
    served = drawn(ScriptedResponse(b'{"data": [{}], "usage": {"input_tokens": 10, "output_tokens": 100}}'), image=0.04, output=10)
    await ask(served, b'{"model": "m", "prompt": "x"}', "/v1/images/generations")

    assert (await spent(served))[3] == 1_000_000


async def test_what_is_paid_by_the_piece_is_held_before_the_call() -> None:
    """Thirty pictures for a dollar are too many, twenty are not."""
    served = drawn(image=0.04)
    many, few = [await ask(served, b'{"model": "m", "n": %d}' % count, "/v1/images/generations") for count in (30, 20)]

    assert (many.status, few.status) == (400, 200)
    assert many.json["error"]["code"] == "lastcall_team_budget"


async def test_a_service_tier_that_an_answer_names_is_paid() -> None:
    """Before its usage or behind it."""
    priced = Price(rates_of(1_000_000, 0), tiers=(("flex", Price(rates_of(500_000, 0))),))
    for body in (b'{"service_tier": "flex", "usage": {"prompt_tokens": 8}}', b'{"usage": {"prompt_tokens": 8}, "service_tier": "flex"}'):
        served = proxy(ScriptedResponse(body))
        served.setting.tenants = Tenants(
            Config.model_validate({"teams": {"red": {"keys": [digest_of("k")]}}}), zone=UTC, prices=Prices({"m": priced}, {})
        )
        await ask(served)
        assert (await spent(served))[3] == 4_000


# ---- sessions


PRICED = {"prices": {"m": {"input": 1.0, "output": 10.0}}}


def sessions(*answers: Answer, budgets: dict[str, Any] | None = None, teams: bool = True, on_stop: str = "message") -> Proxy:
    """With budgets for each session; one team whose key is `k`, or nobody's."""
    rules: dict[str, Any] = {"policy": {"budgets": budgets or {}, "on_stop": on_stop}, "models": ["m"], **PRICED}
    if teams:
        rules["teams"] = {"red": {"keys": [digest_of("k")]}}
    tenants = Tenants(Config.model_validate(rules), zone=UTC, prices=Prices({"m": DOLLAR_A_MILLION}, {}))
    return Proxy(*answers or [ScriptedResponse(USED)], tenants=tenants, endless=True)


async def of_session(served: Proxy, name: str, *, caller: str = "k", team: str = "red") -> tuple[int, int, int, int]:
    """Of a session: steps, tokens, nano-dollars, calls under way."""
    keys = Keys(await served.guard.secret())
    (found,) = await served.guard.peek([Account(keys.named(caller, name, team)[1])])
    assert found is not None
    return found.ledger.steps, found.ledger.tokens, found.ledger.cost, found.calls


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/embeddings", {"x_lastcall_session": "s"}),
        ("/s/s/v1/embeddings", {}),
        ("/v1/embeddings", {"x_session_id": "s"}),
        ("/s/s/v1/v1//embeddings/", {}),
    ],
)
@pytest.mark.parametrize("teams", [True, False])
async def test_a_session_that_is_named_pays(path: str, headers: dict[str, Any], teams: bool) -> None:
    """However it is named: tokens and money, and no step; its team pays too, and a step."""
    served = sessions(teams=teams)
    conversation = await ask(served, path=path, **headers)

    assert (conversation.status, conversation.body) == (200, USED)
    assert await of_session(served, "s", team="red" if teams else "") == (0, 8, 8_000, 0)
    assert await spent(served) == ((1, 8, 0, 8_000, 0) if teams else (0, 0, 0, 0, 0))


@pytest.mark.parametrize("budgets", [{"tokens": 1_000}, {"cost_usd": 0.001}, {"tokens": {"input": 1_000}}, {"deadline": "1m"}])
@pytest.mark.parametrize("teams", [True, False])
async def test_a_used_up_session_is_refused_on_every_route(budgets: dict[str, Any], teams: bool) -> None:
    """Spent on judged routes or on others: no endpoint is a way around its budget. Another session goes on."""
    big = ScriptedResponse(b'{"data": [], "usage": {"prompt_tokens": 900, "total_tokens": 900}}')
    served = sessions(big, budgets=budgets, teams=teams)
    first = await ask(served, x_lastcall_session="s")
    served.clock.now += 60
    there = await ask(served, x_lastcall_session="s")
    other = await served.ask(request(model="m", max_tokens=300), x_lastcall_key="k", x_lastcall_session="s")
    served.upstream.answers = [ScriptedResponse(USED)]
    elsewhere = await ask(served, x_lastcall_session="t")
    reason = {"cost_usd": "cost_budget", "deadline": "deadline"}.get(next(iter(budgets)), "token_budget")

    assert (first.status, there.status, elsewhere.status) == (200, 400, 200)
    assert (there.json["error"]["code"], there.headers["x-should-retry"]) == (f"lastcall_{reason}", "false")
    assert there.notice["scope"] == "session"
    assert (other.lastcall["action"], other.lastcall["reason"]) == ("refuse", reason)
    assert len(served.upstream.sent) == 2
    assert served.telemetry.unjudged[1].refused == reason


async def test_what_a_header_tightens_stays_for_the_session() -> None:
    """Whichever route it was sent to."""
    served = sessions()
    await ask(served, x_lastcall_session="s", x_lastcall_max_tokens="1000")
    again = await ask(served, BODY + b" " * 2_000, x_lastcall_session="s")
    judged = await served.ask(request(model="m", max_tokens=2_000), x_lastcall_key="k", x_lastcall_session="s")

    assert (again.status, again.json["error"]["code"]) == (400, "lastcall_token_budget")
    assert served.upstream.sent[-1].json["max_tokens"] < 1_000
    assert judged.status == 200


async def test_the_sessions_above_pay_too() -> None:
    """And their limits hold. Who they are is settled by the first request, on whatever route."""
    big = ScriptedResponse(b'{"data": [], "usage": {"prompt_tokens": 900, "total_tokens": 900}}')
    served = sessions(big, budgets={"tokens": 2_000})
    await ask(served, x_lastcall_session="parent")
    first = await ask(served, x_lastcall_session="child", x_lastcall_parent="parent")
    other = sessions(big, budgets={"tokens": 2_000})  # a process that has not seen them
    other.setting.bills = Bills(served.guard, ttl=3600, closed=False, new_id=served.setting.new_id, on_failure=other.telemetry.emit)
    escaping = await ask(other, x_lastcall_session="child")

    assert (first.status, escaping.status) == (200, 400)
    assert escaping.notice["scope"] == "parent"
    assert await of_session(served, "child") == (0, 900, 900_000, 0)
    assert await of_session(served, "parent") == (0, 1_800, 1_800_000, 0)
    assert await spent(served) == (2, 1_800, 0, 1_800_000, 0)


async def test_a_session_too_far_down_is_refused() -> None:
    """On every route, whether or not the process has seen its parents; it holds nothing then."""
    served = sessions()
    for depth in range(8):
        await ask(served, x_lastcall_session=f"s{depth + 1}", x_lastcall_parent=f"s{depth}")
    other = sessions()  # a process that has not seen them
    other.setting.bills = Bills(served.guard, ttl=3600, closed=False, new_id=served.setting.new_id, on_failure=other.telemetry.emit)
    deep = [await ask(one, x_lastcall_session="s9", x_lastcall_parent="s8") for one in (served, other)]
    deep.append(await served.ask(request(), x_lastcall_key="k", x_lastcall_session="s9", x_lastcall_parent="s8"))
    await served.sessions.drain()

    assert [one.status for one in deep] == [400] * 3
    assert all(one.json["error"]["code"] == "lastcall_too_deep" for one in deep)
    assert served.ledger()[2] == 0


@pytest.mark.parametrize("judged", [False, True], ids=["unjudged", "judged"])
async def test_nobody_escapes_by_a_parent_too_far_down(judged: bool) -> None:
    """What is below a session that was refused is refused too, on every route and in every process, and so is that session itself."""
    served = sessions()
    for depth in range(8):
        await ask(served, x_lastcall_session=f"s{depth + 1}", x_lastcall_parent=f"s{depth}")
    other = sessions()  # a process that has not seen them
    other.setting.bills = Bills(served.guard, ttl=3600, closed=False, new_id=served.setting.new_id, on_failure=other.telemetry.emit)

    async def asked(proxy: Proxy, session: str, parent: str | None = None) -> Conversation:
        headers: dict[str, Any] = {"x_lastcall_session": session} | ({} if parent is None else {"x_lastcall_parent": parent})
        return await proxy.ask(request(), x_lastcall_key="k", **headers) if judged else await ask(proxy, **headers)

    before, calls = await spent(served), len(served.upstream.sent)
    deep = [await asked(served, "s9", "s8"), await asked(served, "s10", "s9"), await asked(served, "s11", "s10"), await asked(served, "s9")]
    deep += [await ask(other, x_lastcall_session="s12", x_lastcall_parent="s10")]
    await served.sessions.drain()

    assert [(one.status, one.json["error"]["code"]) for one in deep] == [(400, "lastcall_too_deep")] * 5
    assert (await spent(served), len(served.upstream.sent)) == (before, calls)
    assert (await asked(served, "s8")).status == 200


async def test_what_the_sessions_bodies_taught_bounds_no_other_kind() -> None:
    """An embedding of text that takes a token a byte fits by its own size alone."""
    served = sessions(answer("hi", usage={"prompt_tokens": 10, "completion_tokens": 3}), budgets={"tokens": 3_000})
    await served.ask(request(model="m", max_tokens=300), x_lastcall_key="k", x_lastcall_session="s")
    assert (await ask(served, BODY + b" " * 3_000, x_lastcall_session="s")).status == 400


@pytest.mark.parametrize("begun", [b"", b'data: {"choices":[{"text":"12345678"}]}\n\n', b"{"])
async def test_a_deadline_ends_what_is_under_way(begun: bytes) -> None:
    """A slow first byte with the error, a stream of events with one in it; any other body can only break off. It pays what came."""
    kind = b"text/event-stream" if begun.startswith(b"data") else b"application/json"
    slow = Slow(ScriptedResponse()) if not begun else ScriptedResponse(begun, asyncio.Event(), kind=kind)
    served = sessions(slow, budgets={"deadline": "1s"})
    served.upstream.answers.insert(0, ScriptedResponse(USED))
    await ask(served, x_lastcall_session="s")  # from here on its time counts
    served.clock.now += 0.95
    conversation = await ask(served, path="/v1/completions", x_lastcall_session="s")

    told = b"lastcall_deadline" in conversation.body
    assert (conversation.status, told, conversation.ended) == {
        b"": (400, True, True),
        b"{": (200, False, False),
    }.get(begun, (200, True, True))
    assert (await of_session(served, "s"))[::3] == (0, 0)
    assert (await of_session(served, "s"))[1] > 8


async def test_an_observed_session_is_refused_nothing() -> None:
    """The event says that it would have been."""
    served = sessions(budgets={"tokens": 100})
    served.setting.tenants = Tenants(
        Config.model_validate({"policy": {"mode": "observe", "budgets": {"tokens": 100}}, **PRICED}), zone=UTC, prices=Prices({}, {})
    )
    assert (await ask(served, x_lastcall_session="s")).status == 200
    ended = served.telemetry.unjudged[-1]
    assert (ended.refused, ended.mode, ended.input_tokens) == ("token_budget", "observe", 8)


async def test_nobody_is_charged_who_names_no_session_and_is_no_team() -> None:
    """Such a request passes as it is."""
    served = sessions(teams=False)
    conversation = await ask(served, accept_encoding="gzip")

    assert [value for name, value in served.upstream.sent[0].headers if name == b"accept-encoding"] == [b"gzip"]
    assert (conversation.status, served.ledger()) == (200, (0, 0, 0))


async def test_a_team_that_goes_free_pays_for_no_session() -> None:
    """`other_endpoints: allow` is for both."""
    served = sessions()
    team = {"keys": [digest_of("k")], "other_endpoints": "allow"}
    served.setting.tenants = Tenants(Config.model_validate({"teams": {"red": team}}), zone=UTC, prices=Prices({}, {}))
    assert (await ask(served, x_lastcall_session="s")).status == 200
    assert served.ledger() == (0, 0, 0)
