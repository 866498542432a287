"""Tool-call markup that a model wrote into its text instead of making a call: found, and taken out.

`families` knows how each family of models leaks, `scanner` finds it in a text that may still be coming, `shapes` is what both are
written in; `calls` reads back what was meant.
"""

from proxy.markup.calls import spelled
from proxy.markup.scanner import LONGEST_SIGN, Scanner

__all__ = ["LONGEST_SIGN", "Scanner", "leaked", "spelled", "without_markup"]


def without_markup(text: str, names: frozenset[str] = frozenset()) -> tuple[str, Scanner]:
    """The text without its markup, and what was found. names: the tools that are known, offered or called before."""
    scanner = Scanner(names)
    clean = scanner.feed(text) + scanner.finish()
    return clean, scanner


def leaked(text: str, names: frozenset[str] = frozenset()) -> bool:
    """Whether the text holds a tool call written as markup, outside code and quotes."""
    return without_markup(text, names)[1].leaked
