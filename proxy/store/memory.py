"""The in-process store: everything in dictionaries, bounded, gone with the process.

No method awaits anything, so each is atomic. The arithmetic of a ledger is the one of `lua/open.lua` and `lua/commit.lua`; the contract
suite holds the two together.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from proxy.store.contract import (
    MAX_IN_FLIGHT,
    SETTLED_SECONDS,
    Clock,
    Committed,
    Ledger,
    Limits,
    Opened,
    RandomBytes,
    Reservation,
    Settlement,
)

_Number = TypeVar("_Number", int, float)
_NO_LIMITS = Limits()

# What a session and a link weigh beside the record, for the bound on bytes (measured with tracemalloc, rounded up).
_SESSION_BYTES = 1024
_LINK_BYTES = 160

# Of each session the newest links are kept, so that a session's weight does not grow with its length.
_LINKS_PER_SESSION = 64
_MAX_SETTLED = 16_384


@dataclass(slots=True)
class _Lease:
    expires: float
    tag: int
    tokens: int


@dataclass(slots=True)
class _Grant:
    """What a ledger says to a reservation. tokens: what it holds while the lease lives."""

    step: int
    refused: str | None = None
    output: int | None = None
    last: bool = False
    tokens: int = 0


@dataclass(slots=True)
class _Session:
    """A record and its ledger. ratio: most input tokens per body byte of any settled call, 0 before the first. known: most bytes."""

    started_at: float
    expires: float
    record: bytes | None = None
    version: int = 0
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reserved_tokens: int = 0
    ratio: float = 0.0
    known: int = 0
    tightened: Limits = _NO_LIMITS
    leases: dict[str, _Lease] = field(default_factory=dict)
    links: list[bytes] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.steps, self.input_tokens, self.output_tokens, len(self.leases), self.reserved_tokens, self.started_at)

    @property
    def weight(self) -> int:
        return _SESSION_BYTES + _LINK_BYTES * len(self.links) + len(self.record or b"")

    def release(self, lease: str) -> None:
        """End a lease, if it lives, and give back what it held."""
        held = self.leases.pop(lease, None)
        if held is not None:
            self.reserved_tokens -= held.tokens

    def reap(self, now: float) -> None:
        for lease in [lease for lease, held in self.leases.items() if held.expires <= now]:
            self.release(lease)

    def grant(self, wanted: Reservation, limits: Limits, now: float) -> _Grant:
        """Decide on a reservation without making it: deadline first, then steps, then tokens."""
        grant = _Grant(self.steps + len(self.leases) + 1)
        if limits.deadline is not None and max(now - self.started_at, 0) >= limits.deadline:
            grant.refused = "deadline"
        elif limits.steps is not None and grant.step > limits.steps:
            grant.refused = "steps"
        else:
            grant.last = limits.steps is not None and grant.step >= limits.steps
            self._grant_tokens(grant, wanted, limits.tokens)
        return grant

    def _grant_tokens(self, grant: _Grant, wanted: Reservation, limit: int | None) -> None:
        bound = wanted.input_bound
        if self.ratio > 0:
            known = min(wanted.body_bytes, self.known)
            bound = min(bound, math.ceil(known * self.ratio * 1.1) + wanted.body_bytes - known + 512)
        bound += wanted.attached
        if limit is None:
            grant.tokens = bound + wanted.output
            return
        available = limit - self.input_tokens - self.output_tokens - self.reserved_tokens - bound
        output = _fitting(wanted, available)
        if output is None or limit <= 0:
            grant.refused, grant.last = "tokens", False
            return
        grant.output = output
        grant.tokens = bound + output
        grant.last = grant.last or available - output < bound + wanted.floor

    def settle(self, settlement: Settlement) -> None:
        self.steps += settlement.steps
        self.input_tokens += settlement.input_tokens
        self.output_tokens += settlement.output_tokens
        if settlement.body_bytes > 0:
            self.ratio = max(self.ratio, settlement.input_tokens / settlement.body_bytes)
            self.known = max(self.known, settlement.body_bytes)


class MemoryStore:
    """A `Store` in this process. Bounded by bytes (records and what hangs on them) and by sessions; least recently used out first."""

    def __init__(self, clock: Clock, random_bytes: RandomBytes, *, max_bytes: int = 256 * 2**20, max_sessions: int = 100_000) -> None:
        self._clock = clock
        self._secret = random_bytes(32)
        self._max_bytes = max_bytes
        self._max_sessions = max_sessions
        self._bytes = 0
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._links: dict[bytes, bytes] = {}
        self._settled: OrderedDict[tuple[bytes, str], float] = OrderedDict()

    async def secret(self) -> bytes:
        return self._secret

    async def find(self, links: Sequence[bytes]) -> bytes | None:
        now = self._clock()
        for link in links:
            key = self._links.get(link)
            if key is not None and self._sessions[key].expires > now:
                return key
        return None

    async def open(self, session: bytes, reservation: Reservation, ttl: float) -> Opened:
        now = self._clock()
        entry = self._touch(session, now, ttl)
        entry.reap(now)
        entry.release(reservation.lease)
        entry.tightened = _lower(entry.tightened, reservation.tighten)
        limits = _lower(reservation.limits, entry.tightened)
        grant = entry.grant(reservation, limits, now)
        others = tuple(held.tag for held in islice(reversed(entry.leases.values()), MAX_IN_FLIGHT))
        if grant.refused is None:
            entry.leases[reservation.lease] = _Lease(now + reservation.expires_in, reservation.tag, grant.tokens)
            entry.reserved_tokens += grant.tokens
        self._shrink(now)
        return Opened(entry.record, entry.version, now, entry.ledger, limits, grant.refused, grant.step, grant.output, grant.last, others)

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
        now = self._clock()
        entry = self._touch(session, now, ttl)
        for settlement in settlements:
            entry.release(settlement.lease)
            if self._mark(session, settlement.lease, now):
                entry.settle(settlement)
        self._link(session, entry, links)
        committed = self._replace(entry, record, version)
        self._shrink(now)
        return committed

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def _touch(self, session: bytes, now: float, ttl: float) -> _Session:
        """The live session of that key, made when there is none, now the most recently used."""
        entry = self._sessions.get(session)
        if entry is not None and entry.expires <= now:
            self._drop(session)
            entry = None
        if entry is None:
            entry = self._sessions[session] = _Session(now, now + ttl)
            self._bytes += entry.weight
        self._sessions.move_to_end(session)
        entry.expires = max(entry.expires, now + ttl)
        return entry

    def _drop(self, session: bytes) -> None:
        entry = self._sessions.pop(session)
        self._bytes -= entry.weight
        for link in entry.links:
            if self._links.get(link) == session:
                del self._links[link]

    def _shrink(self, now: float) -> None:
        """Drop sessions from the least recently used on, while they are dead or too many; never the one just used."""
        while len(self._sessions) > 1:
            session, entry = next(iter(self._sessions.items()))
            full = self._bytes > self._max_bytes or len(self._sessions) > self._max_sessions
            if not full and entry.expires > now:
                return
            self._drop(session)

    def _mark(self, session: bytes, lease: str, now: float) -> bool:
        """Remember a settlement; False when it was already applied."""
        while self._settled:
            oldest, forgotten_at = next(iter(self._settled.items()))
            if forgotten_at > now and len(self._settled) < _MAX_SETTLED:
                break
            del self._settled[oldest]
        if (session, lease) in self._settled:
            return False
        self._settled[session, lease] = now + SETTLED_SECONDS
        return True

    def _link(self, session: bytes, entry: _Session, links: Sequence[bytes]) -> None:
        before = entry.weight
        for link in links:
            if self._links.get(link) != session:
                self._links[link] = session
                entry.links.append(link)
        for link in entry.links[:-_LINKS_PER_SESSION]:
            if self._links.get(link) == session:
                del self._links[link]
        del entry.links[:-_LINKS_PER_SESSION]
        self._bytes += entry.weight - before

    def _replace(self, entry: _Session, record: bytes | None, version: int) -> Committed:
        if record is None:
            return Committed(False, None, entry.version)
        if entry.version == version:
            self._bytes += len(record) - len(entry.record or b"")
            entry.record = record
            entry.version += 1
        elif entry.version != version + 1 or entry.record != record:
            return Committed(True, entry.record, entry.version)
        return Committed(False, record, entry.version)


def _fitting(wanted: Reservation, available: int) -> int | None:
    """The output tokens to grant of those available; None when they are too few for a useful answer."""
    if available >= wanted.output:
        return wanted.output
    if available >= wanted.modest:
        return wanted.modest
    return available if available >= wanted.floor else None


def _lower(one: Limits, other: Limits) -> Limits:
    """The stricter of two limits, field by field."""
    if other == _NO_LIMITS:
        return one
    return Limits(
        _least(one.steps, other.steps),
        _least(one.tokens, other.tokens),
        _least(one.deadline, other.deadline),
    )


def _least(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
