"""A passage that an answer says again and again: a model caught in its own words, recognised while it writes.

Only unbroken repetition counts: the newest characters are those of one, two, three passages before. Left alone: code fences and tables,
where sameness is layout; rulers, dots and blanks, unless there is no end of them; and, for much longer, what the user's own message
holds, since people do ask for a word a hundred times. Numbers: detectors of gemini-cli and reports on it (5813) and opencode (43638).
"""

PASSAGE = 200  # characters of the longest passage
_KEY = 16  # characters that must be those of a passage before
_STEP = 16  # characters between two looks, so that it does not matter how a text is cut into pieces
_SEEN = PASSAGE + _KEY + _STEP  # characters that a look goes back over
_TIMES = 20  # repetitions of a short passage
_LONG = (12, 400)  # repetitions of a longer one, and characters of them together
_LEAST = 40  # characters of any repetition that is too many
_BLANK = 2_000  # characters of something without letters
_ASKED = 20_000  # characters of something the user wrote too


def refrain_of(text: str, asked: str = "") -> "Refrain | None":
    """The repetition in a whole text; None without one, which takes a glance at most texts."""
    places = range(0, len(text) - _KEY, 2 * _STEP)
    if not any([text.find(text[at : at + _KEY], at + 1, at + _KEY + PASSAGE) >= 0 for at in places]):
        return None
    refrain = Refrain(asked)
    return refrain if refrain.feed(text) else None


class Refrain:
    """Follows one text. asked: the newest text of the user.

    reached: it repeats itself; then start says where in the text, in characters, the repetition begins.
    """

    def __init__(self, asked: str = "") -> None:
        self.reached = False
        self.start = 0
        self.passage = ""
        self.times = 0
        self._asked = asked.lower()
        self._at = 0
        self._unread = ""
        self._tail = ""
        self._head = ""
        self._fence = ""
        self._period = 0
        self._stretch = 0

    def feed(self, text: str) -> bool:
        """Takes what was written next; whether the text repeats itself."""
        self._unread += text
        if len(self._unread) < _STEP - self._at % _STEP:  # no look is due: most streams come in words
            return self.reached
        text, self._unread = self._unread, ""
        for line in text.splitlines(keepends=True) if "\n" in text else (text,):
            if self.reached:
                break
            self._add(line)
            if len(self._head) < 8:
                self._head += line[: 8 - len(self._head)]
            if line.endswith("\n"):
                self._end_line()
        return self.reached

    def _add(self, text: str) -> None:
        due = _STEP - self._at % _STEP
        self._at += len(text)
        if self._fence:
            return
        text, due = self._tail + text, len(self._tail) + due
        for end in range(due, len(text) + 1, _STEP):
            start = end - _SEEN if end > _SEEN else 0
            # A search for the first is quicker than one for the last, and nearly always there is neither.
            if end > _KEY and text.find(text[end - _KEY : end], start, end - 1) >= 0:
                self._look(text[start:end], self._at - len(text) + end)
                if self.reached:
                    return
            else:
                self._period = self._stretch = 0
        self._tail = text[-_SEEN:]

    def _end_line(self) -> None:
        head, self._head = self._head.lstrip(" \t"), ""
        if self._fence:
            if head.startswith(self._fence):
                self._fence = ""
        elif head.startswith(("```", "~~~")):
            self._fence = head[:3]
        elif not head.startswith("|"):
            return
        self._tail, self._period, self._stretch = "", 0, 0

    def _look(self, tail: str, at: int) -> None:
        """The newest characters stand before them too: as a passage, and for how long has that been so? at: where in the text it ends."""
        period = len(tail) - _KEY - tail.rfind(tail[-_KEY:], 0, len(tail) - 1)
        if period > PASSAGE:
            self._period = self._stretch = 0
            return
        if period == self._period:
            self._stretch += _STEP
        else:
            self._period, self._stretch = period, _same_end(tail, period)
        if self._stretch >= _LEAST and self._stretch >= self._enough(tail[-period:]):  # most end soon
            self.reached, self.start = True, at - self._stretch
            self.passage, self.times = tail[-period:], self._stretch // period

    def _enough(self, passage: str) -> int:
        """Characters of repetition that are too many."""
        said = passage.strip().lower()
        if len(said) < 2 or not any(char.isalpha() for char in said):
            return _BLANK
        words = (passage.lower() * 3).split()[1:-1] or [said]  # where it is thought to begin does not matter
        if self._asked and all(word in self._asked for word in words):
            return _ASKED
        times, together = _LONG
        return min(max(_TIMES * len(passage), _LEAST), max(times * len(passage), together))


def _same_end(text: str, period: int) -> int:
    """How many characters at the end of a text, whose key is, are those of a period before; that period included."""
    for same in range(_KEY, len(text) - period):
        if text[-1 - same] != text[-1 - same - period]:
            return same + period
    return len(text)
