"""What `make dashboards` draws: each dashboard whole, from whatever a Prometheus answers."""

import json
from pathlib import Path
from typing import Any, cast

import matplotlib.image
import pytest

from tests.platform.dashboards import DASHBOARDS
from tests.platform.pictures import BACK, draw, spelled
from tests.platform.prometheus import Prometheus, Series, Window


class Scripted:
    """Answers every query with two series, or with nothing."""

    def __init__(self, series: int) -> None:
        self._series = [Series({"reason": f"reason {number}"}, ((0.0, 1.0), (1.0, 2.0 + number))) for number in range(series)]

    def over(self, *_: Any) -> list[Series]:
        return self._series

    at = over


@pytest.mark.parametrize("series", [0, 2])
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_drawn_whole(path: Path, series: int, tmp_path: Path) -> None:
    """With data, and where there are none; something stands at the foot of the page too."""
    dashboard = json.loads(path.read_text())
    picture = tmp_path / "picture.png"

    draw(dashboard, Window(cast(Prometheus, Scripted(series)), 0.0, 1.0), picture)

    drawn = matplotlib.image.imread(picture)
    background = [int(BACK[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    assert drawn.shape[1] == 1600
    assert abs(drawn[-20:, :, :3] - background).max() > 0.01


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.123, "percentunit", "12.3%"),
        (450.0, "percentunit", "45,000%"),
        (1234.5, "currencyUSD", "$1,234.50"),
        (0.0123, "s", "12.3 ms"),
        (12.0, "s", "12 s"),
        (0.0, "s", "0 s"),
        (1_234_000, "short", "1.23 Mil"),
        (3 * 1024**2, "bytes", "3 MiB"),
        (0.4, "reqps", "0.4 req/s"),
    ],
)
def test_a_value_is_spelled_in_its_unit(value: float, unit: str, text: str) -> None:
    """In about three digits."""
    assert spelled(value, {"unit": unit}) == text


def test_a_number_of_things_has_no_decimals() -> None:
    """An increase is extrapolated: 3.98 stops were four."""
    assert spelled(3.98, {"unit": "short", "decimals": 0}) == "4"
