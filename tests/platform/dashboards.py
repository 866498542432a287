"""What is asked of a dashboard: that Grafana can show it anywhere, that every query means something, that a reader is told what to do."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from grafana.generate import COLUMNS, thresholds
from tests.platform.queries import TARGET_LABELS, Queries

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
RULES = ROOT / "grafana/rules/lastcall.rules.yaml"
UNITS = {"short", "s", "percentunit", "reqps", "bytes", "none", "currencyUSD"}

Json = dict[str, Any]


def rules() -> list[Json]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def recorded() -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def panels(dashboard: Json) -> list[Json]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def faults(dashboard: Json, queries: Queries) -> list[str]:
    """Everything that is wrong with a dashboard."""
    named = [*_head(dashboard), *_places(dashboard["panels"]), *_variables(dashboard, queries)]
    for panel in panels(dashboard):
        named += [f"{panel.get('title')}: {fault}" for fault in _panel(panel, queries)]
    for annotation in dashboard["annotations"]["list"]:
        wrong = queries.faults(annotation["expr"], TARGET_LABELS, annotation["textFormat"])
        named += [f"annotation {annotation['name']}: {fault}" for fault in [*wrong, *_datasource(annotation)]]
    return named


def _head(dashboard: Json) -> Iterator[str]:
    if not re.fullmatch("lastcall-[a-z-]{1,31}", dashboard["uid"]):
        yield f"uid {dashboard['uid']}"
    if dashboard["id"] is not None or not 39 <= dashboard["schemaVersion"] <= 41:
        yield "an id of its own, or a schema that not every Grafana reads"
    if not dashboard["title"].startswith("Lastcall / ") or "lastcall" not in dashboard["tags"]:
        yield "title or tags"
    if "__inputs" in dashboard or "DS_PROMETHEUS" in str(dashboard):
        yield "an input that provisioning does not fill in"
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    if names[:4] != ["datasource", "namespace", "job", "instance"]:
        yield f"variables {names}"


def _variables(dashboard: Json, queries: Queries) -> Iterator[str]:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        wrong = queries.faults(found[1], legend=f"{{{{{found[2]}}}}}") if found else ["is no label_values()"]
        wrong = [fault for fault in wrong if not fault.endswith("to be looked at over time")]  # it looks at no value
        if variable["refresh"] != 2 or variable["allValue"] != ".*":
            wrong.append("does not follow the time range, or `All` leaves series out")
        yield from (f"variable {variable['name']}: {fault}" for fault in [*wrong, *_datasource(variable)])


def _places(every: list[Json]) -> Iterator[str]:
    if repeated := [number for number, times in Counter(panel["id"] for panel in every).items() if times > 1]:
        yield f"ids {repeated} are given twice"
    for panel in every:
        place = panel["gridPos"]
        if place["x"] + place["w"] > COLUMNS:
            yield f"{panel['title']} is wider than the page"
    for one, other in combinations(every, 2):
        a, b = one["gridPos"], other["gridPos"]
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]:
            yield f"{one['title']} lies over {other['title']}"


def _panel(panel: Json, queries: Queries) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    if not panel.get("title"):
        yield "no title"
    if len(panel.get("description", "")) < 40 or panel["description"][-1] not in ".?":
        yield "no description that says what to do"
    if defaults.get("unit") not in UNITS:
        yield f"unit {defaults.get('unit')!r}"
    if not panel["targets"]:
        yield "no query"
    yield from _datasource(panel)
    for target in panel["targets"]:
        yield from _datasource(target)
        yield from queries.faults(target["expr"], TARGET_LABELS, target["legendFormat"])
        if ranges := set(re.findall(r"\[([^\]]+)\]", target["expr"])) - {"$__rate_interval", "$__range", "$__range:"}:
            yield f"a fixed time range {ranges}"
    if panel["type"] == "timeseries" and any(not target["legendFormat"] for target in panel["targets"]):
        yield "a series without a legend"
    yield from _limit(defaults["thresholds"]["steps"])


def _limit(steps: list[Json]) -> Iterator[str]:
    """A coloured threshold is that of an alert."""
    limits = {limit for _, limit in thresholds().values()}
    for step in steps[1:]:
        if step["value"] not in limits:
            yield f"no alert has the threshold {step['value']}"


def _datasource(holder: Json) -> Iterator[str]:
    if holder.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
        yield "another data source than the chosen one"
