"""Batches: what a provider did while nobody waited for it is charged to the team when it is first seen to have ended, once."""

import asyncio
import contextlib
import json
from datetime import UTC
from typing import Any

import pytest

from proxy.config import Config
from proxy.errors import StoreUnavailable, UpstreamCut
from proxy.keys import digest_of
from proxy.prices import Price, Prices, rates_of
from proxy.tenants import Tenants
from tests.billed import ask, proxy, spent
from tests.in_process import Conversation, Proxy, ScriptedResponse


def batch(status: str = "completed", **more: Any) -> ScriptedResponse:
    usage = {"input_tokens": 1_000, "output_tokens": 10, "total_tokens": 1_010}
    return ScriptedResponse(
        json.dumps({"id": "batch_1", "object": "batch", "status": status, "model": "m", "usage": usage} | more).encode()
    )


async def look(served: Proxy, path: str = "/v1/batches/batch_1") -> Conversation:
    return await served.ask(b"", path, method="GET", x_lastcall_key="k")


async def test_a_batch_is_paid_once_when_it_is_first_seen_to_have_ended() -> None:
    """Looked up again, by several at once, after weeks: what it came to stands in the ledger once, as no step."""
    shown = batch()
    served = proxy(batch("in_progress"), shown, tokens=500)
    assert (await look(served)).status == 200
    assert await spent(served) == (0, 0, 0, 0, 0)
    looks = [*await asyncio.gather(look(served), look(served)), await look(served)]
    served.clock.now += 20 * 86_400.0
    assert await spent(served) == (0, 1_000, 10, 1_100_000, 0)
    looks.append(await look(served))

    assert await spent(served) == (0, 1_000, 10, 1_100_000, 0)
    assert [one.body for one in looks] == [await shown.read()] * 4
    served.clock.now -= 20 * 86_400.0
    assert (await ask(served)).json["error"]["code"] == "lastcall_team_budget"  # what it came to counts for what follows


async def test_a_batch_has_rates_of_its_own() -> None:
    priced = Price(rates_of(1_000_000, 0), tiers=(("batch", Price(rates_of(500_000, 0))),))
    served = proxy(batch())
    served.setting.tenants = Tenants(
        Config.model_validate({"teams": {"red": {"keys": [digest_of("k")]}}}), zone=UTC, prices=Prices({"m": priced}, {})
    )
    await look(served)
    assert (await spent(served))[3] == 500_000


@pytest.mark.parametrize(
    "shown",
    [batch("validating"), batch(usage=None), batch(usage={}), batch(id=""), ScriptedResponse(b"{"), ScriptedResponse(b"[]")],
    ids=["goes on", "no usage", "empty usage", "no id", "no JSON", "no object"],
)
async def test_what_says_nothing_of_a_batch_costs_nothing(shown: ScriptedResponse) -> None:
    served = proxy(shown)
    assert (await look(served)).body == await shown.read()
    assert await spent(served) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(("closed", "status"), [(False, 200), (True, 503)])
async def test_a_batch_seen_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch, closed: bool, status: int) -> None:
    """Is paid when somebody looks again."""
    served = proxy(batch(), closed=closed)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as broken:
        broken.setattr(served.guard, "peek", away)
        assert (await look(served)).status == status
    assert (await look(served)).status == 200
    assert (await spent(served))[1] == 1_000


async def test_a_training_is_paid_when_it_is_first_seen_to_have_ended() -> None:
    """By its trained tokens, once."""
    job = {"id": "ftjob-1", "object": "fine_tuning.job", "model": "m", "status": "running", "trained_tokens": None}
    ended = job | {"status": "succeeded", "trained_tokens": 5_000}
    served = proxy(*(ScriptedResponse(json.dumps(one).encode()) for one in (job, ended)))
    for tokens in (0, 5_000, 5_000):
        assert (await look(served, "/v1/fine_tuning/jobs/ftjob-1")).status == 200
        assert (await spent(served))[1] == tokens


def results(*models: str) -> bytes:
    """Of a batch of the messages API; the last line is a request that failed, and broken."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}}
    lines = [
        json.dumps({"custom_id": "a", "result": {"type": "succeeded", "message": {"model": model, "usage": usage}}}) for model in models
    ]
    return "\n".join([*lines, '{"custom_id": "z", "result": {"type": "errored"}}', "{"]).encode()


async def test_a_batch_of_messages_is_paid_when_its_results_are_read() -> None:
    """To the end, line by line whatever their pieces, model by model, once."""
    data = results("m", "n", "m")
    pieces = [data[place : place + 50] for place in range(0, len(data), 50)]
    served = proxy(ScriptedResponse(*pieces, kind=b"application/binary"))
    path = "/v1/messages/batches/msgbatch_1/results"
    looks = [await look(served, path) for _ in range(2)]

    assert [one.body for one in looks] == [data] * 2
    assert (await spent(served))[1:3] == (300, 15)


async def test_results_that_break_off_or_are_none_are_not_paid() -> None:
    """Whoever reads them again pays."""
    broken = ScriptedResponse(results("m"), UpstreamCut("cut"))
    served = proxy(broken, ScriptedResponse(results("m"), status=404), ScriptedResponse(results("m")))
    path = "/v1/messages/batches/msgbatch_1/results"
    for tokens in (0, 0, 100):
        with contextlib.suppress(UpstreamCut):
            await look(served, path)
        assert (await spent(served))[1] == tokens
