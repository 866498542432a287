"""`make dashboards`: fills a real Prometheus from a real workload and draws every dashboard as a picture, for the README and for a look.

The pictures are drawn from the dashboards' JSON and the answers to their queries. They are not screenshots: Grafana has its own ways to lay
out legends and axes.
"""

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from tests.platform.dashboards import DASHBOARDS, ROOT, RULES
from tests.platform.prometheus import Series, Window, prometheus
from tests.platform.workload import fleet

VARIABLES = {"$__rate_interval": "15s", "$__range": "10m", "$namespace": ".*", "$job": ".*", "$instance": ".*", "$team": ".*"}
PAGE = 16.0  # inches
CELL = PAGE / 24, 0.36
DOTS = 100
BACK, PANEL, EDGE, TEXT, FAINT = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e8e99"
LINES = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#5794f2", "#ba43a9", "#b877d9", "#ff9830", "#cca300")
COLOURS = {"green": "#73bf69", "red": "#f2495c", "blue": "#5794f2", "orange": "#ff9830"}
SCALES = {
    "short": (1000, ("", " K", " Mil", " Bil")),
    "none": (1000, ("", " K", " Mil", " Bil")),
    "reqps": (1000, (" req/s", "K req/s", "M req/s")),
    "bytes": (1024, (" B", " KiB", " MiB", " GiB")),
}

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Works for some minutes, then draws."""
    parser = argparse.ArgumentParser(prog="make dashboards", description="Real work, real metrics, pictures of every dashboard.")
    parser.add_argument("--seconds", type=float, default=240.0, help="how long the agents work")
    parser.add_argument("--agents", type=int, default=24, help="how many at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs/images", help="where the pictures go")
    given = parser.parse_args(arguments)
    for path in asyncio.run(_run(given.seconds, given.agents, given.folder)):
        sys.stdout.write(f"{path}\n")


async def _run(seconds: float, agents: int, folder: Path) -> list[Path]:
    async with fleet(seed=11, pace=0.4, tokens=60_000) as running:
        with prometheus({"lastcall": running.targets}, RULES, VARIABLES) as server:
            await asyncio.to_thread(server.until, "count(lastcall_build_info) == 2")
            start = time.time()
            await running.work(seconds, agents)
            return await asyncio.to_thread(draw_all, Window(server, start, time.time()), folder)


def draw_all(window: Window, folder: Path) -> list[Path]:
    """A picture of each dashboard, named like it."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"font.size": 8, "font.family": "DejaVu Sans", "text.color": TEXT, "axes.labelcolor": FAINT})
    pictures = []
    for path in DASHBOARDS:
        picture = folder / f"{path.stem}.png"
        draw(json.loads(path.read_text()), window, picture)
        pictures.append(picture)
    return pictures


def draw(dashboard: Json, window: Window, picture: Path) -> None:
    """One dashboard into a PNG file of a palette, so that it stays small."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + 1
    figure = pyplot.figure(figsize=(PAGE, rows * CELL[1]), dpi=DOTS, facecolor=BACK)
    page = _Page(figure, rows, (window.start, window.end))
    figure.text(0.008, 1 - 0.65 / rows, dashboard["title"], fontsize=12, va="center")
    for panel in dashboard["panels"]:
        page.panel(panel, [(target, window.series(target)) for target in panel.get("targets", [])])
    raw = BytesIO()
    figure.savefig(raw, facecolor=BACK)
    pyplot.close(figure)
    Image.open(raw).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


class _Page:
    """A page of so many rows, and what stands on it. time: shown by each panel (epoch seconds)."""

    def __init__(self, figure: Any, rows: int, time: tuple[float, float]) -> None:
        self._time = time
        self._figure = figure
        self._rows = rows

    def panel(self, panel: Json, answers: list[tuple[Json, list[Series]]]) -> None:
        place = panel["gridPos"]
        left, width = place["x"] / 24, place["w"] / 24
        bottom, height = 1 - (place["y"] + place["h"] + 1) / self._rows, place["h"] / self._rows
        if panel["type"] == "row":
            self._figure.text(left + 0.008, bottom + height / 2, panel["title"], fontsize=10, weight="bold", va="center")
            return
        gap = 0.0025, 0.06 / self._rows * 2
        box = FancyBboxPatch(
            (left + gap[0], bottom + gap[1]), width - 2 * gap[0], height - 2 * gap[1],
            boxstyle="square,pad=0", facecolor=PANEL, edgecolor=EDGE, linewidth=0.8, transform=self._figure.transFigure, zorder=-1,
        )  # fmt: skip
        self._figure.patches.append(box)
        self._figure.text(left + 0.008, bottom + height - 0.55 / self._rows, panel["title"], fontsize=8.5, va="center")
        named = [(_name(target, one), one) for target, series in answers for one in series]
        rectangle = (left, bottom, width, height)
        {"stat": self._stat, "timeseries": self._series, "bargauge": self._bars}[panel["type"]](panel, named, rectangle)

    def _axes(self, rectangle: tuple[float, float, float, float], inner: tuple[float, float, float, float]) -> Any:
        """Axes within a panel. inner: margins left, below, right (of the page's width) and above (in rows)."""
        left, bottom, width, height = rectangle
        below, above = inner[1] / self._rows, inner[3] / self._rows
        axes = self._figure.add_axes((left + inner[0], bottom + below, width - inner[0] - inner[2], height - below - above))
        axes.set_facecolor("none")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes

    def _stat(self, panel: Json, named: list[tuple[str, Series]], rectangle: tuple[float, float, float, float]) -> None:
        defaults = panel["fieldConfig"]["defaults"]
        left, bottom, width, height = rectangle
        for number, (name, one) in enumerate(named):
            value = one.points[-1][1]
            colour = _colour(value, defaults["thresholds"]["steps"])
            middle = left + width * (number + 0.5) / len(named)
            words = {key: text["text"] for mapping in defaults.get("mappings", []) for key, text in mapping["options"].items()}
            text = words.get(f"{value:g}") or spelled(value, defaults)
            size = 20 if len(named) == 1 else 15
            self._figure.text(middle, bottom + height * 0.48, text, fontsize=size, color=colour, ha="center", va="center", weight="bold")
            if name:
                self._figure.text(middle, bottom + height * 0.16, name, fontsize=8, color=FAINT, ha="center", va="center")
        if len(named) == 1 and len(named[0][1].points) > 1:
            axes = self._axes(rectangle, (0.004, 0.15, 0.004, 2.7))
            moments, values = zip(*named[0][1].points, strict=True)
            axes.fill_between(moments, values, color=colour, alpha=0.25, linewidth=0)
            axes.plot(moments, values, color=colour, linewidth=0.8)
            axes.set_axis_off()
        if not named:
            self._nothing(rectangle)

    def _series(self, panel: Json, named: list[tuple[str, Series]], rectangle: tuple[float, float, float, float]) -> None:
        if not named:
            self._nothing(rectangle)
            return
        defaults = panel["fieldConfig"]["defaults"]
        axes = self._axes(rectangle, (0.036, 1.75, 0.008, 1.2))
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        top: dict[float, float] = {}
        for number, (name, one) in enumerate(named):
            colour = LINES[number % len(LINES)]
            moments = [moment for moment, _ in one.points]
            low = [top.get(moment, 0.0) if stacked else 0.0 for moment in moments]
            high = [base + value for base, (_, value) in zip(low, one.points, strict=True)]
            top.update(zip(moments, high, strict=True))
            axes.plot(moments, high, color=colour, linewidth=1.0, label=name)
            axes.fill_between(moments, low, high, color=colour, alpha=defaults["custom"]["fillOpacity"] / 100, linewidth=0)
        if defaults["custom"]["thresholdsStyle"]["mode"] != "off":
            for step in defaults["thresholds"]["steps"][1:]:
                axes.axhline(step["value"], color=COLOURS["red"], linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_xlim(*self._time)
        axes.set_ylim(bottom=0)
        axes.grid(color=EDGE, linewidth=0.6)
        axes.tick_params(colors=FAINT, length=0, labelsize=7)
        axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
        axes.yaxis.set_major_formatter(lambda value, _: spelled(value, defaults))
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda moment, _: time.strftime("%H:%M:%S", time.gmtime(moment)))
        columns = round(rectangle[2] * 9)
        axes.legend(
            loc="upper left", bbox_to_anchor=(-0.06, -0.16), ncols=columns, fontsize=7, frameon=False, labelcolor=TEXT, handlelength=1,
            columnspacing=1, borderaxespad=0,
        )  # fmt: skip

    def _bars(self, panel: Json, named: list[tuple[str, Series]], rectangle: tuple[float, float, float, float]) -> None:
        if not named:
            self._nothing(rectangle)
            return
        defaults = panel["fieldConfig"]["defaults"]
        axes = self._axes(rectangle, (0.11, 0.3, 0.05, 1.2))
        values = [one.points[-1][1] for _, one in named]
        colours = [_colour(value, defaults["thresholds"]["steps"]) for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.7)
        axes.set_yticks(range(len(values)), [name for name, _ in named], fontsize=7)
        axes.tick_params(colors=TEXT, length=0)
        axes.invert_yaxis()
        axes.set_xticks([])
        for at, value in enumerate(values):
            axes.text(value, at, " " + spelled(value, defaults), va="center", fontsize=8)

    def _nothing(self, rectangle: tuple[float, float, float, float]) -> None:
        left, bottom, width, height = rectangle
        self._figure.text(left + width / 2, bottom + height / 2, "No data", color=FAINT, ha="center", va="center")


def _name(target: Json, series: Series) -> str:
    text: str = target["legendFormat"]
    for label, value in series.labels.items():
        text = text.replace("{{%s}}" % label, value)  # noqa: UP031 - braces
    return text


def _colour(value: float, steps: list[Json]) -> str:
    passed = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return COLOURS[passed[-1]]


def spelled(value: float, defaults: Json) -> str:
    """A value in its unit, in about three digits."""
    unit = defaults["unit"]
    if "decimals" in defaults:
        value = round(value, defaults["decimals"])
    if unit == "percentunit":
        return f"{value * 100:.3g}%" if value < 10 else f"{value * 100:,.0f}%"
    if unit == "currencyUSD":
        return f"${value:,.2f}"
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
    base, suffixes = SCALES[unit]
    power = min(int(math.log(abs(value), base)), len(suffixes) - 1) if abs(value) >= 1 else 0
    return f"{value / base**power:.3g}{suffixes[power]}"


if __name__ == "__main__":
    main()
