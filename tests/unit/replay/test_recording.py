"""Recordings: what is counted in one, and how requests logged one by one become one."""

from proxy.models import Item, Role, ToolCall, Usage
from proxy.replay.recording import Note, Recording, newest

ASK = Item(Role.USER, b'"find it"')
CALL = Item(Role.ASSISTANT, b"null", (ToolCall("c1", "grep", "{}"),))
RESULT = Item(Role.TOOL, b'"a.txt"', (), "c1")
SAID = Item(Role.ASSISTANT, b'"There."')


def log(id: str, *items: Item, notes: dict[int, Note] | None = None) -> Recording:
    return Recording(id, items, notes=notes or {})


def test_calls_and_tools_are_those_that_were_made() -> None:
    """Unless the log says which tools were offered."""
    made = log("a", ASK, CALL, RESULT, CALL, RESULT)
    assert (made.calls, made.offered) == (2, ("grep",))
    assert Recording("a", made.items, tools=("ls", "grep")).offered == ("ls", "grep")


def test_a_history_that_grows_is_one_recording() -> None:
    """Its longest snapshot, with what was noted of each answer; an absent content may be written in several ways."""
    first, second = Note(Usage(10, 1)), Note(Usage(20, 2))
    absent = Item(Role.ASSISTANT, b'""', CALL.calls)
    snapshots = [log("1", ASK, CALL, notes={1: first}), log("2", ASK, absent, RESULT, SAID, notes={3: second})]
    (whole,) = newest(snapshots)
    assert (whole.id, len(whole.items), whole.notes) == ("1", 4, {1: first, 3: second})


def test_lines_of_history_that_grow_in_turn_are_kept_apart() -> None:
    """As two agents write them into one log, or a person who goes back."""
    other = Item(Role.USER, b'"another"')
    snapshots = [log("1", ASK, CALL), log("2", other, SAID), log("3", ASK, CALL, RESULT), log("4", other, SAID, ASK), log("5", ASK, SAID)]
    assert [(kept.id, len(kept.items)) for kept in newest(snapshots)] == [("1", 3), ("2", 3), ("5", 2)]


def test_a_request_sent_again_is_no_second_recording() -> None:
    """A retry of the same history."""
    assert [len(kept.items) for kept in newest([log("1", ASK), log("2", ASK), log("3", ASK, SAID)])] == [2]


def test_what_clients_write_anew_does_not_make_another_recording() -> None:
    """System text with a clock, old results blanked, reminders moved: what was shown first stays."""
    first = log("1", Item(Role.SYSTEM, b'"It is 9"'), ASK, CALL, RESULT, CALL)
    blanked = Item(Role.TOOL, b'"[cleared]"', (), "c1")
    later = log("2", Item(Role.SYSTEM, b'"It is 10"'), ASK, CALL, blanked, CALL, RESULT, SAID, notes={2: Note(), 6: Note(finish="stop")})
    (whole,) = newest([first, later])
    assert whole.items == (*first.items, RESULT, SAID)
    assert whole.notes == {6: Note(finish="stop")}


def test_a_history_with_fewer_system_texts_keeps_its_notes_in_place() -> None:
    """Places are those of the recording that results."""
    first = log("1", Item(Role.SYSTEM), Item(Role.SYSTEM), ASK, CALL, notes={3: Note(Usage(1, 1))})
    (whole,) = newest([first, log("2", ASK, CALL, RESULT, SAID, notes={3: Note(Usage(2, 2))})])
    assert [whole.items[place].role for place in whole.notes] == [Role.ASSISTANT, Role.ASSISTANT]
    assert whole.notes[5] == Note(Usage(2, 2))


def test_histories_without_anything_said_stay_apart() -> None:
    """Nothing goes on from nothing in particular."""
    assert len(newest([log("1"), log("2", Item(Role.SYSTEM)), log("3", ASK)])) == 3
