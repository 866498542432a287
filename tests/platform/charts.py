"""The chart as Helm renders it, for tests: by Helm 3 and Helm 4, as objects."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.servers import missing

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm"
TOOLS = ROOT / "build" / "tools"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
MAJORS = (3, 4)

Json = dict[str, Any]


def helm(major: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Helm of one major version. It reaches no cluster and no home folder."""
    binary = TOOLS / f"helm{major}" / "helm"
    if not binary.is_file():
        missing(f"Helm {major} in {binary.parent.relative_to(ROOT)}: run `make tools`")
    home = TOOLS / "home"
    environ = {"HELM_CACHE_HOME": str(home), "HELM_CONFIG_HOME": str(home), "HELM_DATA_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, env=environ, check=False)


def render(*arguments: str | Path, major: int = 4) -> list[Json]:
    """The objects that the chart makes with these arguments."""
    return [dict(one) for one in _rendered(major, tuple(map(str, arguments)))]


@cache
def _rendered(major: int, arguments: tuple[str, ...]) -> list[Json]:
    done = helm(major, "template", "demo", CHART, "--namespace", "prod", *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def refusal(*arguments: str, major: int = 4) -> str:
    """What Helm says of values that it does not take."""
    done = helm(major, "template", "demo", CHART, *arguments)
    assert done.returncode != 0, f"{arguments} were taken"
    return done.stderr


def with_values(case: Path) -> tuple[str, str]:
    return ("--values", str(case))


def only(objects: list[Json], kind: str) -> Json:
    """The one object of a kind."""
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def values(case: Path | None = None) -> Json:
    """The chart's own values, or those of a case."""
    read: Json = yaml.safe_load((case or CHART / "values.yaml").read_text())
    return read


def schema() -> Json:
    read: Json = json.loads((CHART / "values.schema.json").read_text())
    return read
