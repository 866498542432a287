"""Tenants: whose a request is, which rules, models, ways and budgets it has."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from proxy.config import Config
from proxy.errors import BadRequest
from proxy.keys import digest_of
from proxy.models import Reason
from proxy.policy import Ladder, OnStop, Policy, policy_of
from proxy.prices import Price, Prices, rates_of
from proxy.tenants import Cap, OtherEndpoints, Quota, Tenant, Tenants

BERLIN = ZoneInfo("Europe/Berlin")
PRICE = Price(rates_of(1, 2))


def tenants(**config: Any) -> Tenants:
    return Tenants(Config.model_validate(config), zone=BERLIN, prices=Prices({"priced": PRICE}, {}))


def team(policy: dict[str, Any] | None = None, everybody: dict[str, Any] | None = None, **fields: Any) -> Tenant:
    """The one team of a configuration."""
    given = {"keys": [digest_of("k")], "policy": policy or {}} | fields
    return tenants(policy=everybody or {}, teams={"red": given}).of({"x-lastcall-key": "k"})


TWO = tenants(teams={"red": {"keys": [digest_of("r1"), digest_of("r2")]}, "blue": {"keys": [digest_of("b")]}})

# ---- who


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"x-lastcall-key": "r1"}, "red"),
        ({"x-lastcall-key": " r2 "}, "red"),
        ({"authorization": "Bearer b"}, "blue"),
        ({"x-api-key": "b"}, "blue"),
        ({"x-lastcall-key": "r1", "authorization": "Bearer b"}, "red"),
    ],
)
def test_a_key_names_its_team(headers: dict[str, str], name: str) -> None:
    """Lastcall's own header goes before the others."""
    assert TWO.of(headers).name == name
    assert TWO.names == ("red", "blue")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "of this request it shows no key"),
        ({"authorization": "Bearer sk-secret"}, "the key in 'authorization' is no team's"),
        ({"x-lastcall-key": "sk-secret", "authorization": "Bearer b"}, "the key in 'x-lastcall-key' is no team's"),
        ({"x-api-key": "sk-secret"}, "the key in 'x-api-key' is no team's"),
        ({"authorization": "Basic sk-secret"}, "the key in 'authorization' is no team's"),
    ],
)
def test_a_key_that_no_team_has_is_refused(headers: dict[str, str], said: str) -> None:
    """With 401, what was looked at and what to do, and never the key."""
    with pytest.raises(BadRequest) as caught:
        TWO.of(headers)

    assert (caught.value.status, caught.value.code, caught.value.retry) == (401, "lastcall_unknown_key", False)
    assert said in caught.value.message
    assert "sk-secret" not in caught.value.message


def test_without_teams_everybody_is_served() -> None:
    """Any key or none; nothing is restricted."""
    everybody = tenants().of({"authorization": "Bearer x"})

    assert (everybody.name, everybody.upstreams, everybody.is_restricted) == ("", None, False)
    assert everybody.other_endpoints is OtherEndpoints.ALLOW
    assert tenants().names == ()
    everybody.check_model("anything")
    everybody.check_endpoint("/embeddings")
    tenants().check_passthrough({}, "default")


@pytest.mark.parametrize("headers", [{"authorization": "Bearer r1"}, {"x-lastcall-key": "r1", "authorization": "Bearer b"}])
def test_a_teams_key_never_goes_to_an_upstream_that_gets_the_clients_credentials(headers: dict[str, str]) -> None:
    """It has a header of its own there; another team's key is none for the provider either."""
    with pytest.raises(BadRequest) as caught:
        TWO.check_passthrough(headers, "default")

    assert (caught.value.status, caught.value.code) == (401, "lastcall_key_not_for_upstream")
    assert "send it in 'x-lastcall-key'" in caught.value.message


def test_a_teams_key_in_its_own_header_leaves_the_others_to_the_provider() -> None:
    """Then both keys arrive where they belong."""
    TWO.check_passthrough({"x-lastcall-key": "r1", "authorization": "Bearer sk-of-the-provider"}, "default")


# ---- what it may use


def test_models_by_name_or_glob() -> None:
    """Any other is refused with 403, and what is allowed is said."""
    restricted = team(models=["gpt-*", "o3"])

    assert restricted.is_restricted
    assert [restricted.may_use(model) for model in ("gpt-5", "o3", "o3-mini", "")] == [True, True, False, False]
    restricted.check_model("o3")
    with pytest.raises(BadRequest, match=r"team 'red' may not use the model 'o4'; it may use gpt-\*, o3 \(teams.red.models in") as caught:
        restricted.check_model("o4")
    assert (caught.value.status, caught.value.code, caught.value.retry) == (403, "lastcall_model_not_allowed", False)


def test_other_endpoints_may_be_refused() -> None:
    """With 403."""
    with pytest.raises(BadRequest, match=r"team 'red' may not use '/embeddings': .* \(teams.red.other_endpoints: refuse in") as caught:
        team(other_endpoints="refuse").check_endpoint("/embeddings")

    assert (caught.value.status, caught.value.code) == (403, "lastcall_endpoint_not_allowed")
    team().check_endpoint("/embeddings")
    assert team().other_endpoints is OtherEndpoints.CHARGE


def test_upstreams_of_a_team() -> None:
    """In its own order; all of them where it names none."""
    upstreams = {name: {"base_url": "http://h/v1"} for name in "ab"}
    config = Config.model_validate({"upstreams": upstreams, "teams": {"red": {"keys": [digest_of("k")], "upstreams": ["b", "a"]}}})

    assert Tenants(config, zone=BERLIN, prices=Prices({}, {})).of({"x-lastcall-key": "k"}).upstreams == ("b", "a")
    assert team().upstreams is None


# ---- under which rules


def test_each_layer_says_only_what_differs() -> None:
    """Everybody's, a model's, a team's, a team's for a model: the upper word counts, key by key."""
    everybody = {
        "on_stop": "message",
        "budgets": {"steps": 100, "tokens": 1000, "deadline": 60},
        "models": {"deepseek-*": {"budgets": {"steps": 50, "tokens": 500}, "nudge": {"keep": False}}},
    }
    red = team({"budgets": {"steps": 40}, "models": {"deepseek-r*": {"budgets": {"steps": 7}, "on_stop": "error"}}}, everybody)

    plain, chat, reasoner = (red.policy(model) for model in ("gpt-5", "deepseek-chat", "deepseek-r1"))

    assert (plain.budgets.steps, plain.budgets.tokens, plain.budgets.deadline, plain.on_stop) == (40, 1000, 60, OnStop.MESSAGE)
    assert (chat.budgets.steps, chat.budgets.tokens, chat.nudge.keep, chat.on_stop) == (40, 500, False, OnStop.MESSAGE)
    assert (reasoner.budgets.steps, reasoner.budgets.tokens, reasoner.on_stop) == (7, 500, OnStop.ERROR)


def test_a_model_has_its_own_entry_or_the_first_that_fits() -> None:
    """One entry, not several on top of each other."""
    everybody = {"models": {"*": {"budgets": {"steps": 1}}, "gpt-*": {"budgets": {"steps": 2}}, "gpt-5": {"budgets": {"tokens": 3}}}}
    one = tenants(policy=everybody).of({})

    assert (one.policy("gpt-5").budgets.steps, one.policy("gpt-5").budgets.tokens) == (None, 3)
    assert one.policy("gpt-6").budgets.steps == 1


def test_a_team_may_lift_what_everybody_is_held_to() -> None:
    """Null is no limit; a rung, a tool, a preset may differ as well."""
    everybody = {
        "preset": "plain",
        "budgets": {"steps": 5, "tokens": 9},
        "detectors": {"repeated_call": {"stop_at": 8}},
        "tools": {"poll": {"effect": "poll", "stop_at": 20}, "note": {"exempt": True}},
    }
    red = team(
        {"budgets": {"steps": None, "tokens": None}, "detectors": {"repeated_call": {"nudge_at": None}, "cycle": {"stop_at": 4}}}, everybody
    )
    blue = team({"preset": "standard", "tools": {"poll": {"nudge_at": 6}}}, everybody)

    assert (red.policy("m").budgets.steps, red.policy("m").budgets.tokens) == (None, None)
    assert red.policy("m").ladders == {Reason.REPEATED_CALL: Ladder(None, 8), Reason.CYCLE: Ladder(3, 4)}
    assert red.policy("m").counting == policy_of(Config.model_validate({"policy": {"preset": "plain"}}).policy).counting
    assert (blue.policy("m").counting, blue.policy("m").ladders) == (Policy().counting, Policy().ladders)
    assert blue.policy("m").ladder(Reason.REPEATED_CALL, "poll") == Ladder(6, 20)
    assert blue.policy("m").tools["note"].exempt


def test_one_policy_for_each_combination_of_layers_however_many_models() -> None:
    """Clients name models: what is kept for them is bounded."""
    red = team({"models": {"a*": {"mode": "observe"}}})

    assert len({id(red.policy(f"{letter}{number}")) for letter in "ab" for number in range(1500)}) == 2
    assert red.policy("a" * 5000) is red.policy("a1")
    assert 1000 < len(red._by_model) <= 1024


# ---- out of which budgets


def test_budgets_stand_in_the_windows_of_the_moment() -> None:
    """In the order of their units; money in nano-dollars; null is no limit."""
    red = team(
        budgets=[{"cost_usd": 0.5, "tokens": 10, "per": "day"}, {"tokens": 100, "steps": None, "per": "month"}],
        concurrent_requests=4,
        concurrent_sessions=2,
    )
    noon = datetime(2026, 11, 29, 12, tzinfo=BERLIN).timestamp()
    day, month = datetime(2026, 11, 30, tzinfo=BERLIN).timestamp(), datetime(2026, 12, 1, tzinfo=BERLIN).timestamp()

    assert red.quota(noon) == Quota(
        (
            Cap("tokens", 10, "day 2026-11-29+0100", day),
            Cap("tokens", 100, "month 2026-11-01+0100", month),
            Cap("cost", 500_000_000, "day 2026-11-29+0100", day),
        ),
        requests=4,
        sessions=2,
        until=day,
        day="2026-11-29",
    )


def test_a_quota_is_worked_out_once_in_a_window() -> None:
    """And anew after it, or when the clock was set back."""
    red = team(budgets=[{"tokens": 10, "per": "hour"}])
    noon = datetime(2026, 11, 29, 12, tzinfo=BERLIN).timestamp()
    first = red.quota(noon)

    assert red.quota(noon + 3599) is first
    assert red.quota(noon + 3600).caps[0].window == "hour 2026-11-29T13+0100"
    assert red.quota(noon - 1).caps[0].window == "hour 2026-11-29T11+0100"


def test_no_team_and_no_budgets_are_no_limit() -> None:
    """For ever."""
    assert tenants().of({}).quota(0.0) == Quota()
    until = datetime(1970, 1, 2, tzinfo=BERLIN).timestamp()
    assert team().quota(0.0) == Quota(until=until, day="1970-01-01")
    assert team(concurrent_requests=0).quota(0.0) == Quota(requests=0, until=until, day="1970-01-01")


def test_a_model_is_counted_under_a_name_of_the_configuration() -> None:
    """Names come from clients, rows of usage must not."""
    assert (team().label("gpt-4o-mini"), team().label("nobody's"), tenants().of({}).label("gpt-4o")) == ("gpt-*", "_other", "")


def test_a_price_is_that_of_the_model() -> None:
    """None when nobody states one."""
    assert team().price("priced", "default") == PRICE
    assert team().price("unpriced", "default") is None
