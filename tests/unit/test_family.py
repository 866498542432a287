"""Which sessions stand above which."""

import pytest

from proxy.errors import BadRequest
from proxy.family import MAX_DEPTH, Family, check_depth, line_of


@pytest.mark.parametrize(
    ("parent", "above", "line"),
    [
        (None, (b"g",), ()),
        (b"s", (), ()),
        (b"p", (), (b"p",)),
        (b"p", (b"g", b"r"), (b"p", b"g", b"r")),
        (b"p", (b"s", b"r"), (b"p",)),
    ],
)
def test_a_line_ends_before_it_leads_back(parent: bytes | None, above: tuple[bytes, ...], line: tuple[bytes, ...]) -> None:
    """A session is not its own ancestor, whatever clients say."""
    assert line_of(b"s", parent, above) == line


def test_what_was_settled_is_not_guessed_again() -> None:
    """Another parent named later changes nothing."""
    family = Family()
    assert family.guess(b"s", b"p") == (b"p",)
    family.remember(b"p", (b"g",))
    assert family.guess(b"s", b"p") == (b"p", b"g")
    family.remember(b"s", ())
    family.remember(b"s", ())
    assert (family.guess(b"s", b"p"), family.known(b"s"), family.known(b"x")) == ((), (), None)


def test_what_is_remembered_is_bounded() -> None:
    """The oldest goes."""
    family = Family()
    for number in range(8193):
        family.remember(number.to_bytes(4, "big"), ())
    assert (family.known(bytes(4)), family.known((8192).to_bytes(4, "big"))) == (None, ())


def test_a_line_has_an_end() -> None:
    """More cannot be charged, and less would be a way around a budget."""
    check_depth((b"p",) * MAX_DEPTH)
    with pytest.raises(BadRequest, match="9 sessions above it, and 8 is the most"):
        check_depth((b"p",) * (MAX_DEPTH + 1))
