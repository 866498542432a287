"""One run in every form in which it may have been recorded: the same findings in each as in a chat."""

from pathlib import Path
from typing import Any

import pytest

from proxy.policy import Policy
from proxy.replay.command import replayed
from proxy.replay.formats import FORMATS, read
from proxy.replay.walk import Walk

FOLDER = Path(__file__).parents[2] / "golden" / "replay"
FILES = sorted(path.name for path in FOLDER.glob("*.json*"))
CHAT = "chat_body.json"
ONE_CALL_A_MESSAGE = ("calls.json", "swe_agent.traj.json")  # they know neither messages without calls nor calls made at once
WITH_USAGE = ("chat_log.jsonl", "claude_code.jsonl", "codex.jsonl", "messages_log.jsonl", "responses_log.jsonl")


def walked(name: str) -> Walk:
    reading = read(name, (FOLDER / name).read_bytes())
    assert reading.faults == ()
    (row,) = replayed([reading], Policy())
    return row.walk


def findings(walk: Walk) -> list[tuple[Any, ...]]:
    return [(str(mark.act), mark.call, mark.reason, mark.count, mark.limit) for mark in walk.marks]


def test_the_run_is_told_and_stopped() -> None:
    """At the third reading of a file and at the fifth."""
    walk = walked(CHAT)
    assert (walk.turns, walk.calls) == (9, 8)
    assert findings(walk) == [("nudge", 5, "repeated_call", 3, 5), ("stop", 7, "repeated_call", 5, 5)]


@pytest.mark.parametrize("name", FILES)
def test_findings_do_not_depend_on_the_form(name: str) -> None:
    """Neither do turns and tools, where a form knows them; tokens are those of the log, where it has them."""
    walk, chat = walked(name), walked(CHAT)
    assert findings(walk) == findings(chat)
    assert walk.calls == chat.calls
    if name not in ONE_CALL_A_MESSAGE:
        assert [(mark.turn, mark.tool) for mark in walk.marks] == [(mark.turn, mark.tool) for mark in chat.marks]
        assert walk.turns == chat.turns
    assert walk.estimated == (name not in WITH_USAGE)


def test_every_form_is_among_them() -> None:
    """A new format brings its recording."""
    assert {read(name, (FOLDER / name).read_bytes()).format for name in FILES} == {known.name for known in FORMATS}
