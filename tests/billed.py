"""Calls on routes that are not judged, of one team with a budget, and what its ledger says of them."""

from datetime import UTC
from typing import Any

from proxy.config import Config
from proxy.identity import Keys
from proxy.keys import digest_of
from proxy.prices import Price, Prices, rates_of
from proxy.store import Account
from proxy.tenants import Tenants
from tests.in_process import Answer, Conversation, Proxy, ScriptedResponse

BODY = b'{"model": "m", "input": "hello"}'
USED = b'{"data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}}'
DOLLAR_A_MILLION = Price(rates_of(1_000_000, 10_000_000))


def proxy(*answers: Answer, closed: bool = False, policy: dict[str, Any] | None = None, **budget: int) -> Proxy:
    """One team whose key is `k`; m costs a dollar a million. budget: for each day."""
    team: dict[str, Any] = {"keys": [digest_of("k")], "budgets": [budget | {"per": "day"}] if budget else [], "policy": policy or {}}
    config = Config.model_validate({"teams": {"red": team}, "models": ["m"], "prices": {"m": {"input": 1.0, "output": 10.0}}})
    tenants = Tenants(config, zone=UTC, prices=Prices({"m": DOLLAR_A_MILLION}, {}))
    return Proxy(*answers or [ScriptedResponse(USED)], tenants=tenants, endless=True, closed=closed)


async def ask(served: Proxy, body: bytes = BODY, path: str = "/v1/embeddings", **headers: Any) -> Conversation:
    return await served.ask(body, path, content_length=str(len(body)), content_type="application/json", x_lastcall_key="k", **headers)


async def spent(served: Proxy) -> tuple[int, int, int, int, int]:
    """Of the team: steps, input, output, nano-dollars, calls under way."""
    keys = Keys(await served.guard.secret())
    (found,) = await served.guard.peek([Account(keys.ledger("red"), team=True)])
    if found is None:
        return 0, 0, 0, 0, 0
    ledger = found.ledger
    return ledger.steps, ledger.input_tokens, ledger.output_tokens, ledger.cost, found.calls
