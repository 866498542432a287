"""A request on a route that Lastcall does not judge: bytes through, both ways.

Read just as far as it takes to keep a team to its models (a body may name one, and a list of models shows what the team may use), and a
team and a session that is named to their budgets: what a body may cost at most, and what the answer says that it did.
"""

import asyncio
import re

import msgspec

from proxy.bill import Bill
from proxy.calls import is_stream
from proxy.client import Client, ClientGone
from proxy.dialects import DIALECTS, Dialect
from proxy.dialects.responses_stream import last_response
from proxy.dialects.sse import Splitter
from proxy.engine import NOT_NOW
from proxy.errors import BadRequest, ProxyError, UpstreamFailed
from proxy.events import UnjudgedEnded
from proxy.exchange import Setting, Way
from proxy.exchange.closing import JSON, NO_RETRY, retry_after
from proxy.identity import Identity, Tighten, identify
from proxy.leases import WHATEVER_COMES
from proxy.metering import Results, Work, charge_of, is_charged, is_stored, models_named, shows_results, shows_work, work_of
from proxy.models import Action, Allowance, Answer, Notice, Reason, Usage
from proxy.nudge import stopped_message, why_budget
from proxy.policy import Mode
from proxy.purse import check_priced
from proxy.tenants import OtherEndpoints, Tenant
from proxy.turns import is_under_way
from proxy.upstream import unquoted
from proxy.upstream.headers import RawHeaders
from proxy.upstream.http import Body, Response

_CODINGS = frozenset({b"accept-encoding", b"content-encoding"})
_PLAIN = (b"accept-encoding", b"identity")
_UNTIGHTENED = Tighten()
_PATH_DIALECTS = {"/responses": "responses", "/messages": "messages"}
_NO_STEP = re.compile(r"/(?:\.?/)+")
_IN_PATH = re.compile(r"/(?:engines|deployments)/([^/]+)")
_ECHOED = frozenset({"TRACE", "TRACK"})  # the answer shows the request, and with it whatever key was put in
_MODELS = re.compile(r"/models(?:/(?P<model>.+))?", re.DOTALL)
_KEPT_ANSWER = re.compile(r"/responses/[^/]+")


def plain_path(path: str) -> str:
    """A path as servers read it, however it is spelled: a base URL that ends in a slash gives two of them."""
    return _NO_STEP.sub("/", unquoted(path)).rstrip("/")


class _Listed(msgspec.Struct):
    id: str = ""


class _Conversation(msgspec.Struct):
    id: str = ""


class _Kept(msgspec.Struct):
    """An answer that the upstream kept. background: it was made while nobody waited for it; None where its server does not say."""

    background: bool | None = None
    conversation: _Conversation | None = None


class Passage:
    """One request and its answer. dialect: the one its client speaks, where the path does not say. path_session: named in the path."""

    def __init__(
        self, setting: Setting, client: Client, dialect: Dialect, method: str, path: str, query: bytes, path_session: str | None
    ) -> None:
        self._set = setting
        self._client = client
        self._dialect = dialect
        self._method = method
        self._path = path
        self._query = query
        self._path_session = path_session
        self._team = ""
        self._status = 499
        self._mode = Mode.ENFORCE
        self._refused: Reason | None = None
        self._bill: Bill | None = None
        self._streams = False

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
            self._emit(self._set.clock() - started)

    def _emit(self, seconds: float) -> None:
        ended, bill = UnjudgedEnded(self._status, seconds, self._team, refused=self._refused, mode=str(self._mode)), self._bill
        if bill is not None:
            ended = msgspec.structs.replace(
                ended,
                model=bill.charge.model,
                input_tokens=bill.usage.input_tokens,
                output_tokens=bill.usage.output_tokens,
                cached_tokens=bill.usage.cached_tokens,
                cost=bill.cost,
                usage_estimated=bill.estimated,
            )
        self._set.telemetry.emit(ended)

    async def _pass(self) -> None:
        if self._method in _ECHOED:
            raise BadRequest(f"the method {self._method} is not forwarded", status=405, code="lastcall_bad_method")
        client, path = self._client, plain_path(self._path)
        tenant = self._set.tenants.of(client.headers)
        self._team = tenant.name
        models = _MODELS.fullmatch(path) if self._method == "GET" else None
        if models is None:
            tenant.check_endpoint(path)
        elif models["model"]:
            tenant.check_model(models["model"])
        for model in _IN_PATH.findall(path):
            tenant.check_model(model)
        way = self._way(tenant)
        payer = self._payer(tenant) if is_charged(self._method, path) else None
        metered = payer is not None and not is_stored(path)
        body = await self._body(tenant, whole=metered or tenant.is_restricted)
        if models is not None and not models["model"] and tenant.is_restricted:
            await self._list(way, tenant)
            return
        if self._method == "GET" and body is None and _KEPT_ANSWER.fullmatch(path):
            await self._kept(way, tenant)
            return
        if tenant.name and tenant.other_endpoints is OtherEndpoints.CHARGE and await self._shown(way, tenant, path):
            return
        fields = client.fields
        if metered:  # the answer is read, and the body was decoded
            fields = [*(field for field in fields if field[0].lower() not in _CODINGS), _PLAIN]
        if payer is None:
            await self._forward(way, fields, body)
            return
        await self._charged(way, fields, body, await self._opened(way, tenant, payer, path, body))

    def _payer(self, tenant: Tenant) -> Identity | None:
        """Who pays, the session that is named and the team; None where nobody does: a team that may go free, or nobody that is known."""
        if tenant.name and tenant.other_endpoints is not OtherEndpoints.CHARGE:
            return None
        identity = identify(self._client.headers, self._path_session, {}, self._set.session_headers, tenant.name)
        return identity if tenant.name or identity.session is not None else None

    async def _opened(self, way: Way, tenant: Tenant, payer: Identity, path: str, body: Body) -> Bill:
        """What the call is paid from."""
        charge = charge_of(path, body if isinstance(body, bytes) else b"", self._client.headers.get("content-type", ""))
        policy, price = tenant.policy(charge.model), tenant.price(charge.model, way.name, charge.quality, charge.size)
        if charge.model:
            check_priced(price, policy, _UNTIGHTENED if payer.session is None else payer.tighten, charge.model)
        enforced, whole = policy.mode is Mode.ENFORCE, body is None or isinstance(body, bytes)
        bill = await self._set.bills.open(
            tenant,
            tenant.quota(self._set.wall()),
            price,
            charge,
            payer,
            policy.budgets,
            patient=enforced,
            within=self._client if whole else WHATEVER_COMES,  # it cannot be seen that a client left which is still to send its body
        )
        if policy.mode is Mode.OBSERVE:
            self._mode, bill.time_left = policy.mode, None
            self._refused = None if bill.refused is None else bill.refused.reason
            bill.refused = None
        return bill

    async def _charged(self, way: Way, fields: RawHeaders, body: Body, bill: Bill) -> None:
        if bill.refused is not None:
            await self._refuse(bill.refused)
            return
        self._bill = bill
        try:
            async with asyncio.timeout(bill.time_left):
                await self._forward(way, fields, body, bill)
        except TimeoutError:
            bill.settle(completed=False)
            await self._time_over(bill)
        except ProxyError:
            bill.void()  # there was no answer, unless it is settled already
            raise
        except ClientGone:
            if not isinstance(body, bytes | None) and self._client.status is None:
                bill.void()  # its body never came to its end
            raise
        finally:
            await bill.close()

    async def _time_over(self, bill: Bill) -> None:
        """The session's time is over before the answer is whole. A body that is no stream of events can only break off."""
        if bill.deadline is None or self._client.ended:
            return
        if self._client.status is None:
            await self._refuse(bill.deadline)
        elif self._streams:
            notice = _notice(bill.deadline)
            self._refused = notice.reason
            end = self._dialect.stream_error(f"lastcall_{notice.reason}", notice.message, notice)
            await self._client.write(b"\n\n" + end, more=False)

    async def _forward(self, way: Way, fields: RawHeaders, body: Body, bill: Bill | None = None) -> None:
        """bill: what reads the answer beside, and is settled by it."""
        if body is None or isinstance(body, bytes):
            with self._client:
                response = await way.upstream.send(self._method, self._path, self._query, fields, body, plain=False)
        else:
            response = await way.upstream.send(self._method, self._path, self._query, fields, body, plain=False)
        await self._hand_on(response, bill)

    async def _refuse(self, budget: Allowance) -> None:
        """As on judged routes whose policy answers with an error."""
        notice = _notice(budget)
        self._refused = notice.reason
        self._status = status = NOT_NOW if budget.passes else 400
        again = retry_after(budget, self._set.new_id()) if budget.passes else NO_RETRY
        told = [JSON, again, (b"x-lastcall-action", b"refuse"), (b"x-lastcall-reason", budget.reason.encode())]
        await self._client.whole(status, told, self._dialect.error(status, f"lastcall_{budget.reason}", notice.message, notice))

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
        if tenant.is_restricted:
            self._check_models(tenant, body)
        return body

    def _check_models(self, tenant: Tenant, body: bytes) -> None:
        models = models_named(body, self._client.headers.get("content-type", ""))
        if models is None:
            raise BadRequest(
                f"team {tenant.name!r} may use some models only, and which one this body asks for cannot be told; "
                "send a JSON object, or a form whose fields have plain names"
            )
        for model in models:
            tenant.check_model(model)

    async def _hand_on(self, response: Response, bill: Bill | None) -> None:
        client = self._client
        away = () if bill is None or not bill.away else ((b"x-lastcall-degraded", b"store"),)
        if bill is not None and response.status >= 400:
            bill.void()
        with client:
            self._status = response.status
            self._streams = is_stream(response)
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
        with self._client:
            response, body = await self._whole(way)
            await self._client.whole(response.status, response.headers, list_for(tenant, body))

    async def _kept(self, way: Way, tenant: Tenant) -> None:
        """An answer that was made in the background is read as it is handed on, whole or as a stream that is resumed."""
        client = self._client
        with client:
            response = await self._asked(way)
            if not is_stream(response):
                body = await response.read()
                if response.status == 200:
                    await self._learn(tenant, body)
                await client.whole(response.status, response.headers, body)
                return
            splitter = Splitter()
            try:
                await client.start(response.status, response.headers)
                async for chunk in response.chunks():
                    for event in splitter.feed(chunk):
                        if made := last_response(event):
                            await self._learn(tenant, made)
                    await client.write(chunk)
            finally:
                response.close()
            await client.write(b"", more=False)

    async def _learn(self, tenant: Tenant, body: bytes) -> None:
        """What an answer asks for belongs to the session that was given it while it was being made."""
        answer, kept = DIALECTS["/responses"].read_answer(body), _kept_of(body)
        if answer.id is None or kept.background is False or not _is_made(answer):
            return
        hints = {} if kept.conversation is None else {"conversation": kept.conversation.id}
        identity = identify(self._client.headers, self._path_session, hints, self._set.session_headers, tenant.name)
        await self._set.sessions.learn(identity, tenant.policy(answer.model or ""), [answer.id, *hints.values()], answer)

    async def _shown(self, way: Way, tenant: Tenant, path: str) -> bool:
        """Whether the answer shows what was done while nobody waited for it; then it is given, and the work paid."""
        if shows_work(self._method, path):
            await self._worked(way, tenant)
        elif (batch := shows_results(self._method, path)) is not None:
            await self._results(way, tenant, batch)
        else:
            return False
        return True

    async def _worked(self, way: Way, tenant: Tenant) -> None:
        """A batch or training: what it came to is paid when it is first seen to have ended, and cannot be refused any more."""
        with self._client:
            response, body = await self._whole(way)
            work = work_of(body)
            if response.status == 200 and (usage := work.spent) is not None:
                await self._pay_once(way, tenant, work, usage)
            await self._client.whole(response.status, response.headers, body)

    async def _results(self, way: Way, tenant: Tenant, batch: str) -> None:
        """Of a batch that does not say itself what it came to: paid when they are first read to their end."""
        client, results = self._client, Results()
        with client:
            response = await way.upstream.send(self._method, self._path, self._query, client.fields, None, plain=True)
            self._status = response.status
            try:
                await client.start(response.status, response.headers)
                async for chunk in response.chunks():
                    results.feed(chunk)
                    await client.write(chunk)
            finally:
                response.close()
            results.feed(b"")
            for model, usage in results.spent.items() if response.status == 200 else ():
                await self._pay_once(way, tenant, Work(f"{batch} {model}", model=model), usage)
            await client.write(b"", more=False)

    async def _pay_once(self, way: Way, tenant: Tenant, work: Work, usage: Usage) -> None:
        price, quota = tenant.price(work.model, way.name), tenant.quota(self._set.wall())
        self._bill = await self._set.bills.once(tenant, quota, price, work, usage)

    async def _whole(self, way: Way) -> tuple[Response, bytes]:
        """The answer to a request without a body, and its bytes."""
        response = await self._asked(way)
        return response, await response.read()

    async def _asked(self, way: Way) -> Response:
        response = await way.upstream.send(self._method, self._path, self._query, self._client.fields, None, plain=True)
        self._status = response.status
        return response


def _is_made(answer: Answer) -> bool:
    return bool(answer.choices) and not is_under_way(answer.choices[0].finish)


def _kept_of(body: bytes) -> _Kept:
    try:
        return msgspec.json.decode(body, type=_Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Kept()


def _notice(budget: Allowance) -> Notice:
    return Notice(
        action=Action.REFUSE,
        reason=budget.reason,
        message=stopped_message(why_budget(budget), budget.reason, budget),
        limit=budget.limit,
        scope=budget.scope,
        spent=budget.spent,
        held=budget.held,
        resets_at=budget.resets_at,
    )


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
