"""The price list that litellm ships, found on this system without importing litellm. The one door to it.

litellm is an optional extra (`pip install 'lastcall[prices]'`): it brings 44 MB and dozens of packages of which only one JSON file is
wanted, and importing it takes seconds.
"""

from importlib.util import find_spec
from pathlib import Path

from proxy.errors import ConfigError
from proxy.prices import Price, read_list

_FILE = "model_prices_and_context_window_backup.json"


def shipped() -> dict[str, Price]:
    """The list's prices by its names, none where litellm is not installed. Raises `ConfigError` when its list cannot be read."""
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
