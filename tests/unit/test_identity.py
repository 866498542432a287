"""Whose request it is, and which session and lane it names."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from proxy.errors import BadRequest
from proxy.fingerprint import Fingerprints, packed
from proxy.identity import Identity, Keys, Tighten, identify, passages
from proxy.keys import caller_of
from proxy.known_clients import CLIENTS
from proxy.models import ToolCall

UUID = "550e8400-e29b-41d4-a716-446655440000"


def of(
    headers: Mapping[str, str] = {}, path: str | None = None, hints: Mapping[str, str] = {}, extra: tuple[str, ...] = (), agent: str = ""
) -> Identity:
    return identify({**headers, "user-agent": agent} if agent else headers, path, hints, extra)


def named(headers: Mapping[str, str] = {}, **rest: str) -> tuple[str | None, str]:
    identity = of(headers, **rest)  # type: ignore[arg-type]
    return identity.session, identity.source


# ---- the session


@pytest.mark.parametrize(
    ("agent", "header"),
    [
        ("codex_cli_rs/0.50", "session-id"),
        ("codex_cli_rs/0.20", "session_id"),
        ("codex_cli_rs/0.10", "conversation_id"),
        ("claude-cli/2.1.90", "x-claude-code-session-id"),
        ("opencode/1.0", "x-opencode-session"),
        ("opencode/1.0", "x-session-affinity"),
        ("opencode/1.0", "x-session-id"),
        ("Kilo-Code/5", "x-kilo-session"),
        ("Kilo-Code/4.100", "x-kilocode-taskid"),
        ("OpenHands/1.0", "x-litellm-session-id"),
        ("RooCode/3", "x-roo-task-id"),
        ("RooCode/3", "session_id"),
        ("Cline/3", "x-task-id"),
        ("goose/1.9", "agent-session-id"),
        ("Charm Crush/0.9", "x-session-id"),
    ],
)
def test_a_known_clients_header_names_the_session(agent: str, header: str) -> None:
    """Each by its own header."""
    assert named({header: "abc"}, agent=agent) == ("abc", header)


@pytest.mark.parametrize("header", ["session-id", "session_id", "conversation_id", "x-opencode-session"])
def test_an_ambiguous_header_means_nothing_from_a_stranger(header: str) -> None:
    """What only one client uses for a session is not trusted of others."""
    assert named({header: "abc"}, agent="python-httpx/0.28") == (None, "derived")


def test_an_ambiguous_header_counts_where_it_is_said_twice() -> None:
    """As pi does, which gives no name of its own."""
    assert named({"session_id": "abc", "x-client-request-id": "abc"}) == ("abc", "session_id")
    assert named({"session-id": "abc"}, hints={"prompt_cache_key": "abc"}) == ("abc", "session-id")  # type: ignore[arg-type]
    assert named({"session_id": "abc", "x-client-request-id": "other"}) == (None, "derived")


@pytest.mark.parametrize(
    "header",
    [
        "x-litellm-trace-id",
        "x-portkey-trace-id",
        "x-session-id",
        "x-session-affinity",
        "x-affinity",
        "x-claude-code-session-id",
        "agent-session-id",
        "goose-session-id",
        "x-roo-task-id",
        "x-kilocode-taskid",
        "x-task-id",
        "helicone-session-id",
        "langfuse-session-id",
        "langfuse_session_id",
        "x-litellm-session-id",
        "x-some-vendor-session-id",
    ],
)
def test_a_generic_header_names_the_session_of_anybody(header: str) -> None:
    """With or without a user agent."""
    assert named({header: "abcdefgh"}) == ("abcdefgh", header)


def test_a_vendors_header_needs_a_value_that_may_be_an_id() -> None:
    """Eight plain characters at least; a parent's id is somebody else's."""
    assert named({"x-acme-session-id": "1234567"}) == (None, "derived")
    assert named({"x-acme-session-id": "ünïcode-id"}) == (None, "derived")
    assert named({"x-parent-session-id": "12345678"}) == (None, "derived")
    assert named({"x-acme-parent-session-id": "12345678"}) == (None, "derived")


@pytest.mark.parametrize(
    ("baggage", "session"),
    [
        ("session.id=abc", "abc"),
        ("user.id=1, session.id = abc ;prop=1", "abc"),
        ("session.idx=abc", None),
        ("session.id=", None),
        ("", None),
    ],
)
def test_baggage_may_name_the_session(baggage: str, session: str | None) -> None:
    """As W3C writes it."""
    assert named({"baggage": baggage})[0] == session


@pytest.mark.parametrize(
    ("hints", "agent", "expected"),
    [
        ({"session_id": "abc"}, "", ("abc", "session_id")),
        ({"litellm_session_id": "abc"}, "", ("abc", "litellm_session_id")),
        ({"metadata.session_id": "abc"}, "", ("abc", "metadata.session_id")),
        ({"metadata.sessionId": "abc"}, "", ("abc", "metadata.sessionId")),
        ({"conversation": "conv_1"}, "", ("conv_1", "conversation")),
        ({"metadata.user_id": f"user_1_account_2_session_{UUID}"}, "", (UUID, "metadata.user_id")),
        (
            {"metadata.user_id": json.dumps({"device_id": "d", "parent_session_id": "0" * 36, "session_id": UUID})},
            "",
            (UUID, "metadata.user_id"),
        ),
        ({"metadata.user_id": "someone@example.com"}, "", (None, "derived")),
        ({"metadata.user_id": "ses-kimi-1"}, "KimiCLI/1", ("ses-kimi-1", "metadata.user_id")),
        ({"prompt_cache_key": "k1"}, "OpenHands/1.0", ("k1", "prompt_cache_key")),
        ({"user": "someone"}, "", (None, "derived")),
        ({"prompt_cache_key": "k1"}, "codex_cli_rs/0.50", ("k1", "prompt_cache_key")),
        ({"prompt_cache_key": "k1"}, "KimiCLI/1", ("k1", "prompt_cache_key")),
        ({"prompt_cache_key": "qwen-code:k1"}, "", ("qwen-code:k1", "prompt_cache_key")),
        ({"prompt_cache_key": "my-app"}, "OpenAI/Python 2.0", (None, "derived")),
        ({"session_id": "bad\nid"}, "", (None, "derived")),
        ({}, "", (None, "derived")),
    ],
)
def test_the_body_may_name_the_session(hints: dict[str, str], agent: str, expected: tuple[str | None, str]) -> None:
    """By the fields that mean a session; who the end user is, or what the cache key of an application is, does not."""
    identity = of(hints=hints, agent=agent)
    assert (identity.session, identity.source) == expected


def test_the_surest_name_wins() -> None:
    """Own header, path, the operator's headers, the known client's, generic ones, any vendor's, baggage, body."""
    sources = ["x-lastcall-session", "path", "x-ops", "x-claude-code-session-id", "x-session-id", "x-acme-session-id", "baggage", "body"]
    for place, first in enumerate(sources):
        given = {name: "session.id=from-baggage" if name == "baggage" else f"from-{name}" for name in sources[place:]}
        path, hint = given.pop("path", None), given.pop("body", None)
        hints = {"session_id": hint, "conversation": "last"} if hint else {}
        assert of(given, path, hints, ("X-Ops",), "claude-cli").session == f"from-{first}"


@pytest.mark.parametrize("value", ["", " ", " a", "a ", "a\tb", "é", "x" * 257])
@pytest.mark.parametrize("header", ["x-lastcall-session", "x-lastcall-lane"])
def test_an_own_header_that_cannot_be_an_id_is_refused(header: str, value: str) -> None:
    """Somebody meant it: the error names the header, the limit and no content."""
    with pytest.raises(BadRequest, match=rf"{header}.*{len(value)} characters.*1 to 256"):
        of({header: value})


@pytest.mark.parametrize("value", ["a", "a b", "~" * 256])
def test_an_own_header_may_hold_any_plain_id(value: str) -> None:
    """Up to 256 printable characters."""
    identity = of({"x-lastcall-session": value, "x-lastcall-lane": value})
    assert (identity.session, identity.source, identity.lane) == (value, "x-lastcall-session", value)


@pytest.mark.parametrize("value", ["", " a", "x" * 257])
def test_other_peoples_headers_are_only_ignored(value: str) -> None:
    """A request is not refused for what another program wants with it."""
    assert named({"x-session-id": value, "helicone-session-id": "abc"}) == ("abc", "helicone-session-id")


# ---- the lane


@pytest.mark.parametrize(
    ("agent", "headers", "lane"),
    [
        ("codex_cli_rs/0.50", {"thread-id": "t1", "x-openai-subagent": "review"}, "t1"),
        ("codex_cli_rs/0.50", {"x-openai-subagent": "review"}, "review"),
        ("claude-cli/2", {"x-claude-code-agent-id": "a1"}, "a1"),
        ("", {"x-claude-code-agent-id": "a1"}, "a1"),
        ("", {"thread-id": "t1"}, None),
        ("opencode/1", {"x-claude-code-agent-id": "a1"}, None),
        ("codex_cli_rs/0.50", {"thread-id": "t1", "x-lastcall-lane": "mine"}, "mine"),
        ("codex_cli_rs/0.50", {"thread-id": " "}, None),
        ("codex_cli_rs/0.50", {"thread_id": "t1"}, "t1"),
    ],
)
def test_a_lane_is_what_its_client_calls_it(agent: str, headers: dict[str, str], lane: str | None) -> None:
    """An agent or thread id; Lastcall's own header first."""
    assert of(headers, agent=agent).lane == lane


@pytest.mark.parametrize(
    ("agent", "headers", "hints", "sent_by"),
    [
        ("codex_cli_rs/0.171", {"thread-id": "t2", "x-codex-parent-thread-id": "t1"}, {}, "t1"),
        ("codex_cli_rs/0.171", {"thread_id": "t2", "x-codex-turn-metadata": '{"turn_id":"1","parent_thread_id":"t1"}'}, {}, "t1"),
        ("codex_cli_rs/0.171", {"thread-id": "t2", "x-codex-turn-metadata": '{"parent_thread_id":""}'}, {}, None),
        ("codex_cli_rs/0.171", {"thread-id": "t1", "x-codex-parent-thread-id": "t1"}, {}, None),
        ("codex_cli_rs/0.171", {"thread-id": "t1"}, {}, None),
        ("codex_cli_rs/0.171", {"x-codex-parent-thread-id": "t1"}, {}, None),
        ("codex_cli_rs/0.171", {"x-openai-subagent": "review"}, {}, None),
        ("python-httpx", {}, {"client_metadata.thread_id": "t2", "client_metadata.parent_thread_id": "t1"}, "t1"),
        ("python-httpx", {}, {"client_metadata.thread_id": "t1"}, None),
        ("claude-cli/2", {"x-claude-code-agent-id": "a1"}, {}, ""),
        ("claude-cli/2", {"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}, {}, "a1"),
        ("", {"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}, {}, "a1"),
        ("claude-cli/2", {"x-claude-code-agent-id": "a1", "x-lastcall-lane": "mine"}, {}, ""),
        ("claude-cli/2", {"x-lastcall-lane": "mine"}, {}, None),
        ("claude-cli/2", {"x-claude-code-parent-agent-id": "a1"}, {}, None),
        ("", {"x-lastcall-lane": "mine"}, {}, None),
        ("", {"x-lastcall-lane": "mine", "x-lastcall-session": "s", "x-lastcall-parent": "s"}, {}, ""),
        ("", {"x-lastcall-session": "s", "x-lastcall-parent": "s"}, {}, None),
    ],
)
def test_a_sub_agents_line_is_sent_by_another(agent: str, headers: dict[str, str], hints: dict[str, str], sent_by: str | None) -> None:
    """Where its client says so: by the other's name, or by the session's own line where it has none. Nobody is sent by itself."""
    identity = of(headers, hints=hints, agent=agent)
    assert (identity.sent_by, identity.parent) == (sent_by, None)


def test_codex_says_in_the_body_too_who_it_is() -> None:
    """Where a gateway takes its headers off."""
    identity = of(hints={"client_metadata.session_id": "s", "client_metadata.thread_id": "t"}, agent="OpenAI/Python 3")
    assert (identity.session, identity.source, identity.lane) == ("s", "client_metadata.session_id", "t")


# ---- the caller


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({}, ""),
        ({"authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer  sk-1 "}, "sk-1"),
        ({"authorization": "Bearer "}, "Bearer"),
        ({"authorization": "Basic dXNlcjpwYXNz"}, "Basic dXNlcjpwYXNz"),
        ({"authorization": "sk-1"}, "sk-1"),
        ({"x-api-key": "sk-2"}, "sk-2"),
        ({"api-key": "sk-3"}, "sk-3"),
        ({"authorization": "Bearer sk-1", "x-api-key": "sk-2"}, "sk-1"),
        ({"authorization": "Basic x", "x-api-key": "sk-2"}, "sk-2"),
        ({"x-lastcall-key": " lk ", "authorization": "Bearer sk-1"}, "lk"),
    ],
)
def test_the_caller_is_who_holds_the_key(headers: dict[str, str], caller: str) -> None:
    """Lastcall's own header, else the provider key: under any scheme two callers are two."""
    assert caller_of(headers) == caller == of(headers).caller


@pytest.mark.parametrize(
    ("value", "retry"),
    [(None, False), ("0", False), ("00", False), ("", False), ("1", True), ("10", True), ("x", False), ("-1", False)],
)
def test_a_marked_retry_is_one(value: str | None, retry: bool) -> None:
    """By the counter that the OpenAI and Anthropic libraries send."""
    assert of({} if value is None else {"x-stainless-retry-count": value}).retry is retry


# ---- limits


def test_a_request_may_ask_for_less() -> None:
    """Steps, tokens and seconds; nothing asked is nothing set, and zero is a limit."""
    assert of().tighten == Tighten()
    assert of({"x-lastcall-max-steps": "5"}).tighten == Tighten(steps=5)
    assert of({"x-lastcall-max-tokens": "0", "x-lastcall-deadline": "1.5"}).tighten == Tighten(tokens=0, deadline=1.5)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", " 5", "\u0665", "1" * 16, "1e3"])
@pytest.mark.parametrize(("header", "unit"), [("x-lastcall-max-steps", "steps"), ("x-lastcall-max-tokens", "tokens")])
def test_a_limit_that_is_no_whole_number_is_refused(header: str, unit: str, value: str) -> None:
    """The error names the header and what to write."""
    with pytest.raises(BadRequest, match=f"{header}.*whole number of {unit}"):
        of({header: value})


@pytest.mark.parametrize("value", ["", "-1", "soon", "inf", "nan", "1e3", "1.", "1" * 13])
def test_a_deadline_that_is_no_time_is_refused(value: str) -> None:
    """Seconds, with or without a fraction."""
    with pytest.raises(BadRequest, match=r"x-lastcall-deadline.*seconds"):
        of({"x-lastcall-deadline": value})


# ---- keys


def test_tenants_never_meet() -> None:
    """The same session id, call or text under another key is another one; so is each kind of key, and each secret."""
    keys = Keys(b"s" * 32)
    one, two = keys.tenant("a"), keys.tenant("b")
    call = ToolCall("call_1", "t", "{}")
    line = Fingerprints(b"s" * 32, loose=True).line()
    found = {
        one,
        two,
        keys.session(one, "x"),
        keys.session(two, "x"),
        keys.session(one, "y"),
        keys.chain(one, 1, line, [2]),
        keys.chain(two, 1, line, [2]),
        keys.chain(one, 1, line, [2, 3]),
        keys.chain(one, 2, line, [2]),
        keys.call(one, call, 7),
        keys.call(two, call, 7),
        keys.call(one, call, 8),
        keys.passage(one, "x"),
        keys.passage(two, "x"),
        keys.named_scope("x"),
        Keys(b"t" * 32).session(one, "x"),
    }
    assert len(found) == 16
    assert {len(key) for key in found if key is not None} == {16}
    assert keys.session(one, "x") == Keys(b"s" * 32).session(one, "x")


def test_a_line_of_answers_is_known_however_it_was_read() -> None:
    """Whether its last answers stand in it already or are said to come behind it."""
    keys, line = Keys(b"s" * 32), Fingerprints(b"s" * 32, loose=True).line()
    longer = line.copy()
    longer.update(packed(2))
    tenant = keys.tenant("a")
    assert keys.chain(tenant, 1, longer, [3]) == keys.chain(tenant, 1, line, [2, 3])
    longer.update(packed(3))
    assert keys.chain(tenant, 1, longer) == keys.chain(tenant, 1, line, [2, 3])


def test_parts_of_a_key_cannot_run_into_each_other() -> None:
    """Where one part ends is part of the key."""
    keys = Keys(b"s" * 32)
    assert keys.session(b"ab", "c") != keys.session(b"a", "bc")


def test_a_call_without_an_id_is_no_link() -> None:
    """Its name and arguments are anybody's."""
    keys = Keys(b"s" * 32)
    assert keys.call(b"scope", ToolCall(None, "t", "{}"), 7) is None
    assert keys.call(b"scope", ToolCall("", "t", "{}"), 7) is None


def test_a_secret_has_a_name_that_fits_the_record() -> None:
    """Forty-eight bits, other for another secret."""
    names = {Keys(bytes([number]) * 32).secret_id() for number in range(8)}
    assert len(names) == 8
    assert max(names) < 2**48


# ---- passages


def test_passages_are_long_pieces_of_sentences() -> None:
    """The longest first, white space evened out, short ones never: they may be anybody's."""
    long, longer = "This sentence is long enough to be nobody else's at all", "And   this one is longer still, by quite a number of words"
    text = f"Short. {long}. {longer}! Fine?\n{long}."
    assert passages(text, 9) == [" ".join(longer.split()), long]
    assert passages(text, 1) == [" ".join(longer.split())]
    assert passages("x " + " " * 60, 9) == []
    assert passages("", 9) == []


def test_passages_of_a_huge_text_are_looked_for_at_its_start() -> None:
    """Work is bounded: nothing after the first 65,536 characters."""
    assert passages("x." * 40_000 + "y" * 50, 9) == []
    assert [len(piece) for piece in passages("x" * 100_000, 9)] == [2000, 65_536 % 2000]


def test_the_keys_of_named_sessions_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fell out is made again, the same; callers and sessions never share an entry."""
    monkeypatch.setattr("proxy.identity._MOST", 2)
    keys = Keys(b"s" * 32)
    first = keys.named("sk-a", "one")
    assert first == (keys.tenant("sk-a"), keys.session(keys.tenant("sk-a"), "one"), keys.named_scope("one"))
    others = [keys.named(caller, session) for caller, session in (("sk-b", "one"), ("sk-a", "two"), ("sk-", "aone"))]
    assert len({keys.tenant(caller) for caller in ("sk-a", "sk-b", "sk-c", "sk-")}) == 4
    assert len({key for _, key, _ in [first, *others]}) == 4
    assert keys.named("sk-a", "one") == first


def test_the_links_of_calls_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fell out is made again, the same; tenants, ids, tools and arguments never share an entry."""
    monkeypatch.setattr("proxy.identity._MOST", 2)
    keys = Keys(b"s" * 32)
    one, two = keys.tenant("a"), keys.tenant("b")
    call, other, renamed = ToolCall("call_1", "t", "{}"), ToolCall("call_2", "t", "{}"), ToolCall("call_1", "u", "{}")
    first = keys.call(one, call, 7)
    assert keys.call(one, call, 7) == first == Keys(b"s" * 32).call(one, call, 7)
    others = [keys.call(two, call, 7), keys.call(one, call, 8), keys.call(one, other, 7), keys.call(one, renamed, 7)]
    assert len({first, *others}) == 5
    assert keys.call(one, call, 7) == first


def test_a_team_is_one_tenant_whichever_of_its_keys_it_shows() -> None:
    """And no other: neither another team, nor a caller without teams whose key is its name."""
    keys = Keys(b"s" * 32)

    assert keys.named("k1", "one", "red") == keys.named("k2", "one", "red")
    assert keys.tenant("k1", "red") == keys.tenant("k2", "red")
    apart = [keys.named(*asked) for asked in (("k1", "one", "red"), ("k1", "one", "blue"), ("k1", "one", ""), ("red", "one", ""))]
    assert len({tenant for tenant, _, _ in apart}) == len({session for _, session, _ in apart}) == 4


def test_a_named_session_is_not_found_from_another_team() -> None:
    """Without teams its links are open to a refreshed key; between teams nothing goes on."""
    keys = Keys(b"s" * 32)
    scopes = [keys.named("k", "one", team)[2] for team in ("red", "blue", "")]

    assert len(set(scopes)) == 3
    assert keys.named("other", "one")[2] == scopes[2]


def test_a_teams_ledger_is_no_sessions() -> None:
    """Whatever a session is called."""
    keys = Keys(b"s" * 32)
    assert len({keys.ledger("red"), keys.ledger("blue"), keys.tenant("", "red"), keys.named("", "red", "red")[1]}) == 4


def test_the_team_of_a_key_stands_in_the_identity() -> None:
    """As whoever knows the keys said."""
    assert identify({"x-lastcall-key": "k"}, None, {}, (), "red").team == "red"
    assert identify({}, None, {}, ()).team == ""


def test_a_limit_in_money_is_read_in_nano_dollars() -> None:
    """Exactly."""
    assert of({"x-lastcall-max-cost-usd": "2.50"}).tighten.cost == 2_500_000_000
    assert of({"x-lastcall-max-cost-usd": "0"}).tighten.cost == 0
    with pytest.raises(BadRequest, match="use a number of dollars such as"):
        of({"x-lastcall-max-cost-usd": "$2"})


@pytest.mark.parametrize(
    ("headers", "hints", "parent"),
    [
        ({}, {}, None),
        ({"x-lastcall-parent": "a", "x-parent-session-id": "b"}, {}, "a"),
        ({"x-parent-session-id": "ses_1"}, {}, "ses_1"),
        ({"x-parent-session-id": " "}, {"metadata.user_id": "user_1_account__session_2"}, None),
        ({}, {"metadata.user_id": '{"session_id":"11111111-2222","parent_session_id":"aaaaaaaa-bbbb"}'}, "aaaaaaaa-bbbb"),
        ({"user-agent": "OpenHands/1", "x-litellm-session-id": "conv-2"}, {"prompt_cache_key": "conv-1"}, "conv-1"),
        ({"user-agent": "OpenHands/1", "x-litellm-session-id": "conv-1"}, {"prompt_cache_key": "conv-1"}, None),
        ({"user-agent": "OpenHands/1"}, {"prompt_cache_key": "conv-1"}, None),
        ({"user-agent": "OpenAI/Python", "x-litellm-session-id": "conv-2"}, {"prompt_cache_key": "conv-1"}, None),
        ({"x-lastcall-session": "a", "x-lastcall-parent": "a"}, {}, None),
    ],
)
def test_the_parent_of_a_session(headers: dict[str, str], hints: dict[str, str], parent: str | None) -> None:
    """By Lastcall's own header, then by what clients send."""
    assert identify(headers, None, hints, ()).parent == parent


def test_an_own_parent_that_cannot_be_one_is_refused() -> None:
    """Else its budgets would not be paid from."""
    with pytest.raises(BadRequest, match="x-lastcall-parent"):
        of({"x-lastcall-parent": "é"})


class Noting(dict[str, str]):
    """Headers that note which of them are asked for."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("agent", ["", *(client.word for client in CLIENTS)])
def test_a_header_says_alone_what_it_says_beside_others(agent: str) -> None:
    """No header is overlooked because the request has none of those that are looked for first."""
    others = {"user-agent": agent, "x-lastcall-max-steps": "9", "x-session-id": ""}
    noting = Noting(others | {"x-codex-turn-metadata": "{}"})
    identify(noting, None, {}, ())
    for name in noting.asked - {"user-agent", "x-lastcall-deadline"}:
        if not name.startswith("x-lastcall-max"):
            alone = identify({"user-agent": agent, name: "7a1b2c3d"}, None, {}, ())
            beside = identify(others | {name: "7a1b2c3d"}, None, {}, ())
            assert alone == msgspec.structs.replace(beside, tighten=Tighten()), name
    assert {"x-lastcall-lane", "x-parent-session-id", "x-task-id"} <= noting.asked
