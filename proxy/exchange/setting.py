"""What all exchanges of a process share."""

from collections.abc import Callable, Sequence

import msgspec

from proxy.bill import Bills
from proxy.calls import Quirks
from proxy.growing import Readings
from proxy.keys import KeyRing
from proxy.origins import Origins
from proxy.sessions import Sessions
from proxy.telemetry import Telemetry
from proxy.tenants import Tenant, Tenants
from proxy.upstream.http import Upstream


class Way(msgspec.Struct, frozen=True):
    """One configured upstream as exchanges see it. passthrough: it gets the client's own credentials."""

    name: str
    upstream: Upstream
    serves: Callable[[str, str], bool]
    passthrough: bool = False


class Setting(msgspec.Struct):
    """What all exchanges of a process share.

    clock: seconds, for durations only; wall: epoch seconds; new_id: unique ids; operators: their keys, None where nobody may be one;
    origins: web pages that may call; users: how many requests go by it now.
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

    def ways_of(self, tenant: Tenant) -> Sequence[Way]:
        """The ways that a tenant may take, in its order."""
        if tenant.upstreams is None:
            return self.ways
        named = {way.name: way for way in self.ways}
        return [named[name] for name in tenant.upstreams]
