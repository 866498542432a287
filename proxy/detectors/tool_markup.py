"""Answers that hold a tool call written as text although tools can be called: nothing is carried out, and the model learns it so.

Example: a stray word and `<invoke name="Bash">`, again and again, since a model copies its own malformed calls. Left alone: markup
in code and quotes. Where no tool can be called, the answer itself is put right and never gets here. Report: claude-code 64150.
"""

from collections.abc import Sequence

from proxy.models import Reason
from proxy.turns import Turn


class ToolMarkup:
    """How many of the newest answers hold such a call."""

    reason = Reason.TOOL_MARKUP

    def count(self, turns: Sequence[Turn]) -> int:
        return next((number for number, turn in enumerate(reversed(turns)) if not turn.leaked), len(turns))
