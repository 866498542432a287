"""What a store of sessions and ledgers promises: the interface and the values that cross it.

A session in a store is two things under one key: the **record**, opaque bytes that only `state` can read, replaced by
compare-and-set; and the **ledger**, counters the store itself adds up so that a budget holds under any concurrency. Every method
raises `StoreUnavailable` (and nothing else) when the store cannot answer. Stores know nothing of loops.

Times are epoch seconds of the store's own clock (Redis `TIME`), so that replicas agree. Every key expires after the session's ttl.
Money is whole nano-dollars, a rate whole pico-dollars per token; both are exact while a ledger stays under nine million dollars and
a call's worst case under nine thousand.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Unit(StrEnum):
    """What a ceiling is counted in. `tokens` is input and output together; `cost` is nano-dollars."""

    STEPS = "steps"
    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    COST = "cost"


class Kind(StrEnum):
    """Which kind of limit said no, in the order in which a ledger asks them."""

    DEADLINE = "deadline"
    STEPS = "steps"
    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    COST = "cost"


class Ceiling(msgspec.Struct, frozen=True, gc=False):
    """The most that may be spent of one unit. 0: no call at all. A unit without a ceiling has no limit.

    window: the stretch of the calendar it is for (`day 2026-11-29`), under a name that no other stretch shares, without `|`, `;` and
    line breaks; empty is the whole life of the ledger. until: when that stretch ends, epoch seconds. A list of ceilings is asked in its
    order, which should be that of `Unit`.
    """

    unit: Unit
    limit: int
    window: str = ""
    until: float | None = None


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one upstream call may cost at most, asked for before it is sent.

    lease: unique id of the call. tag: shown to other openers while the lease lives. input_bound: an upper bound of the text in
    tokens, from the body's size alone. body_bytes: that size; the store knows better for as many bytes (`known`) as the largest settled
    call of the session had, by the most input tokens per byte (`ratio`) that any had: it lowers the bound to
    `min(input_bound, ceil(known * ratio * 1.1) + body_bytes - known + 512)`, the last for texts that are added on the way. attached:
    tokens that come on top, for what is no text. output: tokens wanted for the answer; modest: what to fall back to when `output` does
    not fit whole; floor: the least that makes a useful answer. expires_in: seconds until the lease is void.

    ceilings, deadline: the limits of the session by its policy; deadline in seconds after its first request. tighten,
    tighten_deadline: limits the request's headers ask for; they only ever lower, and stay for the session. steps: 1, or 0 for a call
    that is no step of the agent's (a title, a token count). input_price, output_price: pico-dollars a token may cost at most.
    """

    lease: str
    tag: int
    body_bytes: int
    input_bound: int
    output: int
    modest: int
    floor: int
    expires_in: float
    ceilings: tuple[Ceiling, ...] = ()
    deadline: float | None = None
    tighten: tuple[Ceiling, ...] = ()
    tighten_deadline: float | None = None
    attached: int = 0
    steps: int = 1
    input_price: int = 0
    output_price: int = 0


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """What a session has spent (settled) and what its calls under way hold (reserved). Costs in nano-dollars."""

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    reserved_steps: int = 0
    reserved_tokens: int = 0
    reserved_cost: int = 0
    started_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How much of a ceiling in force is used, in its unit: settled, and held by calls under way (the one that is told included)."""

    ceiling: Ceiling
    spent: int
    reserved: int


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Which limit said no. limit, spent: in the ceiling's unit; for a deadline in seconds, and ceiling is None."""

    kind: Kind
    limit: float
    spent: float
    reserved: int = 0
    ceiling: Ceiling | None = None


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The answer to `open`, in one round trip: the record, the ledger, and whether the reservation was granted.

    record/version: None/0 for a session never committed. ledger: as it stands with this reservation included when granted.
    standings: every ceiling in force, the headers' included, in the order in which they were asked. deadline: the one in force, seconds
    after the first request. refused: the first limit that said no (then nothing is reserved). step: this call's number in the session,
    from 1. output: output tokens granted, None when no ceiling bounds them. last: the ceiling under which no further call of this size
    would fit, so that this one must be the answer. in_flight: tags of the other live leases, at most 16.
    """

    record: bytes | None
    version: int
    now: float
    ledger: Ledger
    standings: tuple[Standing, ...]
    deadline: float | None
    refused: Refusal | None
    step: int
    output: int | None
    last: Standing | None
    in_flight: tuple[int, ...]

    def limit(self, unit: Unit) -> int | None:
        """The session's ceiling in force for its whole life in that unit."""
        return next((one.ceiling.limit for one in self.standings if one.ceiling.unit is unit and not one.ceiling.window), None)


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a call really cost; ends its lease. Applied once however often it is sent. steps is 1 for a completed call, else 0.

    body_bytes: the size of the body whose input tokens these are, 0 when they are no measure. cost: nano-dollars. windows: those of the
    ceilings that the call was reserved under; it is charged to them, even when they are over.
    """

    lease: str
    steps: int
    input_tokens: int
    output_tokens: int
    body_bytes: int
    cost: int = 0
    windows: tuple[str, ...] = ()


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

# How long the counters of a window are kept after its end, for those who look.
WINDOW_SECONDS = 3600.0
