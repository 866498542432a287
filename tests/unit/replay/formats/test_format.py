"""What a format is that says nothing of itself."""

import pytest

from proxy.replay.formats.format import Format
from proxy.replay.recording import Unreadable


def test_a_format_reads_only_what_it_says() -> None:
    """Neither wholes nor parts, unless it knows them."""
    none = Format()
    none.expects = "anything"
    assert not none.known_by({"a": 1})
    for read in (lambda: none.read_whole({}, "f"), lambda: none.read_parts([{}], "f")):
        with pytest.raises(Unreadable, match="not anything"):
            read()
