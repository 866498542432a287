"""The dashboards as they are shipped: made from their sources, without a fault, and telling of every metric; planted faults are found."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grafana.generate import BUDGETS, generated, thresholds
from proxy.models import BUDGET_REASONS
from proxy.telemetry import metrics
from tests.platform.dashboards import DASHBOARDS, faults, panels, recorded, rules
from tests.platform.queries import Queries

NOT_SHOWN = {"lastcall_operator_actions_total": "operators know what they did, and the log says who"}
"""Metrics that no dashboard and no rule needs, with the reason."""
NOT_DRAWN = {
    "LastcallAbsent": "there is nothing to draw it on when nothing is scraped",
    "LastcallStoreFlaps": "it counts an hour, and the panel the time shown",
    "LastcallVersionsMixed": "the panel of instances names the releases",
}
"""Alerts whose threshold is on no panel, with the reason."""


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_the_dashboards_are_made_from_their_sources() -> None:
    """`python grafana/generate.py` would change nothing."""
    assert {path.name: path.read_text() for path in DASHBOARDS} == generated()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_no_fault(path: Path) -> None:
    """Each query parses and speaks of metrics and labels that exist; each panel says what to do."""
    assert faults(read(path), Queries(recorded())) == []


def test_every_metric_is_shown_or_alerted_on() -> None:
    """Or stands on the list of those that need not be, with a reason."""
    queries = Queries(recorded())
    for path in DASHBOARDS:
        faults(read(path), queries)
    for rule in rules():
        assert queries.faults(rule["expr"]) == []

    assert queries.used.isdisjoint(NOT_SHOWN)
    assert queries.used | NOT_SHOWN.keys() == {metric.name for metric in metrics.TABLE}


def test_every_alert_is_drawn_where_it_is_looked_for() -> None:
    """At its threshold, or not for a reason that is stated."""
    drawn = {
        step["value"]
        for path in DASHBOARDS
        for panel in panels(read(path))
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]
    }
    limits = thresholds()

    assert limits.keys() == {rule["alert"] for rule in rules() if "alert" in rule}
    assert {alert for alert, (_, limit) in limits.items() if limit not in drawn} <= NOT_DRAWN.keys() <= limits.keys()


def test_the_reasons_of_budgets_are_those_that_there_are() -> None:
    """A new kind of budget belongs on the dashboard of budgets."""
    assert BUDGETS.split("|") == list(BUDGET_REASONS)


def test_uids_are_told_apart() -> None:
    """Grafana would replace one by the other."""
    uids = [read(path)["uid"] for path in DASHBOARDS]

    assert len(set(uids)) == len(uids) >= 2


Change = Callable[[dict[str, Any]], object]


def first(dashboard: dict[str, Any]) -> dict[str, Any]:
    return panels(dashboard)[0]


def query(text: str) -> Change:
    return lambda dashboard: first(dashboard)["targets"][0].update(expr=text)


AT = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"'


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (query(f"sum(rate(lastcall_stopped_total{{{AT}}}[$__rate_interval]))"), "no metric is called lastcall_stopped_total"),
        (query(f"sum by (tool) (rate(lastcall_stops_total{{{AT}}}[$__rate_interval]))"), "groups by tool, which no series has"),
        (query(f'sum(rate(lastcall_stops_total{{{AT}, kind="x"}}[$__rate_interval]))'), "lastcall_stops_total has no label kind"),
        (query(f'sum(rate(lastcall_stops_total{{{AT}, mode="on"}}[$__rate_interval]))'), "mode of lastcall_stops_total is never 'on'"),
        (query("sum(rate(lastcall_stops_total[$__rate_interval]))"), "is not filtered by instance, job, namespace"),
        (query(f"sum(lastcall_stops_total{{{AT}}})"), "is a counter, to be looked at over time"),
        (query(f"sum(rate(lastcall_in_flight{{{AT}}}[$__rate_interval]))"), "is a gauge, not to be rated"),
        (query(f"sum(rate(lastcall_stops_total{{{AT}}}[5m]))"), "a fixed time range"),
        (query(f"sum(rate(lastcall_stops_total{{{AT}}}[$__rate_interval])"), "does not parse"),
        (lambda d: first(d)["targets"][0].update(legendFormat="{{tool}}"), "legend names the label tool"),
        (lambda d: first(d)["fieldConfig"]["defaults"].update(unit=""), "unit ''"),
        (lambda d: first(d).update(description="Stops."), "no description"),
        (lambda d: first(d).update(datasource={"type": "prometheus", "uid": "P1"}), "another data source"),
        (lambda d: first(d)["gridPos"].update(w=20), "lies over"),
        (lambda d: panels(d)[1].update(id=first(d)["id"]), "are given twice"),
        (lambda d: d["templating"]["list"].pop(2), "variables"),
        (lambda d: d["templating"]["list"][1]["query"].update(query="label_values(lastcall_info, namespace)"), "no metric is called"),
        (lambda d: d["annotations"]["list"][0].update(textFormat="{{tool}}"), "legend names the label tool"),
        (lambda d: first(d)["fieldConfig"]["defaults"]["thresholds"]["steps"].append({"color": "red", "value": 0.42}), "no alert has"),
        (lambda d: d.update(uid="Loops"), "uid Loops"),
    ],
)
def test_a_planted_fault_is_found(change: Change, fault: str) -> None:
    """Each kind of slip that would show as an empty panel, or mislead."""
    dashboard = copy.deepcopy(read(DASHBOARDS[0]))
    change(dashboard)

    assert any(fault in found for found in faults(dashboard, Queries(recorded()))), faults(dashboard, Queries(recorded()))
