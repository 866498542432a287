"""What all exchanges of a process share."""

from collections.abc import Callable, Sequence

import msgspec

from proxy.calls import Quirks
from proxy.policy import Policy
from proxy.sessions import Sessions
from proxy.telemetry import Telemetry
from proxy.upstream.http import Upstream


class Way(msgspec.Struct, frozen=True):
    """One configured upstream as exchanges see it."""

    name: str
    upstream: Upstream
    serves: Callable[[str, str], bool]


class Setting(msgspec.Struct):
    """What all exchanges of a process share. clock: seconds, for durations only; wall: epoch seconds; new_id: unique ids."""

    policy: Policy
    sessions: Sessions
    ways: Sequence[Way]
    telemetry: Telemetry
    session_headers: tuple[str, ...]
    max_body: int
    clock: Callable[[], float]
    wall: Callable[[], float]
    new_id: Callable[[], str]
    quirks: Quirks = msgspec.field(default_factory=Quirks)
