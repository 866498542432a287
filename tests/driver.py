"""An agent loop against a scripted model with the engine between them and nothing else: no wire, no store, no waiting.

`House` keeps what a store would, the record's bytes, and asks the engine in the order in which an exchange does. `Agent` is a client: it
keeps a history and sends all of it. A model's reply is a text, a `called(…)` or a `together(…)`; the result written with a call is what
the agent's tool returns when the call reaches it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from proxy.budgets import Spending
from proxy.dialects.chat import Chat
from proxy.engine import Admission, Case, Result, Serve, Verdict, admit, conclude, edits_of, judge
from proxy.events import FindingSeen, NudgeEnded
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Action, Allowance, Answer, Choice, Edits, Reason, Request, ToolCall
from proxy.nudge import local_message
from proxy.pardon import NOTHING, Pardon
from proxy.policy import Canonical, Mode, OnStop, Policy
from proxy.state import NOBODY, Record, dump, load
from proxy.trail import read
from tests.transcripts import Call, Together, Turn, request, said

TOOLS = ("read_file", "bash", "edit")
CONCLUSION = "This is what I know."
Reply = str | Call | Together

_SECRET = b"s" * 32
_KEY = 7  # names the secret in records


def steps(limit: float, spent: float) -> Allowance:
    """A session's budget of steps, and how much of it is used."""
    return Allowance(Reason.STEP_BUDGET, "steps", limit, spent)


def tokens(limit: float, spent: float) -> Allowance:
    """The same of tokens."""
    return Allowance(Reason.TOKEN_BUDGET, "tokens", limit, spent)


class Exchange(Case, kw_only=True):
    """One request under way and, once ended, what came of it.

    edits: what was changed in each upstream call. given: what the client got, None for an error. ended: the end of a nudged run.
    """

    plan: Admission = msgspec.field(default_factory=Admission)
    version: int
    verdict: Verdict = Verdict()
    edits: list[Edits] = msgspec.field(default_factory=list)
    given: Reply | None = None
    ended: NudgeEnded | None = None

    @property
    def decision(self) -> str:
        """`ok`, `nudge`, `prune`, `stop` or `refuse`."""
        if self.plan.action is Action.ALLOW:
            return "prune" if self.verdict.drop else "ok"
        return str(self.plan.action)

    @property
    def seen(self) -> tuple[FindingSeen, ...]:
        return self.plan.seen

    @property
    def texts(self) -> list[tuple[int, str]]:
        """What the first upstream call had inserted, and where."""
        return [(insert.item, insert.text) for insert in self.edits[0].inserts]

    @property
    def body(self) -> str:
        """The first upstream call as sent."""
        return Chat().rewrite(self.request, self.edits[0]).decode()


class Cut(msgspec.Struct, frozen=True):
    """A reply that ends at the output limit: its text, or its call with what there is of the arguments."""

    reply: str | Call


class House:
    """One session: its policy and its record, as bytes between any two requests."""

    def __init__(self, policy: Policy | None = None, *, named: bool = True) -> None:
        self.policy = policy or Policy()
        self.named = named
        self.prints = Fingerprints(_SECRET, loose=self.policy.canonical is Canonical.LOOSE)
        self.data: bytes | None = None
        self.version = 0
        self.now = 1_000.0
        self.pardon: Pardon = NOTHING  # what an operator forgave

    @property
    def record(self) -> Record:
        """What is remembered."""
        return load(self.data, _KEY)

    def begin(
        self,
        turns: Sequence[Turn],
        *,
        lane: int = 0,
        retry: bool = False,
        tools: Sequence[str] = TOOLS,
        system: str = "s",
        spending: Spending | None = None,
        in_flight: tuple[int, ...] = (),
        side: bool = False,
        sent_by: int = NOBODY,
    ) -> Exchange:
        """A request arrives: load, absorb, admit. spending: what its ledger says. side: the client says that it is no turn of its agent.

        sent_by: the lane that sent this one.
        """
        self.now += 1
        asked = request(*turns, tools=tools, system=system)
        asker = Asker(lane, self.named, retry, self.now, in_flight, side=side, pardon=self.pardon, sent_by=sent_by)
        history = read(asked, self.prints)
        x = Exchange(asked, history, self.prints, self.policy, asker, Record(0, 0), Place.nowhere(), version=self.version)
        x.take(self.record)
        x.plan = admit(x, spending or Spending())
        return x

    def end(self, x: Exchange, reply: Reply | Cut, *, full: bool = True) -> Exchange:
        """Its answer arrives: judge, conclude, dump. full: whether the client got all of it."""
        self.now += 1
        blocked = False
        match x.plan.serve:
            case Serve.LOCAL:
                blocked = self._local(x)
            case Serve.FINAL:
                self._final(x)
            case Serve.FORWARD:
                x.edits.append(x.plan.edits)
                blocked = self._judge(x, reply)
        delivered = x.plan.action is not Action.STOP and isinstance(reply, Cut)
        given = None if x.given is None else answer_of(reply if delivered else x.given, x.request).choices[0]
        dropped = x.verdict.finding.calls if x.verdict.finding is not None and x.verdict.drop else frozenset[int]()
        result = Result(
            self.now,
            full,
            () if given is None else given.calls,
            answered=not blocked,
            blocked=blocked,
            own=x.plan.serve is Serve.FORWARD,
            nudge=x.plan.nudge,
            warning=x.plan.warning,
            stop=x.plan.stop,
            dropped=dropped,
            said=given,
        )
        x.ended = self.commit(x, result)
        return x

    def commit(self, x: Exchange, result: Result) -> NudgeEnded | None:
        """By compare-and-set: a lost race runs `absorb` and `conclude` again on what stands there now; the event is the first run's."""
        ended = conclude(x, result)
        if x.version != self.version:
            x.take(self.record)
            conclude(x, result)
        self.data, self.version = dump(x.record), self.version + 1
        return ended

    def ask(self, turns: Sequence[Turn], reply: Reply | Cut, *, full: bool = True, **options: Any) -> Exchange:
        """One exchange from request to commit. options: those of `begin`."""
        return self.end(self.begin(turns, **options), reply, full=full)

    def _judge(self, x: Exchange, came: Reply | Cut) -> bool:
        verdict = judge(x, answer_of(came, x.request), x.plan.counts)
        x.given = reply = came.reply if isinstance(came, Cut) else came
        if self.policy.mode is Mode.OBSERVE:
            known = x.plan.action in (Action.STOP, Action.REFUSE) or x.place.lane.stop is not None
            if verdict.stop is not None and verdict.finding is not None and not known:
                x.plan.stop_for(verdict.finding)
                x.plan.seen += verdict.seen
            return False
        x.verdict = verdict
        x.plan.seen += verdict.seen
        if verdict.stop is not None and verdict.finding is not None:
            x.plan.stop_for(verdict.finding)
            if self.policy.on_stop is not OnStop.WRAP_UP:
                return self._local(x)
            self._final(x)
        elif verdict.drop:
            x.given = Together(tuple(call for at, call in enumerate(_calls(reply)) if (0, at) not in verdict.drop), "")
        return False

    def _final(self, x: Exchange) -> None:
        x.plan.serve = Serve.FINAL
        x.edits.append(edits_of(x.plan, x, attempt=0))
        x.given = CONCLUSION

    def _local(self, x: Exchange) -> bool:
        """Gives the local message; whether it is an error instead."""
        blocked = self.policy.on_stop is OnStop.ERROR
        x.given = None if blocked else local_message(x.plan.cause, x.plan.reason or Reason.REPEATED_CALL, above=x.plan.from_above)
        return blocked


class Agent:
    """A client with a history that grows by what it is given."""

    def __init__(self, house: House, *opening: Turn, **options: Any) -> None:
        """options: those of `House.begin`, for every request."""
        self.house = house
        self.turns: list[Turn] = list(opening)
        self.options = options

    def step(self, reply: Reply | Cut, **options: Any) -> Exchange:
        """Asks once and keeps the answer. options: those of `House.ask`."""
        x = self.house.ask(self.turns, reply, **(self.options | options))
        if x.given is not None:
            self.turns.append(said(x.given) if isinstance(x.given, str) else x.given)
        return x

    def play(self, replies: Iterable[Reply]) -> list[str]:
        """The decisions on one reply after another, up to the first that ends the loop."""
        decisions = []
        for reply in replies:
            x = self.step(reply)
            decisions.append(x.decision)
            if x.given is None or isinstance(x.given, str):
                break
        return decisions


def answer_of(reply: Reply | Cut, asked: Request) -> Answer:
    """The reply as an upstream's answer to a request, its calls numbered on from those of the history where they have no id."""
    if isinstance(reply, Cut):
        whole = answer_of(reply.reply, asked)
        return msgspec.structs.replace(whole, choices=(msgspec.structs.replace(whole.choices[0], finish="length"),))
    if isinstance(reply, str):
        return Answer((Choice(reply, (), "stop"),), complete=True)
    made = sum(len(item.calls) for item in asked.items)
    numbered = [(call.id or f"call_{made + place}", call) for place, call in enumerate(_calls(reply))]
    calls = tuple(ToolCall(id, call.name, _arguments(call)) for id, call in numbered)
    return Answer((Choice(reply.text, calls, "tool_calls"),), complete=True)


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()


def _calls(reply: Reply) -> tuple[Call, ...]:
    match reply:
        case str():
            return ()
        case Call():
            return (reply,)
        case Together(calls):
            return calls
