"""Recording and alerting rules: Prometheus takes them, each alert fires when it should and has a place in the runbook."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.platform.dashboards import ROOT, RULES, recorded, rules
from tests.platform.queries import Queries
from tests.servers import missing

CASES = ROOT / "tests/platform/lastcall.test.yaml"
ALERTS = [rule for rule in rules() if "alert" in rule]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Prometheus's own check."""
    tool = shutil.which("promtool")
    if tool is None:
        missing("promtool on the PATH (Debian: apt-get install --no-install-recommends prometheus)")
    return subprocess.run([str(tool), *map(str, arguments)], capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules() -> None:
    """Without a remark."""
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_alerts_fire_when_they_should_and_only_then() -> None:
    """The cases beside this file, each with the text that people get to read."""
    tested = promtool("test", "rules", CASES)

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_planted_fault_fails_the_cases(tmp_path: Path) -> None:
    """A threshold that is off by a factor of ten is noticed."""
    changed = RULES.read_text().replace("ratio_rate5m > 0.05", "ratio_rate5m > 0.5", 1)
    (tmp_path / "rules.yaml").write_text(changed)
    (tmp_path / "cases.yaml").write_text(CASES.read_text().replace("../../grafana/rules/lastcall.rules.yaml", "rules.yaml"))

    assert promtool("test", "rules", tmp_path / "cases.yaml").returncode == 1


def test_every_alert_has_cases() -> None:
    """One that nobody tried may never fire."""
    cases = yaml.safe_load(CASES.read_text())["tests"]
    firing = {one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]}

    assert firing == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_tells_what_to_do(alert: dict[str, dict[str, str]]) -> None:
    """Severity, a line to read, and a section of the runbook."""
    name, notes = str(alert["alert"]), alert["annotations"]

    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert notes["summary"] and notes["description"].endswith(".")
    assert notes["runbook"] == f"docs/runbook.md#{name.lower()}"
    assert re.search(rf"^## {name}$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)


def test_the_runbook_speaks_of_no_other_alert() -> None:
    """A section goes with its alert."""
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)

    assert sections == [alert["alert"] for alert in ALERTS]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_speaks_of_metrics_that_exist(rule: dict[str, str]) -> None:
    """With labels and values that they have."""
    assert Queries(recorded()).faults(rule["expr"]) == []
