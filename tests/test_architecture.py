"""The rules about the code as a whole: what may import what, how large things get, what they are called, what has tests.

The import rules themselves stand in pyproject.toml. Here they are run, and broken on purpose to see that they bite.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.core_coverage import REPO, core_modules

PACKAGE = REPO / "proxy"
SOURCES = sorted(path for folder in ("proxy", "tests", "bench") for path in (REPO / folder).rglob("*.py"))
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
LOCKS = ("requirements.txt", "requirements-dev.txt")

MODULE_LINES = 500
FUNCTION_LINES = 60
VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "v2"}
SIDE_EFFECTS = {"open", "print", "input", "breakpoint", "exec", "eval"}
CLOCK_READINGS = {"now", "utcnow", "today"}

# Some modules are tested elsewhere than in a mirrored file: implementations of an interface by its one suite, parts of a package by
# the suite of the whole, a program by running it.
TESTED_ELSEWHERE = {
    "admin.py": "e2e/test_operator.py",
    "commands/table.py": "unit/commands/test_line.py",
    "config/file.py": "unit/test_config.py",
    "config/shape.py": "unit/test_config.py",
    "config/values.py": "unit/test_config.py",
    "demo.py": "e2e/test_demo.py",
    "dialects/chat.py": "contract/test_dialect.py",
    "engine/case.py": "unit/engine/test_outcome.py",
    "engine/notice.py": "unit/engine/test_verdict.py",
    "exchange/course.py": "unit/exchange/test_flow.py",
    "exchange/reply.py": "unit/exchange/test_closing.py",
    "health.py": "unit/test_app.py",
    "links.py": "unit/test_sessions.py",
    "mock/asked.py": "unit/test_mock.py",
    "mock/chat.py": "unit/test_mock.py",
    "mock/endpoint.py": "unit/test_mock.py",
    "mock/script.py": "unit/test_mock.py",
    "telemetry/lines.py": "unit/telemetry/test_telemetry.py",
    "store/book.py": "contract/test_store.py",
    "store/contract.py": "contract/test_store.py",
    "store/grant.py": "contract/test_store_accounts.py",
    "store/index.py": "contract/test_store_operator.py",
    "store/wire.py": "contract/test_store.py",
    "store/redis/__init__.py": "contract/test_store.py",
    "store/redis/cluster.py": "contract/test_store_cluster.py",
    "store/redis/sentinels.py": "contract/test_store_sentinels.py",
    "store/redis/servers.py": "contract/test_store_outage.py",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@cache
def definitions(path: Path) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]


def core_files() -> list[Path]:
    places = [REPO / module.replace(".", "/") for module in core_modules()]
    return [file for place in places for file in ([*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")])]


def words(name: str) -> set[str]:
    """The parts of a snake_case or CamelCase name, in lower case."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*", name)}


def named(path: Path) -> str:
    return str(path.relative_to(REPO))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_import_contracts_hold() -> None:
    """Imports point down, the core is pure, and each heavy library has one door."""
    outcome = lint_imports(REPO)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("engine.py", "import time", "The core does no I/O"),
        ("detectors/__init__.py", "import random", "The core does no I/O"),
        ("policy.py", "import proxy.engine", "Imports point down"),
        ("store/memory.py", "import redis", "One door to Redis"),
        ("exchange.py", "import fastapi", "One door to FastAPI"),
        ("odds_and_ends.py", "", "Imports point down"),
    ],
)
def test_import_contracts_bite(tmp_path: Path, file: str, line: str, broken: str) -> None:
    """A forbidden import, or a module without a floor, is reported."""
    shutil.copytree(PACKAGE, tmp_path / "proxy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    with (tmp_path / "proxy" / file).open("a") as module:
        module.write(f"\n{line}\n")

    outcome = lint_imports(tmp_path)

    assert outcome.returncode == 1
    assert re.search(rf"{broken}.* BROKEN", outcome.stdout), outcome.stdout + outcome.stderr


def test_the_table_of_floors_is_that_of_the_contract() -> None:
    """CONTRIBUTING.md names every module on the floor that pyproject.toml gives it."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    table = (REPO / "CONTRIBUTING.md").read_text().partition("| modules | their business |\n| --- | --- |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)

    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [set(floor.split(" | ")) for floor in floors]


def test_core_does_nothing_behind_the_contract() -> None:
    """No built-in gives the core a file, a terminal or the time."""
    calls = [(file, node.func) for file in core_files() for node in ast.walk(parsed(file)) if isinstance(node, ast.Call)]
    found = [
        f"{named(file)}:{called.lineno}"
        for file, called in calls
        if (isinstance(called, ast.Name) and called.id in SIDE_EFFECTS)
        or (isinstance(called, ast.Attribute) and called.attr in CLOCK_READINGS)
    ]

    assert found == []


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_every_module_has_its_tests(module: Path) -> None:
    """A module has a mirrored unit test file, or another one stated here."""
    place = module.relative_to(PACKAGE)
    mirrored = Path("unit") / place.parent / f"test_{place.name}"
    tests = TESTED_ELSEWHERE.get(place.as_posix(), mirrored.as_posix())

    assert (REPO / "tests" / tests).is_file(), f"{named(module)} has no tests/{tests}"


def test_exceptions_are_stated_for_modules_that_exist() -> None:
    """The list of modules tested elsewhere does not outlive them."""
    assert [module for module in TESTED_ELSEWHERE if not (PACKAGE / module).is_file()] == []


@pytest.mark.parametrize("module", sorted(PACKAGE.rglob("*.py")), ids=named)
def test_every_module_says_what_belongs_there(module: Path) -> None:
    """A module begins with a docstring."""
    assert ast.get_docstring(parsed(module))


def test_modules_stay_small() -> None:
    """No module has more lines than the cap."""
    sizes = {named(path): len(path.read_text().splitlines()) for path in SOURCES}

    assert {path: size for path, size in sizes.items() if size > MODULE_LINES} == {}


def test_functions_stay_small() -> None:
    """No function has more lines than the cap."""
    functions = [(path, one) for path in SOURCES for one in definitions(path) if not isinstance(one, ast.ClassDef)]
    sizes = {f"{named(path)}:{one.name}": (one.end_lineno or one.lineno) - one.lineno + 1 for path, one in functions}

    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES} == {}


def test_names_say_something() -> None:
    """No module, class or function bears a name that would fit anything."""
    names = {named(path): path.stem for path in SOURCES}
    for path in SOURCES:
        names |= {f"{named(path)}:{node.name}": node.name for node in definitions(path)}

    assert [place for place, name in names.items() if words(name) & VAGUE] == []


def test_nothing_is_left_for_later() -> None:
    """No code carries a marker of unfinished work."""
    marker = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
    scripts = [*PACKAGE.rglob("*.lua"), REPO / "Makefile", REPO / ".ci" / "run"]

    assert [named(path) for path in [*SOURCES, *scripts] if marker.search(path.read_text())] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_place(lock: str) -> None:
    """A lock installs from whatever index its user has configured, and from no folder."""
    text = (REPO / lock).read_text()

    assert re.findall(r"^.*(?:://|file:/|--find-links|--(?:extra-)?index-url|--trusted-host|\s@\s).*$", text, re.MULTILINE) == []
    assert re.findall(r"(?:^|\s)/\S+", text) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_package_with_a_hash(lock: str) -> None:
    """Each line of a lock is one exact version with its hashes."""
    text = re.sub(r"\s*#.*", "", (REPO / lock).read_text()).replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line.strip()]

    assert entries
    assert [entry for entry in entries if not re.fullmatch(r"[\w.-]+==[\w.]+(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry)] == []


def test_development_lock_extends_the_runtime_lock() -> None:
    """What is tested is what runs: the same versions."""
    runtime, development = (dict(re.findall(r"^([\w.-]+)==(\S+)", (REPO / lock).read_text(), re.MULTILINE)) for lock in LOCKS)

    assert {name: development.get(name) for name in runtime} == runtime
