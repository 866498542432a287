"""What stands between Lastcall and a store that may be away: deadlines, quick failure, recovery, and no lost settlements.

The first call that fails pays its deadline; until `retry_after` has passed the next ones fail at once, then one of them goes
through and tells whether the store is back. Knows nothing of any implementation.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged
from proxy.store.breaker import Breaker
from proxy.store.contract import (
    SETTLED_SECONDS,
    Account,
    Amendment,
    Clock,
    Committed,
    Listing,
    OnChange,
    Opened,
    Page,
    PartUnavailable,
    Peeked,
    Reservation,
    Settlement,
    Store,
    Unshared,
    Usage,
)
from proxy.store.deadline import Deadline
from proxy.waits import Turns

# Failed commits whose settlements are kept for a later delivery, and for how long: well within the time in which the store
# still knows that it had applied one whose reply was lost.
_MAX_OWED = 10_000
_OWED_SECONDS = SETTLED_SECONDS - 60
_SECRET_SECONDS = 10.0
_AT_ONCE = 64  # calls under way: a crowd waits for its turn here, on no deadline and without a connection for each

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class _Owed:
    session: bytes
    settlements: tuple[Settlement, ...]
    ttl: float
    since: float


class GuardedStore:
    """A `Store` that answers within `timeout` seconds or raises `StoreUnavailable`, around one that may not.

    clock: seconds, only ever compared with itself. on_change: told each time the store goes away or comes back. fallback_secret: what
    `secret` gives while the shared one cannot be had. retry_after: seconds between two tries of a store that is away.
    """

    def __init__(
        self,
        store: Store,
        *,
        timeout: float,
        clock: Clock,
        on_change: OnChange,
        fallback_secret: bytes,
        retry_after: float = 1.0,
    ) -> None:
        self._store = store
        self._timeout = timeout
        self._clock = clock
        self._on_change = on_change
        self._fallback_secret = Unshared(fallback_secret)
        self._breaker = Breaker(clock, retry_after)
        self._deadline = Deadline(timeout)
        self._turns = Turns(_AT_ONCE)
        self._secret: bytes | None = None
        self._secret_read_at = 0.0
        self._rereading: asyncio.Task[None] | None = None
        self._owed: deque[_Owed] = deque(maxlen=_MAX_OWED)
        self._delivery: asyncio.Task[None] | None = None
        self._next_try: asyncio.TimerHandle | None = None
        self._served = False
        self._lacking_since: float | None = None

    @property
    def up(self) -> bool:
        """Whether the last call that was made got its answer."""
        return self._breaker.cause is None

    async def serves(self) -> bool:
        """Whether a request could rely on the store now: it answers, and its secret is at hand, without which nothing in it is found."""
        with contextlib.suppress(StoreUnavailable):
            await self.ping()
        serves = not isinstance(await self.secret(), Unshared) and self.up
        self._served = self._served or serves
        if serves:
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = self._clock()
        return serves

    @property
    def lost(self) -> bool:
        """Whether `serves` said no, and that is more than one slow call: so it was before the last try too, or never otherwise."""
        since = self._lacking_since
        return since is not None and not (self._served and 0 <= self._clock() - since < self._breaker.retry_after)

    async def secret(self) -> bytes:
        """The shared secret; the fallback, `Unshared`, while that cannot be had. Never raises.

        Read again now and then, beside the requests: a store emptied while it ran hands out another one, and replicas must agree.
        """
        if self._secret is None:
            try:
                await self._read_secret()
            except StoreUnavailable:
                return self._fallback_secret
        elif not 0 <= self._clock() - self._secret_read_at < _SECRET_SECONDS and (self._rereading is None or self._rereading.done()):
            self._rereading = asyncio.create_task(self._reread_secret())
        return self._secret or self._fallback_secret

    async def _read_secret(self) -> None:
        self._secret = await self._call(self._store.secret)
        self._secret_read_at = self._clock()

    async def _reread_secret(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._read_secret()

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        return await self._call(lambda: self._store.find(links))

    def open(self, session: bytes, reservation: Reservation, ttl: float) -> Coroutine[Any, Any, Opened]:
        return self._call(lambda: self._store.open(session, reservation, ttl))

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        return await self._call(lambda: self._store.renew(session, lease, accounts, expires_in))

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
        listing: Listing | None = None,
    ) -> Committed:
        """See `Store.commit`. When it fails or is cancelled, its settlements are delivered once the store answers again.

        Also where nobody else asks the store anything: what is owed is tried every `retry_after` seconds.
        """
        try:
            return await self._call(
                lambda: self._store.commit(
                    session, record=record, version=version, settlements=settlements, links=links, ttl=ttl, listing=listing
                ),
                ahead=True,  # a crowd may be waiting to begin, and what ends makes room for it
            )
        except (StoreUnavailable, asyncio.CancelledError):
            if settlements:
                self._owe(_Owed(session, tuple(settlements), ttl, self._clock()))
            raise

    async def page(self, *, after: str = "", count: int = 50, tenant: str | None = None, search: str = "") -> Page:
        return await self._call(lambda: self._store.page(after=after, count=count, tenant=tenant, search=search))

    async def peek(self, accounts: Sequence[Account]) -> list[Peeked | None]:
        return await self._call(lambda: self._store.peek(accounts))

    async def amend(self, account: Account, amendment: Amendment, ttl: float) -> Peeked | None:
        return await self._call(lambda: self._store.amend(account, amendment, ttl))

    async def usage(self, team: bytes, days: Sequence[str]) -> list[Usage]:
        return await self._call(lambda: self._store.usage(team, days))

    async def ping(self) -> None:
        await self._call(self._store.ping)

    async def close(self) -> None:
        """Deliver what is owed, for `timeout` seconds at most, then close the store."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                if self._delivery is not None:
                    await self._delivery
                await self._deliver()
        if self._next_try is not None:
            self._next_try.cancel()
        await self._store.close()

    async def _call(self, call: Callable[[], Awaitable[_Answer]], *, ahead: bool = False) -> _Answer:
        turns, breaker = self._turns, self._breaker
        if not turns.take_free():
            await turns.take(ahead=ahead)
        try:
            probe = breaker.cause is not None  # after the wait: the store may have gone away meanwhile
            if probe and not breaker.begin_probe():
                raise StoreUnavailable(f"the session store is away ({breaker.cause}); it is tried again every {breaker.retry_after:g} s")
            try:
                answer = await self._deadline.kept(call())
            except PartUnavailable:
                self._succeeded()  # the other parts answer
                raise
            except Exception as error:
                raise self._failed(error) from error
            finally:
                if probe:
                    breaker.end_probe()
            if breaker.cause is not None or self._owed:
                self._succeeded()
            return answer
        finally:
            turns.give()

    def _failed(self, error: Exception) -> StoreUnavailable:
        cause = type(error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error).__name__
        if self._breaker.failed(cause):
            self._on_change(StoreChanged(up=False, cause=cause))
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"the session store did not answer within {self._timeout:g} s (store.timeout); ask again")
        return StoreUnavailable(
            f"the session store cannot be used ({cause}); ask again, and if it stays so look at store.url and its server"
        )

    def _succeeded(self) -> None:
        if self._breaker.succeeded():
            self._secret = None  # The store may have come back without its data: agree with the other replicas anew.
            self._on_change(StoreChanged(up=True))
        self._begin_delivery()

    def _owe(self, owed: _Owed) -> None:
        self._owed.append(owed)
        if self._next_try is None:
            self._next_try = asyncio.get_running_loop().call_later(self._breaker.retry_after, self._try_again)

    def _try_again(self) -> None:
        self._next_try = None
        self._begin_delivery()

    def _begin_delivery(self) -> None:
        if self._owed and (self._delivery is None or self._delivery.done()):
            self._delivery = asyncio.create_task(self._deliver())

    async def _deliver(self) -> None:
        """Send the owed settlements, oldest first, until none is left or the store fails."""
        while self._owed:
            owed = self._owed.popleft()
            if not 0 <= self._clock() - owed.since < _OWED_SECONDS:
                continue
            try:
                await self._call(partial(self._commit_owed, owed))
            except (StoreUnavailable, asyncio.CancelledError) as error:
                self._owe(owed)  # At the end, so that one that the store chokes on does not hold up the others.
                if isinstance(error, asyncio.CancelledError):
                    raise
                return

    async def _commit_owed(self, owed: _Owed) -> Committed:
        return await self._store.commit(owed.session, record=None, version=0, settlements=owed.settlements, links=(), ttl=owed.ttl)
