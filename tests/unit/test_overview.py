"""What a configuration is said to amount to, and what is warned of."""

import pytest

from proxy.config import load
from proxy.keys import digest_of
from proxy.overview import in_force, warnings

HASH = digest_of("k")
RED = f"keys: [{HASH}]"
BLUE = f"keys: [{digest_of('b')}]"
KEYED = "upstreams: {a: {base_url: 'http://h/v1', api_key: '${K}'}}\n"


def rows(text: str) -> dict[str, str]:
    return in_force(load(text, {"K": "very-secret"}))


def warned(text: str) -> list[str]:
    return warnings(load(text, {"K": "very-secret"}))


def test_a_team_is_told_with_what_differs_for_it() -> None:
    """Its keys by number, never by hash; models of its own rules too."""
    text = f"""
policy: {{budgets: {{steps: 100}}, detectors: {{cycle: off}}}}
teams:
  red:
    keys: [{HASH}, {digest_of("l")}]
    models: [gpt-*, o3]
    upstreams: [default]
    other_endpoints: refuse
    policy:
      on_stop: error
      budgets: {{steps: 40}}
      detectors: {{repeated_call: off, cycle: {{stop_at: 4}}}}
      models: {{o3: {{mode: observe, tools: {{t: {{exempt: true}}}}}}, gpt-4: {{}}}}
  blue: {{{RED.replace(HASH, digest_of("b"))}}}
"""
    told = rows(text)

    assert told["team red"] == (
        "2 keys, models gpt-* o3, upstreams default, other endpoints refuse; "
        "on stop error, budgets steps 40, tokens unlimited, cost unlimited, deadline none, repeated_call off, cycle nudge at 3, stop at 4; "
        "model o3: mode observe, tool t exempt; model gpt-4: the same rules"
    )
    assert told["team blue"] == "1 key, models *, upstreams all, other endpoints charge; the same rules"
    assert HASH.removeprefix("sha256:") not in str(told)


def test_every_limit_is_told() -> None:
    """Of a session: money and the sides of its tokens too. Of a team: what its sessions share."""
    told = rows(
        f"""
policy: {{budgets: {{tokens: {{input: 1000, output: 0, total: 5000}}, cost_usd: 1200.5, deadline: 5}}}}
prices: {{"*": {{input: 1, output: 1}}}}
teams:
  red:
    {RED}
    budgets: [{{tokens: 5000, steps: 0, per: day}}, {{cost_usd: 0.25, input: 7, output: 8, per: month}}]
    concurrent_requests: 2
    concurrent_sessions: 0
"""
    )

    assert told["budgets"] == "steps unlimited, tokens 5,000, input 1,000, output 0, cost $1,200.5, deadline 5 s"
    assert told["team red"] == (
        "1 key, models *, upstreams all, other endpoints charge, 0 steps a day, 5,000 tokens a day, 7 input a month, 8 output a month, "
        "$0.25 a month, 2 requests at once, 0 sessions at once; the same rules"
    )


def test_rules_for_a_model_are_told() -> None:
    """Where they differ."""
    told = rows("policy: {models: {'deepseek-*': {preset: plain, budgets: {deadline: 5}}}}")

    assert told["model deepseek-*"].startswith("counting cumulative, scope session, arguments exact, budgets steps unlimited, ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEYED,
        f"{KEYED}teams: {{red: {{{RED}}}}}",
        f"{KEYED}teams: {{red: {{{RED}, other_endpoints: refuse}}, blue: {{{BLUE}, other_endpoints: refuse}}}}",
        "upstreams: {a: {base_url: 'http://h/v1', api_key: '${K}'}, b: {base_url: 'http://i/v1', api_key: '${K}', models: [o3]}}\n"
        f"teams: {{red: {{{RED}, upstreams: [a]}}, blue: {{{BLUE}, upstreams: [b]}}}}",
        "policy: {budgets: {steps: 5}}",
        "policy: {budgets: {steps: 5}}\nstore: {url: 'redis://h', failure_mode: closed}",
        "store: {url: 'redis://h'}",
        "upstreams: {a: {base_url: 'http://h/v1', models: ['gpt-*']}, b: {base_url: 'http://h/v1'}}",
        "upstreams: {a: {base_url: 'http://h/v1', dialects: [chat]}, b: {base_url: 'http://h/v1', dialects: [messages]}}",
        "policy: {models: {x: {detectors: {repeated_call: {nudge_at: null, stop_at: 2}}}}}",
    ],
)
def test_nothing_is_said_where_nothing_surprises(text: str) -> None:
    """Warnings that cry wolf are not read."""
    assert warned(text) == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (f"teams: {{red: {{{RED}}}}}", "upstreams.default: on passthrough, so that teams must send their key in x-lastcall-key"),
        (f"{KEYED}server: {{host: 0.0.0.0, open: true}}", "server.open: whoever reaches 0.0.0.0 spends the key of upstream a; "),
        (
            "upstreams: {a: {base_url: 'http://h/v1'}, b: {base_url: 'http://h/v1', models: [o3]}}",
            "upstreams.b: never reached, since a before",
        ),
        (
            f"{KEYED}teams: {{red: {{{RED}}}, blue: {{{BLUE}, other_endpoints: refuse}}}}",
            "upstreams.a: teams share its key, so red and blue may list and read what the provider keeps for the other",
        ),
        ("upstreams: {a: {base_url: 'http://h:8000'}}", "upstreams.a.base_url: http://h:8000 has no version, so that calls go to "),
        ("upstreams: {a: {base_url: 'https://h/v1', verify: false}}", "upstreams.a.verify: false lets anybody on the way"),
        ("server: {admin_port: 4001}", "server.admin_port: 4001 serves nothing without server.admin_key"),
        (
            f"{KEYED}store: {{url: 'redis://h'}}\nteams: {{red: {{{RED}, budgets: [{{steps: 5, per: day}}]}}}}",
            "store.failure_mode: open lets requests pass unlimited",
        ),
        ("store: {url: 'redis://h'}\npolicy: {budgets: {steps: 0}}", "store.failure_mode: open lets requests pass unlimited"),
        (
            f"{KEYED}store: {{url: 'redis://h'}}\nteams: {{red: {{{RED}, policy: {{budgets: {{tokens: 5}}}}}}}}",
            "store.failure_mode: open lets requests pass unlimited",
        ),
        (
            "policy: {models: {x: {detectors: {repeated_call: {stop_at: 2}}}}}",
            "policy.models.x.detectors.repeated_call: stops at 2 before it would nudge at 3; say nudge_at: null if that is meant",
        ),
        (
            f"{KEYED}teams: {{red: {{{RED}, policy: {{tools: {{t: {{stop_at: 2}}}}}}}}}}",
            "teams.red.policy.tools.t: stops at 2 before it would nudge at 3; ",
        ),
        (
            f"{KEYED}teams: {{red: {{{RED}, policy: {{models: {{x: {{detectors: {{cycle: {{nudge_at: 9}}}}}}}}}}}}}}",
            "teams.red.policy.models.x.detectors.cycle: stops at 5 before it would nudge at 9; ",
        ),
    ],
)
def test_what_may_surprise_is_said_with_its_way_out(text: str, warning: str) -> None:
    """Once."""
    (said,) = warned(text)

    assert said.startswith(warning)
    assert "very-secret" not in said


def test_an_upstream_that_only_a_team_uses_is_reached() -> None:
    """By its name."""
    upstreams = "upstreams: {a: {base_url: 'http://h/v1', api_key: '${K}'}, b: {base_url: 'http://h/v1', api_key: '${K}'}}"

    assert warned(f"{upstreams}\nteams: {{red: {{{RED}, upstreams: [b]}}}}") == []
