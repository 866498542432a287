"""Events that are counted and logged a little later, many at once."""

import json
from collections.abc import Callable

from proxy.events import StoreChanged, StoreFailed, StoreOperation
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
    assert [json.loads(line)["ts"] for line in b"".join(lines).splitlines()] == ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.050Z"]
    telemetry.emit(StoreChanged(up=True))
    telemetry.settle()
    assert (len(asked), [piece.count(b"\n") for piece in lines]) == (2, [2, 1])


def test_events_do_not_gather_until_taking_them_holds_up_a_request() -> None:
    """A busy process takes a few at a time; what asked for it before finds nothing left."""
    lines, asked = list[bytes](), list[Callable[[], None]]()
    telemetry = Telemetry(registry_for(None), models=[], log=lines.append, clock=lambda: 1.0, later=asked.append)
    taken = []
    for _ in range(40):
        telemetry.emit(StoreChanged(up=True))
        taken.append(b"".join(lines).count(b"\n"))
    assert sorted(set(taken)) == [0, 16, 32]
    for work in asked:
        work()
    assert [piece.count(b"\n") for piece in lines] == [16, 16, 8]


def test_instruments_are_told_once_however_busy_a_process_is() -> None:
    """What is taken a few at a time is told to them with the rest."""
    registry, asked = registry_for(None), list[Callable[[], None]]()
    telemetry = Telemetry(registry, models=[], log=lambda _: None, clock=lambda: 1.0, later=asked.append)
    for _ in range(40):
        telemetry.emit(StoreFailed(StoreOperation.FIND))

    counted = [registry.get_sample_value("lastcall_store_errors_total", {"operation": "find"})]
    asked[0]()
    counted.append(registry.get_sample_value("lastcall_store_errors_total", {"operation": "find"}))

    assert (counted, len(asked)) == ([0, 40], 1)


def test_exchanges_under_way_are_told_with_what_is_settled() -> None:
    """Also when no event comes of them: one settlement is asked for, and says how many there are then."""
    registry, asked = registry_for(None), list[Callable[[], None]]()
    telemetry = Telemetry(registry, models=[], log=lambda _: None, clock=lambda: 1.0, later=asked.append)

    for _ in range(3):
        telemetry.exchange_started()
    telemetry.exchange_finished()
    assert (len(asked), registry.get_sample_value("lastcall_in_flight")) == (1, 0)
    asked[0]()

    assert registry.get_sample_value("lastcall_in_flight") == 2
    telemetry.exchange_finished()
    assert len(asked) == 2


def test_what_is_counted_together_is_all_counted() -> None:
    """Several times the same, and different things at once."""
    registry, asked = registry_for(None), list[Callable[[], None]]()
    telemetry = Telemetry(registry, models=[], log=lambda _: None, clock=lambda: 1.0, later=asked.append)

    for operation in (StoreOperation.FIND, StoreOperation.OPEN, StoreOperation.FIND):
        telemetry.emit(StoreFailed(operation))
    telemetry.settle()

    counted = [registry.get_sample_value("lastcall_store_errors_total", {"operation": name}) for name in ("find", "open", "commit")]
    assert counted == [2, 1, 0]


def test_lines_that_cannot_be_written_together_are_counted_one_by_one() -> None:
    """Of a log that is full nobody can tell how much it took."""
    registry = registry_for(None)

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    telemetry = Telemetry(registry, models=[], log=full, clock=lambda: 1.0, later=lambda _: None)
    for _ in range(3):
        telemetry.emit(StoreChanged(up=True))
    telemetry.settle()

    assert registry.get_sample_value("lastcall_log_lines_dropped_total") == 3
