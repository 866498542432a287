"""The answers that Lastcall gives in the place of one that must not go on: a conclusion by the model, a local message, an error."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from proxy.engine import Flaw, Serve, edits_again, edits_of, judge, repair_of
from proxy.exchange.course import Course
from proxy.exchange.reply import Reply
from proxy.exchange.setting import Setting
from proxy.finishing import closing_call, closing_tool
from proxy.markup import leaked
from proxy.models import Action, Allowance, Answer, Choice, Reason, ToolCall
from proxy.nudge import cut_line, joined, local_message, stop_line
from proxy.policy import OnStop
from proxy.turns import known_tools

JSON = (b"content-type", b"application/json")
NO_RETRY = (b"x-should-retry", b"false")
_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class End(Protocol):
    """Hands what came of the exchange to the store, before the last bytes go out."""

    def __call__(self, *, full: bool, choices: Sequence[Choice] = (), answered: bool = True, blocked: bool = False) -> None: ...


class Closing:
    """Ends one exchange with an answer of Lastcall's. written: returns once the store has what `end` handed to it, or cannot be reached."""

    def __init__(self, setting: Setting, course: Course, reply: Reply, end: End, written: Callable[[], Awaitable[None]]) -> None:
        self._set = setting
        self._course = course
        self._reply = reply
        self._end = end
        self._written = written

    async def stop(self, answer: Answer) -> None:
        """The run ends in place of this answer. Text that came before the calls is kept, unless the client has it already."""
        course = self._course
        if course.verdict.finding is not None:
            course.plan.stop_for(course.verdict.finding)
        course.withheld = answer
        course.kept = answer.choices[0].text if answer.choices and course.spoken is None else ""
        if course.session.policy.on_stop is OnStop.WRAP_UP:
            await self.conclude(reserved=False)
        else:
            await self.local()

    async def conclude(self, *, reserved: bool) -> None:
        """One last upstream call without tools; the local message when it yields nothing. reserved: its reservation is at hand."""
        await self._open()
        text, calls = await self._reply.outlast_own(self._last_answer(reserved=reserved)) or (None, ())
        if calls:
            await self._say(self._course.kept, calls, concluded=True)
        elif text is not None:
            await self._say(joined([self._course.kept, stop_line(self._course.plan.cause), text]), concluded=True)
        else:
            await self.local()

    async def _last_answer(self, *, reserved: bool) -> tuple[str | None, tuple[ToolCall, ...]]:
        """The model's concluding text, or the finish call it was made to make; (None, ()) when the local message must do."""
        session, plan, calls = self._course.session, self._course.plan, self._course.calls
        plan.serve = Serve.FINAL
        first = self._course.withheld
        withheld = first.choices[0].calls if first is not None and first.choices else ()
        for attempt in range(session.policy.wrap_up.retries + 1):
            if attempt or not reserved:
                opened = await self._set.sessions.reserve(session)
                if opened is not None and opened.refused is not None:
                    break
            edits = edits_of(plan, session, attempt=attempt, withheld=withheld)
            answer = await calls.whole_answer(edits)
            self._course.withheld = answer or self._course.withheld
            choice = answer.choices[0] if answer is not None and answer.choices else Choice()
            if edits.force_tool is not None:
                return None, tuple(call for call in choice.calls if call.name == edits.force_tool)[:1]
            if answer is None or choice.calls:
                break
            if choice.text.strip() and not leaked(choice.text, known_tools(session.request, session.history)):
                return choice.text, ()
        return None, ()

    async def mend(self, answer: Answer, flaw: Flaw) -> None:
        """Gives an answer without its flaw: the one that the model gives when asked again, else what is good of this one, and says so."""
        course = self._course
        course.withheld = answer
        may_ask = flaw.again and not course.session.request.conversation  # what was asked there has been answered there
        if may_ask:
            await self._open()
        again = await self._reply.outlast_own(self._asked_again(flaw)) if may_ask else None
        course.plan.mend_for(flaw, answered=again is not None)
        if again is not None:
            await self._say(again.text, again.calls, concluded=True)
            return
        rest, reason = _beyond(course.said, flaw.clean), flaw.finding.reason
        if reason is Reason.EXPECT or (flaw.clean and not flaw.again and reason is Reason.TOOL_MARKUP):
            await self._say(rest, glue="")
        else:
            await self._say(joined([rest, cut_line(course.plan.cause)]), glue="" if rest else "\n\n")

    async def _open(self) -> None:
        """Begins a stream whose client is to hear something while the model is asked: no error can come of that any more."""
        if self._course.session.request.stream and self._reply.status is None:
            self._reply.prepare(200, _STREAM)
            await self._reply.open()

    async def give(self, choice: Choice) -> None:
        """Gives an answer with the calls that the model had only written as text."""
        course = self._course
        course.plan.mend_for(repair_of(), answered=True)
        await self._say(_beyond(course.said, choice.text), choice.calls, glue="")

    async def _asked_again(self, flaw: Flaw) -> Choice | None:
        """The answer without a flaw, of as many tries as the policy gives and no budget refuses; None without one."""
        session, calls = self._course.session, self._course.calls
        for attempt in range(session.policy.wrap_up.retries):
            opened = await self._set.sessions.reserve(session)
            if opened is not None and opened.refused is not None:
                break
            answer = await calls.whole_answer(edits_again(self._course.plan, session, flaw, attempt=attempt))
            self._course.withheld = answer or self._course.withheld
            choice = answer.choices[0] if answer is not None and answer.choices else None
            if answer is None or choice is None:
                break
            if judge(session, answer).finding is None and (choice.text.strip() or (choice.calls and session.request.may_call)):
                return choice if session.request.may_call else msgspec.structs.replace(choice, calls=())
        return None

    async def time_over(self) -> None:
        """The session's time is over before an answer is whole, be it the conclusion of a run that is stopped anyway."""
        course = self._course
        if course.plan.action is not Action.STOP and (deadline := course.session.deadline) is not None:
            course.plan.end_for(deadline, Action.STOP)
        if not course.called:
            await self.local()
            return
        notice = course.notice()  # half a call went out: only an error keeps the client from carrying it out
        self._end(full=False)
        begun = None if course.spoken is None else course.begun(course.spoken)
        await self._reply.write(course.dialect.stream_error(f"lastcall_{Reason.DEADLINE}", notice.message, notice, begun), more=False)

    async def local(self) -> None:
        """An answer without the upstream: a message or, where the policy says so, an error.

        Once the status is sent that ends the stream, but for clients that would ask again then, or that a call of theirs ends for certain.
        """
        course, plan, fails = self._course, self._course.plan, self._course.session.policy.on_stop is OnStop.ERROR
        if plan.waits:
            await self._not_now()
            return
        if not fails or self._reply.status is not None:
            text = local_message(plan.cause, plan.reason or Reason.REPEATED_CALL, plan.budget, above=plan.from_above)
            finish = self._finish_call(text)
            if finish is not None:
                await self._say(course.kept, (finish,))
                return
            if not (fails and course.dialect.fails_midway):
                await self._say(joined([course.kept, text]))
                return
        await self._fail()

    async def _fail(self) -> None:
        """The error that ends a run: the whole answer, or the end of a stream."""
        course, plan, code, notice = self._course, self._course.plan, f"lastcall_{self._course.plan.reason}", self._course.notice()
        if course.withheld is not None and course.session.request.conversation:
            course.give_own("", Choice())
        self._end(full=True, blocked=True, answered=False)
        await self._written()
        if self._reply.status is None:
            await self._reply.whole(plan.status, [JSON, NO_RETRY], course.dialect.error(plan.status, code, notice.message, notice))
            return
        begun = course.begun(course.spoken or course.head(None, int(self._set.wall()), self._set.new_id()))
        await self._reply.write(course.dialect.stream_error(code, notice.message, notice, begun), more=False)

    async def _not_now(self) -> None:
        """An error that says when to send the same request again. The run has not ended, whatever the policy does at its end."""
        plan, notice = self._course.plan, self._course.notice()
        self._end(full=False, answered=False)
        body = self._course.dialect.error(plan.status, f"lastcall_{plan.reason}", notice.message, notice)
        await self._reply.whole(plan.status, [JSON, retry_after(plan.budget, self._set.new_id())], body)

    def _finish_call(self, text: str) -> ToolCall | None:
        """The call that says `text` to an agent whose run ends by a tool alone."""
        session = self._course.session
        tool = closing_tool(session.request, session.policy, session.identity.client)
        return None if tool is None else closing_call(session.request, tool, text, f"lastcall_{self._set.new_id()}")

    async def _say(self, text: str, calls: tuple[ToolCall, ...] = (), *, glue: str = "\n\n", concluded: bool = False) -> None:
        """Gives the text and the calls. glue: what goes between it and the text that went out before.

        concluded: it is what the model said at last; where the upstream keeps that, the client can go on from it.
        """
        course, reply = self._course, self._reply
        request, notice, usage = course.session.request, course.notice(), course.calls.account.usage
        known = course.withheld if concluded and request.kept else None
        head = course.spoken or course.head(known, int(self._set.wall()), self._set.new_id())
        if course.said and text:
            text = glue + text
        choice = Choice(course.said + text, calls, "stop")
        course.give_own(head.id, choice)
        self._end(full=True, choices=[choice])
        if course.plan.action is Action.STOP:  # the client's next request may go to another replica
            await self._written()
        if not request.stream and reply.status is None:
            body = course.dialect.completion(head, text, usage, notice, request.choices, calls)
            await reply.whole(200, [JSON], body)
            return
        if reply.status is None:
            reply.prepare(200, _STREAM)
        shown = usage if request.wants_usage else None
        await reply.write(course.dialect.stream_tail(course.begun(head), text, calls, shown, notice), more=False)


def retry_after(budget: Allowance | None, id: str) -> tuple[bytes, bytes]:
    """The header field that says when to come again: for a call when others may have ended, for a session when others are idle.

    id: one of a process's ids, which are counted: it spreads a crowd out, that it does not come back at one moment.
    """
    soonest, spread = (30, 29) if budget is not None and budget.unit == "sessions" else (1, 5)  # primes: ids are taken several at a time
    return b"retry-after", b"%d" % (soonest + int(id[-8:], 16) % spread)


def _beyond(said: str, text: str) -> str:
    """What of a text has not gone out; blanks at its end, which went out already, may be missing in it."""
    return text[len(said) :] if text.startswith(said) else ""
