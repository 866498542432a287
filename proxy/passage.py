"""A request on a route that Lastcall does not judge: bytes through, both ways.

With teams, read just as far as it takes to keep a team to its models (a body may name one, and a list of models shows what the team
may use) and to its budgets: what a body may cost at most, and what the answer says that it did.
"""

import re
from urllib.parse import unquote

import msgspec

from proxy.bill import Bill
from proxy.client import Client, ClientGone
from proxy.dialects import Dialect
from proxy.engine import NOT_NOW
from proxy.errors import BadRequest, ProxyError, UpstreamFailed
from proxy.events import UnjudgedEnded
from proxy.exchange import Setting, Way
from proxy.exchange.closing import JSON, NO_RETRY, retry_after
from proxy.identity import Tighten
from proxy.metering import charge_of, is_charged, is_stored, models_named
from proxy.models import Action, Allowance, Notice
from proxy.nudge import stopped_message, why_budget
from proxy.policy import Mode
from proxy.purse import check_priced
from proxy.tenants import OtherEndpoints, Tenant
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Body, Response

_CODINGS = frozenset({b"accept-encoding", b"content-encoding"})
_PLAIN = (b"accept-encoding", b"identity")
_UNTIGHTENED = Tighten()
_PATH_DIALECTS = {"/responses": "responses", "/messages": "messages"}
_NO_STEP = re.compile(r"/(?:\.?/)+")
_MODELS = re.compile(r"/models(?:/(?P<model>.+))?", re.DOTALL)


def plain_path(path: str) -> str:
    """A path as servers read it, however it is spelled: a base URL that ends in a slash gives two of them."""
    return _NO_STEP.sub("/", unquote(path)).rstrip("/")


class _Listed(msgspec.Struct):
    id: str = ""


class Passage:
    """One request and its answer. dialect: the one its client speaks, where the path does not say."""

    def __init__(self, setting: Setting, client: Client, dialect: Dialect, method: str, path: str, query: bytes) -> None:
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
        charged = tenant.other_endpoints is OtherEndpoints.CHARGE and is_charged(self._method, path)
        metered = charged and not is_stored(path)
        body = await self._body(tenant, whole=metered or tenant.is_restricted)
        if models is not None and not models["model"] and tenant.is_restricted:
            await self._list(way, tenant)
            return
        fields = client.fields
        if metered:  # the answer is read, and the body was decoded
            fields = [*(field for field in fields if field[0].lower() not in _CODINGS), _PLAIN]
        if not charged:
            await self._forward(way, fields, body)
            return
        bill = await self._bill(way, tenant, path, body if isinstance(body, bytes) else b"")
        if bill is not None:
            await self._charged(way, fields, body, bill)

    async def _bill(self, way: Way, tenant: Tenant, path: str, body: bytes) -> Bill | None:
        """What the team pays the call from; None when a budget of its had nothing left and the client was told."""
        charge = charge_of(path, body, self._client.headers.get("content-type", ""))
        policy, price = tenant.policy(charge.model), tenant.price(charge.model, way.name)
        if charge.model:
            check_priced(price, policy, _UNTIGHTENED, charge.model)
        bill = await self._set.bills.open(tenant, tenant.quota(self._set.wall()), price, charge)
        if bill.refused is None or policy.mode is Mode.OBSERVE:
            return bill
        await self._refuse(bill.refused)
        return None

    async def _charged(self, way: Way, fields: RawHeaders, body: Body, bill: Bill) -> None:
        try:
            await self._forward(way, fields, body, bill)
        except ProxyError:
            bill.void()  # there was no answer, unless it is settled already
            raise
        except ClientGone:
            if not isinstance(body, bytes | None) and self._client.status is None:
                bill.void()  # its body never came to its end
            raise
        finally:
            await bill.close()

    async def _forward(self, way: Way, fields: RawHeaders, body: Body, bill: Bill | None = None) -> None:
        """bill: what reads the answer beside, and is settled by it."""
        if body is None or isinstance(body, bytes):
            async with self._client:
                response = await way.upstream.send(self._method, self._path, self._query, fields, body, plain=False)
        else:
            response = await way.upstream.send(self._method, self._path, self._query, fields, body, plain=False)
        await self._hand_on(response, bill)

    async def _refuse(self, budget: Allowance) -> None:
        """As on judged routes whose policy answers with an error."""
        message = stopped_message(why_budget(budget), budget.reason, budget)
        notice = Notice(
            action=Action.REFUSE,
            reason=budget.reason,
            message=message,
            limit=budget.limit,
            scope=budget.scope,
            spent=budget.spent,
            resets_at=budget.resets_at,
        )
        self._status = status = NOT_NOW if budget.passes else 400
        again = retry_after(budget, self._set.new_id()) if budget.passes else NO_RETRY
        told = [JSON, again, (b"x-lastcall-action", b"refuse"), (b"x-lastcall-reason", budget.reason.encode())]
        await self._client.whole(status, told, self._dialect.error(status, f"lastcall_{budget.reason}", message, notice))

    def _way(self, tenant: Tenant) -> Way:
        kind = next((name for start, name in _PATH_DIALECTS.items() if self._path.startswith(start)), self._dialect.name)
        ways = self._set.ways_of(tenant)
        way = next((way for way in ways if way.serves(kind, "")), ways[0])
        if way.passthrough:
            self._set.tenants.check_passthrough(self._client.headers, way.name)
        return way

    async def _body(self, tenant: Tenant, *, whole: bool) -> Body:
        """The client's body: as it comes, or whole where it must be looked into first."""
        client = self._client
        length = client.headers.get("content-length")
        if "transfer-encoding" not in client.headers and (length is None or length == "0"):
            return None
        if not whole:
            return client.pieces()
        if tenant.is_restricted and client.headers.get("content-encoding", "identity") != "identity":
            raise BadRequest(
                f"team {tenant.name!r} may use some models only, and a body with a content-encoding cannot be looked into; send it plain",
                status=415,
                code="lastcall_bad_encoding",
            )
        body = await client.body(self._set.max_body)
        for model in models_named(body, client.headers.get("content-type", "")):
            tenant.check_model(model)
        return body

    async def _hand_on(self, response: Response, bill: Bill | None) -> None:
        client = self._client
        away = () if bill is None or not bill.away else ((b"x-lastcall-degraded", b"store"),)
        if bill is not None and response.status >= 400:
            bill.void()
        async with client:
            self._status = response.status
            try:
                await client.start(response.status, [*response.headers, *away])
                async for chunk in response.chunks():
                    if bill is not None:
                        bill.read(chunk)
                    await client.write(chunk)
            except UpstreamFailed:
                if bill is not None:
                    bill.settle(completed=False)
                raise
            finally:
                response.close()
            if bill is not None:
                bill.settle(completed=True)
            await client.write(b"", more=False)

    async def _list(self, way: Way, tenant: Tenant) -> None:
        client = self._client
        async with client:
            response = await way.upstream.send(self._method, self._path, self._query, client.fields, None, plain=True)
            body = await response.read()
            self._status = response.status
            await client.whole(response.status, response.headers, list_for(tenant, body))


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
