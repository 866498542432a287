"""Tenants: who asks, under which rules, by which ways, out of which budgets. Pure; made once from a configuration.

With teams, a request shows a key of one of them and is that team's; keys of one team are one tenant. Without, everybody is the same
tenant here, and sessions are told apart by the key that a caller shows.

Four layers of rules: everybody's, a model's, a team's, a team's for a model. Each says only what differs from those below.
"""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum

import msgspec

from proxy.bounded import Bounded
from proxy.config import UNITS, Config, TeamConfig
from proxy.errors import BadRequest
from proxy.globs import entry_for, fits
from proxy.keys import OWN_HEADER, KeyRing, caller_of
from proxy.policy import Policy, layered, policy_of
from proxy.prices import Price, Prices, nano
from proxy.windows import Per, window

OTHER_MODEL = "_other"
_FOR_EVER = float("inf")
_MAX_REMEMBERED = 1024
_LONGEST_MODEL = 256  # characters; a client names it


class OtherEndpoints(StrEnum):
    """What a team may do on paths that are not judged: anything, anything at its price, or nothing."""

    ALLOW = "allow"
    CHARGE = "charge"
    REFUSE = "refuse"


class Cap(msgspec.Struct, frozen=True, gc=False):
    """The most that a team may spend of `steps`, `input`, `output`, `tokens` or `cost` (nano-dollars) in a window of the calendar.

    window: its name, which no other stretch shares; until: when it ends, epoch seconds.
    """

    unit: str
    limit: int
    window: str
    until: float


class Quota(msgspec.Struct, frozen=True, gc=False):
    """What a team may spend at a moment, caps in the order of their units. requests, sessions: the most at once. until: how long.

    day: the date of that moment in the stated time zone, "" without a team.
    """

    caps: tuple[Cap, ...] = ()
    requests: int | None = None
    sessions: int | None = None
    until: float = _FOR_EVER
    day: str = ""


class Tenant:
    """One team, or everybody where there are none. name: the team's, "" without teams.

    models: names and globs of what it may use; is_restricted: these are not all. upstreams: names, the first that fits; None: all.
    """

    def __init__(self, name: str, team: TeamConfig | None, config: Config, *, zone: tzinfo, prices: Prices) -> None:
        self.name = name
        self.models: Sequence[str] = ("*",) if team is None else team.models
        self.is_restricted = "*" not in self.models
        self.upstreams = None if team is None else team.upstreams
        self.other_endpoints = OtherEndpoints.ALLOW if team is None else OtherEndpoints(team.other_endpoints)
        self._everybody = config.policy
        self._team = team
        self._labels = config.models
        self._zone = zone
        self._prices = prices
        self._by_layers: dict[tuple[str | None, str | None], Policy] = {}
        self._by_model: Bounded[str, Policy] = Bounded(_MAX_REMEMBERED)
        self._allowed = (0.0, Quota(until=0.0))

    def policy(self, model: str) -> Policy:
        """The rules for its requests to a model. One value for each combination of layers, however many models there are."""
        found = self._by_model.get(model)
        if found is None:
            found = self._resolved(model[:_LONGEST_MODEL])
            if len(model) <= _LONGEST_MODEL:
                self._by_model.keep(model, found)
        return found

    def _resolved(self, model: str) -> Policy:
        theirs = {} if self._team is None else self._team.policy.models
        entries = entry_for(model, self._everybody.models), entry_for(model, theirs)
        found = self._by_layers.get(entries)
        if found is None:
            found = policy_of(self._everybody)
            if entries[0] is not None:
                found = layered(found, self._everybody.models[entries[0]])
            if self._team is not None:
                found = layered(found, self._team.policy)
            if entries[1] is not None:
                found = layered(found, theirs[entries[1]])
            self._by_layers[entries] = found
        return found

    def check_model(self, model: str) -> None:
        """Raises `BadRequest` (403) for a model that the team may not use."""
        if not self.may_use(model):
            raise BadRequest(
                f"team {self.name!r} may not use the model {model[:100]!r}; it may use {', '.join(self.models)} "
                f"(teams.{self.name}.models in Lastcall's configuration)",
                status=403,
                code="lastcall_model_not_allowed",
            )

    def may_use(self, model: str) -> bool:
        return not self.is_restricted or fits(model, self.models)

    def check_endpoint(self, path: str) -> None:
        """Raises `BadRequest` (403) for a path that is not judged, where the team is kept to those that are."""
        if self.other_endpoints is OtherEndpoints.REFUSE:
            raise BadRequest(
                f"team {self.name!r} may not use {path[:100]!r}: it is kept to the endpoints that Lastcall judges "
                f"(teams.{self.name}.other_endpoints: refuse in Lastcall's configuration)",
                status=403,
                code="lastcall_endpoint_not_allowed",
            )

    def quota(self, now: float) -> Quota:
        """What the team may spend at `now` (epoch seconds): its budgets in the windows of that moment."""
        since, kept = self._allowed
        if not since <= now < kept.until:
            kept = self._quota_at(now)
            self._allowed = now, kept
        return kept

    def _quota_at(self, now: float) -> Quota:
        team = self._team
        if team is None:
            return Quota()
        caps = []
        for unit in UNITS:
            for budget in team.budgets:
                limit = getattr(budget, unit)
                if limit is not None:
                    current = window(Per(budget.per), now, self._zone)
                    in_money = unit == "cost_usd"
                    caps.append(Cap("cost" if in_money else unit, nano(limit) if in_money else limit, current.name, current.resets_at))
        today = window(Per.DAY, now, self._zone)
        until = min([today.resets_at, *(cap.until for cap in caps)])
        return Quota(tuple(caps), team.concurrent_requests, team.concurrent_sessions, until, today.name[4:14])

    def label(self, model: str) -> str:
        """The name under which a model is counted for the team: an entry of `models`, else `_other`; "" without a team."""
        return "" if self._team is None else entry_for(model[:_LONGEST_MODEL], self._labels) or OTHER_MODEL

    def price(self, model: str, upstream: str, quality: str = "", size: str = "") -> Price | None:
        """What a model costs behind an upstream, None when nobody says. quality, size: of the pictures that it is to make."""
        return self._prices.sized(model, upstream, quality, size) if size else self._prices.of(model, upstream)


class Tenants:
    """All of a configuration's. zone: the one its `timezone` names."""

    def __init__(self, config: Config, *, zone: tzinfo, prices: Prices) -> None:
        self._ring = KeyRing({name: team.keys for name, team in config.teams.items()})
        self._teams = {name: Tenant(name, team, config, zone=zone, prices=prices) for name, team in config.teams.items()}
        self._everybody = None if config.teams else Tenant("", None, config, zone=zone, prices=prices)
        self.names = tuple(self._teams)

    def of(self, headers: Mapping[str, str]) -> Tenant:
        """Whose request it is by its headers (names in lower case). Raises `BadRequest` (401) for a key that no team has."""
        if self._everybody is not None:
            return self._everybody
        key = caller_of(headers)
        team = self._ring.team_of(key) if key else None
        if team is None:
            shown = f"the key in {_place_of_key(headers)!r} is no team's" if key else "it shows no key"
            raise BadRequest(
                f"Lastcall serves its teams only, and of this request {shown}; send a team's key in {OWN_HEADER!r}, "
                "in 'authorization' as a bearer token, or in 'x-api-key'",
                status=401,
                code="lastcall_unknown_key",
            )
        return self._teams[team]

    def named(self, team: str) -> Tenant:
        """The team of that name, one of `names`."""
        return self._teams[team]

    def check_passthrough(self, headers: Mapping[str, str], upstream: str) -> None:
        """For an upstream that gets the client's own credentials. Raises `BadRequest` (401) where these would be a team's key."""
        if self._everybody is None and (not headers.get(OWN_HEADER) or self._ring.goes_upstream(headers)):
            raise BadRequest(
                f"upstream {upstream!r} is given the client's own credentials (api_key: passthrough), and a team's key never goes "
                f"there: send it in {OWN_HEADER!r}, and the provider's key where the provider expects it",
                status=401,
                code="lastcall_key_not_for_upstream",
            )


def _place_of_key(headers: Mapping[str, str]) -> str:
    return next(name for name in (OWN_HEADER, "authorization", "x-api-key", "api-key") if headers.get(name))
