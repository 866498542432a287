"""What keeps a dead server from costing every call its deadline: the first failure is told at once to all who come after it.

After `retry_after` seconds one call goes through, the probe, and its success lets all through again.
"""

from proxy.store.contract import Clock


class Breaker:
    """Open (`cause` is set) while what it stands for is away. clock: seconds, only ever compared with itself."""

    def __init__(self, clock: Clock, retry_after: float) -> None:
        self.cause: str | None = None
        self.retry_after = retry_after
        self._clock = clock
        self._failed_at = 0.0
        self._probing = False

    @property
    def refuses(self) -> bool:
        """Whether a call would be turned away now, for being neither due nor the only one."""
        if self.cause is None:
            return False
        # A clock that was set back must not keep it open: hence the lower end.
        return self._probing or 0 <= self._clock() - self._failed_at < self.retry_after

    def begin_probe(self) -> bool:
        """Whether the call that now begins may go through, as the probe; then `end_probe` has to follow."""
        if self.refuses:
            return False
        self._probing = True
        return True

    def end_probe(self) -> None:
        self._probing = False

    def failed(self, cause: str) -> bool:
        """Whether that is news."""
        news = self.cause is None
        self.cause, self._failed_at = cause, self._clock()
        return news

    def succeeded(self) -> bool:
        """Whether that is news."""
        news = self.cause is not None
        self.cause = None
        return news
