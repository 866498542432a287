"""What a call does."""

import json
from typing import Any

import pytest

from proxy import effects
from proxy.effects import Effect, Message, Offer, deed_of, essence, keeps_notes, message, read_only_hints, speaks, subject

READ, WRITE, SEND, POLL, UNKNOWN, NOTES = Effect.READ, Effect.WRITE, Effect.SEND, Effect.POLL, Effect.UNKNOWN, Effect.BOOKKEEPING


def effect(name: str, arguments: Any = None, **hints: bool) -> Effect:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return deed_of(name, text, hints).effect


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("read_file Read readFile list_directory ls Glob grep_search search_web get_user getUserById mcp__db__list_tables", READ),
        ("functions.read_file web_fetch core_memory_search job_status calculate skill_view list_pull_requests server:find_item", READ),
        ("write_file Edit str_replace apply_patch create_pull_request mcp__github__createIssue delete_row book_reservation", WRITE),
        ("browser_click navigate cancel_order update_reservation_flights git_commit upload", WRITE),
        ("send_email sessions_send slack_post_message reply notify_user post_comment", SEND),
        ("wait wait_for_build sleep poll_job process_poll watch", POLL),
        ("TodoWrite todo_write todowrite write_todos update_plan updatePlan think sequentialthinking TodoRead", NOTES),
        ("foo xyzzy run_python execute python task gateway delegate", UNKNOWN),
        ("r\u0435ad_file \uff52\uff45\uff41\uff44_file reader thread unread spreadsheet", UNKNOWN),
    ],
)
def test_by_the_words_of_a_name(names: str, expected: Effect) -> None:
    """By its verb; a name that only contains one, or looks like one, is unknown. The server's name does not count."""
    assert {name: effect(name) for name in names.split()} == dict.fromkeys(names.split(), expected)


def test_a_verb_in_front_counts_before_one_behind() -> None:
    """`get_update` reads; without a verb in front the last one decides."""
    assert effect("get_update_status") is READ
    assert effect("file_write_read") is READ
    assert effect("file_read_write") is WRITE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"action": "read"}, READ),
        ({"action": "config.get"}, READ),
        ({"operation": "deleteItem"}, WRITE),
        ({"method": "GET"}, READ),
        ({"method": "post"}, WRITE),
        ({"action": "send"}, SEND),
        ({"action": "poll", "session_id": "s"}, POLL),
        ({"command": "view", "path": "a"}, READ),
        ({"command": "str_replace", "path": "a"}, WRITE),
        ({"path": "a", "content": "x"}, WRITE),
        ({"file_path": "a", "old_string": "x", "new_string": "y"}, WRITE),
        ({"action": "xyzzy", "op": "read"}, READ),
        ({"action": 5}, UNKNOWN),
        ({"action": "x" * 50}, UNKNOWN),
        ({"action": ""}, UNKNOWN),
        ({"path": "a"}, UNKNOWN),
        ("not json", UNKNOWN),
        ("[1]", UNKNOWN),
        ("", UNKNOWN),
        ("[" * 100_000, UNKNOWN),
    ],
)
def test_by_its_arguments(arguments: Any, expected: Effect) -> None:
    """What an action says, or the text and the path of a write, where the name says nothing."""
    assert effect("gateway", arguments) is expected


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("bash", {"command": "git status"}, READ),
        ("Bash", {"command": "rm x"}, WRITE),
        ("bash", {"command": "sleep 60"}, POLL),
        ("run_shell_command", {"command": "ls -l", "dir_path": "./d"}, READ),
        ("shell", {"command": ["ls", "-l", "it's"]}, READ),
        ("shell", {"command": ["bash", "-lc", "git status && ls"]}, READ),
        ("shell", {"command": ["bash", "-lc", "rm x"]}, WRITE),
        ("run_commands", {"commands": ["ls", "git status"]}, READ),
        ("run_commands", {"commands": ["ls", "git commit"]}, WRITE),
        ("fabric_exec", {"command": "echo noop", "display_name": "noop1"}, READ),
        ("anything", {"cmd": "ls"}, READ),
        ("bash", {"command": "ls", "path": "/srv"}, READ),
        ("bash", {}, WRITE),
        ("bash", {"command": 5}, WRITE),
        ("execute_bash", {"command": " ", "is_input": "false"}, POLL),
        ("gateway", {"command": ""}, READ),
        ("execute_python", {"code": "import time\ntime.sleep(30)"}, POLL),
        ("run_code", {"code": "await asyncio.sleep(5)", "timeout": 9}, POLL),
        ("python", {"code": "print('asleep(1)')"}, UNKNOWN),
        ("edit_file", {"path": "a.py", "new_string": "time.sleep(1)"}, WRITE),
        ("bash", {"action": "git status"}, READ),
        ("bash", {"action": "rm x"}, WRITE),
        ("shell", {"input": "sleep 60", "timeout": 90}, POLL),
        ("bash", {"action": "ls", "input": "y"}, WRITE),
        ("execute_shell_command", {"code": "ls"}, READ),
        ("bash", {"command": []}, WRITE),
        ("bash", {"command": [1]}, WRITE),
        ("write_stdin", {"session_id": 1, "chars": ""}, POLL),
        ("write_stdin", {"session_id": 1, "chars": "y"}, WRITE),
        ("write_stdin", {"session_id": 1}, POLL),
        ("send_keystrokes", {"keystrokes": "", "duration": 5}, POLL),
        ("BashOutput", {"bash_id": "b1"}, POLL),
        ("get_terminal_output", {"id": "t1"}, POLL),
        ("read_output", {"id": 4}, POLL),
        ("run_command_output", {"command": "ls"}, READ),
        ("format_output", {"text": "x"}, UNKNOWN),
        ("receive_message", {"queue": "q", "wait_seconds": 20}, POLL),
        ("receive_message", {"queue": "q", "wait_seconds": 0}, READ),
        ("receive_message", {"queue": "q", "wait": True}, READ),
        ("click", {"ref": "e1", "wait_ms": 500}, WRITE),
        ("ask_user", {"question": "Shall I go on?"}, POLL),
        ("ask_followup_question", {"question": "Which one?"}, POLL),
        ("ask", {"question": "Which one?"}, UNKNOWN),
        ("execute_sql", {"query": "select 1"}, READ),
        ("execute_sql", {"query": "drop table t"}, WRITE),
        ("ask", {"sql": "select 1"}, READ),
        ("web_search", {"query": "delete"}, READ),
    ],
)
def test_by_the_command_or_the_statement(name: str, arguments: Any, expected: Effect) -> None:
    """A shell's tool does what its command does, whatever it is called; an empty write to a process waits for it."""
    assert effect(name, arguments) is expected


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("press_key", {"key": "Down"}, True),
        ("browser_scroll", {"direction": "down"}, True),
        ("send_keys", {"keys": "j"}, True),
        ("computer", {"action": "key", "text": "Down"}, True),
        ("next_page", {}, True),
        ("step", {"action": "forward"}, True),
        ("get_next_page", {}, False),
        ("click", {"ref": "e1"}, True),
        ("computer", {"action": "left_click", "coordinate": [1, 2]}, True),
        ("stagehand_act", {"action": "click the next month arrow"}, True),
        ("move", {"direction": "north"}, True),
        ("move_forward", {"meters": 0.5}, True),
        ("volume_up", {}, True),
        ("undo", {}, True),
        ("browser_evaluate", {"function": "() => window.scrollBy(0, 2000)"}, True),
        ("python", {"code": "batch = next(rows)"}, True),
        ("move", {"source": "a", "destination": "b"}, False),
        ("look_up", {}, False),
        ("sort_rows", {"order": "down"}, False),
        ("python", {"code": "print(text)"}, False),
        ("bash", {"command": "press"}, False),
    ],
)
def test_what_moves_on_by_a_step(name: str, arguments: Any, expected: bool) -> None:
    """Made many times to get anywhere; it changes something."""
    deed = deed_of(name, json.dumps(arguments), {})
    assert deed.steps is expected
    assert not expected or deed.effect is WRITE


def test_what_calls_do_is_remembered_of_so_many() -> None:
    """By a number alone, whatever was in their arguments."""
    for number in range(5_000):
        effect("read_file", {"path": number})
    assert effect("read_file", {"path": 4_999}) is READ
    assert len(effects._DEEDS) <= 4_096
    assert all(isinstance(key, int) for key in effects._DEEDS)


def test_a_call_whose_arguments_are_gone() -> None:
    """Only its name is left; a shell's may have done anything."""
    assert deed_of("bash", None, {}).effect is WRITE
    assert deed_of("read_file", None, {}).effect is READ


def test_what_is_searched_for_and_which_program_runs() -> None:
    """Kept beside the effect."""
    assert deed_of("grep", "{}", {}).searches
    assert not deed_of("calculate", "{}", {}).searches
    assert deed_of("bash", '{"command": "cd a && rg x"}', {}).program == "rg"
    assert deed_of("execute_sql", '{"sql": "select 1"}', {}).searches


@pytest.mark.parametrize(
    ("name", "hint", "expected"),
    [
        ("foo", True, READ),
        ("foo", False, WRITE),
        ("delete_all", True, READ),
        ("read_file", False, WRITE),
        ("send_mail", False, SEND),
        ("wait", True, POLL),
        ("think", False, NOTES),
    ],
)
def test_what_a_tool_says_of_itself_goes_before_its_name(name: str, hint: bool, expected: Effect) -> None:
    """But waiting stays waiting, and notes stay notes."""
    assert effect(name, {}, **{name: hint}) is expected


def test_effects_that_change_something() -> None:
    """Unknown ones may."""
    assert [one for one in Effect if one.changes] == [WRITE, SEND, UNKNOWN]


def tool(name: Any, annotations: Any, *, inside: bool = True) -> dict[str, Any]:
    definition = {"name": name, "annotations": annotations}
    return {"type": "function", "function": definition} if inside else definition


@pytest.mark.parametrize(
    ("tools", "hints"),
    [
        ([tool("a", {"readOnlyHint": True}), tool("b", {"readOnlyHint": False}, inside=False)], {"a": True, "b": False}),
        ([tool("a", {"destructiveHint": True})], {"a": False}),
        ([tool("a", {"idempotentHint": True})], {"a": False}),
        ([tool("a", {"idempotentHint": False})], {}),
        ([tool("a", {"readOnlyHint": "yes"})], {}),
        ([tool("a", None), tool("b", {"readOnlyHint": True})], {"b": True}),
        ([tool(None, {"readOnlyHint": True})], {}),
        ([{"type": "web_search", "annotations": {"readOnlyHint": True}}], {}),
        ([{"type": "function", "annotations": {"readOnlyHint": True}, "function": {"name": "a"}}], {"a": True}),
        ([5, "readOnlyHint"], {}),
        ({"readOnlyHint": True}, {}),
        ([{"function": {"name": "a"}}], {}),
    ],
)
def test_annotations_of_a_request(tools: Any, hints: dict[str, bool]) -> None:
    """As MCP has them, in or beside the definition; what cannot be read says nothing."""
    offer = Offer(("a", "b"), json.dumps(tools).encode())
    assert offer.hints == hints
    assert offer.hints is offer.hints
    assert read_only_hints(b'[{"name": "readOnlyHint') == {}


def test_notes() -> None:
    """Tools of the agent's own notes, by their whole name."""
    assert keeps_notes("mcp__x__TodoWrite")
    assert not keeps_notes("todoist_create_task")
    assert not keeps_notes("")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"command": "ls", "description": "Look"}, {"command": "ls", "description": "Look again"}, True),
        ({"command": "ls", "displayName": "x"}, {"displayName": "y", "command": "ls"}, True),
        ({"command": "ls"}, {"command": "ls -l"}, False),
    ],
)
def test_the_essence_of_arguments(one: Any, other: Any, same: bool) -> None:
    """What is left without the labels for people."""
    assert (essence(json.dumps(one)) == essence(json.dumps(other))) is same


def test_arguments_without_essence() -> None:
    """Labels alone, nothing, or nothing readable."""
    assert [essence(text) for text in ('{"reason": "x"}', "{}", "no", None)] == [None] * 4


def test_a_message_is_its_addressee_and_its_words() -> None:
    """Without numbers and case, so that one that only counts up stays the same."""
    one = message('{"to": "peer", "message": "Please review, take 1"}')
    assert one == Message('{"to":"peer"}', "please review, take #")
    assert message('{"to": "peer", "message": "please  review, take 27", "reason": "again"}') == one
    assert message('{"to": "other", "message": "Please review, take 1"}') != one
    assert [message(text) for text in ('{"message": "hi"}', '{"to": "peer"}', '{"to": "x", "message": 5}', "no", None)] == [None] * 5


def test_tools_that_send_messages() -> None:
    """By their name alone."""
    assert speaks("sessions_send")
    assert not speaks("read_file")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"page": 4}, {"page": 5}, True),
        ({"q": "part 4"}, {"q": "part 5"}, True),
        ({"q": "x", "request_id": "a"}, {"q": "x", "request_id": "b"}, True),
        ({"path": "a.py"}, {"path": "././A.py"}, False),
        ({"path": "./a.py"}, {"path": "././A.py"}, True),
        ({"at": [1, 2]}, {"at": [3, 4]}, True),
        ({"share": 0.5}, {"share": 0.7}, True),
        ({"all": True}, {"all": False}, False),
        ({"path": "a.py"}, {"path": "b.py"}, False),
        ({"date": "2026-05-01"}, {"date": "2026-05-02"}, False),
        ({"ticket_id": 4}, {"ticket_id": 5}, False),
        ({"issueNumber": 4}, {"issueNumber": 5}, False),
        ({"valid": 4}, {"valid": 5}, True),
        ({}, {}, True),
    ],
)
def test_what_a_call_is_about(one: Any, other: Any, same: bool) -> None:
    """What is counted up, made at random or only a label does not tell two subjects apart; names, dates and the numbers of things do."""
    assert (subject(json.dumps(one)) == subject(json.dumps(other))) is same
    assert subject("no object") == subject(None) == ""
