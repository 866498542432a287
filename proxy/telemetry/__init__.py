"""Every metric and every log line, made from events: the one door to prometheus_client.

Nothing else counts or logs. `metrics` declares what is counted, `lines` what is logged, `shared` puts several workers together. Labels
come from closed sets, so that the number of series is fixed at start; what a client wrote (session, tool, model) appears in log lines
only, cut and made printable.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product, repeat
from typing import TypeVar, assert_never

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

from proxy import __version__
from proxy.events import (
    BudgetSeen,
    BudgetsSeen,
    ConfigReloaded,
    Event,
    ExchangeEnded,
    OperatorActed,
    Outcome,
    StoreChanged,
    StoreFailed,
    UnjudgedEnded,
)
from proxy.globs import entry_for
from proxy.models import Action
from proxy.policy import Mode
from proxy.telemetry import metrics
from proxy.telemetry.lines import (
    MAX_TEXT,
    ConfigReloadedLine,
    Line,
    LogLevel,
    OperatorLine,
    StoreChangedLine,
    StoreFailedLine,
    UnjudgedLine,
    WorkerHungLine,
    exchange_line,
    milliseconds,
    printable,
)
from proxy.telemetry.metrics import FLAGS, OTHER, Known, Metric
from proxy.telemetry.shared import DIRECTORY_VARIABLE, Supervised, exposition, registry_for

__all__ = ["DIRECTORY_VARIABLE", "OTHER", "LogLevel", "Supervised", "Telemetry", "registry_for"]

_LEVELS: dict[LogLevel, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_TOGETHER = 16  # events that are taken at once: too few for a request to notice
_THOUSANDTHS = tuple([f".{number:03d}Z" for number in range(1000)])
_MAX_NAMES_REMEMBERED = 1024
_INTERVENED = (Action.STOP, Action.REFUSE)  # looking a member of an enum up takes longer than counting by it
_ALLOW, _OBSERVE = Action.ALLOW, Mode.OBSERVE
_FAILED, _UPSTREAM_ERROR = Outcome.FAILED, Outcome.UPSTREAM_ERROR

_Child = TypeVar("_Child", bound=MetricWrapperBase)


class _Children(dict[tuple[str | None, ...], _Child]):
    """All children of one metric by their label values, made at start. A value outside its closed set counts as `_other`."""

    def __init__(self, metric: _Child, *closed_sets: Iterable[str]) -> None:
        super().__init__()
        self._metric = metric
        self._other = (OTHER,) * len(closed_sets)
        self.make(closed_sets)

    def make(self, closed_sets: Sequence[Iterable[str]]) -> None:
        """Makes those that there are not yet."""
        for values in product(*closed_sets):
            if values not in self:
                self[values] = self._metric.labels(*values)

    def __missing__(self, key: tuple[str | None, ...]) -> _Child:
        return self._metric.labels(*self._other)


class _Durations(Histogram):
    """A histogram that is told many durations at once: alone, each takes two locks and a walk along the buckets."""

    def observe_all(self, seconds: Sequence[float]) -> None:
        places = list(map(bisect_left, repeat(self._upper_bounds), seconds))
        for place in set(places):
            self._buckets[place].inc(places.count(place))
        self._sum.inc(sum(seconds))


_Labels = tuple[str, bool, Action, str, str, str, bool]
"""What an exchange has in common with others: dialect, streamed, action, outcome, team, model, usage_estimated; as in `ExchangeEnded`."""


class _Alike:
    """What exchanges with the same labels came to: nearly all of a batch are alike, and finding their series takes longer than a sum."""

    __slots__ = ("cached_tokens", "calls", "cost", "first_byte", "input_tokens", "output_tokens", "overhead", "upstream")

    def __init__(self) -> None:
        self.calls = self.input_tokens = self.output_tokens = self.cached_tokens = self.cost = 0
        self.overhead: list[float] = []
        self.first_byte: list[float] = []
        self.upstream: list[float] = []

    def add(self, event: ExchangeEnded) -> None:
        self.overhead.append(event.overhead_seconds)
        if event.first_byte_seconds is not None:
            self.first_byte.append(event.first_byte_seconds)
        if event.upstream_calls:
            self.calls += event.upstream_calls
            self.upstream.append(event.upstream_seconds)
        self.input_tokens += event.input_tokens
        self.output_tokens += event.output_tokens
        self.cached_tokens += event.cached_tokens
        self.cost += event.cost


class Telemetry:
    """Counts and logs each event once.

    registry: see `registry_for`. models, teams, tools: names (of models and tools also globs) that may become labels. log: takes
    whole lines of UTF-8 JSON, newlines included; those it cannot write (`OSError`) are dropped and counted. clock: epoch
    seconds. log_level: the least that is logged. later: runs a function soon, in the thread that emits; with it events are counted and
    logged a few together, and instruments are told of many at once, which takes half the time each; `settle` does it all at once.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        models: Sequence[str],
        teams: Sequence[str] = (),
        tools: Sequence[str] = (),
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
        self._settles = False  # it was asked of `later`
        self._waiting: list[tuple[float, Event]] = []
        self._lines: list[bytes] = []  # of events that were taken together
        # Counted and not yet told to the instruments: their locks and checks take ten times as long as a sum.
        self._counts: defaultdict[Counter, float] = defaultdict(float)
        self._alike: dict[_Labels, _Alike] = {}
        self._under_way = 0
        self._logged = frozenset([level for level, rank in _LEVELS.items() if rank >= _LEVELS[log_level]])
        self._encode = msgspec.json.Encoder().encode
        self._closed: list[tuple[Metric, _Children[Counter] | _Children[_Durations]]] = []
        self._tool_label = _labeller(tools)
        self._tools = tuple(dict.fromkeys((*tools, OTHER)))
        self.name_labels(models, teams)
        self._make_judgement_metrics()
        self._make_upstream_metrics()
        self._make_budget_metrics()
        self._make_server_metrics()

    def name_labels(self, models: Sequence[str], teams: Sequence[str]) -> None:
        """Says which models and teams may become labels from now on. Series that there are already stay."""
        self._model_label = _labeller(models)
        self._known = {Known.MODELS: tuple(dict.fromkeys((*models, OTHER))), Known.TEAMS: ("", *teams), Known.TOOLS: self._tools}
        for metric, children in self._closed:
            children.make(metric.label_values(self._known))

    def exchange_started(self) -> None:
        """A request on a judged route arrived."""
        self._under_way += 1
        if not self._settles:
            self._settle_soon()

    def exchange_finished(self) -> None:
        """Its answer has left. Called once for each `exchange_started`, also when the exchange failed."""
        self._under_way -= 1
        if not self._settles:
            self._settle_soon()

    def worker_hung(self, seconds: float) -> None:
        """This process has done nothing for so long and is about to be ended. At once, from whichever thread is not the one that hangs."""
        self._emitted_at = self._clock()
        self._workers_hung.inc()
        self._write(WorkerHungLine(ts=self._now(), level="error", seconds=seconds))
        self._hand_out()

    def lines_lost(self, count: int) -> None:
        """So many lines that the log took could not be written after all. From any thread."""
        self._lines_dropped.inc(count)

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """The body and content type for /metrics, with everything that was emitted; see `exposition`."""
        return exposition(self._registry, accept)

    def emit(self, event: Event) -> None:
        """Counts one event and logs it, with the time it has now."""
        self._waiting.append((self._clock(), event))
        if not self._settles:
            self._settle_soon()
        if len(self._waiting) == _TOGETHER:
            self._take_waiting()

    def _settle_soon(self) -> None:
        """Where it was not asked for yet."""
        if self._later is None:
            self.settle()
        else:
            self._settles = True
            self._later(self.settle)

    def settle(self) -> None:
        """Counts and logs what was emitted and waits, and tells the instruments."""
        self._settles = False
        self._take_waiting()
        for labels, alike in self._alike.items():
            self._count_alike(labels, alike)
        self._alike.clear()
        for counter, amount in self._counts.items():
            counter.inc(amount)
        self._counts.clear()
        self._in_flight.set(self._under_way)

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            for self._emitted_at, event in waiting:
                self._take(event)
        finally:
            self._hand_out()

    def _take(self, event: Event) -> None:
        level: LogLevel
        match event:
            case ExchangeEnded():
                self._count_exchange(event)
                self._log_exchange(event)
            case StoreChanged(up, cause, node):
                (self._away.discard if up else self._away.add)(node)
                self._store_up.set(not self._away)
                if not up:
                    self._counts[self._store_outages] += 1
                level = "info" if up else "warning"
                self._write(StoreChangedLine(ts=self._now(), level=level, up=up, cause=cause or None, node=node or None))
            case StoreFailed(operation, cause):
                self._counts[self._store_errors[operation,]] += 1
                self._write(StoreFailedLine(ts=self._now(), level="debug", operation=operation, cause=cause or None))
            case UnjudgedEnded():
                self._counts[self._unjudged[f"{event.status // 100}xx", event.team]] += 1
                if event.refused is not None:
                    self._counts[self._interventions[Action.REFUSE][event.refused, event.mode, event.team]] += 1
                self._count_spent(event.model, event.usage_estimated, event.team, event)
                self._log_unjudged(event)
            case ConfigReloaded(outcome, cause):
                self._counts[self._reloads[outcome,]] += 1
                level = "warning" if cause else "info"
                self._write(ConfigReloadedLine(ts=self._now(), level=level, outcome=outcome, cause=cause or None))
            case OperatorActed():
                self._counts[self._operator_actions[event.action,]] += 1
                self._log_operator(event)
            case BudgetsSeen(budgets):
                self._gauge_budgets(budgets)
            case _:
                assert_never(event)

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.label_names, registry=self._registry)

    def _counters(self, metric: Metric) -> _Children[Counter]:
        children = _Children(self._counter(metric), *metric.label_values(self._known))
        self._closed.append((metric, children))
        return children

    def _histograms(self, metric: Metric) -> _Children[_Durations]:
        histogram = _Durations(metric.name, metric.help, metric.label_names, buckets=metric.buckets, registry=self._registry)
        children = _Children(histogram, *metric.label_values(self._known))
        self._closed.append((metric, children))
        return children

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.label_names, multiprocess_mode=metric.workers, registry=self._registry)

    def _make_judgement_metrics(self) -> None:
        self._requests = self._counters(metrics.REQUESTS)
        self._interventions = {
            Action.NUDGE: self._counters(metrics.NUDGES),
            Action.STOP: self._counters(metrics.STOPS),
            Action.REFUSE: self._counters(metrics.REFUSALS),
        }
        self._findings = self._counters(metrics.FINDINGS)
        self._by_tool = self._counters(metrics.TOOLS)
        self._nudge_outcomes = self._counters(metrics.NUDGE_OUTCOMES)
        self._pruned = self._counters(metrics.PRUNED_CALLS)
        self._unjudged = self._counters(metrics.UNJUDGED_REQUESTS)

    def _make_upstream_metrics(self) -> None:
        self._tokens = self._counters(metrics.TOKENS)
        self._cached_tokens = self._counters(metrics.CACHED_TOKENS)
        self._avoided_calls = self._counters(metrics.AVOIDED_CALLS)
        self._avoided_tokens = self._counters(metrics.AVOIDED_TOKENS)
        self._cost = self._counters(metrics.COST)
        self._budget_notices = self._counters(metrics.BUDGET_NOTICES)
        self._upstream_calls = self._counter(metrics.UPSTREAM_CALLS)
        self._upstream_errors = self._counters(metrics.UPSTREAM_ERRORS)
        self._overhead = self._histograms(metrics.OVERHEAD)
        self._upstream = self._histograms(metrics.UPSTREAM)
        self._first_byte = self._histograms(metrics.FIRST_BYTE)

    def _make_budget_metrics(self) -> None:
        self._budget_limit = self._gauge(metrics.TEAM_BUDGET_LIMIT)
        self._budget_spent = self._gauge(metrics.TEAM_BUDGET_SPENT)
        self._budget_resets = self._gauge(metrics.TEAM_BUDGET_RESETS)
        self._budgets: set[tuple[str, str, str]] = set()

    def _gauge_budgets(self, budgets: Sequence[BudgetSeen]) -> None:
        """Those that are not told (any more) are unknown: several workers could not take a series back."""
        told = {(one.team, one.unit, one.per): (one.limit, one.spent, one.resets_at) for one in budgets}
        self._budgets |= told.keys()
        for labels in self._budgets:
            limit, spent, resets_at = told.get(labels, (math.nan, math.nan, math.nan))
            self._budget_limit.labels(*labels).set(limit)
            self._budget_spent.labels(*labels).set(spent)
            self._budget_resets.labels(*labels).set(resets_at)

    def _make_server_metrics(self) -> None:
        self._degraded = self._counter(metrics.DEGRADED)
        self._store_outages = self._counter(metrics.STORE_OUTAGES)
        self._store_errors = self._counters(metrics.STORE_ERRORS)
        self._operator_actions = self._counters(metrics.OPERATOR_ACTIONS)
        self._reloads = self._counters(metrics.CONFIG_RELOADS)
        self._workers_hung = self._counter(metrics.WORKERS_HUNG)
        self._lines_dropped = self._counter(metrics.LOG_LINES_DROPPED)
        self._in_flight = self._gauge(metrics.IN_FLIGHT)
        self._store_up = self._gauge(metrics.STORE_UP)
        self._store_up.set(1)
        self._away: set[str] = set()  # of the store: a server of a cluster by its address, the whole as ""
        self._gauge(metrics.BUILD_INFO).labels(__version__).set(1)

    def _count_exchange(self, event: ExchangeEnded) -> None:
        """In observe mode a decision is counted under its mode, but the request as what it was: allowed."""
        action = _ALLOW if event.mode == _OBSERVE else event.action
        labels = event.dialect, event.streamed, action, event.outcome, event.team, event.model, event.usage_estimated
        alike = self._alike.get(labels)
        if alike is None:
            alike = self._alike[labels] = _Alike()
        alike.add(event)
        self._count_judgement(event)
        for error in event.upstream_errors:
            self._counts[self._upstream_errors[error,]] += 1
        if event.degraded:
            self._counts[self._degraded] += 1

    def _count_judgement(self, event: ExchangeEnded) -> None:
        action, mode = event.action, event.mode
        if action is not _ALLOW:
            self._counts[self._interventions[action][event.reason, mode, event.team]] += 1
            if event.tool is not None and action is not Action.REFUSE:
                self._counts[self._by_tool[self._tool_label(event.tool[:MAX_TEXT]), action, mode]] += 1
            if action in _INTERVENED and mode != _OBSERVE and not event.upstream_calls:
                self._counts[self._avoided_calls[event.reason, event.team]] += 1
                self._counts[self._avoided_tokens[event.reason, event.team]] += event.avoided_tokens
        for finding in event.findings:
            self._counts[self._findings[finding.reason, finding.action, mode, event.team]] += 1
        if event.nudge_ended is not None:
            self._counts[self._nudge_outcomes[event.nudge_ended.outcome, FLAGS[event.nudge_ended.nudged]]] += 1
        if event.warned is not None:
            self._counts[self._budget_notices[event.warned, mode, event.team]] += 1
        if event.pruned:
            self._counts[self._pruned[event.reason, mode]] += event.pruned

    def _count_alike(self, labels: _Labels, alike: _Alike) -> None:
        dialect, streamed, action, outcome, team, model, estimated = labels
        shape = dialect, FLAGS[streamed]
        self._counts[self._requests[dialect, action, outcome, team]] += len(alike.overhead)
        self._counts[self._upstream_calls] += alike.calls
        self._overhead[shape].observe_all(alike.overhead)
        self._first_byte[shape].observe_all(alike.first_byte)
        self._upstream[shape].observe_all(alike.upstream)
        self._count_spent(model, estimated, team, alike)

    def _count_spent(self, model: str, estimated: bool, team: str, spent: _Alike | UnjudgedEnded) -> None:
        label, flag = self._model_label(model[:MAX_TEXT]), FLAGS[estimated]
        if spent.input_tokens > 0:
            self._counts[self._tokens["input", label, flag, team]] += spent.input_tokens
        if spent.output_tokens > 0:
            self._counts[self._tokens["output", label, flag, team]] += spent.output_tokens
        if spent.cached_tokens > 0:
            self._counts[self._cached_tokens[label, team]] += spent.cached_tokens
        if spent.cost > 0:
            self._counts[self._cost[label, team]] += spent.cost / 1e9

    def _log_unjudged(self, event: UnjudgedEnded) -> None:
        self._write(
            UnjudgedLine(
                ts=self._now(),
                level="debug",
                status=event.status,
                ms=milliseconds(event.seconds),
                team=event.team,
                model=printable(event.model),
                reason=event.refused,
                mode=event.mode,
                input_tokens=event.input_tokens,
                output_tokens=event.output_tokens,
                cost_usd=event.cost / 1e9 or None,
                usage_estimated=event.usage_estimated,
            )
        )

    def _log_exchange(self, event: ExchangeEnded) -> None:
        level = _level(event)
        if level in self._logged:
            self._lines.append(self._encode(exchange_line(event, self._now(), level)))

    def _log_operator(self, event: OperatorActed) -> None:
        self._write(
            OperatorLine(
                ts=self._now(),
                level="warning",
                action=event.action,
                who=event.who,
                session=event.session,
                name=printable(event.name),
                team=event.team,
                change=event.change,
            )
        )

    def _write(self, line: Line) -> None:
        if line.level in self._logged:
            self._lines.append(self._encode(line))

    def _hand_out(self) -> None:
        """A log that is full or closed must not end the exchange it was to tell about."""
        lines, self._lines = self._lines, []
        try:
            if lines:
                self._log(b"\n".join([*lines, b""]))
        except OSError:
            self._lines_dropped.inc(len(lines))

    def _now(self) -> str:
        thousandths = int(self._emitted_at * 1000)
        second = thousandths // 1000
        if second != self._second[0]:
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return self._second[1] + _THOUSANDTHS[thousandths % 1000]


def _level(event: ExchangeEnded) -> LogLevel:
    if event.outcome == _FAILED:
        return "error"
    intervened = event.action in _INTERVENED
    return "warning" if intervened or event.upstream_errors or event.outcome == _UPSTREAM_ERROR else "info"


def _labeller(configured: Sequence[str]) -> Callable[[str], str]:
    """Maps the name of a model or tool to the entry that stands for it: its own, else the first glob that matches, else `_other`."""
    entries = tuple(configured)

    @lru_cache(_MAX_NAMES_REMEMBERED)
    def label(name: str) -> str:
        return entry_for(name, entries) or OTHER

    return label
