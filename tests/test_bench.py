"""`make bench`: when requests go out that have a pace, what becomes of one that is not kept, and how both measures are shown."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.load import Conversation, Pace, converse
from bench.measure import Case, Effort, Row, Sample, Traffic, rows, run
from bench.report import Report, document, text
from bench.servers import Bench, Cores
from bench.transcripts import SMALL, Transcript

HEADLINE = "56 KB, growing, named"
linux = pytest.mark.skipif(sys.platform != "linux", reason="servers under test are held to cores")


class Time:
    """A clock that stands still unless somebody sleeps, or says that time goes by."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def sent(rate: float, durations: Sequence[float]) -> tuple[list[float], bool]:
    """When the only connection sent its requests, in seconds after the first, and whether it kept the pace."""
    time = Time()
    pace = Pace(rate, clock=time.clock, sleep=time.sleep)
    moments = []
    for duration in durations:
        pace.wait()
        moments.append(time.now - 1_000.0)
        time.now += duration
    return moments, pace.kept


def test_requests_go_out_when_they_are_due() -> None:
    """The i-th i intervals after the first, however long the answers before it took."""
    assert sent(4.0, [0.125, 0.0, 0.25, 0.125, 0.0]) == ([0.0, 0.25, 0.5, 0.75, 1.0], True)


def test_a_delay_does_not_put_off_what_comes_after() -> None:
    """What was due meanwhile goes out at once, and then all is in time again."""
    assert sent(4.0, [0.0, 0.75, 0.0, 0.0, 0.0, 0.0]) == ([0.0, 0.25, 1.0, 1.0, 1.0, 1.25], True)


def test_a_sleep_that_ends_early_sends_nothing_early() -> None:
    """It sleeps again."""
    time = Time()
    pace = Pace(2.0, clock=time.clock, sleep=lambda seconds: time.sleep(min(seconds, 0.125)))
    pace.wait()
    pace.wait()
    assert time.now == 1_000.5


@pytest.mark.parametrize(("duration", "kept"), [(0.25, True), (0.3, False)])
def test_who_cannot_keep_the_pace_is_found_out(duration: float, kept: bool) -> None:
    """Answers that take longer than the interval leave the connection ever further behind."""
    assert sent(4.0, [duration] * 40)[1] is kept


@linux
def test_every_request_waits_for_its_turn(tmp_path: Path) -> None:
    """Of all connections and conversations together."""
    waits: list[None] = []
    conversations = [Conversation(Transcript(SMALL, 4), [1, 2, 3], named=True) for _ in range(4)]
    with Bench(tmp_path, Cores.split()).upstream() as upstream:
        done = converse(upstream.port, conversations, 2, 30.0, lambda: waits.append(None))
    assert [len(replies) for replies in done] == [3] * 4
    assert len(waits) == 12


@linux
def test_a_pace_that_was_not_kept_gives_no_figure(tmp_path: Path) -> None:
    """It says so, and what is measured as fast as it can be stays; a case without a rate says nothing."""
    told: list[str] = []
    cases = [Case(SMALL, Traffic.NAMED, (8, 16), rate=1e9), Case(SMALL, Traffic.DERIVED, (8, 8), rate=None)]
    with Bench(tmp_path, Cores.split()).upstream() as upstream:
        samples = run([upstream], cases, Effort(rounds=1, share=1.0, seconds=30.0), told.append)
    hurried, free = (samples[case.name, "upstream"][0] for case in cases)
    assert hurried.cpu > 0.0
    assert (hurried.rate, hurried.paced_cpu) == (1e9, None)
    assert (free.rate, free.paced_cpu) == (None, None)
    assert [line for line in told if not line.startswith("round")] == ["upstream did not keep pace with 1,000,000,000 requests a second"]


def sample(cpu: float, paced_cpu: float | None) -> Sample:
    return Sample(cpu, 500.0, paced_cpu, [0.001], [0.002], [])


def found(paced: Sequence[float | None]) -> list[Row]:
    """Of three rounds of the bare passthrough and of Lastcall, which takes so long in them where there is a pace."""
    bare = [sample(100e-6, 200e-6), sample(100e-6, 200e-6), sample(100e-6, 400e-6)]
    own = [sample(cpu, paced_cpu) for cpu, paced_cpu in zip((210e-6, 220e-6, 230e-6), paced, strict=True)]
    return list(rows({(HEADLINE, "bare"): bare, (HEADLINE, "memory"): own}, "bare"))


def lines(report: Report) -> list[str]:
    """As people see them, without the alignment."""
    return [" ".join(line.split()) for line in text(report).splitlines()]


def test_each_measure_is_compared_with_its_own() -> None:
    """By round: at the same rate with the same rate, as fast as it can with as fast as it can."""
    bare, own = found([300e-6, 320e-6, 680e-6])
    assert bare.paced_cpu is not None
    assert (bare.paced_cpu.median, bare.paced_ratio) == (200e-6, None)
    assert own.ratio is not None
    assert own.paced_ratio is not None
    assert own.ratio.median == pytest.approx(2.2)
    assert [own.paced_ratio.least, own.paced_ratio.median, own.paced_ratio.most] == pytest.approx([1.5, 1.6, 1.7])


def test_the_report_shows_both_measures() -> None:
    """Beside each other in the table of the case, and each with a line of its own among the targets."""
    report = Report(found([300e-6, 320e-6, 680e-6]), {})
    header, _, bare, own, *_ = lines(report)
    assert header == f"{HEADLINE} cpu µs to bare rounds cpu µs, 500/s to bare rounds p50 ms +p50 ms +p99 ms"
    assert bare == "bare 100 200 2.00"
    assert own == "memory 220 2.20 2.10 to 2.30 320 1.60 1.50 to 1.70 2.00 0.00 0.00"
    assert f"processor time, as fast as it can, {HEADLINE}, memory 2.20 2 x bare MISSED" in lines(report)
    assert f"processor time, 500/s, {HEADLINE}, memory 1.60 2 x bare met" in lines(report)


def test_a_pace_that_was_not_kept_is_no_target_met() -> None:
    """One round is enough: the row shows no figure of the others, and for programs there is none."""
    report = Report(found([300e-6, None, 680e-6]), {})
    assert "memory 220 2.20 2.10 to 2.30 pace not kept 2.00 0.00 0.00" in lines(report)
    assert f"processor time, 500/s, {HEADLINE}, memory pace not kept 2 x bare MISSED" in lines(report)
    assert document(report)["rows"][1]["paced_ratio"] is None
    assert document(report)["targets"][1]["found"] is None
