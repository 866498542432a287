"""A real Prometheus for tests: it scrapes what it is told to, every second, and answers queries as dashboards send them."""

import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.servers import _die_with_parent, free_port, missing

START_SECONDS = 30.0
SCRAPES = 1.0  # seconds between them

Json = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """One line of an answer. points: (epoch seconds, value), without those that are not finite."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
    """Its HTTP API. variables: what stands for Grafana's own in a query."""

    def __init__(self, port: int, variables: dict[str, str]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._variables = variables

    def get(self, path: str, **parameters: object) -> Any:
        """The data of an answer. Raises `AssertionError` with Prometheus's own words for a query that it does not take."""
        try:
            with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as response:
                return json.load(response)["data"]
        except HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The series of a query over a time, as a panel draws them."""
        data = self.get("query_range", query=self._filled(query), start=start, end=end, step=step)
        found = [Series(one["metric"], _finite(one["values"])) for one in data["result"]]
        return [one for one in found if one.points]

    def at(self, query: str, moment: float) -> list[Series]:
        """The values of a query at one time."""
        data = self.get("query", query=self._filled(query), time=moment)
        found = [Series(one["metric"], _finite([one["value"]])) for one in data["result"]]
        return [one for one in found if one.points]

    def values_of(self, variable: str, start: float) -> set[str]:
        """What a variable can be chosen from. variable: `label_values(selector, label)`."""
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable)
        assert asked, variable
        return set(self.get(f"label/{asked[2]}/values", **{"match[]": self._filled(asked[1]), "start": start}))

    def until(self, query: str, within: float = 30.0) -> None:
        """Waits until a query has an answer."""
        deadline = time.monotonic() + within
        while not self.at(query, time.time()):
            assert time.monotonic() < deadline, f"{query} has no answer after {within:g} s"
            time.sleep(0.2)

    def _filled(self, query: str) -> str:
        for variable, value in self._variables.items():
            query = query.replace(variable, value)
        return query


@dataclass(frozen=True)
class Window:
    """What is asked, and for which time (epoch seconds)."""

    prometheus: Prometheus
    start: float
    end: float

    def series(self, target: Json) -> list[Series]:
        """What a panel's target, or an annotation, shows."""
        if target.get("instant"):
            return self.prometheus.at(target["expr"], self.end)
        return self.prometheus.over(target["expr"], self.start, self.end, 1.0)


@contextmanager
def prometheus(targets: dict[str, list[str]], rules: Path, variables: dict[str, str]) -> Iterator[Prometheus]:
    """Running, until the block ends. targets: `host:port` by job."""
    binary = shutil.which("prometheus")
    if binary is None:
        missing("prometheus on the PATH (Debian: apt-get install --no-install-recommends prometheus)")
    port = free_port()
    with TemporaryDirectory(prefix="lastcall-prometheus-", ignore_cleanup_errors=True) as folder:
        jobs = [
            {"job_name": job, "static_configs": [{"targets": where, "labels": {"namespace": "agents"}}]} for job, where in targets.items()
        ]
        period = f"{SCRAPES:g}s"
        config = {"global": {"scrape_interval": period, "evaluation_interval": period}, "rule_files": [str(rules)], "scrape_configs": jobs}
        Path(folder, "prometheus.yml").write_text(yaml.safe_dump(config))
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command = [str(binary), *options, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        process = subprocess.Popen(command, preexec_fn=_die_with_parent)
        try:
            _wait_until_ready(port, process)
            yield Prometheus(port, variables)
        finally:
            process.terminate()
            process.wait(10)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None and time.monotonic() < deadline, "Prometheus did not start"
        try:
            with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)


def _finite(points: list[tuple[float, str]]) -> tuple[tuple[float, float], ...]:
    return tuple((moment, float(value)) for moment, value in points if math.isfinite(float(value)))
