"""Signs as patterns: what is one, what can still become one."""

import re

from proxy.markup.shapes import OneOf, Piece, Run, any_head, beginning, heads, longest, whole

SIGN: tuple[Piece, ...] = ("<", OneOf(("tool", "t", "")), Run("a-c", 1, 3, name=True), Run(r"\ ", 0, 1), ">")
EXAMPLES = ("<toola>", "<tabc >", "<b>", "<tc>", "<ccc >")


def test_a_sign_is_found_with_its_name() -> None:
    """The run that is its name has a group."""
    pattern = re.compile(whole(SIGN, "name"))
    assert [pattern.fullmatch(text) is not None for text in EXAMPLES] == [True] * len(EXAMPLES)
    found = pattern.fullmatch("<toolab >")
    assert found is not None
    assert found["name"] == "ab"
    assert pattern.match("<toold>") is None


def test_every_beginning_of_a_sign_can_become_one() -> None:
    """And nothing else can; the sign itself is no beginning."""
    pattern = re.compile(beginning(SIGN))
    for text in EXAMPLES:
        for at in range(len(text)):
            assert pattern.match(text[:at]), text[:at]
        assert pattern.match(text) is None
    for text in ("x", "<d", "<toolx", "<abcd", "<a  ", "<>"):
        assert pattern.match(text) is None


def test_the_longest_text_of_a_sign() -> None:
    """All of its pieces at their longest."""
    assert longest(SIGN) == 1 + 4 + 3 + 1 + 1


def test_heads_are_what_a_sign_can_begin_with() -> None:
    """Up to a length, or to the first run."""
    assert heads(("<", OneOf(("tool", "t")), "x"), 3) == {"<to", "<tx"}
    assert heads(SIGN, 4) == {"<too", "<t", "<"}


def test_a_head_is_seen_whole_or_at_the_end_of_the_text() -> None:
    """A tree of the heads, one of them inside another included."""
    pattern = re.compile(any_head({"<too", "<t", "[x"}))
    assert [bool(pattern.match(text)) for text in ("<tool", "<t", "<", "[", "[x", "<a", "[y", "t", "")] == [True] * 5 + [False] * 4
