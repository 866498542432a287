"""The session an exchange belongs to, in the store: found, opened with a reservation, and committed with what it came to.

Awaits the store and nothing else. Which lane, which run, which decision: `lanes` and `engine` say so, on the record held here.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from proxy.budgets import Spending
from proxy.chains import MOST_NAMED
from proxy.contention import written_anew
from proxy.engine import Case, Result, conclude
from proxy.errors import StoreUnavailable
from proxy.events import NudgeEnded, StoreFailed, StoreOperation
from proxy.family import Family, Line
from proxy.fingerprint import Fingerprints
from proxy.hindsight import learn
from proxy.identity import Identity, Keys
from proxy.lanes import Asker, Place
from proxy.leases import WHATEVER_COMES, Leases
from proxy.links import Linked, links_after, links_of, passage_links
from proxy.models import Allowance, Answer, Choice, Request
from proxy.pardon import pardon_of
from proxy.policy import Canonical, Mode, Policy
from proxy.prices import Price
from proxy.purse import Purse, accounts_of
from proxy.records import Records
from proxy.standing import deadline_of, spending_of
from proxy.state import MAIN, Record, load
from proxy.store import Committed, Listing, MemoryStore, Opened, Settlement, Store, Unit, shared
from proxy.tenants import Quota
from proxy.trail import head_of, is_side, read

_LOOSE, _OBSERVE, _ENFORCE = Canonical.LOOSE, Mode.OBSERVE, Mode.ENFORCE  # the enums' own attributes cost a look-up each time
_STEPS = Unit.STEPS
_NO_QUOTA = Quota()
_NOBODY, _UNREAD, _NOWHERE = Asker(), Record(0, 0), Place.nowhere()  # of a session until its record is at hand; nobody changes them


class Session(Case, kw_only=True):
    """An opened session and this request's place in it.

    label: what people see of it. opened: None while the store is away. granted: output tokens that the call under way may take, None for
    no limit. line: the sessions above it. purse: what pays. settlements: what calls already made came to, not yet sent. within: what ends
    a wait for room before its time. came: when the call under way was first asked for, epoch seconds of the store's clock.
    """

    key: bytes
    label: str
    scope: bytes
    named: bool
    identity: Identity
    keys: Keys
    quota: Quota = _NO_QUOTA
    line: Line = ()
    opened: Opened | None = None
    purse: Purse = Purse()
    granted: int | None = None
    lease: str
    settlements: list[Settlement] = msgspec.field(default_factory=list)
    within: AbstractContextManager[object] = WHATEVER_COMES
    came: float = math.inf

    @property
    def now(self) -> float:
        """When it was opened, epoch seconds: later than `asker.began` where the call had to wait for room."""
        return self.asker.began if self.opened is None else self.opened.now

    @property
    def spending(self) -> Spending:
        """What the ledger said to this request."""
        return Spending() if self.opened is None else spending_of(self.opened, self.purse.accounts)

    @property
    def deadline(self) -> Allowance | None:
        """The session's time as a budget that is over; None without one."""
        return None if self.opened is None else deadline_of(self.opened)

    @property
    def time_left(self) -> float | None:
        """Seconds that were left when the session was opened, of its own time and of that of those above it; None without a deadline."""
        if self.opened is None or self.opened.ends_at is None:
            return None
        return self.opened.ends_at - self.opened.now

    @property
    def step_number(self) -> int:
        """Which step of the session the request is, from 1; the last there can be where none is left."""
        return self._step()[0]

    @property
    def step(self) -> str:
        """The value of `x-lastcall-step`."""
        number, limit = self._step()
        return f"{number}" if limit is None else f"{number}/{limit}"

    def _step(self) -> tuple[int, int | None]:
        opened = self.opened
        if opened is None:
            return len(self.history.messages) + 1, None
        limit = opened.limit(_STEPS) if opened.standings else None
        return (opened.step if limit is None else min(opened.step, limit)), limit


class Sessions:
    """All sessions of a process. new_id makes unique ids; wall gives epoch seconds where the store's clock cannot be had."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float,
        closed: bool,
        patience: float,
        new_id: Callable[[], str],
        wall: Callable[[], float],
        on_failure: Callable[[StoreFailed], None],
    ) -> None:
        self._store = store
        self._ttl = ttl
        self._closed = closed
        self._patience = patience
        self._new_id = new_id
        self._wall = wall
        self._on_failure = on_failure
        self._prints: dict[tuple[bytes, bool], tuple[Keys, Fingerprints]] = {}
        self._committing: dict[bytes, asyncio.Task[bool]] = {}
        self._linked = Linked(ttl / 2)
        self._leases = Leases(store, ttl)
        self._records = Records()
        self._family = Family(ttl)
        self._given_up: set[asyncio.Task[None]] = set()

    async def open(
        self,
        identity: Identity,
        request: Request,
        policy: Policy,
        price: Price | None = None,
        quota: Quota = _NO_QUOTA,
        model: str = "",
        *,
        within: AbstractContextManager[object] = WHATEVER_COMES,
    ) -> Session:
        """Finds or makes the session and reserves for one call. price: of the model; model: the name it is counted under.

        quota: what the team may spend. within: as in `Session`; what it raises is raised. Raises `StoreUnavailable` only when the failure
        mode is closed, `BadRequest` for a session that cannot be where it says it is.
        """
        secret = await self._store.secret()
        keys, prints = self._tools(secret, policy)
        history = read(request, prints)
        steps = 0 if identity.side or is_side(request) else 1
        name, key = identity.session, b""
        if name is not None:
            tenant, key, scope = keys.named(identity.caller, name, identity.team)
        else:
            tenant = scope = keys.tenant(identity.caller, identity.team)
        session = Session(
            request,
            history,
            prints,
            policy,
            _NOBODY,
            _UNREAD,
            _NOWHERE,
            key=key,
            label=name or "",
            scope=scope,
            named=name is not None,
            identity=identity,
            keys=keys,
            lease=self._new_id(),
            purse=Purse(price, steps=steps, model=model, day=quota.day),
            quota=quota,
            within=within,
        )
        try:
            shared(secret)
            by_passage = name is None and await self._locate(session, tenant)
            await self._open(session)
            if by_passage or (session.named and _is_new(session)):
                await self._correct(session, tenant, by_passage)
        except StoreUnavailable as error:
            if self._closed:
                await self._hand_back(session)
                raise
            self._degrade(session, error)
        except BaseException:
            self.give_up(session)
            raise
        session.within = WHATEVER_COMES  # of its further calls the client is watched anyway
        return session

    async def _hand_back(self, session: Session) -> None:
        if session.opened is not None:
            with contextlib.suppress(StoreUnavailable):  # then the store's guard sends it later
                await self._release(session)

    def give_up(self, session: Session) -> None:
        """Settles what an exchange leaves behind that ended in a fault: what its calls came to, and nothing for one not yet settled."""
        if self._leases.holds(session.lease) and all(settled.lease != session.lease for settled in session.settlements):
            session.settlements.append(session.purse.nothing(session.lease))
        if session.settlements:
            task = asyncio.get_running_loop().create_task(self._settle_beside(session))
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)

    async def _settle_beside(self, session: Session) -> None:
        with contextlib.suppress(StoreUnavailable):  # then the store's guard sends it later
            await self._settle(session)

    def _tools(self, secret: bytes, policy: Policy) -> tuple[Keys, Fingerprints]:
        loose = policy.canonical is _LOOSE
        tools = self._prints.get((secret, loose))
        if tools is None:
            if len(self._prints) > 8:
                self._prints.clear()
            tools = self._prints[secret, loose] = Keys(secret), Fingerprints(secret, loose=loose)
        return tools

    async def _locate(self, session: Session, tenant: bytes) -> bool:
        """Sets the key of a nameless session; whether it was only found by a passage of an answer, which the record must confirm."""
        links = links_of(session, session.keys, session.scope, named=session.named)
        by_passage = not links
        if by_passage:
            links = passage_links(session, session.keys, session.scope)
        found = None if by_passage else self._linked.surest(links, self._wall())
        if found is None and links:
            found = await self._find(links)
        if found is None:
            self._name_anew(session, tenant)
            return False
        session.key, session.label = found, _label(found)
        return by_passage

    def _name_anew(self, session: Session, tenant: bytes) -> None:
        session.key = session.keys.session(tenant, "derived " + self._new_id())
        session.label = _label(session.key)

    async def _find(self, links: Sequence[bytes]) -> bytes | None:
        try:
            return self._linked.not_yet_stored(links) or await self._store.find(links)
        except StoreUnavailable as error:
            raise self._noted(StoreOperation.FIND, error) from None

    async def _open(self, session: Session) -> None:
        if session.key in self._committing:
            await self._committed_so_far(session.key)
        parent, tokens = session.keys.parent(session.identity), session.history.tokens
        session.line = self._family.guess(session.key, parent)
        session.opened = opened = await self._reserve(session)  # at once: whoever gives up from here on has a lease to give back
        known = session.keys.secret_id()
        record = self._records.load(session.key, opened.record, known)
        line, written = await self._family.above(self._store, session.key, parent, record, new=opened.record is None)
        if line != session.line:  # another process has seen this session or its parent before
            await self._release(session)
            session.line, session.lease = line, self._new_id()
            session.opened = opened = await self._reserve(session)
            record = load(opened.record, known)  # others may have written since
        elif written:
            session.opened = opened = msgspec.structs.replace(opened, version=written)
        record.line = list(line)
        session.asker = _asker(session, named=session.named, began=session.came, in_flight=opened.in_flight, note=opened.note)
        session.take(record)
        if session.history.tokens > tokens and any(one.ceiling.unit is not Unit.STEPS for one in opened.standings):
            await self._open(session)  # once more, now that it is known how much the upstream will read beside the body

    async def _committed_so_far(self, key: bytes) -> None:
        """Waits for an answer that this process gave and that is not in the store yet."""
        await asyncio.wait({self._committing[key]}, timeout=self._patience)

    async def _reserve(self, session: Session) -> Opened:
        """Asks every ledger that pays. Where rules are only watched nobody waits. Raises `StoreUnavailable`."""
        team = session.keys.ledger(session.identity.team) if session.identity.team else b""
        accounts = accounts_of(session.line, team, session.quota)
        if accounts != session.purse.accounts:
            session.purse = msgspec.structs.replace(session.purse, accounts=accounts)
        asked = session.purse.reservation(
            session.lease,
            session.history.seed,
            session.request,
            session.policy.budgets,
            session.identity,
            past=session.history.tokens,
            patient=session.policy.mode is _ENFORCE,
        )
        try:
            opened, session.came = await self._leases.reserve(session.key, asked, session.within, session.came)
        except StoreUnavailable as error:
            raise self._noted(StoreOperation.OPEN, error) from None
        session.granted = opened.output
        return opened

    async def _correct(self, session: Session, tenant: bytes, by_passage: bool) -> None:
        """Two second thoughts, both rare: a quoted passage that continues nothing, and a named session under a refreshed key."""
        if by_passage and not _continues(session):
            await self._release(session)
            self._name_anew(session, tenant)
        elif session.named and _is_new(session) and (links := links_of(session, session.keys, session.scope, named=session.named)):
            elsewhere = await self._find(links)
            if elsewhere is None or elsewhere == session.key:
                return
            await self._release(session)
            session.key = elsewhere
        else:
            return
        session.lease = self._new_id()
        await self._open(session)

    async def _release(self, session: Session) -> None:
        session.settlements.append(session.purse.nothing(session.lease))
        await self._settle(session)

    async def _settle(self, session: Session) -> None:
        """What calls already made came to, without the record: what they held is free for the next."""
        settlements, session.settlements = session.settlements, []
        if settlements:
            for settled in settlements:
                self._leases.let_go(settled.lease)
            await self._store.commit(session.key, record=None, version=0, settlements=settlements, links=[], ttl=self._ttl)
            self._leases.settled(session.key, settlements)

    def _degrade(self, session: Session, error: StoreUnavailable) -> None:
        """The store is away: judge from history alone, remember nothing."""
        if not session.key:
            session.key = session.keys.session(b"away", self._new_id())
        session.label = session.label or _label(session.key)
        session.opened = session.granted = None
        session.asker = _asker(session, named=False, began=self._wall(), in_flight=())
        session.take(load(None, session.keys.secret_id()))

    def _noted(self, operation: StoreOperation, error: StoreUnavailable) -> StoreUnavailable:
        self._on_failure(StoreFailed(operation, type(error.__cause__ or error).__name__))
        return error

    async def reserve(self, session: Session) -> Opened | None:
        """Reserves for a further call of the same exchange; None while the store is away. The new lease is `session.lease`."""
        session.lease, session.came = self._new_id(), math.inf
        try:
            await self._settle(session)
            return await self._reserve(session)
        except StoreUnavailable:
            if self._closed:
                raise
            session.granted = None
            return None

    def commit(self, session: Session, result: Result, choices: Sequence[Choice]) -> tuple[NudgeEnded | None, Awaitable[bool]]:
        """Writes what came of the exchange, beside the answer's last bytes. choices: what the client was given.

        What is returned beside the nudge's end says, once awaited, whether the store took it.
        """
        ended = conclude(session, result)
        _mark_end(session, result)
        links = links_after(session, session.keys, session.scope, choices, named=session.named) if result.full else []
        if result.full and result.given is not None:
            names = (result.given.id, *result.given.choice.items[-MOST_NAMED:])
            links += [session.keys.kept(session.scope, name) for name in names]
        if isinstance(self._store, MemoryStore):  # waits for nothing: a task would cost more than the work
            return ended, _Done(self._commit(session, result, links))
        task = asyncio.create_task(self._commit(session, result, links, self._committing.get(session.key)))
        self._committing[session.key] = task
        self._linked.begin(links, session.key)
        task.add_done_callback(lambda _: self._committed(session, task, links))
        return ended, task

    def _committed(self, session: Session, task: "asyncio.Task[bool]", links: Sequence[bytes]) -> None:
        if self._committing.get(session.key) is task:
            del self._committing[session.key]
        self._linked.end(links)
        if not (session.named or task.cancelled() or task.exception()) and task.result():
            self._linked.stored(links, session.key, self._wall())

    async def _commit(self, session: Session, result: Result, links: Sequence[bytes], before: "asyncio.Task[bool] | None" = None) -> bool:
        """Whether the store took it. before: this process's commit of the same session ahead of it, waited for after a lost race."""
        settlements, opened = session.settlements, session.opened
        for settled in settlements:
            self._leases.let_go(settled.lease)
        try:
            record, version = (None, 0) if opened is None else (self._records.dump(session.key, session.record), opened.version)
            done = await self._write(session, record, version, links, settlements)
            if done.conflict:
                record = await self._write_anew(session, result, links, before, done)
        except StoreUnavailable as error:
            self._noted(StoreOperation.COMMIT, error)
            return False
        if record is None:
            return opened is None
        self._records.wrote(session.key, record, session.record)
        return True

    async def _write(
        self, session: Session, record: bytes | None, version: int, links: Sequence[bytes], settlements: Sequence[Settlement]
    ) -> Committed:
        listing = Listing(session.identity.team, session.label)
        done = await self._store.commit(
            session.key, record=record, version=version, settlements=settlements, links=links, ttl=self._ttl, listing=listing
        )
        self._leases.settled(session.key, settlements)
        return done

    async def _write_anew(
        self, session: Session, result: Result, links: Sequence[bytes], before: "asyncio.Task[bool] | None", lost: Committed
    ) -> bytes | None:
        """Decides once more on what stands in the store now. The record that it took, None where every race was lost."""

        async def commit(record: bytes | None, version: int, _: bool) -> Committed:
            return await self._write(session, record, version, links, ())

        async def anew(standing: bytes | None) -> bytes:
            nonlocal before
            if before is not None:  # of a crowd that races on, one wins each time, and the last ones never
                await asyncio.wait({before})
                before = None
            session.take(load(standing, session.keys.secret_id()))
            conclude(session, result)
            return self._records.dump(session.key, session.record)

        return await written_anew(commit, anew, lost)

    async def learn(self, identity: Identity, policy: Policy, names: Sequence[str], answer: Answer) -> None:
        """What an answer that the upstream made in the background came to: requests go on from it, by these names. Quiet on a failure."""
        with contextlib.suppress(StoreUnavailable):
            keys, prints = self._tools(shared(await self._store.secret()), policy)
            scope = keys.tenant(identity.caller, identity.team)
            key: bytes | None = None
            if identity.session is not None:
                _, key, scope = keys.named(identity.caller, identity.session, identity.team)
            key = key or await self._find([keys.kept(scope, name) for name in names])
            if key is not None:
                if key in self._committing:
                    await self._committed_so_far(key)
                await learn(self._store, key, scope, names, answer, (keys, prints), self._ttl)

    async def drain(self) -> None:
        """Waits for the commits under way, at a shutdown."""
        self._leases.close()
        if under_way := {*self._committing.values(), *self._given_up}:
            await asyncio.wait(under_way, timeout=2 * self._patience)


class _Done:
    """What a coroutine that never waits came to. Runs it at once."""

    def __init__(self, work: Coroutine[Any, Any, bool]) -> None:
        self._value = False
        try:
            work.send(None)
        except StopIteration as end:
            self._value = end.value

    def __await__(self) -> Generator[None, None, bool]:
        return self._value
        yield


def _mark_end(session: Session, result: Result) -> None:
    """Tells the sessions below this one, and those above, whether it stands stopped: by its main line alone."""
    lane = session.place.lane
    if not session.settlements or not lane.main or session.policy.mode is _OBSERVE:
        return
    reason = result.ended_for or (lane.stop.reason if lane.stop is not None else None)
    session.settlements[-1] = msgspec.structs.replace(session.settlements[-1], stop="" if reason is None else str(reason))


def _is_new(session: Session) -> bool:
    """Whether the store had no record of it."""
    return session.opened is not None and session.opened.record is None


def _label(key: bytes) -> str:
    return "lc-" + key.hex()[:24]


def _asker(session: Session, *, named: bool, began: float, in_flight: tuple[int, ...], note: bytes = b"") -> Asker:
    identity, lane, sent_by = session.identity, 0, 0
    if identity.lane is not None:
        lane = _lane_mark(session, identity.lane)
    if identity.sent_by is not None:
        sent_by = _lane_mark(session, identity.sent_by) if identity.sent_by else MAIN
    return Asker(lane, named, identity.retry, began, in_flight, identity.client, identity.side, session.key, pardon_of(note), sent_by)


def _lane_mark(session: Session, lane: str) -> int:
    return session.prints.digest(b"lane", lane.encode("utf-8", "surrogatepass"))


def _continues(session: Session) -> bool:
    """Whether a request without any answer, found by a passage, went on with an unfinished run: then it took a lane's run over."""
    lane = session.place.lane
    return bool(lane.before) and lane.head == head_of(session.request, session.prints)
