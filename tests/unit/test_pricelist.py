"""Prices found on this system: the list that an installed litellm ships."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.pricelist import shipped

_LIST = "model_prices_and_context_window_backup.json"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for all that is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    return tmp_path


def install(packages: Path, data: bytes) -> None:
    (packages / "litellm").mkdir()
    (packages / "litellm" / "__init__.py").write_text("raise AssertionError('imported')")
    (packages / "litellm" / _LIST).write_bytes(data)


def test_the_list_of_an_installed_litellm_is_read_without_importing_it() -> None:
    """The real one: thousands of models, the common ones among them."""
    program = (
        "import sys; from proxy.pricelist import shipped; prices = shipped(); assert 'litellm' not in sys.modules;"
        "assert len(prices) > 1000; assert prices['gpt-4o'].rates.input > 0; assert prices['claude-sonnet-4-5'].rates.output > 0"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False).stderr == ""


def test_the_package_is_not_run(packages: Path) -> None:
    """One that would fail when imported still gives its prices."""
    install(packages, b'{"m": {"input_cost_per_token": 0, "output_cost_per_token": 0}}')

    assert set(shipped()) == {"m"}


def test_without_litellm_there_are_no_prices(packages: Path) -> None:
    """It is an extra."""
    assert shipped() == {}


def test_a_litellm_without_its_list_has_no_prices(packages: Path) -> None:
    """A later one may keep it elsewhere."""
    (packages / "litellm").mkdir()

    assert shipped() == {}


def test_a_list_that_cannot_be_read_is_said(packages: Path) -> None:
    """Silence would make every model unpriced."""
    install(packages, b"[]")

    with pytest.raises(ConfigError, match=r"list of the installed litellm .* cannot be read: not a price list"):
        shipped()


def test_a_list_that_may_not_be_opened_is_said(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's reason, without the path."""
    install(packages, b"{}")

    def denied(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)

    with pytest.raises(ConfigError, match="cannot be read: Permission denied; install it anew"):
        shipped()
