"""A second coverage gate: 100 % of the core's lines and branches, whatever the rest of the program reaches.

A pytest plugin, active with `--core-coverage` on a full run under pytest-cov, so that both gates are part of one run. What the core
is stands in one place: the import contract that keeps it pure.
"""

import io
import tomllib
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

REPO = Path(__file__).resolve().parents[1]
REQUIRED = 100.0


def core_modules() -> list[str]:
    """Dotted names of the modules and packages under the contract `core` in pyproject.toml."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    modules: list[str] = next(contract["source_modules"] for contract in contracts if contract["id"] == "core")
    return modules


class CoreCoverage:
    """Measures after pytest-cov has written its data and fails the session below the requirement."""

    def __init__(self) -> None:
        self._report = io.StringIO()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        measured = coverage.Coverage()
        measured.load()
        paths = [module.replace(".", "/") for module in core_modules()]
        include = [pattern for path in paths for pattern in (f"{path}.py", f"{path}/*")]
        total = measured.report(include=include, file=self._report)
        verdict = "reached" if total >= REQUIRED else "FAIL: not reached"
        self._report.write(f"Core coverage of {REQUIRED:g}% {verdict}: {total:.2f}%\n")
        if total < REQUIRED:
            session.testsfailed += 1
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_sep("=", "core coverage")
        terminalreporter.write(self._report.getvalue())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core-coverage", action="store_true", help="with --cov on a full run: fail unless the core is covered to 100 %%")


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--core-coverage") and not is_worker:
        config.pluginmanager.register(CoreCoverage(), "core-coverage")
