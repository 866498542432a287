"""Answers with neither text nor calls, one after another, each followed by the client's own prompt to go on.

Example: a reasoning model that spends its whole output on thinking. Left alone: one empty answer. Report: GenericAgent 201.
"""

from collections.abc import Sequence

from proxy.models import Reason
from proxy.turns import Turn


class EmptyOutput:
    """How many of the newest answers are empty."""

    reason = Reason.EMPTY_OUTPUT

    def count(self, turns: Sequence[Turn]) -> int:
        return next((number for number, turn in enumerate(reversed(turns)) if not turn.empty), len(turns))
