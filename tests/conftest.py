"""What holds for the whole suite: its plugins (the second coverage gate, the servers that several suites start), and what is measured."""

from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.core_coverage", "tests.servers"]

HERE = Path(__file__).parent
MEASURED = ("unit", "contract", "property")

settings.register_profile("busy", settings(), deadline=None)  # an example that is slow today says nothing
settings.load_profile("busy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage is measured where parts are tested one by one: whole proxies and SDKs take long when each of their calls is followed."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] not in MEASURED:
            item.add_marker("no_cover")
