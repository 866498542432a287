"""The routes for whoever runs Lastcall: health and metrics."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from proxy.store import GuardedStore, Store
from proxy.telemetry import Supervised, Telemetry


def add_health(app: FastAPI, store: Callable[[], Store | None], *, needs_store: bool) -> None:
    """Whether the process answers, and whether requests can be served. needs_store: the failure mode is `closed`."""

    @app.get("/livez")
    async def livez() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        """Requests can be served: with failure mode `closed` that takes the store."""
        opened = store()
        if not isinstance(opened, GuardedStore) or await opened.serves():
            return {"status": "ok"}
        if needs_store and opened.lost:
            response.status_code = 503
            return {"status": "store away"}
        return {"status": "degraded", "store": "away"}


def add_metrics(app: FastAPI, telemetry: Telemetry | Supervised) -> None:
    """The exposition for Prometheus."""

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus exposition; with several workers the sum of all."""
        telemetry.settle()
        body, content_type = await asyncio.to_thread(telemetry.exposition, request.headers.get("accept"))
        return Response(body, headers={"content-type": content_type})


def metrics_alone(telemetry: Telemetry | Supervised) -> FastAPI:
    """What a port of its own serves."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    add_metrics(app, telemetry)
    return app
