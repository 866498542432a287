"""Agents as people write them with each client library: its own loop, its own way to run tools, nothing of Lastcall but the URL.

A module a library, each with `AGENTS` (mode -> agent), `ERROR` (what the library raises for HTTP 400) and `close` (ends what the library
keeps open for the process). The libraries take seconds to import: import these modules only where an agent is run. What all agents
share stands here: the tools, and what they are asked.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL = "mock"
KEY = "any"
PROMPT = "Make the tests pass."
TURN_CAP = 12  # far beyond what a stopped agent needs: an agent that gets here was not stopped


class NotStopped(AssertionError):
    """The agent reached its cap."""


@dataclass(frozen=True)
class Endpoint:
    """Where an agent finds its model. headers: what it adds to each request."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Workshop:
    """A repository of two files in memory. Its public methods are the agent's tools; `executed` names those that ran, in order."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self._files = {"a.txt": "alpha is broken\n", "b.txt": "beta is fine\n"}

    def read_file(self, path: str) -> str:
        """Returns the text of a file."""
        self.executed.append("read_file")
        return self._files.get(path, f"{path}: no such file")

    def edit_file(self, path: str, text: str) -> str:
        """Replaces the text of a file."""
        self.executed.append("edit_file")
        self._files[path] = text
        return f"{path}: written"

    def run_tests(self) -> str:
        """Runs the tests and returns their report."""
        self.executed.append("run_tests")
        text = self._files["a.txt"].strip()
        return "2 passed" if text == "alpha is fine" else f"1 failed, 1 passed: a.txt says {text!r}"

    @property
    def tools(self) -> dict[str, Callable[..., str]]:
        return {tool.__name__: tool for tool in (self.read_file, self.edit_file, self.run_tests)}


Agent = Callable[[Endpoint, Workshop], str | Coroutine[Any, Any, str]]
"""Works until its loop ends by itself and returns the final text. Raises what the library raises, and at the cap.

Asynchronous agents of one process belong on one event loop: some libraries keep connections for the process.
"""


def function(name: str, description: str, *required: str) -> dict[str, Any]:
    """A tool as the chat completions API lists it; its arguments are texts."""
    parameters = {"type": "object", "properties": {field: {"type": "string"} for field in required}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: list[Any] = [
    function("read_file", "Returns the text of a file.", "path"),
    function("edit_file", "Replaces the text of a file.", "path", "text"),
    function("run_tests", "Runs the tests and returns their report."),
]
