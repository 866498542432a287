"""Teams, prices and layers of rules: what may be written, and what is said about the rest."""

import json
import re

import pytest

from proxy.config import Config, dump, load, load_dumped
from proxy.config.shape import TokenLimits
from proxy.config.teams import PriceConfig, WindowBudget
from proxy.errors import ConfigError
from proxy.keys import digest_of

KEY = "lc-do-not-show-me"
HASH = digest_of(KEY)


def faults(text: str, env: dict[str, str] | None = None) -> list[str]:
    """The lines of the error that a file gets."""
    with pytest.raises(ConfigError) as caught:
        load(text, env or {})
    return str(caught.value).splitlines()


def keys(written: str, **env: str) -> tuple[str, ...]:
    return load(f"teams:\n  red:\n    keys: {written}", env).teams["red"].keys


# ---- keys


@pytest.mark.parametrize(
    ("written", "env"),
    [
        (f"[{HASH}]", {}),
        (f"['sha256:{HASH.removeprefix('sha256:').upper()}']", {}),
        ("['${K}']", {"K": KEY}),
        ("['${K}']", {"K": f"{KEY}\n"}),
        ("['${K}']", {"K": HASH}),
    ],
)
def test_a_key_is_kept_as_its_hash_alone(written: str, env: dict[str, str]) -> None:
    """From the file as a hash, from a variable as either; nothing shows a key."""
    assert keys(written, **env) == (HASH,)
    loaded = load(f"teams: {{red: {{keys: {written}}}}}", env)
    assert KEY not in repr(loaded)
    assert KEY not in dump(loaded)
    assert load_dumped(dump(loaded)) == loaded


def test_a_key_that_looks_like_a_number_stays_text() -> None:
    """Its zeros count."""
    assert keys("['${K}']", K="007") == (digest_of("007"),)


@pytest.mark.parametrize(
    "written",
    [f"[{KEY}]", f"['${{K:-{KEY}}}']", f"['{KEY}${{K}}']", "[12345678]", f"['sha256:{KEY}']", f"[[{KEY}]]", f"{{a: {KEY}}}", f"{KEY}"],
)
def test_a_key_in_the_file_is_a_fault_that_does_not_show_it(written: str) -> None:
    """However it is written."""
    (fault,) = faults(f"teams:\n  red:\n    keys: {written}", {"K": KEY})

    assert re.match(r"teams\.red\.keys(\[0\])?: ", fault)
    assert KEY not in fault
    assert "12345678" not in fault


@pytest.mark.parametrize(
    ("text", "variable"),
    [(f"teams: {{red: {{keys: [{KEY}]}}}}", "${TEAM_KEY}"), (f"server: {{admin_key: {KEY}}}", "${LASTCALL_ADMIN_KEY}")],
)
def test_a_key_in_the_file_is_asked_for_in_a_variable(text: str, variable: str) -> None:
    """By a name that fits: the operator's commands read theirs."""
    (fault,) = faults(text)

    assert fault.partition(" (line")[0].endswith(f"or a variable as in {variable}")


@pytest.mark.parametrize("digits", ["…", "abc", "g" * 64, "a" * 65])
def test_half_a_hash_is_a_fault_that_says_where_a_whole_one_comes_from(digits: str) -> None:
    """The ellipsis is what the documentation shows in its place."""
    (fault,) = faults(f"teams: {{red: {{keys: ['sha256:{digits}']}}}}")

    assert "something else than 64 hexadecimal digits; `lastcall keygen` prints a whole one" in fault


@pytest.mark.parametrize("key", ["", " ", f"{KEY} {KEY}", f"{KEY}é", "sha256:abc"])
def test_a_variable_that_holds_no_key_is_a_fault_that_does_not_show_it(key: str) -> None:
    """It could never be shown in a header."""
    (fault,) = faults("teams: {red: {keys: ['${K}']}}", {"K": key})

    assert fault.startswith("teams.red.keys[0]: ")
    assert KEY not in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"teams: {{a: {{keys: [{HASH}]}}, b: {{keys: ['${{K}}']}}}}", "teams.b.keys[0]: is the same key as teams.a.keys[0]; "),
        (f"teams: {{a: {{keys: [{HASH}, {HASH}]}}}}", "teams.a.keys[1]: is the same key as teams.a.keys[0]; "),
        ("teams: {a: {}}", 'teams.a.keys: missing; every entry needs it, such as keys: ["sha256:…"]'),
        ("teams: {a: {keys: []}}", "teams.a.keys: an empty list; "),
        ("teams: {a: null}", "teams.a.keys: missing; "),
        ("teams: []", "teams: a list is not a mapping; "),
        (f"teams: {{'a b': {{keys: [{HASH}]}}}}", "teams: 'a b' is no team name; use letters, digits, "),
        (f"teams: {{a: {{keys: [{HASH}], upstreams: [x]}}}}", "teams.a.upstreams[0]: 'x' is no upstream; known here: default"),
        (f"teams: {{a: {{keys: [{HASH}], upstreams: []}}}}", "teams.a.upstreams: an empty list; "),
        (f"teams: {{a: {{keys: [{HASH}], models: []}}}}", "teams.a.models: an empty list; "),
        (
            f"teams: {{a: {{keys: [{HASH}], other_endpoints: no}}}}",
            "teams.a.other_endpoints: false is not known here; use 'allow', 'charge' or ",
        ),
        (f"teams: {{a: {{keys: [{HASH}], model: [x]}}}}", "teams.a.model: unknown key; did you mean models? Known here: keys, models, "),
        (f"teams: {{a: {{keys: [{HASH}], policy: {{budgets: {{steps: -1}}}}}}}}", "teams.a.policy.budgets.steps: -1 is negative; "),
        (f"teams: {{a: {{keys: [{HASH}], policy: {{modes: x}}}}}}", "teams.a.policy.modes: unknown key; did you mean "),
        (f"teams: {{a: {{keys: [{HASH}], policy: {{models: {{x: {{models: {{}}}}}}}}}}}}", "teams.a.policy.models.x.models: unknown key; "),
        ("policy: {models: {x: {on_stop: no}}}", "policy.models.x.on_stop: false is not known here; "),
        (
            "policy: {models: {x: {detectors: {cycle: {nudge_at: 9, stop_at: 8}}}}}",
            "policy.models.x.detectors.cycle.stop_at: 8 lies below ",
        ),
        ("policy: {models: {'': {}}}", "policy.models."),
    ],
)
def test_a_fault_names_the_key_the_value_and_the_fix(text: str, fault: str) -> None:
    """One line, in plain words, with the line of the file."""
    (said,) = faults(text, {"K": KEY})

    assert said.startswith(fault)
    assert said.endswith("(line 1)")
    assert not re.search(r"pydantic|Input should|validation|type=|\[type|sha256:[0-9a-f]", said)


# ---- layers of rules


def test_a_rung_of_a_layer_need_not_fit_a_default() -> None:
    """It stands beside a rung of the layer below."""
    loaded = load("policy: {models: {x: {detectors: {cycle: {stop_at: 2}}, tools: {t: {stop_at: 2}}}}}", {})

    assert loaded.policy.models["x"].detectors.cycle.stop_at == 2


def test_a_layer_knows_what_was_written_in_it_also_in_a_worker() -> None:
    """What was not stays as it is below."""
    text = f"{{policy: {{models: {{x: {{budgets: {{steps: 3}}}}}}}}, teams: {{a: {{keys: [{HASH}], policy: {{on_stop: error}}}}}}}}"
    copy = load_dumped(dump(load(text, {})))

    assert copy.policy.models["x"].model_fields_set == {"budgets"}
    assert copy.policy.models["x"].budgets.model_fields_set == {"steps"}
    assert copy.teams["a"].policy.model_fields_set == {"on_stop"}


def test_the_schema_gives_a_layer_no_defaults() -> None:
    """An editor would take them for what is in force."""
    definitions = json.loads(json.dumps(Config.model_json_schema()))["$defs"]

    assert all("default" not in key for name in ("PolicyLayer", "TeamPolicy") for key in definitions[name]["properties"].values())
    assert definitions["PolicyConfig"]["properties"]["on_stop"]["default"] == "wrap_up"


# ---- keys of the operator's own


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "proxy.internal"])
def test_an_upstreams_key_is_not_for_whoever_finds_the_address(host: str) -> None:
    """Without teams, and beyond this machine."""
    text = f"server:\n  host: '{host}'\nupstreams: {{a: {{base_url: http://h/v1, api_key: '${{K}}'}}}}"
    (fault,) = faults(text, {"K": KEY})

    assert fault.startswith(
        f"server.host: '{host}' can be reached from elsewhere, and whoever reaches it could spend the key of upstream 'a'; "
    )
    assert "server.open: true" in fault
    assert fault.endswith("(line 2)")


@pytest.mark.parametrize(
    "text",
    [
        "server: {host: 127.0.0.9}",
        "server: {host: '::1'}",
        "server: {host: localhost}",
        "server: {host: 0.0.0.0, open: true}",
        f"server: {{host: 0.0.0.0}}\nteams: {{a: {{keys: [{HASH}]}}}}",
    ],
)
def test_it_may_be_used_on_this_machine_by_teams_or_when_the_operator_says_so(text: str) -> None:
    """Any one of them is enough."""
    load(f"{text}\nupstreams: {{a: {{base_url: http://h/v1, api_key: '${{K}}'}}}}", {"K": KEY})


def test_without_a_key_of_its_own_nothing_is_to_be_spent() -> None:
    """Clients bring theirs."""
    load("server: {host: 0.0.0.0}", {})


# ---- what is checked, and not yet in force


def test_tokens_are_a_total_or_told_apart() -> None:
    """A number is both together."""
    assert load("policy: {budgets: {tokens: 5}}", {}).policy.budgets.tokens == TokenLimits(total=5)
    assert load("policy: {budgets: {tokens: {total: 5}}}", {}).policy.budgets.tokens == TokenLimits(total=5)
    assert load("policy: {budgets: {tokens: null}}", {}).policy.budgets.tokens is None
    assert faults("policy: {budgets: {tokens: {totl: 5}}}")[0].startswith("policy.budgets.tokens.totl: unknown key; did you mean total?")


def said(section: type[WindowBudget | PriceConfig] | type[Config], **values: object) -> str:
    """What a section says of values that do not fit."""
    with pytest.raises(ValueError) as caught:
        section.model_validate(values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"per": "day"}, "limits nothing; name at least one of steps, input, output, tokens, cost_usd"),
        ({"per": "day", "tokens": 1.0}, "1.0 is not a whole number"),
        ({"per": "day", "tokens": -1}, "-1 is negative"),
        ({"per": "year", "tokens": 1}, "'minute', 'hour', 'day', 'week' or 'month'"),
        ({"tokens": 1}, "Field required"),
        ({"per": "day", "cost_usd": "5"}, "'5' is not an amount of dollars"),
        ({"per": "day", "cost_usd": True}, "true is not an amount of dollars"),
        ({"per": "day", "cost_usd": -0.5}, "-0.5 is negative"),
        ({"per": "day", "cost_usd": float("nan")}, "nan is not an amount of dollars"),
        ({"per": "day", "cost_usd": float("inf")}, "inf is too large"),
        ({"per": "day", "cost_usd": 9_000_001}, "9000001 is too large"),
        ({"per": "day", "cost_usd": 1e-10}, "is less than a nano-dollar"),
        ({"per": "day", "requests": 5}, "Extra inputs are not permitted"),
    ],
)
def test_a_budget_of_a_window_that_does_not_fit(values: dict[str, object], message: str) -> None:
    """Unset is not zero; zero means none."""
    assert message in said(WindowBudget, **values)
    assert WindowBudget(per="day", tokens=0).tokens == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"input": 1.25e-06, "output": 1e-05},
            "dollars for a million tokens is too little to be meant; is it for one? Then add per: token",
        ),
        (
            {"per": "token", "input": 1.25, "output": 1},
            "dollars for one token is too much to be meant; is it for a million? Then take per: token out",
        ),
        ({"input": 1}, "Field required"),
        ({"input": -1, "output": 1}, "-1 is negative"),
        ({"input": "free", "output": 1}, "'free' is not an amount of dollars"),
    ],
)
def test_a_price_in_the_wrong_unit_is_noticed(values: dict[str, object], message: str) -> None:
    """A million times too little or too much would make a budget worth nothing, or let nothing pass."""
    assert message in said(PriceConfig, **values)


def test_a_free_model_has_a_price() -> None:
    """Zero in either unit."""
    assert PriceConfig(input=0, output=0).input == PriceConfig(per="token", input=0, output=0, cached=None).input == 0


def test_a_limit_may_be_set_once_in_a_window() -> None:
    """Which of two would hold?"""
    budgets = [{"tokens": 1, "per": "day"}, {"tokens": 1, "per": "hour"}, {"steps": 1, "tokens": 2, "per": "day"}]

    assert "tokens per day is limited twice, first in budgets[0]; keep one" in said(
        Config, teams={"a": {"keys": [HASH], "budgets": budgets}}
    )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_a_time_zone_has_its_name(zone: str) -> None:
    """As the system's tables have it."""
    assert Config.model_validate({"timezone": zone}).timezone == zone


@pytest.mark.parametrize("zone", ["CET+1", "Berlin", "../etc/passwd", "Europe", "", 5])
def test_a_time_zone_that_is_none(zone: object) -> None:
    """With what to write instead."""
    message = said(Config, timezone=zone)

    assert (
        "is no time zone that this system knows; use a name such as UTC, Europe/Berlin" in message
        or "plain name" in message
        or "quotes" in message
    )
