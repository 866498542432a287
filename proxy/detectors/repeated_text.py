"""Answers without calls that say the same: an agent that announces what it will do, or speaks its tools as text, and gets nowhere.

Example: "I will now call the tool." five times, each followed by "continue". Left alone: the same text at a person's new request,
commands and actions spoken as text that wait or move on by a step, and empty answers, which have a detector of their own. Reports:
opencode 46147, spark-vllm 341, OpenHands' monologue check (3 and 4).
"""

from collections.abc import Sequence

from proxy.models import Reason
from proxy.turns import Turn


class RepeatedText:
    """How many of the newest answers say the same."""

    reason = Reason.REPEATED_TEXT

    def count(self, turns: Sequence[Turn]) -> int:
        last = turns[-1]
        if last.empty or last.tool or last.waits:
            return 0
        return next((number for number, turn in enumerate(reversed(turns)) if turn.text != last.text or turn.tool), len(turns))
