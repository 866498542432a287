"""What decisions are made from and what they are: the case, the decision on a request, the one on an answer, the outcome.

Values, with no rule beyond keeping them consistent. `Case` is the caller's own copy of everything; a lost race is settled by giving it the
record that stands in the store now (`take`) and deciding again.
"""

from enum import Enum, auto

import msgspec

from proxy.chains import Delivered, recall
from proxy.counting import Tally
from proxy.events import FindingSeen
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place, absorb, unheard
from proxy.models import Action, Allowance, Choice, Edits, Finding, Reason, Request, ToolCall
from proxy.nudge import why, why_budget, why_flaw
from proxy.policy import Expectation, Policy, Scope
from proxy.state import Nudge, Record, Stop
from proxy.trail import History, asks_summary, read
from proxy.turns import Turn, newest, turn_of


class Case(msgspec.Struct):
    """One request with all that is known about it: its history, the rules it falls under, who asks, and its place in a record.

    expects: what its stage wants of an answer.
    """

    request: Request
    history: History
    prints: Fingerprints
    policy: Policy
    asker: Asker
    record: Record
    place: Place
    expects: Expectation | None = None

    @property
    def summarises(self) -> bool:
        """Whether the request is no turn of the agent but wants its history summed up, a title, or the like."""
        return self.asker.side or asks_summary(self.request)

    def take(self, record: Record) -> None:
        """Finds the request's place in another record, which changes that record."""
        whole = self.policy.scope is Scope.SESSION
        past = recall(record, self.request, self.prints)
        if past is not None:
            self.history = read(self.request, self.prints, past)
        self.record = record
        self.place = absorb(record, self.request, self.history, self.prints, self.asker, whole=whole)

    def turns(self) -> list[Turn]:
        """What the newest answers said, as far back as nobody said anything new."""
        said = newest(self.request, self.history, self.place.lane, self.place.run, self.prints)
        silent = unheard(self.place, self.asker) if self.place.met else 0
        return said + [turn_of("", (), frozenset(), self.prints, cut=False)] * silent if silent else said


class Serve(Enum):
    """Where the answer comes from: the upstream as usual, one last upstream call without tools, or Lastcall alone."""

    FORWARD = auto()
    FINAL = auto()
    LOCAL = auto()


class Admission(msgspec.Struct, gc=False):
    """The decision on a request.

    stop: set when this request stops its run. nudge: set when it is nudged. cause: one clause for the texts. repeat: the value of
    `x-lastcall-repeat`. counts: the tally of the trail. armed: one more message could reach a stop rung. count/limit/tool describe what
    `reason` is about; scope: whose it is; budget: the one that it is about. warning: tells the model that a budget is nearly used up.
    mended: this one answer's text is changed, no more. status: of the answer, where that is an error.
    """

    action: Action = Action.ALLOW
    serve: Serve = Serve.FORWARD
    reason: Reason | None = None
    finding: Finding | None = None
    edits: Edits = Edits()
    armed: bool = False
    nudge: Nudge | None = None
    stop: Stop | None = None
    cause: str = ""
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    scope: str = "run"
    budget: Allowance | None = None
    warning: Nudge | None = None
    repeat: str | None = None
    seen: tuple[FindingSeen, ...] = ()
    counts: Tally | None = None
    mended: bool = False
    status: int = 400

    @property
    def waits(self) -> bool:
        """Whether the request is only refused for now: the run goes on when it is sent again."""
        return self.action is Action.REFUSE and self.budget is not None and self.budget.passes

    @property
    def from_above(self) -> bool:
        """Whether the stop is another's: what asked is below it, and goes on with it."""
        return self.action is Action.STOP and self.scope == "parent" and self.budget is None

    def mend_for(self, flaw: "Flaw", *, answered: bool) -> None:
        """An answer is changed for its flaw, and the run goes on. answered: by one that the model gave when it was asked again.

        A stray token that is left out is no more than that.
        """
        harmless = flaw.finding.reason is Reason.TOOL_MARKUP and not flaw.again
        self.action, self.mended = Action.ALLOW if harmless else Action.NUDGE if answered else Action.STOP, True
        self.reason, self.finding, self.count, self.cause = flaw.finding.reason, flaw.finding, flaw.finding.count, why_flaw(flaw.finding)
        self.seen += () if harmless else (FindingSeen(flaw.finding.reason, self.action),)

    def end_for(self, budget: Allowance, action: Action) -> None:
        """The run ends, or does not go on, because a budget is used up."""
        self.action, self.reason, self.finding, self.tool, self.count, self.nudge = action, budget.reason, None, None, None, None
        self.budget, self.limit, self.scope, self.cause = budget, budget.limit, budget.scope, why_budget(budget)

    def stop_from_above(self, reason: Reason, cause: str) -> None:
        """A session above this one stands stopped, or the agent that sent this sub-agent."""
        self.action, self.reason, self.scope, self.cause = Action.STOP, reason, "parent", cause

    def stop_for(self, finding: Finding, *, made: bool = False) -> None:
        """The run is stopped for this finding, by the request (then the calls were `made`) or by the answer to it."""
        self.action, self.reason, self.finding, self.stop = Action.STOP, finding.reason, finding, stop_of(finding, made=made)
        self.tool, self.count, self.limit, self.cause = finding.tool, finding.count, finding.stop_at, why(finding)
        self.repeat = f"{finding.tool or finding.reason} {finding.count}/{finding.stop_at}"


class Flaw(msgspec.Struct, frozen=True, gc=False):
    """What is wrong with one answer's text. clean: what of it is good. again: worth asking for again. last: the run ends with it."""

    finding: Finding
    clean: str
    again: bool
    last: bool = False


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The decision on an answer. drop: calls to leave out, as (choice, call) positions. stop: the run ends instead of the answer.

    flaw: its text cannot be given as it is.
    """

    drop: frozenset[tuple[int, int]] = frozenset()
    finding: Finding | None = None
    stop: Stop | None = None
    seen: tuple[FindingSeen, ...] = ()
    flaw: Flaw | None = None


class Result(msgspec.Struct, frozen=True, gc=False):
    """What came of an exchange. full: the answer reached the client to its end. calls: those it was given. ended: epoch seconds.

    blocked: the client was sent away without an answer of the model's, by a stop or an error. own: the model answered as it would, not in
    a wrap-up. said: what the client was given, None without an answer. ended_for: the reason for which the client was sent away or
    brought to its end. given: what of its answer the upstream keeps too.
    """

    ended: float
    full: bool
    calls: tuple[ToolCall, ...] = ()
    answered: bool = True
    blocked: bool = False
    own: bool = True
    nudge: Nudge | None = None
    warning: Nudge | None = None
    stop: Stop | None = None
    ended_for: Reason | None = None
    dropped: frozenset[int] = frozenset()
    said: Choice | None = None
    given: Delivered | None = None


def stop_of(finding: Finding, *, made: bool = False) -> Stop:
    """What a record keeps of a finding that stopped a run."""
    return Stop(finding.reason, finding.tool, finding.count, finding.stop_at or 0, sorted(finding.calls)[:8], made)
