"""What breaks under working agents costs them time and nothing else. `python -m tests.faults` measures the same, for longer."""

import pytest

from tests.faults import endure

_BRIEFLY = 0.4
_HERE = (  # the others differ from these in little, and are left to the longer run
    "a worker is killed",
    "the store hangs",
    "the store's disk is full",
    "the primary is lost, a sentinel promotes another",
    "a cluster's node is lost, its replica takes over",
    "the proxies' clock jumps an hour ahead",
    "the store's clock jumps an hour ahead",
)


@pytest.mark.parametrize("fault", _HERE)
async def test_no_verdict_changes_and_nothing_settled_is_lost(fault: str) -> None:
    """Every loop is nudged and stopped at its turn, every token that the model charged is in the team's ledger, once, and work goes on."""
    found = await endure(fault, pace=_BRIEFLY)

    assert found.runs > 0
    assert (found.wrong, found.lost) == (0, 0)
