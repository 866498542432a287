"""The operator's desk: looking sessions, teams and rules up, and changing what a session may do.

Every change is in the store before its answer is given, so that each replica sees it at its next request. Whatever cannot be done is a
`BadRequest` that says what to do instead. Nothing here shows content or keys.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from proxy.errors import BadRequest
from proxy.events import OperatorActed, OperatorAction
from proxy.exchange.setting import Setting
from proxy.identity import Keys
from proxy.models import BUDGET_REASONS, TEXT_REASONS, Reason
from proxy.pardon import note_of, pardon_of
from proxy.purse import accounts_of, ceilings_of
from proxy.state import Record, load
from proxy.store import Account, Amendment, Ceiling, Listed, Mark, Peeked, Store, shared
from proxy.tenants import Tenant
from proxy.views import (
    PolicyView,
    SessionPage,
    SessionView,
    TeamView,
    UsageRow,
    hashed,
    policy_values,
    price_values,
    row_of,
    session_view,
    team_view,
    unit_name,
    usage_rows,
)

MOST_DAYS = 400
MOST_LISTED = 200
_SEARCHED_AT_ONCE = 200
_MOST_PAGES = 20  # of the index, for one part of a list
_KEY = re.compile(r"[0-9a-f]{32}")
_HASHED = re.compile(r"[0-9a-f]{16}")
_DIALECTS = ("chat", "responses", "messages")
_LARGEST = 2**53  # what the store counts exactly
_LONGEST = 3650 * 86_400.0
_MOST_TRIES = 20
_FIRST = date(1, 1, 30)  # before it there are not thirty days
_NOTHING: Mapping[str, object] = {}
_AS_WRITTEN = {"extra": "forbid"}  # a limit that is misspelt is no limit: say so


class _Strict:
    """Marks a number that must be written as one: pydantic, which reads it, is not to turn a text into it."""

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, object]]) -> dict[str, object]:
        return handler(source) | {"strict": True}


_Count = Annotated[int, _Strict()] | None
_Amount = Annotated[float, _Strict()] | None


@dataclass(frozen=True, slots=True)
class Raise:
    """Limits to be in force from now on, whatever the configuration and the client say; what is left out stays.

    deadline: seconds after the session's start. restore: forget what was raised before.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = _AS_WRITTEN

    steps: _Count = None
    tokens: _Count = None
    input: _Count = None
    output: _Count = None
    cost_usd: _Amount = None
    deadline: _Amount = None
    restore: Annotated[bool, _Strict()] = False


@dataclass(frozen=True, slots=True)
class TeamRaise:
    """Limits of a team's budgets, each in force until its window ends; what is left out stays.

    per: the window of the budgets, where the team has several of one unit. restore: forget what was raised before.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = _AS_WRITTEN

    per: Literal["minute", "hour", "day", "week", "month"] | None = None
    steps: _Count = None
    tokens: _Count = None
    input: _Count = None
    output: _Count = None
    cost_usd: _Amount = None
    restore: Annotated[bool, _Strict()] = False


class Found(msgspec.Struct, frozen=True):
    """A session that was looked up. name: where it was asked for by name."""

    key: bytes
    name: str | None
    team: str
    peeked: Peeked


Decide = Callable[[Peeked, Record], Amendment]
"""What to change about a session as it stands."""


class Desk:
    """What an operator can ask and do. setting: the one in force. ttl: how long an amended session is kept at least, seconds.

    emit: takes an event for every change.
    """

    def __init__(self, store: Store, setting: Callable[[], Setting], *, ttl: float, emit: Callable[[OperatorActed], object]) -> None:
        self._store = store
        self._setting = setting
        self._ttl = ttl
        self._emit = emit

    # ---- looking

    async def page(self, *, after: str, count: int, team: str | None, search: str) -> SessionPage:
        """Sessions, those used last first."""
        if team is not None:
            self._team(team)
        found: list[Listed] = []
        for _ in range(_MOST_PAGES):
            page = await self._store.page(after=after, count=count - len(found), tenant=team, search=search)
            found += page.sessions
            after = page.after
            if not after or len(found) == count:
                break
        looks = await self._store.peek([Account(one.session) for one in found]) if found else []
        return SessionPage([row_of(one, look) for one, look in zip(found, looks, strict=True)], after or None)

    async def show(self, session: str, team: str | None) -> SessionView:
        """One session, by its key or its name."""
        found = await self._find(session, team)
        return await self._view(found, found.peeked)

    async def teams(self) -> list[TeamView]:
        """What every team spends now."""
        tenants = self._setting().tenants
        names = tenants.names
        if not names:
            return []
        keys = Keys(shared(await self._store.secret()))
        accounts = [self._account(keys, tenants.named(name)) for name in names]
        looks = await self._store.peek(accounts)
        return [team_view(name, account, look) for name, account, look in zip(names, accounts, looks, strict=True)]

    async def team(self, name: str) -> TeamView:
        """What one team spends now."""
        account = self._account(Keys(shared(await self._store.secret())), self._team(name))
        (look,) = await self._store.peek([account])
        return team_view(name, account, look)

    async def usage(self, name: str, first: str | None, last: str | None) -> list[UsageRow]:
        """What a team spent, by day and model: by default in the last thirty days of the configured time zone."""
        days = _days(first, last, self._team(name).quota(self._setting().wall()).day)
        keys = Keys(shared(await self._store.secret()))
        return usage_rows(await self._store.usage(keys.ledger(name), days))

    async def policy(self, headers: Mapping[str, str], team: str | None, model: str) -> PolicyView:
        """The rules for a team's requests to a model. headers: show the team's key, where no team is named."""
        setting = self._setting()
        tenant = setting.tenants.of(headers) if team is None else self._team(team)
        ways = {dialect: next((way.name for way in setting.ways_of(tenant) if way.serves(dialect, model)), None) for dialect in _DIALECTS}
        price = tenant.price(model, next((name for name in ways.values() if name is not None), ""))
        allowed, counted = tenant.may_use(model), tenant.label(model)
        limits = (await self.team(tenant.name)).limits if tenant.name else []
        return PolicyView(tenant.name, model, allowed, counted, ways, price_values(price), limits, policy_values(tenant.policy(model)))

    # ---- changing

    async def mark(self, session: str, team: str | None, action: OperatorAction, who: str) -> SessionView:
        """Pauses, stops or resumes."""
        marks = {OperatorAction.PAUSE: Mark.PAUSED, OperatorAction.STOP: Mark.STOPPED, OperatorAction.RESUME: Mark.NONE}

        def decide(peeked: Peeked, _: Record) -> Amendment:
            lift = action is OperatorAction.RESUME and peeked.stop == Reason.OPERATOR  # as a refusal by the mark left it
            return Amendment(mark=marks[action], lift=lift)

        return await self._change(session, team, action, who, decide)

    async def reset(self, session: str, team: str | None, who: str) -> SessionView:
        """Begins anew: nothing spent, nothing counted, no stop. A pause stays."""

        def decide(peeked: Peeked, _: Record) -> Amendment:
            before = pardon_of(peeked.note)
            pardon = before.with_reset(_number(peeked.now, before.reset))
            mark = Mark.NONE if peeked.mark is Mark.STOPPED else None
            return Amendment(reset=True, mark=mark, note=note_of(pardon), lift=True)

        return await self._change(session, team, OperatorAction.RESET, who, decide)

    async def raised(self, session: str, team: str | None, limits: Raise, who: str) -> SessionView:
        """Puts limits in force in the place of the configuration's."""
        ceilings = ceilings_of(*_amounts(limits, also=limits.deadline))

        def decide(peeked: Peeked, _: Record) -> Amendment:
            lift = peeked.stop in BUDGET_REASONS
            return Amendment(raised=ceilings, deadline=limits.deadline, restore=limits.restore, lift=lift)

        return await self._change(session, team, OperatorAction.RAISE, who, decide, change=_named(limits))

    async def allow(self, session: str, team: str | None, calls: Sequence[str], who: str) -> SessionView:
        """Lets calls through once more: those named by their fingerprints, else those for which a run stands stopped."""
        named = [_fingerprint(call) for call in calls]
        chosen: list[str] = []

        def decide(peeked: Peeked, record: Record) -> Amendment:
            calls = named or _stopped_calls(record, session)
            chosen[:] = map(hashed, calls)
            before = pardon_of(peeked.note)
            return Amendment(note=note_of(before.with_allowed(calls, _number(peeked.now, before.allowed))), lift=True)

        return await self._change(session, team, OperatorAction.ALLOW, who, decide, change={"calls": chosen})

    async def raise_team(self, name: str, limits: TeamRaise, who: str) -> TeamView:
        """Puts limits of a team's budgets in force in the place of the configuration's, each until its window ends."""
        amounts = _amounts(limits)
        account = self._account(Keys(shared(await self._store.secret())), self._team(name))
        raised = _in_their_windows(name, account.ceilings or (), ceilings_of(*amounts), limits.per)
        amended = await self._store.amend(account, Amendment(raised=raised, restore=limits.restore), self._ttl)
        self._emit(OperatorActed(OperatorAction.RAISE, who, "", team=name, change=_named(limits)))
        return team_view(name, account, amended)

    async def _change(
        self, session: str, team: str | None, action: OperatorAction, who: str, decide: Decide, *, change: Mapping[str, object] = _NOTHING
    ) -> SessionView:
        """Decides on a session as it stands, once more whenever somebody else has changed it meanwhile: no change undoes another."""
        found = await self._find(session, team)
        for _ in range(_MOST_TRIES):
            amendment = decide(found.peeked, await self._record(found.peeked))
            seen = msgspec.structs.replace(amendment, seen=found.peeked.stamp)
            amended = await self._store.amend(Account(found.key), seen, self._ttl)
            if amended is not None:
                self._emit(OperatorActed(action, who, found.key.hex(), found.name or "", found.team, change))
                return await self._view(found, amended)
            (peeked,) = await self._store.peek([Account(found.key)])
            if peeked is None:
                raise _unknown(session)
            found = msgspec.structs.replace(found, peeked=peeked)
        raise BadRequest(
            f"session {session[:100]!r} is changed by others all the time: try again", status=409, code="lastcall_changed_meanwhile"
        )

    async def _view(self, found: Found, peeked: Peeked) -> SessionView:
        return session_view(found.key, found.name, peeked, await self._record(peeked))

    async def _record(self, peeked: Peeked) -> Record:
        return load(peeked.record, Keys(shared(await self._store.secret())).secret_id())

    # ---- finding

    async def _find(self, session: str, team: str | None) -> Found:
        """The session of that key or, if no other has it, of that name. team: the only one to look in."""
        if _KEY.fullmatch(session):
            (peeked,) = await self._store.peek([Account(bytes.fromhex(session))])
            if peeked is not None:
                return Found(bytes.fromhex(session), None, team or "", peeked)
        if team is not None:  # or it is a name that looks like a key
            self._team(team)
        named, after = [], ""
        while True:
            page = await self._store.page(after=after, count=_SEARCHED_AT_ONCE, tenant=team, search=session)
            named += [one for one in page.sessions if one.listing.label == session]
            after = page.after
            if not after:
                break
        looks = await self._store.peek([Account(one.session) for one in named]) if named else []
        alive = [
            Found(one.session, one.listing.label, one.listing.tenant, peeked)
            for one, peeked in zip(named, looks, strict=True)
            if peeked is not None
        ]
        if not alive:
            raise _unknown(session)
        if len(alive) > 1:
            keys = ", ".join(one.key.hex() for one in alive[:5])
            raise BadRequest(
                f"{len(alive)} sessions have the name {session[:100]!r}: say which by its key ({keys}), or by its team",
                status=409,
                code="lastcall_ambiguous_session",
            )
        return alive[0]

    def _team(self, name: str) -> Tenant:
        tenants = self._setting().tenants
        if name not in tenants.names:
            known = ", ".join(tenants.names) or "none"
            raise BadRequest(f"no team {name[:100]!r}; teams in the configuration: {known}", status=404, code="lastcall_unknown_team")
        return tenants.named(name)

    def _account(self, keys: Keys, tenant: Tenant) -> Account:
        (account,) = accounts_of((), keys.ledger(tenant.name), tenant.quota(self._setting().wall()))
        return account


def _unknown(session: str) -> BadRequest:
    return BadRequest(
        f"no session {session[:100]!r}: it has ended, or never was; `lastcall sessions list` names those that there are",
        status=404,
        code="lastcall_unknown_session",
    )


def _number(now: float, before: int) -> int:
    """Names a change: the store's milliseconds, and never a name that was."""
    return max(int(now * 1000), before + 1)


def _stopped_calls(record: Record, session: str) -> list[int]:
    """The calls for which runs of a session stand stopped."""
    stops = [lane.stop for lane in record.lanes if lane.stop is not None]
    calls = [call for stop in stops if stop.reason not in TEXT_REASONS for call in stop.calls]
    if calls:
        return list(dict.fromkeys(calls))
    raise BadRequest(
        f"session {session[:100]!r} was not stopped for a call: reset it"
        if stops
        else f"no run of session {session[:100]!r} stands stopped: name the call to allow by its fingerprint",
        status=409,
        code="lastcall_nothing_to_allow",
    )


def _fingerprint(call: str) -> int:
    if not _HASHED.fullmatch(call):
        raise BadRequest(f"{call[:40]!r} is no fingerprint of a call; use the 16 hexadecimal digits that the session's trail shows")
    return int(call, 16)


def _named(limits: Raise | TeamRaise) -> dict[str, object]:
    """What was asked for, for the log."""
    return {name: value for name, value in asdict(limits).items() if value is not None and value is not False}


def _amounts(limits: Raise | TeamRaise, *, also: float | None = None) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """Steps, input, output, tokens and nano-dollars. also: a deadline. Raises `BadRequest` for what cannot be, and for nothing."""
    cost = limits.cost_usd
    tokens = {"input": limits.input, "output": limits.output, "tokens": limits.tokens}
    asked = {"steps": limits.steps, **tokens, "cost_usd": cost, "deadline": also}
    for name, value in asked.items():
        most = _LONGEST if name == "deadline" else _LARGEST / 1e9 if name == "cost_usd" else _LARGEST
        if value is not None and not 0 <= value <= most:
            raise BadRequest(f"{name} is {value!r}; use a number from 0 (none at all) to {most:.15g}")
    if not limits.restore and all(value is None for value in asked.values()):
        raise BadRequest("nothing to raise: name a limit, such as steps, tokens or cost_usd, or restore")
    return limits.steps, limits.input, limits.output, limits.tokens, None if cost is None else round(cost * 1e9)


def _in_their_windows(team: str, budgets: Sequence[Ceiling], raised: Sequence[Ceiling], per: str | None) -> tuple[Ceiling, ...]:
    """Limits in the windows of a team's budgets. Raises `BadRequest` where it has no such budget, or several."""
    placed = []
    for one in raised:
        fits = [budget for budget in budgets if budget.unit is one.unit and per in (None, budget.window.partition(" ")[0])]
        if len(fits) != 1:
            there = ", ".join(f"{unit_name(budget.unit)} per {budget.window.partition(' ')[0]}" for budget in budgets) or "none"
            what = f"{'several budgets' if fits else 'no budget'} in {unit_name(one.unit)}{f' per {per}' if per else ''}"
            raise BadRequest(f"team {team!r} has {what}; it has: {there}; name one, with its window in per")
        placed.append(msgspec.structs.replace(fits[0], limit=one.limit))
    return tuple(placed)


def _days(first: str | None, last: str | None, today: str) -> list[str]:
    """The days from one date to another, both included."""
    end = _date("to", last) if last else date.fromisoformat(today)
    start = _date("from", first) if first else max(end, _FIRST) - timedelta(days=29)
    count = (end - start).days + 1
    if not 1 <= count <= MOST_DAYS:
        raise BadRequest(f"from {start} to {end} are {count} days; ask for 1 to {MOST_DAYS}")
    return [str(start + timedelta(days=number)) for number in range(count)]


def _date(name: str, text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise BadRequest(f"{name} is {text[:40]!r}; use a date such as 2026-11-29") from None
