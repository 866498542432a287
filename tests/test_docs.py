"""What the documentation points at is there: every link within the repository, and every test that a page names."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.core_coverage import REPO

PAGES = [page for place in (".", "docs", "helm", "grafana") for page in sorted((REPO / place).glob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)")
NAMED = re.compile(r"`([\w/]+\.py|(?=::))(?:::(test_\w+))?`")


@cache
def text(page: Path) -> str:
    """A page without its code blocks."""
    return FENCED.sub("", page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """Its headings, as GitHub makes anchors of them."""
    headings: list[str] = re.findall(r"^#+ (.*)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file or folder, and where it names a heading, to that."""
    for place, heading in LINK.findall(text(page)):
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{place} is not there"
        assert not heading or heading in anchors(target), f"{place or page.name} has no heading #{heading}"


def test_the_tests_that_hold_the_invariants_exist() -> None:
    """`::test_name` alone is in the file named before it."""
    file = REPO
    found = NAMED.findall((REPO / "docs/invariants.md").read_text())
    assert len(found) > 30
    for place, test in found:
        file = REPO / "tests" / place if place else file
        assert file.is_file(), f"{place} is not there"
        assert not test or f"def {test}(" in file.read_text(), f"{place or file.name} has no {test}"
