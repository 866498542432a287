"""Events that are counted and logged a little later, many at once."""

import json
from collections.abc import Callable

from proxy.events import StoreChanged
from proxy.telemetry import Telemetry, registry_for


def test_events_that_may_wait_are_counted_together_with_the_time_they_had() -> None:
    """Once for all that came meanwhile; asking for it does it at once."""
    clock, lines, asked = [1_700_000_000.0], list[bytes](), list[Callable[[], None]]()
    telemetry = Telemetry(registry_for(None), models=[], log=lines.append, clock=lambda: clock[0], later=asked.append)
    for _ in range(2):
        telemetry.emit(StoreChanged(up=False, cause="TimeoutError"))
        clock[0] += 0.05
    assert (len(asked), lines) == (1, [])
    asked[0]()
    assert [json.loads(line)["ts"] for line in lines] == ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.050Z"]
    telemetry.emit(StoreChanged(up=True))
    telemetry.settle()
    assert (len(asked), len(lines)) == (2, 3)


def test_events_do_not_gather_until_taking_them_holds_up_a_request() -> None:
    """A busy process takes a few at a time; what asked for it before finds nothing left."""
    lines, asked = list[bytes](), list[Callable[[], None]]()
    telemetry = Telemetry(registry_for(None), models=[], log=lines.append, clock=lambda: 1.0, later=asked.append)
    taken = []
    for _ in range(40):
        telemetry.emit(StoreChanged(up=True))
        taken.append(len(lines))
    assert sorted(set(taken)) == [0, 16, 32]
    for work in asked:
        work()
    assert len(lines) == 40
