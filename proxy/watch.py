"""An answer's text while it is being written: whether it may go out yet, and whether it should go on."""

from proxy.markup import Scanner
from proxy.refrain import Refrain


class Watch:
    """Follows one text. scanner: where tool markup must not reach the client; then nothing goes out before it was looked at.

    waiting: the newest text may turn out to be markup. spoiled: some of the text must not go out. endless: it repeats itself.
    """

    def __init__(self, scanner: Scanner | None, refrain: Refrain | None) -> None:
        self.endless = False
        self._scanner = scanner
        self._refrain = refrain

    @property
    def first(self) -> bool:
        """Whether text must be looked at before it goes out."""
        return self._scanner is not None

    @property
    def waiting(self) -> bool:
        return self._scanner is not None and self._scanner.holding

    @property
    def spoiled(self) -> bool:
        return self._scanner is not None and self._scanner.cut

    def take(self, text: str) -> None:
        """Reads what was written next."""
        if self._scanner is not None:
            self._scanner.feed(text)
        if self._refrain is not None:
            self.endless = self._refrain.feed(text)

    def finish(self) -> None:
        """The text is whole: what waits is decided."""
        if self._scanner is not None:
            self._scanner.finish()

    def end_in_thought(self, thought: str) -> None:
        """The answer is whole and says nothing: what stands in its reasoning is all that there is."""
        if self._scanner is not None:
            self._scanner.feed(thought)
            self._scanner.finish()
