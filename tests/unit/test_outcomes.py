"""What a result says of its call."""

import json
import time
from typing import Any

import pytest

from proxy.outcomes import BRIEF, EXITED, FAILED, NOTHING, WAITING, error_text, output_text, read_outcome


def flags(content: Any, *, marked: bool = False) -> int:
    return read_outcome(json.dumps(content).encode(), marked=marked)


REPORT = "\n".join(f"test_{n} ok" for n in range(60))


@pytest.mark.parametrize(
    "content",
    [
        "Error: branch not clean",
        "  ERROR: no such task",
        "error calling submit: the patch is empty",
        "[ERROR] Missing value for required parameter 'result'",
        "Tool error: boom",
        "ValidationError: 1 error for finish",
        "Traceback (most recent call last):\n  File",
        "Failed to submit: offline",
        "failed: tests are red",
        "Exception: x",
        "fatal: not a git repository",
        "Unknown tool: foo",
        "Tool 'foo' not found",
        "Tool foo does not exist",
        "foo is not a valid tool, try one of [bar].",
        "No such tool: foo",
        "There is no tool named foo",
        "Missing required parameter: path",
        "edit: missing required argument `old`",
        "<tool_use_error>File has not been read yet.</tool_use_error>",
        "bash: foo: command not found",
        "ls: cannot access 'x': No such file or directory",
        "/bin/bash: line 1: x: Permission denied",
        "Permission denied",
        "Permission to use Bash with command rm has been denied.",
        "The user doesn't want to proceed with this tool use. The tool use was rejected.",
        "Could not find the exact text",
        "The command failed",
        '{"error": "branch not clean"}',
        '{"error": {"code": 4}, "ok": false}',
        '{"success": false, "detail": ""}',
        '{"status": "error"}',
        '{"isError": true, "content": []}',
        '{"is_error": true}',
        '{"ok": false, "text": "' + "x" * 5_000 + '"}',
        [{"type": "text", "text": "Error: branch not clean"}],
    ],
)
def test_a_result_that_reports_a_failure(content: Any) -> None:
    """By its first words, or by a member of the object it is."""
    assert flags(content) & (FAILED | EXITED) == FAILED


@pytest.mark.parametrize(
    "content",
    [
        "",
        "submitted",
        "No errors found",
        "errors: 0",
        "The word failed stands later.",
        "failed tests are listed in out.txt",
        "Errors were fixed",
        "exceptions.py",
        "unknown",
        "Function main not found! Instead, here is the disassembly of FUN_1",
        "notes.txt: no such luck",
        "grep: a.txt: No such file or directory\nb.txt: found it",
        "exit the program with q",
        "Exit code: 0\nfine",
        "Process exited with code 0",
        "return 1",
        "Command exited with code 1",
        "(no output)\n\nCommand exited with code 1",
        '{"error": null, "success": true}',
        '{"error": ""}',
        '{"status": "ok", "note": "no error"}',
        '{"exit_code": 0, "output": "x"}',
        '{"exit_code": "1"}',
        '{"metadata": {"exit_code": 0}}',
        '{"error": "cut off',
        '{"error": ' + "[" * 5_000,
        '["error"]',
        {"error": "an object is not text"},
        5,
        None,
    ],
)
def test_a_result_that_reports_none(content: Any) -> None:
    """What merely speaks of errors, a search that found nothing, and what cannot be read, is taken for success."""
    assert not flags(content) & FAILED
    assert not read_outcome(b"") & FAILED


@pytest.mark.parametrize(
    "content",
    [
        f"Exit code 1\n{REPORT}",
        f"{REPORT}\n\nCommand exited with code 2",
        f"{REPORT}\n[Command finished with exit code 1]",
        f"<returncode>1</returncode>\n<output>\n{REPORT}",
        f"Chunk ID: a1\nWall time: 1.0 seconds\nProcess exited with code 1\nOutput:\n{REPORT}",
        f"(exit code 3)\n{REPORT}",
        f"{REPORT}\nexit status 2",
        json.dumps({"output": REPORT, "metadata": {"exit_code": 1}}),
        json.dumps({"stdout": REPORT, "exitCode": 2}),
        json.dumps({"returncode": 2, "stdout": REPORT}),
        "Exit code 2",
    ],
)
def test_a_program_that_ended_badly(content: str) -> None:
    """By its exit status alone: there is a report to read."""
    assert flags(content) & (FAILED | EXITED) == FAILED | EXITED


def test_a_program_that_could_not_run() -> None:
    """What follows the exit status is the complaint."""
    assert flags("Exit code 127\nbash: foo: command not found") & (FAILED | EXITED) == FAILED
    assert flags("Chunk ID: a\nWall time: 1 s\nProcess exited with code 1\nOutput:\nError: x") & (FAILED | EXITED) == FAILED
    assert flags("Exit code 1\nTraceback (most recent call last):\n  File x\nValueError: y") & (FAILED | EXITED) == FAILED


def test_a_search_that_found_nothing_did_not_fail() -> None:
    """Exit status 1 and not a word, also where the client calls that an error."""
    assert flags("Command exited with code 1", marked=True) == flags("Exit code 1\n(no output)", marked=True) == BRIEF | NOTHING
    assert flags("Command exited with code 2", marked=True) & FAILED
    assert flags("", marked=True) & FAILED
    assert not flags("Command exited with code 1") & FAILED


QWEN = "Command: {command}\nDirectory: (root)\nOutput: {said}\nError: (none)\nExit Code: {code}\nSignal: 0\nProcess Group PGID: 10842"
GEMINI = "Output: {said}\nExit Code: {code}\nBackground PIDs: 7, 8\nProcess Group PGID: 4500"
CODEX = "Chunk ID: a1\nWall time: 1.0 seconds\nProcess exited with code {code}\nOriginal token count: 9\nOutput:\n{said}"


@pytest.mark.parametrize("form", [QWEN, GEMINI])
def test_an_exit_status_among_a_clients_last_lines(form: str) -> None:
    """A report, a complaint, a search that found nothing, a success; the client's lines around them say nothing."""

    def read(said: str, code: object) -> int:
        return flags(form.format(command="x\nOutput", said=said, code=code)) & (FAILED | EXITED)

    assert read(REPORT, 1) == read("1 failed", "01") == read("(empty)", 2) == FAILED | EXITED
    assert read("bash: foo: command not found", 127) == FAILED
    assert read("(empty)", 1) == read(REPORT, 0) == read("Exit code 1", "(none)") == 0
    assert flags([{"type": "text", "text": form.format(command="x", said="1 failed", code=1)}]) & FAILED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (QWEN.format(command="cat a; echo Output: 1", said="one  \ntwo", code=0), "one  \ntwo"),
        (GEMINI.format(said="one\ntwo", code=0), "one\ntwo"),
        ("Output: one\nProcess Group PGID: 4500", "one"),
        ("one\nProcess Group PGID: 4500", "one"),
        ("Command: ls\nProcess Group PGID: 4500", "Command: ls"),
        (CODEX.format(said="one\ntwo", code=0), "one\ntwo"),
        (CODEX.format(said="", code=0), ""),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\none", "one"),
        ("Exit code 1\none", "Exit code 1\none"),
        ("Chunk ID: a1", "Chunk ID: a1"),
        ("one\nOutput:\ntwo", "one\nOutput:\ntwo"),
        (" one\n", "one"),
    ],
)
def test_what_a_command_said_itself(content: str, said: str) -> None:
    """Without what its client wrote around it, the command among that."""
    assert output_text(json.dumps(content).encode()) == said


def test_what_the_client_marked_is_a_failure() -> None:
    """Whatever it says."""
    assert flags("fine", marked=True) == FAILED | BRIEF
    assert flags("x" * 401, marked=True) == flags("\n".join("abcdefg"), marked=True) == FAILED | EXITED  # a report to read
    assert flags("x" * 400, marked=True) == flags("\n".join("abcdef"), marked=True) == FAILED
    assert flags(f"Exit code 1\n{REPORT}", marked=True) == FAILED | EXITED


@pytest.mark.parametrize(
    "content",
    [
        "running",
        "Running...",
        "still running (12 s)",
        "pending",
        "In progress.",
        "in_progress",
        "Queued\nposition 3",
        "Status: running",
        "job_status = pending",
        "id: 4\nstate: in-progress\n",
        "Process j1 is still running",
        "Job 12 is pending.",
        "The build is not finished",
        "Not ready yet",
        "Chunk ID: a\nWall time: 1.0\nProcess running with session ID 12",
        '{"status": "in_progress", "id": 4}',
        '{"id": 4, "state": "QUEUED"}',
        '{"stack": {"name": "web", "StackStatus": "CREATE_IN_PROGRESS"}}',
        '{"a": {"b": {"phase": "Initializing"}}}',
        "<status>running</status>\n<stdout></stdout>",
        "[The command has no new output after 10.0 seconds. You may wait longer]",
        "NAME   READY   STATUS              RESTARTS   AGE\nweb-0  0/1     ContainerCreating   0          4s",
        "build\tpending\t0\thttps://example.org/1\nlint\tpass\t12s\thttps://example.org/2",
        "No new messages.",
        "(no new output)",
        "nothing new",
        "Waiting for the server to start",
        "still waiting on 2 checks",
        "There are no replies yet.",
        "Awaiting approval from the manager.",
        "実行中",
        "Läuft...",
        '{"readyState": "BUILDING"}',
        '{"id": "batch_1", "status": "validating"}',
        '{"workflow_runs": [{"status": "completed"}, {"status": "queued"}]}',
    ],
)
def test_a_result_that_says_to_wait(content: str) -> None:
    """With its first words, a line or a member that states the status."""
    assert flags(content) & (WAITING | FAILED) == WAITING


@pytest.mark.parametrize(
    "content",
    [
        "running 5 tests\ntest a ... ok",
        "Running `npm test`",
        "The server is running on port 3000",
        "pending changes: a.py",
        "the job is running late, says the note",
        "Tests are in progress of being rewritten",
        "ok\n" + "x" * 500 + "\nstatus: running",
        '{"items": [{"status": "in_progress"}]}',
        '{"runs": ["in_progress"], "check_runs": [{"status": "completed"}]}',
        '{"status": "failing"}',
        '{"state": "listening"}',
        '{"status": "running low"}',
        '{"status": 5}',
        '{"a": {"b": {"c": {"status": "pending"}}}}',
        '{"todos": [{"status": "pending"}], "word": "pending"}',
        '{"status": "pending", "text": "' + "x" * 2_000 + '"}',
        "NAME   READY   STATUS    RESTARTS\nweb-0  1/1     Running   0",
        "the  pending one",
        "waiting room: 3 people",
        "no new line at end of file is what it says",
        "no problem yet found here",
        "A line that says running",
    ],
)
def test_a_result_that_only_uses_the_words(content: str) -> None:
    """Never by a word somewhere in it."""
    assert not flags(content) & WAITING


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        "No results found.",
        "no matches found for 'x'",
        "0 files",
        "(no output)",
        "None",
        "There are no open issues",
        "Nothing to show",
        "<system-reminder>Warning: the file exists but is shorter than the provided offset.</system-reminder>",
    ],
)
def test_a_result_that_says_there_is_nothing(content: str) -> None:
    """The whole of it."""
    assert flags(content) == BRIEF | NOTHING


def test_short_results() -> None:
    """A line or two, of less than a hundred characters."""
    assert flags("done") == flags("ok\nbye") == BRIEF
    assert flags("a\nb\nc") == flags("x" * 101) == 0


def test_what_was_done_in_code_is_short() -> None:
    """Playwright's "done" is the code that it ran; with the page behind it there is something to read."""
    done = "### Ran Playwright code\n```js\nawait page.getByRole('button', { name: 'Load more' }).click();\n```"
    assert flags(done) == flags(f"### Result\nundefined\n{done}") == BRIEF
    assert flags(f"{done}\n### Page state\n- text") == flags(done.replace("await", "# await")) == 0


@pytest.mark.parametrize("kind", ["image", "image_url", "input_image", "document"])
def test_a_picture_says_more_than_a_word(kind: str) -> None:
    """The word beside it is not all that came back."""
    assert flags([{"type": "text", "text": "ok"}, {"type": kind, kind: "a"}]) == 0
    assert flags([{"type": "text", "text": "ok"}]) == BRIEF


@pytest.mark.parametrize("where", ["image_url", "file_id"])
def test_a_screen_says_more_than_a_word(where: str) -> None:
    """The result of a `computer_call` of Responses is one object: the picture that a click led to."""
    assert flags({"type": "computer_screenshot", where: "a"}) == 0


@pytest.mark.parametrize(
    "content",
    ["Error: 429 Too Many Requests", "Error: API rate limit exceeded.", '{"error": "overloaded", "code": 529}', "Error: retry after 30 s"],
)
def test_a_failure_that_asks_for_patience(content: str) -> None:
    """It failed, and it is right to ask again later."""
    assert flags(content) & (FAILED | WAITING) == FAILED | WAITING
    assert flags("Error: no file 4290") & (FAILED | WAITING) == FAILED


@pytest.mark.parametrize("fill", ["not a word, return code\n", "\u6587\u5b57\u3092 not ", "x" * 600 + " not \n"])
def test_of_a_long_text_only_the_ends_say_something(fill: str) -> None:
    """What they say does not depend on what stands between, whatever it is written in."""
    text = fill * 60
    for ascii_only in (True, False):
        for says, begins, ends in (
            (0, "", ""),
            (FAILED, "Error: ", ""),
            (FAILED | EXITED, "", "\nexit code 1"),
            (WAITING, "waiting for ", ""),
        ):
            assert read_outcome(json.dumps(f"{begins}{text}{ends}", ensure_ascii=ascii_only).encode()) == says
    assert read_outcome(json.dumps([{"type": "text", "text": f"Error: {text}"}]).encode()) == FAILED
    assert read_outcome(b'"\\ud800 ' + b"not " * 200 + b'"') == 0


@pytest.mark.parametrize("blank", [" ", " \n", " \t", "\u3000 "])
def test_blanks_around_a_text_say_nothing(blank: str) -> None:
    """As of a screen whose lines are filled up: neither are they a part of its length, nor do they stand at its end."""
    room, said = blank * 500, "not a word " * 60
    for text, says in (
        ("No matches found", BRIEF | NOTHING),
        ("bash: foo: command not found", BRIEF | FAILED),
        ("proceed: " + "x" * 364 + ": command not found", FAILED),
        (f"{said}\nexit code 1", FAILED | EXITED),
        (said, 0),
    ):
        for padded in (text + room, f"  {text}{room}"):
            assert read_outcome(json.dumps(padded, ensure_ascii=False).encode()) == says


def test_an_end_is_as_long_in_any_letters() -> None:
    """Written as escapes each takes six bytes."""
    text = "not a word " * 60 + "\nexit code 1\n" + "\u6587" * 60
    assert [read_outcome(json.dumps(text, ensure_ascii=ascii_only).encode()) for ascii_only in (True, False)] == [FAILED | EXITED] * 2


def test_a_letter_whose_small_one_is_two() -> None:
    """It is part of its word."""
    assert flags("\u0130\u015flem is running") == BRIEF | WAITING
    assert flags("\u0130stekError: x") == BRIEF | FAILED


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Error: no such file: a.txt\nhint: look elsewhere", "Error: no such file: a.txt"),
        ("Error:\nold text not found", "Error:\nold text not found"),
        ("Traceback (most recent call last):\n  File 'a', line 3\nValueError: bad\n", "ValueError: bad"),
        ("Traceback (most recent call last):\n  File 'a', line 3", "Traceback (most recent call last):\n  File 'a', line 3"),
        ('{"error": "branch not clean", "id": 5}', "branch not clean"),
        ('{"error": {"message": "bad", "code": 5}}', "bad"),
        ('{"error": {"code": 5}}', '{"error": {"code": 5}}'),
        ('{"success": false}', '{"success": false}'),
        ('{"error": cut', '{"error": cut'),
        ("Exit code 1\n1 failed", "Exit code 1\n1 failed"),
        ("Command failed with exit code 1\n1 failed", "Command failed with exit code 1\n1 failed"),
        (QWEN.format(command="ls zz", said="ls: cannot access it", code=2), "ls: cannot access it"),
        (GEMINI.format(said="Traceback (most recent call last):\n  File 'a'\nValueError: bad", code=1), "ValueError: bad"),
    ],
)
def test_what_tells_two_failures_apart(content: str, text: str) -> None:
    """The complaint itself, without what changes from one call to the next; all of a result that has no such line."""
    assert error_text(json.dumps(content).encode()) == text


@pytest.mark.parametrize(
    "unit", ["error ", "not ", ": ", "exit code ", "running ", "no ", "\n", "status:", "{", "a b is ", "tool x ", "0", "\u0430 "]
)
def test_no_result_takes_long(unit: str) -> None:
    """Patterns are anchored and bounded: a megabyte of anything is read at once."""
    content = json.dumps(unit * (1 << 20)).encode()[: 1 << 20]
    started = time.process_time()
    read_outcome(content)
    error_text(content)
    read_outcome(content, marked=True)
    assert time.process_time() - started < 5  # linear work takes milliseconds; what backtracks takes minutes
