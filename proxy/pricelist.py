"""The price list that litellm ships, found on this system without importing litellm. The one door to it.

litellm is an optional extra (`pip install 'lastcall[prices]'`): it brings 44 MB and dozens of packages of which only one JSON file is
wanted, and importing it takes seconds.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from proxy.config import Config, PolicyRules
from proxy.errors import ConfigError
from proxy.prices import Price, Prices, read_list, stated

_FILE = "model_prices_and_context_window_backup.json"


def prices_of(config: Config) -> Prices:
    """The prices that a configuration is to be kept with: its own, and the list's where it counts money at all.

    Raises `ConfigError` where it does and there are none, or the list cannot be read.
    """
    asking = _first_in_money(config)
    prices = Prices(stated(config.prices), shipped() if asking else {})
    if asking and not prices:
        raise ConfigError(
            f"{asking}: cannot be kept without prices, and there are none; install litellm's list with "
            "`pip install 'lastcall[prices]'`, or state your own under prices"
        )
    return prices


def _first_in_money(config: Config) -> str | None:
    """The first key that takes prices to be kept."""
    rules: dict[str, PolicyRules] = {"policy": config.policy} | {
        f"policy.models.{glob}": layer for glob, layer in config.policy.models.items()
    }
    for name, team in config.teams.items():
        for position, budget in enumerate(team.budgets):
            if budget.cost_usd is not None:
                return f"teams.{name}.budgets[{position}].cost_usd"
        rules[f"teams.{name}.policy"] = team.policy
        rules |= {f"teams.{name}.policy.models.{glob}": layer for glob, layer in team.policy.models.items()}
    for place, layer in rules.items():
        if layer.budgets.cost_usd is not None:
            return f"{place}.budgets.cost_usd"
        if layer.unpriced == "refuse":
            return f"{place}.unpriced"
    return None


@cache
def shipped() -> dict[str, Price]:
    """The list's prices by its names, none where litellm is not installed; read once. Raises `ConfigError` when it cannot be read."""
    place = _place()
    if place is None:
        return {}
    try:
        return read_list(place.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"prices: the list of the installed litellm ({_FILE}) cannot be read: {why}; install it anew") from None


def _place() -> Path | None:
    found = find_spec("litellm")  # looks for the package, and runs nothing of it
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        if (Path(folder) / _FILE).is_file():
            return Path(folder) / _FILE
    return None
