"""`make sbom`: the bill of materials names what runs."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.core_coverage import REPO

LOCK = REPO / "requirements.txt"


def bill_of(lock: Path) -> Any:
    done = subprocess.run([sys.executable, ".ci/sbom.py", str(lock)], cwd=REPO, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def needed(name: str, found: dict[str, str]) -> dict[str, str]:
    """What an installed distribution runs with, however deep, by normalised name."""
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        other = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if other not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[other] = metadata.version(other)
            needed(other, found)
    return found


def test_every_package_that_runs_is_in_the_bill() -> None:
    """In the version that is installed here, by the lock."""
    components = {component["name"]: component for component in bill_of(LOCK)["components"]}
    running = needed("lastcall", {})

    assert len(running) > 20
    assert running.items() <= {name: component["version"] for name, component in components.items()}.items()
    for name, component in components.items():
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{name}@{component['version']}"


def test_the_bill_holds_what_the_lock_does() -> None:
    """No more and no less; each once, and Lastcall needs them all."""
    bill = bill_of(LOCK)
    locked = [line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line and not line.startswith((" ", "#"))]

    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "1.6", "lastcall")
    assert len(bill["components"]) == len(set(locked)) == len(locked)
    assert bill["dependencies"] == [{"ref": "lastcall", "dependsOn": [component["purl"] for component in bill["components"]]}]


def test_names_are_normal_and_markers_no_part_of_a_version(tmp_path: Path) -> None:
    """As package URLs have them."""
    lock = tmp_path / "lock.txt"
    lock.write_text("# x==1\nA_b.C[d]==1.0 ; python_version < '3.12' \\\n    --hash=sha256:00\n    # via lastcall\n")

    assert [component["purl"] for component in bill_of(lock)["components"]] == ["pkg:pypi/a-b-c@1.0"]
