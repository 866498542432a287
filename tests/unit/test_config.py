"""The configuration: what a file may say, what it means, and what is said about one that does not fit."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from proxy import config
from proxy.config import Config, load
from proxy.config.shape import PolicyLayer, TokenLimits
from proxy.errors import ConfigError

ROOT = Path(__file__).parents[2]
KEY = "sk-do-not-show-me"


def faults(text: str, env: dict[str, str] | None = None) -> list[str]:
    """The lines of the error that a file gets."""
    with pytest.raises(ConfigError) as caught:
        load(text, env or {})
    return str(caught.value).splitlines()


def leaves(section: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Every key in force that holds a value, with its default. Names that the operator chooses are NAME; rules above others are one key."""
    found: dict[str, Any] = {}
    for key, info in section.model_fields.items():
        kinds = [info.annotation, *getattr(info.annotation, "__args__", ())]
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None or inner is TokenLimits or (prefix and issubclass(inner, PolicyLayer)):
            found[prefix + key] = info.default
        else:
            found |= leaves(inner, f"{prefix}{key}." if inner is info.annotation else f"{prefix}{key}.NAME.")
    return found


# What a file means


@pytest.mark.parametrize("text", ["", "# only a comment\n", "null", "server:\npolicy:\n  budgets:\n  tools:\n", "---\n"])
def test_a_file_that_says_nothing_gives_the_defaults(text: str) -> None:
    """An empty file, and sections without keys, are valid."""
    loaded = load(text, {})
    assert (loaded.server.host, loaded.server.port, loaded.server.workers, loaded.server.metrics_port) == ("127.0.0.1", 4000, 1, None)
    assert loaded.server.max_body == 32 * 1024 * 1024
    assert {name: (upstream.base_url, upstream.dialects) for name, upstream in loaded.upstreams.items()} == {
        "default": ("https://api.openai.com/v1", ("chat", "responses")),
        "anthropic": ("https://api.anthropic.com/v1", ("messages",)),
    }
    upstream = loaded.upstreams["default"]
    assert (upstream.api_key, upstream.key_header, upstream.models) == ("passthrough", None, ("*",))
    assert (upstream.verify, upstream.ca_file, upstream.proxy) == (True, None, None)
    assert (upstream.connect_timeout, upstream.read_timeout) == (10.0, 600.0)
    assert (loaded.store.url, loaded.store.failure_mode, loaded.store.timeout) == ("memory://", "open", 0.25)
    assert (loaded.session.headers, loaded.session.ttl) == ((), 6 * 3600.0)
    assert (loaded.policy.budgets.steps, loaded.policy.budgets.tokens, loaded.policy.budgets.deadline) == (None, None, None)
    assert "gpt-*" in loaded.models


def test_the_repository_file_loads_as_is_and_follows_the_environment() -> None:
    """The commented starting point has real budgets and a store from REDIS_URL."""
    text = (ROOT / "config.yaml").read_text()
    bare = load(text, {})
    assert bare.store.url == "memory://"
    assert (bare.policy.budgets.steps, bare.policy.budgets.tokens, bare.policy.budgets.deadline) == (
        200,
        TokenLimits(total=5_000_000),
        7200.0,
    )
    assert load(text, {"REDIS_URL": "redis://cache:6379/1"}).store.url == "redis://cache:6379/1"


def test_upstreams_keep_their_order_and_what_they_say() -> None:
    """The first match wins, so the order of the file is kept."""
    text = """
    upstreams:
      zeta: {base_url: "http://10.0.0.1:8000/v1/", dialects: [chat, responses, messages], models: ["qwen*"], proxy: http://p:3128}
      alpha: {base_url: https://a.example/v1, verify: false, connect_timeout: 1.5, read_timeout: 2m}
    """
    upstreams = load(text, {}).upstreams
    assert list(upstreams) == ["zeta", "alpha"]
    assert upstreams["zeta"].base_url == "http://10.0.0.1:8000/v1"
    assert upstreams["zeta"].dialects == ("chat", "responses", "messages")
    assert (upstreams["alpha"].verify, upstreams["alpha"].connect_timeout, upstreams["alpha"].read_timeout) == (False, 1.5, 120.0)


@pytest.mark.parametrize(
    ("written", "bytes_"),
    [("32MiB", 33554432), ("10MB", 10_000_000), ("1GiB", 1 << 30), ("1.5 KiB", 1536), ("512B", 512), ("65_536", 65536)],
)
def test_a_size_is_read_in_its_unit(written: str, bytes_: int) -> None:
    """Binary and decimal units, and plain bytes."""
    assert load(f"server: {{max_body: {written}}}", {}).server.max_body == bytes_


@pytest.mark.parametrize(
    ("written", "seconds"), [("250ms", 0.25), ("90s", 90.0), ("15m", 900.0), ("2h", 7200.0), ("1d", 86400.0), ("3", 3.0), ("0.5", 0.5)]
)
def test_a_duration_is_read_in_its_unit(written: str, seconds: float) -> None:
    """A unit, or a bare number of seconds."""
    assert load(f"store: {{timeout: {written}}}", {}).store.timeout == pytest.approx(seconds)


def test_null_is_no_limit_and_zero_is_none_at_all() -> None:
    """Unset is not zero."""
    budgets = load("policy: {budgets: {steps: 0, tokens: null, deadline: 0}}", {}).policy.budgets
    assert (budgets.steps, budgets.tokens, budgets.deadline) == (0, None, 0.0)


def test_a_rung_left_out_keeps_its_default_and_null_takes_it_away() -> None:
    """Ladders may be written in part; `off` has no rungs."""
    detectors = load(
        "policy: {detectors: {repeated_call: {stop_at: 9}, cycle: off, parallel_repeat: {nudge_at: null}}}",
        {},
    ).policy.detectors
    assert (detectors.repeated_call.nudge_at, detectors.repeated_call.stop_at) == (3, 9)
    assert (detectors.cycle.nudge_at, detectors.cycle.stop_at) == (None, None)
    assert (detectors.parallel_repeat.nudge_at, detectors.parallel_repeat.stop_at) == (None, 16)


def test_anchors_may_be_used() -> None:
    """Plain aliases are part of YAML and harmless within the limits."""
    policy = load("policy: {tools: {a: &rule {stop_at: 8}, b: *rule}}", {}).policy
    assert policy.tools["a"] == policy.tools["b"]


@pytest.mark.parametrize("text", ["\ufeffserver: {port: 1}", "server:\r\n  port: 1\r\n"])
def test_a_byte_order_mark_and_foreign_line_ends_do_no_harm(text: str) -> None:
    """Files come from every editor."""
    assert load(text, {}).server.port == 1


def test_a_header_name_is_compared_in_small_letters() -> None:
    """Header names know no case."""
    assert load("session: {headers: [X-My-Run]}", {}).session.headers == ("x-my-run",)


def test_a_nudge_text_may_hold_every_placeholder_and_plain_braces() -> None:
    """The text that passes is one that str.format can fill."""
    text = load("policy: {nudge: {text: 'a {tool} {count} {result} {finish_tool} {reason} {{}} costs 5$$'}}", {}).policy.nudge.text
    assert text is not None
    assert text.format(tool="t", count=1, result="r", finish_tool="f", reason="x") == "a t 1 r f x {} costs 5$"


def test_a_configuration_cannot_be_changed() -> None:
    """Frozen at every level."""
    with pytest.raises(ValidationError):
        load("", {}).server.port = 1


# Variables


@pytest.mark.parametrize(
    ("written", "env", "port"),
    [
        ("${PORT}", {"PORT": "8080"}, 8080),
        ("'${PORT:-4001}'", {}, 4001),
        ("${PORT:-4001}", {"PORT": ""}, 4001),
        ("${PORT:-4001}", {"PORT": "5_000"}, 5000),
    ],
)
def test_a_value_that_is_one_variable_is_read_like_one_in_the_file(written: str, env: dict[str, str], port: int) -> None:
    """Numbers may come from the environment, with a default for unset or empty."""
    assert load(f"server:\n  port: {written}", env).server.port == port


def test_a_variable_may_be_null_or_off() -> None:
    """Everything that a plain scalar can be."""
    text = "upstreams: {a: {base_url: 'http://h', ca_file: '${CA:-}'}}\npolicy: {detectors: {cycle: '${CYCLE:-off}'}}"
    loaded = load(text, {})
    assert loaded.upstreams["a"].ca_file is None
    assert loaded.policy.detectors.cycle.stop_at is None


def test_a_variable_cannot_add_yaml() -> None:
    """Expansion comes after parsing: what looks like keys stays text."""
    hostile = "x\nserver: {port: 1}\n# {a: [b"
    loaded = load("policy:\n  nudge:\n    text: ${TEXT}", {"TEXT": hostile.replace("{", "").replace("}", "")})
    assert loaded.server.port == 4000
    assert loaded.policy.nudge.text == "x\nserver: port: 1\n# a: [b"


def test_variables_stand_anywhere_in_a_text_and_a_doubled_dollar_is_a_dollar() -> None:
    """Several in one value; `$$` protects what follows."""
    text = "policy: {nudge: {text: 'v ${A}-${B:-b} $${{A}} $5'}}"
    assert load(text, {"A": "a"}).policy.nudge.text == "v a-b ${{A}} $5"


def test_an_unset_variable_is_named_with_its_key_and_line() -> None:
    """Nothing is guessed for it."""
    assert faults("store:\n  url: ${REDIS}") == [
        "store.url: the environment variable REDIS is not set; set it, or give a default as in ${REDIS:-default} (line 2)"
    ]


@pytest.mark.parametrize("written", ["${}", "${1A}", "${A", "${A-b}", "${A:-${B}}"])
def test_a_malformed_variable_is_a_fault(written: str) -> None:
    """What begins like a variable and is none is never passed through."""
    (fault,) = faults(f"store: {{url: '{written}'}}", {"A": "memory://"})
    assert fault.startswith("store.url: a '${' that begins no variable")


# Secrets


def test_a_key_from_a_variable_stays_text_and_out_of_sight() -> None:
    """A key that looks like a number keeps its zeros; repr never shows it."""
    text = "upstreams: {a: {base_url: 'http://h', api_key: '${K}'}}"
    for key in ("007", KEY, "null", "true"):
        loaded = load(text, {"K": f"{key}\n"})
        secret = loaded.upstreams["a"].api_key
        assert isinstance(secret, SecretStr)
        assert secret.get_secret_value() == key
        assert f"'{key}'" not in repr(loaded)
        assert f"'{key}'" not in str(loaded.model_dump())


@pytest.mark.parametrize("written", ["${K:-passthrough}", "passthrough", "'${PASS}'"])
def test_passthrough_may_be_written_or_come_from_a_variable(written: str) -> None:
    """So that one file serves both."""
    loaded = load(f"upstreams:\n  a:\n    base_url: http://h\n    api_key: {written}", {"PASS": "passthrough"})
    assert loaded.upstreams["a"].api_key == "passthrough"


@pytest.mark.parametrize(
    "written", [KEY, f"'${{K:-{KEY}}}'", f"'{KEY}-${{K}}'", "12345678", f"[{KEY}]", f"{{a: {KEY}}}", f"!!binary {KEY}"]
)
def test_a_key_in_the_file_is_a_fault_that_does_not_show_it(written: str) -> None:
    """However it is written."""
    (fault,) = faults(f"upstreams:\n  a:\n    base_url: http://h\n    api_key: {written}", {"K": KEY})
    assert fault.startswith("upstreams.a.api_key: ")
    assert KEY not in fault
    assert "12345678" not in fault


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\r\nx-evil: 1", f"{KEY} {KEY}", f"{KEY}é"])
def test_a_key_that_no_header_can_carry_is_a_fault_that_does_not_show_it(key: str) -> None:
    """A key becomes a header: it must not become two."""
    (fault,) = faults("upstreams: {a: {base_url: 'http://h', api_key: '${K}'}}", {"K": key})
    assert fault.startswith("upstreams.a.api_key: ")
    assert KEY not in fault


@pytest.mark.parametrize(
    "text",
    [
        f"store: {{url: 'redis://:{KEY}@h'}}",
        f"store: {{url: '${{R:-redis://u:{KEY}@h/0}}'}}",
        f"store: {{url: 'redis://:${{P:-{KEY}}}@h'}}",
        f"store: {{url: 'redis+sentinel://:{KEY}@a,b/main'}}",
        f"store: {{url: 'redis+sentinel://:${{P}}@a,b/main?sentinel_password={KEY}'}}",
        f"store: {{url: 'redis+sentinel://a,b/main?sentinel_pasword={KEY}'}}",
        f"store: {{url: 'rediss://h?ssl_ca_certs=c&ssl_password={KEY}'}}",
        f"upstreams: {{a: {{base_url: 'http://h', proxy: 'http://u:{KEY}@p'}}}}",
        f"upstreams: {{a: {{base_url: 'http://u:{KEY}@h'}}}}",
        f"upstreams: {{a: {{base_url: 'http://h/v1?key={KEY}'}}}}",
        f"stor: {KEY}",
        f"upstreams: {{a: {{base_url: 'http://h', apikey: {KEY}}}}}",
    ],
)
def test_a_secret_in_the_file_is_never_shown(text: str) -> None:
    """Passwords in URLs and keys under a misspelt name."""
    assert KEY not in "\n".join(faults(text))


def test_a_password_in_the_file_is_told_how_to_come_in() -> None:
    """As a URL that can be copied."""
    (fault,) = faults(f"store: {{url: 'redis://:{KEY}@h'}}")
    assert "as in redis://user:${PASSWORD}@host" in fault


def test_a_password_from_a_variable_is_accepted_and_out_of_sight() -> None:
    """In part or whole."""
    for text, env in (("redis://:${P}@h", {"P": KEY}), ("${URL}", {"URL": f"redis://u:{KEY}@h"})):
        loaded = load(f"store: {{url: '{text}'}}", env)
        assert KEY in loaded.store.url
        assert KEY not in repr(loaded)
        assert KEY not in config.masked(loaded.store.url)


def test_a_wrong_url_from_a_variable_does_not_show_its_password() -> None:
    """Errors mask what stands before the host."""
    (fault,) = faults("store: {url: '${URL}'}", {"URL": f"postgres://u:{KEY}@h"})
    assert fault.startswith("store.url: 'postgres://***@h' does not begin with memory://")


@pytest.mark.parametrize(
    "value",
    ["hunter2", ":hunter2@h:6379", "redis://:hun/ter2@h", "redis://u:hun?ter2@h/0", "rediss://:hun#ter2@h", "redis://:a@hunter2@h:x"],
)
@pytest.mark.parametrize(
    "key",
    ["store: {url: '${SECRET}'}", "upstreams: {a: {base_url: '${SECRET}'}}", "upstreams: {a: {base_url: http://h/v1, proxy: '${SECRET}'}}"],
)
def test_a_password_that_was_written_wrongly_is_not_shown(key: str, value: str) -> None:
    """Unescaped, or alone: where it ends is anybody's guess."""
    try:
        load(key, {"SECRET": value})
    except ConfigError as error:
        assert "ter2" not in str(error)


# What is said about a file that does not fit


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "policy: {budgets: {steps: -1}}",
            "policy.budgets.steps: -1 is negative; use a whole number, 0 for none at all, or null for no limit (line 1)",
        ),
        ("policy: {budgets: {tokens: 1.5}}", "policy.budgets.tokens: 1.5 is not a whole number; "),
        ("policy: {budgets: {tokens: 2.0}}", "policy.budgets.tokens: 2.0 is not a whole number; "),
        ("policy: {budgets: {steps: true}}", "policy.budgets.steps: true is not a whole number; "),
        ("policy: {budgets: {steps: '9'}}", "policy.budgets.steps: '9' is not a whole number (it is in quotes); "),
        ("policy: {budgets: {steps: 5e6}}", "policy.budgets.steps: '5e6' is not a whole number; "),
        ("policy: {budgets: {steps: .inf}}", "policy.budgets.steps: inf is not a whole number; "),
        ("policy: {budgets: {steps: 010}}", "policy.budgets.steps: '010' is not a whole number"),
        ("policy: {budgets: {steps: 99999999999999999999}}", "policy.budgets.steps: 99999999999999999999 is too large; "),
        (f"policy: {{budgets: {{steps: {'9' * 5000}}}}}", "policy.budgets.steps: not readable as !!int; "),
        ("policy: {budgets: {deadline: .nan}}", "policy.budgets.deadline: nan is not a duration; "),
        ("policy: {budgets: {deadline: .inf}}", "policy.budgets.deadline: inf is too long; "),
        ("policy: {budgets: {deadline: true}}", "policy.budgets.deadline: true is not a duration; "),
        ("policy: {budgets: {deadline: 1:30}}", "policy.budgets.deadline: '1:30' is not a duration; "),
        ("policy: {budgets: {deadline: 2 weeks}}", "policy.budgets.deadline: '2 weeks' is not a duration; "),
        ("policy: {budgets: {deadline: -2}}", "policy.budgets.deadline: -2 is negative; "),
        ("policy: {budgets: {deadline: 99999d}}", "policy.budgets.deadline: '99999d' is too long; "),
        ("store: {timeout: 0}", "store.timeout: 0 leaves no time at all; "),
        ("server: {max_body: 32mib}", "server.max_body: '32mib' has the unknown unit 'mib'; "),
        ("server: {max_body: 0}", "server.max_body: 0 is too small; "),
        ("server: {max_body: 0.5B}", "server.max_body: 0.5 is not a whole number; "),
        ("server: {port: 65536}", "server.port: 65536 is too large; use a port from 1 to 65535"),
        ("server: {port: null}", "server.port: null is not a whole number; "),
        ("server: {metrics_port: 4000}", "server.metrics_port: 4000 is the port of the API too; "),
        ("server: {metrics_port: 9100, admin_port: 9100}", "server.admin_port: 9100 is the port of metrics too; "),
        ("server: {admin_port: 4000}", "server.admin_port: 4000 is the port of the API too; "),
        ("server: {admin_port: 0}", "server.admin_port: 0 is too small; use a port from 1 to 65535"),
        ("server: {host: ''}", "server.host: '' is empty"),
        ("server: {host: 5}", "server.host: 5 is not text; put it in quotes"),
        ("server: 5", "server: 5 is not a mapping; write its keys below it"),
        ("server: []", "server: a list is not a mapping; "),
        ("upstreams: {}", "upstreams: names no upstream; "),
        ("upstreams: []", "upstreams: a list is not a mapping; "),
        ("upstreams: {a: {}}", "upstreams.a.base_url: missing; "),
        ("upstreams: {'a b': {base_url: 'http://h'}}", "upstreams: 'a b' is no upstream name; "),
        ("upstreams: {a: {base_url: ftp://h}}", "upstreams.a.base_url: 'ftp://h' does not begin with http:// or https://; "),
        ("upstreams: {a: {base_url: 'http://'}}", "upstreams.a.base_url: "),
        ("upstreams: {a: {base_url: 'http://h:port'}}", "upstreams.a.base_url: 'http://h:port' is not a URL; "),
        ("upstreams: {a: {base_url: 'http://h/v1?x=1'}}", "upstreams.a.base_url: 'http://h/v1?…' has a query"),
        ("upstreams: {a: {base_url: 'http://h/v1/chat/completions'}}", "upstreams.a.base_url: 'http://h/v1/chat/completions' is one "),
        ("upstreams: {a: {base_url: 'http://h', dialects: []}}", "upstreams.a.dialects: an empty list; "),
        ("upstreams: {a: {base_url: 'http://h', dialects: chat}}", "upstreams.a.dialects: 'chat' is not a list; write it as [a, b]"),
        ("upstreams: {a: {base_url: 'http://h', dialects: [chat, caht]}}", "upstreams.a.dialects[1]: 'caht' is not known here; "),
        ("upstreams: {a: {base_url: 'http://h', verify: 1}}", "upstreams.a.verify: 1 is neither true nor false; "),
        ("upstreams: {a: {base_url: 'http://h', verify: no, ca_file: c}}", "upstreams.a.verify: false, although a ca_file is given; "),
        ("store: {url: redis+sentinels://h}", "store.url: 'redis+sentinels://h' does not begin with memory:// or redis:// or "),
        ("store: {url: redis+sentinel://h}", "store.url: 'redis+sentinel://h' names no master; use one such as redis+sentinel://"),
        ("store: {url: 'redis+cluster://h:1,h:port'}", "store.url: 'redis+cluster://h:1,h:port' has a host or a port that is none; "),
        ("store: {url: memory://h}", "store.url: 'memory://h' is not a usable URL"),
        ("store: {url: 'redis://'}", "store.url: 'redis://' is not a usable URL"),
        ("server: {workers: 2}", "store.url: memory:// cannot be shared by server.workers: 2; use a redis:// url, or one worker"),
        ("store: {failure_mode: opn}", "store.failure_mode: 'opn' is not known here; use 'open' or 'closed'"),
        ("session: {headers: ['a b']}", "session.headers[0]: 'a b' is not a header name; "),
        ("session: {headers: [Authorization]}", "session.headers[0]: 'Authorization' carries a key, "),
        ("policy: {mode: on}", "policy.mode: true is not known here; use 'enforce' or 'observe'"),
        ("policy: {detectors: {cycle: true}}", "policy.detectors.cycle: true is no ladder; use off, or "),
        ("policy: {detectors: {cycle: null}}", "policy.detectors.cycle: null is no ladder; "),
        ("policy: {detectors: {cycle: {stop_at: 1}}}", "policy.detectors.cycle.stop_at: 1 is too small; use a whole number from 2"),
        ("policy: {detectors: {cycle: {nudge_at: 7, stop_at: 6}}}", "policy.detectors.cycle.stop_at: 6 lies below nudge_at 7, so that "),
        ("policy: {detectors: {cycle: {nudge_at: 7}}}", "policy.detectors.cycle.stop_at: 5 lies below nudge_at 7, so that "),
        ("policy: {tools: {t: {nudge_at: 7, stop_at: 6}}}", "policy.tools.t.stop_at: 6 lies below nudge_at 7, "),
        ("policy: {tools: {t: {nudge_at: 7}}}", "policy.tools.t: nudged at 7 but stopped at 5, before that; "),
        ("policy: {tools: {t: {exempt: true, stop_at: 7}}}", "policy.tools.t.stop_at: a rung for an exempt tool is never reached; "),
        ("policy: {tools: {t.x: {effect: eat}}}", "policy.tools.'t.x'.effect: 'eat' is not known here; "),
        ("policy: {nudge: {text: 'so {tools}'}}", "policy.nudge.text: '{tools}' is not a placeholder; use {tool}, {count}, "),
        ("policy: {nudge: {text: '{tool.__class__}'}}", "policy.nudge.text: '{tool.__class__}' is not a placeholder; "),
        ("policy: {nudge: {text: '{count!r:>{tool}}'}}", "policy.nudge.text: "),
        ("policy: {nudge: {text: 'a } b'}}", "policy.nudge.text: '}' is not a placeholder; "),
        ("policy: {nudge: {text: ' '}}", "policy.nudge.text: empty; "),
        ("policy: {nudge: {text: 5}}", "policy.nudge.text: 5 is not text; "),
        ("policy: {wrap_up: {retries: 11}}", "policy.wrap_up.retries: 11 is too large; "),
        ("polcy: {}", "polcy: unknown key; did you mean policy? Known here: server, "),
        ("server: {xyz: 1}", "server.xyz: unknown key; known here: host, port, "),
        ("policy: {tools: {t: {stopat: 3}}}", "policy.tools.t.stopat: unknown key; did you mean stop_at? "),
        ('{"a\\nb": 1}', "'a\\nb': unknown key; "),
        ("policy: {detectors: 5, tools: {t: {nudge_at: 7}}}", "policy.detectors: 5 is not a mapping; "),
        ("server: {host: {a: b}}", "server.host: a mapping is not text; "),
    ],
)
def test_a_fault_names_the_key_the_value_and_the_fix(text: str, fault: str) -> None:
    """One line, in plain words, with the line of the file."""
    (said,) = faults(text)
    assert said.startswith(fault)
    assert re.search(r"( \(line \d+\)|one worker)$", said)
    assert not re.search(r"pydantic|Input should|validation|type=|\[type", said)


def test_every_fault_is_listed_in_the_order_of_the_file() -> None:
    """From parsing, from variables, from single values and from values that do not fit each other, in one go."""
    text = """
server:
  workers: 2
  prt: 1
store:
  timeout: -1s
  timeout: 2s
policy:
  budgets: {steps: ${NOPE}, tokens: -1}
  nudge: {text: !!python/name:os.system ""}
  detectors: {cycle: {nudge_at: 9}}
"""
    said = faults(text.replace("${NOPE}", "'${NOPE}'"))
    assert [line.split(":")[0] for line in said] == [
        *("server.prt", "store.timeout", "policy.budgets.steps", "policy.budgets.tokens"),
        *("policy.nudge.text", "policy.detectors.cycle.stop_at"),
    ]
    assert "written twice, first on line 6; keep one of them (line 7)" in said[1]


def test_a_key_written_twice_is_a_fault_at_any_depth() -> None:
    """YAML's own reading would keep the last one without a word."""
    assert faults("server: {}\npolicy:\n  budgets: {steps: 1, tokens: 2, steps: 3}\nserver: {}\n") == [
        "policy.budgets.steps: written twice, first on line 3; keep one of them (line 3)",
        "server: written twice, first on line 1; keep one of them (line 4)",
    ]


def test_workers_and_memory_are_reported_beside_other_faults() -> None:
    """A fault elsewhere does not hide it."""
    said = faults("server: {workers: 2}\nstore: {url: memory://}\npolicy: {mode: x}")
    assert [line.split(":")[0] for line in said] == ["store.url", "policy.mode"]


# Flags, workers, schema, documentation


def test_a_flag_replaces_what_the_file_says_even_a_fault() -> None:
    """What is overridden is not judged."""
    text = "server: {port: ${X}, port: -1}\nstore: {url: nonsense}\nupstreams: {a: {}}".replace("${X}", "'${X}'")
    overrides: dict[tuple[str, ...], object] = {
        ("server", "port"): 5000,
        ("server", "workers"): 4,
        ("store", "url"): "redis://h",
        ("upstreams",): {"default": {"base_url": "http://u/v1"}},
    }
    loaded = load(text, {}, overrides)
    assert (loaded.server.port, loaded.server.workers, loaded.store.url) == (5000, 4, "redis://h")
    assert list(loaded.upstreams) == ["default"]


def test_a_flag_under_a_broken_section_leaves_its_fault() -> None:
    """A section that is no mapping cannot be overridden in part."""
    with pytest.raises(ConfigError, match="server: 5 is not a mapping"):
        load("server: 5", {}, {("server", "port"): 1})


def test_a_flag_fills_an_empty_section() -> None:
    """`server:` alone is as if absent."""
    assert load("server:\n", {}, {("server", "port"): 1}).server.port == 1


def test_a_dumped_configuration_comes_back_equal() -> None:
    """Worker processes get the resolved values, keys included, and know what was left to its default."""
    text = """
    server: {workers: 2, max_body: 1MiB}
    store: {url: redis://h, timeout: 1s}
    upstreams: {a: {base_url: "http://h/v1", api_key: "${K}"}, b: {base_url: "http://i"}}
    session: {headers: [x-run]}
    policy: {preset: plain, scope: run, detectors: {cycle: off, repeated_call: {stop_at: 7}}, tools: {t: {nudge_at: null}}}
    """
    original = load(text, {"K": KEY})
    copy = config.load_dumped(config.dump(original))
    assert copy == original
    assert copy.policy.model_fields_set == original.policy.model_fields_set
    secret = copy.upstreams["a"].api_key
    assert isinstance(secret, SecretStr)
    assert secret.get_secret_value() == KEY


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    """Editors complete keys and mark unknown ones."""
    schema = config.schema()
    assert set(schema["properties"]) == set(Config.model_fields)
    assert schema["additionalProperties"] is False
    assert {"type": "string"} in schema["$defs"]["BudgetsConfig"]["properties"]["deadline"]["anyOf"]
    assert all("description" in key for name in ("ServerConfig", "BudgetsConfig") for key in schema["$defs"][name]["properties"].values())


def test_every_key_is_documented() -> None:
    """docs/configuration.md has a table row for each key of the schema, and for no other."""
    documented = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs" / "configuration.md").read_text(), re.MULTILINE)
    keys = set(leaves(Config))
    assert {"server.port", "upstreams.NAME.base_url", "policy.detectors.cycle.stop_at", "policy.budgets.steps"} <= keys
    assert set(documented) - {"NAME"} == keys
