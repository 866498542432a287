"""What to do about an exchange: two questions, asked before the upstream and before the answer is let go.

`admit` looks at the trail so far and at the budgets; `judge` at the calls an answer would add; `conclude` writes into the record what
came of it. All three are pure: the record they change is the caller's own copy, and a lost race is settled by running
`Case.take` and `conclude` again on what stands in the store now.
"""

from proxy.engine.admission import NOT_NOW, admit, edits_again, edits_of
from proxy.engine.case import Admission, Case, Flaw, Result, Serve, Verdict
from proxy.engine.flaw import repair_of, repaired, watch_of
from proxy.engine.notice import notice_of
from proxy.engine.outcome import conclude
from proxy.engine.verdict import judge, runaway

__all__ = [
    "NOT_NOW",
    "Admission",
    "Case",
    "Flaw",
    "Result",
    "Serve",
    "Verdict",
    "admit",
    "conclude",
    "edits_again",
    "edits_of",
    "judge",
    "notice_of",
    "repair_of",
    "repaired",
    "runaway",
    "watch_of",
]
