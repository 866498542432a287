"""Markup is taken out of a text alike however it comes, and no more of it waits than a sign is long."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy.markup import LONGEST_SIGN, Scanner, without_markup

ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "markup_formats.jsonl").read_text().splitlines()]
ATOMS = (
    *[token for row in ROWS for token in row["tokens"]],
    *[row["example"] for row in ROWS],
    *("```", "```json\n", "\n```\n", "~~~", "\n", " ", "- ", "> ", '"', "'", "`", "<!--", "-->", "<![CDATA[", "]]>", "{", "}"),
    *("court\n", "</think>", "<think>", "<|im_end|>", "hello", "<div>", "read", '{"name"', "a" * 30, " " * 300, "\u201c"),
)
atoms = st.sampled_from(ATOMS)
texts = st.lists(
    st.one_of(atoms, atoms.flatmap(lambda atom: st.integers(1, 9).map(lambda n: atom[:n])), st.text(max_size=5)), max_size=9
).map("".join)
tools = st.sampled_from([frozenset[str](), frozenset({"read", "x", "get_weather"})])


@given(texts, tools, st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_any_chunking_gives_the_same(text: str, names: frozenset[str], sizes: list[int]) -> None:
    """The same text goes out and the same is found, in one piece, in any pieces, and character by character."""
    whole, found = without_markup(text, names)
    for cuts in (sizes, [1]):
        scanner, at = Scanner(names), 0
        parts: list[str] = []
        while at < len(text):
            size = cuts[len(parts) % len(cuts)]
            parts.append(scanner.feed(text[at : at + size]))
            at += size
        parts.append(scanner.finish())
        assert ("".join(parts), scanner.leaked, scanner.cut, scanner.family) == (whole, found.leaked, found.cut, found.family)


@given(texts, tools)
def test_little_is_held(text: str, names: frozenset[str]) -> None:
    """Until something is found, what has not gone out is no longer than the longest sign, and all of it is the end of the text."""
    scanner, out = Scanner(names), ""
    for at, char in enumerate(text, start=1):
        out += scanner.feed(char)
        if scanner.cut:
            return
        assert text.startswith(out)
        assert at - len(out) <= LONGEST_SIGN
        assert scanner.holding == (at > len(out))


@given(texts, tools)
def test_a_text_without_signs_is_kept(text: str, names: frozenset[str]) -> None:
    """Whatever was not cut is there to the last character."""
    clean, found = without_markup(text, names)
    assert found.cut or clean == text
    assert len(clean) <= len(text)
