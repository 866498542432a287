"""Trails in shorthand: `"A1 A1 B2+C3 | A1"`.

A word is one message, `+` joins its calls. A letter is a call, the digits after it are its result (none: not seen yet). `!` marks a result
that the client called an error, `~` one that Lastcall wrote. `|` stands before the first message after a compaction, `-` is a message
without calls. Lower-case letters name the tool alike: `a` is another call of tool A.
"""

from proxy.fingerprint import UNSEEN
from proxy.outcomes import FAILED, VOID
from proxy.trail import Entry, Step, Trail

_CALL, _RESULT = 1_000, 100_000


def call(letter: str) -> int:
    """The fingerprint of a call."""
    return _CALL + ord(letter)


def entry(text: str) -> Entry:
    """One call: letter, result, marks."""
    letter, digits = text[0], text[1:].rstrip("!~")
    flags = (FAILED if "!" in text else 0) | (VOID if "~" in text else 0)
    return Entry(call(letter), letter.upper(), _RESULT + int(digits) if digits else UNSEEN, flags)


def entries(text: str) -> tuple[Entry, ...]:
    """The calls of one message."""
    return () if text == "-" else tuple(entry(part) for part in text.split("+"))


def trail(
    text: str, *, nudged: dict[str, int] | None = None, relapsed: dict[str, int] | None = None, made: dict[str, int] | None = None
) -> Trail:
    """nudged: after how many messages each call was. relapsed: calls that stopped an earlier run, with the number of their result."""
    steps: list[Step] = []
    compacted = False
    for word in text.split():
        if word != "|":
            steps.append(Step(entries(word), compacted))
        compacted = word == "|"
    return Trail(
        tuple(steps),
        {call(letter): at for letter, at in (nudged or {}).items()},
        {call(letter): _RESULT + result for letter, result in (relapsed or {}).items()},
        {call(letter): count for letter, count in (made or {}).items()},
    )
