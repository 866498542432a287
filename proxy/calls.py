"""The upstream calls of one exchange: sent, sent again without what an upstream will not have, and accounted for."""

import re
from collections.abc import Callable

import msgspec

from proxy.bounded import Bounded
from proxy.budgets import clamp, usage_of, wanted_output
from proxy.client import Client
from proxy.dialects import Dialect
from proxy.dialects.sse import Splitter
from proxy.errors import UpstreamCut, UpstreamFailed
from proxy.events import UpstreamError, error_of
from proxy.models import Answer, Edits, Usage
from proxy.policy import Mode
from proxy.sessions import Session
from proxy.upstream.http import Response, Upstream

_OBSERVE = Mode.OBSERVE  # the enum's own attribute costs a look-up each time
_MAX_QUIRKS = 1024
_LONGEST_MODEL = 256  # characters; a client names it
_ERROR_BODY = 1 << 20  # bytes of an error answer that are looked at

# What upstreams say when a chat template or an API rejects the place of an added text, or does not know `stream_options`.
_REJECTS_INSERT = re.compile(rb"\brole|alternat|template|system message|conversation", re.IGNORECASE)
_REJECTS_USAGE = re.compile(rb"stream_options|include_usage", re.IGNORECASE)


class Quirks:
    """What each upstream's models were seen to reject: remembered, so that they are asked only once. Bounded."""

    def __init__(self) -> None:
        self._rejected: Bounded[tuple[str, str, str], None] = Bounded(_MAX_QUIRKS)

    def rejects(self, upstream: str, model: str, what: str) -> bool:
        return (upstream, model, what) in self._rejected

    def note(self, upstream: str, model: str, what: str) -> None:
        if len(model) > _LONGEST_MODEL:
            return
        self._rejected.keep((upstream, model, what), None)


class Account(msgspec.Struct):
    """What an exchange's calls came to: for metrics and for the answer that Lastcall writes itself. cost: nano-dollars.

    last_error: why the newest call that was made for such an answer came to none, in Lastcall's words; None where it did.
    """

    calls: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    estimated: bool = False
    errors: tuple[UpstreamError, ...] = ()
    cached_tokens: int = 0
    asked_at: float | None = None
    last_error: str | None = None

    @property
    def usage(self) -> Usage:
        return Usage(self.input_tokens, self.output_tokens)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """An error answer of the upstream, read whole, to be passed on unchanged."""

    response: Response
    body: bytes


class Calls(msgspec.Struct):
    """Makes the calls of one exchange. Every call must be settled, by `settle`; no call is settled twice.

    name: the upstream's. clock: seconds, for durations only.
    """

    _client: Client
    _dialect: Dialect
    _session: Session
    _upstream: Upstream
    _name: str
    _path: str
    _query: bytes
    _quirks: Quirks
    _clock: Callable[[], float]
    account: Account = msgspec.field(default_factory=Account)
    _since: float = 0.0
    _asked: bool = False
    _settled: str = ""  # the lease that was at last

    async def send(self, edits: Edits) -> Response | Refusal:
        """One call. An upstream that rejects an added text or a wish of Lastcall's is asked again without it, once each.

        Raises `UpstreamFailed`, then already settled.
        """
        edits = self._without_known_quirks(self._with_wishes(edits))
        left_out: list[str] = []
        while True:
            answer = await self._send_once(edits)
            if isinstance(answer, Response):
                for what in left_out:  # only now it is certain that this was what the upstream minded
                    self._quirks.note(self._name, self._session.request.model, what)
                return answer
            rejected, less = self._rejected(answer, edits)
            if rejected is None:
                return answer
            left_out.append(rejected)
            edits = less

    def _with_wishes(self, edits: Edits) -> Edits:
        """The edits with what Lastcall itself wants of the upstream: a stream's usage, and no more output than was granted."""
        session, request = self._session, self._session.request
        if session.policy.mode is _OBSERVE:
            return edits
        ask_usage = request.stream and not request.wants_usage
        most = clamp(request, session.granted, wanted_output(request))
        if not ask_usage and most is None:
            return edits
        return msgspec.structs.replace(edits, ask_usage=ask_usage, max_output=most)

    def _without_known_quirks(self, edits: Edits) -> Edits:
        model = self._session.request.model
        if edits.ask_usage and self._quirks.rejects(self._name, model, "usage"):
            edits = msgspec.structs.replace(edits, ask_usage=False)
        if edits.inserts and self._quirks.rejects(self._name, model, "insert"):
            edits = msgspec.structs.replace(edits, inserts=())
        return edits

    def _rejected(self, answer: Refusal, edits: Edits) -> tuple[str | None, Edits]:
        status = answer.response.status
        if edits.ask_usage and status in (400, 422) and _REJECTS_USAGE.search(answer.body):
            return "usage", msgspec.structs.replace(edits, ask_usage=False)
        if edits.inserts and status in (400, 422, 500) and _REJECTS_INSERT.search(_complaint(answer.body)):
            return "insert", msgspec.structs.replace(edits, inserts=())
        return None, edits

    async def _send_once(self, edits: Edits) -> Response | Refusal:
        body = self._dialect.rewrite(self._session.request, edits)
        account = self.account
        self._since = since = self._clock()
        if account.asked_at is None:
            account.asked_at = since
        account.calls += 1
        self._asked = True
        try:
            response = await self._upstream.send("POST", self._path, self._query, self._client.fields, body, plain=True)
            kind = error_of(response.status)
            if kind is None:
                return response
            refusal = Refusal(response, await response.read(_ERROR_BODY))
        except UpstreamFailed as error:
            self.cut(error)
            unheard = _kind_of(error) is UpstreamError.UNREACHABLE
            self.settle(None if unheard else Answer(), completed=False)
            raise
        account.errors += (kind,)
        return refusal

    def cut(self, error: UpstreamFailed) -> None:
        """Notes that an answer broke off, or never began."""
        self.account.errors += (_kind_of(error),)

    def complete(self, answer: Answer) -> None:
        """Ends the call under way with the whole of its answer, which may be an error that the upstream reported."""
        if answer.error and self._session.lease != self._settled:
            self.account.errors += (UpstreamError.REPORTED,)
        self.settle(answer, completed=True)

    def settle(self, answer: Answer | None, *, completed: bool) -> None:
        """Ends the call under way: what it cost (nothing without an answer), and whether it counts as a step. The first word stands."""
        account, session = self.account, self._session
        lease = session.lease
        if lease == self._settled:
            return
        self._settled = lease
        if self._asked:
            account.seconds += self._clock() - self._since
            self._asked = False
        if answer is None:
            session.settlements.append(session.purse.nothing(lease))
            return
        usage, estimated = usage_of(answer, session.request)
        account.input_tokens += usage.input_tokens
        account.output_tokens += usage.output_tokens
        account.cached_tokens += usage.cached_tokens
        if estimated:
            account.estimated = True
        # A body that goes on from what the upstream keeps is no measure of what was read.
        size = 0 if estimated or session.history.tokens else session.request.text_bytes
        settled = session.purse.settlement(lease, usage, completed=completed, body_bytes=size)
        account.cost += settled.cost
        session.settlements.append(settled)

    def close(self) -> None:
        """Settles what is still open: a call that was broken off pays for its input, one that was never made gives its lease back."""
        if self._session.lease != self._settled:
            self.settle(Answer() if self._asked else None, completed=False)

    async def whole_answer(self, edits: Edits) -> Answer | None:
        """One call, read to its end and settled; None when it failed in any way, which `account.last_error` tells."""
        self.account.last_error = None
        try:
            response = await self.send(edits)
        except UpstreamFailed as error:
            self.account.last_error = error.message
            return None
        if isinstance(response, Refusal):
            self.account.last_error = f"the upstream {self._name!r} answered with status {response.response.status}"
            self.settle(None, completed=False)
            return None
        try:
            answer = await self._aggregated(response) if is_stream(response) else self._dialect.read_answer(await response.read())
        except UpstreamFailed as error:
            self.account.last_error = error.message
            self.cut(error)
            self.settle(Answer(), completed=False)
            return None
        self.complete(answer)
        if answer.error:
            self.account.last_error = f"the upstream {self._name!r} reported an error inside its answer"
        return None if answer.error else answer

    async def _aggregated(self, response: Response) -> Answer:
        splitter, reader = Splitter(), self._dialect.reader()
        async for chunk in response.chunks():
            for event in splitter.feed(chunk):
                reader.feed(event)
        reader.feed(splitter.rest())
        return reader.answer()


def is_stream(response: Response) -> bool:
    """Whether an answer is a stream of events, whatever was asked for."""
    for name, value in response.headers:  # noqa: SIM110 - a loop costs half of what `any` does
        if name == b"content-type" and value.lower().startswith(b"text/event-stream"):
            return True
    return False


def _complaint(body: bytes) -> bytes:
    """What an error answer says itself, and not what it quotes of a request or of a failed answer; all of it where that cannot be told.

    A gateway says beside its own words what the provider said (`metadata.raw`).
    """
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    error = said.get("error", said) if isinstance(said, dict) else None
    if isinstance(error, dict):
        passed_on = error.get("metadata")
        raw = passed_on.get("raw") if isinstance(passed_on, dict) else None
        error = " ".join([text for text in (error.get("message"), raw) if isinstance(text, str)])
    return error.encode("utf-8", "replace") if error and isinstance(error, str) else body


def _kind_of(error: UpstreamFailed) -> UpstreamError:
    if isinstance(error, UpstreamCut):
        return UpstreamError.CUT
    return UpstreamError.TIMEOUT if error.status == 504 else UpstreamError.UNREACHABLE
