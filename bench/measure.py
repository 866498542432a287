"""What is measured and how: cases, rounds that take turns among the servers, medians of the rounds.

The machine is assumed to be noisy. Servers are compared within a round, seconds apart, and a round's ratio counts once.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from bench.load import Conversation, Pace, Reply, Unexpected, at_once, converse
from bench.servers import Server
from bench.transcripts import LARGE, MEDIUM, SMALL, Shape, Transcript

GROWTH = 8  # requests of a growing conversation, each a turn longer than the one before
CONCURRENCY = 8
RATE = 500.0  # a second: no server is near its limit
TRIES = 3  # to keep that pace: a neighbour may have been in the way


class Traffic(StrEnum):
    """How requests belong together.

    NAMED: conversations that grow by a turn a request and name their session. DERIVED: the same, without a name. FRESH: one body again
    and again, in a new session each time, so that its whole history is new to the proxy.
    """

    NAMED = "growing, named"
    DERIVED = "growing, derived"
    FRESH = "same body, new sessions"


@dataclass(frozen=True)
class Case:
    """One kind of request.

    requests: how many a round sends at `CONCURRENCY` as fast as it can; and how many at the same rate for all, and again one by one.
    rate: that one, a second; None for streams, which have a pace of their own.
    """

    shape: Shape
    traffic: Traffic
    requests: tuple[int, int]
    dialect: Dialect = CHAT
    stream: bool = False
    rate: float | None = RATE

    @property
    def name(self) -> str:
        kind = "stream of 100 chunks" if self.stream else self.traffic
        return f"{self.shape.name}, {kind}" if self.dialect is CHAT else f"{self.shape.name}, {kind}, {self.dialect.name}"


CASES = (
    Case(SMALL, Traffic.NAMED, (512, 256)),
    Case(MEDIUM, Traffic.NAMED, (512, 256)),
    Case(MEDIUM, Traffic.NAMED, (512, 256), RESPONSES),
    Case(MEDIUM, Traffic.NAMED, (512, 256), MESSAGES),
    Case(MEDIUM, Traffic.DERIVED, (256, 256)),
    Case(MEDIUM, Traffic.FRESH, (256, 256)),
    Case(LARGE, Traffic.NAMED, (128, 64), rate=100.0),
    Case(SMALL, Traffic.NAMED, (64, 8), stream=True, rate=None),
)


@dataclass(frozen=True)
class Sample:
    """One case on one server in one round. first_byte, whole, delays: seconds, sorted.

    cpu: seconds of processor time a request, as fast as it can. paced_cpu: the same at `rate` requests a second, if that pace was kept.
    """

    cpu: float
    rate: float | None
    paced_cpu: float | None
    first_byte: Sequence[float]
    whole: Sequence[float]
    delays: Sequence[float]


@dataclass(frozen=True)
class Effort:
    """How much is done: rounds, the part of each case's requests, and the seconds after which a measurement begins nothing new."""

    rounds: int
    share: float
    seconds: float


QUICK = Effort(rounds=2, share=0.25, seconds=2.0)
FULL = Effort(rounds=5, share=1.0, seconds=8.0)

Samples = dict[tuple[str, str], list[Sample]]
"""By case and server, one of each round."""


def run(servers: Sequence[Server], cases: Sequence[Case], effort: Effort, told: Callable[[str], None]) -> Samples:
    """All rounds of all cases. told: gets a line of progress for each case of a round."""
    samples: Samples = {}
    for number in range(effort.rounds):
        for case in cases:
            told(f"round {number + 1}/{effort.rounds}: {case.name}")
            for server in servers:
                sample = _sample(server, case, effort)
                samples.setdefault((case.name, server.name), []).append(sample)
                if sample.rate is not None and sample.paced_cpu is None:
                    told(f"{server.name} did not keep pace with {sample.rate:,.0f} requests a second")
    return samples


def _sample(server: Server, case: Case, effort: Effort) -> Sample:
    many, few = (max(GROWTH, round(requests * effort.share)) for requests in case.requests)
    seconds, replies = _measured(server, case, many, CONCURRENCY, effort.seconds)
    cpu = seconds / len(replies)
    paced_cpu = None if case.rate is None else _paced_cpu(server, case, few, case.rate, effort.seconds)
    _, replies = _measured(server, case, few, 1, effort.seconds)
    return Sample(
        cpu,
        case.rate,
        paced_cpu,
        sorted(reply.first_byte for reply in replies),
        sorted(reply.whole for reply in replies),
        sorted(delay for reply in replies for delay in reply.delays),
    )


def _paced_cpu(server: Server, case: Case, requests: int, rate: float, seconds: float) -> float | None:
    """Processor seconds a request, at that many a second; None if the pace was never kept."""
    for _ in range(TRIES):
        pace = Pace(rate)
        spent, replies = _measured(server, case, requests, CONCURRENCY, seconds, wait=pace.wait)
        if pace.kept:
            return spent / len(replies)
    return None


def _measured(
    server: Server, case: Case, requests: int, connections: int, seconds: float, *, wait: Callable[[], object] = at_once
) -> tuple[float, list[Reply]]:
    """Processor seconds and replies of that many requests. The requests that open the conversations come before and do not count.

    wait: called before each that counts.
    """
    opening, going_on = _conversations(case, requests)
    opened = converse(server.port, opening, connections, seconds)
    before = server.cpu_seconds()
    if case.traffic is not Traffic.FRESH:
        going_on = going_on[: len(opened)]
    done = converse(server.port, going_on, connections, seconds, wait)
    spent = server.cpu_seconds() - before
    if case.traffic is not Traffic.FRESH:
        _check_sessions(done)
    return spent, [reply for replies in done for reply in replies]


def _conversations(case: Case, requests: int) -> tuple[list[Conversation], list[Conversation]]:
    """What warms up, and what is measured."""
    turns = case.shape.turns
    transcript = Transcript(case.shape, turns + GROWTH, case.dialect, stream=case.stream)
    if case.traffic is Traffic.FRESH:
        several = [Conversation(transcript, [turns], named=True) for _ in range(GROWTH + requests)]
        return several[:GROWTH], several[GROWTH:]
    first = turns - GROWTH // 2
    named = case.traffic is Traffic.NAMED
    opening = [Conversation(transcript, [first - 1], named) for _ in range(requests // GROWTH)]
    lengths = range(first, first + GROWTH)
    return opening, [Conversation(transcript, lengths, named, begun.id) for begun in opening]


def _check_sessions(done: Sequence[Sequence[Reply]]) -> None:
    """A conversation is one session, also where the proxy has to find out: else the figures are those of another case."""
    for replies in done:
        if len({reply.session for reply in replies}) > 1:
            raise Unexpected("a conversation was taken for several sessions")


# ---- what comes of the samples


@dataclass(frozen=True)
class Spread:
    """The median of the rounds, and the smallest and largest."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_all(cls, values: Sequence[float | None]) -> "Spread | None":
        """None if one is missing: what is left may be another case."""
        there = [value for value in values if value is not None]
        return cls.of(there) if len(there) == len(values) else None


@dataclass(frozen=True)
class Row:
    """One server in one case. Times in seconds; None where there is nothing to compare with or no stream.

    cpu: as fast as it can. paced_cpu: at `rate` requests a second; None too if that pace was not kept in every round.
    ratio, paced_ratio: these in terms of the bare passthrough. added_*: latency beyond that of the bare passthrough, one request at a time:
    of the whole answer, of a stream's first byte, and of each of its chunks on the way from the upstream.
    """

    case: str
    server: str
    cpu: Spread
    ratio: Spread | None
    rate: float | None
    paced_cpu: Spread | None
    paced_ratio: Spread | None
    p50: Spread
    added_p50: Spread | None
    added_p99: Spread | None
    added_first_p50: Spread | None
    added_chunk_p50: Spread | None
    added_chunk_p99: Spread | None


def rows(samples: Samples, base: str) -> Iterator[Row]:
    """The report's rows, in the order of measurement. base: the server all are compared with."""
    for (case, server), mine in samples.items():
        bases = samples[case, base]
        compared = server != base
        streamed = compared and bool(mine[0].delays)

        def added(
            of: Callable[[Sample], Sequence[float]], percent: int, *, when: bool, pairs: list[tuple[Sample, Sample]]
        ) -> Spread | None:
            return Spread.of([percentile(of(own), percent) - percentile(of(bare), percent) for own, bare in pairs]) if when else None

        pairs = list(zip(mine, bases, strict=True))
        yield Row(
            case,
            server,
            cpu=Spread.of([sample.cpu for sample in mine]),
            ratio=Spread.of([own.cpu / bare.cpu for own, bare in pairs]) if compared else None,
            rate=mine[0].rate,
            paced_cpu=Spread.of_all([sample.paced_cpu for sample in mine]),
            paced_ratio=Spread.of_all([_ratio(own.paced_cpu, bare.paced_cpu) for own, bare in pairs]) if compared else None,
            p50=Spread.of([percentile(sample.whole, 50) for sample in mine]),
            added_p50=added(_whole, 50, when=compared and not streamed, pairs=pairs),
            added_p99=added(_whole, 99, when=compared and not streamed, pairs=pairs),
            added_first_p50=added(_first_byte, 50, when=streamed, pairs=pairs),
            added_chunk_p50=added(_delays, 50, when=streamed, pairs=pairs),
            added_chunk_p99=added(_delays, 99, when=streamed, pairs=pairs),
        )


def _ratio(own: float | None, bare: float | None) -> float | None:
    return None if own is None or bare is None else own / bare


def percentile(ordered: Sequence[float], percent: int) -> float:
    """By nearest rank. ordered: ascending, not empty."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _whole(sample: Sample) -> Sequence[float]:
    return sample.whole


def _first_byte(sample: Sample) -> Sequence[float]:
    return sample.first_byte


def _delays(sample: Sample) -> Sequence[float]:
    return sample.delays
