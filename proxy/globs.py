"""Names and globs (`gpt-*`) of the configuration, and which of them a name falls under. One rule for all: its own entry, else the
first glob, in the order written, that fits.
"""

from collections.abc import Collection
from fnmatch import fnmatchcase


def entry_for(name: str, entries: Collection[str]) -> str | None:
    """The entry that stands for a name, None when there is none. Upper and lower case differ; `*` also spans slashes."""
    if name in entries:
        return name
    return next((entry for entry in entries if fnmatchcase(name, entry)), None)


def fits(name: str, entries: Collection[str]) -> bool:
    """Whether any entry stands for a name."""
    return entry_for(name, entries) is not None
