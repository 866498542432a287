"""Plugins of the whole suite: the second coverage gate, and the servers that several suites start."""

pytest_plugins = ["tests.core_coverage", "tests.servers"]
