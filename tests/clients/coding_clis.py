"""Coding agents from npm, as people start them: nothing changed but where their model is.

Versions stand in `package.json`; `make e2e-clients` installs them into `.clients`. Each runs without a terminal, in a folder and with a
home of its own.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST = 120  # seconds for one run; an agent that is not stopped would go on for hours


@dataclass(frozen=True)
class Cli:
    """One agent. package: its npm package. shell: its shell tool's name; wants: what that calls the command, more: what it wants beside it.

    arguments, environment: for a base URL (without its version) and a prompt. files: below the home, for a base URL. last: put behind each
    command, where an agent now and then loses what a command says at its very end.

    delegates: what it is offered to send out sub-agents with, which they are not. sends: the call to send one out and wait for it, by the
    results of those it made for that before; None once it is there.
    """

    package: str
    program: str
    shell: str
    arguments: Callable[[str, str], list[str]]
    environment: Callable[[str], dict[str, str]]
    more: Mapping[str, Any] = field(default_factory=dict)
    wants: str = "command"
    last: str = ""
    delegates: str = "task"
    sends: Callable[[list[str]], tuple[str, dict[str, Any]] | None] = lambda results: None
    files: Callable[[str], dict[str, str]] = lambda url: {}

    def call(self, command: str) -> dict[str, Any]:
        """The arguments of its shell tool."""
        return {self.wants: command + self.last, **self.more}


@dataclass(frozen=True)
class Run:
    """What a run came to. shown: what a person sees of it, standard output and error."""

    status: int
    shown: str


def _opencode_configuration(url: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "tried",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {"mock": {"name": "mock"}},
    }
    return json.dumps(
        {"provider": {"tried": provider}, "model": "tried/mock", "permission": {"bash": "allow"}, "autoupdate": False, "share": "disabled"}
    )


def _codex_configuration(url: str) -> str:
    provider = {"name": "tried", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "TRIED_KEY"}
    members = "\n".join(f"{name} = {json.dumps(value)}" for name, value in provider.items())
    return f'model = "mock"\nmodel_provider = "tried"\n[model_providers.tried]\n{members}\n'


SENT = {"description": "Look", "prompt": "Find what changed."}


def _codex_sends(results: list[str]) -> tuple[str, dict[str, Any]] | None:
    """Its agents are sent out by one call and waited for by another."""
    match results:
        case []:
            return "multi_agent_v1.spawn_agent", {"message": SENT["prompt"]}
        case [sent]:
            return "multi_agent_v1.wait_agent", {"targets": [json.loads(sent)["agent_id"]], "timeout_ms": 60_000}
        case _:
            return None


CLIS = {
    "codex": Cli(
        package="@openai/codex",
        program="codex",
        shell="exec_command",
        arguments=lambda url, prompt: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
        environment=lambda url: {"TRIED_KEY": "any"},
        wants="cmd",
        files=lambda url: {".codex/config.toml": _codex_configuration(url)},
        delegates="multi_agent_v1",
        sends=_codex_sends,
    ),
    "claude": Cli(
        package="@anthropic-ai/claude-code",
        program="claude",
        shell="Bash",
        arguments=lambda url, prompt: ["-p", prompt, "--allowedTools", "Bash", "--model", "claude-sonnet-4-5"],
        environment=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-any",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        more={"description": "Work"},
        delegates="Agent",
        sends=lambda results: None if results else ("Agent", SENT | {"subagent_type": "Explore"}),
    ),
    "opencode": Cli(
        package="opencode-ai",
        program="opencode",
        shell="bash",
        arguments=lambda url, prompt: ["run", prompt],
        environment=lambda url: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
        more={"description": "Work"},
        sends=lambda results: None if results else ("task", SENT | {"subagent_type": "general"}),
        files=lambda url: {".config/opencode/opencode.json": _opencode_configuration(url)},
    ),
    "qwen": Cli(
        package="@qwen-code/qwen-code",
        program="qwen",
        shell="run_shell_command",
        arguments=lambda url, prompt: ["--auth-type", "openai", "--yolo", "-p", prompt],
        environment=lambda url: {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "mock"},
        more={"is_background": False},
        last="; env true",  # its terminal closes with the command, in one of some 500 before its last lines were read
        sends=lambda results: None if results else ("task", SENT | {"subagent_type": "general-purpose"}),
    ),
}


def run(cli: Cli, installed: Path, home: Path, url: str, prompt: str) -> Run:
    """One run to its end, in `home`/work. installed: where npm put the agents. Raises `TimeoutExpired` when it goes on for too long."""
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name, text in cli.files(url).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    command = [str(installed / "node_modules" / ".bin" / cli.program), *cli.arguments(url, prompt)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", **cli.environment(url)}
    with subprocess.Popen(
        command, cwd=work, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            shown, _ = process.communicate(timeout=LONGEST)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Run(process.returncode, shown.decode(errors="replace"))
