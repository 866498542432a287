"""The breaker: who is turned away while something is away, and who tries it again."""

from proxy.store.breaker import Breaker


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_failure_turns_all_away_but_one_a_second() -> None:
    """The probe, and only one at a time."""
    clock = Time()
    breaker = Breaker(clock, 1.0)
    assert not breaker.refuses
    assert breaker.failed("TimeoutError")
    assert (breaker.refuses, breaker.begin_probe()) == (True, False)
    clock.now += 1.0
    assert (breaker.refuses, breaker.begin_probe()) == (False, True)
    assert (breaker.refuses, breaker.begin_probe()) == (True, False)
    breaker.end_probe()
    assert not breaker.refuses


def test_only_a_change_is_news() -> None:
    """Failing twice, or succeeding twice, is not."""
    breaker = Breaker(Time(), 1.0)
    assert [breaker.succeeded(), breaker.failed("A"), breaker.failed("B"), breaker.succeeded(), breaker.succeeded()] == [
        *(False, True, False, True, False)
    ]
    assert (breaker.cause, breaker.refuses) == (None, False)


def test_a_failed_probe_starts_the_wait_again() -> None:
    """From when it failed."""
    clock = Time()
    breaker = Breaker(clock, 1.0)
    breaker.failed("A")
    clock.now += 1.5
    assert breaker.begin_probe()
    breaker.failed("A")
    breaker.end_probe()
    clock.now += 0.9
    assert breaker.refuses


def test_a_clock_that_was_set_back_does_not_keep_it_open() -> None:
    """A wait measured across the jump is over."""
    clock = Time()
    breaker = Breaker(clock, 1.0)
    breaker.failed("A")
    clock.now -= 3600.0
    assert not breaker.refuses
