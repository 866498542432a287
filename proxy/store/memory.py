"""The in-process store: everything in dictionaries, bounded, gone with the process.

No method awaits anything, so each is atomic. The sums of a ledger are in `book`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from proxy.bounded import Bounded
from proxy.store.book import Amended, Book, Stretch
from proxy.store.contract import (
    SETTLED_SECONDS,
    TEAM_SECONDS,
    Account,
    Amendment,
    Clock,
    Committed,
    Listed,
    Listing,
    Opened,
    Page,
    Peeked,
    RandomBytes,
    Reservation,
    Settlement,
    Stopped,
    Usage,
)
from proxy.store.grant import Grant, Loaded, counted, has_usage, lowered, opened, settled, tight, to_undo
from proxy.store.index import matches, named_place, place_of

# What a session and a link weigh beside the record, for the bound on bytes (measured with tracemalloc, rounded up).
_SESSION_BYTES = 1024
_LINK_BYTES = 160

# Of each session the newest links are kept, so that a session's weight does not grow with its length.
_LINKS_PER_SESSION = 64
_MAX_SETTLED = 16_384
_FORGET_SECONDS = 1.0
_USAGE_DAYS = 400


@dataclass(slots=True)
class _Session:
    """A record and its ledger. A team's has no record, and rows of usage instead, by day and model."""

    book: Book
    expires: float
    seen: float = 0.0
    listing: Listing | None = None
    record: bytes | None = None
    version: int = 0
    links: list[bytes] = field(default_factory=list)
    usage: dict[str, dict[str, Stretch]] | None = None

    @property
    def weight(self) -> int:
        return _SESSION_BYTES + _LINK_BYTES * len(self.links) + len(self.record or b"")


class MemoryStore:
    """A `Store` in this process. Bounded by bytes (records and what hangs on them) and by sessions; least recently used out first."""

    def __init__(self, clock: Clock, random_bytes: RandomBytes, *, max_bytes: int = 256 * 2**20, max_sessions: int = 100_000) -> None:
        self._clock = clock
        self._secret = random_bytes(32)
        self._max_bytes = max_bytes
        self._max_sessions = max_sessions
        self._bytes = 0
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._teams: dict[bytes, _Session] = {}
        self._links: dict[bytes, bytes] = {}
        self._settled: Bounded[tuple[bytes, str], float] = Bounded(_MAX_SETTLED)  # until when each is remembered, the soonest first
        # Until then the oldest of them is kept. Both stand in the order in which they end, so that nothing has to be looked at before.
        self._dead_at = self._forget_at = 0.0

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
        book = entry.book
        grants = [book.reserve(reservation, now)]
        note = b"" if book.amended is None else book.amended.note
        loaded = Loaded(entry.record, entry.version, now, book.ledger, book.in_flight(reservation.lease), book.fallen, note)
        books = [book]
        if reservation.accounts:
            books += [self._paying(account, now, ttl).book for account in reservation.accounts]
            self._sessions.move_to_end(session)
            _ask(grants, books[1:], session, reservation, now)
        if reservation.again:
            self._leave_settled(grants, books, session, reservation)
        if reservation.accounts:
            for place in to_undo(grants):
                books[place].undo(reservation.lease)
        self._shrink(now)
        return opened(loaded, grants)

    def _leave_settled(self, grants: list[Grant], books: Sequence[Book], session: bytes, wanted: Reservation) -> None:
        """Of a lease that is asked for again: ledgers that have settled it hold nothing for it."""
        for place, key in enumerate((session, *(account.key for account in wanted.accounts))):
            if (key, wanted.lease) in self._settled:
                books[place].undo(wanted.lease)
                grants[place] = settled(grants[place], place - 1)

    async def renew(self, session: bytes, lease: str, accounts: Sequence[Account], expires_in: float) -> bool:
        now = self._clock()
        entry = self._sessions.get(session)
        lives = entry is not None and entry.expires > now and entry.book.renew(lease, now + expires_in, now)
        for account in accounts:
            ledgers = self._teams if account.team else self._sessions
            paying = ledgers.get(account.key)
            if paying is None or not paying.book.renew(lease, now + expires_in, now + account.idle):
                lives = False
        return lives

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
        now = self._clock()
        entry = self._touch(session, now, ttl)
        for settlement in settlements:
            self._settle(session, entry.book, settlement, now, ttl)
        self._link(session, entry, links)
        committed = self._replace(entry, record, version)
        if entry.version:
            entry.listing = listing or entry.listing
        self._shrink(now)
        return committed

    def _settle(self, session: bytes, book: Book, settlement: Settlement, now: float, ttl: float) -> None:
        """In the session's ledger and in those of its accounts; in each of them once."""
        book.release(settlement.lease)
        if self._mark(session, settlement.lease, now):
            book.charge(settlement, settlement.windows, now)
            book.learn(settlement)
        for account in settlement.accounts:
            paying = self._paying(account, now, ttl)
            paying.book.release(settlement.lease)
            if self._mark(account.key, settlement.lease, now):
                paid = counted(settlement, account)
                paying.book.charge(paid, account.windows, now)
                if account.team:
                    _note_usage(paying, paid)
                elif settlement.stop:
                    paying.book.fallen = Stopped(session, settlement.stop)

    async def page(self, *, after: str = "", count: int = 50, tenant: str | None = None, search: str = "") -> Page:
        now = self._clock()
        place = place_of(after)
        found: list[Listed] = []
        for key, entry in reversed(self._sessions.items()):
            if place is not None:
                # Of those used at the same instant, the ones up to the place were on the page before.
                if (entry.seen, key) == place:
                    place = None
                    continue
                if entry.seen >= place[0]:
                    continue
            if entry.listing is None or entry.expires <= now or not matches(entry.listing, tenant, search):
                continue
            if len(found) == count:
                return Page(tuple(found), named_place(found[-1].seen, found[-1].session))
            found.append(Listed(key, entry.listing, entry.seen))
        return Page(tuple(found), "")

    async def peek(self, accounts: Sequence[Account]) -> list[Peeked | None]:
        now = self._clock()
        found = [(account, (self._teams if account.team else self._sessions).get(account.key)) for account in accounts]
        return [None if entry is None or entry.expires <= now else _peeked(entry, account, now) for account, entry in found]

    async def amend(self, account: Account, amendment: Amendment, ttl: float) -> Peeked | None:
        now = self._clock()
        entry = self._paying(account, now, ttl)
        if amendment.seen not in (None, entry.book.stamp):
            return None
        entry.book.amend(amendment, now)
        self._shrink(now)
        return _peeked(entry, account, now)

    async def usage(self, team: bytes, days: Sequence[str]) -> list[Usage]:
        rows = self._teams[team].usage if team in self._teams else None
        return [
            Usage(day, model, row.steps, row.input, row.output, row.cost)
            for day in days
            for model, row in sorted((rows or {}).get(day, {}).items())
        ]

    async def ping(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def _paying(self, account: Account, now: float, ttl: float) -> _Session:
        """What has the ledger of an account, made when there is none. A team's is under no pressure; those of teams long gone make room."""
        if not account.team:
            return self._touch(account.key, now, ttl)
        team = self._teams.get(account.key)
        if team is None or team.expires <= now:
            for old in [key for key, one in self._teams.items() if one.expires <= now]:
                del self._teams[old]
            team = self._teams[account.key] = _Session(Book(now), 0.0)
        team.expires = now + TEAM_SECONDS
        return team

    def _touch(self, session: bytes, now: float, ttl: float) -> _Session:
        """The live session of that key, made when there is none, now the most recently used."""
        entry = self._sessions.get(session)
        if entry is None or entry.expires <= now:
            if entry is not None:
                self._drop(session)
            entry = self._sessions[session] = _Session(Book(now), now + ttl)
            self._bytes += entry.weight
        self._sessions.move_to_end(session)
        until = now + ttl
        if entry.expires < until:
            entry.expires = until
        entry.seen = now
        return entry

    def _drop(self, session: bytes) -> None:
        entry = self._sessions.pop(session)
        self._bytes -= entry.weight
        for link in entry.links:
            if self._links.get(link) == session:
                del self._links[link]

    def _shrink(self, now: float) -> None:
        """Drop sessions from the least recently used on, while they are dead or too many; never the one just used."""
        if now < self._dead_at and self._bytes <= self._max_bytes and len(self._sessions) <= self._max_sessions:
            return
        while len(self._sessions) > 1:
            session, entry = next(iter(self._sessions.items()))
            full = self._bytes > self._max_bytes or len(self._sessions) > self._max_sessions
            if not full and entry.expires > now:
                self._dead_at = entry.expires
                return
            self._drop(session)

    def _mark(self, key: bytes, lease: str, now: float) -> bool:
        """Remember a settlement in a ledger; False when it was already applied."""
        if self._forget_at <= now:
            self._forget(now)
        mark = key, lease
        if mark in self._settled:
            return False
        self._settled.keep(mark, now + SETTLED_SECONDS)
        return True

    def _forget(self, now: float) -> None:
        """Settlements that are too old to be sent again, many at once for the reason that `leaving` gives."""
        self._forget_at = now + _FORGET_SECONDS
        for mark in list(takewhile(lambda mark: self._settled[mark] <= now, self._settled)):
            del self._settled[mark]

    def _link(self, session: bytes, entry: _Session, links: Sequence[bytes]) -> None:
        before = len(entry.links)
        for link in links:
            if self._links.get(link) != session:
                self._links[link] = session
                entry.links.append(link)
        if len(entry.links) > _LINKS_PER_SESSION:
            for link in entry.links[:-_LINKS_PER_SESSION]:
                if self._links.get(link) == session:
                    del self._links[link]
            del entry.links[:-_LINKS_PER_SESSION]
        self._bytes += _LINK_BYTES * (len(entry.links) - before)

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


def _ask(grants: list[Grant], books: Sequence[Book], session: bytes, wanted: Reservation, now: float) -> None:
    """Add what the accounts' ledgers say to what the session's said."""
    for place, (account, book) in enumerate(zip(wanted.accounts, books, strict=True)):
        grants.append(book.reserve(counted(wanted, account), now, account, place, account.member or session))
    less = lowered(wanted, grants[0])
    for place in tight(wanted, grants):
        account = wanted.accounts[place]
        grants[place + 1] = books[place].reserve(counted(less, account), now, account, place, account.member or session)


def _note_usage(team: _Session, settlement: Settlement) -> None:
    """Add to the row of that day and model; the oldest day makes room."""
    if not has_usage(settlement):
        return
    rows = team.usage = {} if team.usage is None else team.usage
    rows.setdefault(settlement.day, {}).setdefault(settlement.model, Stretch()).charge(settlement)
    if len(rows) > _USAGE_DAYS:
        del rows[min(rows)]


def _peeked(entry: _Session, account: Account, now: float) -> Peeked:
    book = entry.book
    book.reap(now)
    ceilings, deadline = book.in_force(account, now)
    amended = book.amended or Amended()
    there = sum(until > now for until in (book.members or {}).values())
    return Peeked(
        entry.record,
        entry.version,
        now,
        entry.expires,
        book.ledger,
        book.standings(ceilings),
        deadline,
        len(book.leases),
        there,
        book.stop,
        book.fallen,
        amended.mark,
        amended.note,
        amended.raised,
        amended.deadline,
        book.stamp,
    )
