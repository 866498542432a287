"""Claude Code session files: answers in pieces, sub-agents, compactions."""

from typing import Any

from proxy.models import Role, Usage
from proxy.replay.formats.claude_code import ClaudeCode
from proxy.replay.recording import Recording

Entry = dict[str, Any]


def entry(kind: str, message: Entry, **more: Any) -> Entry:
    return {"type": kind, "message": message, "sessionId": "s1", "uuid": more.pop("uuid", "u"), "parentUuid": None, **more}


def asked(text: str, **more: Any) -> Entry:
    return entry("user", {"role": "user", "content": text}, **more)


def used(message: str | None, number: int, **more: Any) -> Entry:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"ls {number}"}}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": number}
    return entry("assistant", {"role": "assistant", "id": message, "model": "m", "content": [block], "usage": usage}, **more)


def result(number: int, **more: Any) -> Entry:
    block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "ok"}
    return entry("user", {"role": "user", "content": [block]}, **more)


def recordings(*entries: Entry) -> list[Recording]:
    return ClaudeCode().read_parts(list(entries), "f")


def roles(recording: Recording) -> str:
    return "".join(item.role[0] for item in recording.items)


def test_an_answer_in_several_entries_is_one() -> None:
    """Also where a result was written before its last block, or an entry twice."""
    (read,) = recordings(asked("go"), used("m1", 1), result(1), used("m1", 2), used("m1", 2), result(2), used("m2", 3))
    assert (read.id, read.model, roles(read)) == ("s1", "m", "uatta")
    assert [len(item.calls) for item in read.items if item.role is Role.ASSISTANT] == [2, 1]
    assert read.notes[1].usage == Usage(15, 2, 10)


def test_answers_without_an_id_are_kept_apart() -> None:
    """Nothing says that they belong together."""
    (read,) = recordings(used(None, 1), used(None, 2))
    assert roles(read) == "aa"


def test_what_the_client_wrote_itself_is_no_answer() -> None:
    """Nor are entries that are no messages."""
    own = entry("assistant", {"role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]})
    odd = entry("assistant", {"role": "assistant", "content": "text alone"})
    (read,) = recordings({"type": "summary", "summary": "x"}, asked("go"), own, odd, {"type": "user", "sessionId": "s1"}, used("m1", 1))
    assert roles(read) == "ua"


def test_sub_agents_are_histories_of_their_own() -> None:
    """By their id, or in older files by the entry that theirs began with."""
    read = recordings(
        asked("go"),
        used("m1", 1),
        asked("look", isSidechain=True, agentId="a7"),
        used("m2", 2, isSidechain=True, agentId="a7"),
        asked("older", isSidechain=True, uuid="r1"),
        used("m3", 3, isSidechain=True, uuid="r2", parentUuid="r1"),
        asked("another", isSidechain=True, uuid="q1", parentUuid="gone"),
        result(1),
    )
    assert [(recording.id, roles(recording)) for recording in read] == [("s1", "uat"), ("s1/a7", "ua"), ("s1/r1", "ua"), ("s1/q1", "u")]


def test_a_compaction_begins_the_history_anew() -> None:
    """With the summary; a summary that stands first begins nothing."""
    (read,) = recordings(
        asked("Summary of before", isCompactSummary=True),
        used("m1", 1),
        result(1),
        asked("Summary", isCompactSummary=True),
        used("m1", 2),
        result(2),
    )
    assert roles(read) == "uatuat"
    assert read.restarts == {3: 4}
    assert sorted(read.notes) == [1, 4]


def test_it_is_told_by_its_entries() -> None:
    """Messages alone are not enough."""
    assert ClaudeCode().known_by(asked("go"))
    assert not ClaudeCode().known_by({"type": "user", "message": {"role": "user"}})
    assert not ClaudeCode().known_by({"type": "message", "sessionId": "s1", "message": {}})
    assert ClaudeCode().part({"type": "summary"})
    assert not ClaudeCode().part({"message": {}})
