"""PromQL held to the table of metrics: does a query speak of metrics, labels and values that exist, and what labels has its answer."""

import re
from collections.abc import Iterator, Mapping

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatchOp,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
)

from proxy.telemetry import metrics
from proxy.telemetry.metrics import Known, Metric

TARGET_LABELS = frozenset({"namespace", "job", "instance"})
"""What Prometheus adds to every series it scrapes, as far as dashboards and rules rely on it."""
PROCESS = {
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}
"""What the client library exports by itself."""
_OVER_TIME = {"rate", "increase", "irate", "resets"}
_CHOOSE = {"topk", "bottomk"}  # among series, as they are
_VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$__interval": "1m"}


class Queries:
    """Reads queries. rules: the recorded series by name, each with its expression."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        self._table = {metric.name: metric for metric in metrics.TABLE}
        self._rules = rules

    def faults(self, query: str, needs: frozenset[str] = frozenset(), legend: str = "") -> list[str]:
        """What is wrong with a query. needs: label matchers that every selector must have. legend: its `{{labels}}` must be there."""
        text = query
        for variable, value in _VARIABLES.items():
            text = text.replace(variable, value)
        try:
            tree = parse(text)
        except ValueError as error:
            return [f"does not parse: {error}"]
        found = list(self._selected(tree, over_time=False, needs=needs))
        try:
            labels = self.labels(tree)
        except LookupError as error:
            return [*found, str(error)]
        return found + [f"legend names the label {name}" for name in re.findall(r"\{\{(\w+)\}\}", legend) if name not in labels]

    def labels(self, tree: Expr) -> frozenset[str]:
        """The labels that the answer can have. Raises `LookupError` for one that is asked for and never there."""
        match tree:
            case AggregateExpr():
                return self._aggregated(tree)
            case Call():
                inner = frozenset[str]().union(*(self.labels(argument) for argument in tree.args))
                return inner - {"le"} if tree.func.name == "histogram_quantile" else inner
            case BinaryExpr():
                return self.labels(tree.lhs) or self.labels(tree.rhs)
            case ParenExpr() | UnaryExpr() | SubqueryExpr():
                return self.labels(tree.expr)
            case MatrixSelector():
                return self.labels(tree.vector_selector)
            case VectorSelector():
                return self._of_series(tree.name or "")
            case _:
                return frozenset()

    def _aggregated(self, tree: AggregateExpr) -> frozenset[str]:
        inner = self.labels(tree.expr)
        if str(tree.op) in _CHOOSE:
            return inner
        if tree.modifier is None:
            return frozenset()
        asked = frozenset(tree.modifier.labels)
        if tree.modifier.type == AggModifierType.Without:
            return inner - asked
        if asked - inner:
            raise LookupError(f"groups by {', '.join(sorted(asked - inner))}, which no series has")
        return asked

    def _of_series(self, name: str) -> frozenset[str]:
        if name in self._rules:
            return self.labels(parse(self._rules[name]))
        metric = self._metric(name)
        return TARGET_LABELS | (frozenset(metric.label_names) if metric else frozenset()) | ({"le"} if name.endswith("_bucket") else set())

    def _metric(self, name: str) -> Metric | None:
        return self._table.get(name) or self._table.get(re.sub("_(bucket|count|sum)$", "", name))

    def _selected(self, tree: Expr, *, over_time: bool, needs: frozenset[str]) -> Iterator[str]:
        """Faults of every selector below. over_time: it stands in a rate or its like."""
        match tree:
            case AggregateExpr() | ParenExpr() | UnaryExpr() | SubqueryExpr():
                yield from self._selected(tree.expr, over_time=over_time, needs=needs)
            case Call():
                for argument in tree.args:
                    yield from self._selected(argument, over_time=over_time or tree.func.name in _OVER_TIME, needs=needs)
            case BinaryExpr():
                yield from self._selected(tree.lhs, over_time=over_time, needs=needs)
                yield from self._selected(tree.rhs, over_time=over_time, needs=needs)
            case MatrixSelector():
                yield from self._selected(tree.vector_selector, over_time=over_time, needs=needs)
            case VectorSelector():
                yield from self._selector(tree, over_time, needs)

    def _selector(self, selector: VectorSelector, over_time: bool, needs: frozenset[str]) -> Iterator[str]:
        name, matchers = selector.name or "", selector.matchers.matchers
        if missing := needs - {matcher.name for matcher in matchers}:
            yield f"{name} is not filtered by {', '.join(sorted(missing))}"
        if name in self._rules or name in PROCESS:
            kind = PROCESS.get(name, "gauge")
        elif metric := self._metric(name):
            self.used.add(metric.name)
            kind = "counter" if metric.kind == "histogram" else metric.kind
            yield from self._matched(metric, [(one.name, one.value) for one in matchers if one.op == MatchOp.Equal])
        else:
            yield f"no metric is called {name}"
            return
        if (kind == "counter") != over_time:
            yield f"{name} is a {kind}, " + ("not to be rated" if over_time else "to be looked at over time")

    def _matched(self, metric: Metric, pairs: list[tuple[str, str]]) -> Iterator[str]:
        declared = dict(metric.labels)
        for label, value in pairs:
            if label in TARGET_LABELS:
                continue
            if label not in declared:
                yield f"{metric.name} has no label {label}"
            elif not isinstance(values := declared[label], Known) and value not in values:
                yield f"{label} of {metric.name} is never {value!r}"
