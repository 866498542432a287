"""A request on a route that Lastcall does not judge: bytes through, both ways.

With teams, read just as far as it takes to keep a team to its models: a body may name one, and a list of models shows what the team
may use.
"""

import re
from urllib.parse import unquote

import msgspec

from proxy.client import Client
from proxy.errors import BadRequest, ProxyError
from proxy.events import UnjudgedEnded
from proxy.exchange import Setting, Way
from proxy.tenants import Tenant
from proxy.upstream.http import Body, Response

_PATH_DIALECTS = {"/responses": "responses", "/messages": "messages"}
_NO_STEP = re.compile(r"/(?:\.?/)+")
_MODELS = re.compile(r"/models(?:/(?P<model>.+))?", re.DOTALL)
_FORM_FIELD = re.compile(rb'name="?model"?(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)', re.IGNORECASE)


def plain_path(path: str) -> str:
    """A path as servers read it, however it is spelled: a base URL that ends in a slash gives two of them."""
    return _NO_STEP.sub("/", unquote(path)).rstrip("/")


class _Named(msgspec.Struct):
    model: str | None = None


class _Listed(msgspec.Struct):
    id: str = ""


class Passage:
    """One request and its answer. dialect: the one its client speaks, where the path does not say."""

    def __init__(self, setting: Setting, client: Client, dialect: str, method: str, path: str, query: bytes) -> None:
        self._set = setting
        self._client = client
        self._dialect = dialect
        self._method = method
        self._path = path
        self._query = query
        self._team = ""
        self._status = 499

    async def run(self) -> None:
        """The whole of it. Raises `ProxyError` before anything was sent: for a request that cannot be served."""
        started = self._set.clock()
        try:
            await self._pass()
        except ProxyError as error:
            # A body under way cannot say that it broke off: left without an end, it makes the server break the connection off too.
            if self._client.status is None:
                self._status = error.status
                raise
        finally:
            self._set.telemetry.emit(UnjudgedEnded(status=self._status, seconds=self._set.clock() - started, team=self._team))

    async def _pass(self) -> None:
        client, path = self._client, plain_path(self._path)
        tenant = self._set.tenants.of(client.headers)
        self._team = tenant.name
        models = _MODELS.fullmatch(path) if self._method == "GET" else None
        if models is None:
            tenant.check_endpoint(path)
        elif models["model"]:
            tenant.check_model(models["model"])
        way = self._way(tenant)
        body = await self._body(tenant)
        if models is not None and not models["model"] and tenant.is_restricted:
            await self._list(way, tenant)
        elif body is None or isinstance(body, bytes):
            async with client:
                response = await way.upstream.send(self._method, self._path, self._query, client.fields, body, plain=False)
            await self._hand_on(response)
        else:
            await self._hand_on(await way.upstream.send(self._method, self._path, self._query, client.fields, body, plain=False))

    def _way(self, tenant: Tenant) -> Way:
        kind = next((name for start, name in _PATH_DIALECTS.items() if self._path.startswith(start)), self._dialect)
        ways = self._set.ways_of(tenant)
        way = next((way for way in ways if way.serves(kind, "")), ways[0])
        if way.passthrough:
            self._set.tenants.check_passthrough(self._client.headers, way.name)
        return way

    async def _body(self, tenant: Tenant) -> Body:
        """The client's body: as it comes, or whole where it must be looked into first."""
        client = self._client
        length = client.headers.get("content-length")
        if "transfer-encoding" not in client.headers and (length is None or length == "0"):
            return None
        if not tenant.is_restricted:
            return client.pieces()
        if client.headers.get("content-encoding", "identity") != "identity":
            raise BadRequest(
                f"team {tenant.name!r} may use some models only, and a body with a content-encoding cannot be looked into; send it plain",
                status=415,
                code="lastcall_bad_encoding",
            )
        body = await client.body(self._set.max_body)
        for model in models_named(body, client.headers.get("content-type", "")):
            tenant.check_model(model)
        return body

    async def _hand_on(self, response: Response) -> None:
        client = self._client
        async with client:
            self._status = response.status
            await client.start(response.status, response.headers)
            try:
                async for chunk in response.chunks():
                    await client.write(chunk)
            finally:
                response.close()
            await client.write(b"", more=False)

    async def _list(self, way: Way, tenant: Tenant) -> None:
        client = self._client
        async with client:
            response = await way.upstream.send(self._method, self._path, self._query, client.fields, None, plain=True)
            body = await response.read()
            self._status = response.status
            await client.whole(response.status, response.headers, list_for(tenant, body))


def models_named(body: bytes, content_type: str) -> list[str]:
    """The models that a body asks for: of JSON the one it names, of a form each one."""
    if content_type.lower().startswith("multipart/form-data"):
        return [value.decode("utf-8", "replace") for value in _FORM_FIELD.findall(body)]
    try:
        named = msgspec.json.decode(body, type=_Named).model
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [] if named is None else [named]


def list_for(tenant: Tenant, body: bytes) -> bytes:
    """An upstream's list of models without those that the tenant may not use; anything else as it is."""
    try:
        listing = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        entries = msgspec.json.decode(listing.get("data", b""), type=list[msgspec.Raw])
        ids = [msgspec.json.decode(entry, type=_Listed).id for entry in entries]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body
    kept = [entry for entry, name in zip(entries, ids, strict=True) if tenant.may_use(name)]
    return msgspec.json.encode(listing | {"data": kept})
