"""A ledger as the memory store keeps it: what is spent and held, over its whole life and per window, and what a reservation is told.

No clock and no sessions here: time is an argument. The arithmetic is the one of the scripts in `lua/`; the contract suite holds the two
together.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from proxy.store.contract import (
    MAX_IN_FLIGHT,
    WINDOW_SECONDS,
    Account,
    Amendment,
    Ceiling,
    Kind,
    Ledger,
    Mark,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Stopped,
    Unit,
    windows_of,
)
from proxy.store.grant import Grant, Hold, demand, fitting, priced, refusal_by

_STEPS, _INPUT, _OUTPUT, _TOKENS, _COST = Unit  # the enum's own attributes cost a look-up each time
_RANK = {unit: rank for rank, unit in enumerate(Unit)}


class Lease(msgspec.Struct, gc=False):
    """A call under way. tag: None where the ledger only pays for another session's call. joined: whether it made `member` count."""

    expires: float
    tag: int | None
    hold: Hold
    windows: tuple[str, ...] = ()
    member: bytes | None = None
    joined: bool = False


class Amended(msgspec.Struct, frozen=True, gc=False):
    """What an operator put in force."""

    mark: Mark = Mark.NONE
    note: bytes = b""
    raised: tuple[Ceiling, ...] = ()
    deadline: float | None = None


@dataclass(slots=True)
class Stretch:
    """What was spent, and is held, in a stretch of time that ends at `until`."""

    until: float = 0.0
    steps: int = 0
    input: int = 0
    output: int = 0
    cost: int = 0
    held_steps: int = 0
    held_input: int = 0
    held_output: int = 0
    held_cost: int = 0

    def take(self, hold: Hold) -> None:
        self.held_steps += hold.steps
        self.held_input += hold.input
        self.held_output += hold.output
        self.held_cost += hold.cost

    def give_back(self, hold: Hold) -> None:
        self.held_steps -= hold.steps
        self.held_input -= hold.input
        self.held_output -= hold.output
        self.held_cost -= hold.cost

    def charge(self, settlement: Settlement) -> None:
        self.steps += settlement.steps
        self.input += settlement.input_tokens
        self.output += settlement.output_tokens
        self.cost += settlement.cost

    def reset(self) -> None:
        self.steps = self.input = self.output = self.cost = 0

    def used(self, unit: Unit) -> tuple[int, int]:
        """Spent and held, in that unit."""
        if unit is _STEPS:
            return self.steps, self.held_steps
        if unit is _TOKENS:
            return self.input + self.output, self.held_input + self.held_output
        if unit is _COST:
            return self.cost, self.held_cost
        return (self.input, self.held_input) if unit is _INPUT else (self.output, self.held_output)


class _Asked(msgspec.Struct, gc=False):
    """How a call meets a ceiling. need: what it takes of it before its answer, in the ceiling's unit; rate: what each token of the answer
    takes, in thousandths; rest: what is left behind the former; fits: the output granted, None if there is too little room."""

    ceiling: Ceiling
    spent: int
    held: int
    need: int
    rate: int
    rest: int
    fits: int | None


_UNASKED: list[_Asked] = []  # where there is no ceiling; nobody adds to it


@dataclass(slots=True)
class Book:
    """A ledger. ratio: most input tokens per body byte of any settled call, 0 before the first. known: most bytes of one.

    ceilings, deadline: those the session was last opened with. soonest: no lease expires
    earlier. members: the sessions that are there, with the time until which they count.
    """

    started_at: float
    ratio: float = 0.0
    known: int = 0
    life: Stretch = field(default_factory=Stretch)
    windows: dict[str, Stretch] | None = None
    ceilings: tuple[Ceiling, ...] = ()
    deadline: float | None = None
    tightened: tuple[Ceiling, ...] = ()
    tightened_deadline: float | None = None
    leases: dict[str, Lease] = field(default_factory=dict)
    soonest: float = math.inf
    members: dict[bytes, float] | None = None
    stop: str = ""
    fallen: Stopped | None = None
    amended: Amended | None = None

    @property
    def ledger(self) -> Ledger:
        life = self.life
        return Ledger(
            life.steps,
            life.input,
            life.output,
            life.cost,
            life.held_steps,
            life.held_input + life.held_output,
            life.held_cost,
            self.started_at,
        )

    @property
    def stamp(self) -> bytes:
        """What an operator's decision rests on, in one value: see `Peeked.stamp`."""
        return msgspec.msgpack.encode((self.amended, self.stop))

    def in_flight(self, but: str) -> tuple[int, ...]:
        """Tags of the newest live leases of the session's own, except that one."""
        if not self.leases or (len(self.leases) == 1 and but in self.leases):
            return ()
        tags = (lease.tag for name, lease in reversed(self.leases.items()) if lease.tag is not None and name != but)
        return tuple(islice(tags, MAX_IN_FLIGHT))

    def release(self, name: str) -> None:
        """End a lease, if it lives, and give back what it held."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            self.life.give_back(lease.hold)
            if lease.windows:
                for stretch in self._known(lease.windows):
                    stretch.give_back(lease.hold)

    def undo(self, name: str) -> None:
        """End a lease as if it had never been: a session that only it made count is not there."""
        lease = self.leases.get(name)
        self.release(name)
        if lease is not None and lease.joined and all(other.member != lease.member for other in self.leases.values()):
            (self.members or {}).pop(lease.member or b"", None)

    def reap(self, now: float) -> None:
        if now < self.soonest:
            return
        for name in [name for name, lease in self.leases.items() if lease.expires <= now]:
            self.release(name)
        self.soonest = min((lease.expires for lease in self.leases.values()), default=math.inf)

    def reserve(self, wanted: Reservation, now: float, account: Account | None = None, place: int = -1, member: bytes = b"") -> Grant:
        """Decide on a reservation and make it when it is granted; expired leases and this lease's own are ended first.

        account, place, member: as which, of those of the reservation, this ledger pays for the call of that session.
        """
        joined = False
        if self.leases:
            self.reap(now)
            joined = self._end(wanted.lease)
        ceilings, deadline = self._in_force(wanted, account, now)
        bound = self._bound(wanted) if account is None and self.ratio > 0 else wanted.input_bound + wanted.attached
        step = self.life.steps + self.life.held_steps + 1
        asked = self._met(ceilings, wanted, bound, now) if ceilings else _UNASKED
        refused = None if deadline is None and self.amended is None else self._barred(deadline, now, place)
        if refused is None and asked and None in [one.fits for one in asked]:
            refused = refusal_by(_told(asked, place), wanted, bound)
        if refused is None and account is not None:
            refused = self._crowded(account, member, now, place)
        ends = None if deadline is None else self.started_at + deadline
        if refused is not None:
            return Grant(step, bound, _told(asked, place), deadline, ends, refused, None, None, None, self.stop)
        output = min([one.fits for one in asked if one.rate and one.fits is not None], default=None) if asked else None
        granted = wanted.output if output is None else output
        standings, last = _granted(asked, granted, wanted.floor, place) if asked else ((), None)
        cost = priced(bound, wanted.input_price) + priced(granted, wanted.output_price) + wanted.beside
        lease = Lease(now + wanted.expires_in, wanted.tag if account is None else None, Hold(wanted.steps, bound, granted, cost))
        if self.windows:
            lease.windows = windows_of(ceilings)
        if account is not None and account.sessions is not None:
            self._join(lease, member, now + account.idle, joined=joined)
        self._take(wanted.lease, lease)
        return Grant(step, bound, standings, deadline, ends, None, output, last, lease.hold, self.stop)

    def _end(self, name: str) -> bool:
        """End a lease that is sent again. Whether it had made its session count."""
        before = self.leases.get(name)
        if before is None:
            return False
        self.release(name)
        return before.joined

    def _in_force(self, wanted: Reservation, account: Account | None, now: float) -> tuple[tuple[Ceiling, ...], float | None]:
        if account is None:
            self.ceilings, self.deadline = wanted.ceilings, wanted.deadline
            if wanted.tighten or wanted.tighten_deadline is not None:
                self.tightened = merged(self.tightened, wanted.tighten)
                self.tightened_deadline = _least(self.tightened_deadline, wanted.tighten_deadline)
        return self.in_force(account, now)

    def in_force(self, account: Account | None, now: float) -> tuple[tuple[Ceiling, ...], float | None]:
        """Ceilings and deadline: those named, or those of the last opening, with what headers tightened and an operator raised."""
        ceilings, deadline = self.ceilings, self.deadline
        if account is not None and account.ceilings is not None:
            ceilings, deadline = account.ceilings, account.deadline
        if self.tightened or self.tightened_deadline is not None:
            ceilings, deadline = merged(ceilings, self.tightened), _least(deadline, self.tightened_deadline)
        if self.amended is None:
            return ceilings, deadline
        raised = self.amended.deadline
        return merged(ceilings, _lasting(self.amended.raised, now), instead=True), deadline if raised is None else raised

    def amend(self, amendment: Amendment, now: float) -> None:
        if amendment.reset:
            self.started_at = now
            for stretch in [self.life, *(self.windows or {}).values()]:
                stretch.reset()
        if amendment.lift:
            self.stop, self.fallen = "", None
        before = self.amended or Amended()
        raised, deadline = ((), None) if amendment.restore else (before.raised, before.deadline)
        amended = Amended(
            before.mark if amendment.mark is None else amendment.mark,
            before.note if amendment.note is None else amendment.note,
            merged(_lasting(raised, now), amendment.raised, instead=True),
            deadline if amendment.deadline is None else amendment.deadline,
        )
        self.amended = None if amended == Amended() else amended

    def standings(self, ceilings: Iterable[Ceiling]) -> tuple[Standing, ...]:
        """How much of each is used; nothing in a window that nobody spent in."""
        nothing = Stretch()
        within = [(one, (self.windows or {}).get(one.window, nothing) if one.window else self.life) for one in ceilings]
        return tuple([Standing(one, *stretch.used(one.unit)) for one, stretch in within])

    def _met(self, ceilings: Iterable[Ceiling], wanted: Reservation, bound: int, now: float) -> list[_Asked]:
        return [self._meet(ceiling, wanted, bound, now) for ceiling in ceilings]

    def _meet(self, ceiling: Ceiling, wanted: Reservation, bound: int, now: float) -> _Asked:
        within = self._window(ceiling.window, ceiling.until, now) if ceiling.window else self.life
        spent, held = within.used(ceiling.unit)
        need, rate = demand(ceiling.unit, wanted, bound)
        rest = ceiling.limit - spent - held - need
        return _Asked(ceiling, spent, held, need, rate, rest, fitting(wanted, rest, held, need, rate) if ceiling.limit > 0 else None)

    def _barred(self, deadline: float | None, now: float, place: int) -> Refusal | None:
        """What says no before any ceiling is asked: an operator, then the deadline."""
        if self.amended is not None and self.amended.mark:
            return Refusal(Kind.OPERATOR, 0, 0, account=place, mark=self.amended.mark)
        if deadline is not None and (elapsed := max(now - self.started_at, 0)) >= deadline:
            return Refusal(Kind.DEADLINE, deadline, elapsed, account=place)
        return None

    def _crowded(self, account: Account, member: bytes, now: float, place: int) -> Refusal | None:
        """Whether there are too many calls or sessions at once."""
        if account.calls is not None and len(self.leases) >= account.calls:
            return Refusal(Kind.CALLS, account.calls, len(self.leases), account=place)
        if account.sessions is None:
            return None
        there = self.members = {} if self.members is None else self.members
        while there and next(iter(there.values())) <= now:
            del there[next(iter(there))]
        if account.sessions > 0 and (member in there or len(there) < account.sessions):
            return None
        return Refusal(Kind.SESSIONS, account.sessions, len(there), account=place)

    def _join(self, lease: Lease, member: bytes, until: float, *, joined: bool) -> None:
        """The session is there from now on. A dictionary in the order of leaving: whoever comes again goes to its end."""
        there = self.members = {} if self.members is None else self.members
        lease.member, lease.joined = member, joined or member not in there
        there.pop(member, None)
        there[member] = until

    def _bound(self, wanted: Reservation) -> int:
        """The most input tokens the call may have, by what the largest settled call taught."""
        known = min(wanted.body_bytes, self.known)
        return min(wanted.input_bound, math.ceil(known * self.ratio * 1.1) + wanted.body_bytes - known + 512) + wanted.attached

    def _take(self, name: str, lease: Lease) -> None:
        self.leases[name] = lease
        if lease.expires < self.soonest:
            self.soonest = lease.expires
        self.life.take(lease.hold)
        if lease.windows:
            for stretch in self._known(lease.windows):
                stretch.take(lease.hold)

    def renew(self, name: str, expires: float, member_until: float) -> bool:
        """Whether the lease lives, and does so until then."""
        lease = self.leases.get(name)
        if lease is None:
            return False
        lease.expires = expires
        self.soonest = min(self.soonest, expires)
        if lease.member is not None and self.members is not None:
            self.members.pop(lease.member, None)
            self.members[lease.member] = member_until
        return True

    def charge(self, settlement: Settlement, windows: Iterable[str], now: float) -> None:
        """What a call cost, for life and in those windows."""
        self.life.charge(settlement)
        for window in windows:
            self._window(window, None, now).charge(settlement)

    def learn(self, settlement: Settlement) -> None:
        """What a call of the session's own says of its next ones, and of its run."""
        if settlement.body_bytes > 0:
            ratio = settlement.input_tokens / settlement.body_bytes
            if ratio > self.ratio:
                self.ratio = ratio
            if settlement.body_bytes > self.known:
                self.known = settlement.body_bytes
        if settlement.stop is not None:
            self.stop = settlement.stop

    def _window(self, name: str, until: float | None, now: float) -> Stretch:
        """The counters of a window. One that is new makes room: those long over go. Of an unknown end, it is over now."""
        windows = self.windows = {} if self.windows is None else self.windows
        stretch = windows.get(name)
        if stretch is None:
            for old in [old for old, one in windows.items() if one.until + WINDOW_SECONDS <= now]:
                del windows[old]
            stretch = windows[name] = Stretch(now)
        if until is not None:
            stretch.until = until
        return stretch

    def _known(self, windows: Iterable[str]) -> list[Stretch]:
        """Those of the windows that still have counters."""
        if not self.windows:
            return []
        return [stretch for window in windows if (stretch := self.windows.get(window)) is not None]


def merged(ceilings: tuple[Ceiling, ...], by: tuple[Ceiling, ...], *, instead: bool = False) -> tuple[Ceiling, ...]:
    """Two lists as one, in the order of units: of ceilings of one unit and window the stricter, or that of the second `instead`."""
    if not by:
        return ceilings
    found = {(one.unit, one.window): one for one in ceilings}
    for one in by:
        other = found.get((one.unit, one.window), one)
        found[one.unit, one.window] = msgspec.structs.replace(other, limit=one.limit if instead else min(one.limit, other.limit))
    return tuple(sorted(found.values(), key=lambda one: _RANK[one.unit]))


def _lasting(ceilings: tuple[Ceiling, ...], now: float) -> tuple[Ceiling, ...]:
    """Those whose stretch of the calendar is not over: last month's raised limit says nothing about this one."""
    return tuple([one for one in ceilings if one.until is None or one.until > now])


def _told(asked: list[_Asked], account: int) -> tuple[Standing, ...]:
    """How much of each ceiling is used, without this call."""
    return tuple([Standing(one.ceiling, one.spent, one.held, account) for one in asked])


def _granted(asked: list[_Asked], output: int, floor: int, account: int) -> tuple[tuple[Standing, ...], Standing | None]:
    """How much of each ceiling is used with this call held, and the first under which a further call of this size, with the least that
    makes an answer, would not fit behind it. What others hold are worst cases, most of which comes back; their steps do not."""
    standings: list[Standing] = []
    last = None
    for one in asked:
        taken = priced(output, one.rate)
        standing = Standing(one.ceiling, one.spent, one.held + one.need + taken, account)
        standings.append(standing)
        rest = one.rest if one.ceiling.unit is _STEPS else one.rest + one.held
        if last is None and rest - taken < one.need + priced(floor, one.rate):
            last = standing
    return tuple(standings), last


def _least(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
