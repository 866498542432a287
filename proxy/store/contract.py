"""What a store of sessions and ledgers promises: the interface and the values that cross it.

A session in a store is two things under one key: the **record**, opaque bytes that only `state` can read, replaced by
compare-and-set; and the **ledger**, counters the store itself adds up so that a budget holds under any concurrency. Every method
raises `StoreUnavailable` (and nothing else) when the store cannot answer. Stores know nothing of loops.

Times are epoch seconds of the store's own clock (Redis `TIME`), so that replicas agree. Every key expires after the session's ttl.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Ceilings of one session. None: no limit; 0: none at all. deadline: seconds after the session's first request."""

    steps: int | None = None
    tokens: int | None = None
    deadline: float | None = None


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one upstream call may cost at most, asked for before it is sent.

    lease: unique id of the call. tag: shown to other openers while the lease lives. input_bound: an upper bound of the text in
    tokens, from the body's size alone. body_bytes: that size; the store knows better for as many bytes (`known`) as the largest settled
    call of the session had, by the most input tokens per byte (`ratio`) that any had: it lowers the bound to
    `min(input_bound, ceil(known * ratio * 1.1) + body_bytes - known + 512)`, the last for texts that are added on the way. attached:
    tokens that come on top, for what is no text. output: tokens wanted for the answer; modest: what to fall back to when `output` does
    not fit whole; floor: the least that makes a useful answer. expires_in: seconds until the lease is void. tighten: limits the
    request's headers ask for; they only ever lower, and stay for the session.
    """

    lease: str
    tag: int
    body_bytes: int
    input_bound: int
    output: int
    modest: int
    floor: int
    expires_in: float
    limits: Limits = Limits()
    tighten: Limits = Limits()
    attached: int = 0


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """What a session has spent (settled) and what its calls under way hold (reserved)."""

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved_steps: int = 0
    reserved_tokens: int = 0
    started_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The answer to `open`, in one round trip: the record, the ledger, and whether the reservation was granted.

    record/version: None/0 for a session never committed. ledger: as it stands with this reservation included when granted.
    limits: the effective ones, headers included. refused: None, or which of "steps", "tokens", "deadline" said no (then nothing is
    reserved). step: this call's number in the session, from 1. output: output tokens granted, None when tokens are not
    limited. last: no further call of this size would fit, so that this one must be the answer. in_flight: tags of the other
    live leases, at most 16.
    """

    record: bytes | None
    version: int
    now: float
    ledger: Ledger
    limits: Limits
    refused: str | None
    step: int
    output: int | None
    last: bool
    in_flight: tuple[int, ...]


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a call really cost; ends its lease. Applied once however often it is sent. steps is 1 for a completed call, else 0."""

    lease: str
    steps: int
    input_tokens: int
    output_tokens: int
    body_bytes: int


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The answer to `commit`. On a conflict the settlements and links were applied, the record was not, and `record`/`version` are
    what stands there now. Without one, `record` is the one committed. A commit sent again after a lost reply is no conflict."""

    conflict: bool
    record: bytes | None
    version: int


class Store(Protocol):
    """The contract; `tests/contract/test_store.py` runs on every implementation."""

    async def secret(self) -> bytes:
        """The 32 bytes that key every fingerprint, the same for all replicas of this store; made on first use."""
        ...

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        """The session key of the first link, in order, that is known and whose session still lives."""
        ...

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        """Load a session and reserve for one call, atomically. Creates the ledger (and its start time) on first use.

        Sent again with the same lease, it replaces that lease's reservation.
        """
        ...

    async def commit(
        self,
        session: bytes,
        *,
        record: bytes | None,
        version: int,
        settlements: Sequence[Settlement],
        links: Sequence[bytes],
        ttl: float,
    ) -> Committed:
        """Settle, then replace the record if its version is still `version` (None leaves it alone), then point `links` at the session."""
        ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


Clock = Callable[[], float]
RandomBytes = Callable[[int], bytes]

# How long a store remembers that a lease was settled. A settlement that may already have been applied must not be sent again later.
SETTLED_SECONDS = 900.0

# How many tags of other live leases `Opened.in_flight` holds at most.
MAX_IN_FLIGHT = 16
