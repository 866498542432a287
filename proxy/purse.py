"""What a call is paid from: the price of its model, every ledger that is charged, and what is reserved in them for it."""

from collections.abc import Sequence

import msgspec

from proxy.budgets import Estimate, estimate
from proxy.errors import BadRequest
from proxy.identity import AS_IT_IS, Identity, Tighten
from proxy.models import Request, Usage
from proxy.policy import Budgets, Policy, Unpriced
from proxy.prices import Price, bounds, cost, search_cost
from proxy.store import Account, Ceiling, Reservation, Settlement, Unit
from proxy.tenants import Quota

_UNLIMITED = Budgets()

LEASE_SECONDS = 60.0  # what a dead process held is free again after as long; a living one renews it meanwhile


class Purse(msgspec.Struct, frozen=True, gc=False):
    """price: of the model, None when nobody states one. accounts: ledgers besides the session's own that pay, in order.

    steps: what a completed call counts, 0 for one that is no step of its agent's. model, day: the row of the team's usage it adds to.
    """

    price: Price | None = None
    accounts: tuple[Account, ...] = ()
    steps: int = 1
    model: str = ""
    day: str = ""

    def reservation(
        self, lease: str, tag: int, request: Request, budgets: Budgets, identity: Identity, *, past: int = 0, patient: bool = False
    ) -> Reservation:
        """The worst case of one call, for every ledger. lease, tag, patient: as in `store.Reservation`. past: tokens read beside the
        request."""
        tighten = identity.tighten
        limit = budgets.tokens
        if tighten.tokens is not None:
            limit = tighten.tokens if limit is None else min(limit, tighten.tokens)
        bound = estimate(request, limit)
        if past:
            bound = msgspec.structs.replace(bound, attached=bound.attached + past)
        beside = search_cost(self.price, request.searches) if request.searches and self.price is not None else 0
        return self.holding(lease, tag, bound, request.text_bytes, budgets, tighten, tier=request.tier, patient=patient, beside=beside)

    def holding(
        self,
        lease: str,
        tag: int,
        bound: Estimate,
        body_bytes: int,
        budgets: Budgets = _UNLIMITED,
        tighten: Tighten = AS_IT_IS,
        *,
        tier: str = "",
        beside: int = 0,
        patient: bool = False,
    ) -> Reservation:
        """The same for bounds that are known. body_bytes: as in `store.Reservation`. tier: the service tier that is asked for.

        beside: nano-dollars for what is paid beside tokens.
        """
        read = bound.input_bound + bound.attached
        most = (0, 0) if self.price is None else bounds(self.price, read, tier)
        return Reservation(  # by place: so many names would cost more than all the rest here
            lease,
            tag,
            body_bytes,
            bound.input_bound,
            bound.output,
            bound.modest,
            bound.floor,
            LEASE_SECONDS,
            ceilings_of(budgets.steps, budgets.input, budgets.output, budgets.tokens, budgets.cost),
            budgets.deadline,
            _NONE if tighten is AS_IT_IS else ceilings_of(tighten.steps, None, None, tighten.tokens, tighten.cost),
            tighten.deadline,
            bound.attached,
            self.steps,
            most[0],
            most[1],
            self.accounts,
            patient,
            False,
            beside,
        )

    def settlement(self, lease: str, usage: Usage, *, completed: bool, body_bytes: int, beside: int = 0) -> Settlement:
        """What a call came to. body_bytes: 0 where its usage says nothing about its size. beside: as in `holding`, what it really was."""
        paid = beside if self.price is None else beside + cost(self.price, usage)
        steps = self.steps if completed else 0
        return Settlement(
            lease,
            steps,
            usage.input_tokens,
            usage.output_tokens,
            body_bytes,
            paid,
            accounts=self.accounts,
            model=self.model,
            day=self.day,
        )

    def nothing(self, lease: str) -> Settlement:
        """The end of a call that was never made."""
        return Settlement(lease, 0, 0, 0, 0, accounts=self.accounts)


def check_priced(price: Price | None, policy: Policy, tighten: Tighten, model: str) -> None:
    """Raises `BadRequest` for a model that nobody prices, where the rules or the request count in money."""
    if price is None and (policy.unpriced is Unpriced.REFUSE or tighten.cost is not None):
        raise BadRequest(
            f"nobody states a price for the model {model[:100]!r}, which 'unpriced: refuse' or 'x-lastcall-max-cost-usd' asks for; "
            "add it to prices in Lastcall's configuration",
            code="lastcall_unpriced",
        )


_NONE: tuple[Ceiling, ...] = ()


def ceilings_of(steps: int | None, read: int | None, written: int | None, tokens: int | None, paid: int | None) -> tuple[Ceiling, ...]:
    """The ceilings of a session for its whole life, in the order of their units."""
    if steps is None and tokens is None and read is None and written is None and paid is None:
        return _NONE
    limits = ((Unit.STEPS, steps), (Unit.INPUT, read), (Unit.OUTPUT, written), (Unit.TOKENS, tokens), (Unit.COST, paid))
    return tuple([Ceiling(unit, limit) for unit, limit in limits if limit is not None])


def accounts_of(ancestors: Sequence[bytes], team: bytes, quota: Quota) -> tuple[Account, ...]:
    """The ledgers besides the session's own: the sessions above it, the nearest first, then the team's. team: its ledger's key, or b"".

    A team's session counts once with all that are below it.
    """
    if not (ancestors or team):
        return ()
    above = tuple([Account(ancestor) for ancestor in ancestors])
    if not team:
        return above
    caps = tuple([Ceiling(Unit(cap.unit), cap.limit, cap.window, cap.until) for cap in quota.caps])
    eldest = ancestors[-1] if ancestors else b""
    return (*above, Account(team, caps, calls=quota.requests, sessions=quota.sessions, member=eldest, team=True))
