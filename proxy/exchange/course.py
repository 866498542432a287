"""What one exchange has come to so far, and what is told of it: header fields, the `lastcall` object, the event."""

from collections.abc import Sequence

import msgspec

from proxy.budgets import usage_of
from proxy.calls import Calls
from proxy.chains import Delivered, as_it_came, in_place_of, standing
from proxy.dialects import Dialect
from proxy.engine import Admission, Verdict, notice_of
from proxy.events import ExchangeEnded, NudgeEnded, Outcome
from proxy.lineage import stopped_below
from proxy.models import Action, Answer, Begun, Choice, Head, Notice, Reason, ToolCall
from proxy.policy import Mode
from proxy.sessions import Session

_ALLOW, _ENFORCE = Action.ALLOW, Mode.ENFORCE  # the enums' own attributes cost a look-up each time
_DISCONNECTED = Outcome.DISCONNECTED


class Course(msgspec.Struct):
    """One admitted request under way.

    spoken: identity of the stream of which something went out; sent: how far it had come, as its reader says; said: its text until then;
    called: whether calls of it went out. kept: text of an answer that was stopped, not gone out yet. withheld: the upstream's newest
    answer that the client is not given as it is. given: what the client is given of an answer that the upstream keeps.
    """

    dialect: Dialect
    session: Session
    plan: Admission
    calls: Calls
    verdict: Verdict = Verdict()
    spoken: Head | None = None
    sent: object = None
    said: str = ""
    kept: str = ""
    called: bool = False
    withheld: Answer | None = None
    given: Delivered | None = None

    def give(self, answer: Answer, dropped: Sequence[ToolCall] = ()) -> None:
        """Notes that the client is given an answer of the upstream's, without these calls."""
        if self.session.request.kept:
            self.given = as_it_came(answer, dropped)

    def give_own(self, id: str, choice: Choice) -> None:
        """Notes that the client is given an answer of Lastcall's in its place."""
        session = self.session
        if session.request.kept:
            kept = standing(session.record, session.request, session.prints)
            self.given = in_place_of(self.withheld, id, choice, kept, session.request)

    @property
    def reason(self) -> Reason | None:
        return self.verdict.finding.reason if self.verdict.finding is not None else self.plan.reason

    def notice(self, *, pruned: bool = False) -> Notice:
        """The `lastcall` object: of the stop or refusal, or of calls left out."""
        finding = self.verdict.finding if pruned else None
        notice = notice_of(self.plan, self.session.place, finding, self.session.label)
        failed = self.calls.account.last_error
        return notice if failed is None else msgspec.structs.replace(notice, last_error=failed)

    def head(self, answer: Answer | None, created: int, new_id: str) -> Head:
        """Identity of an answer: that of the stream it ends, else a fresh one. created: epoch seconds."""
        model = self.session.request.model
        if answer is not None and answer.id:
            return Head(answer.id, answer.model or model, answer.created or created)
        return Head(self.dialect.id_prefix + new_id, model, created)

    def begun(self, head: Head) -> Begun:
        """The stream that is brought to its end. head: its identity."""
        return Begun(head, self.session.request.choices, self.spoken is not None, self.called, self.sent)

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields that every answer carries."""
        session, plan = self.session, self.plan
        enforce = session.policy.mode is _ENFORCE
        fields = [
            (b"x-lastcall-session", session.label.encode("latin-1", "replace")),
            (b"x-lastcall-step", session.step.encode()),
            (b"x-lastcall-action", (plan.action if enforce else _ALLOW).encode()),
        ]
        if enforce and (reason := self.reason) is not None:
            fields.append((b"x-lastcall-reason", reason.encode()))
        if plan.repeat is not None:
            fields.append((b"x-lastcall-repeat", _header_text(plan.repeat)))
        if session.opened is None:
            fields.append((b"x-lastcall-degraded", b"store"))
        elif (below := _stopped_below(session)) is not None:
            fields.append((b"x-lastcall-child-stopped", below.encode()))
        return fields

    def ended(
        self,
        outcome: Outcome,
        status: int | None,
        *,
        started: float,
        now: float,
        first_byte: float | None,
        nudge_ended: NudgeEnded | None,
        waited: float = 0.0,
    ) -> ExchangeEnded:
        """The event. Times in seconds of one clock; status: what was sent; waited: for room.

        In the order of its fields: to name so many arguments takes longer than what is said in them.
        """
        session, plan, account, verdict = self.session, self.plan, self.calls.account, self.verdict
        request, identity, place, lanes = session.request, session.identity, session.place, session.record.lanes
        lane = place.lane
        return ExchangeEnded(
            self.dialect.name,
            request.model,
            session.label,
            lanes.index(lane) if lane in lanes else 0,
            session.step_number,
            plan.action,
            place.run,
            plan.reason or self.reason,
            session.policy.mode,
            plan.tool or None,
            plan.count,
            plan.limit,
            499 if outcome is _DISCONNECTED else status or 500,
            outcome,
            request.stream,
            session.opened is None,
            identity.retry,
            account.calls,
            account.input_tokens,
            account.output_tokens,
            account.cost,
            None if plan.warning is None else plan.warning.reason,
            account.estimated,
            (account.asked_at or now) - started - waited,
            waited,
            account.seconds,
            None if first_byte is None else first_byte - started,
            plan.seen,
            nudge_ended,
            len(verdict.drop) if verdict.stop is None else 0,
            account.errors,
            account.cached_tokens,
            0 if account.calls else usage_of(Answer(), request)[0].input_tokens,
            identity.team,
        )


def _stopped_below(session: Session) -> str | None:
    """Why a session below this one, or a sub-agent of this line of it, was last stopped."""
    assert session.opened is not None
    if session.opened.fallen is not None:
        return session.opened.fallen.reason
    stop = stopped_below(session.record, session.place.lane, session.asker.pardon)
    return None if stop is None else stop.reason


def _header_text(text: str) -> bytes:
    """A value that any client can read: printable ASCII, tool names cut."""
    return "".join(char if " " <= char <= "~" else "?" for char in text[-200:]).encode()
