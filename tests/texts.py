"""What all text detectors share in their tests: turns written shortly, and an agent that goes on by itself."""

from collections.abc import Sequence

from proxy.policy import Policy
from proxy.turns import Turn
from tests.driver import Agent, Cut, House, Reply
from tests.transcripts import user

EMPTY = Turn(7, empty=True)
CUT = Turn(8, cut=True, tool="write")
LEAK = Turn(9, leaked=True)


def texts(letters: str) -> list[Turn]:
    """One turn for each letter, of that text."""
    return [Turn(ord(letter)) for letter in letters]


def decisions(
    replies: Sequence[Reply | Cut], policy: Policy | None = None, *, between: str = "continue", tools: Sequence[str] = ("bash",)
) -> list[str]:
    """The decisions on an agent's requests whose client says `between` after every answer without calls."""
    agent = Agent(House(policy), user("do it"), tools=tools)
    found = []
    for reply in replies:
        x = agent.step(reply)
        found.append(x.decision)
        if x.decision == "stop":
            break
        if isinstance(x.given, str):
            agent.turns.append(user(between))
    return found
