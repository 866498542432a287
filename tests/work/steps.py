"""What patterns are made of: calls of one message, with their results."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.generated import Message, Step

NONE: dict[str, str] = {}  # no arguments
NAMES = ("core", "ui", "api", "web", "cli", "docs", "auth", "mail", "jobs", "cron", "edge")

Said = Sequence[Message | str]
"""Messages of calls; a text is an answer without calls, after which a person says something new."""

Pattern = Callable[[Random], Said]


def one(name: str, given: Any, result: str) -> list[Step]:
    """A message with one call."""
    return [(name, given, result)]


def shell(command: str, result: str, name: str = "Bash") -> list[Step]:
    return one(name, {"command": command}, result)


def edit(number: int) -> list[Step]:
    given = {"file_path": "/repo/src/app.py", "old_string": f"value = {number}", "new_string": f"value = {number + 1}"}
    return one("Edit", given, "The file /repo/src/app.py has been updated.")


def patch(number: int) -> list[Step]:
    text = f"*** Begin Patch\n*** Update File: src/app.rs\n@@\n-let a = {number};\n+let a = {number + 1};\n*** End Patch"
    return one(
        "apply_patch", {"input": text}, '{"output":"Success. Updated the following files:\\nM src/app.rs\\n","metadata":{"exit_code":0}}'
    )


def seconds(random: Random) -> str:
    return f"{random.random() * 9:.2f}s"


def again(step: Callable[[Random, int], Message]) -> Pattern:
    """One step over and over."""
    return lambda random: [step(random, n) for n in range(45)]


def rounds(*steps: Callable[[Random, int], Message]) -> Pattern:
    """Several steps in turn."""
    return lambda random: [step(random, n) for n in range(15) for step in steps]


def random_id(random: Random) -> str:
    return f"{random.randrange(16**12):012x}"


def clock(n: int) -> str:
    return f"2026-05-{n % 27 + 1:02d}T10:{n % 60:02d}:{n * 7 % 60:02d}Z"
