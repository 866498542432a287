"""What a later release appended to stored values, and what becomes of it in the hands of one that does not know it."""

import sys
from typing import Any

import msgspec
import pytest

from proxy.appended import Appended


class Leaf(msgspec.Struct, array_like=True, gc=False):
    number: int
    flag: bool = False


class Named(msgspec.Struct):
    name: str
    leaf: Leaf | None = None


class Tree(msgspec.Struct, array_like=True):
    leaves: list[Leaf]
    named: list[Named] = []
    words: list[str] = []
    twigs: list[tuple[Leaf, ...]] = []


def read(stored: Any) -> tuple[Tree, Appended]:
    tree = msgspec.convert(stored, Tree)
    return tree, Appended(tree, stored)


@pytest.mark.parametrize(
    "stored",
    [
        [[[1, True], [2, False]], [{"name": "a", "leaf": [3, True]}], ["w"], []],
        [[[1, True, "more"], [2, False]], [], [], [], "and", ["more"]],
        [[], [{"name": "a", "leaf": [3, True, {"so": 1}], "later": None}], [], []],
        [[], [], [], [[[1, True], [2, False, "more"]], [], [[3, True, 1]]]],
    ],
    ids=["nothing", "places", "names", "lists of lists"],
)
def test_what_is_not_changed_is_written_as_it_came(stored: Any) -> None:
    """At every depth, in arrays and maps."""
    tree, appended = read(stored)
    assert appended.whole(tree) == stored


def test_what_an_earlier_release_left_out_is_filled_in() -> None:
    """As the structures have it."""
    tree, appended = read([[[1]]])
    assert appended.whole(tree) == [[[1, False]], [], [], []]


def test_it_goes_with_its_structure() -> None:
    """Changed, moved, among new ones; and is gone with it."""
    tree, appended = read([[[1, False, "one"], [2, False, "two"]]])
    first, second = tree.leaves
    second.number = 9
    tree.leaves = [Leaf(0), second]
    assert appended.whole(tree)[0] == [[0, False], [9, False, "two"]]
    tree.leaves = [first, Leaf(3)]
    assert appended.whole(tree)[0] == [[1, False, "one"], [3, False]]


def test_it_goes_to_what_takes_the_place_of_its_structure() -> None:
    """In a list, which may be another one by now: where it begins with the same. It is not given to what moved there."""
    tree, appended = read([[[1, False, "one"], [2, False], [3, False, "three"]], [{"name": "a", "leaf": [1, True], "later": 4}]])
    tree.leaves = [Leaf(1, True), Leaf(2, True), tree.leaves[2], Leaf(3)]
    tree.named = [Named("a")]
    leaves = [[1, True, "one"], [2, True], [3, False, "three"], [3, False]]
    assert appended.whole(tree)[:2] == [leaves, [{"name": "a", "leaf": None, "later": 4}]]
    tree.leaves = [Leaf(3), Leaf(1)]
    assert appended.whole(tree)[0] == [[3, False], [1, False]]
    appended.forget()
    tree.leaves = [Leaf(1)]
    assert appended.whole(tree)[0] == [[1, False]]


def test_it_goes_on_when_the_first_ones_are_dropped() -> None:
    """To what takes the place of its structure, counted from those that stay; in lists of lists too."""
    tree, appended = read([[[number, False, f"leaf {number}"] for number in range(4)]])
    tree.leaves = [tree.leaves[1], Leaf(2, True), Leaf(3, True)]
    assert appended.whole(tree)[0] == [[1, False, "leaf 1"], [2, True, "leaf 2"], [3, True, "leaf 3"]]

    tree, appended = read([[], [], [], [[[number, False, "a"], [9, False, f"of twig {number}"]] for number in range(4)]])
    second, third = tree.twigs[1:3]
    tree.twigs = [second, (third[0], Leaf(9, True)), (Leaf(3), Leaf(5), Leaf(9))]
    assert appended.whole(tree)[3] == [
        [[1, False, "a"], [9, False, "of twig 1"]],
        [[2, False, "a"], [9, True, "of twig 2"]],
        [[3, False, "a"], [5, False], [9, False]],
    ]


def test_it_goes_on_behind_what_says_nothing_of_its_place() -> None:
    """One empty list is like another, and the first that stays may have changed: any that stands tells how many are gone."""
    tree, appended = read([[], [], [], [[], [[1, False, "one"]], [], [[3, False, "three"]], [[4, False, "four"]]]])
    last = tree.twigs[4]
    for begins in ([()], []):
        tree.twigs = [*begins, (Leaf(3, True),), last]
        assert appended.whole(tree)[3] == [*map(list, begins), [[3, True, "three"]], [[4, False, "four"]]]


def test_what_holds_it_is_not_held() -> None:
    """Else both would stay for ever: no collector looks at such structures."""
    tree, appended = read([[[1, False, "one"]], [], [], [], "more"])
    held = sys.getrefcount(tree)
    del appended
    assert sys.getrefcount(tree) == held
