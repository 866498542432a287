"""What an upstream's status is called in events."""

import pytest

from proxy.events import UpstreamError, error_of


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None),
        (399, None),
        (400, UpstreamError.CLIENT_ERROR),
        (429, UpstreamError.RATE_LIMITED),
        (499, UpstreamError.CLIENT_ERROR),
        (500, UpstreamError.SERVER_ERROR),
        (529, UpstreamError.SERVER_ERROR),
    ],
)
def test_a_status_names_its_error(status: int, error: UpstreamError | None) -> None:
    """Below 400 nothing failed; 429 is told apart from the client's other faults."""
    assert error_of(status) is error
