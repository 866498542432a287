"""A ledger as the memory store keeps it: what is spent and held, over its whole life and per window, and what a reservation is told.

No clock and no sessions here: time is an argument. The arithmetic is the one of `lua/open.lua` and `lua/commit.lua`; the contract suite
holds the two together.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from proxy.store.contract import WINDOW_SECONDS, Ceiling, Kind, Ledger, Refusal, Reservation, Settlement, Standing, Unit

_RANK = {unit: rank for rank, unit in enumerate(Unit)}
_PICO = 1000  # pico-dollars in a nano-dollar


@dataclass(slots=True)
class Hold:
    """What a call under way holds, and in which windows beside the whole life."""

    expires: float
    tag: int
    steps: int
    input: int
    output: int
    cost: int
    windows: tuple[str, ...]


@dataclass(slots=True)
class Stretch:
    """What was spent, and is held, in a stretch of time that ends at `until`."""

    until: float | None = None
    steps: int = 0
    input: int = 0
    output: int = 0
    cost: int = 0
    held_steps: int = 0
    held_input: int = 0
    held_output: int = 0
    held_cost: int = 0

    def hold(self, held: Hold, sign: int) -> None:
        self.held_steps += sign * held.steps
        self.held_input += sign * held.input
        self.held_output += sign * held.output
        self.held_cost += sign * held.cost

    def charge(self, settlement: Settlement) -> None:
        self.steps += settlement.steps
        self.input += settlement.input_tokens
        self.output += settlement.output_tokens
        self.cost += settlement.cost

    def used(self, unit: Unit) -> tuple[int, int]:
        """Spent and held, in that unit."""
        if unit is Unit.TOKENS:
            return self.input + self.output, self.held_input + self.held_output
        if unit is Unit.STEPS:
            return self.steps, self.held_steps
        if unit is Unit.COST:
            return self.cost, self.held_cost
        return (self.input, self.held_input) if unit is Unit.INPUT else (self.output, self.held_output)


@dataclass(slots=True)
class Grant:
    """What a ledger says to a reservation. standings: of every ceiling in force, by the time of the answer."""

    step: int
    ceilings: tuple[Ceiling, ...]
    deadline: float | None
    refused: Refusal | None = None
    output: int | None = None
    last: int | None = None
    standings: tuple[Standing, ...] = ()


@dataclass(slots=True)
class Book:
    """A ledger. ratio: most input tokens per body byte of any settled call, 0 before the first. known: most bytes of one."""

    started_at: float
    ratio: float = 0.0
    known: int = 0
    life: Stretch = field(default_factory=Stretch)
    windows: dict[str, Stretch] | None = None
    tightened: tuple[Ceiling, ...] = ()
    tightened_deadline: float | None = None
    holds: dict[str, Hold] = field(default_factory=dict)

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

    def release(self, lease: str) -> None:
        """End a lease, if it lives, and give back what it held."""
        held = self.holds.pop(lease, None)
        if held is not None:
            for stretch in self._stretches(held.windows):
                stretch.hold(held, -1)

    def reap(self, now: float) -> None:
        for lease in [lease for lease, held in self.holds.items() if held.expires <= now]:
            self.release(lease)

    def reserve(self, wanted: Reservation, now: float) -> Grant:
        """Decide on a reservation and make it when it is granted: the deadline is asked first, then the ceilings in their order."""
        self.tightened = lower(self.tightened, wanted.tighten)
        self.tightened_deadline = _least(self.tightened_deadline, wanted.tighten_deadline)
        ceilings, deadline = lower(wanted.ceilings, self.tightened), _least(wanted.deadline, self.tightened_deadline)
        grant = Grant(self.life.steps + self.life.held_steps + 1, ceilings, deadline)
        elapsed = max(now - self.started_at, 0)
        if deadline is not None and elapsed >= deadline:
            grant.refused = Refusal(Kind.DEADLINE, deadline, elapsed)
        else:
            self._ask(grant, wanted, now)
        grant.standings = tuple([Standing(ceiling, *self._within(ceiling, now).used(ceiling.unit)) for ceiling in ceilings])
        return grant

    def _ask(self, grant: Grant, wanted: Reservation, now: float) -> None:
        """Every ceiling: whether the call fits, how much answer there is room for, and whether one more would fit behind it."""
        bound = self._bound(wanted)
        left: list[tuple[int, int, int]] = []
        for ceiling in grant.ceilings:
            spent, held = self._within(ceiling, now).used(ceiling.unit)
            need, rate = _demand(ceiling.unit, wanted, bound)
            rest = ceiling.limit - spent - held - need
            fits = _fitting(wanted, rest * _PICO // rate) if rate else (0 if rest >= 0 or need == 0 else None)
            if fits is None or ceiling.limit <= 0:
                grant.refused, grant.output = Refusal(Kind(ceiling.unit), ceiling.limit, spent, held, ceiling), None
                return
            if rate:
                grant.output = fits if grant.output is None else min(grant.output, fits)
            left.append((rest, need, rate))
        output = wanted.output if grant.output is None else grant.output
        for position, (rest, need, rate) in enumerate(left):
            if rest - priced(output, rate) < need + priced(wanted.floor, rate):
                grant.last = position
                break
        self._hold(wanted, bound, output, grant.ceilings, now)

    def _bound(self, wanted: Reservation) -> int:
        """The most input tokens the call may have, by what the largest settled call taught."""
        bound = wanted.input_bound
        if self.ratio > 0:
            known = min(wanted.body_bytes, self.known)
            bound = min(bound, math.ceil(known * self.ratio * 1.1) + wanted.body_bytes - known + 512)
        return bound + wanted.attached

    def _hold(self, wanted: Reservation, bound: int, output: int, ceilings: Iterable[Ceiling], now: float) -> None:
        cost = priced(bound, wanted.input_price) + priced(output, wanted.output_price)
        windows = tuple(dict.fromkeys([ceiling.window for ceiling in ceilings if ceiling.window]))
        held = Hold(now + wanted.expires_in, wanted.tag, wanted.steps, bound, output, cost, windows)
        self.holds[wanted.lease] = held
        for stretch in self._stretches(windows):
            stretch.hold(held, 1)

    def settle(self, settlement: Settlement, now: float) -> None:
        self.life.charge(settlement)
        for window in settlement.windows:
            self._window(window, None, now).charge(settlement)
        if settlement.body_bytes > 0:
            self.ratio = max(self.ratio, settlement.input_tokens / settlement.body_bytes)
            self.known = max(self.known, settlement.body_bytes)

    def _within(self, ceiling: Ceiling, now: float) -> Stretch:
        return self._window(ceiling.window, ceiling.until, now) if ceiling.window else self.life

    def _window(self, name: str, until: float | None, now: float) -> Stretch:
        """The counters of a window. One that is new makes room: those long over go. Of an unknown end, it is over now."""
        windows = self.windows = {} if self.windows is None else self.windows
        stretch = windows.get(name)
        if stretch is None:
            for old in [old for old, one in windows.items() if one.until is not None and one.until + WINDOW_SECONDS <= now]:
                del windows[old]
            stretch = windows[name] = Stretch(now)
        if until is not None:
            stretch.until = until
        return stretch

    def _stretches(self, windows: Iterable[str]) -> list[Stretch]:
        stretches = [self.life]
        if self.windows:
            stretches += [stretch for window in windows if (stretch := self.windows.get(window)) is not None]
        return stretches


def priced(tokens: int, rate: int) -> int:
    """What tokens cost at a rate in pico-dollars each, in whole nano-dollars, rounded up."""
    return -(-tokens * rate // _PICO)


def lower(ceilings: tuple[Ceiling, ...], by: tuple[Ceiling, ...]) -> tuple[Ceiling, ...]:
    """The stricter of two lists, ceiling by ceiling, in the order of units."""
    if not by:
        return ceilings
    strictest = {(one.unit, one.window): one for one in ceilings}
    for one in by:
        other = strictest.get((one.unit, one.window))
        if other is None:
            strictest[one.unit, one.window] = one
        elif one.limit < other.limit:
            strictest[one.unit, one.window] = msgspec.structs.replace(other, limit=one.limit)
    return tuple(sorted(strictest.values(), key=lambda one: _RANK[one.unit]))


def _demand(unit: Unit, wanted: Reservation, bound: int) -> tuple[int, int]:
    """What a call takes of a ceiling before its answer, in the ceiling's unit, and what each token of the answer takes, in thousandths."""
    match unit:
        case Unit.STEPS:
            return wanted.steps, 0
        case Unit.INPUT:
            return bound, 0
        case Unit.OUTPUT:
            return 0, _PICO
        case Unit.TOKENS:
            return bound, _PICO
        case Unit.COST:
            return priced(bound, wanted.input_price), wanted.output_price


def _fitting(wanted: Reservation, available: int) -> int | None:
    """The output tokens to grant of those available; None when they are too few for a useful answer."""
    if available >= wanted.output:
        return wanted.output
    if available >= wanted.modest:
        return wanted.modest
    return available if available >= wanted.floor else None


def _least(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
