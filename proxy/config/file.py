"""The file as a whole: its sections, and what must fit together among them."""

import re
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from proxy.config.shape import PolicyConfig, Section, ServerConfig, SessionConfig, StoreConfig, UpstreamConfig
from proxy.config.teams import PriceConfig, TeamConfig
from proxy.config.values import Name, TimeZone, fault, is_loopback, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_DEFAULT_MODELS = (
    *("gpt-*", "chatgpt-*", "codex-*", "o1*", "o3*", "o4*", "claude-*", "gemini-*", "grok-*", "llama*", "mistral-*", "devstral*"),
    *("deepseek-*", "qwen*", "kimi-*", "glm-*", "minimax-*"),
)
# What current coding agents call their tools, and the names that turn up in most others.
_DEFAULT_TOOLS = (
    *("bash", "Bash", "shell", "run_shell_command", "execute_command", "terminal", "python", "exec*"),
    *("read_file", "read*", "Read", "view", "open", "cat", "list_*", "ls", "LS"),
    *("edit", "Edit", "edit_file", "write*", "Write", "apply_patch", "replace*", "str_replace*"),
    *("grep", "Grep", "glob", "Glob", "search*", "find*"),
    *("web_search", "WebSearch", "web_fetch", "WebFetch", "fetch*", "browser*", "click*", "mcp__*"),
    *("task", "Task", "todo*", "TodoWrite"),
)


def _check_name(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name):
        raise fault(f"{shown(name)} is no {kind} name; use letters, digits, '_', '.' and '-', at most 64")


class Config(Section):
    """Everything `config.yaml` says."""

    server: ServerConfig = ServerConfig()
    upstreams: dict[str, UpstreamConfig] = Field(
        default={
            "default": UpstreamConfig(base_url="https://api.openai.com/v1", dialects=("chat", "responses")),
            "anthropic": UpstreamConfig(base_url="https://api.anthropic.com/v1", dialects=("messages",)),
        }
    )
    """Model endpoints by name; the first that fits a request gets it."""
    models: Annotated[tuple[Name, ...], Field(strict=False)] = _DEFAULT_MODELS
    """Model names or globs that may appear as a metric label; any other model is counted as _other."""
    tools: Annotated[tuple[Name, ...], Field(strict=False)] = _DEFAULT_TOOLS
    """Tool names or globs that may appear as a metric label; any other tool is counted as _other."""
    store: StoreConfig = Field(default=StoreConfig(), validate_default=True)
    session: SessionConfig = SessionConfig()
    prices: dict[Name, PriceConfig] = Field(default={})
    """What models cost, by name or glob, in place of the shipped price list."""
    timezone: TimeZone = "UTC"
    """Whose calendar the windows of teams' budgets follow."""
    policy: PolicyConfig = PolicyConfig()
    teams: dict[str, TeamConfig] = Field(default={}, validate_default=True)
    """Who may ask, by name. Without teams anybody may."""

    @field_validator("prices", "teams", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return {} if value is None else value

    @field_validator("upstreams")
    @classmethod
    def _named(cls, value: dict[str, UpstreamConfig]) -> dict[str, UpstreamConfig]:
        if not value:
            raise fault("names no upstream; give one, such as default: {base_url: https://api.openai.com/v1}")
        for name in value:
            _check_name(name, "upstream")
        return value

    @field_validator("store")
    @classmethod
    def _shared(cls, value: StoreConfig, info: ValidationInfo) -> StoreConfig:
        server = info.data.get("server")
        if server and server.workers > 1 and value.url.startswith("memory:"):
            raise fault(
                f"memory:// cannot be shared by server.workers: {server.workers}; use a redis:// url, or one worker", below=("url",)
            )
        return value

    @field_validator("teams")
    @classmethod
    def _guarded(cls, value: dict[str, TeamConfig], info: ValidationInfo) -> dict[str, TeamConfig]:
        """Keys of the operator's own are not for whoever finds the address."""
        server: ServerConfig | None = info.data.get("server")
        upstreams: dict[str, UpstreamConfig] = info.data.get("upstreams", {})
        keyed = next((name for name, upstream in upstreams.items() if upstream.api_key != "passthrough"), None)
        if server and keyed and not value and not server.open and not is_loopback(server.host):
            raise fault(
                f"{shown(server.host)} can be reached from elsewhere, and whoever reaches it could spend the key of upstream "
                f"{shown(keyed)}; add teams with keys, or set server.open: true if something in front decides who may call",
                at=("server", "host"),
            )
        return value

    @field_validator("teams")
    @classmethod
    def _apart(cls, value: dict[str, TeamConfig], info: ValidationInfo) -> dict[str, TeamConfig]:
        """One key, one team; only upstreams that there are."""
        upstreams: dict[str, UpstreamConfig] | None = info.data.get("upstreams")
        owners: dict[str, str] = {}
        for name, team in value.items():
            _check_name(name, "team")
            for position, digest in enumerate(team.keys):
                place = f"teams.{name}.keys[{position}]"
                if digest in owners:
                    raise fault(f"is the same key as {owners[digest]}; a key belongs to one team, once", below=(name, "keys", position))
                owners[digest] = place
            for position, upstream in enumerate(team.upstreams or ()):
                if upstreams is not None and upstream not in upstreams:
                    known = ", ".join(upstreams)
                    raise fault(f"{shown(upstream)} is no upstream; known here: {known}", below=(name, "upstreams", position))
        return value
