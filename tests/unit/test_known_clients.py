"""Clients known by a word of their user agent, and what they say about single requests."""

import json

import pytest

from proxy.known_clients import CLIENTS, STRANGER, is_side_request, known_client


@pytest.mark.parametrize(
    ("agent", "word"),
    [
        ("codex_cli_rs/0.171.0 (Debian 13; x86_64) xterm", "codex"),
        ("claude-cli/2.1.197 (external, cli)", "claude"),
        ("opencode/1.18.33", "opencode"),
        ("Kilo-Code/4.100.0", "kilo-code/4"),
        ("Kilo-Code/5.0 opencode/1.2", "kilo"),
        ("RooCode/3.38", "roo"),
        ("OpenAI/Python 3.57.0", ""),
        ("", ""),
    ],
)
def test_a_client_is_known_by_its_user_agent(agent: str, word: str) -> None:
    """In whatever case it writes it."""
    assert known_client({"user-agent": agent}).word == word
    assert known_client({}) is STRANGER


def test_who_needs_a_tool_to_end_does_not_end_on_an_error() -> None:
    """And nobody else is taken not to, but strangers."""
    assert [client.word for client in CLIENTS if not client.ends_on_400] == [client.word for client in CLIENTS if client.finish_tool]
    assert not STRANGER.ends_on_400


@pytest.mark.parametrize(
    ("headers", "side"),
    [
        ({}, False),
        ({"x-openai-subagent": "compact"}, True),
        ({"x-openai-subagent": "memory_consolidation"}, True),
        ({"x-openai-subagent": "review"}, False),
        ({"x-openai-subagent": "compact_the_tests"}, False),
        ({"x-codex-turn-metadata": json.dumps({"turn_id": "t", "request_kind": "turn"})}, False),
        ({"x-codex-turn-metadata": json.dumps({"turn_id": "t", "request_kind": "prewarm"})}, True),
        ({"x-codex-turn-metadata": "compaction"}, False),
        ({"x-claude-code-request-class": "auxiliary"}, True),
        ({"x-claude-code-request-class": "subagent"}, False),
    ],
)
def test_side_requests_are_those_the_client_calls_so(headers: dict[str, str], side: bool) -> None:
    """A sub-agent's turns are turns."""
    assert is_side_request(headers) is side
