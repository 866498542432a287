"""Every metric and every log line, made from events: the one door to prometheus_client.

Nothing else counts or logs. A metric's labels come from closed sets (enums, dialects, configured model names), so that the number of
series is fixed at start; what a client wrote (session, tool, model) appears in log lines only, cut and made printable. What each
metric means is told to operators in docs/metrics.md.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal, TypeVar, assert_never

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.dialects import DIALECTS
from proxy.events import (
    Event,
    ExchangeEnded,
    NudgeOutcome,
    Outcome,
    StoreChanged,
    StoreFailed,
    StoreOperation,
    UnjudgedEnded,
    UpstreamError,
)
from proxy.models import Action, Reason
from proxy.policy import Mode

LogLevel = Literal["debug", "info", "warning", "error"]

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the directory through which the workers of one server share their counts."""

OTHER = "_other"
"""Label value of everything outside a closed set."""

# prometheus_client chose where values live when it was imported above, and cannot change its mind.
_shared_directory = os.environ.get(DIRECTORY_VARIABLE)

_LEVELS: dict[LogLevel, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_MAX_TEXT = 200
_MAX_MODELS_REMEMBERED = 1024
_STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_FLAGS = ("false", "true")

_OVERHEAD_BUCKETS = (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0)
_UPSTREAM_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_FIRST_BYTE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)

_Child = TypeVar("_Child", bound=MetricWrapperBase)


class _Workers:
    """Adds up what all workers of one server wrote to their shared directory."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._files = MultiProcessCollector(None, directory)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        self._forget_dead()
        metrics: Iterable[Metric] = self._files.collect()  # type: ignore[no-untyped-call]
        return metrics

    def _forget_dead(self) -> None:
        """Removes the gauges of workers that died: nothing tells a worker of another's end. Their counters stay, or sums would fall."""
        for file in self._directory.glob("gauge_live*_*.db"):
            if not _alive(int(file.stem.rpartition("_")[2])):
                file.unlink(missing_ok=True)


class _SharedRegistry(CollectorRegistry):
    """The registry of a worker among several: its metrics are read back from the shared files, so registering them changes nothing."""

    def __init__(self, directory: str) -> None:
        super().__init__(support_collectors_without_names=True)
        super().register(_Workers(directory))

    def register(self, collector: Collector) -> None:
        """Ignored: what this worker counts is in the files already and must not appear twice."""


def registry_for(directory: str | None) -> CollectorRegistry:
    """The registry behind /metrics: of this process (None), or of all workers that share `directory`.

    The supervisor makes a fresh, private directory for each start and sets `DIRECTORY_VARIABLE` to it in the environment that its
    workers are born with. Raises `RuntimeError` when it was not set so in this process, since then nothing would be shared.
    """
    if directory is None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        return registry
    if directory != _shared_directory:
        raise RuntimeError(
            f"metrics cannot be shared through {directory!r}: {DIRECTORY_VARIABLE} was {_shared_directory!r} when this process "
            "started; set it in the environment before the workers are started"
        )
    return _SharedRegistry(directory)


class _Children(dict[tuple[str | None, ...], _Child]):
    """All children of one metric by their label values, made at start. A value outside its closed set counts as `_other`."""

    def __init__(self, metric: _Child, *closed_sets: Iterable[str]) -> None:
        super().__init__()
        for values in product(*closed_sets):
            self[values] = metric.labels(*values)
        self._metric = metric
        self._other = (OTHER,) * len(closed_sets)

    def __missing__(self, key: tuple[str | None, ...]) -> _Child:
        return self._metric.labels(*self._other)


class _Line(msgspec.Struct, tag_field="event", omit_defaults=True, gc=False, kw_only=True):
    """What every log line has. ts: RFC 3339, UTC, milliseconds. A field that is None is left out."""

    ts: str
    level: LogLevel


class _ExchangeLine(_Line, tag="exchange_ended", kw_only=True):
    session: str
    lane: int
    step: int
    action: Action
    reason: Reason | None = None
    mode: str
    tool: str | None = None
    count: int | None = None
    limit: float | None = None
    pruned: int = 0
    nudge_outcome: str | None = None
    status: int
    outcome: str
    dialect: str
    model: str
    streamed: bool
    overhead_ms: float
    upstream_ms: float | None = None
    first_byte_ms: float | None = None
    upstream_calls: int
    upstream_errors: tuple[UpstreamError, ...] = ()
    input_tokens: int
    output_tokens: int
    usage_estimated: bool
    degraded: bool
    retry: bool


class _StoreChangedLine(_Line, tag="store_changed", kw_only=True):
    up: bool
    cause: str | None = None


class _StoreFailedLine(_Line, tag="store_failed", kw_only=True):
    operation: StoreOperation
    cause: str | None = None


class _UnjudgedLine(_Line, tag="unjudged_ended", kw_only=True):
    status: int
    ms: float


class Telemetry:
    """Counts and logs each event once.

    registry: see `registry_for`. models: names or globs that may become metric labels. log: takes one whole line of UTF-8 JSON, newline
    included, in one call; a line it cannot write (`OSError`) is dropped and counted. clock: epoch seconds. log_level: the least that is
    logged. later: runs a function soon, in the thread that emits; with it events are counted and logged together, which takes half the
    time each, and `settle` does it at once.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        models: Sequence[str],
        log: Callable[[bytes], object],
        clock: Callable[[], float],
        log_level: LogLevel = "info",
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        # One more series for each child, which several workers could not give anyway.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._log = log
        self._second = (0, "1970-01-01T00:00:00")  # the last one written out
        self._clock = clock
        self._emitted_at = 0.0
        self._later = later
        self._waiting: list[tuple[float, Event]] = []
        self._threshold = _LEVELS[log_level]
        self._encode = msgspec.json.Encoder().encode
        self._model_label = _labeller(models)
        self._make_judgement_metrics()
        self._make_upstream_metrics(dict.fromkeys((*models, OTHER)))
        self._make_server_metrics()

    def exchange_started(self) -> None:
        """A request on a judged route arrived."""
        self._in_flight.inc()

    def exchange_finished(self) -> None:
        """Its answer has left. Called once for each `exchange_started`, also when the exchange failed."""
        self._in_flight.dec()

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """The body and content type for /metrics. With several workers it reads files for some milliseconds: call it in a thread."""
        try:
            encode, content_type = choose_encoder(accept or "")
        except TypeError:  # a version in `accept` that is no number
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type

    def emit(self, event: Event) -> None:
        """Counts one event and logs it, with the time it has now."""
        if self._later is not None and not self._waiting:
            self._later(self.settle)
        self._waiting.append((self._clock(), event))
        if self._later is None:
            self.settle()

    def settle(self) -> None:
        """Counts and logs what was emitted and waits."""
        waiting, self._waiting = self._waiting, []
        for self._emitted_at, event in waiting:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case ExchangeEnded():
                self._count_judgement(event)
                self._count_upstream(event)
                self._log_exchange(event)
            case StoreChanged(up, cause):
                self._store_up.set(up)
                if not up:
                    self._store_outages.inc()
                self._write(_StoreChangedLine(ts=self._now(), level="info" if up else "warning", up=up, cause=cause or None))
            case StoreFailed(operation, cause):
                self._store_errors[operation,].inc()
                self._write(_StoreFailedLine(ts=self._now(), level="debug", operation=operation, cause=cause or None))
            case UnjudgedEnded(status, seconds):
                self._unjudged[f"{status // 100}xx",].inc()
                self._write(_UnjudgedLine(ts=self._now(), level="debug", status=status, ms=_ms(seconds)))
            case _:
                assert_never(event)

    def _counters(self, name: str, meaning: str, **labels: Iterable[str]) -> _Children[Counter]:
        return _Children(Counter(name, meaning, tuple(labels), registry=self._registry), *labels.values())

    def _histograms(self, name: str, meaning: str, buckets: Sequence[float]) -> _Children[Histogram]:
        histogram = Histogram(name, meaning, ("dialect", "streamed"), buckets=buckets, registry=self._registry)
        return _Children(histogram, _dialects(), _FLAGS)

    def _make_judgement_metrics(self) -> None:
        counters = self._counters
        self._requests = counters(
            "lastcall_requests", "Requests on judged routes, by what was done.", dialect=_dialects(), action=Action, outcome=Outcome
        )
        self._interventions = {
            Action.NUDGE: counters("lastcall_nudges", "Requests that were nudged.", reason=Reason, mode=Mode),
            Action.STOP: counters("lastcall_stops", "Requests that were stopped.", reason=Reason, mode=Mode),
            Action.REFUSE: counters("lastcall_refusals", "Requests that were refused.", reason=Reason, mode=Mode),
        }
        rungs = (Action.NUDGE, Action.STOP)
        self._findings = counters("lastcall_findings", "Rungs that detectors reached.", detector=Reason, action=rungs, mode=Mode)
        self._nudge_outcomes = counters("lastcall_nudge_outcomes", "How nudged runs ended.", outcome=NudgeOutcome)
        self._pruned = counters("lastcall_pruned_calls", "Tool calls left out of answers that were otherwise delivered.", reason=Reason)
        self._unjudged = counters("lastcall_unjudged_requests", "Requests forwarded without judgement.", status=_STATUS_CLASSES)

    def _make_upstream_metrics(self, models: Iterable[str]) -> None:
        self._tokens = self._counters(
            "lastcall_tokens", "Tokens spent upstream.", direction=("input", "output"), model=models, estimated=_FLAGS
        )
        self._upstream_calls = Counter("lastcall_upstream_calls", "Model calls sent upstream.", registry=self._registry)
        self._upstream_errors = self._counters("lastcall_upstream_errors", "Model calls without a usable answer.", kind=UpstreamError)
        self._overhead = self._histograms(
            "lastcall_overhead_seconds", "Time Lastcall added before the upstream was asked.", _OVERHEAD_BUCKETS
        )
        self._upstream = self._histograms("lastcall_upstream_seconds", "Time from asking the upstream to its last byte.", _UPSTREAM_BUCKETS)
        self._first_byte = self._histograms(
            "lastcall_first_byte_seconds", "Time from a request to the first byte of its answer.", _FIRST_BYTE_BUCKETS
        )

    def _make_server_metrics(self) -> None:
        registry = self._registry
        self._degraded = Counter("lastcall_degraded", "Exchanges judged from history alone, without the store.", registry=registry)
        self._store_outages = Counter("lastcall_store_outages", "Times the store went away.", registry=registry)
        self._store_errors = self._counters("lastcall_store_errors", "Store calls that failed.", operation=StoreOperation)
        self._lines_dropped = Counter("lastcall_log_lines_dropped", "Log lines that could not be written.", registry=registry)
        # Among several workers: the sum of those alive; 0 as soon as one of them has lost the store; the same everywhere.
        self._in_flight = Gauge("lastcall_in_flight", "Exchanges under way.", multiprocess_mode="livesum", registry=registry)
        self._store_up = Gauge("lastcall_store_up", "1 while the store answers, else 0.", multiprocess_mode="livemin", registry=registry)
        build = Gauge("lastcall_build_info", "1, with the version as label.", ("version",), multiprocess_mode="livemax", registry=registry)
        self._store_up.set(1)
        build.labels(__version__).set(1)

    def _count_judgement(self, event: ExchangeEnded) -> None:
        """In observe mode a decision is counted under its mode, but the request as what it was: allowed."""
        action, mode = event.action, event.mode
        done = Action.ALLOW if mode == Mode.OBSERVE else action
        self._requests[event.dialect, done, event.outcome].inc()
        if action != Action.ALLOW:
            self._interventions[action][event.reason, mode].inc()
        for finding in event.findings:
            self._findings[finding.reason, finding.action, mode].inc()
        if event.nudge_ended is not None:
            self._nudge_outcomes[event.nudge_ended.outcome,].inc()
        if event.pruned:
            self._pruned[event.reason,].inc(event.pruned)
        if event.degraded:
            self._degraded.inc()

    def _count_upstream(self, event: ExchangeEnded) -> None:
        shape = (event.dialect, _FLAGS[event.streamed])
        self._overhead[shape].observe(event.overhead_seconds)
        if event.first_byte_seconds is not None:
            self._first_byte[shape].observe(event.first_byte_seconds)
        if event.upstream_calls:
            self._upstream_calls.inc(event.upstream_calls)
            self._upstream[shape].observe(event.upstream_seconds)
        for error in event.upstream_errors:
            self._upstream_errors[error,].inc()
        model, estimated = self._model_label(event.model[:_MAX_TEXT]), _FLAGS[event.usage_estimated]
        if event.input_tokens > 0:
            self._tokens["input", model, estimated].inc(event.input_tokens)
        if event.output_tokens > 0:
            self._tokens["output", model, estimated].inc(event.output_tokens)

    def _log_exchange(self, event: ExchangeEnded) -> None:
        level = _level(event)
        if not self._logs(level):
            return
        line = _ExchangeLine(
            ts=self._now(),
            level=level,
            session=_printable(event.session),
            lane=event.lane,
            step=event.step,
            action=event.action,
            reason=event.reason,
            mode=event.mode,
            tool=None if event.tool is None else _printable(event.tool),
            count=event.count,
            limit=event.limit,
            pruned=event.pruned,
            nudge_outcome=None if event.nudge_ended is None else event.nudge_ended.outcome,
            status=event.status,
            outcome=event.outcome,
            dialect=event.dialect,
            model=_printable(event.model),
            streamed=event.streamed,
            overhead_ms=_ms(event.overhead_seconds),
            upstream_ms=_ms(event.upstream_seconds) if event.upstream_calls else None,
            first_byte_ms=None if event.first_byte_seconds is None else _ms(event.first_byte_seconds),
            upstream_calls=event.upstream_calls,
            upstream_errors=event.upstream_errors,
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            usage_estimated=event.usage_estimated,
            degraded=event.degraded,
            retry=event.retry,
        )
        self._write(line)

    def _logs(self, level: LogLevel) -> bool:
        return _LEVELS[level] >= self._threshold

    def _write(self, line: _Line) -> None:
        """A log that is full or closed must not end the exchange it was to tell about."""
        if not self._logs(line.level):
            return
        try:
            self._log(self._encode(line) + b"\n")
        except OSError:
            self._lines_dropped.inc()

    def _now(self) -> str:
        second, milliseconds = divmod(int(self._emitted_at * 1000), 1000)
        if second != self._second[0]:
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second[1]}.{milliseconds:03d}Z"


def _dialects() -> tuple[str, ...]:
    return tuple(dialect.name for dialect in DIALECTS.values())


def _level(event: ExchangeEnded) -> LogLevel:
    if event.outcome == Outcome.FAILED:
        return "error"
    intervened = event.action in (Action.STOP, Action.REFUSE)
    return "warning" if intervened or event.upstream_errors or event.outcome == Outcome.UPSTREAM_ERROR else "info"


def _labeller(models: Sequence[str]) -> Callable[[str], str]:
    """Maps a model's name to the configured entry that stands for it: its own, else the first glob that matches, else `_other`."""
    exact = frozenset(models)

    @lru_cache(_MAX_MODELS_REMEMBERED)
    def label(model: str) -> str:
        return model if model in exact else next((glob for glob in models if fnmatchcase(model, glob)), OTHER)

    return label


def _printable(text: str) -> str:
    """At most 200 characters that can neither end a line nor steer a terminal: control, format and surrogate characters become U+FFFD."""
    text = text[:_MAX_TEXT]
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's process
    return True
