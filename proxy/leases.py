"""The leases of calls under way: asked for, waited for where others hold the room, and kept until they are settled.

They are short, so that what a dead process held is soon free, and renewed while a call goes on. One that ran out all the same, because
the process was paused or the store away for longer than its life, is reserved again as soon as that is noticed: what the call held may be
another's by then, and its ledgers say whether it still fits.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec

from proxy.errors import StoreUnavailable
from proxy.purse import LEASE_SECONDS
from proxy.room import Room
from proxy.store import Opened, Reservation, Settlement, Store

_RENEW_SECONDS = LEASE_SECONDS / 3
_AT_ONCE = 64
WHATEVER_COMES: AbstractContextManager[object] = contextlib.nullcontext()


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
        self._room = Room(self._ask, self._give_back)

    async def reserve(
        self, session: bytes, asked: Reservation, within: AbstractContextManager[object] = WHATEVER_COMES, came: float = math.inf
    ) -> tuple[Opened, float]:
        """The store's answer, and when the call came. A patient call that has no room only for what others hold waits.

        within: what ends that wait before its time. came: where it was asked for before; both on the store's clock, epoch seconds.
        What was granted is renewed until it is settled, also if this ends otherwise: `holds` tells. Raises `StoreUnavailable`.
        """
        self.let_go(asked.lease)  # what it held before, if it did, ends with this
        opened = await self._ask(session, asked)
        if opened.now < came:
            came = opened.now
        if asked.patient and opened.refused is not None and opened.refused.held:
            opened = await self._room.wait(session, asked, opened, within, opened.now - came)
        return opened, came

    async def _ask(self, session: bytes, asked: Reservation) -> Opened:
        opened = await self._store.open(session, asked, self._ttl)
        if opened.refused is None:
            self.hold(session, asked)
        return opened

    async def _give_back(self, session: bytes, granted: Reservation) -> None:
        self.let_go(granted.lease)
        nothing = Settlement(granted.lease, 0, 0, 0, 0, accounts=granted.accounts)
        with contextlib.suppress(StoreUnavailable):  # then the store's guard sends it later
            await self._store.commit(session, record=None, version=0, settlements=[nothing], links=[], ttl=self._ttl)
            self.settled(session, [nothing])

    def settled(self, session: bytes, settlements: Sequence[Settlement]) -> None:
        """The store has these: whoever waits for what they held is asked for again."""
        for settlement in settlements if self._room.awaited else ():
            self._room.stir((session, *(account.key for account in settlement.accounts)))

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
        self._room.close()
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
            await self._store.open(session, msgspec.structs.replace(granted, patient=False, again=True), self._ttl)
