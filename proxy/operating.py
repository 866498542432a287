"""`lastcall sessions …` and `lastcall teams …`: the operator's commands, over the routes under /admin of a running Lastcall.

Tables on a terminal, plain lines elsewhere, `--json` for programs. Exit status 1: it was answered with no; 2: wrong usage, or no answer.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Literal, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.amounts import counted

KEY_VARIABLE = "LASTCALL_ADMIN_KEY"
_REFUSED_KEY = f"the key in {KEY_VARIABLE} is not the one of this Lastcall's server.admin_key"
_PATIENCE = 30.0  # seconds
_PAGE = 200
_Command = TypeVar("_Command", bound=Callable[..., None])
Values = dict[str, Any]


class Refused(click.ClickException):
    """Lastcall answered with no."""

    exit_code = 1


class Client:
    """The routes under /admin of one Lastcall. key: the operator's, never shown."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v1").removesuffix("/admin") + "/admin"
        self._key = key

    def text(self, path: str, query: Values | None = None, *, body: Values | None = None, post: bool = False) -> str:
        """The answer's body. Raises `Refused`, and `UsageError` where nobody answers."""
        asked = {name: value for name, value in (query or {}).items() if value not in (None, "", ())}
        url = f"{self._url}{path}" + (f"?{urlencode(asked, doseq=True)}" if asked else "")
        data = json.dumps(body or {}).encode() if post else None
        request = Request(url, data, {"authorization": f"Bearer {self._key}", "content-type": "application/json"})
        try:
            with urlopen(request, timeout=_PATIENCE) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            with error:
                raise Refused(_REFUSED_KEY if error.code == HTTPStatus.UNAUTHORIZED else _reason(error)) from None
        except (URLError, OSError, HTTPException) as error:
            cause = getattr(error, "reason", None) or type(error).__name__
            raise click.UsageError(f"no answer from {self._url}: {cause}; say where Lastcall listens with --url") from None

    def get(self, path: str, **query: object) -> Any:
        """The answer of a route that shows something."""
        return json.loads(self.text(path, query))

    def change(self, place: str, name: str, action: str, query: Values, body: Values | None = None) -> Values:
        """The session or team of that name as it stands after a change. place: `sessions` or `teams`."""
        changed: Values = json.loads(self.text(f"/{place}/{quote(name, safe='')}/{action}", query, body=body, post=True))
        return changed


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code}; is this Lastcall, and does its configuration have server.admin_key?"


def _client(_: click.Context, __: click.Parameter, url: str) -> Client:
    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise click.UsageError(
            f"no operator's key: put the one of server.admin_key into the variable {KEY_VARIABLE}; `lastcall keygen` makes one and its hash"
        )
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter(f"{url!r} does not begin with http:// or https://")
    return Client(url, key)


def _reaching(command: _Command) -> _Command:
    """The options of every command: where Lastcall listens, and how to show what it says."""
    command = click.option("--json", "as_json", is_flag=True, help="For programs.")(command)
    return click.option(
        "--url", "client", default="http://127.0.0.1:4000", show_default=True, callback=_client, help="Where Lastcall listens."
    )(command)


_WINDOWS = ("minute", "hour", "day", "week", "month")
_TEAM = click.option("--team", help="Look in this team only.")
_SESSION = click.argument("session")


@click.group()
def sessions() -> None:
    """Look at sessions of a running Lastcall, and change what they may do.

    SESSION is the key that `list` shows, or the name that the client uses. The operator's key comes from LASTCALL_ADMIN_KEY.
    """


@sessions.command("list")
@_reaching
@_TEAM
@click.option("--search", default="", help="Only those whose name contains it.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
def list_(client: Client, as_json: bool, team: str | None, search: str, limit: int) -> None:
    """List sessions, those used last first."""
    rows: list[Values] = []
    after = ""
    while len(rows) < limit:
        page = client.get("/sessions", after=after, count=min(_PAGE, limit - len(rows)), team=team, search=search)
        rows += page["sessions"]
        after = page["next"]
        if not after:
            break
    columns = ("session", "name", "team", "state", "reason", "seen", "steps", "tokens", "cost_usd")
    _show_rows([row | {"seen": _time(row["seen"])} for row in rows], columns, rows if as_json else None)


@sessions.command()
@_reaching
@_SESSION
@_TEAM
def show(client: Client, as_json: bool, session: str, team: str | None) -> None:
    """Show what a session did: spending, limits, and the trail of each lane."""
    view = client.get(f"/sessions/{quote(session, safe='')}", team=team)
    if as_json:
        click.echo(json.dumps(view, indent=2))
    else:
        _show_session(view)


def _changing(action: str, about: str) -> None:
    @sessions.command(action, help=about)
    @_reaching
    @_SESSION
    @_TEAM
    def change(client: Client, as_json: bool, session: str, team: str | None) -> None:
        _say(client.change("sessions", session, action, {"team": team}), as_json=as_json)


_changing("pause", "Refuse a session's requests until it is resumed.")
_changing("resume", "End a pause or an operator's stop.")
_changing("stop", "End a session: its requests are refused, and those of the sessions below it.")
_changing("reset", "Let a session begin anew: nothing spent, nothing counted, no stop.")


def _limits(command: _Command) -> _Command:
    """The options that name limits."""
    for option in (
        click.option("--restore", is_flag=True, help="Forget what was raised before."),
        click.option("--cost-usd", type=click.FloatRange(0)),
        click.option("--output", type=click.IntRange(0), help="Tokens."),
        click.option("--input", type=click.IntRange(0), help="Tokens."),
        click.option("--tokens", type=click.IntRange(0), help="Input and output together."),
        click.option("--steps", type=click.IntRange(0)),
    ):
        command = option(command)
    return command


def _named(limits: Values) -> Values:
    """The limits that were named."""
    named = {name: value for name, value in limits.items() if value is not None and value is not False}
    if not named:
        raise click.UsageError("name a limit, such as --steps 300, or --restore")
    return named


@sessions.command("raise")
@_reaching
@_SESSION
@_TEAM
@_limits
@click.option("--deadline", type=click.FloatRange(0), help="Seconds after the session's start.")
def raise_(client: Client, as_json: bool, session: str, team: str | None, **limits: Any) -> None:
    """Put other limits in force for a session, in the place of the configuration's and the client's."""
    view = client.change("sessions", session, "raise", {"team": team}, _named(limits))
    _say(view, as_json=as_json)
    if not as_json and view["limits"]:
        _show_rows([_limit_row(limit) for limit in view["limits"]], _LIMITS, None)


@sessions.command()
@_reaching
@_SESSION
@_TEAM
@click.option("--call", "calls", multiple=True, help="Fingerprint of a call; by default those the session was stopped for.")
def allow(client: Client, as_json: bool, session: str, team: str | None, calls: Sequence[str]) -> None:
    """Let a call that was stopped wrongly through once; the run goes on."""
    _say(client.change("sessions", session, "allow", {"team": team, "call": calls}), as_json=as_json)


@click.group()
def teams() -> None:
    """Look at what teams of a running Lastcall spend and at their rules, and raise their budgets.

    The operator's key comes from LASTCALL_ADMIN_KEY.
    """


@teams.command("show")
@_reaching
@click.argument("team", required=False)
@click.option("--model", help="Show the rules for this model too; names one TEAM.")
def show_teams(client: Client, as_json: bool, team: str | None, model: str | None) -> None:
    """Show what a team spends now, or every team."""
    if model is not None and team is None:
        raise click.UsageError("--model needs a TEAM: rules are those of one team")
    views = [client.get(f"/teams/{quote(team, safe='')}")] if team else client.get("/teams")
    rules = client.get("/policy", team=team, model=model) if model else None
    shown = views if rules is None else {"teams": views, "policy": rules}
    _show_teams(views, shown if as_json else None)
    if rules is not None and not as_json:
        click.echo(json.dumps(rules, indent=2))


@teams.command("raise")
@_reaching
@click.argument("team")
@click.option("--per", type=click.Choice(_WINDOWS), help="Which of its budgets, where it has several in that unit.")
@_limits
def raise_team(client: Client, as_json: bool, team: str, per: str | None, **limits: Any) -> None:
    """Put other limits of a team's budgets in force, until the windows that they are for end."""
    view = client.change("teams", team, "raise", {}, _named(limits) | ({"per": per} if per else {}))
    _show_teams([view], view if as_json else None)


@teams.command()
@_reaching
@click.argument("team")
@click.option("--from", "first", help="A date such as 2026-11-29; by default thirty days back.")
@click.option("--to", "last", help="A date; by default today.")
@click.option("--csv", "form", flag_value="csv", help="As CSV.")
def usage(client: Client, as_json: bool, team: str, first: str | None, last: str | None, form: Literal["csv"] | None) -> None:
    """Show what a team spent, by day and model."""
    path = f"/teams/{quote(team, safe='')}/usage"
    if form is not None:
        click.echo(client.text(path, {"from": first, "to": last, "format": form}), nl=False)
        return
    rows = client.get(path, **{"from": first, "to": last})
    _show_rows(rows, ("day", "model", "steps", "input_tokens", "output_tokens", "cost_usd"), rows if as_json else None)


# ---- showing

_LIMITS = ("unit", "limit", "spent", "reserved", "per", "resets_at", "raised")


def _show_teams(views: Sequence[Values], program: object) -> None:
    rows = [
        {"team": view["team"], "calls": view["calls_under_way"], "sessions": view["sessions"]} | _limit_row(limit)
        for view in views
        for limit in view["limits"] or [{}]
    ]
    _show_rows(rows, ("team", "calls", "sessions", *_LIMITS), program)


def _limit_row(limit: Values) -> Values:
    return limit | {"resets_at": _time(limit["resets_at"])} if limit else {}


def _say(view: Values, *, as_json: bool) -> None:
    """A session after a change."""
    if as_json:
        click.echo(json.dumps(view, indent=2))
        return
    reason = f" ({view['reason']})" if view["reason"] else ""
    click.echo(f"{view['name'] or view['session']}: {view['state']}{reason}")


def _show_session(view: Values) -> None:
    spent = view["spent"]
    click.echo(f"session {view['session']}  {view['name'] or ''}".rstrip())
    click.echo(f"state: {view['state']}" + (f" ({view['reason']})" if view["reason"] else ""))
    calls = counted(view["calls_under_way"], "call")
    click.echo(f"since {_time(view['started_at'])}, kept until {_time(view['expires_at'])}, {calls} under way")
    tokens = f"{spent['input_tokens']} + {spent['output_tokens']} tokens"
    click.echo(f"spent: {counted(spent['steps'], 'step')}, {tokens}, {spent['cost_usd']:.6f} dollars")
    if view["above"]:
        click.echo(f"spends from: {', '.join(view['above'])}")
    if view["fallen"]:
        click.echo(f"below it was stopped: {view['fallen']} ({view['fallen_reason']})")
    if view["limits"]:
        _show_rows([_limit_row(limit) for limit in view["limits"]], _LIMITS, None)
    for number, lane in enumerate(view["lanes"]):
        sent = "" if lane["sent_by"] is None else f", sent by lane {lane['sent_by']}"
        click.echo(f"lane {number}{' (main)' if lane['main'] else ''}: run since message {lane['run']}, counts from {lane['since']}{sent}")
        if lane["stopped"] is not None:
            stop = lane["stopped"]
            click.echo(f"  stopped: {stop['reason']} {stop['tool']} {stop['count']}/{stop['limit']}: {', '.join(stop['calls'])}")
        if lane["above_reason"] is not None:
            click.echo(f"  stopped with the one that sent it: {lane['above_reason']}")
        if lane["below_reason"] is not None:
            click.echo(f"  sent one that was stopped: {lane['below_reason']}")
        for nudge in lane["nudges"]:
            click.echo(f"  nudged: {nudge['reason']} {nudge['tool']} {nudge['count']} at message {nudge['message']}")
        _show_rows(lane["trail"], ("message", "tool", "call", "result", "failed"), None)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show_rows(rows: Sequence[Values], columns: Sequence[str], program: object) -> None:
    """A table on a terminal, lines with tabs elsewhere, JSON (`program`) for programs."""
    if program is not None:
        click.echo(json.dumps(program, indent=2))
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    console = Console()
    if not console.is_terminal:
        click.echo("\n".join("\t".join(line) for line in _lines(columns, cells)))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for line in cells:
        table.add_row(*map(escape, line))
    console.print(table)


def _lines(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    yield columns
    yield from cells


def _cell(value: object) -> str:
    """A value on one line of a terminal that nothing in it can steer."""
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case float():
            return f"{value:.6f}".rstrip("0").rstrip(".")
        case _:
            return "".join(char if char.isprintable() else "\ufffd" for char in str(value))
