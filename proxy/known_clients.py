"""What is known about single clients, recognised by a word of their user agent: one table, from measurements of each.

How they name a session and a line of history, what ends their run, and which of their requests are not the agent's own work. Whatever
holds for clients in general is not here.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec


class Known(msgspec.Struct, frozen=True, gc=False):
    """One client. word: in its user agent, in lower case. sessions, lanes, senders: header names, the surest first.

    senders: they name the line of history that sent a sub-agent. sub_agents: it names no line but theirs, and they were sent by the
    session's own where it names no other. child_by_cache: the `prompt_cache_key` of a sub-agent names the session that sent it.
    cache_key: its `prompt_cache_key` is one per session. user_id: so is its bare `metadata.user_id`. ends_on_400: HTTP 400 ends its run;
    others ask again, some for ever. finish_tool: its run ends well by this tool alone.
    """

    word: str
    sessions: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    cache_key: bool = False
    user_id: bool = False
    ends_on_400: bool = True
    finish_tool: str | None = None
    senders: tuple[str, ...] = ()
    sub_agents: bool = False
    child_by_cache: bool = False


_AGENT_OF_CLAUDE = ("x-claude-code-agent-id",)
_SENDER_OF_CLAUDE = ("x-claude-code-parent-agent-id",)
CLIENTS = (
    Known(
        "codex",
        ("session-id", "session_id", "conversation_id"),
        ("thread-id", "thread_id", "x-openai-subagent"),
        cache_key=True,
        senders=("x-codex-parent-thread-id",),
    ),
    Known("claude", ("x-claude-code-session-id",), _AGENT_OF_CLAUDE, senders=_SENDER_OF_CLAUDE, sub_agents=True),
    Known("kilo-code/4", ("x-kilocode-taskid", "session_id"), ends_on_400=False, finish_tool="attempt_completion"),
    Known("kilo", ("x-kilo-session", "x-session-affinity", "x-kilocode-taskid"), cache_key=True),
    Known("opencode", ("x-opencode-session", "x-session-affinity", "x-session-id"), cache_key=True),
    Known("roo", ("x-roo-task-id", "session_id"), ends_on_400=False, finish_tool="attempt_completion"),
    Known("cline", ("x-task-id", "session_id")),
    Known("goose", ("agent-session-id", "goose-session-id")),
    Known("crush", ("x-session-id", "x-session-affinity")),
    Known("openhands", ("x-litellm-session-id",), cache_key=True, child_by_cache=True),
    Known("kimi", cache_key=True, user_id=True),
    Known("qwen", cache_key=True),
    Known("copilot"),
    Known("gemini-cli"),
)
STRANGER = Known("", (), _AGENT_OF_CLAUDE, ends_on_400=False, senders=_SENDER_OF_CLAUDE, sub_agents=True)

# What a client calls a request that is not a turn of its agent: summaries, memory, titles, probes.
_SIDE = re.compile(r"compact|compaction|memory|memory_consolidation|prewarm|auxiliary|title", re.IGNORECASE)
_SAY_KIND = frozenset({"x-codex-turn-metadata", "x-openai-subagent", "x-claude-code-request-class"})
SAY_MORE = _SAY_KIND.union(*(client.lanes + client.senders for client in (*CLIENTS, STRANGER)))
"""Header names that say more of a request than whose it is: which line of history, sent by which, and that it is no turn."""
_MOST_KNOWN, _LONGEST_AGENT = 256, 256  # user agents, and their characters: a client writes them
_TURN_KIND = re.compile(r'"request_kind"\s*:\s*"(\w+)"')
_TURN_SENDER = re.compile(r'"parent_thread_id"\s*:\s*"([^"\\]+)"')


def known_client(headers: Mapping[str, str]) -> Known:
    """The client that a request's user agent names, else `STRANGER`. headers: lower-case names."""
    agent = headers.get("user-agent", "")
    return _remembered(agent) if len(agent) <= _LONGEST_AGENT else _client_of(agent)


def _client_of(agent: str) -> Known:
    agent = agent.lower()
    return next((client for client in CLIENTS if client.word in agent), STRANGER)


_remembered = lru_cache(_MOST_KNOWN)(_client_of)


def is_side_request(headers: Mapping[str, str]) -> bool:
    """Whether the client itself says that a request is no turn of its agent. headers: lower-case names."""
    if headers.keys().isdisjoint(_SAY_KIND):
        return False
    turn = _TURN_KIND.search(headers.get("x-codex-turn-metadata", ""))
    kinds = (headers.get("x-openai-subagent"), headers.get("x-claude-code-request-class"), turn and turn.group(1))
    return any(_SIDE.fullmatch(kind) is not None for kind in kinds if kind)


def turn_sender(headers: Mapping[str, str]) -> str | None:
    """The thread that sent this one, by Codex's account of the turn. headers: lower-case names."""
    found = _TURN_SENDER.search(headers.get("x-codex-turn-metadata", ""))
    return None if found is None else found[1]
