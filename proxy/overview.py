"""What a configuration amounts to, in words: what is in force, and what its author may not have meant. No secret is shown."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from proxy.amounts import counted
from proxy.config import UNITS, Config, PolicyRules, TeamConfig, UpstreamConfig, is_loopback, masked
from proxy.models import Reason
from proxy.policy import Budgets, Ladder, Policy, layered, policy_of
from proxy.prices import NANO_PER_DOLLAR


def in_force(config: Config) -> dict[str, str]:
    """What a reader wants to see, by heading."""
    policy, server, store = policy_of(config.policy), config.server, config.store
    return {
        "listens on": f"{server.host}:{server.port}, {counted(server.workers, 'worker')}",
        **{f"upstream {name}": _endpoint(upstream) for name, upstream in config.upstreams.items()},
        "store": f"{masked(store.url)}, failure mode {store.failure_mode}",
        "policy": f"{config.policy.preset}, {policy.mode}; counting {policy.counting}, scope {policy.scope}, arguments {policy.canonical}",
        **{f"detector {reason}": _rungs(ladder) for reason, ladder in policy.ladders.items()},
        **{f"tool {name}": _tool(policy, name) for name in policy.tools},
        "on stop": str(policy.on_stop),
        "budgets": _limits(policy.budgets),
        **{f"model {glob}": _differs(policy, layered(policy, layer)) for glob, layer in config.policy.models.items()},
        **{f"team {name}": _team(team, policy) for name, team in config.teams.items()},
    }


def _endpoint(upstream: UpstreamConfig) -> str:
    key = "the client's key" if upstream.api_key == "passthrough" else "a key from the environment"
    return f"{upstream.base_url}, {key}, {' '.join(upstream.dialects)}, models {' '.join(upstream.models)}"


def _tool(policy: Policy, name: str) -> str:
    rule = policy.tools[name]
    ladder = policy.ladder(Reason.REPEATED_CALL, name)
    climbs = "exempt" if rule.exempt else _rungs(ladder) if ladder else "repeated_call is off"
    return f"{rule.effect}, {climbs}" if rule.effect else climbs


def _rungs(ladder: Ladder) -> str:
    return f"nudge at {ladder.nudge_at or 'no repeat'}, stop at {ladder.stop_at or 'no repeat'}"


def _limits(budgets: Budgets) -> str:
    """All of a session's, the sides of its tokens where they are limited apart."""
    steps, tokens = (f"{limit:,}" if limit is not None else "unlimited" for limit in (budgets.steps, budgets.tokens))
    sides = "".join(f", {side} {limit:,}" for side, limit in (("input", budgets.input), ("output", budgets.output)) if limit is not None)
    cost = f"${budgets.cost / NANO_PER_DOLLAR:,.12g}" if budgets.cost is not None else "unlimited"
    deadline = f"{budgets.deadline:g} s" if budgets.deadline is not None else "none"
    return f"steps {steps}, tokens {tokens}{sides}, cost {cost}, deadline {deadline}"


def _team(team: TeamConfig, everybody: Policy) -> str:
    keys = counted(len(team.keys), "key")
    upstreams = "all" if team.upstreams is None else " ".join(team.upstreams)
    uses = f"models {' '.join(team.models)}, upstreams {upstreams}, other endpoints {team.other_endpoints}"
    policy = layered(everybody, team.policy)
    models = [f"model {glob}: {_differs(policy, layered(policy, layer))}" for glob, layer in team.policy.models.items()]
    return "; ".join([", ".join([f"{keys}, {uses}", *_together(team)]), _differs(everybody, policy), *models])


def _together(team: TeamConfig) -> Iterator[str]:
    """What limits all sessions of a team together."""
    for budget in team.budgets:
        for unit in UNITS:
            limit = getattr(budget, unit)
            if limit is not None:
                yield f"{f'${limit:,.12g}' if unit == 'cost_usd' else f'{limit:,} {unit}'} a {budget.per}"
    for limit, things in ((team.concurrent_requests, "requests"), (team.concurrent_sessions, "sessions")):
        if limit is not None:
            yield f"{limit:,} {things} at once"


def _differs(below: Policy, policy: Policy) -> str:
    """What a layer changes, in the words of the rows above."""
    shown = {
        "mode": (below.mode, policy.mode),
        "counting": (below.counting, policy.counting),
        "scope": (below.scope, policy.scope),
        "arguments": (below.canonical, policy.canonical),
        "on stop": (below.on_stop, policy.on_stop),
        "budgets": (_limits(below.budgets), _limits(policy.budgets)),
    }
    changed = [f"{name} {after}" for name, (before, after) in shown.items() if before != after]
    for reason in dict.fromkeys([*below.ladders, *policy.ladders]):
        if below.ladders.get(reason) != policy.ladders.get(reason):
            ladder = policy.ladders.get(reason)
            changed.append(f"{reason} {_rungs(ladder) if ladder else 'off'}")
    changed += [f"tool {name} {_tool(policy, name)}" for name in policy.tools if below.tools.get(name) != policy.tools[name]]
    return ", ".join(changed) or "the same rules"


def warnings(config: Config) -> list[str]:
    """What is valid and yet may surprise, each with its way out."""
    return [*_of_access(config), *_of_upstreams(config), *_of_the_store(config), *_of_ladders(config)]


def _of_access(config: Config) -> Iterator[str]:
    passing = [name for name, upstream in config.upstreams.items() if upstream.api_key == "passthrough"]
    keyed = [name for name, upstream in config.upstreams.items() if upstream.api_key != "passthrough"]
    if config.teams and passing:
        yield (
            f"upstreams.{passing[0]}: on passthrough, so that teams must send their key in x-lastcall-key and the provider's beside it; "
            "give the upstream a key to spare them that"
        )
    if keyed and not config.teams and config.server.open and not is_loopback(config.server.host):
        yield f"server.open: whoever reaches {config.server.host} spends the key of upstream {keyed[0]}; add teams to ask for keys"
    for upstream in keyed:
        sharing = {name: team for name, team in config.teams.items() if team.upstreams is None or upstream in team.upstreams}
        if len(sharing) > 1 and any(team.other_endpoints != "refuse" for team in sharing.values()):
            one, other = list(sharing)[:2]
            yield (
                f"upstreams.{upstream}: teams share its key, so {one} and {other} may list and read what the provider keeps for "
                "the other (files, batches, stored responses); give them upstreams with keys of their own, or other_endpoints: refuse"
            )

    if config.server.admin_port is not None and config.server.admin_key is None:
        yield f"server.admin_port: {config.server.admin_port} serves nothing without server.admin_key; `lastcall keygen` makes one"


def _of_upstreams(config: Config) -> Iterator[str]:
    earlier: list[tuple[str, UpstreamConfig]] = []
    for name, upstream in config.upstreams.items():
        for first, other in earlier:
            if set(upstream.dialects) <= set(other.dialects) and ("*" in other.models or set(upstream.models) <= set(other.models)):
                if not any(team.upstreams and name in team.upstreams for team in config.teams.values()):
                    yield f"upstreams.{name}: never reached, since {first} before it serves all that it does; put {name} first"
                break
        earlier.append((name, upstream))
        if not urlsplit(upstream.base_url).path.strip("/"):
            bare = upstream.base_url.rstrip("/")
            yield f"upstreams.{name}.base_url: {bare} has no version, so that calls go to {bare}/chat/completions; most want {bare}/v1"
        if not upstream.verify:
            yield f"upstreams.{name}.verify: false lets anybody on the way read keys and answers; name its authority in ca_file instead"


def _of_the_store(config: Config) -> Iterator[str]:
    limits = [policy_of(config.policy).budgets, *(layered(Policy(), team.policy).budgets for team in config.teams.values())]
    limited = any(one != Budgets() for one in limits) or any(team.budgets for team in config.teams.values())
    if config.store.failure_mode == "open" and not config.store.url.startswith("memory:") and limited:
        yield "store.failure_mode: open lets requests pass unlimited while the store is away; use closed where budgets must hold"


def _of_ladders(config: Config) -> Iterator[str]:
    """Rungs that fit within each layer and not with the layer below: allowed, since a stop without a nudge may be meant."""
    everybody = policy_of(config.policy)
    layers: list[tuple[str, Policy, PolicyRules]] = []
    layers += [(f"policy.models.{glob}", everybody, layer) for glob, layer in config.policy.models.items()]
    for name, team in config.teams.items():
        layers.append((f"teams.{name}.policy", everybody, team.policy))
        theirs = layered(everybody, team.policy)
        layers += [(f"teams.{name}.policy.models.{glob}", theirs, layer) for glob, layer in team.policy.models.items()]
    for place, below, layer in layers:
        policy = layered(below, layer)
        ladders: dict[str, Ladder | None] = {f"detectors.{reason}": ladder for reason, ladder in policy.ladders.items()}
        ladders |= {f"tools.{name}": policy.ladder(Reason.REPEATED_CALL, name) for name in layer.tools}
        for key, ladder in ladders.items():
            if ladder and ladder.nudge_at and ladder.stop_at and ladder.nudge_at > ladder.stop_at:
                rungs = f"stops at {ladder.stop_at} before it would nudge at {ladder.nudge_at}"
                yield f"{place}.{key}: {rungs}; say nudge_at: null if that is meant"
