"""SQL statements: does one only read?"""

import re

_LONGEST = 4_096  # characters

_READS = re.compile(
    r"\s*\(*\s*(?:select|explain|show|describe|desc|pragma\s+\w+\s*;?\s*$|values|\\[dl]\w*|\.(?:tables|schema|indexes))\b", re.IGNORECASE
)
_CHANGES = re.compile(
    r"\b(?:insert|update|delete|drop|alter|create|truncate|replace|merge|grant|revoke|into|call|exec|vacuum)\b", re.IGNORECASE
)
_WITH = re.compile(r"\s*with\b", re.IGNORECASE)


def sql_reads(text: str) -> bool:
    """Whether a statement only reads. What merely looks like a changing word inside it counts as one; a very long one is not read."""
    if len(text) > _LONGEST:
        return False
    return (_READS.match(text) or _WITH.match(text)) is not None and _CHANGES.search(text) is None
