"""What a Telemetry counted and logged, as tests read it back."""

import json
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proxy.events import Event, ExchangeEnded
from proxy.models import Action
from proxy.telemetry import Telemetry

MODELS = ("gpt-5", "gpt-*", "claude-*")
TOOLS = ("bash", "read_*")
NOON = 1_700_000_000.0625

Series = tuple[str, frozenset[tuple[str, str]]]


class Seen:
    """A Telemetry with everything it wrote."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[bytes] = []
        settings: dict[str, Any] = {"models": MODELS, "tools": TOOLS, "log": self.lines.append, "clock": lambda: NOON} | options
        self.telemetry = Telemetry(CollectorRegistry(), **settings)
        self.at_start = self.samples()

    def samples(self) -> dict[Series, float]:
        return samples_of(self.telemetry.exposition(None)[0].decode())

    def moved(self) -> dict[str, float]:
        """Every series that changed since the start, as `name{label="value"}`; histogram buckets left out."""
        return {
            spelled(series): value
            for series, value in self.samples().items()
            if value != self.at_start.get(series) and not series[0].endswith("_bucket")
        }

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def families(text: str) -> list[Metric]:
    return list(parse_text(text))


def samples_of(text: str) -> dict[Series, float]:
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families(text) for sample in family.samples}


def spelled(series: Series) -> str:
    """A series as text. A label without a value is none, as in Prometheus."""
    name, labels = series
    return name.removeprefix("lastcall_") + "{" + ",".join(f"{key}={value}" for key, value in sorted(labels) if value) + "}"


def exchange(**fields: Any) -> ExchangeEnded:
    settings: dict[str, Any] = {"dialect": "chat", "model": "gpt-5", "session": "s", "lane": 0, "step": 1, "action": Action.ALLOW}
    return ExchangeEnded(**settings | fields)


def after(*happened: Event, **options: Any) -> Seen:
    """A Telemetry that saw these events."""
    seen = Seen(**options)
    for event in happened:
        seen.telemetry.emit(event)
    return seen
