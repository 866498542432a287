"""Collected runs: what their turns become."""

from hashlib import sha256
from typing import Any

import pytest

from proxy.models import Item, Role, ToolCall
from proxy.replay.formats.corpus import Corpus
from proxy.replay.recording import Unreadable


def items(*turns: dict[str, Any]) -> tuple[Item, ...]:
    return Corpus().read_whole({"id": "r1", "model": "m", "turns": list(turns)}, "f").items


def result(text: str, whole: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "id": "a", "result": text, "result_sha": sha256((whole or text).encode()).hexdigest(), **more}


def test_a_run_is_read_turn_by_turn() -> None:
    """Calls with their results; only a mark of the client's makes a failure."""
    call = {"id": "a", "name": "bash", "arguments": {"cmd": "ls"}}
    made, done, failed = items({"role": "assistant", "text": "Look.", "calls": [call]}, result("x", error=None), result("y", error=True))
    assert made == Item(Role.ASSISTANT, b'"Look."', (ToolCall("a", "bash", '{"cmd":"ls"}'),))
    assert done == Item(Role.TOOL, b'"x"', (), "a")
    assert failed == Item(Role.TOOL, b'"y"', (), "a", failed=True)
    recording = Corpus().read_whole({"turns": []}, "f")
    assert (recording.id, recording.items) == ("f", ())


def test_texts_of_users_are_never_the_same() -> None:
    """Only their lengths are known; where the text is, it counts."""
    first, second, empty, text = items(
        {"role": "user", "text_len": 9}, {"role": "user", "text_len": 9}, {"role": "user", "text_len": 0}, {"role": "user", "text": "hi"}
    )
    assert first.content != second.content
    assert (empty.content, text.content) == (b'""', b'"hi"')


def test_the_hash_stands_for_what_was_cut_off() -> None:
    """Two results that begin alike are not the same."""
    one, other, again, short = items(result("begin", "begin 1"), result("begin", "begin 2"), result("begin", "begin 1"), result("begin"))
    assert one.content != other.content
    assert one.content == again.content
    assert short.content == b'"begin"'
    assert items({"role": "tool", "result": {"a": 1}})[0].content == b'"{\\"a\\":1}"'


@pytest.mark.parametrize("turn", [3, {}, {"role": "judge"}, {"role": "assistant"}, {"role": "assistant", "calls": [{}]}, {"role": "tool"}])
def test_a_turn_that_is_none_is_named(turn: Any) -> None:
    """With what was expected."""
    with pytest.raises(Unreadable, match="expected"):
        items({"role": "user", "text_len": 9}, turn)
