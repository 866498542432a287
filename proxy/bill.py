"""What a team pays for a call on a route that is not judged: reserved in its ledger before the call, settled after it.

Such a call belongs to no session. One that nobody sees, of the team's own, stands in for it: it has no limits, and holds no place among
the team's sessions.
"""

import asyncio
from collections.abc import Callable

import msgspec

from proxy.errors import StoreUnavailable
from proxy.events import StoreFailed, StoreOperation
from proxy.identity import Keys
from proxy.leases import Leases
from proxy.metering import Charge, Meter, cost_of
from proxy.models import Allowance
from proxy.prices import Price
from proxy.purse import Purse, accounts_of
from proxy.standing import spending_of
from proxy.store import Settlement, Store
from proxy.tenants import Quota, Tenant


class Bill:
    """One call's. Every bill must be settled, by `settle` or `void`; the first word stands. refused: the budget that has nothing left.

    away: the store could not be asked, and the call goes on without.
    """

    def __init__(self, bills: "Bills", key: bytes, lease: str, purse: Purse, charge: Charge) -> None:
        self.refused: Allowance | None = None
        self.away = False
        self._bills = bills
        self._key = key
        self._lease = lease
        self._purse = purse
        self._charge = charge
        self._meter = Meter()
        self._settled: asyncio.Task[None] | None = None

    def read(self, piece: bytes) -> None:
        """Reads the answer's next bytes."""
        self._meter.feed(piece)

    def settle(self, *, completed: bool) -> "asyncio.Task[None]":
        """Charges what the answer, as far as it came, says. completed: whether it is whole, and so a step."""
        return self._end(self._purse.settlement(self._lease, cost_of(self._meter, self._charge), completed=completed, body_bytes=0))

    def void(self) -> None:
        """Charges nothing: the call was not made, or came to nothing."""
        self._end(self._purse.nothing(self._lease))

    def _end(self, settlement: Settlement) -> "asyncio.Task[None]":
        if self._settled is None:
            self._settled = self._bills.commit(self._key, settlement)
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
        self._committing: set[asyncio.Task[None]] = set()

    async def open(self, tenant: Tenant, quota: Quota, price: Price | None, charge: Charge) -> Bill:
        """Reserves for one call of a team. Raises `StoreUnavailable` only when the failure mode is closed."""
        keys = Keys(await self._store.secret())
        accounts = accounts_of((), keys.ledger(tenant.name), msgspec.structs.replace(quota, sessions=None))
        purse = Purse(price, accounts, model=tenant.label(charge.model), day=quota.day)
        key, lease = keys.till(tenant.name), self._new_id()
        bill = Bill(self, key, lease, purse, charge)
        try:
            # No size that the ledger could know better by: bodies of many kinds teach it nothing.
            asked = purse.holding(lease, 0, charge.bound, charge.bound.input_bound)
            opened = await self._store.open(key, asked, self._ttl)
        except StoreUnavailable as error:
            self._failed(StoreOperation.OPEN, error)
            if self._closed:
                raise
            bill.away = True
            return bill
        bill.refused = spending_of(opened, accounts).refused
        if bill.refused is None:
            self._leases.hold(key, asked)
        return bill

    def commit(self, key: bytes, settlement: Settlement) -> "asyncio.Task[None]":
        """Settles, beside whatever goes on."""
        task = asyncio.get_running_loop().create_task(self._commit(key, settlement))
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)
        return task

    async def _commit(self, key: bytes, settlement: Settlement) -> None:
        self._leases.let_go(settlement.lease)
        try:
            await self._store.commit(key, record=None, version=0, settlements=[settlement], links=[], ttl=self._ttl)
        except StoreUnavailable as error:  # the store's guard sends it later
            self._failed(StoreOperation.COMMIT, error)

    def _failed(self, operation: StoreOperation, error: StoreUnavailable) -> None:
        self._on_failure(StoreFailed(operation, type(error.__cause__ or error).__name__))

    async def drain(self) -> None:
        """Waits for what is not settled yet, at a shutdown. The store answers in time, or raises."""
        self._leases.close()
        if self._committing:
            await asyncio.wait(set(self._committing))
