"""One exchange, in the order of the data flow. Awaits; decides nothing.

`Exchange.run` reads as the list of steps: read, parse, identify, open the session, admit, send, judge, answer, commit, emit. Answers are
delivered by `_whole` and `_stream`, ended by Lastcall in `_conclude` and `_local`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from proxy.budgets import clamp, wanted_output
from proxy.calls import Calls, Quirks, Refusal, is_stream
from proxy.client import Client, ClientGone, Fields
from proxy.dialects import Dialect
from proxy.engine import Admission, Result, Serve, Verdict, admit, edits_of, judge, notice_of
from proxy.errors import BadRequest, ProxyError, UpstreamFailed
from proxy.events import ExchangeEnded, NudgeEnded, Outcome
from proxy.forwarding import Forwarder, paced
from proxy.identity import identify
from proxy.markup import leaked
from proxy.models import Action, Answer, Choice, Edits, Head, Notice, Reason, ToolCall
from proxy.nudge import joined, local_message, stop_line
from proxy.policy import Mode, OnStop, Policy
from proxy.sessions import Session, Sessions
from proxy.telemetry import Telemetry
from proxy.upstream.http import Response, Upstream

KEEP_ALIVE_SECONDS = 10.0  # clients' idle watchdogs begin at a minute
_JSON = (b"content-type", b"application/json")
_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
_NO_RETRY = (b"x-should-retry", b"false")


class Way(msgspec.Struct, frozen=True):
    """One configured upstream as exchanges see it."""

    name: str
    upstream: Upstream
    serves: Callable[[str, str], bool]


class Setting(msgspec.Struct):
    """What all exchanges of a process share. clock: seconds, for durations only; wall: epoch seconds; new_id: unique ids."""

    policy: Policy
    sessions: Sessions
    ways: Sequence[Way]
    telemetry: Telemetry
    session_headers: tuple[str, ...]
    max_body: int
    clock: Callable[[], float]
    wall: Callable[[], float]
    new_id: Callable[[], str]
    quirks: Quirks = msgspec.field(default_factory=Quirks)


class Exchange:
    """One request on a judged route."""

    def __init__(self, setting: Setting, client: Client, dialect: Dialect, path: str, query: bytes, path_session: str | None) -> None:
        self._set = setting
        self._client = client
        self._dialect = dialect
        self._path = path
        self._query = query
        self._path_session = path_session
        self._started = setting.clock()
        self._opened = 0.0
        self._written = self._started
        self._first_byte: float | None = None
        self._opening: tuple[int, Fields] | None = None
        self._spoken: Head | None = None
        self._sent: object = None
        self._said = ""
        self._session: Session
        self._plan: Admission
        self._calls: Calls
        self._verdict = Verdict()
        self._outcome = Outcome.FAILED
        self._whole_sent = False
        self._nudge_ended: NudgeEnded | None = None
        self._commit: Awaitable[bool] | None = None

    async def run(self) -> None:
        """The whole exchange. Raises `ProxyError` before anything was sent or reserved: for a request that cannot be served."""
        try:
            await self._admit()
        except ProxyError as error:
            self._emit_unserved(error)
            raise
        try:
            async with self._client:
                await self._answer()
        except ClientGone:  # many hang up on the terminator
            self._outcome = Outcome.COMPLETED if self._whole_sent else Outcome.DISCONNECTED
        except UpstreamFailed as error:
            self._outcome = Outcome.UPSTREAM_ERROR
            self._end(full=False)
            await self._failed(error)
        finally:
            self._end(full=False)
            await self._emit()

    async def _admit(self) -> None:
        client, setting, policy = self._client, self._set, self._set.policy
        body = await client.body(setting.max_body)
        request = self._dialect.parse(body)
        identity = identify(client.headers, self._path_session, request.hints, setting.session_headers)
        way = self._way(request.model)
        session = self._session = await setting.sessions.open(identity, request, policy)
        self._opened = setting.clock()  # not before the store's `began`: an answer must never seem to end after the request that follows it
        self._plan = admit(session.record, session.place, request, session.history, session.prints, session.asker, policy, session.spending)
        self._calls = Calls(client, self._dialect, session, way.upstream, way.name, self._path, self._query, setting.quirks, setting.clock)

    def _way(self, model: str) -> Way:
        for way in self._set.ways:
            if way.serves(self._dialect.name, model):
                return way
        raise BadRequest(
            f"no upstream serves the model {model[:100]!r} in the {self._dialect.name!r} dialect; add it to upstreams in the configuration",
            status=404,
            code="lastcall_no_upstream",
        )

    async def _answer(self) -> None:
        match self._plan.serve:
            case Serve.LOCAL:
                await self._local()
                self._outcome = Outcome.REFUSED if self._plan.action is Action.REFUSE else Outcome.COMPLETED
            case Serve.FINAL:
                await self._conclude("", reserved=True)
                self._outcome = Outcome.COMPLETED
            case Serve.FORWARD:
                self._outcome = await self._forward()

    # ---- an answer of the upstream's

    async def _forward(self) -> Outcome:
        response = await self._calls.send(self._with_wishes(self._plan.edits))
        if isinstance(response, Refusal):
            self._calls.settle(None, completed=False)
            self._end(full=False)
            await self._whole_response(response.response.status, response.response.headers, response.body)
            return Outcome.UPSTREAM_ERROR
        if is_stream(response):
            await self._stream(response)
        else:
            await self._whole(response)
        return Outcome.COMPLETED

    def _with_wishes(self, edits: Edits) -> Edits:
        """The edits with what Lastcall itself wants of the upstream: a stream's usage, and no more output than was granted."""
        session, request = self._session, self._session.request
        if self._set.policy.mode is Mode.OBSERVE:
            return edits
        granted = session.opened.output if session.opened is not None else None
        return msgspec.structs.replace(
            edits,
            ask_usage=request.stream and not request.wants_usage,
            max_output=clamp(request, granted, wanted_output(request)),
        )

    async def _whole(self, response: Response) -> None:
        body = await response.read()
        answer = self._dialect.read_answer(body)
        self._calls.complete(answer)
        verdict = self._judge(answer)
        if verdict.stop is not None:
            await self._stopped(answer)
            return
        if verdict.drop:
            body = self._dialect.prune(body, verdict.drop, self._notice(pruned=True))
            answer = _pruned(answer, verdict)
        self._went_through(answer)
        await self._whole_response(response.status, response.headers, body)

    def _judge(self, answer: Answer) -> Verdict:
        """What the calls of an answer amount to; in observe mode it is only noted."""
        verdict = judge(self._session.place, answer, self._session.prints, self._set.policy, self._plan.counts)
        if self._set.policy.mode is Mode.OBSERVE and verdict.finding is not None:
            known = self._plan.action in (Action.STOP, Action.REFUSE) or self._session.place.lane.stop is not None
            if verdict.stop is not None and not known:
                self._plan.stop_for(verdict.finding)
                self._plan.seen += verdict.seen
            return Verdict()
        if verdict.finding is not None:
            self._verdict = verdict
            self._plan.seen += verdict.seen
        return verdict

    # ---- a stream

    async def _stream(self, response: Response) -> None:
        plan, policy, request = self._plan, self._set.policy, self._session.request
        enforce = policy.mode is Mode.ENFORCE
        self._opening = (response.status, response.headers)
        mute = plan.armed and policy.on_stop is OnStop.ERROR  # the status must stay free until the decision
        if not mute:
            await self._open()
        forward = Forwarder(
            self._dialect,
            policy,
            armed=plan.armed,
            strip_usage=enforce and not request.wants_usage,
            mute=mute,
            write=self._write,
            ending=self._came_whole,
            objects=lambda answer: bool(judge(self._session.place, answer, self._session.prints, policy, plan.counts).drop),
        )
        try:
            async for chunk in paced(response.chunks(), self._keep_alive_due, self._keep_alive) if plan.armed else response.chunks():
                await forward.take(chunk)
                if forward.cut:
                    break
            await forward.finish()
        except (UpstreamFailed, asyncio.CancelledError) as error:
            if isinstance(error, UpstreamFailed):
                self._calls.cut(error)
            self._calls.settle(forward.reader.answer(), completed=False)
            if not self._whole_sent or isinstance(error, asyncio.CancelledError):
                raise
        finally:
            response.close()
        await self._end_stream(forward)

    async def _end_stream(self, forward: Forwarder) -> None:
        """The stream is whole: lets go what was held, or what a decision makes of it."""
        answer = forward.reader.answer()
        self._calls.complete(answer)
        observed = self._set.policy.mode is Mode.OBSERVE and not self._whole_sent
        verdict = self._judge(answer) if forward.holding or observed else Verdict()
        if forward.spoke:
            self._spoken, self._sent = self._head(answer), forward.sent
        if verdict.stop is not None and not forward.called:
            await self._stopped(answer)
        elif verdict.drop:
            self._plan.stop = verdict.stop  # what went out of this message cannot be taken back: the run ends after it
            await self._rest_of_pruned(_pruned(answer, verdict), called=forward.called)
        else:
            self._went_through(answer)
            await self._write(b"".join(forward.held), more=False)

    def _came_whole(self, answer: Answer) -> None:
        """A stream that nothing holds is about to end, whatever becomes of its connections after that."""
        self._calls.complete(answer)
        if self._set.policy.mode is Mode.OBSERVE:
            self._judge(answer)
        self._went_through(answer)
        self._whole_sent = True

    def _went_through(self, answer: Answer) -> None:
        self._end(full=True, choices=answer.choices, answered=bool(answer.choices))

    async def _rest_of_pruned(self, answer: Answer, *, called: bool) -> None:
        """What is left of a held answer; called: its calls went out before the rest was held."""
        self._went_through(answer)
        usage = answer.usage if self._session.request.wants_usage else None
        calls, choices = () if called else answer.choices[0].calls, len(answer.choices)
        notice, head, started = self._notice(pruned=True), self._head(answer), self._spoken is not None
        tail = self._dialect.stream_tail(head, "", calls, usage, notice, started=started, choices=choices, called=called, sent=self._sent)
        await self._write(tail, more=False)

    # ---- an answer of Lastcall's

    async def _stopped(self, answer: Answer) -> None:
        """The run ends in place of this answer. Text that came before the calls is kept, unless the client has it already."""
        if self._verdict.finding is not None:
            self._plan.stop_for(self._verdict.finding)
        kept = answer.choices[0].text if answer.choices else ""
        if self._spoken is not None:
            self._said, kept = kept, ""
        if self._set.policy.on_stop is OnStop.WRAP_UP:
            await self._conclude(kept, reserved=False)
        else:
            await self._local(kept)

    async def _conclude(self, kept: str, *, reserved: bool) -> None:
        """One last upstream call without tools; the local message when it yields nothing. reserved: its reservation is at hand."""
        if self._session.request.stream and self._client.status is None:
            self._opening = (200, _STREAM)
            await self._open()
        work = asyncio.ensure_future(self._last_answer(reserved=reserved))
        try:
            while not (await asyncio.wait({work}, timeout=KEEP_ALIVE_SECONDS))[0]:
                await self._keep_alive()
        finally:
            work.cancel()
        text, calls = work.result()
        if calls:
            await self._say(kept, calls)
        elif text is not None:
            await self._say(joined([kept, stop_line(self._plan.cause), text]))
        else:
            await self._local(kept)

    async def _last_answer(self, *, reserved: bool) -> tuple[str | None, tuple[ToolCall, ...]]:
        """The model's concluding text, or the finish call it was made to make; (None, ()) when the local message must do."""
        session, policy, plan = self._session, self._set.policy, self._plan
        plan.serve = Serve.FINAL
        for attempt in range(policy.wrap_up.retries + 1):
            if attempt or not reserved:
                opened = await self._set.sessions.reserve(session)
                if opened is not None and opened.refused is not None:
                    break
            edits = edits_of(plan, session.place, session.request, session.history, session.prints, policy, attempt=attempt)
            answer = await self._calls.whole_answer(self._with_wishes(edits))
            choice = answer.choices[0] if answer is not None and answer.choices else Choice()
            if edits.force_tool is not None:
                return None, tuple(call for call in choice.calls if call.name == edits.force_tool)[:1]
            if answer is None or choice.calls:
                break
            if choice.text.strip() and not leaked(choice.text):
                return choice.text, ()
        return None, ()

    async def _local(self, kept: str = "") -> None:
        """An answer without the upstream: a message or, where the policy says so and the status is still free, an error."""
        plan = self._plan
        if self._set.policy.on_stop is not OnStop.ERROR or self._client.status is not None:
            await self._say(joined([kept, local_message(plan.cause, plan.reason or Reason.REPEATED_CALL)]))
            return
        notice = self._notice()
        self._end(full=True, blocked=True, answered=False)
        body = self._dialect.error(400, f"lastcall_{plan.reason}", notice.message, notice)
        await self._whole_response(400, [_JSON, _NO_RETRY], body)

    async def _say(self, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        request, notice, usage = self._session.request, self._notice(), self._calls.account.usage
        head = self._spoken or self._head(None)
        if self._said and text:
            text = "\n\n" + text  # a paragraph of its own after what went out before
        self._end(full=True, choices=[Choice(self._said + text, calls, "stop")])
        if not request.stream and self._client.status is None:
            body = self._dialect.completion(head, text, usage, notice, request.choices, calls)
            await self._whole_response(200, [_JSON], body)
            return
        if self._client.status is None:
            self._opening = (200, _STREAM)
        shown = usage if request.wants_usage else None
        started = self._spoken is not None
        tail = self._dialect.stream_tail(head, text, calls, shown, notice, started=started, choices=request.choices, sent=self._sent)
        await self._write(tail, more=False)

    def _head(self, answer: Answer | None) -> Head:
        """Identity of an answer: that of the stream it ends, else a fresh one."""
        created = int(self._set.wall())
        if answer is not None and answer.id:
            return Head(answer.id, answer.model or self._session.request.model, answer.created or created)
        return Head(self._dialect.id_prefix + self._set.new_id(), self._session.request.model, created)

    def _notice(self, *, pruned: bool = False) -> Notice:
        finding = self._verdict.finding if pruned else None
        return notice_of(self._plan, self._session.place, finding, self._session.label)

    async def _failed(self, error: UpstreamFailed) -> None:
        if self._client.status is None:
            body = self._dialect.error(error.status, error.code, error.message, None)
            await self._whole_response(error.status, [_JSON], body)
        else:
            await self._client.write(self._dialect.stream_error(error.code, error.message, None), more=False)

    # ---- the way back

    def _headers(self) -> list[tuple[bytes, bytes]]:
        session, plan = self._session, self._plan
        enforce = self._set.policy.mode is Mode.ENFORCE
        fields = [
            (b"x-lastcall-session", session.label.encode("latin-1", "replace")),
            (b"x-lastcall-step", session.step.encode()),
            (b"x-lastcall-action", (plan.action if enforce else Action.ALLOW).encode()),
        ]
        reason = self._verdict.finding.reason if self._verdict.finding is not None else plan.reason
        if reason is not None and enforce:
            fields.append((b"x-lastcall-reason", reason.encode()))
        if plan.repeat is not None:
            fields.append((b"x-lastcall-repeat", _header_text(plan.repeat)))
        if session.opened is None:
            fields.append((b"x-lastcall-degraded", b"store"))
        return fields

    async def _whole_response(self, status: int, fields: Fields, body: bytes) -> None:
        self._mark_first_byte()
        await self._client.whole(status, [*fields, *self._headers()], body)

    async def _open(self) -> None:
        """Sends status and header of a stream, once."""
        if self._opening is not None:
            (status, fields), self._opening = self._opening, None
            await self._client.start(status, [*fields, *self._headers()])

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        await self._open()
        self._mark_first_byte()
        self._written = self._set.clock()
        await self._client.write(data, more=more)

    def _keep_alive_due(self) -> float:
        return self._written + KEEP_ALIVE_SECONDS - self._set.clock()

    async def _keep_alive(self) -> None:
        self._written = self._set.clock()
        if self._client.status is not None:
            await self._client.write(self._dialect.keep_alive)

    def _mark_first_byte(self) -> None:
        if self._first_byte is None:
            self._first_byte = self._set.clock()

    # ---- afterwards

    def _end(self, *, full: bool, choices: Sequence[Choice] = (), answered: bool = True, blocked: bool = False) -> None:
        """Hands what came of the exchange to the store, once, beside the last bytes."""
        if self._commit is not None:
            return
        session, plan, clock = self._session, self._plan, self._set.clock
        self._calls.close()
        dropped = self._verdict.finding.calls if self._verdict.finding is not None and self._verdict.drop else frozenset[int]()
        result = Result(
            ended=session.asker.began + clock() - self._opened,
            full=full,
            calls=tuple(call for choice in choices[:1] for call in choice.calls),
            answered=answered,
            blocked=blocked,
            own=plan.serve is Serve.FORWARD,
            nudge=plan.nudge,
            stop=plan.stop,
            dropped=dropped,
        )
        self._nudge_ended, self._commit = self._set.sessions.commit(session, result, choices)

    def _emit_unserved(self, error: ProxyError) -> None:
        seconds = self._set.clock() - self._started
        self._set.telemetry.emit(
            ExchangeEnded(
                dialect=self._dialect.name,
                model="",
                session="",
                lane=0,
                step=0,
                action=Action.ALLOW,
                status=error.status,
                outcome=Outcome.FAILED if error.status >= 500 else Outcome.REFUSED,
                overhead_seconds=seconds,
            )
        )

    async def _emit(self) -> None:
        if self._commit is not None:
            await self._commit
        session, plan, account, clock = self._session, self._plan, self._calls.account, self._set.clock
        now = clock()
        dropped = len(self._verdict.drop) if self._verdict.stop is None else 0
        self._set.telemetry.emit(
            ExchangeEnded(
                dialect=self._dialect.name,
                model=session.request.model,
                session=session.label,
                lane=session.record.lanes.index(session.place.lane) if session.place.lane in session.record.lanes else 0,
                step=session.opened.step if session.opened is not None else len(session.history.messages) + 1,
                action=plan.action,
                reason=plan.reason or (self._verdict.finding.reason if self._verdict.finding is not None else None),
                mode=str(self._set.policy.mode),
                tool=plan.tool,
                count=plan.count,
                limit=plan.limit,
                status=499 if self._outcome is Outcome.DISCONNECTED else self._client.status or 500,
                outcome=self._outcome,
                streamed=session.request.stream,
                degraded=session.opened is None,
                retry=session.identity.retry,
                upstream_calls=account.calls,
                input_tokens=account.input_tokens,
                output_tokens=account.output_tokens,
                usage_estimated=account.estimated,
                overhead_seconds=(account.asked_at or now) - self._started,
                upstream_seconds=account.seconds,
                first_byte_seconds=None if self._first_byte is None else self._first_byte - self._started,
                findings=plan.seen,
                nudge_ended=self._nudge_ended,
                pruned=dropped,
                upstream_errors=account.errors,
            )
        )


def _pruned(answer: Answer, verdict: Verdict) -> Answer:
    """The answer without the calls that are left out."""
    choices = [
        msgspec.structs.replace(
            choice, calls=tuple(call for position, call in enumerate(choice.calls) if (number, position) not in verdict.drop)
        )
        for number, choice in enumerate(answer.choices)
    ]
    return msgspec.structs.replace(answer, choices=tuple(choices))


def _header_text(text: str) -> bytes:
    """A value that any client can read: printable ASCII, tool names cut."""
    return "".join(char if " " <= char <= "~" else "?" for char in text[-200:]).encode()
