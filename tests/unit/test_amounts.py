"""Numbers of things, in words."""

import pytest

from proxy.amounts import counted, times


@pytest.mark.parametrize(
    ("number", "calls", "said"), [(0, "0 calls", "0 times"), (1, "1 call", "once"), (1_200, "1,200 calls", "1,200 times")]
)
def test_one_is_no_several(number: int, calls: str, said: str) -> None:
    """And thousands are parted."""
    assert (counted(number, "call"), times(number)) == (calls, said)
