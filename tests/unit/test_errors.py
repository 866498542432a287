"""What a client is told when something goes wrong."""

import pytest

from proxy.errors import BadRequest, ProxyError, StoreUnavailable, UpstreamCut, UpstreamFailed


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (BadRequest("m"), 400, "lastcall_bad_request", False),
        (BadRequest("m", status=413, code="lastcall_body_too_large"), 413, "lastcall_body_too_large", False),
        (UpstreamFailed("m"), 502, "lastcall_upstream_unreachable", True),
        (UpstreamFailed("m", status=504, code="lastcall_upstream_timeout"), 504, "lastcall_upstream_timeout", True),
        (UpstreamCut("m"), 502, "lastcall_upstream_unreachable", True),
        (StoreUnavailable("m"), 503, "lastcall_store_unavailable", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_says_status_code_and_whether_to_retry(error: ProxyError, status: int, code: str, retry: bool) -> None:
    """Only what the other side may get over by itself is worth another try."""
    assert (error.status, error.code, error.retry) == (status, code, retry)
    assert (error.message, str(error)) == ("m", "m")


def test_an_answer_that_was_cut_is_an_upstream_failure() -> None:
    """One boundary catches both."""
    assert issubclass(UpstreamCut, UpstreamFailed)
