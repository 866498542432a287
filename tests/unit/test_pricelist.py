"""Prices found on this system: the list that an installed litellm ships."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config import Config
from proxy.config.shape import BudgetsConfig, PolicyConfig, PolicyLayer, TeamPolicy
from proxy.config.teams import TeamConfig, WindowBudget
from proxy.errors import ConfigError
from proxy.keys import digest_of
from proxy.pricelist import prices_of, shipped

_LIST = "model_prices_and_context_window_backup.json"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that stands for all that is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    shipped.cache_clear()
    yield tmp_path
    shipped.cache_clear()


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


# ---- what a configuration needs of it

MONEY = BudgetsConfig(cost_usd=5)
KEYS = (digest_of("k"),)


def team(**fields: object) -> Config:
    return Config(teams={"red": TeamConfig.model_validate({"keys": KEYS} | fields)})


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (Config(policy=PolicyConfig(budgets=MONEY)), "policy.budgets.cost_usd"),
        (Config(policy=PolicyConfig(unpriced="refuse")), "policy.unpriced"),
        (Config(policy=PolicyConfig(models={"gpt-*": PolicyLayer(budgets=MONEY)})), "policy.models.gpt-*.budgets.cost_usd"),
        (team(budgets=[WindowBudget(per="day", tokens=5), WindowBudget(per="day", cost_usd=0)]), "teams.red.budgets[1].cost_usd"),
        (team(policy=TeamPolicy(budgets=MONEY)), "teams.red.policy.budgets.cost_usd"),
        (team(policy=TeamPolicy(models={"o3": PolicyLayer(unpriced="refuse")})), "teams.red.policy.models.o3.unpriced"),
    ],
)
def test_a_limit_in_money_without_any_price_is_refused(packages: Path, config: Config, key: str) -> None:
    """It could not be kept; the key and both ways out are named."""
    with pytest.raises(ConfigError) as caught:
        prices_of(config)

    assert str(caught.value).startswith(f"{key}: cannot be kept without prices")
    assert "lastcall[prices]" in str(caught.value)
    assert "under prices" in str(caught.value)


def test_prices_of_ones_own_are_enough(packages: Path) -> None:
    """Whoever states them needs no list."""
    config = Config.model_validate({"policy": {"budgets": {"cost_usd": 5}}, "prices": {"m": {"input": 1, "output": 2}}})

    price = prices_of(config).of("m")

    assert price is not None
    assert price.rates.output == 2_000_000


def test_the_list_is_read_only_where_money_counts(packages: Path) -> None:
    """It takes a moment and some megabytes."""
    install(packages, b'{"m": {"input_cost_per_token": 0, "output_cost_per_token": 0}}')

    assert prices_of(Config()).of("m") is None
    assert prices_of(Config(policy=PolicyConfig(budgets=MONEY))).of("m") is not None
