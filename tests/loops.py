"""Agents in a loop under one detector alone, told by the decision on each of their requests.

A call here is its tool, its arguments and what came back; the engine reads all three as it would off the wire.
"""

from collections.abc import Sequence
from typing import Any

from proxy.models import Reason
from proxy.policy import DEFAULT_LADDERS, Ladder, Policy
from tests.driver import Agent, House, Reply
from tests.transcripts import Call, Turn, called, user

OFFERED = ("bash", "read_file", "edit", "write_file", "search", "todo_write", "send_message", "job_status")


def only(reason: Reason, ladder: Ladder | None = None, **rules: Any) -> Policy:
    """A policy under which one detector is on. rules: further fields of the policy."""
    return Policy(ladders={reason: ladder or DEFAULT_LADDERS[reason]}, **rules)


def with_waiting(reason: Reason) -> Policy:
    """A policy under which that detector is on, and the ladder for waiting."""
    return Policy(ladders={each: DEFAULT_LADDERS[each] for each in (reason, Reason.POLL)})


def agent(policy: Policy, *opening: Turn, tools: Sequence[str] = OFFERED) -> Agent:
    return Agent(House(policy), *(opening or (user("go"),)), tools=tools)


def rungs(policy: Policy, replies: Sequence[Reply], *, tools: Sequence[str] = OFFERED) -> tuple[int | None, int | None]:
    """After how many replies the agent was nudged, and at which it was stopped.

    A reply that is withheld counts; one that a request is stopped for, its result known, does too.
    """
    decisions = agent(policy, tools=tools).play([*replies, "done"])
    nudge = decisions.index("nudge") if "nudge" in decisions else None
    return nudge, len(decisions) if decisions[-1] == "stop" else None


def bash(command: str, result: str = "", **arguments: Any) -> Call:
    return called("bash", {"command": command, **arguments}, result)


def read(path: str = "a.txt", result: str | None = None, **arguments: Any) -> Call:
    return called("read_file", {"path": path, **arguments}, f"the text of {path}" if result is None else result)


def edit(number: int, result: str = "updated") -> Call:
    return called("edit", {"path": "a.py", "old": f"part {number}", "new": f"part {number + 1}"}, result)


def search(query: str, result: str = "No results found") -> Call:
    return called("search", {"query": query}, result)


def note(text: str) -> Call:
    return called("todo_write", {"todos": [text]}, "saved")
