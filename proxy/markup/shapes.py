"""What a sign looks like, piece by piece, so that a text can be asked two questions: is it one, and can it still become one?

`re` knows no partial matches; a sign made of literals, bounded runs and choices of literals has a second pattern that matches each
of its beginnings. Every run is bounded, and so is what a stream may have to hold back.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never


@dataclass(frozen=True, slots=True)
class Run:
    """least to most characters of a class, written as inside the brackets of a pattern. name: it is the tool's name."""

    chars: str
    least: int
    most: int
    name: bool = False


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some literals; an empty one makes it optional."""

    options: tuple[str, ...]


Piece = str | Run | OneOf


def whole(pieces: Sequence[Piece], group: str) -> str:
    """A pattern of the sign; its tool's name, where it holds one, is in the group called `group`."""
    return "".join([_whole(piece, group) for piece in pieces])


def beginning(pieces: Sequence[Piece]) -> str:
    """A pattern of every beginning of the sign that reaches to the end of the text, the sign itself not included."""
    pattern = "(?!)"
    for piece in reversed(pieces):
        pattern = rf"(?:{_part(piece)}\Z|{_whole(piece, '')}{pattern})"
    return pattern


def longest(pieces: Sequence[Piece]) -> int:
    """The most characters that the sign can have."""
    return sum(_longest(piece) for piece in pieces)


def heads(pieces: Sequence[Piece], length: int) -> set[str]:
    """The first characters of everything the sign can be, as many as `length`, fewer where a run begins before that."""
    found = {""}
    for piece in pieces:
        if isinstance(piece, Run):
            break
        options = (piece,) if isinstance(piece, str) else piece.options
        found = {(head + option)[:length] for head in found for option in options}
    return found


def any_head(some: set[str]) -> str:
    """A pattern of any of these, or of the beginning of one at the end of the text. A tree, so that most texts fail at its root."""
    branches = []
    for first in sorted({head[0] for head in some if head}):
        rest = {head[1:] for head in some if head.startswith(first)}
        after = "" if "" in rest else rf"(?:\Z|{any_head(rest)})"
        branches.append(re.escape(first) + after)
    return "(?:" + "|".join(branches) + ")"


def _whole(piece: Piece, group: str) -> str:
    match piece:
        case str():
            return re.escape(piece)
        case Run(chars, least, most, name):
            run = rf"[{chars}]{{{least},{most}}}"
            return f"(?P<{group}>{run})" if name and group else run
        case OneOf(options):
            return "(?:" + "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True)) + ")"
        case _:
            assert_never(piece)


def _part(piece: Piece) -> str:
    """Less than the piece: what has come of it when the text ends inside it."""
    match piece:
        case str():
            return _part_of(piece)
        case Run(chars, _, most):
            return rf"[{chars}]{{0,{most}}}"
        case OneOf(options):
            return "(?:" + "|".join(_part_of(option) for option in options) + ")"
        case _:
            assert_never(piece)


def _part_of(literal: str) -> str:
    pattern = ""
    for char in reversed(literal[:-1]):
        pattern = rf"(?:{re.escape(char)}{pattern})?"
    return pattern


def _longest(piece: Piece) -> int:
    match piece:
        case str():
            return len(piece)
        case Run(_, _, most):
            return most
        case OneOf(options):
            return max(map(len, options))
        case _:
            assert_never(piece)
