"""What a format is: how its objects are told, and how they become recordings."""

from collections.abc import Sequence
from typing import Any

from proxy.replay.recording import Recording, Unreadable


class Format:
    """Reads decoded JSON, as *wholes*, objects that hold a recording each, or as *parts*, entries that make one up together, or as either.

    Reading raises `Unreadable` for what is not as expected, and nothing else. expects: what the format looks like, for messages. grows:
    wholes are requests that each hold their whole history so far.
    """

    name: str
    expects: str
    grows = False

    def known_by(self, value: dict[str, Any]) -> bool:
        """Whether an object shows that the file it stands in is of this format and of none further down the table."""
        return self.whole(value) or self.part(value)

    def whole(self, value: dict[str, Any]) -> bool:
        """Whether an object of such a file is a recording."""
        return False

    def part(self, value: dict[str, Any]) -> bool:
        """Whether it is an entry of one."""
        return False

    def read_whole(self, value: dict[str, Any], id: str) -> Recording:
        """id: what to call it where it has no name of its own."""
        raise Unreadable(f"not {self.expects}")

    def read_parts(self, values: Sequence[dict[str, Any]], id: str) -> list[Recording]:
        """One recording, or several where sub-agents are logged among the main agent's entries."""
        raise Unreadable(f"not {self.expects}")
