"""Setting up with make: what a machine lacks is said in a sentence, and nothing half-made stays behind."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.core_coverage import REPO

OLD = "#!/bin/sh\nexit 1\n"  # to whatever it is asked: too old, and unable
NO_VENV = """#!/bin/sh
[ "$1" = -c ] && exit 0
mkdir -p "$3/bin" && touch "$3/bin/python"
exit 1
"""


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize(
    ("python", "said"),
    [
        (None, "absent is not Python 3.11 or newer; name one that is, as in: make demo PYTHON=python3.12"),
        (OLD, "absent is not Python 3.11 or newer; name one that is, as in: make demo PYTHON=python3.12"),
        (NO_VENV, "absent cannot make an environment; on Debian: apt install python3-venv"),
    ],
    ids=["none", "too old", "no venv"],
)
def test_what_is_missing_is_named(tmp_path: Path, python: str | None, said: str) -> None:
    """With the way out, a status, and no environment that the next run would go on with."""
    shutil.copy(REPO / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    if python is not None:
        interpreter = tmp_path / "absent"
        interpreter.write_text(python)
        interpreter.chmod(0o755)

    done = subprocess.run(["make", "demo", "PYTHON=./absent"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"./{said}" in done.stderr
    assert not (tmp_path / ".venv").exists()
