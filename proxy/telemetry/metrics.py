"""Every metric that Lastcall exports: name, type, labels with their closed sets of values, buckets, help text. The one table.

Plain declarations: `Telemetry` makes the instruments from them, tests hold documentation, dashboards and alerting rules to them. A label
takes its values from an enum, a tuple, or what the configuration names (`Known`), never from a client. docs/metrics.md tells operators what
each metric means and maps the names to OpenTelemetry's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from proxy import __version__
from proxy.config import UNITS
from proxy.dialects import DIALECTS
from proxy.events import NudgeOutcome, OperatorAction, Outcome, ReloadOutcome, StoreOperation, UpstreamError
from proxy.models import BUDGET_REASONS, Action, Reason
from proxy.policy import Mode
from proxy.windows import Per

OTHER = "_other"
"""Label value of everything outside a closed set."""

FLAGS = ("false", "true")
"""Label values of a truth value, in the order of `bool`."""


class Known(StrEnum):
    """Closed sets of label values that the configuration settles. teams: with "" for callers that are no team's."""

    MODELS = "models"
    TEAMS = "teams"
    TOOLS = "tools"


Values = Known | tuple[str, ...]


Workers = Literal["all", "livesum", "livemin", "livemax", "livemostrecent"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is exposed.

    name: with its suffix (`_total` of a counter, the unit). labels: name and values of each. buckets: upper bounds of a histogram, in the
    unit of its name. workers: how a gauge of several processes is put together, as prometheus_client calls it. configured: there are only
    the series that the configuration has a use for, and not every combination of label values.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[tuple[str, Values], ...] = ()
    buckets: tuple[float, ...] = ()
    workers: Workers = "all"
    configured: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.labels)

    def label_values(self, known: Mapping[Known, Sequence[str]]) -> list[Sequence[str]]:
        """The closed set of each label, in order. known: those that the configuration settles."""
        return [known[values] if isinstance(values, Known) else values for _, values in self.labels]


def _labels(labels: Mapping[str, Known | Iterable[str]]) -> tuple[tuple[str, Values], ...]:
    return tuple((name, values if isinstance(values, Known) else tuple(values)) for name, values in labels.items())


def _counter(name: str, meaning: str, **labels: Known | Iterable[str]) -> Metric:
    return Metric(name, "counter", meaning, _labels(labels))


def _gauge(name: str, meaning: str, workers: Workers, **labels: Known | Iterable[str]) -> Metric:
    return Metric(name, "gauge", meaning, _labels(labels), workers=workers)


def _of_budgets(name: str, meaning: str) -> Metric:
    """Of each budget of each team; every worker looks for itself, and the newest look counts."""
    labels = _labels({"team": Known.TEAMS, "unit": UNITS, "per": Per})
    return Metric(name, "gauge", meaning, labels, workers="livemostrecent", configured=True)


def _seconds(name: str, meaning: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", meaning, _labels({"dialect": _DIALECTS, "streamed": FLAGS}), buckets)


_DIALECTS = tuple(dialect.name for dialect in DIALECTS.values())
_RUNGS = (Action.NUDGE, Action.STOP)
_STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

# What happened to requests
REQUESTS = _counter(
    "lastcall_requests_total",
    "Requests on judged routes, by what was done.",
    dialect=_DIALECTS,
    action=Action,
    outcome=Outcome,
    team=Known.TEAMS,
)
FINDINGS = _counter("lastcall_findings_total", "Rungs that detectors reached.", detector=Reason, action=_RUNGS, mode=Mode, team=Known.TEAMS)
TOOLS = _counter("lastcall_tools_total", "Nudges and stops by detectors, by the tool called.", tool=Known.TOOLS, action=_RUNGS, mode=Mode)
NUDGES = _counter("lastcall_nudges_total", "Requests that were nudged.", reason=Reason, mode=Mode, team=Known.TEAMS)
NUDGE_OUTCOMES = _counter("lastcall_nudge_outcomes_total", "How runs that reached a nudge ended.", outcome=NudgeOutcome, nudged=FLAGS)
STOPS = _counter("lastcall_stops_total", "Requests that were stopped.", reason=Reason, mode=Mode, team=Known.TEAMS)
REFUSALS = _counter("lastcall_refusals_total", "Requests that were refused.", reason=Reason, mode=Mode, team=Known.TEAMS)
PRUNED_CALLS = _counter(
    "lastcall_pruned_calls_total", "Tool calls left out of answers that were otherwise delivered.", reason=Reason, mode=Mode
)
UNJUDGED_REQUESTS = _counter(
    "lastcall_unjudged_requests_total", "Requests forwarded without judgement.", status=_STATUS_CLASSES, team=Known.TEAMS
)
IN_FLIGHT = _gauge("lastcall_in_flight", "Exchanges under way.", "livesum")

# What it cost
TOKENS = _counter(
    "lastcall_tokens_total",
    "Tokens spent upstream.",
    direction=("input", "output"),
    model=Known.MODELS,
    estimated=FLAGS,
    team=Known.TEAMS,
)
CACHED_TOKENS = _counter(
    "lastcall_cached_tokens_total", "Input tokens that providers read from their cache.", model=Known.MODELS, team=Known.TEAMS
)
AVOIDED_CALLS = _counter("lastcall_avoided_calls_total", "Requests answered without the upstream.", reason=Reason, team=Known.TEAMS)
AVOIDED_TOKENS = _counter(
    "lastcall_avoided_tokens_total", "Input tokens that these would have cost, from their size.", reason=Reason, team=Known.TEAMS
)
COST = _counter("lastcall_cost_dollars_total", "What model calls cost by the price list.", model=Known.MODELS, team=Known.TEAMS)
BUDGET_NOTICES = _counter(
    "lastcall_budget_notices_total", "Models told that most of a budget is used.", reason=BUDGET_REASONS, mode=Mode, team=Known.TEAMS
)
TEAM_BUDGET_LIMIT = _of_budgets("lastcall_team_budget_limit", "Budgets of teams in force, in their units.")
TEAM_BUDGET_SPENT = _of_budgets("lastcall_team_budget_spent", "What of them is spent in the window of now.")
TEAM_BUDGET_RESETS = _of_budgets("lastcall_team_budget_resets_timestamp_seconds", "When that window ends, Unix time.")
UPSTREAM_CALLS = _counter("lastcall_upstream_calls_total", "Model calls sent upstream.")
UPSTREAM_ERRORS = _counter("lastcall_upstream_errors_total", "Model calls without a usable answer.", kind=UpstreamError)

# How long it took
OVERHEAD = _seconds(
    "lastcall_overhead_seconds",
    "Time Lastcall added before the upstream was asked.",
    (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0),
)
UPSTREAM = _seconds(
    "lastcall_upstream_seconds",
    "Time from asking the upstream to its last byte.",
    (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
)
FIRST_BYTE = _seconds(
    "lastcall_first_byte_seconds",
    "Time from a request to the first byte of its answer.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
)

# The server itself. Among several workers a gauge is the sum of those alive; 0 as soon as one of them says so; the same everywhere.
STORE_UP = _gauge("lastcall_store_up", "1 while the store answers, else 0.", "livemin")
STORE_OUTAGES = _counter("lastcall_store_outages_total", "Times the store went away.")
STORE_ERRORS = _counter("lastcall_store_errors_total", "Store calls that failed.", operation=StoreOperation)
DEGRADED = _counter("lastcall_degraded_total", "Exchanges judged from history alone, without the store.")
CONFIG_RELOADS = _counter("lastcall_config_reloads_total", "Times the configuration was read again, by each worker.", outcome=ReloadOutcome)
WORKERS_HUNG = _counter("lastcall_workers_hung_total", "Workers that ended themselves because they had stopped working.")
LOG_LINES_DROPPED = _counter("lastcall_log_lines_dropped_total", "Log lines that could not be written.")
OPERATOR_ACTIONS = _counter("lastcall_operator_actions_total", "Changes by operators.", action=OperatorAction)
BUILD_INFO = _gauge("lastcall_build_info", "1, with the version as label.", "livemax", version=(__version__,))

TABLE = tuple(declared for declared in globals().copy().values() if isinstance(declared, Metric))
"""All of them, in the order of this page."""
