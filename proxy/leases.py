"""The leases of calls under way: short, so that what a dead process held is soon free, and renewed while a call goes on.

One that ran out all the same, because the process was paused or the store away for longer than its life, is reserved again as soon as that
is noticed: what the call held may be another's by then, and its ledgers say whether it still fits.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from proxy.errors import StoreUnavailable
from proxy.purse import LEASE_SECONDS
from proxy.store import Reservation, Store

_RENEW_SECONDS = LEASE_SECONDS / 3
_AT_ONCE = 64


class Leases:
    """All of a process. ttl: as of `Sessions`. later: runs something in so many seconds, as an event loop's `call_later` does."""

    def __init__(self, store: Store, ttl: float, later: Callable[[float, Callable[[], object]], asyncio.TimerHandle] | None = None) -> None:
        self._store = store
        self._ttl = ttl
        self._later = later
        self._held: dict[str, tuple[bytes, Reservation]] = {}
        self._due: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None

    def hold(self, session: bytes, granted: Reservation) -> None:
        """From now on it is renewed."""
        self._held[granted.lease] = session, granted
        if self._timer is None:
            self._wait()

    def holds(self, lease: str) -> bool:
        """Whether it is renewed."""
        return lease in self._held

    def let_go(self, lease: str) -> None:
        """It is settled."""
        self._held.pop(lease, None)

    def close(self) -> None:
        """Renews nothing any more."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is not None:
            self._work.cancel()

    def _wait(self) -> None:
        later = self._later or asyncio.get_running_loop().call_later
        self._timer = later(_RENEW_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._held:
            self._wait()
        due, self._due = self._due, list(self._held)  # a call is renewed only once it has lasted for a while
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._renew([lease for lease in due if lease in self._held]))

    async def _renew(self, leases: Sequence[str]) -> None:
        """A few at a time. Where the store cannot be asked there is another third of a lease's life to try it."""
        for start in range(0, len(leases), _AT_ONCE):
            batch = [held for lease in leases[start : start + _AT_ONCE] if (held := self._held.get(lease)) is not None]
            with contextlib.suppress(StoreUnavailable):
                await asyncio.gather(*(self._keep(session, granted) for session, granted in batch))

    async def _keep(self, session: bytes, granted: Reservation) -> None:
        """Renews one, or reserves it anew. A call that no longer fits goes on all the same, and is settled as any."""
        lives = await self._store.renew(session, granted.lease, granted.accounts, granted.expires_in)
        if not lives and self.holds(granted.lease):
            await self._store.open(session, granted, self._ttl)
