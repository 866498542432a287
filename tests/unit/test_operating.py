"""The operator's commands against a real Lastcall: what they show, what they change, and their exit status."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner, Result

from proxy.cli import main
from proxy.keys import digest_of
from tests.agents import Agent
from tests.running import running
from tests.upstreams import looping, upstream_running

KEY = "operators-key"
CONFIG = json.dumps(
    {
        "server": {"admin_key": digest_of(KEY)},
        "upstreams": {"default": {"api_key": "${K}"}},
        "policy": {"budgets": {"steps": 20, "deadline": "1h"}},
        "teams": {"red": {"keys": [digest_of("lc-red")], "budgets": [{"steps": 50, "per": "day"}]}, "blue": {"keys": [digest_of("lc-b")]}},
    }
)
Run = Callable[..., Result]


def command(*arguments: str, url: str, key: str = KEY) -> Result:
    return CliRunner().invoke(main, [*arguments, "--url", url], env={"LASTCALL_ADMIN_KEY": key})


@pytest.fixture(scope="module")
def lastcall() -> Iterator[str]:
    """A Lastcall with a session that stands stopped and one whose sub-agent did before it, until the tests have ended."""
    ready, over = threading.Event(), threading.Event()
    where: list[str] = []

    async def serve() -> None:
        async with upstream_running() as upstream, running(upstream.url, CONFIG, env={"K": "sk"}) as proxy, aiohttp.ClientSession() as http:
            upstream.model = looping()
            crew = {"x-lastcall-session": "crew"}
            main_line = Agent(http, proxy.v1, key="lc-red", headers=crew)
            main_line.take(await main_line.ask())
            await Agent(http, proxy.v1, key="lc-red", headers={**crew, "x-claude-code-agent-id": "a1"}, task="Look into it.").run()
            await main_line.run()
            await Agent(http, proxy.v1, key="lc-red", headers={"x-lastcall-session": "build\u002f1"}).run()
            await Agent(http, proxy.v1, key="lc-red", headers={"x-lastcall-session": "other"}).ask()
            where.append(proxy.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield where[0]
    over.set()
    thread.join(30)


def test_sessions_are_listed(lastcall: str) -> None:
    """As lines with tabs where nobody looks, as JSON for programs, a part at a time."""
    lines = command("sessions", "list", url=lastcall).stdout.splitlines()
    rows = json.loads(command("sessions", "list", "--json", "--limit", "1", "--team", "red", url=lastcall).stdout)
    found = json.loads(command("sessions", "list", "--json", "--search", "build", url=lastcall + "/v1/").stdout)

    assert lines[0].split("\t") == ["session", "name", "team", "state", "reason", "seen", "steps", "tokens", "cost_usd"]
    assert [line.split("\t")[1:5] for line in lines[1:]] == [
        ["other", "red", "active", ""],
        ["build/1", "red", "stopped", "repeated_call"],
        ["crew", "red", "stopped", "repeated_call"],
    ]
    assert [row["name"] for row in rows] == ["other"]
    assert [row["name"] for row in found] == ["build/1"]


def test_a_session_is_shown(lastcall: str) -> None:
    """Why it stands stopped, its limits and its trail."""
    shown = command("sessions", "show", "build/1", url=lastcall)
    view = json.loads(command("sessions", "show", "build/1", "--json", url=lastcall).stdout)

    assert shown.exit_code == 0
    assert "state: stopped (repeated_call)" in shown.stdout
    assert "stopped: repeated_call read_file 5/5" in shown.stdout and "nudged: repeated_call read_file 3 at message 2" in shown.stdout
    assert shown.stdout.count(view["lanes"][0]["calls"][0]["call"]) == 5
    assert "steps\t20\t6" in shown.stdout


def test_a_session_is_shown_with_its_sub_agents(lastcall: str) -> None:
    """Who sent whom, and the stops above and below each."""
    main_line, sub = command("sessions", "show", "crew", url=lastcall).stdout.split("lane ", 2)[1:]

    assert main_line.startswith("0 (main): run since message 0, counts from 0\n")
    assert "  sent one that was stopped: repeated_call\n" in main_line
    assert sub.startswith("1: run since message 0, counts from 0, sent by lane 0\n")
    assert "  stopped with the one that sent it: repeated_call\n" in sub


def test_sessions_are_changed(lastcall: str) -> None:
    """In one line each."""
    said = [
        command("sessions", *arguments, url=lastcall).stdout
        for arguments in (
            ("pause", "other"),
            ("resume", "other"),
            ("stop", "other", "--team", "red"),
            ("reset", "other"),
            ("raise", "other", "--steps", "30", "--cost-usd", "1.5"),
            ("allow", "build/1"),
        )
    ]
    raise_said, limits = said[4].partition("\n")[::2]
    said[4] = raise_said + "\n"
    assert [line.split("\t")[:2] for line in limits.splitlines()[1:]] == [["steps", "30"], ["cost_usd", "1.5"], ["deadline", "3600"]]
    raised = json.loads(command("sessions", "raise", "other", "--restore", "--json", url=lastcall).stdout)

    assert said == [
        "other: paused (operator)\n",
        "other: active\n",
        "other: stopped (operator)\n",
        "other: active\n",
        "other: active\n",
        "build/1: active\n",
    ]
    assert [limit["raised"] for limit in raised["limits"]] == [False, False]


def test_teams_are_shown(lastcall: str) -> None:
    """Now, by day and model, as CSV, with their rules."""
    now = command("teams", "show", url=lastcall).stdout.splitlines()
    rules = json.loads(command("teams", "show", "blue", "--model", "gpt-4o", "--json", url=lastcall).stdout)
    told = command("teams", "show", "red", "--model", "gpt-4o", url=lastcall).stdout
    usage = command("teams", "usage", "red", url=lastcall).stdout.splitlines()
    rows = json.loads(command("teams", "usage", "red", "--json", url=lastcall).stdout)
    table = command("teams", "usage", "red", "--csv", "--from", rows[0]["day"], url=lastcall).stdout.splitlines()

    assert [line.split("\t")[0] for line in now] == ["team", "red", "blue"]
    assert now[1].split("\t")[3:6] == ["steps", "50", "19"]
    assert (rules["teams"][0]["team"], rules["policy"]["policy"]["budgets"]["steps"]) == ("blue", 20)
    assert '"mode": "enforce"' in told
    assert usage[1].split("\t")[1:3] == ["gpt-*", "19"] and table[1].split(",")[1:3] == ["gpt-*", "19"]


def test_a_teams_budget_is_raised(lastcall: str) -> None:
    """And shown as such, until it is taken back."""
    raised = command("teams", "raise", "red", "--per", "day", "--steps", "80", url=lastcall).stdout.splitlines()
    back = json.loads(command("teams", "raise", "red", "--restore", "--json", url=lastcall).stdout)
    none = command("teams", "raise", "blue", "--steps", "80", url=lastcall)

    assert [line.split("\t")[i] for line in raised[1:] for i in (0, 3, 4, 7, 9)] == ["red", "steps", "80", "day", "yes"]
    assert [(limit["limit"], limit["raised"]) for limit in back["limits"]] == [(50, False)]
    assert (none.exit_code, "team 'blue' has no budget in steps" in none.stderr) == (1, True)


def test_a_no_is_a_finding(lastcall: str) -> None:
    """Exit status 1, with what Lastcall said."""
    unknown = command("sessions", "show", "nobody", url=lastcall)
    denied = command("sessions", "list", url=lastcall, key="wrong")

    assert (unknown.exit_code, denied.exit_code) == (1, 1)
    assert "no session 'nobody'" in unknown.stderr and "server.admin_key" in denied.stderr


@pytest.mark.parametrize(
    ("arguments", "key", "said"),
    [
        (("sessions", "list", "--url", "127.0.0.1:4000"), KEY, "does not begin with http:// or https://"),
        (("sessions", "list"), "", "the one of server.admin_key into the variable LASTCALL_ADMIN_KEY"),
        (("sessions", "raise", "x"), KEY, "name a limit"),
        (("teams", "raise", "x", "--per", "day"), KEY, "name a limit"),
        (("teams", "show", "--model", "m"), KEY, "--model needs a TEAM"),
        (("sessions", "list", "--url", "http://127.0.0.1:1"), KEY, "no answer from http://127.0.0.1:1/admin"),
    ],
)
def test_wrong_usage_is_said(arguments: tuple[str, ...], key: str, said: str) -> None:
    """Exit status 2, and nothing of the key."""
    result = CliRunner().invoke(main, list(arguments), env={"LASTCALL_ADMIN_KEY": key})

    assert result.exit_code == 2
    assert said in result.stderr
    assert KEY not in result.stderr


def test_a_wrong_key_is_said_by_where_it_came_from(lastcall: str) -> None:
    """Exit status 1, the variable's name, and nothing of the key."""
    result = command("sessions", "list", url=lastcall, key="wrong-key")

    assert (result.exit_code, "LASTCALL_ADMIN_KEY" in result.stderr, "wrong-key" in result.stderr) == (1, True, False)


def test_a_server_of_another_kind_is_told_apart() -> None:
    """Its refusal is no JSON of ours."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(418)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        result = command("sessions", "list", url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()

    assert (result.exit_code, "HTTP 418" in result.stderr) == (1, True)
