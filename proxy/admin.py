"""The operator's routes, `/admin`: an application of its own behind its own key, with its own OpenAPI document.

The key is asked for before anything of a request is read. Where the configuration has none, there are no such routes.
"""

import csv
import io
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from proxy import __version__
from proxy.asgi import Message, Receive, Scope, Send
from proxy.desk import MOST_LISTED, Desk, Raise, TeamRaise
from proxy.errors import BadRequest, ProxyError
from proxy.events import OperatorAction
from proxy.keys import KeyRing, caller_of, digest_of
from proxy.pardon import MOST_ALLOWED
from proxy.views import PolicyView, SessionPage, SessionView, TeamView, UsageRow

PREFIX = "/admin"
_OPEN = "/openapi.json"  # what the routes are is no secret
_ALONE = (  # an answer is data: a browser is to run, show and keep nothing of it
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
_OPERATOR = "operator"
_MOST_BYTES = 65_536  # of a body: one holds a few limits
_JSON = (b"content-type", b"application/json")  # as every body is read, whatever curl calls it
_COLUMNS = ("day", "model", "steps", "input_tokens", "output_tokens", "cost_usd")
_ABOUT = """Look at sessions, teams and rules, and change what a session may do. Every replica acts by a change at its next request.

Show the operator's key (`server.admin_key`) in `Authorization: Bearer` or in `x-lastcall-key`. A session is named by its key, as the list
gives it, or by the name that its client uses, if no other session has it (`team` says in which team to look)."""

_Session = Annotated[str, Path(description="Its key (32 hexadecimal digits), or its name.")]
_Team = Annotated[str | None, Query(description="Only the session of that name in this team.")]
_Calls = Annotated[
    list[str], Query(max_length=MOST_ALLOWED, description="Fingerprints of calls; by default those of the loop it was stopped for.")
]


@dataclass(frozen=True, slots=True)
class Fault:
    """What stands in the way. code: for programs."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The answer where something stands in the way."""

    error: Fault


def ring_of(digest: str | None) -> KeyRing | None:
    """The operator's key as a ring, from its digest; None where there is none."""
    return None if digest is None else KeyRing({_OPERATOR: (digest,)})


class Guarded:
    """An application behind the operator's key. ring: in force now; None: there are no such routes."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], ring: Callable[[], KeyRing | None]) -> None:
        self._app = app
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ring = self._ring()
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        if ring is None:
            raise HTTPException(404)

        left = _MOST_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"a body of more than {_MOST_BYTES} bytes is none of these")
            return message

        async def alone(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ALONE]
            await send(message)

        if path == _OPEN or ring.team_of(caller_of(headers)) is not None:
            fields = [field for field in scope["headers"] if field[0] != b"content-type"]
            await self._app({**scope, "headers": [*fields, _JSON]}, bounded, alone)
            return
        message = "this takes the operator's key (server.admin_key): send it in 'authorization' as a bearer token, or in 'x-lastcall-key'"
        await _error(401, "lastcall_unknown_key", message)(scope, receive, alone)


def admin_app(desk: Callable[[], Desk]) -> FastAPI:
    """The routes without their guard."""
    app = FastAPI(
        title="Lastcall for operators",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False, description="server.admin_key"))],
        responses={
            "4XX": {
                "model": Problem,
                "description": "Not done: a value that cannot be, the key, nothing of that name, or others' changes.",
            },
            "503": {"model": Problem, "description": "Not known whether it is done: the store is away."},
        },
    )
    _add_sessions(app, desk)
    _add_changes(app, desk)
    _add_teams(app, desk)
    app.add_exception_handler(ProxyError, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(StarletteHTTPException, _no_route)
    return app


def _add_sessions(app: FastAPI, desk: Callable[[], Desk]) -> None:
    @app.get("/sessions")
    async def sessions(
        after: Annotated[str, Query(description="`next` of the part before.")] = "",
        count: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
        team: Annotated[str | None, Query(description="Only this team's.")] = None,
        search: Annotated[str, Query(description="Only those whose name contains it.")] = "",
    ) -> SessionPage:
        """List sessions, those used last first."""
        return await desk().page(after=after, count=count, team=team, search=search)

    @app.get("/sessions/{session:path}")
    async def session(session: _Session, team: _Team = None) -> SessionView:
        """Show a session: what it spent, its limits, its family, and what each of its lines of work called."""
        return await desk().show(session, team)


def _add_changes(app: FastAPI, desk: Callable[[], Desk]) -> None:
    @app.post("/sessions/{session:path}/pause")
    async def pause(session: _Session, who: _Who, team: _Team = None) -> SessionView:
        """Refuse its requests until it is resumed."""
        return await desk().mark(session, team, OperatorAction.PAUSE, who)

    @app.post("/sessions/{session:path}/resume")
    async def resume(session: _Session, who: _Who, team: _Team = None) -> SessionView:
        """End a pause or an operator's stop."""
        return await desk().mark(session, team, OperatorAction.RESUME, who)

    @app.post("/sessions/{session:path}/stop")
    async def stop(session: _Session, who: _Who, team: _Team = None) -> SessionView:
        """End it: its requests are refused, and those of the sessions below it."""
        return await desk().mark(session, team, OperatorAction.STOP, who)

    @app.post("/sessions/{session:path}/reset")
    async def reset(session: _Session, who: _Who, team: _Team = None) -> SessionView:
        """Let it begin anew: nothing spent, nothing counted, no stop. A pause stays."""
        return await desk().reset(session, team, who)

    @app.post("/sessions/{session:path}/raise")
    async def raised(session: _Session, who: _Who, limits: Annotated[Raise, Body()], team: _Team = None) -> SessionView:
        """Put other limits in force; also lower ones."""
        return await desk().raised(session, team, limits, who)

    @app.post("/sessions/{session:path}/allow")
    async def allow(
        session: _Session,
        who: _Who,
        call: _Calls = [],  # noqa: B006
        team: _Team = None,
    ) -> SessionView:
        """Let a call that was stopped wrongly through once, without counting it; the run goes on."""
        return await desk().allow(session, team, call, who)


def _add_teams(app: FastAPI, desk: Callable[[], Desk]) -> None:
    @app.get("/teams")
    async def teams() -> list[TeamView]:
        """What every team spends now."""
        return await desk().teams()

    @app.get("/teams/{team}")
    async def team(team: str) -> TeamView:
        """What a team spends now."""
        return await desk().team(team)

    @app.post("/teams/{team}/raise")
    async def raised(team: str, who: _Who, limits: Annotated[TeamRaise, Body()]) -> TeamView:
        """Put other limits of its budgets in force, until the windows that they are for end; also lower ones."""
        return await desk().raise_team(team, limits, who)

    @app.get("/teams/{team}/usage", response_model=list[UsageRow], responses={200: {"content": {"text/csv": {}}}})
    async def usage(
        team: str,
        first: Annotated[str | None, Query(alias="from", description="A date; by default thirty days back.")] = None,
        last: Annotated[str | None, Query(alias="to", description="A date; by default today.")] = None,
        form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    ) -> Any:
        """What a team spent, by day and model."""
        rows = await desk().usage(team, first, last)
        return rows if form == "json" else Response(csv_of(rows), media_type="text/csv")

    @app.get("/policy")
    async def policy(
        request: Request,
        model: Annotated[str, Query(description="As a client would name it.")],
        team: Annotated[str | None, Query(description="By default the team whose key stands in `x-lastcall-team-key`.")] = None,
        _: Annotated[str | None, Header(alias="x-lastcall-team-key")] = None,
    ) -> PolicyView:
        """The rules in force for a team, or a team's key, and a model."""
        return await desk().policy({"x-lastcall-key": request.headers.get("x-lastcall-team-key", "")}, team, model)


def csv_of(rows: list[UsageRow]) -> str:
    """Usage as a table for a spreadsheet, which must not take a name for a formula."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        model = "'" + row.model if row.model[:1] in "=+-@" else row.model
        writer.writerow([row.day, model, row.steps, row.input_tokens, row.output_tokens, f"{row.cost_usd:.9f}"])
    return table.getvalue()


def _who(request: Request) -> str:
    """Who acts: the beginning of the digest of the key."""
    return digest_of(caller_of(request.headers)).removeprefix("sha256:")[:8]


_Who = Annotated[str, Depends(_who)]


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse(asdict(Problem(Fault(code, message))), status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)
    return _error(error.status, error.code, error.message)


async def _not_understood(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(step) for step in first["loc"][1:]) or "the body"
    value = first.get("input")
    seen = f" is {value!r:.40}" if isinstance(value, str | int | float) else ""
    refusal = BadRequest(f"{place}{seen}: {first['msg']}; see {PREFIX}/openapi.json")
    return _error(refusal.status, refusal.code, refusal.message)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code not in (404, 405):
        return _error(error.status_code, "lastcall_bad_request", str(error.detail))
    message = f"{request.method} {request.url.path[:200]!r} is no route; see {PREFIX}/openapi.json"
    return _error(error.status_code, "lastcall_no_route", message)
