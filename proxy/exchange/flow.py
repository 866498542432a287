"""The steps of one exchange: read, parse, identify, open the session, admit, send, judge, answer, commit, emit."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import TracebackType

import msgspec

from proxy.calls import Calls, Refusal, is_stream
from proxy.client import Client, ClientGone
from proxy.dialects import Dialect
from proxy.engine import Result, Serve, Verdict, admit, judge, repaired, watch_of
from proxy.errors import ProxyError, UpstreamFailed
from proxy.events import ExchangeEnded, NudgeEnded, Outcome
from proxy.exchange.closing import JSON, Closing
from proxy.exchange.course import Course
from proxy.exchange.reply import Reply
from proxy.exchange.setting import Setting
from proxy.forwarding import Forwarder
from proxy.identity import identify
from proxy.keys import caller_of
from proxy.models import Action, Answer, Choice, ToolCall
from proxy.policy import Mode, OnStop
from proxy.purse import check_priced
from proxy.sessions import Session
from proxy.upstream.http import Response

# The enums' own attributes cost a look-up each time.
_FORWARD, _LOCAL = Serve.FORWARD, Serve.LOCAL
_OBSERVE, _STOP, _REFUSE = Mode.OBSERVE, Action.STOP, Action.REFUSE
_INTERVENED = (_STOP, _REFUSE)
_COMPLETED, _FAILED = Outcome.COMPLETED, Outcome.FAILED
_EARLY = 0.002  # seconds: event loops count whole milliseconds, and whoever asks at once again is not to find time left


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
        self._session: Session | None = None
        self._course: Course
        self._reply: Reply
        self._team = ""
        self._outcome = _FAILED
        self._whole_sent = False
        self._nudge_ended: NudgeEnded | None = None
        self._commit: Awaitable[bool] | None = None
        self._wait = _Wait(client, setting.clock)

    async def run(self) -> None:
        """The whole exchange. Raises `ProxyError` before anything was sent or reserved: for a request that cannot be served."""
        try:
            try:
                await self._admit()
            except ProxyError as error:
                self._emit_unserved(error.status, _FAILED if error.status >= 500 else Outcome.REFUSED)
                raise
            except ClientGone:
                if self._wait.seconds:
                    self._emit_unserved(499, Outcome.DISCONNECTED)
                raise
            try:
                with self._client:
                    self._outcome = await self._answer()
            except ClientGone:  # many hang up on the terminator
                self._outcome = _COMPLETED if self._whole_sent else Outcome.DISCONNECTED
            except UpstreamFailed as error:
                self._outcome = Outcome.UPSTREAM_ERROR
                self._end(full=False)
                await self._failed(error)
            finally:
                self._end(full=False)
                await self._emit()
        except BaseException:  # whatever the fault, what the exchange holds ends with it
            if self._session is not None:
                self._set.sessions.give_up(self._session)
            raise

    async def _admit(self) -> None:
        client, setting = self._client, self._set
        tenant = setting.tenants.of(client.headers)
        self._team = tenant.name
        body = await client.body(setting.max_body)
        caller = caller_of(client.headers)
        request = setting.readings.read(self._dialect, body, caller)
        identity = identify(client.headers, self._path_session, request.hints, setting.session_headers, tenant.name, caller)
        terms = setting.terms_of(tenant, self._dialect.name, request.model)
        way, policy, price = terms.way, terms.policy, terms.price
        if way.passthrough:
            setting.tenants.check_passthrough(client.headers, way.name)
        expects = policy.stage(identity.stage)
        check_priced(price, policy, identity.tighten, request.model)
        quota = tenant.quota(setting.wall())
        session = await setting.sessions.open(identity, request, policy, price, quota, terms.label, within=self._wait)
        session.expects, self._session = expects, session
        self._opened = setting.clock()  # not before the store's `now`: an answer must never seem to end after the request that follows it
        plan = admit(session, session.spending)
        calls = Calls(client, self._dialect, session, way.upstream, way.name, self._path, self._query, setting.quirks, setting.clock)
        self._course = Course(self._dialect, session, plan, calls)
        self._reply = Reply(client, self._dialect.keep_alive, setting.clock, self._course.fields)

    def _closing(self) -> Closing:
        """Made where it is needed and not kept: it leads back to this exchange, and such a circle would outlive it with all it holds."""
        return Closing(self._set, self._course, self._reply, self._end, self._written)

    def _answer(self) -> Awaitable[Outcome]:
        plan, session = self._course.plan, self._course.session
        if plan.serve is _LOCAL:
            return self._local()
        work = self._forward if plan.serve is _FORWARD else self._conclude
        left = session.time_left
        return work() if left is None or session.policy.mode is _OBSERVE else self._in_time(work, left)

    async def _in_time(self, work: Callable[[], Awaitable[Outcome]], left: float) -> Outcome:
        """left: seconds of the session's deadline, when it was opened."""
        try:
            async with asyncio.timeout(max(self._opened + left - self._set.clock(), 0.0) + _EARLY):
                return await work()
        except TimeoutError:
            if not self._whole_sent:
                await self._closing().time_over()
        return _COMPLETED

    async def _local(self) -> Outcome:
        await self._closing().local()
        return Outcome.REFUSED if self._course.plan.action is _REFUSE else _COMPLETED

    async def _conclude(self) -> Outcome:
        await self._closing().conclude(reserved=True)
        return _COMPLETED

    # ---- an answer of the upstream's

    async def _forward(self) -> Outcome:
        calls = self._course.calls
        response = await calls.send(self._course.plan.edits)
        if isinstance(response, Refusal):
            calls.settle(None, completed=False)
            self._end(full=False)
            await self._reply.whole(response.response.status, response.response.headers, response.body)
            return Outcome.UPSTREAM_ERROR
        if is_stream(response):
            await self._stream(response)
        else:
            await self._whole(response)
        return _COMPLETED

    async def _whole(self, response: Response) -> None:
        body = await response.read()
        answer = self._dialect.read_answer(body)
        self._course.calls.complete(answer)
        repair = self._repaired(answer)
        verdict = self._judge(repair or answer)
        if verdict.stop is not None:
            await self._closing().stop(answer)
            return
        if verdict.flaw is not None:
            await self._closing().mend(answer, verdict.flaw)
            return
        if repair is not None:
            await self._closing().give(_parted(repair, verdict.drop)[0].choices[0])
            return
        if verdict.drop:
            body = self._dialect.prune(body, verdict.drop, self._course.notice(pruned=True))
        self._went_through(answer, verdict.drop)
        await self._reply.whole(response.status, response.headers, body)

    def _repaired(self, answer: Answer) -> Answer | None:
        """The answer with the calls that it only wrote as text, where the policy wants that and the upstream need not know of them."""
        session = self._course.session
        untouched = session.policy.mode is _OBSERVE or session.request.goes_on_from is not None
        return None if untouched else repaired(session, answer)

    def _judge(self, answer: Answer) -> Verdict:
        """What the calls of an answer amount to; in observe mode it is only noted."""
        course, session, plan = self._course, self._course.session, self._course.plan
        verdict = judge(session, answer, plan.counts)
        if session.policy.mode is _OBSERVE and verdict.finding is not None:
            known = plan.action in (_STOP, _REFUSE) or session.place.lane.stop is not None
            if verdict.stop is not None and not known:
                plan.stop_for(verdict.finding)
                plan.seen += verdict.seen
            elif verdict.flaw is not None and plan.action is Action.ALLOW:
                plan.mend_for(verdict.flaw, answered=verdict.flaw.again)
            return Verdict()
        if verdict.finding is not None:
            course.verdict = verdict
            plan.seen += verdict.seen
        return verdict

    # ---- a stream

    async def _stream(self, response: Response) -> None:
        calls, plan, reply = self._course.calls, self._course.plan, self._reply
        session = self._course.session
        policy, request = session.policy, session.request
        enforces = policy.mode is Mode.ENFORCE
        patient = plan.armed or (enforces and session.expects is not None)
        reply.prepare(response.status, response.headers)
        mute = plan.armed and policy.on_stop is OnStop.ERROR  # the status must stay free until the decision
        if not mute:
            await reply.open()
        forward = Forwarder(
            self._dialect,
            policy,
            armed=plan.armed,
            strip_usage=enforces and not request.wants_usage,
            mute=mute or (patient and not plan.armed),
            watch=watch_of(session) if enforces else None,
            write=reply.write,
            ending=self._came_whole,
            objects=lambda answer: bool(judge(self._course.session, answer, plan.counts).drop),
        )
        chunks = response.chunks()
        try:
            while (
                chunk := await (reply.outlast(anext(chunks, None)) if patient or forward.withholds else anext(chunks, None))
            ) is not None:
                await forward.take(chunk)
                if forward.cut:
                    break
            await forward.finish()
        except (UpstreamFailed, asyncio.CancelledError) as error:
            answer = forward.reader.answer()
            if isinstance(error, UpstreamFailed):
                calls.cut(error)
            calls.settle(answer, completed=False)
            if session.request.background and (self._client.gone or isinstance(error, UpstreamFailed)):
                self._left_to_be_made(answer)
            self._note_sent(forward, answer)
            if not self._whole_sent or isinstance(error, asyncio.CancelledError):
                raise
        finally:
            response.close()
        await self._end_stream(forward)

    async def _end_stream(self, forward: Forwarder) -> None:
        """The stream is whole: lets go what was held, or what a decision makes of it."""
        course = self._course
        answer = forward.reader.answer()
        course.calls.complete(answer)
        if forward.cut and not forward.holding:
            answer = _said_alone(answer, forward.said)
        repair = self._repaired(answer) if forward.holding and not forward.called else None
        answer = repair or answer
        observed = course.session.policy.mode is _OBSERVE and not self._whole_sent
        verdict = self._judge(answer) if forward.holding or forward.cut or observed else Verdict()
        self._note_sent(forward, answer)
        if verdict.stop is not None and not forward.called:
            await self._closing().stop(answer)
        elif verdict.flaw is not None:
            await self._closing().mend(answer, verdict.flaw)
        elif repair is not None:
            await self._closing().give(_parted(repair, verdict.drop)[0].choices[0])
        elif verdict.drop:
            course.plan.stop = verdict.stop  # what went out of this message cannot be taken back: the run ends after it
            await self._rest_of_pruned(forward, answer)
        else:
            self._went_through(answer)
            await self._reply.write(b"".join(forward.held), more=False)

    def _left_to_be_made(self, answer: Answer) -> None:
        """A stream broke off whose answer the upstream goes on with: it is asked for later, and says only then what it calls."""
        if not self._whole_sent:
            self._went_through(msgspec.structs.replace(answer, choices=(Choice(finish="in_progress"),)))

    def _note_sent(self, forward: Forwarder, answer: Answer) -> None:
        """What the client has of a stream that Lastcall may have to end."""
        if not forward.spoke:
            return
        course = self._course
        course.spoken, course.sent = course.head(answer, int(self._set.wall()), self._set.new_id()), forward.sent
        course.said = forward.said
        course.called = forward.called or (bool(forward.reader.begun) and not forward.holding)

    def _came_whole(self, answer: Answer) -> None:
        """A stream that nothing holds is about to end, whatever becomes of its connections after that."""
        self._course.calls.complete(answer)
        if self._course.session.policy.mode is _OBSERVE:
            self._judge(answer)
        self._went_through(answer)
        self._whole_sent = True

    def _went_through(self, answer: Answer, drop: Collection[tuple[int, int]] = ()) -> None:
        """The client is given this answer without these calls."""
        left, dropped = _parted(answer, drop) if drop else (answer, ())
        self._course.give(left, dropped)
        self._end(full=True, choices=left.choices, answered=bool(left.choices))

    async def _rest_of_pruned(self, forward: Forwarder, answer: Answer) -> None:
        """What is left of a held answer."""
        course, drop = self._course, self._course.verdict.drop
        left, _ = _parted(answer, drop)
        self._went_through(answer, drop)
        usage, notice = answer.usage if course.session.request.wants_usage else None, course.notice(pruned=True)
        begun = course.begun(course.spoken or course.head(answer, int(self._set.wall()), self._set.new_id()))
        rest = self._dialect.stream_rest(begun, left, usage, notice, drop=drop, held=forward.held, reader=forward.reader)
        await self._reply.write(rest, more=False)

    async def _failed(self, error: UpstreamFailed) -> None:
        if self._reply.status is None:
            await self._reply.whole(error.status, [JSON], self._dialect.error(error.status, error.code, error.message, None))
        else:
            course = self._course
            begun = course.begun(course.spoken or course.head(None, int(self._set.wall()), self._set.new_id()))
            await self._client.write(self._dialect.stream_error(error.code, error.message, None, begun), more=False)

    # ---- afterwards

    def _end(self, *, full: bool, choices: Sequence[Choice] = (), answered: bool = True, blocked: bool = False) -> None:
        """Hands what came of the exchange to the store, once, beside the last bytes."""
        if self._commit is not None:
            return
        course = self._course
        session, plan, verdict = course.session, course.plan, course.verdict
        course.calls.close()
        said = choices[0] if choices else None
        result = Result(
            ended=session.now + self._set.clock() - self._opened,
            full=full,
            calls=() if said is None else said.calls,
            answered=answered,
            blocked=blocked,
            own=plan.serve is _FORWARD,
            nudge=plan.nudge,
            warning=plan.warning,
            stop=plan.stop,
            dropped=verdict.finding.calls if verdict.finding is not None and (verdict.drop or verdict.flaw) else frozenset(),
            ended_for=plan.reason if plan.action in _INTERVENED and not plan.waits else None,
            said=said,
            given=course.given,
        )
        self._nudge_ended, commit = self._set.sessions.commit(session, result, choices)
        self._commit = commit
        if isinstance(commit, asyncio.Task):  # a process may be killed as soon as its client has the answer
            self._reply.let_begin()

    async def _written(self) -> None:
        if isinstance(self._commit, asyncio.Task):
            await asyncio.wait({self._commit})  # which a client that leaves does not end

    def _emit_unserved(self, status: int, outcome: Outcome) -> None:
        seconds = self._set.clock() - self._started
        self._set.telemetry.emit(
            ExchangeEnded(
                dialect=self._dialect.name,
                model="",
                session="",
                lane=0,
                step=0,
                action=Action.ALLOW,
                status=status,
                outcome=outcome,
                overhead_seconds=seconds - self._wait.seconds,
                waited_seconds=self._wait.seconds,
                team=self._team,
            )
        )

    async def _emit(self) -> None:
        if self._commit is not None:
            await self._commit
        ended = self._course.ended(
            self._outcome,
            self._reply.status,
            started=self._started,
            now=self._set.clock(),
            first_byte=self._reply.first_byte,
            nudge_ended=self._nudge_ended,
            waited=self._wait.seconds,
        )
        self._set.telemetry.emit(ended)
        self._course.session.history.messages.over = True  # the commit, which may decide once more, is over too


class _Wait:
    """A wait for room, which ends when the client leaves. seconds: how long it was."""

    __slots__ = ("_client", "_clock", "_since", "seconds")

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._client = client
        self._clock = clock
        self._since = 0.0

    def __enter__(self) -> "_Wait":
        self._since = self._clock()
        self._client.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds += self._clock() - self._since
        self._client.__exit__(kind, error, trace)


def _said_alone(answer: Answer, said: str) -> Answer:
    """An answer that was cut for its text, as far as it went out."""
    return msgspec.structs.replace(answer, choices=tuple([msgspec.structs.replace(choice, text=said) for choice in answer.choices[:1]]))


def _parted(answer: Answer, drop: Collection[tuple[int, int]]) -> tuple[Answer, tuple[ToolCall, ...]]:
    """The answer without the calls that are left out, and those of its first choice."""
    choices = [
        msgspec.structs.replace(choice, calls=tuple([call for position, call in enumerate(choice.calls) if (number, position) not in drop]))
        for number, choice in enumerate(answer.choices)
    ]
    dropped = [call for position, call in enumerate(answer.choices[0].calls) if (0, position) in drop]
    return msgspec.structs.replace(answer, choices=tuple(choices)), tuple(dropped)
