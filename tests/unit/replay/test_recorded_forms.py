"""One run in every form in which it may have been recorded: the same findings in each."""

from pathlib import Path

import pytest

from proxy.policy import Policy
from proxy.replay.command import replayed
from proxy.replay.formats import FORMATS, read

FOLDER = Path(__file__).parents[2] / "golden" / "replay"
FILES = sorted(path.name for path in FOLDER.glob("*.json*"))


@pytest.mark.parametrize("name", FILES)
def test_findings_do_not_depend_on_the_form(name: str) -> None:
    """Eight calls, told at the third reading, stopped at the fifth."""
    reading = read(name, (FOLDER / name).read_bytes())
    (row,) = replayed([reading], Policy())
    assert reading.faults == ()
    assert (row.walk.turns, row.walk.calls) == (9, 8)
    found = [(str(mark.act), mark.call, mark.turn, mark.reason, mark.tool, mark.count) for mark in row.walk.marks]
    assert found == [("nudge", 5, 5, "repeated_call", "read_file", 3), ("stop", 7, 6, "repeated_call", "read_file", 5)]


def test_every_form_is_among_them() -> None:
    """A new format brings its recording."""
    assert {read(name, (FOLDER / name).read_bytes()).format for name in FILES} == {known.name for known in FORMATS}
