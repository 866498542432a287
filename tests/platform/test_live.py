"""Every query of every dashboard has an answer from a Prometheus that scraped real proxies after real work."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.platform.dashboards import DASHBOARDS, RULES, panels, recorded
from tests.platform.prometheus import Prometheus, Series, prometheus
from tests.platform.workload import fleet

SECONDS = 20.0
AGENTS = 6
VARIABLES = {"$__rate_interval": "5s", "$__range": "60s", "$namespace": ".*", "$job": ".*", "$instance": ".*", "$team": ".*"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Scraped:
    """What there is to ask, from start to end (epoch seconds)."""

    prometheus: Prometheus
    start: float
    end: float

    def answer(self, target: Json) -> list[Series]:
        if target.get("instant"):
            return self.prometheus.at(target["expr"], self.end)
        return self.prometheus.over(target["expr"], self.start, self.end, 1.0)


@pytest.fixture(scope="module")
def scraped() -> Iterator[Scraped]:
    """A Prometheus that watched a fleet of agents work, the loss of the store included."""

    async def work(started: list[Any]) -> None:
        async with fleet(seed=7, pace=0.02, tokens=5_000) as running:
            server = prometheus({"lastcall": running.targets}, RULES, VARIABLES)
            started.append(server)
            started.append(server.__enter__())
            started[1].until("count(lastcall_build_info) == 2")
            await running.work(SECONDS, AGENTS)
            await asyncio.to_thread(
                started[1].until, "sum(increase(lastcall_store_outages_total[60s])) > 0 and min(lastcall_store_up) == 1"
            )

    started: list[Any] = []
    start = time.time()
    try:
        asyncio.run(work(started))
        yield Scraped(started[1], start, time.time())
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
def test_a_panel_has_data(scraped: Scraped, target: Json) -> None:
    """Finite numbers, and every label that its legend names."""
    series = scraped.answer(target)

    assert series, f"no data for {target['expr']}"
    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(one.labels.get(label) for one in series), f"no label {label} in {series[0].labels}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_and_annotations_have_data(scraped: Scraped, path: Any) -> None:
    """There is something to choose, and something to mark."""
    dashboard = json.loads(path.read_text())
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert scraped.prometheus.values_of(variable["query"]["query"], scraped.start), variable["name"]
    for annotation in dashboard["annotations"]["list"]:
        assert scraped.answer(annotation), annotation["name"]


@pytest.mark.parametrize("name", recorded())
def test_a_recorded_series_has_data(scraped: Scraped, name: str) -> None:
    """Under the labels that alerts tell people."""
    series = scraped.answer({"expr": name})

    assert {(one.labels["namespace"], one.labels["job"]) for one in series} == {("agents", "lastcall")}


def test_every_rule_is_evaluated_without_an_error(scraped: Scraped) -> None:
    """As Prometheus itself says."""
    groups = scraped.prometheus.get("rules")["groups"]

    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []
    assert sum(len(group["rules"]) for group in groups) > len(recorded())
