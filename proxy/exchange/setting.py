"""What all exchanges of a process share."""

from collections.abc import Callable, Sequence

import msgspec

from proxy.bill import Bills
from proxy.bounded import Bounded
from proxy.calls import Quirks
from proxy.errors import BadRequest
from proxy.growing import Readings
from proxy.keys import KeyRing
from proxy.origins import Origins
from proxy.policy import Policy
from proxy.prices import Price
from proxy.sessions import Sessions
from proxy.telemetry import Telemetry
from proxy.tenants import Tenant, Tenants
from proxy.upstream.http import Upstream

_MAX_REMEMBERED = 1024
_LONGEST_MODEL = 256  # characters; a client names it


class Way(msgspec.Struct, frozen=True):
    """One configured upstream as exchanges see it. passthrough: it gets the client's own credentials."""

    name: str
    upstream: Upstream
    serves: Callable[[str, str], bool]
    passthrough: bool = False


class Terms(msgspec.Struct, frozen=True):
    """What a tenant's requests to a model go by. label: the name under which it is counted for the team."""

    way: Way
    policy: Policy
    price: Price | None
    label: str


def _no_terms() -> Bounded[tuple[str, str, str], Terms]:
    return Bounded(_MAX_REMEMBERED)


class Setting(msgspec.Struct):
    """What all exchanges of a process share.

    clock: seconds, for durations only; wall: epoch seconds; new_id: unique ids; operators: their keys, None where nobody may be one;
    origins: web pages that may call; users: how many requests go by it now; terms: those found, by tenant, dialect and model.
    """

    tenants: Tenants
    sessions: Sessions
    bills: Bills
    ways: Sequence[Way]
    telemetry: Telemetry
    session_headers: tuple[str, ...]
    max_body: int
    clock: Callable[[], float]
    wall: Callable[[], float]
    new_id: Callable[[], str]
    quirks: Quirks = msgspec.field(default_factory=Quirks)
    readings: Readings = msgspec.field(default_factory=Readings)
    operators: KeyRing | None = None
    origins: Origins = Origins(None)
    users: int = 0
    terms: Bounded[tuple[str, str, str], Terms] = msgspec.field(default_factory=_no_terms)

    def __post_init__(self) -> None:
        self.terms = _no_terms()  # also of a setting that is made from another: they are its tenants' and its ways'

    def terms_of(self, tenant: Tenant, dialect: str, model: str) -> Terms:
        """Raises `BadRequest` for a model that the tenant may not use, and for one that no upstream serves."""
        key = tenant.name, dialect, model
        found = self.terms.get(key)
        if found is None:
            tenant.check_model(model)
            way = self._way(tenant, dialect, model)
            found = Terms(way, tenant.policy(model), tenant.price(model, way.name), tenant.label(model))
            if len(model) <= _LONGEST_MODEL:
                self.terms.keep(key, found)
        return found

    def _way(self, tenant: Tenant, dialect: str, model: str) -> Way:
        for way in self.ways_of(tenant):
            if way.serves(dialect, model):
                return way
        raise BadRequest(
            f"no upstream serves the model {model[:100]!r} in the {dialect!r} dialect; add it to upstreams in the configuration",
            status=404,
            code="lastcall_no_upstream",
        )

    def ways_of(self, tenant: Tenant) -> Sequence[Way]:
        """The ways that a tenant may take, in its order."""
        if tenant.upstreams is None:
            return self.ways
        named = {way.name: way for way in self.ways}
        return [named[name] for name in tenant.upstreams]
