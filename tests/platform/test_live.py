"""Every query of every dashboard has an answer from a Prometheus that scraped real proxies after real work."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.platform.dashboards import DASHBOARDS, RULES, panels, recorded
from tests.platform.prometheus import Window, prometheus
from tests.platform.workload import fleet

SECONDS = 20.0
AGENTS = 6
VARIABLES = {"$__rate_interval": "5s", "$__range": "60s", "$namespace": ".*", "$job": ".*", "$instance": ".*", "$team": ".*"}

Json = dict[str, Any]


# The store was away and is there again, and what is read from it for each look is told again.
BACK = (
    "sum(increase(lastcall_store_outages_total[60s])) > 0 and min(lastcall_store_up) == 1"
    " and count(lastcall_team_budget_limit) > 0 and count(lastcall_team_budget_spent) > 0"
)


@pytest.fixture(scope="module")
def scraped() -> Iterator[Window]:
    """A Prometheus that watched a fleet of agents work, the loss of the store included."""

    async def work(started: list[Any]) -> float:
        async with fleet(seed=7, pace=0.02, tokens=5_000) as running:
            server = prometheus({"lastcall": running.targets}, RULES, VARIABLES)
            started.append(server)
            started.append(server.__enter__())
            started[1].until("count(lastcall_build_info) == 2")
            await running.work(SECONDS, AGENTS)
            await asyncio.to_thread(started[1].until, BACK)
            return time.time()  # while there is still something to scrape

    started: list[Any] = []
    start = time.time()
    try:
        end = asyncio.run(work(started))
        yield Window(started[1], start, end)
    finally:
        if started:
            started[0].__exit__(None, None, None)


def targets() -> list[Any]:
    return [
        pytest.param(target, id=f"{path.stem}: {panel['title']} {target['refId']}")
        for path in DASHBOARDS
        for panel in panels(json.loads(path.read_text()))
        for target in panel["targets"]
    ]


@pytest.mark.parametrize("target", targets())
def test_a_panel_has_data(scraped: Window, target: Json) -> None:
    """Finite numbers, and every label that its legend names."""
    series = scraped.series(target)

    assert series, f"no data for {target['expr']}"
    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(one.labels.get(label) for one in series), f"no label {label} in {series[0].labels}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_and_annotations_have_data(scraped: Window, path: Any) -> None:
    """There is something to choose, and something to mark."""
    dashboard = json.loads(path.read_text())
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert scraped.prometheus.values_of(variable["query"]["query"], scraped.start), variable["name"]
    for annotation in dashboard["annotations"]["list"]:
        assert scraped.series(annotation), annotation["name"]


@pytest.mark.parametrize("name", recorded())
def test_a_recorded_series_has_data(scraped: Window, name: str) -> None:
    """Under the labels that alerts tell people."""
    series = scraped.series({"expr": name})

    assert {(one.labels["namespace"], one.labels["job"]) for one in series} == {("agents", "lastcall")}


def test_every_rule_is_evaluated_without_an_error(scraped: Window) -> None:
    """As Prometheus itself says."""
    groups = scraped.prometheus.get("rules")["groups"]

    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []
    assert sum(len(group["rules"]) for group in groups) > len(recorded())
