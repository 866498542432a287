"""Which entry of the configuration a name falls under."""

import pytest

from proxy.globs import entry_for, fits


@pytest.mark.parametrize(
    ("name", "entries", "expected"),
    [
        ("gpt-5", ("gpt-*", "gpt-5"), "gpt-5"),
        ("gpt-5", ("gpt-*", "*"), "gpt-*"),
        ("gpt-5", ("claude-*",), None),
        ("GPT-5", ("gpt-*",), None),
        ("qwen/qwen3-coder", ("qwen*",), "qwen*"),
        ("", ("*",), "*"),
        ("anything", (), None),
        ("a[1]", ("a[1]",), "a[1]"),
    ],
)
def test_own_entry_first_then_the_first_glob(name: str, entries: tuple[str, ...], expected: str | None) -> None:
    """A name's own entry stands for it wherever it is written; else the order decides."""
    assert entry_for(name, entries) == expected
    assert fits(name, entries) is (expected is not None)
