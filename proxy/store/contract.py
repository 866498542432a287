"""What a store of sessions and ledgers promises: the interface and the values that cross it.

A session in a store is two things under one key: the **record**, opaque bytes that only `state` can read, replaced by
compare-and-set; and the **ledger**, counters the store itself adds up so that a budget holds under any concurrency. A team has a ledger
too, and no record. Every method raises `StoreUnavailable` (and nothing else) when the store cannot answer. Stores know nothing of loops.

Times are epoch seconds of the store's own clock (Redis `TIME`), so that replicas agree. Every key expires after the session's ttl, a
team's after `TEAM_SECONDS`. Money is whole nano-dollars, a rate whole pico-dollars per token; both are exact while a ledger stays under
nine million dollars and a call's worst case under nine thousand.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from proxy.errors import StoreUnavailable
from proxy.events import StoreChanged


class Unit(StrEnum):
    """What a ceiling is counted in. `tokens` is input and output together; `cost` is nano-dollars."""

    STEPS = "steps"
    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    COST = "cost"


class Kind(StrEnum):
    """Which kind of limit said no, in the order in which a ledger asks them. `settled` is none: see `Reservation.again`."""

    SETTLED = "settled"
    OPERATOR = "operator"
    DEADLINE = "deadline"
    STEPS = "steps"
    INPUT = "input"
    OUTPUT = "output"
    TOKENS = "tokens"
    COST = "cost"
    CALLS = "calls"
    SESSIONS = "sessions"


class Mark(StrEnum):
    """What an operator put on a ledger. While one is there, no call is granted."""

    NONE = ""
    PAUSED = "paused"
    STOPPED = "stopped"


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


class Account(msgspec.Struct, frozen=True, gc=False):
    """A ledger besides the session's own from which a call also spends: the team's, every ancestor session's.

    key: names it as a session's key does; an ancestor's is that session's. ceilings, deadline: as in `Reservation`; ceilings None: both as
    that session was last opened with itself. What an ancestor's headers tightened, and an operator raised, counts in either case. calls:
    most calls under way at once. sessions: most different sessions at once; a session is there from its first call until `idle`
    seconds after its last. member: the session that is counted, if not the one that is opened (the eldest ancestor, so that its children
    do not count again). team: kept for `TEAM_SECONDS` after its last use, under any pressure, and with rows of its usage. steps: what the
    call counts here, in a reservation or a settlement, where it is not what it counts for the session.
    """

    key: bytes
    ceilings: tuple[Ceiling, ...] | None = None
    deadline: float | None = None
    calls: int | None = None
    sessions: int | None = None
    idle: float = 300.0
    member: bytes = b""
    team: bool = False
    steps: int | None = None

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows it is charged in, each once."""
        return windows_of(self.ceilings or ())


def windows_of(ceilings: Sequence[Ceiling]) -> tuple[str, ...]:
    """The windows of ceilings, each once."""
    return tuple(dict.fromkeys([one.window for one in ceilings if one.window]))


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What one upstream call may cost at most, asked for before it is sent.

    lease: unique id of the call. tag: shown to other openers while the lease lives. input_bound: an upper bound of the text in
    tokens, from the body's size alone. body_bytes: that size; the store knows better for as many bytes (`known`) as the largest settled
    call of the session had, by the most input tokens per byte (`ratio`) that any had: it lowers the bound to
    `min(input_bound, ceil(known * ratio * 1.1) + body_bytes - known + 512)`, the last for texts that are added on the way. attached:
    tokens that come on top, for what is no text. output: tokens wanted for the answer; modest: what to fall back to when `output` does
    not fit whole; floor: the least that makes a useful answer. expires_in: seconds until the lease is void, see `Store.renew`.

    ceilings, deadline: the limits of the session by its policy; deadline in seconds after its first request. tighten,
    tighten_deadline: limits the request's headers ask for; they only ever lower, and stay for the session. steps: 1, or 0 for a call
    that is no step of the agent's (a title, a token count). input_price, output_price: pico-dollars a token may cost at most; beside:
    nano-dollars for what is paid beside tokens. accounts: what else pays, each once, in the order in which they are asked.

    patient: it can be asked again later, so that it is refused for now rather than granted less output than `modest` where only what
    other calls hold is in the way of that much. again: a lease that ran out; a ledger that has settled it since holds nothing for it.
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
    accounts: tuple[Account, ...] = ()
    patient: bool = False
    again: bool = False
    beside: int = 0


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
    """How much of a ceiling in force is used, in its unit: settled, and held by calls under way (the one that is told included).

    account: whose ceiling, by its place in `Reservation.accounts`; -1 is the session.
    """

    ceiling: Ceiling
    spent: int
    reserved: int
    account: int = -1


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Which limit said no. limit, spent: in the ceiling's unit; for a deadline in seconds; for calls and sessions how many at once.

    account: as in `Standing`. ceiling: None where it is none. mark: the operator's, where that is what said no. need: the least that the
    call takes of the ceiling.
    """

    kind: Kind
    limit: float
    spent: float
    reserved: int = 0
    ceiling: Ceiling | None = None
    account: int = -1
    mark: Mark = Mark.NONE
    need: int = 0

    @property
    def held(self) -> bool:
        """Whether the call would fit but for what calls under way hold of the ceiling: that is not used up, and may come free."""
        return self.ceiling is not None and self.reserved > 0 and self.spent + self.need <= self.limit


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """That a session's run stands stopped, and the reason (`Settlement.stop`)."""

    session: bytes
    reason: str


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The answer to `open`, in one round trip: the record, the ledger, and whether the reservation was granted.

    record/version: None/0 for a session never committed. ledger: as it stands with this reservation included when granted.
    standings: every ceiling in force, the headers' included, in the order in which they were asked, the accounts' behind the session's.
    deadline: the session's in force, seconds after its first request. refused: the first limit that said no, one that is used up before one
    that is only held (then nothing is reserved anywhere). step: this call's number in the session, from 1. output: output tokens granted,
    None when no ceiling bounds them. last: the ceiling under which no further call of this size would fit, so that this one must be the
    answer; steps that others hold count as used up there, their tokens and money, most of which comes back, do not. in_flight: tags of the
    other live leases, at most 16. ends_at: when the first deadline passes, the session's or an account's.

    stops: of each account, the reason its own run stands stopped for; "" where it goes on. fallen: the session below this one that
    was stopped last. note: what an operator left for whoever judges the session (`Amendment.note`).
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
    ends_at: float | None = None
    stops: tuple[str, ...] = ()
    fallen: Stopped | None = None
    note: bytes = b""

    def limit(self, unit: Unit) -> int | None:
        """The session's ceiling in force for its whole life in that unit."""
        for one in self.standings:
            ceiling = one.ceiling
            if ceiling.unit is unit and one.account < 0 and not ceiling.window:
                return ceiling.limit
        return None


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What a call really cost; ends its lease. Applied once however often it is sent. steps is 1 for a completed call, else 0.

    body_bytes: the size of the body whose input tokens these are, 0 when they are no measure. cost: nano-dollars. windows: those of the
    session's ceilings that the call was reserved under, if they have any. accounts: those it was reserved with; they are charged in the
    windows named there, even when those are over. model, day: the row of the teams' usage that it adds to, no row without a day; models
    come from a closed set, days are `2026-11-29`. stop: the reason the session's run stands stopped for from now on, "" when it goes on,
    None for no news.
    """

    lease: str
    steps: int
    input_tokens: int
    output_tokens: int
    body_bytes: int
    cost: int = 0
    windows: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    model: str = ""
    day: str = ""
    stop: str | None = None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The answer to `commit`. On a conflict the settlements and links were applied, the record was not, and `record`/`version` are
    what stands there now. Without one, `record` is the one committed. A commit sent again after a lost reply is no conflict."""

    conflict: bool
    record: bytes | None
    version: int


class Amendment(msgspec.Struct, frozen=True, gc=False):
    """What an operator changes about a ledger; every `open` from then on sees it.

    reset: what is settled goes back to nothing, in every window too, and the deadline's clock starts anew; what calls under way hold
    stays. raised: ceilings in force instead of the policy's and the headers' of that unit and window, higher or lower, or new. deadline:
    likewise, seconds after the start. restore: forget what was raised before this, the deadline too. mark: put on or taken off. note:
    handed out with every `open` until another takes its place, b"" for none; whoever judges the session knows what it says. lift: the
    session's run no longer stands stopped (`Settlement.stop`), nor do those of the sessions below it. None leaves things as they are.

    seen: the `Peeked.stamp` that it was decided on; None for what goes with any.
    """

    reset: bool = False
    restore: bool = False
    raised: tuple[Ceiling, ...] = ()
    deadline: float | None = None
    mark: Mark | None = None
    note: bytes | None = None
    lift: bool = False
    seen: bytes | None = None


class Peeked(msgspec.Struct, frozen=True, gc=False):
    """A ledger as it stands, seen without a trace. record, version, ledger, deadline, fallen, note: as in `Opened`.

    standings: of every ceiling in force. calls: under way. sessions: there, as far as an account counts them. expires_at: when it is
    forgotten, a ttl after its last use. raised, raised_deadline: what an operator put in force. stop: the reason its run stands stopped
    for. stamp: the same as long as neither what operators changed nor `stop` has become another.
    """

    record: bytes | None
    version: int
    now: float
    expires_at: float
    ledger: Ledger
    standings: tuple[Standing, ...]
    deadline: float | None
    calls: int
    sessions: int
    stop: str = ""
    fallen: Stopped | None = None
    mark: Mark = Mark.NONE
    note: bytes = b""
    raised: tuple[Ceiling, ...] = ()
    raised_deadline: float | None = None
    stamp: bytes = b""


class Listing(msgspec.Struct, frozen=True, gc=False):
    """What a session is listed under. tenant: whose it is; label: what people see of it. Short, and nothing that must not be stored."""

    tenant: str
    label: str


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A session in the index. seen: when it was used last, to within `LISTED_SECONDS`."""

    session: bytes
    listing: Listing
    seen: float


class Page(msgspec.Struct, frozen=True, gc=False):
    """A part of the index, the sessions used last first. Some may have ended: then `peek` finds nothing. after: where the next part
    begins, "" when this was the last; a part may be short, or empty, and not the last."""

    sessions: tuple[Listed, ...]
    after: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a team spent in a day on a model. cost: nano-dollars."""

    day: str
    model: str
    steps: int
    input_tokens: int
    output_tokens: int
    cost: int


class PartUnavailable(StoreUnavailable):
    """Some of the servers of a store are away, and the call needed one of them. Those that need none of them are served.

    asked: whether any was asked. Where it was known before that one is away, none was.
    """

    def __init__(self, message: str, *, asked: bool = True) -> None:
        super().__init__(message)
        self.asked = asked


class Unshared(bytes):
    """A secret of this process's own, while the store's cannot be had. What it keys must be neither looked for in the store nor put there:
    every budget would begin anew."""


def shared(secret: bytes) -> bytes:
    """The secret, if it is the store's; raises `StoreUnavailable` else."""
    if isinstance(secret, Unshared):
        raise StoreUnavailable("the session store was not reached yet; ask again, and if it stays so look at store.url and its server")
    return secret


class Store(Protocol):
    """The contract; `tests/contract/test_store.py` runs on every implementation."""

    async def secret(self) -> bytes:
        """The 32 bytes that key every fingerprint, the same for all replicas of this store; made on first use."""
        ...

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        """The session key of the first link, in order, that is known and whose session still lives."""
        ...

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        """Load a session and reserve for one call, in every ledger that pays or in none. Creates ledgers (and start times) on first use.

        Sent again with the same lease, it replaces that lease's reservation. One round trip; a second one follows before the answer where
        an account that is nearly used up is asked again with what the session knows of its bodies, and where a refusal is undone.
        """
        ...

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        """Let a living call's lease end only `expires_in` seconds from now, in every ledger; False when one has already let go of it."""
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
        listing: Listing | None = None,
    ) -> Committed:
        """Settle, then replace the record if its version is still `version` (None leaves it alone), then point `links` at the session.

        Every ledger that a settlement names charges it once, also when a commit that failed half-way is sent again. listing: what the
        session is found under in the index, from its first record on.
        """
        ...

    async def page(self, *, after: str = "", count: int = 50, tenant: str | None = None, search: str = "") -> Page:
        """At most `count` sessions of the index: those of a tenant, those whose label contains what is searched for, from a place on.

        A place that no page named is the beginning.
        """
        ...

    async def peek(self, accounts: Sequence[Account]) -> list[Peeked | None]:
        """Ledgers as they stand, in one round trip; None where there is none. A session's own is `Account(session)`."""
        ...

    async def amend(self, account: Account, amendment: Amendment, ttl: float) -> Peeked | None:
        """Change a ledger, made if there is none; how it stands then. None, and no change, where it no longer is as it was `seen`."""
        ...

    async def usage(self, team: bytes, days: Sequence[str]) -> list[Usage]:
        """A team's rows of those days, by day and model; kept for `TEAM_SECONDS`."""
        ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


Clock = Callable[[], float]
RandomBytes = Callable[[int], bytes]
OnChange = Callable[[StoreChanged], None]

# How long a store remembers that a lease was settled. A settlement that may already have been applied must not be sent again later.
SETTLED_SECONDS = 900.0

# How many tags of other live leases `Opened.in_flight` holds at most.
MAX_IN_FLIGHT = 16

# How long the counters of a window are kept after its end, for those who look.
WINDOW_SECONDS = 3600.0

# How long a team's ledger is kept after its last use.
TEAM_SECONDS = 400 * 86_400.0

# How often at least the index hears of a session in use.
LISTED_SECONDS = 300.0
