"""What is paid for a call on a route that is not judged: reserved in every ledger concerned before the call, settled after it.

The session that a request names pays, with those above it, and the team. Such a call is a step of the team's alone: nobody judges what an
agent does there. A request that names no session is its team's alone; one that nobody sees stands in for it, without limits.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from proxy.budgets import Estimate
from proxy.errors import StoreUnavailable
from proxy.events import StoreFailed, StoreOperation
from proxy.family import Family, Line
from proxy.identity import Identity, Keys
from proxy.leases import WHATEVER_COMES, Leases
from proxy.metering import Charge, Meter, Work, amounts_of, cost_of
from proxy.models import Allowance, Usage
from proxy.policy import Budgets
from proxy.prices import Price, unit_cost
from proxy.purse import Purse, accounts_of
from proxy.standing import deadline_of, spending_of
from proxy.state import load
from proxy.store import Account, Listing, Opened, Reservation, Settlement, Store, shared
from proxy.tenants import Quota, Tenant

_CHARGED = b"charged"
_UNBOUNDED = Estimate(0, 0, 0, 0, 0)  # of what was done already, nothing is reserved
_REMEMBERED = 90 * 86_400.0  # seconds: longer than providers show what they did
_BEYOND = 1 << 40  # bytes: a body of another kind than a session's others teaches it nothing, and is bounded by nothing that they taught


class Bill:
    """One call's. Every bill must be settled, by `settle` or `void`; the first word stands. refused: the budget that has nothing left.

    away: the store could not be asked, and the call goes on without. deadline: the session's time as a budget that is over, None without
    one; time_left: seconds until then. usage, cost: what it came to, in tokens and nano-dollars; estimated: nobody reported that.
    """

    def __init__(self, bills: "Bills", key: bytes, lease: str, purse: Purse, charge: Charge) -> None:
        self.refused: Allowance | None = None
        self.away = False
        self.deadline: Allowance | None = None
        self.time_left: float | None = None
        self.usage = Usage()
        self.cost = 0
        self.estimated = False
        self.key = key
        self.lease = lease
        self.purse = purse
        self.charge = charge
        self.listing: Listing | None = None  # of a session seen for the first time, that has a record
        self.came = math.inf  # when it was first asked for, on the store's clock
        self._bills = bills
        self._meter = Meter()
        self._settled: asyncio.Task[None] | None = None

    def read(self, piece: bytes) -> None:
        """Reads the answer's next bytes."""
        self._meter.feed(piece)

    def settle(self, *, completed: bool) -> "asyncio.Task[None]":
        """Charges what the answer, as far as it came, says. completed: whether it is whole, and so a step of the team's."""
        if self._settled is not None:
            return self._settled
        self.usage, self.estimated = cost_of(self._meter, self.charge), self._meter.usage is None
        purse = self.purse if completed else _uncounted(self.purse)
        beside = 0 if purse.price is None else unit_cost(purse.price.units, amounts_of(self._meter, self.charge), told=not self.estimated)
        settlement = purse.settlement(self.lease, self.usage, completed=completed, body_bytes=0, beside=beside)
        self.cost = settlement.cost
        return self._end(settlement)

    def void(self) -> None:
        """Charges nothing: the call was not made, or came to nothing."""
        if self._settled is None:
            self._end(_uncounted(self.purse).nothing(self.lease))

    def _end(self, settlement: Settlement) -> "asyncio.Task[None]":
        self._settled = self._bills.commit(self, settlement)
        return self._settled

    async def close(self) -> None:
        """Settles what is not, and waits until the store has it or was tried."""
        await asyncio.shield(self.settle(completed=False))


class Bills:
    """All of a process. ttl, closed, new_id, on_failure: as of `Sessions`."""

    def __init__(
        self, store: Store, *, ttl: float, closed: bool, new_id: Callable[[], str], on_failure: Callable[[StoreFailed], None]
    ) -> None:
        self._store = store
        self._ttl = ttl
        self._closed = closed
        self._new_id = new_id
        self._on_failure = on_failure
        self._leases = Leases(store, ttl)
        self._family = Family(ttl)
        self._committing: set[asyncio.Task[None]] = set()

    async def open(
        self,
        tenant: Tenant,
        quota: Quota,
        price: Price | None,
        charge: Charge,
        identity: Identity,
        budgets: Budgets,
        *,
        patient: bool = True,
        within: AbstractContextManager[object] = WHATEVER_COMES,
    ) -> Bill:
        """Reserves for one call of a team, of the session that it names, or both. budgets: of that session.

        patient: it may wait for room; within: what ends that before its time, by an exception of its own.

        Raises `StoreUnavailable` only when the failure mode is closed, `BadRequest` for a session that cannot be where it says it is.
        """
        secret = await self._store.secret()
        keys = Keys(secret)
        name = identity.session
        key = keys.till(tenant.name) if name is None else keys.named(identity.caller, name, identity.team)[1]
        purse = Purse(price, steps=0, model=tenant.label(charge.model), day=quota.day)
        bill = Bill(self, key, self._new_id(), purse, charge)
        try:
            shared(secret)
            opened = await self._open(bill, _Payers(keys, tenant, quota, identity, budgets, patient, within))
        except StoreUnavailable as error:
            self._failed(StoreOperation.OPEN, error)
            if self._closed:
                self._give_up(bill)
                raise
            bill.away = True
            return bill
        except BaseException:
            self._give_up(bill)
            raise
        bill.refused = spending_of(opened, bill.purse.accounts).refused
        bill.deadline = deadline_of(opened)
        bill.time_left = None if opened.ends_at is None else opened.ends_at - opened.now
        return bill

    async def once(self, tenant: Tenant, quota: Quota, price: Price | None, work: Work, usage: Usage) -> Bill | None:
        """Charges a team for work that ended while nobody waited for it; None if that was done before. usage: what it came to.

        The mark of having charged it stands in the store for three months. Who asks in the same instant settles the same lease, which
        counts once. Raises `StoreUnavailable` only when the failure mode is closed; else nobody pays until somebody looks again.
        """
        try:
            keys = Keys(await self._store.secret())
            key = keys.work(tenant.name, work.id)
            (seen,) = await self._store.peek([Account(key)])
            if seen is not None and seen.record is not None:
                return None
            purse = Purse(price, _accounts(keys, tenant, quota, ()), steps=0, model=tenant.label(work.model), day=quota.day)
            bill = Bill(self, key, key.hex(), purse, Charge(work.model, _UNBOUNDED, 0))
            settlement = bill.purse.settlement(bill.lease, usage, completed=False, body_bytes=0)
            bill.usage, bill.cost = usage, settlement.cost
            await self._store.commit(key, record=_CHARGED, version=0, settlements=[settlement], links=[], ttl=_REMEMBERED)
        except StoreUnavailable as error:
            self._failed(StoreOperation.COMMIT, error)
            if self._closed:
                raise
            return None
        return bill

    async def _open(self, bill: Bill, payers: "_Payers") -> Opened:
        """Asks every ledger that pays. Who stands above the session is known once its record is at hand, and asked again then."""
        if payers.identity.session is None:
            return await self._reserve(bill, payers, ())
        known, parent = payers.keys.secret_id(), payers.keys.parent(payers.identity)
        guessed = self._family.guess(bill.key, parent)
        opened = await self._reserve(bill, payers, guessed)
        record = load(opened.record, known)
        new = opened.record is None
        line, _ = await self._family.above(self._store, bill.key, parent, record, new=new)
        if line != guessed:
            await self._commit(bill, _uncounted(bill.purse).nothing(bill.lease))
            bill.lease = self._new_id()
            opened = await self._reserve(bill, payers, line)
        if new and line:
            bill.listing = Listing(payers.identity.team, payers.identity.session)
        return opened

    async def _reserve(self, bill: Bill, payers: "_Payers", line: Line) -> Opened:
        bill.purse = msgspec.structs.replace(bill.purse, accounts=payers.accounts(line))
        asked = payers.reservation(bill)
        opened, bill.came = await self._leases.reserve(bill.key, asked, payers.within, bill.came)
        return opened

    def _give_up(self, bill: Bill) -> None:
        if self._leases.holds(bill.lease):
            bill.void()

    def commit(self, bill: Bill, settlement: Settlement) -> "asyncio.Task[None]":
        """Settles, beside whatever goes on."""
        task = asyncio.get_running_loop().create_task(self._commit(bill, settlement))
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)
        return task

    async def _commit(self, bill: Bill, settlement: Settlement) -> None:
        self._leases.let_go(settlement.lease)
        try:
            await self._store.commit(
                bill.key, record=None, version=0, settlements=[settlement], links=[], ttl=self._ttl, listing=bill.listing
            )
            self._leases.settled(bill.key, [settlement])
        except StoreUnavailable as error:  # the store's guard sends it later
            self._failed(StoreOperation.COMMIT, error)

    def _failed(self, operation: StoreOperation, error: StoreUnavailable) -> None:
        self._on_failure(StoreFailed(operation, type(error.__cause__ or error).__name__))

    async def drain(self) -> None:
        """Waits for what is not settled yet, at a shutdown. The store answers in time, or raises."""
        self._leases.close()
        if self._committing:
            await asyncio.wait(set(self._committing))


class _Payers(msgspec.Struct, frozen=True, gc=False):
    """Who pays for one call."""

    keys: Keys
    tenant: Tenant
    quota: Quota
    identity: Identity
    budgets: Budgets
    patient: bool
    within: AbstractContextManager[object]

    def accounts(self, line: Line) -> tuple[Account, ...]:
        """The ledgers beside the session's own. The team's counts the call as a step, and no session for it."""
        if not self.tenant.name:
            return accounts_of(line, b"", self.quota)
        *above, team = _accounts(self.keys, self.tenant, self.quota, line)
        return (*above, msgspec.structs.replace(team, steps=1))

    def reservation(self, bill: Bill) -> Reservation:
        """The worst case of the call."""
        bound, tier, purse = bill.charge.bound, bill.charge.tier, bill.purse
        beside = 0 if purse.price is None else unit_cost(purse.price.units, bill.charge.most, told=False)
        if self.identity.session is None:
            return purse.holding(bill.lease, 0, bound, bound.input_bound, tier=tier, beside=beside, patient=self.patient)
        size, tighten = bound.input_bound + _BEYOND, self.identity.tighten
        return purse.holding(bill.lease, 0, bound, size, self.budgets, tighten, tier=tier, beside=beside, patient=self.patient)


def _accounts(keys: Keys, tenant: Tenant, quota: Quota, line: Line) -> tuple[Account, ...]:
    """The ledgers above, the team's last: such a call is no session of the team's."""
    return accounts_of(line, keys.ledger(tenant.name), msgspec.structs.replace(quota, sessions=None))


def _uncounted(purse: Purse) -> Purse:
    """The purse of a call that is nobody's step."""
    return msgspec.structs.replace(purse, accounts=tuple([msgspec.structs.replace(one, steps=0) for one in purse.accounts]))
