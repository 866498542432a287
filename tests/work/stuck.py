"""What agents do over and over when they are stuck, whatever drifts in it: each is told, and stopped in time."""

import json

from tests.work.steps import NONE, Pattern, again, clock, edit, random_id, rounds, shell

LISTING = "total 3\n-rw-r--r-- a.py\n-rw-r--r-- b.py\n-rw-r--r-- c.py"
PNG = "image:AAAA"

STUCK: dict[str, tuple[Pattern, int]] = {
    "a click that the page does not answer, with its snapshot": (
        again(lambda r, n: [("browser_click", {"ref": "e5"}, "### Page\n- button 'Send'\n- error: invalid address")]),
        5,
    ),
    "a click, a snapshot": (
        rounds(
            lambda r, n: [("browser_click", {"ref": "e5"}, "### Ran Playwright code\n```js\nawait page.click();\n```")],
            lambda r, n: [("browser_snapshot", NONE, "### Page\n- button\n- text")],
        ),
        10,
    ),
    "scrolling a page that has ended": (
        rounds(
            lambda r, n: [("scroll", {"direction": "down"}, "Scrolled down")],
            lambda r, n: [("get_page_text", NONE, "Home\nAbout\nContact\nThe end")],
        ),
        10,
    ),
    "keys and one picture": (
        rounds(
            lambda r, n: [("computer", {"action": "key", "text": "Return"}, "")], lambda r, n: [("computer", {"action": "screenshot"}, PNG)]
        ),
        10,
    ),
    "clicks around one spot": (
        again(lambda r, n: [("computer", {"action": "left_click", "coordinate": [100 + n % 7, 200 + n % 5]}, PNG)]),
        20,
    ),
    "one action whose picture never changes": (
        again(lambda r, n: [("computer", {"action": "left_click", "coordinate": [10, 20]}, PNG)]),
        5,
    ),
    "a query that fails": (
        again(lambda r, n: [("execute_sql", {"query": "SELECT * FROM nope"}, 'Error: relation "nope" does not exist')]),
        5,
    ),
    "a query in other cases": (again(lambda r, n: [("execute_sql", {"query": "select 1" + " " * (n % 3)}, "1\n--\n1")]), 5),
    "a query with another limit": (
        again(lambda r, n: [("execute_sql", {"query": f"SELECT name FROM t LIMIT {10 + n}"}, "name\n----\nann\nbob\ncid")]),
        10,
    ),
    "a lookup of one order": (
        again(lambda r, n: [("get_order_details", {"order_id": "#W1"}, json.dumps({"id": 1, "as_of": clock(n)}))]),
        5,
    ),
    "think and one lookup": (
        rounds(lambda r, n: [("think", {"thought": f"hm {n}"}, "")], lambda r, n: [("get_order_details", {"order_id": "#W1"}, '{"id":1}')]),
        10,
    ),
    "a payment refused with other sums": (
        again(lambda r, n: [("charge", {"card": "a", "amount": n + 1}, "Error: payment declined by issuer, code 51")]),
        9,
    ),
    "a cell that fails": (again(lambda r, n: [("execute_cell", {"cell_index": 3}, "NameError: name 'df' is not defined")]), 5),
    "kernel restarted and the cell fails": (
        rounds(
            lambda r, n: [("restart_kernel", NONE, "Kernel restarted")],
            lambda r, n: [("execute_cell", {"cell_index": 3}, "NameError: name 'df' is not defined")],
        ),
        10,
    ),
    "code with a new comment": (
        again(
            lambda r, n: [
                (
                    "python",
                    {"code": f"# attempt {n}\nprint(open('a').read())"},
                    "Traceback (most recent call last):\n  File x\nFileNotFoundError: a",
                )
            ]
        ),
        9,
    ),
    "a test with nothing changed": (again(lambda r, n: shell("npm test", f"FAIL src/a.test.js\n  expected 3\nTime: {n}.{n % 10} s")), 5),
    "test, status, test, status": (
        rounds(
            lambda r, n: shell("npm test", f"FAIL src/a.test.js\n  expected 3\nTime: {n}.{n % 10} s"),
            lambda r, n: shell("git status", " M a.js"),
        ),
        10,
    ),
    "a write of the same file": (
        again(lambda r, n: [("Write", {"file_path": "/r/a.md", "content": "x"}, "The file /r/a.md has been updated successfully.")]),
        5,
    ),
    "write and read the same": (
        rounds(
            lambda r, n: [("Write", {"file_path": "/r/a.md", "content": "x"}, "The file has been updated.")],
            lambda r, n: [("Read", {"file_path": "/r/a.md"}, "1\tx")],
        ),
        10,
    ),
    "edit and undo": (
        rounds(
            lambda r, n: edit(0),
            lambda r, n: [
                (
                    "Edit",
                    {"file_path": "/repo/src/app.py", "old_string": "value = 1", "new_string": "value = 0"},
                    "The file /repo/src/app.py has been updated.",
                )
            ],
        ),
        10,
    ),
    "edit, test, undo, test": (
        rounds(
            lambda r, n: edit(0),
            lambda r, n: shell("pytest -q", f"1 failed in 0.{n}s"),
            lambda r, n: [
                (
                    "Edit",
                    {"file_path": "/repo/src/app.py", "old_string": "value = 1", "new_string": "value = 0"},
                    "The file /repo/src/app.py has been updated.",
                )
            ],
            lambda r, n: shell("pytest -q --lf", f"2 failed in 0.{n}s"),
        ),
        20,
    ),
    "a plan written again": (again(lambda r, n: [("update_plan", {"plan": [{"step": "a", "status": "in_progress"}]}, "Plan updated")]), 5),
    "a plan and a look": (
        rounds(
            lambda r, n: [("update_plan", {"plan": [{"step": f"a{n}", "status": "in_progress"}]}, "Plan updated")],
            lambda r, n: shell("ls", LISTING),
        ),
        10,
    ),
    "a sub-agent with one prompt and one answer": (
        again(
            lambda r, n: [
                ("Task", {"prompt": "Find the bug.", "description": f"try {n}"}, "I could not find the bug.\nNothing to report.\nBye.")
            ]
        ),
        10,
    ),
    "hand over and back": (
        rounds(lambda r, n: [("transfer_to_a", NONE, "Transferred to a")], lambda r, n: [("transfer_to_b", NONE, "Transferred to b")]),
        10,
    ),
    "a finished job asked for": (
        again(lambda r, n: [("job_status", {"id": 1}, f'{{"status":"failed","request_id":"req_{random_id(r)}"}}')]),
        5,
    ),
    "a queued job for ever": (again(lambda r, n: [("get_run", {"id": 1}, '{"status":"queued"}')]), 20),
    "429 for ever": (again(lambda r, n: [("web_search", {"query": "x"}, "Error: 429 Too Many Requests")]), 8),
    "429 for other queries": (again(lambda r, n: [("web_search", {"query": f"x {random_id(r)}"}, "Error: 429 Too Many Requests")]), 9),
    "a blocked site": (again(lambda r, n: [("web_fetch", {"url": "https://a.example/p"}, "Just a moment...\nVerifying you are human")]), 5),
    "a blocked site by query strings": (
        again(lambda r, n: [("web_fetch", {"url": f"https://a.example/p?v={n}"}, "Just a moment...\nVerifying you are human\nRay")]),
        10,
    ),
    "offsets past the end": (
        again(
            lambda r, n: [
                (
                    "Read",
                    {"file_path": "/r/a.py", "offset": 1000 + 100 * n, "limit": 100},
                    "<system-reminder>Warning: the file exists but is shorter than the provided offset.</system-reminder>",
                )
            ]
        ),
        10,
    ),
    "one message to the user": (
        again(lambda r, n: [("send_message", {"to": "user", "text": "Please wait."}, f'{{"ok":true,"message_id":"{random_id(r)}"}}')]),
        5,
    ),
    "a memory saved again": (again(lambda r, n: [("save_memory", {"fact": "likes tea"}, "Memory saved.")]), 5),
    "an empty patch": (again(lambda r, n: [("apply_patch", {"input": "*** Begin Patch\n*** End Patch"}, "Error: patch is empty")]), 5),
    "a patch with a new counter": (
        again(lambda r, n: [("apply_patch", {"input": f"*** Update File: a\n-x{n}\n+y{n}"}, "Error: Failed to find expected lines in a")]),
        9,
    ),
    "arguments that do not parse": (
        again(lambda r, n: [("Write", {"raw": '{"file' + "x" * n}, "Error: invalid JSON in arguments: unexpected end of input")]),
        9,
    ),
    "commands that are not allowed": (
        again(lambda r, n: shell(f"rm -rf build{n}", "Permission to use Bash with command rm has been denied.")),
        9,
    ),
    "a denied tool": (again(lambda r, n: [("WebFetch", {"url": "https://a"}, "The user doesn't want to proceed with this tool use.")]), 5),
    "a move against a wall": (
        rounds(lambda r, n: [("move", {"direction": "north"}, "You cannot go that way.")], lambda r, n: [("look", NONE, "A wall.")]),
        10,
    ),
    "a move against a wall, alone": (again(lambda r, n: [("move", {"direction": "north"}, "You cannot go that way.")]), 20),
    "chinese": (again(lambda r, n: [("读取文件", {"路径": "甲"}, "第一行\n第二行\n第三行")]), 5),
    "unicode spellings of a path": (again(lambda r, n: [("read_file", {"path": ("a.py", " a.py", "a.py ")[n % 3]}, "x\ny\nz")]), 5),
    "quotes of a command": (again(lambda r, n: shell(("ls src", "ls 'src'", 'ls "src"', "ls ./src")[n % 4], LISTING)), 20),
    "two commands in a new order": (again(lambda r, n: shell(("pwd; ls", "ls; pwd")[n % 2], "/r\n" + LISTING)), 10),
    "parallel pair": (again(lambda r, n: [("read_file", {"path": "a"}, "x\ny\nz"), ("read_file", {"path": "b"}, "u\nv\nw")]), 10),
    "a pair in a new order": (
        again(lambda r, n: [("read_file", {"path": p}, p * 3 + "\n1\n2") for p in (("a", "b") if n % 2 else ("b", "a"))]),
        10,
    ),
    "numbers as words": (again(lambda r, n: [("get_page", {"page": ("4", 4, 4.0)[n % 3]}, "text\nof\nfour")]), 5),
    "key order": (again(lambda r, n: [("q", dict(sorted({"a": 1, "b": 2, "c": 3}.items(), reverse=bool(n % 2))), "text\nof\nfour")]), 5),
    "a null more": (again(lambda r, n: [("q", {"a": 1, **({"b": None} if n % 2 else {})}, "text\nof\nfour")]), 5),
    "an idle inbox": (again(lambda r, n: [("check_inbox", NONE, "No new mail.")]), 20),
    "ask the user the same": (again(lambda r, n: [("ask_user", {"question": "Go on?"}, "yes")]), 20),
    "a retrieval with other words": (
        again(
            lambda r, n: [
                (
                    "retrieve",
                    {"query": " ".join(r.sample(["pension", "age", "retire", "early", "law", "rule", "when", "how"], 4))},
                    "[0] passage\n[1] passage\n[2] passage",
                )
            ]
        ),
        20,
    ),
    "a script written and run, one failure": (
        again(
            lambda r, n: shell(
                f"cat > t.py <<'EOF'\nprint({n})\nEOF\npython t.py",
                "Traceback (most recent call last):\n  File t.py\nModuleNotFoundError: No module named 'numpy'",
            )
        ),
        9,
    ),
}

"""What is done over and over, and by which of its calls it has to be stopped."""
