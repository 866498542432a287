"""What can go wrong and how a client is told: one exception, one closed set of codes.

Refusals by policy (budgets, stops) are decisions, not exceptions, and do not live here. Everything raised as `ProxyError` is caught
once, at the boundary in `app`, and rendered by the dialect of the route.
"""


class ProxyError(Exception):
    """A failure that the client is told about.

    status: the HTTP status of the answer. code: a stable machine-readable name, `lastcall_…`. The message names the thing, the limit,
    the value seen and the fix, and never holds a key or content. retry: whether sending the same request again may help.
    """

    def __init__(self, status: int, code: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry = retry


class BadRequest(ProxyError):
    """The request cannot be understood; sending it again will not help."""

    def __init__(self, message: str, *, status: int = 400, code: str = "lastcall_bad_request") -> None:
        super().__init__(status, code, message)


class UpstreamFailed(ProxyError):
    """The upstream gave no HTTP answer: refused, unreachable, timed out or cut before its first byte."""

    def __init__(self, message: str, *, status: int = 502, code: str = "lastcall_upstream_unreachable") -> None:
        super().__init__(status, code, message, retry=True)


class UpstreamCut(UpstreamFailed):
    """The upstream began an answer and did not bring it to its end: the status has gone out, the body is incomplete."""


class StoreUnavailable(ProxyError):
    """The store is away and the failure mode is `closed`."""

    def __init__(self, message: str) -> None:
        super().__init__(503, "lastcall_store_unavailable", message, retry=True)


class ConfigError(Exception):
    """The configuration cannot be used. The message lists every fault: the key, the value and the fix."""
