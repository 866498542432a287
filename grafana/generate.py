"""`python grafana/generate.py`: writes dashboards/*.json from source/*.yaml. Edit the sources; a test compares the two.

A source says what a reader of a dashboard sees, and this program what Grafana wants to hear. Keys of a source: `uid`, `title`,
`description`, `rows`, and `variables` beside the usual ones. A row has a `title` and `panels`, which fill its 24 columns from the left. Of
a panel:

    title, text       what it is called; what it means and what to do (both required)
    kind              stat (the newest value), series (over time), bars (totals, one bar each)
    width, height     in columns of 24, in rows (a usual one for each kind)
    unit              as Grafana spells it: short, s, percentunit (0 to 1), reqps, bytes, currencyUSD, none
    queries           each an `expr` and, where it gives several series, a `legend`; `$at` stands for the filter by the usual variables,
                      `$budgets` for the reasons that are budgets
    alert             of rules/lastcall.rules.yaml, whose threshold is drawn
    whole             a number of things: no decimals
    stacked, words    areas on each other; texts to show in place of numbers
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES = HERE / "rules" / "lastcall.rules.yaml"
AT = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"'
BUDGETS = "step_budget|token_budget|cost_budget|deadline|team_budget"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
HEIGHTS = {"stat": 4, "series": 8, "bars": 8}
JUST_ABOVE_ZERO = 1e-9  # Grafana gives a step's colour to its own value too, and none is not yet one
TYPES = {"stat": "stat", "series": "timeseries", "bars": "bargauge"}

Json = dict[str, Any]


@cache
def thresholds() -> dict[str, tuple[str, float]]:
    """Of each alert its threshold: the first comparison of its expression, and the number."""
    found = {}
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule and (first := re.search(r" (>|<|==) ([\d.]+)", rule["expr"])):
                found[rule["alert"]] = (first[1], float(first[2]) or JUST_ABOVE_ZERO)
    return found


def dashboard(source: Json) -> Json:
    """What Grafana imports. source: a file of source/, read."""
    return {
        "uid": source["uid"],
        "title": source["title"],
        "description": source["description"],
        "tags": ["lastcall", "llm"],
        "id": None,
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "links": [_links()],
        "annotations": {"list": [_annotation(**one) for one in ANNOTATIONS]},
        "templating": {"list": [_datasource(), *(_variable(**one) for one in VARIABLES + source.get("variables", []))]},
        "panels": _panels(source["rows"]),
    }


VARIABLES: list[Json] = [
    {"name": "namespace", "label": "Namespace", "query": "label_values(lastcall_build_info, namespace)"},
    {"name": "job", "label": "Job", "query": 'label_values(lastcall_build_info{namespace=~"$namespace"}, job)'},
    {"name": "instance", "label": "Instance", "query": 'label_values(lastcall_build_info{namespace=~"$namespace", job=~"$job"}, instance)'},
]
ANNOTATIONS: list[Json] = [
    {
        "name": "Stops",
        "color": "red",
        "expr": f'sum by (reason) (increase(lastcall_stops_total{{{AT}, mode="enforce"}}[1m])) > 0',
        "text": "stopped: {{reason}}",
        "shown": False,  # many on a busy day
    },
    {
        "name": "Store away",
        "color": "orange",
        "expr": f"sum by (job) (increase(lastcall_store_outages_total{{{AT}}}[1m])) > 0",
        "text": "{{job}} lost its store",
        "shown": True,
    },
    {
        "name": "Reloads",
        "color": "purple",
        "expr": f'sum by (outcome) (increase(lastcall_config_reloads_total{{{AT}, outcome!="unchanged"}}[1m])) > 0',
        "text": "configuration {{outcome}}",
        "shown": True,
    },
    {
        "name": "Releases",
        "color": "blue",
        "expr": f"count by (version) (lastcall_build_info{{{AT}}}) unless count by (version) (lastcall_build_info{{{AT}}} offset 1m)",
        "text": "{{version}} appeared",
        "shown": True,
    },
]


def _links() -> Json:
    return {"type": "dashboards", "title": "Lastcall", "tags": ["lastcall"], "asDropdown": True, "includeVars": True, "keepTime": True}


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0}


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",  # also series without that label
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _annotation(name: str, color: str, expr: str, text: str, shown: bool) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": shown,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "step": "60s",
        "titleFormat": name,
        "textFormat": text,
    }


def _panels(parts: list[Json]) -> list[Json]:
    """All rows with their panels, ids counted from 1, each line of panels as high as its highest."""
    panels: list[Json] = []
    top = 0
    for row in parts:
        panels.append({"type": "row", "title": row["title"], "collapsed": False, "panels": [], "gridPos": _place(0, top, COLUMNS, 1)})
        top, left, height = top + 1, 0, 0
        for source in row["panels"]:
            if left + source["width"] > COLUMNS:
                top, left, height = top + height, 0, 0
            rows = source.get("height", HEIGHTS[source["kind"]])
            panels.append(_panel(source) | {"gridPos": _place(left, top, source["width"], rows)})
            left, height = left + source["width"], max(height, rows)
        top += height
    return [{"id": number, **panel} for number, panel in enumerate(panels, 1)]


def _place(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(source: Json) -> Json:
    kind = source["kind"]
    return {
        "type": TYPES[kind],
        "title": source["title"],
        "description": source["text"],
        "datasource": DATASOURCE,
        "targets": [_target(number, query, instant=kind == "bars") for number, query in enumerate(source["queries"])],
        "fieldConfig": {"defaults": _defaults(source), "overrides": []},
        "options": {"stat": _stat_options, "series": _series_options, "bars": _bars_options}[kind](),
    }


def _target(number: int, query: Json, *, instant: bool) -> Json:
    return {
        "refId": "ABCDEFGH"[number],
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query["expr"].replace("$at", AT).replace("$budgets", BUDGETS),
        "legendFormat": query.get("legend", ""),
        "instant": instant,
        "range": not instant,
    }


def _defaults(source: Json) -> Json:
    steps, drawn = _steps(source.get("alert")), "alert" in source
    defaults: Json = {"unit": source["unit"], "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    defaults["color"] = {"mode": "palette-classic" if source["kind"] == "series" else "thresholds"}
    if source.get("whole"):
        defaults["decimals"] = 0
    if words := source.get("words"):
        options = {str(value): {"text": text, "index": index} for index, (value, text) in enumerate(words.items())}
        defaults["mappings"] = [{"type": "value", "options": options}]
    if source["kind"] == "series":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if source.get("stacked") else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if source.get("stacked") else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if drawn else "off"},
        }
    return defaults


def _steps(alert: str | None) -> list[Json]:
    """Green on the good side of the alert's threshold, red on the other; blue where nothing is good or bad."""
    if alert is None:
        return [{"color": "blue", "value": None}]
    comparison, limit = thresholds()[alert]
    below, above = ("green", "red") if comparison == ">" else ("red", "green")
    return [{"color": below, "value": None}, {"color": above, "value": limit}]


def _stat_options() -> Json:
    return {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }


def _series_options() -> Json:
    return {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _bars_options() -> Json:
    return {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
    }


def generated() -> dict[str, str]:
    """The text of every file of dashboards/, by its name."""
    sources = sorted((HERE / "source").glob("*.yaml"))
    return {f"{path.stem}.json": json.dumps(dashboard(yaml.safe_load(path.read_text())), indent=2) + "\n" for path in sources}


if __name__ == "__main__":
    for name, text in generated().items():
        (HERE / "dashboards" / name).write_text(text)
