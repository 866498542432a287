"""`lastcall demo`: one agent, one model that loops, with and without Lastcall between them, told as it happens.

Everything is real but the model: the agent uses the `openai` SDK over HTTP, the proxy is the one that `lastcall serve` runs, and each
number comes from an answer or from the scripted endpoint's own account. Servers listen on free loopback ports and end with the run.
"""

import contextlib
import importlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec
import uvicorn
from rich import box
from rich.console import Console
from rich.table import Table

from proxy import app, config, mock
from proxy.amounts import counted

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletion

TURN_CAP = 30
INPUT_PRICE, OUTPUT_PRICE = 3.0, 15.0
PROMPT = "You are a coding agent. Use the tools to find out what you need, then answer."
TASK = "Which files did I change since the last commit?"
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a shell command in the repository and returns its output.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
REPOSITORY = {
    "git status": """On branch main
Your branch is up to date with 'origin/main'.

Changes not staged for commit:
  (use "git add <file>..." to update what will be committed)
  (use "git restore <file>..." to discard changes in working directory)
        modified:   billing/invoice.py
        modified:   tests/test_invoice.py

no changes added to commit (use "git add" and/or "git commit -a")
"""
}
_COLUMNS = "{:>4}  {:<31} {:>7}  {}"
STYLES = {"nudge": "yellow", "stop": "bold red"}


class Scene(msgspec.Struct, frozen=True):
    """One run to play: what the model does, and whether Lastcall stands before it."""

    name: str
    script: mock.Script
    protected: bool


class Turn(msgspec.Struct, frozen=True):
    """One answer that the agent got.

    call: what it asked for, None: it was text. tokens: all that the upstream has counted in this run so far. reported: what this
    answer's usage said. action, reason, repeat: the `x-lastcall-…` response headers of these names, None where there were none.
    """

    number: int
    call: str | None
    tokens: int
    reported: int
    action: str | None
    reason: str | None
    repeat: str | None


class Run(msgspec.Struct, frozen=True):
    """A scene as it went. Tokens and calls are what the upstream counted; seconds are wall time; answer None: the run had none."""

    name: str
    turns: list[Turn]
    upstream_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    seconds: float
    ended: str
    answer: str | None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Saved(msgspec.Struct, frozen=True):
    """What the second run did not spend of the first's."""

    upstream_calls: int
    tokens: int
    cost_usd: float


SCENES = (
    Scene("Without Lastcall", mock.Script(), protected=False),
    Scene("With Lastcall", mock.Script(), protected=True),
    Scene("With Lastcall, and a model that heeds the nudge", mock.Script(heeds_nudge=True), protected=True),
)


def run(*, as_json: bool) -> int:
    """Plays the scenes and tells what happened, in words or as one JSON object. The exit status: 0, or 2 without the `openai` package."""
    try:
        importlib.import_module("openai")  # an extra, and half a second that no other command should pay
    except ModuleNotFoundError:
        click.echo("lastcall demo runs an agent written with the OpenAI SDK, which is missing: pip install 'lastcall[demo]'", err=True)
        return 2
    screen = Console(quiet=as_json, markup=False, highlight=False, emoji=False)
    screen.print(f"An agent with one tool is asked: {TASK!r}. Its model only ever asks for `git status`. Tokens add up turn by turn.")
    runs = [_play(scene, screen) for scene in SCENES]
    without, protected = runs[:2]
    saved = Saved(
        without.upstream_calls - protected.upstream_calls,
        without.tokens - protected.tokens,
        round(without.cost_usd - protected.cost_usd, 6),
    )
    _compare(runs, saved, screen)
    if as_json:
        price = {"input": INPUT_PRICE, "output": OUTPUT_PRICE}
        report = {"turn_cap": TURN_CAP, "usd_per_million_tokens": price, "runs": runs, "saved": saved}
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    return 0


def _play(scene: Scene, screen: Console) -> Run:
    """Runs the agent once, through real servers, and prints each turn when it is over."""
    screen.print(f"\n{scene.name}", style="bold")
    screen.print(_COLUMNS.format("turn", "the model", "tokens", "Lastcall" if scene.protected else "").rstrip(), style="dim")
    served: list[mock.Served] = []
    turns: list[Turn] = []
    answer: str | None = None
    started = time.monotonic()
    with _endpoint(scene, served) as url, _client(url) as client:
        for completion, headers in _agent(client):
            turns.append(_turn(len(turns) + 1, completion, headers, _tokens(served)))
            screen.print(_line(turns[-1]), style=STYLES.get(turns[-1].action or ""))
            message = completion.choices[0].message
            answer = None if message.tool_calls else message.content or ""
    tokens_in, tokens_out = (sum(getattr(one, side) for one in served) for side in ("input_tokens", "output_tokens"))
    return Run(
        name=scene.name,
        turns=turns,
        upstream_calls=len(served),
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cost_usd=round((tokens_in * INPUT_PRICE + tokens_out * OUTPUT_PRICE) / 1e6, 6),
        seconds=round(time.monotonic() - started, 3),
        ended=_ending(turns, answer),
        answer=answer,
    )


@contextlib.contextmanager
def _endpoint(scene: Scene, served: list[mock.Served]) -> Iterator[str]:
    """What the agent talks to in this scene: the scripted model, or Lastcall in front of it."""
    with _serving(mock.build(scene.script, on_served=served.append)) as upstream:
        if not scene.protected:
            yield upstream
            return
        # An empty environment: neither proxies nor keys of this machine have a part in the demo. No log: the turns are told instead.
        rules = config.load(json.dumps({"upstreams": {"default": {"base_url": upstream}}}), {})
        with _serving(app.create_app(rules, environ={}, log=_discard)) as url:
            yield url


@contextlib.contextmanager
def _serving(application: Callable[..., Any]) -> Iterator[str]:
    """A server on a free loopback port, in a thread, for as long as the block lasts. Gives its base URL."""
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=3))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError(f"the server for {application!r} ended before it had started")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


def _discard(line: bytes) -> None:
    """Where the proxy's log lines go."""


def _client(url: str) -> "OpenAI":
    openai = importlib.import_module("openai")
    http_client = openai.DefaultHttpxClient(trust_env=False)  # a proxy of this machine must not come between
    client: OpenAI = openai.OpenAI(base_url=url, api_key="demo", http_client=http_client)
    return client


def _agent(client: "OpenAI") -> Iterator[tuple["ChatCompletion", Mapping[str, str]]]:
    """An ordinary tool loop that knows nothing of Lastcall: it ends when the model answers without a call, or at the cap."""
    history: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": TASK}]
    tools: list[Any] = [BASH]
    for _ in range(TURN_CAP):
        response = client.chat.completions.with_raw_response.create(model="mock", messages=history, tools=tools)
        completion = response.parse()
        yield completion, response.headers
        message = completion.choices[0].message
        if not message.tool_calls:
            return
        history.append(message)
        for call in message.tool_calls:
            if call.type == "function":
                history.append({"role": "tool", "tool_call_id": call.id, "content": _bash(call.function.arguments)})


def _bash(arguments: str) -> str:
    """The agent's tool: a shell in a repository that stands still."""
    command = json.loads(arguments)["command"]
    return REPOSITORY.get(command, f"bash: {command}: command not found")


def _turn(number: int, completion: "ChatCompletion", headers: Mapping[str, str], tokens: int) -> Turn:
    message = completion.choices[0].message
    calls = [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or () if call.type == "function"]
    return Turn(
        number=number,
        call=", ".join(calls) or None,
        tokens=tokens,
        reported=completion.usage.total_tokens if completion.usage else 0,
        action=headers.get("x-lastcall-action"),
        reason=headers.get("x-lastcall-reason"),
        repeat=headers.get("x-lastcall-repeat"),
    )


def _tokens(served: list[mock.Served]) -> int:
    return sum(one.input_tokens + one.output_tokens for one in served)


def _line(turn: Turn) -> str:
    verdict = "  ".join(part for part in (turn.action, turn.reason, turn.repeat) if part)
    return _COLUMNS.format(turn.number, turn.call or "answers in text", f"{turn.tokens:,}", verdict).rstrip()


def _ending(turns: list[Turn], answer: str | None) -> str:
    """How the run ended, in words, from what the headers said."""
    actions = [turn.action for turn in turns]
    if answer is None:
        return f"cut off by the demo after {counted(len(turns), 'turn')}"
    if "stop" in actions:
        return f"Lastcall stopped it at turn {actions.index('stop') + 1}, with an answer"
    if "nudge" in actions:
        return "the model answered after the nudge"
    return "the model answered"


def _compare(runs: list[Run], saved: Saved, screen: Console) -> None:
    table = Table("", *(run.name for run in runs), box=box.SIMPLE)
    table.add_row("upstream calls", *(f"{run.upstream_calls}" for run in runs))
    table.add_row("tokens", *(f"{run.tokens:,}" for run in runs))
    table.add_row("cost", *(f"${run.cost_usd:.4f}" for run in runs))
    table.add_row("how it ended", *(run.ended for run in runs), end_section=True)
    table.add_row("final answer", *(run.answer or "none" for run in runs))
    screen.print(table)
    screen.print(f"Cost at ${INPUT_PRICE:g} per million input tokens and ${OUTPUT_PRICE:g} per million output tokens.")
    share = saved.tokens / runs[0].tokens
    outlook = "" if runs[0].answer is not None else " Without it the run would have gone on."
    spared = f"{counted(saved.upstream_calls, 'upstream call')}, {counted(saved.tokens, 'token')}"
    screen.print(f"Lastcall saved {spared} ({share:.0%}), ${saved.cost_usd:.4f}.{outlook}", style="bold green")
