"""`python .ci/sbom.py LOCK`: what a lock of requirements holds as a CycloneDX 1.6 bill of materials, on standard output.

Straight from the lock, which is what is installed: the same lock, the same bytes, without the network.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_LOCKED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_VERSION = re.compile(r'__version__ = "([^"]+)"')


def main(lock: Path) -> None:
    """Writes the bill. Ends with a message where the lock holds nothing."""
    found = sorted({_component(*line.groups())["purl"]: _component(*line.groups()) for line in _lines(lock)}.items())
    if not found:
        sys.exit(f"{lock}: no locked requirement in it")
    version = _VERSION.search((ROOT / "proxy" / "__init__.py").read_text())
    assert version is not None
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "lastcall", "name": "lastcall", "version": version[1]}},
        "components": [component for _, component in found],
        "dependencies": [{"ref": "lastcall", "dependsOn": [purl for purl, _ in found]}],
    }
    print(json.dumps(bill, indent=2))


def _lines(lock: Path) -> list[re.Match[str]]:
    return [found for line in lock.read_text().splitlines() if (found := _LOCKED.match(line))]


def _component(name: str, version: str) -> dict[str, str]:
    normal = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{normal}@{version}"
    return {"type": "library", "bom-ref": purl, "name": normal, "version": version, "purl": purl}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
