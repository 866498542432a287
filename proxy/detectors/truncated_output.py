"""Answers that end at the output limit, one after another: half a call, which no client can carry out, or the same text again.

Example: a whole file in the arguments of one `write`, cut at the same place each time. Left alone: a long text that goes on after
"continue", since every part of it is new. Reports: localharness 77, mastra 15717.
"""

from collections.abc import Sequence

from proxy.models import Reason
from proxy.turns import Turn


class TruncatedOutput:
    """How many of the newest answers were cut, without getting on in between."""

    reason = Reason.TRUNCATED_OUTPUT

    def count(self, turns: Sequence[Turn]) -> int:
        last = turns[-1]
        number = 0
        for turn in reversed(turns):
            if not turn.cut or not (turn.tool or turn.text == last.text):
                break
            number += 1
        return 0 if number == 1 and not last.tool else number
