"""Codex rollout files: payloads, older bare items, compactions, usage."""

from typing import Any

from proxy.models import Usage
from proxy.replay.formats.codex import Codex
from proxy.replay.recording import Recording

Entry = dict[str, Any]
ASK: Entry = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
SAID: Entry = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]}
META: Entry = {"type": "session_meta", "payload": {"id": "t1"}}


def item(payload: Entry) -> Entry:
    return {"type": "response_item", "payload": payload}


def call(number: int) -> Entry:
    return {"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": "{}"}


def output(number: int) -> Entry:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": "ok"}


def used(tokens: int) -> Entry:
    usage = {"input_tokens": tokens, "cached_input_tokens": 1, "output_tokens": 2, "total_tokens": tokens + 2}
    return {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": usage}}}


def recording(*entries: Entry) -> Recording:
    (read,) = Codex().read_parts(list(entries), "f")
    return read


def roles(read: Recording) -> str:
    return "".join(item.role[0] for item in read.items)


def test_payloads_are_the_session() -> None:
    """Named by its first entry, with the model in use; calls made at once are one answer."""
    read = recording(META, {"type": "turn_context", "payload": {"model": "m"}}, item(ASK), item(call(1)), item(call(2)), item(output(1)))
    assert (read.id, read.model, roles(read), len(read.items[1].calls)) == ("t1", "m", "uat", 2)


def test_older_files_hold_bare_items() -> None:
    """Behind an entry without a type, with states in between."""
    read = recording({"id": "t0", "timestamp": "x"}, ASK, call(1), output(1), {"record_type": "state"}, SAID)
    assert (read.id, roles(read)) == ("t0", "uata")


def test_usage_is_of_the_answer_before_it() -> None:
    """Also where results were written in between; events of other kinds say nothing."""
    other: Entry = {"type": "event_msg", "payload": {"type": "agent_message", "message": "x"}}
    broken: Entry = {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {}}}}
    read = recording(used(5), item(ASK), item(call(1)), item(output(1)), used(10), other, item(SAID), used(20), broken)
    assert {place: note.usage for place, note in read.notes.items()} == {1: Usage(10, 2, 1), 3: Usage(20, 2, 1)}


def test_a_compaction_begins_the_history_anew() -> None:
    """With a summary, or with what the entry says took its place: answers in there are told again, not made."""
    summary: Entry = {"type": "compacted", "payload": {"message": "Summary"}}
    replaced: Entry = {"type": "compacted", "payload": {"message": "", "replacement_history": [ASK, SAID, 3]}}
    read = recording(item(ASK), item(call(1)), item(output(1)), summary, item(call(2)), used(7), replaced, item(call(3)))
    assert roles(read) == "uatuauaa"
    assert read.restarts == {3: 4, 5: 7}
    assert list(read.notes) == [4]


def test_it_is_told_by_its_entries() -> None:
    """A payload alone is not enough."""
    assert Codex().known_by(META)
    assert Codex().known_by({"record_type": "state"})
    assert not Codex().known_by({"type": "session_meta"})
    assert not Codex().known_by({"type": "other", "payload": {}})
    assert not Codex().part({"a": 1})
