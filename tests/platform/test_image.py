"""The Dockerfile: clean for its linter, built from the lock, and at one with the chart about user, ports and command."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from proxy.config import load
from tests.platform.charts import ROOT, values
from tests.servers import missing

DOCKERFILE = ROOT / "Dockerfile"
TEXT = DOCKERFILE.read_text()


def test_the_linter_has_nothing_to_say() -> None:
    """hadolint, with no rule switched off."""
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent)
    if hadolint is None:
        missing("hadolint beside this Python (it is in requirements-dev.txt)")
    done = subprocess.run([str(hadolint), str(DOCKERFILE)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint ignore" not in TEXT


def test_it_installs_the_lock_and_nothing_else() -> None:
    """With hashes; the package itself without looking for dependencies."""
    installed = re.findall(r"pip install (.*)", TEXT)

    assert installed == ["--require-hashes --requirement requirements.txt", "--no-deps --no-build-isolation ."]


def test_what_it_copies_is_there_and_is_let_in() -> None:
    """.dockerignore leaves out everything else: no test, no secret and no history gets near the image."""
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)", TEXT, re.MULTILINE) for name in line.split()[:-1]]
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)

    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / name).exists() for name in copied)
    # what the build of the package reads
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= set(copied)


def test_image_and_chart_agree() -> None:
    """The user, the port, the command."""
    chart = values()
    context = chart["podSecurityContext"]

    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in TEXT
    assert f"EXPOSE {load('', {}).server.port}\n" in TEXT
    assert chart["config"]["server"]["port"] == load("", {}).server.port
    assert 'ENTRYPOINT ["lastcall"]' in TEXT
    assert "lastcall" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
