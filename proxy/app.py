"""The composition root: everything is made here and handed to what needs it. FastAPI, life span, routes, errors.

The judged and the forwarded routes are one plain ASGI endpoint inside the application; the others are ordinary routes. The one
error boundary is `Front.__call__`.
"""

import asyncio
import atexit
import contextlib
import gc
import itertools
import logging
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import msgspec
import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response

from proxy import __version__
from proxy.admin import PREFIX, Guarded, admin_app, ring_of
from proxy.asgi import Receive, Scope, Send
from proxy.balances import watch as watch_balances
from proxy.bill import Bills
from proxy.client import Client, ClientGone
from proxy.config import Config, UpstreamConfig, load_dumped
from proxy.connection import protocol
from proxy.desk import Desk
from proxy.dialects import DIALECTS, Dialect
from proxy.errors import BadRequest, ConfigError, ProxyError
from proxy.exchange import Exchange, Setting, Way
from proxy.globs import fits
from proxy.health import add_health, add_metrics, metrics_alone
from proxy.listening import listen, url_of
from proxy.origins import origins_of
from proxy.output import Handler, Lines, place_of
from proxy.passage import Passage, plain_path
from proxy.pricelist import prices_of
from proxy.reload import InForce, Reloader, reloading
from proxy.sessions import Sessions
from proxy.source import Source, Watch, load_source
from proxy.store import GuardedStore, MemoryStore, Store, longest_call, open_store
from proxy.telemetry import DIRECTORY_VARIABLE, Supervised, Telemetry, registry_for
from proxy.tenants import Tenants
from proxy.upstream import Target, proxy_from
from proxy.upstream.http import Upstream, tls_of
from proxy.workers import CONFIG_VARIABLE, HUNG_SECONDS, Workers, end_with_supervisor, ended_if_hung

SOURCE_VARIABLE = "LASTCALL_CONFIG_SOURCE"  # how `serve` tells its worker processes where to read again
_GC_THRESHOLD = (25_000, 20, 50)  # an exchange makes hundreds of containers, hardly ever a cycle
_EVENTS_SECONDS = 0.1
_DRAIN_SECONDS = 600  # streams under way at a shutdown get this long
_SESSION_PATH = re.compile(r"/s/([^/]+)(/v1/.*)", re.DOTALL)
_JSON = (b"content-type", b"application/json")
_CHAT, _MESSAGES = DIALECTS["/chat/completions"], DIALECTS["/messages"]
_ROUTES = {b"/v1" + path.encode(): (path, dialect) for path, dialect in DIALECTS.items()}  # as nearly all clients spell them
_log = logging.getLogger("lastcall")
_LINES = Lines()  # a process has one standard error


class Application(FastAPI):
    """FastAPI with the hot routes ahead of its middleware, which takes half as long as a whole passthrough."""

    front: "Front"
    admin_port: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.admin_port is not None and scope["type"] == "http" and _is_admin(scope["path"]) != (scope["server"][1] == self.admin_port):
            await _unrouted(scope["path"], desk=not _is_admin(scope["path"]))(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].startswith(("/v1/", "/s/")):
            await self.front(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Front:
    """The plain ASGI endpoint of everything under /v1 and /s/<session>/v1."""

    def __init__(self, in_force: Callable[[], InForce]) -> None:
        self._in_force = in_force

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        headers = client.headers
        in_force = self._in_force()
        setting = in_force.enter()
        setting.telemetry.exchange_started()
        # Clients of the messages API name its version, whatever they ask for.
        dialect = _MESSAGES if "anthropic-version" in headers else _CHAT
        try:
            if "sec-websocket-key" in headers:  # Codex tries this first, and goes on over HTTP only when told so with this status
                raise BadRequest("WebSockets are not served: send the same request over HTTP", status=426, code="lastcall_no_websocket")
            if "transfer-encoding" in headers and headers["transfer-encoding"].lower() != "chunked":  # the server undoes that one only
                raise BadRequest("a transfer-encoding other than 'chunked' is not understood", status=501, code="lastcall_bad_encoding")
            setting.origins.check(headers)
            session, path, judged = _route(scope)
            query: bytes = scope.get("query_string", b"")
            if judged is not None:
                dialect = judged
                await Exchange(setting, client, judged, path, query, session).run()
            else:
                await Passage(setting, client, dialect, scope["method"], path, query, session).run()
        except ClientGone:
            return
        except ProxyError as error:
            await _tell(client, dialect, error)
        except Exception as error:  # noqa: BLE001 - the error boundary
            # The one place where the unexpected ends. Its message may hold content: only kind and place are logged.
            _log.error("unexpected %s at %s", type(error).__name__, place_of(error))
            fault = ProxyError(
                500, "lastcall_internal_error", "Lastcall failed inside; the log names the place. The request was not answered."
            )
            await _tell(client, dialect, fault)
        finally:
            setting.telemetry.exchange_finished()
            in_force.leave(setting)


async def _tell(client: Client, dialect: Dialect, error: ProxyError) -> None:
    """An error response, or the end of a stream already under way; nothing after an answer that is whole."""
    if client.ended:
        return
    if client.status is not None:
        await client.write(dialect.stream_error(error.code, error.message, None), more=False)
        return
    fields = [_JSON] if error.retry else [_JSON, (b"x-should-retry", b"false")]
    await client.whole(error.status, fields, dialect.error(error.status, error.code, error.message, None))


def _route(scope: Scope) -> tuple[str | None, str, Dialect | None]:
    """The session that a path names, what it asks for, and the dialect where that is judged, however it is spelled."""
    if scope["method"] != "POST":
        return *_split(_raw_path(scope)), None
    if (known := _ROUTES.get(scope.get("raw_path", b""))) is not None:
        return None, *known
    session, path = _split(_raw_path(scope))
    return session, path, DIALECTS.get(path) or DIALECTS.get(plain_path(path))


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("latin-1").partition("?")[0] if raw else str(scope["path"])


def _split(path: str) -> tuple[str | None, str]:
    """The session a path names, and what comes after /v1: said twice where a client of the messages API, which adds it, was given it."""
    session = None
    if path.startswith("/s/"):
        match = _SESSION_PATH.fullmatch(path)
        if match is None:
            raise BadRequest(f"the path {path[:200]!r} names no route; use /s/<session>/v1/…", status=404, code="lastcall_no_route")
        session, path = unquote(match.group(1)), match.group(2)
        if not session.isascii() or not session.isprintable() or len(session) > 256:
            raise BadRequest("the session in the path /s/<session>/v1/… must be 1 to 256 printable ASCII characters")
    return session, path.removeprefix("/v1").removeprefix("/v1")


def _is_admin(path: str) -> bool:
    return path == PREFIX or path.startswith(PREFIX + "/")


def _tell_of_hanging(telemetry: Telemetry) -> None:
    telemetry.worker_hung(HUNG_SECONDS)
    _LINES.flush()


def _soon(work: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(_EVENTS_SECONDS, work)


def create_app(
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    log: Callable[[bytes], object] | None = None,
    reread: Callable[[Config], Config | None] | None = None,
    watch: Watch | None = None,
    one_of_several: bool = False,
) -> FastAPI:
    """The application. environ: where forward proxies are read from (default: the process's). log: takes whole JSON lines (default:
    standard error). reread, watch: see `Reloader` and `reloading`; without the first, the configuration stays as it is. one_of_several: a
    supervisor replaces this process when it ends. Resources are opened in the application's life span, inside the server's event loop."""
    environ = os.environ if environ is None else environ
    telemetry = Telemetry(
        registry_for(os.environ.get(DIRECTORY_VARIABLE)),
        models=config.models,
        teams=tuple(config.teams),
        tools=config.tools,
        log=log or _LINES,
        clock=time.time,
        later=_soon if log is None else None,
    )
    _LINES.on_loss = telemetry.lines_lost
    state: dict[str, Any] = {}

    def desk() -> Desk:
        return Desk(state["store"], lambda: state["in_force"].current, ttl=config.session.ttl, emit=telemetry.emit)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(_LINES.flush)
            stack.callback(telemetry.settle)
            store = state["store"] = _store(config, telemetry)
            stack.push_async_callback(store.close)
            in_force = state["in_force"] = await stack.enter_async_context(_in_force(config, store, telemetry, environ))
            if reread is not None:
                reloader = Reloader(config, reread=reread, apply=_applying(in_force, environ), tell=telemetry.emit)
                await stack.enter_async_context(reloading(reloader, watch))
            balances = asyncio.create_task(watch_balances(desk(), telemetry.emit))
            stack.callback(balances.cancel)
            if one_of_several:
                stack.enter_context(ended_if_hung(lambda: _tell_of_hanging(telemetry)))
            gc.collect()
            gc.freeze()  # what start-up made lives for ever: no collection need look at it again
            gc.set_threshold(*_GC_THRESHOLD)
            yield

    app = Application(title="Lastcall", version=__version__, lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.front = Front(lambda: state["in_force"])
    app.admin_port = config.server.admin_port
    app.mount(PREFIX, Guarded(admin_app(desk), lambda: state["in_force"].current.operators))
    add_health(app, lambda: state.get("store"), needs_store=config.store.failure_mode == "closed")
    if config.server.metrics_port is None:
        add_metrics(app, telemetry)
    app.add_exception_handler(404, _no_route)
    app.state.telemetry = telemetry
    return app


@contextlib.asynccontextmanager
async def _in_force(config: Config, store: Store, telemetry: Telemetry, environ: Mapping[str, str]) -> AsyncIterator[InForce]:
    """The first setting, and what becomes of it and its successors at the end."""
    new_id = _ids()
    sessions = Sessions(
        store,
        ttl=config.session.ttl,
        closed=config.store.failure_mode == "closed",
        patience=config.store.timeout,
        new_id=new_id,
        wall=time.time,
        on_failure=telemetry.emit,
    )
    bills = Bills(store, ttl=config.session.ttl, closed=config.store.failure_mode == "closed", new_id=new_id, on_failure=telemetry.emit)
    in_force = InForce(
        Setting(
            tenants=_tenants(config),
            sessions=sessions,
            bills=bills,
            ways=await _ways(config, environ, ()),
            telemetry=telemetry,
            session_headers=config.session.headers,
            max_body=config.server.max_body,
            clock=time.perf_counter,
            wall=time.time,
            new_id=new_id,
            operators=ring_of(config.server.admin_key),
            origins=origins_of(config),
        )
    )
    try:
        yield in_force
    finally:
        await in_force.close()
        await sessions.drain()
        await bills.drain()


def _applying(in_force: InForce, environ: Mapping[str, str]) -> Callable[[Config], Awaitable[None]]:
    """Puts another configuration in force: what can change while calls are under way, over what lasts as long as the process."""

    async def apply(config: Config) -> None:
        before = in_force.current
        renewed = msgspec.structs.replace(
            before,
            tenants=await asyncio.to_thread(_tenants, config),
            ways=await _ways(config, environ, before.ways),
            session_headers=config.session.headers,
            max_body=config.server.max_body,
            operators=ring_of(config.server.admin_key),
            origins=origins_of(config),
            users=0,
        )
        before.telemetry.name_labels(config.models, tuple(config.teams))
        in_force.replace(renewed)

    return apply


async def _ways(config: Config, environ: Mapping[str, str], before: Sequence[Way]) -> list[Way]:
    """The ways to a configuration's upstreams; one that leads where one did before keeps its connections. Raises `ConfigError`."""
    known = {way.upstream.target: way.upstream for way in before}
    made: list[Upstream] = []
    ways = []
    try:
        for name, upstream in config.upstreams.items():
            target = _target(name, upstream, environ)
            client = known.get(target)
            if client is None:
                client = Upstream(target)
                made.append(client)
            ways.append(Way(name, client, _serves(upstream), upstream.api_key == "passthrough"))
    except ConfigError:
        for client in made:
            await client.close()
        raise
    return ways


def _tenants(config: Config) -> Tenants:
    """Who may ask and how, by a configuration. Raises `ConfigError` for one in money without prices."""
    zone = UTC if config.timezone == "UTC" else ZoneInfo(config.timezone)
    return Tenants(config, zone=zone, prices=prices_of(config))


def _store(config: Config, telemetry: Telemetry) -> Store:
    """The store, with a guard where it can be away."""
    store = open_store(
        config.store.url, clock=time.time, random_bytes=secrets.token_bytes, timeout=config.store.timeout, on_change=telemetry.emit
    )
    if isinstance(store, MemoryStore):
        return store
    return GuardedStore(
        store,
        timeout=longest_call(config.store.url, config.store.timeout),
        clock=time.monotonic,
        on_change=telemetry.emit,
        fallback_secret=secrets.token_bytes(32),
    )


def _ids() -> Callable[[], str]:
    """Makes ids that are unique among all processes: a random start, then a count. Nothing relies on their being hard to guess."""
    start, count = secrets.token_hex(8), itertools.count(1)
    return lambda: f"{start}{next(count):08x}"


def _target(name: str, config: UpstreamConfig, environ: Mapping[str, str]) -> Target:
    key = config.api_key
    return Target(
        name=name,
        base_url=config.base_url,
        api_key=key if isinstance(key, str) and key != "passthrough" else None if isinstance(key, str) else key.get_secret_value(),
        key_header=config.key_header,
        ca_file=config.ca_file,
        verify=config.verify,
        proxy=config.proxy or proxy_from(environ, config.base_url),
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
    )


def _serves(config: UpstreamConfig) -> Callable[[str, str], bool]:
    models: Sequence[str] = config.models
    anything = "*" in models
    dialects = frozenset(config.dialects)
    return lambda dialect, model: dialect in dialects and (anything or fits(model, models))


async def _no_route(request: Request, _: Exception | None) -> Response:
    return _unrouted(request.url.path)


def _unrouted(path: str, *, desk: bool = False) -> Response:
    """The commonest slip is a base URL without its version: say so in the shape that clients show. desk: asked on the operator's port."""
    if _is_admin(path):
        why = "The operator's routes take server.admin_key, and are on server.admin_port alone where that is set."
    elif desk:
        why = "This port is server.admin_port, for /admin alone: the API is on server.port, under /v1."
    else:
        why = "The API is under /v1: set the client's base_url to http://<host>:<port>/v1."
    body = DIALECTS["/chat/completions"].error(404, "lastcall_no_route", f"No route {path[:200]!r}. {why}", None)
    return Response(body, 404, headers={"content-type": "application/json"})


def serve(config: Config, source: Source, *, on_listening: Callable[[str], object]) -> None:
    """Listens until stopped: SIGTERM or SIGINT lets streams under way end. Raises `ConfigError` for what cannot be served.

    source: where the configuration came from, read again on SIGHUP and when its file has changed. on_listening: told
    `http://address:port` as soon as connections are taken.
    """
    server = config.server
    _check_usable(config)
    with contextlib.ExitStack() as stack:
        ports = [port for port in (server.port, server.admin_port) if port is not None]
        listeners = [stack.enter_context(listen(server.host, port)) for port in ports]
        metrics = stack.enter_context(listen(server.host, server.metrics_port)) if server.metrics_port is not None else None
        on_listening(url_of(listeners[0]))
        _log_what_libraries_say()
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))  # so a server that SIGINT has ended in good order hands it on
        if server.workers > 1:
            _serve_workers(config, source, listeners, metrics)
        else:
            uvloop.run(_serve_here(config, source, listeners, metrics))


def _check_usable(config: Config) -> None:
    """Raises `ConfigError` for what only shows outside the file: certificates, prices, the store's URL. Once, and not by every worker."""
    for name, upstream in config.upstreams.items():
        tls_of(_target(name, upstream, os.environ))
    _tenants(config)
    open_store(config.store.url, clock=time.time, random_bytes=secrets.token_bytes, timeout=config.store.timeout)


def _rereading(source: Source) -> Callable[[Config], Config | None]:
    def reread(current: Config) -> Config | None:
        config = source.read_again(current, os.environ)
        if config is not None:
            _check_usable(config)
        return config

    return reread


async def _serve_here(config: Config, source: Source, listeners: list[socket.socket], metrics_listener: socket.socket | None) -> None:
    """The API and, where it has a port of its own, /metrics. Either one ending ends both."""
    app = create_app(config, reread=_rereading(source), watch=Watch(source))
    served = [(app, listeners)]
    if metrics_listener is not None:
        served.append((metrics_alone(app.state.telemetry), [metrics_listener]))
    servers = [(uvicorn.Server(uvicorn.Config(one, **_uvicorn_options(config))), sockets) for one, sockets in served]
    running = [asyncio.ensure_future(server.serve(sockets=sockets)) for server, sockets in servers]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*running)


def _serve_workers(config: Config, source: Source, listeners: list[socket.socket], metrics_listener: socket.socket | None) -> None:
    with tempfile.TemporaryDirectory(prefix="lastcall-metrics-") as directory:
        os.environ[DIRECTORY_VARIABLE] = directory
        os.environ[SOURCE_VARIABLE] = source.dumped()
        count = config.server.workers
        options = uvicorn.Config("proxy.app:from_environment", factory=True, workers=count, **_uvicorn_options(config))
        with _metrics_of_workers(config, directory, metrics_listener):
            workers = Workers(options, listeners, config=config, reread=_rereading(source), watch=Watch(source))
            workers.run()
    if workers.failed:
        raise ConfigError("a worker could not start; what it said of that stands above")


@contextlib.contextmanager
def _metrics_of_workers(config: Config, directory: str, listener: socket.socket | None) -> Iterator[None]:
    """Where /metrics has a port of its own, the supervisor serves it: it outlives any worker, and a busy worker delays no scrape."""
    if listener is None:
        yield
        return
    server = uvicorn.Server(uvicorn.Config(metrics_alone(Supervised(directory)), **_uvicorn_options(config)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def from_environment() -> FastAPI:
    """The application of a worker process, with the configuration `serve` resolved. Called once the worker can end in good order."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_supervisor()
    _log_what_libraries_say()
    source = load_source(os.environ.pop(SOURCE_VARIABLE))
    return create_app(load_dumped(os.environ.pop(CONFIG_VARIABLE)), reread=_rereading(source), one_of_several=True)


def _log_what_libraries_say() -> None:
    """Their own handlers would wait for an error output that nobody reads, and everybody with them."""
    logging.basicConfig(level=logging.WARNING, handlers=[Handler(_LINES)])
    atexit.register(_LINES.flush)  # what they say of a start that failed comes after everything that was to run


def _uvicorn_options(config: Config) -> dict[str, Any]:
    return {
        "host": config.server.host,
        "port": config.server.port,
        "http": protocol(config.server.client_timeout),
        "loop": "uvloop",
        "ws": "none",
        "access_log": False,
        "log_config": None,
        "log_level": "warning",
        "server_header": False,
        "proxy_headers": False,  # where a request came from is nothing that Lastcall asks
        "date_header": False,  # upstream answers bring their own
        "timeout_graceful_shutdown": _DRAIN_SECONDS,
    }
