"""What agents of today do at work, client by client, that looks like a loop and is none; and what is one. As recordings.

Names of tools, arguments and results are those of the clients. Each pattern is made for the longest that it lasts in practice.
"""

import json
from collections.abc import Sequence
from random import Random

from proxy.models import Item, Role, ToolCall
from proxy.replay.recording import Recording
from tests.generated import Message, Step
from tests.work.steps import NONE, Pattern, again, clock, edit, patch, random_id, rounds, seconds, shell


def recorded(name: str, pattern: Pattern, random: Random) -> Recording:
    """A run of a pattern. The offered tools are those called."""
    items = [Item(Role.SYSTEM, b'"You are an agent."'), Item(Role.USER, b'"Do the task."')]
    made = 0
    for number, message in enumerate(pattern(random)):
        if isinstance(message, str):
            items += [Item(Role.ASSISTANT, json.dumps(message).encode()), Item(Role.USER, b'"And now part %d."' % number)]
            continue
        ids = [f"call_{made + at}" for at in range(len(message))]
        made += len(message)
        calls = tuple(ToolCall(id, step[0], json.dumps(step[1])) for id, step in zip(ids, message, strict=True))
        items.append(Item(Role.ASSISTANT, b"null", calls))
        items += [Item(Role.TOOL, _content(step[2]), call_id=id) for id, step in zip(ids, message, strict=True)]
    return Recording(name, tuple(items))


def _content(result: str) -> bytes:
    """A result as it is sent; one that begins with `image:` is a picture."""
    if not result.startswith("image:"):
        return json.dumps(result).encode()
    url = {"url": f"data:image/png;base64,{result[6:]}"}
    return json.dumps([{"type": "text", "text": "Took a screenshot"}, {"type": "image_url", "image_url": url}]).encode()


# ---- work


def test_after_each_edit(random: Random) -> Sequence[Message]:
    """Claude Code: the same failure after twelve different edits."""
    said = "Exit code 1\n=== FAILURES ===\nE   AssertionError: assert 3 == 4\nFAILED tests/test_a.py::test_x\n1 failed, 41 passed in "
    return [m for n in range(12) for m in (edit(n), shell("pytest -q", said + seconds(random)))]


def status_between_edits(_random: Random) -> Sequence[Message]:
    """The same `git status` and `git diff --stat` after each edit of one file."""
    status = shell("git status --short", " M src/app.py")
    stat = shell("git diff --stat", " src/app.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)")
    return [m for n in range(12) for m in (edit(n), status, stat)]


def build_of_codex(random: Random) -> Sequence[Message]:
    """Codex: patch, build, patch, build; the error does not move for a long time."""
    error = "error[E0308]: mismatched types\n --> src/app.rs:10:5\nerror: could not compile `app`"
    said = json.dumps({"output": error, "metadata": {"exit_code": 101, "duration_seconds": 1.1}})
    return [m for n in range(15) for m in (patch(n), [("shell", {"command": ["bash", "-lc", "cargo build"]}, said)])]


def sed_and_look(_random: Random) -> Sequence[Message]:
    """Edits by `sed -i` that do not match; the file is looked at after each."""
    look = shell("cat config.ini", "[server]\nport = 80\nhost = a")
    return [m for n in range(8) for m in (shell(f"sed -i 's/port={n}/port=8080/' config.ini", ""), look)]


def wait_for_a_server(_random: Random) -> Sequence[Message]:
    """A pause and a look in one command."""
    up = shell("sleep 5 && curl -s localhost:3000/health", "curl: (7) Failed to connect to localhost port 3000: Connection refused")
    return [shell("npm run dev > dev.log 2>&1 &", ""), *[up] * 12, shell("sleep 5 && curl -s localhost:3000/health", "ok")]


def output_of_a_background_shell(_random: Random) -> Sequence[Message]:
    """Claude Code: `BashOutput` of a job that says nothing for a while."""
    said = "<status>running</status>\n\n<stdout></stdout>\n\n<timestamp>2026-05-0{}T10:00:0{}Z</timestamp>"
    return [[("BashOutput", {"bash_id": "b1"}, said.format(n % 9 + 1, n % 10))] for n in range(15)]


def empty_input(_random: Random) -> Sequence[Message]:
    """Codex: an empty `write_stdin` only waits."""
    said = "Chunk ID: {}\nWall time: 10.00{} seconds\nProcess running with session ID 7\nOutput:\n"
    return [[("write_stdin", {"session_id": 7, "chars": ""}, said.format(f"{n:06x}", n % 10))] for n in range(15)]


def empty_command(_random: Random) -> Sequence[Message]:
    """OpenHands: an empty command looks at the one that runs."""
    said = "[The command has no new output after 10.0 seconds. You may wait longer to see additional output by sending empty command '']"
    start = ("execute_bash", {"command": "make -j8"}, said)
    return [[start], *[[("execute_bash", {"command": "", "is_input": "false"}, said)]] * 12]


def checks_of_a_pull_request(_random: Random) -> Sequence[Message]:
    """The model takes its time: no pause between looks at what is under way."""
    said = "build\tpending\t0\thttps://ci.example.org/1\nlint\tpass\t12s\thttps://ci.example.org/2"
    done = "build\tpass\t3m\thttps://ci.example.org/1\nlint\tpass\t12s\thttps://ci.example.org/2"
    return [*[shell("gh pr checks 12", said)] * 9, shell("gh pr checks 12", done)]


def pods_that_start(_random: Random) -> Sequence[Message]:
    """Only the age changes."""
    said = "NAME    READY   STATUS              RESTARTS   AGE\nweb-0   0/1     ContainerCreating   0          {}s"
    return [shell("kubectl get pods", said.format(4 * n)) for n in range(9)]


def stack_that_is_created(_random: Random) -> Sequence[Message]:
    """A status inside an object."""
    said = json.dumps({"Stacks": {"StackName": "web", "StackStatus": "CREATE_IN_PROGRESS", "Tags": "none"}}, indent=1)
    return [[("describe_stack", {"name": "web"}, said)]] * 9


def wait_and_snapshot(_random: Random) -> Sequence[Message]:
    """Playwright MCP: a page that loads."""
    page = "### Page state\n- Page URL: https://example.org/app\n- generic: Loading…"
    return [m for _ in range(8) for m in ([("browser_wait_for", {"time": 3}, "Waited for 3")], [("browser_snapshot", NONE, page)])]


def scroll_to_the_end(_random: Random) -> Sequence[Message]:
    """The answer says no more than that it was done."""
    return [*[[("scroll", {"direction": "down", "amount": 500}, "Scrolled down")]] * 9, [("get_page_text", NONE, "the end of the page")]]


def keys(_random: Random) -> Sequence[Message]:
    """A menu by its arrow keys."""
    return [*[[("press_key", {"key": "Down"}, "Pressed Down")]] * 12, [("press_key", {"key": "Enter"}, "Pressed Enter")]]


def keys_and_pictures(random: Random) -> Sequence[Message]:
    """Each key moves the picture."""
    shots: list[list[Step]] = [[("get_screenshot", NONE, f"image:{random.randrange(1 << 60):015d}")] for _ in range(12)]
    return [m for shot in shots for m in ([("press", {"key": "Down"}, "ok")], shot)]


def clicks_at_one_place(random: Random) -> Sequence[Message]:
    """A computer: "next" stays where it is, the screen does not."""
    given = {"action": "left_click", "coordinate": [640, 710]}
    return [[("computer", given, f"image:{random.randrange(1 << 60):015d}")] for _ in range(9)]


def next_page(_random: Random) -> Sequence[Message]:
    """A cursor that the tool keeps."""
    return [[("results_next", NONE, f"row {n}\nrow {n + 1}\nrow {n + 2}")] for n in range(0, 90, 3)]


def window_of_an_editor(_random: Random) -> Sequence[Message]:
    """SWE-agent: `scroll_down`."""
    return [shell("scroll_down", f"[File: a.py (900 lines total)]\n({n} more lines above)\n{n}: x = {n}") for n in range(100, 900, 100)]


def todo_after_each_step(_random: Random) -> Sequence[Message]:
    """The list is written before and after each item."""
    done = "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress."
    states = [[{"content": f"step {i}", "status": "completed" if i < n else "pending"} for i in range(9)] for n in range(9)]
    return [m for n in range(9) for m in ([("TodoWrite", {"todos": states[n]}, done)], edit(n))]


def one_prompt_for_many(_random: Random) -> Sequence[Message]:
    """Sub-agents: one prompt several times at once, and again later."""
    given = {"description": "Review", "prompt": "Review the diff and report problems.", "subagent_type": "reviewer"}
    return [[("Task", given, f"Report {n}.{i}: a problem in line {n * i}") for i in range(4)] for n in range(6)]


def hand_offs(_random: Random) -> Sequence[Message]:
    """LangGraph: a supervisor hands over, the other looks one thing up and hands back."""
    over: Step = ("transfer_to_researcher", NONE, "Successfully transferred to researcher")
    back: Step = ("transfer_back_to_supervisor", NONE, "Successfully transferred back to supervisor")
    found = [("web_search", {"query": f"topic {n}"}, f"1. page {n}\n2. page {n}b\n3. page {n}c") for n in range(10)]
    return [m for step in found for m in ([over], [step], [back])]


def push_again(_random: Random) -> Sequence[Message]:
    """A network that is away for some minutes."""
    failed = "fatal: unable to access 'https://example.org/a.git/': Could not resolve host: example.org"
    return [m for _ in range(7) for m in (shell("git push", failed), shell("sleep 30", ""))]


def hooks_that_refuse(_random: Random) -> Sequence[Message]:
    """A commit that a hook refuses until the last problem is mended."""
    refused = "Exit code 1\nflake8...Failed\n- hook id: flake8\n- exit code: 1\nsrc/app.py:1:1: E302"
    return [m for n in range(9) for m in (edit(n), shell("git add -A && git commit -m 'Mend it'", refused))]


def cells(_random: Random) -> Sequence[Message]:
    """A notebook: one cell run again after each change of another."""
    run = [("run_cell", {"index": 3}, "accuracy: 0.71")]
    return [m for n in range(12) for m in ([("edit_cell", {"index": 2, "source": f"lr = 0.{n}1"}, "Cell updated")], run)]


def state_of_a_repl(_random: Random) -> Sequence[Message]:
    """One expression whose value moves."""
    return [[("python", {"code": "print(next(rows))"}, f"({n}, 'name {n}')")] for n in range(30)]


def verdicts_of_many(_random: Random) -> Sequence[Message]:
    """Many checks, one by one, with nothing to say."""
    return [shell(f"python -m py_compile src/m{n}.py", "") for n in range(30)]


def searches_in_vain_then_not(_random: Random) -> Sequence[Message]:
    """Nine names that nobody uses."""
    vain = [[("Grep", {"pattern": f"old_name_{n}", "path": "/repo"}, "No files found")] for n in range(9)]
    return [*vain, [("Grep", {"pattern": "new_name", "path": "/repo"}, "Found 1 file\nsrc/app.py")]]


def files_written(_random: Random) -> Sequence[Message]:
    return [
        [("Write", {"file_path": f"/repo/f{n}.md", "content": f"# {n}"}, f"File created successfully at: /repo/f{n}.md")] for n in range(40)
    ]


def pages_by_offset(_random: Random) -> Sequence[Message]:
    return [
        [("Read", {"file_path": "/repo/big.log", "offset": n, "limit": 200}, f"{n}\tline {n}\n{n + 1}\tline")] for n in range(1, 6_000, 200)
    ]


def empty_pages(_random: Random) -> Sequence[Message]:
    """Days without an entry."""
    days = [[("list_events", {"date": f"2026-03-{n:02d}"}, '{"events": []}')] for n in range(1, 9)]
    return [*days, [("list_events", {"date": "2026-03-09"}, '{"events": [{"title": "review"}]}')]]


def mail_to_many(_random: Random) -> Sequence[Message]:
    return [[("send_email", {"to": f"p{n}@example.org", "body": "You are invited to the review."}, '{"success": true}')] for n in range(20)]


def installs(_random: Random) -> Sequence[Message]:
    """One after the other, all alike."""
    return [shell(f"pip install pkg{n} 2>&1 | tail -1", f"Successfully installed pkg{n}-1.0") for n in range(15)]


def memory_before_each_part(_random: Random) -> Sequence[Message | str]:
    """A person asks for one part after the other; each begins with a look at the same notes."""
    notes = [("memory", {"command": "view", "path": "/memories"}, "Here are the files:\n/memories\n/memories/notes.md")]
    return [m for n in range(12) for m in (notes, edit(n), f"Part {n} is done.")]


def debugging_with_prints(random: Random) -> Sequence[Message]:
    """A script that is written anew and run each time, with one outcome."""
    run = shell("python repro.py", 'Traceback (most recent call last):\n  File "repro.py", line 3\nValueError: bad shape')
    given = [{"file_path": "repro.py", "content": f"import x\nprint({random.random()})"} for _ in range(10)]
    return [m for each in given for m in ([("Write", each, "File written")], run)]


def heredocs(_random: Random) -> Sequence[Message]:
    """Everything in one command."""
    return [
        shell(f"cat > t.py <<'EOF'\nprint({n})\nEOF\npython t.py", "Exit code 1\nModuleNotFoundError: No module named 'numpy'")
        for n in range(7)
    ]


def game(random: Random) -> Sequence[Message]:
    """An environment that takes one step at a time."""
    return [[("step", {"action": "forward"}, json.dumps({"reward": 0.0, "obs": random.random()}))] for _ in range(40)]


def inbox(_random: Random) -> Sequence[Message]:
    """An agent of a team that waits for another."""
    return [
        *[[("check_messages", {"from": "worker-1"}, "No new messages.")]] * 9,
        [("check_messages", {"from": "worker-1"}, "done: see a.md")],
    ]


def files_that_fail_with_a_report(random: Random) -> Sequence[Message]:
    """Test files one by one, each red in its own way, no status said."""
    report = "FAIL test_{0}\n" + "\n".join(f"  expected {at} to be {at + 1}" for at in range(9)) + "\nTests: 1 failed, {0} passed"
    return [
        shell(f"npx jest test_{n} 2>&1", report.format(n) + f"\nTime: {seconds(random)}\n\nCommand exited with code 1") for n in range(12)
    ]


def formats_in_turn(_random: Random) -> Sequence[Message]:
    """Formatting and linting again after each edit."""
    lint = shell("ruff check . && mypy .", "All checks passed!\nSuccess: no issues found in 41 source files")
    return [m for n in range(14) for m in (edit(n), shell("ruff format .", "41 files left unchanged"), lint)]


def browser_form(_random: Random) -> Sequence[Message]:
    """Field by field, "typed" each time; a look at the page now and then."""
    fields: list[list[Step]] = [[("browser_type", {"ref": f"e{n}", "text": f"value {n}"}, "ok")] for n in range(12)]
    return [m for n, field in enumerate(fields) for m in (field, [("browser_snapshot", NONE, f"form\n{n} of 12 filled in\nsubmit")])]


def plus(_random: Random) -> Sequence[Message]:
    """A counter of a page, read after each click."""
    return [m for n in range(12) for m in ([("click", {"ref": "plus"}, "Clicked")], [("read_text", {"ref": "amount"}, f"{n}")])]


def long_build(_random: Random) -> Sequence[Message]:
    """A workflow run and a pause, in turn."""
    look = shell("gh run view 7 --json status", '{"status":"in_progress"}')
    return [
        *[m for _ in range(15) for m in (shell("sleep 60", ""), look)],
        shell("gh run view 7 --json status", '{"status":"completed"}'),
    ]


def mcp_batch(_random: Random) -> Sequence[Message]:
    """A record a call, each answered alike."""
    said = json.dumps({"content": [{"type": "text", "text": "Issue updated successfully"}], "isError": False})
    return [[("mcp__linear__update_issue", {"id": f"ENG-{n}", "state": "done"}, said)] for n in range(25)]


def wrong_turns(_random: Random) -> Sequence[Message]:
    """Six guesses at a path, then the right one."""
    return [
        [("read_file", {"path": f"{part}/conf.yaml"}, f"Error: File not found: {part}/conf.yaml")]
        for part in ("a", "etc", "src", "app", "cfg", "d")
    ] + [[("read_file", {"path": "deploy/conf.yaml"}, "replicas: 2\nimage: a")]]


def patch_at_the_eighth(_random: Random) -> Sequence[Message]:
    """A patch that does not apply until the context is right."""
    failed = "Error: Failed to find expected lines in /repo/src/app.rs"
    tries = [[("apply_patch", {"input": f"*** Update File: src/app.rs\n-let {w} = 1;\n+let {w} = 2;"}, failed)] for w in "uvwxyz"]
    right = [("apply_patch", {"input": "*** Update File: src/app.rs\n-let mut total = 1;\n+let mut total = 2;"}, "Done!")]
    return [*tries, [("apply_patch", {"input": "*** Update File: src/app.rs\n-let q = 1;\n+let q = 2;"}, failed)], right]


def routes_of_a_page(_random: Random) -> Sequence[Message]:
    """Status codes, one a call."""
    return [shell(f'curl -s -o /dev/null -w "%{{http_code}}" http://localhost:3000/{n}', "200") for n in range(20)]


def nothing_left(_random: Random) -> Sequence[Message]:
    """What was removed is not found any more; each search comes after its edit."""
    return [m for n in range(14) for m in (edit(n), shell(f"grep -rn old_{n} src/", ""))]


def retries_with_more_time(_random: Random) -> Sequence[Message]:
    return [[("Bash", {"command": "npm test", "timeout": 60_000 * n}, "Command timed out")] for n in range(1, 5)]


WORK: dict[str, Pattern] = {
    work.__name__: work
    for work in (
        *(test_after_each_edit, status_between_edits, build_of_codex, sed_and_look, wait_for_a_server, output_of_a_background_shell),
        *(empty_input, empty_command, checks_of_a_pull_request, pods_that_start, stack_that_is_created, wait_and_snapshot),
        *(scroll_to_the_end, keys, keys_and_pictures, clicks_at_one_place, next_page, window_of_an_editor, todo_after_each_step),
        *(one_prompt_for_many, hand_offs, push_again, hooks_that_refuse, cells, state_of_a_repl, verdicts_of_many),
        *(searches_in_vain_then_not, files_written, pages_by_offset, empty_pages, mail_to_many, installs, memory_before_each_part),
        *(debugging_with_prints, heredocs, game, inbox, files_that_fail_with_a_report, formats_in_turn, browser_form, plus, long_build),
        *(mcp_batch, wrong_turns, patch_at_the_eighth, routes_of_a_page, nothing_left, retries_with_more_time),
    )
}


# ---- collapses


_LISTING = "total 3\n-rw-r--r-- a.py\n-rw-r--r-- b.py\n-rw-r--r-- c.py"

STUCK: dict[str, tuple[Pattern, int]] = {
    "a read of one file": (again(lambda r, n: [("Read", {"file_path": "/repo/a.py"}, "1\tx = 1\n2\ty = 2")]), 5),
    "a clock in the result": (again(lambda r, n: shell("git status", f"# {clock(n)}\nOn branch main\nnothing to commit")), 5),
    "ids in the result": (
        again(lambda r, n: [("create_ticket", {"title": "x"}, f'{{"ok": true, "request_id": "req_{random_id(r)}"}}')]),
        5,
    ),
    "how long it took": (again(lambda r, n: shell("pytest -q", f"1 failed, 3 passed in 0.{n:02d}s\n\nCommand exited with code 1")), 5),
    "ids in the arguments": (again(lambda r, n: [("exec", {"command": "git status", "request_id": random_id(r)}, "clean")]), 10),
    "other words for one search": (again(lambda r, n: [("web_search", {"query": f"how {random_id(r)}"}, "No results found.")]), 11),
    "one page for every query": (again(lambda r, n: [("search", {"query": f"q{n}"}, _LISTING)]), 10),
    "one path, spelled in turn": (
        again(lambda r, n: [("read_file", {"path": "./" * (n % 12) + "a.py"}, "x = 1\ny = 2\nz = 3")]),
        10,
    ),
    "thoughts in between": (
        rounds(lambda r, n: [("think", {"thought": f"Let me look again, {n}"}, "ok")], lambda r, n: shell("ls", _LISTING)),
        10,
    ),
    "a todo list in between": (
        rounds(lambda r, n: [("TodoWrite", {"todos": [f"look {n}"]}, "ok")], lambda r, n: shell("ls", _LISTING)),
        10,
    ),
    "words to itself in between": (rounds(lambda r, n: shell(f"echo 'try {n}'", f"try {n}"), lambda r, n: shell("ls", _LISTING)), 16),
    "two in turn": (rounds(lambda r, n: shell("ls", _LISTING), lambda r, n: shell("pwd", "/repo")), 10),
    "three in turn": (
        rounds(lambda r, n: shell("ls", _LISTING), lambda r, n: shell("cat a.py", f"x\n# {clock(n)}"), lambda r, n: shell("pwd", "/repo")),
        15,
    ),
    "an edit that is refused": (
        again(lambda r, n: [("Edit", {"file_path": "a.py", "old_string": random_id(r)}, "Error: String to replace not found in file.")]),
        9,
    ),
    "arguments that are missing": (
        again(
            lambda r, n: [
                (r.choice(["Write", "Edit"]), NONE, "<tool_use_error>InputValidationError: file_path is missing</tool_use_error>")
            ]
        ),
        9,
    ),
    "a tool that is not there": (again(lambda r, n: [("browser_open", {"n": n}, "Error: No such tool available: browser_open")]), 9),
    "a job that never ends": (again(lambda r, n: [("BashOutput", {"bash_id": "b1"}, f"<status>running</status>\n{clock(n)}")]), 20),
    "keys that move nothing": (again(lambda r, n: [("press_key", {"key": "Down"}, "Pressed Down")]), 20),
    "a click and the same picture": (
        rounds(lambda r, n: [("click", {"ref": "e1"}, "Clicked")], lambda r, n: [("screenshot", NONE, "image:AAAA")]),
        10,
    ),
    "one message in other words": (
        again(lambda r, n: [("send_message", {"to": "lead", "message": f"I am done, take {n}"}, f"sent, id msg_{random_id(r)}")]),
        10,
    ),
    "an install that fails": (
        again(lambda r, n: shell(f"pip install foo=={n}.0", "ERROR: Could not find a version that satisfies the requirement foo")),
        8,
    ),
}
"""What is done over and over, and by which of its calls it has to be stopped."""
