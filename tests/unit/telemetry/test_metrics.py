"""The table of metrics: what it declares is what is exported and what the documentation says."""

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from proxy.config import UNITS
from proxy.events import BudgetSeen, BudgetsSeen
from proxy.telemetry import metrics
from proxy.windows import Per
from tests.counted import MODELS, TOOLS, Seen, after, families, spelled

ROOT = Path(__file__).parents[3]


TEAMS = ("red", "blue")
BUDGETS = BudgetsSeen(tuple(BudgetSeen(team, unit, per, 9, 5, 1e9) for team in TEAMS for unit in UNITS for per in Per))
KNOWN = {
    metrics.Known.MODELS: (*MODELS, metrics.OTHER),
    metrics.Known.TEAMS: ("", *TEAMS),
    metrics.Known.TOOLS: (*TOOLS, metrics.OTHER),
}


def test_what_is_declared_is_what_is_exported() -> None:
    """Every metric of the table, with every combination of its label values from the start, and no other."""
    exported = {spelled(series) for series in Seen(teams=TEAMS).at_start}
    declared = set()
    for metric in metrics.TABLE:
        if metric.configured:
            continue
        histogram = metric.kind == "histogram"
        names = [metric.name + suffix for suffix in ("_bucket", "_count", "_sum")] if histogram else [metric.name]
        bounds = [f"{float(bound)}" for bound in metric.buckets] + ["+Inf"]
        for values, name in product(product(*metric.label_values(KNOWN)), names):
            labels = list(zip(metric.label_names, values, strict=True))
            for le in [[("le", bound)] for bound in bounds] if name.endswith("_bucket") else [[]]:
                declared.add(spelled((name, frozenset(labels + le))))

    assert exported == declared


def test_series_of_budgets_are_those_that_teams_have() -> None:
    """And not every combination of units and windows."""
    seen = after(BUDGETS, teams=TEAMS)
    names = {metric.name.removeprefix("lastcall_") for metric in metrics.TABLE if metric.configured}

    assert names == {"team_budget_limit", "team_budget_spent", "team_budget_resets_timestamp_seconds"}
    assert {spelled(series) for series in seen.samples().keys() - seen.at_start.keys()} == {
        f"{name}{{per={per},team={team},unit={unit}}}" for name in names for team in TEAMS for unit in UNITS for per in Per
    }


def test_every_constant_is_in_the_table_once() -> None:
    """The page is the table: nobody has to add a name to a second list."""
    assert len({metric.name for metric in metrics.TABLE}) == len(metrics.TABLE)
    assert metrics.REQUESTS in metrics.TABLE


def test_names_follow_the_prometheus_rules() -> None:
    """Prefix, snake case, counters end in _total, durations in seconds, everything explained."""
    text = after(BUDGETS).telemetry.exposition(None)[0].decode()
    for family in families(text):
        assert re.fullmatch("lastcall(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert (family.type == "histogram") == ("_seconds" in sample.name.removesuffix("_timestamp_seconds"))
            assert all(re.fullmatch("[a-z]+", label) for label in sample.labels)


def test_the_documentation_lists_every_metric_with_its_labels() -> None:
    """docs/metrics.md and the exposition name the same metrics, types, labels and, where a row lists them, label values."""
    listed_elsewhere = {"reason", "detector", "model", "version", "team", "tool"}

    def facts(kind: str, labels: Iterable[tuple[str, str]]) -> tuple[str, set[tuple[str, str]]]:
        return kind, {(label, "" if label in listed_elsewhere else value) for label, value in labels if label != "le"}

    rows = re.findall(r"^\| `(lastcall_\w+)` \| (\w+) \| (.*?) \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    documented = {
        name: facts(kind, [(label, value) for label, values in re.findall(r"`(\w+)`: ([^;]*)", cell) for value in values.split(", ")])
        for name, kind, cell in rows
    }
    actual = {
        family.name + ("_total" if family.type == "counter" else ""): facts(
            family.type, [pair for sample in family.samples for pair in sample.labels.items()]
        )
        for family in families(after(BUDGETS).telemetry.exposition(None)[0].decode())
    }
    assert documented == actual


def test_the_table_of_opentelemetry_names_speaks_of_metrics_that_exist() -> None:
    """With label values that they have."""
    section = (ROOT / "docs/metrics.md").read_text().partition("## Names in OpenTelemetry")[2].partition("\n## ")[0]
    mapped = re.findall(r"^\| `(lastcall_\w+)(?:\{(\w+)(?:=\"(\w+)\")?\})?`", section, re.MULTILINE)
    table = {metric.name: metric for metric in metrics.TABLE}

    assert mapped
    for name, label, value in mapped:
        values = dict(zip(table[name].label_names, table[name].label_values(KNOWN), strict=True))
        assert not label or label in values
        assert not value or value in values[label]
