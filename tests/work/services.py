"""Work with services: customers, databases, searches, other agents. What was looked up is looked up again, and often there is nothing."""

import json
from random import Random

from tests.work.steps import NAMES, NONE, Pattern, Said, edit, one, shell


def tau_lookup(_random: Random) -> Said:
    """tau-bench: after each word of the customer the same order is looked up; then an answer."""
    order = json.dumps({"order_id": "#W1", "status": "delivered", "items": [{"name": "shoe", "price": 12.5}] * 4})
    return [m for n in range(10) for m in (one("get_order_details", {"order_id": "#W1"}, order), f"Your order: part {n}. Anything else?")]


def same_order_among_others(_random: Random) -> Said:
    """One profile between many flights that are looked up."""
    user = json.dumps({"user": "mia", "address": {"city": "Denver"}, "payments": ["card_1", "gift_2", "gift_3"], "reservations": ["R1"]})
    return [
        m
        for n in range(7)
        for m in (
            one(
                "get_reservation_details",
                {"reservation_id": f"R{n}"},
                json.dumps({"id": n, "flights": ["a", "b"], "cabin": "economy", "x": n * 7}),
            ),
            one("get_user_details", {"user_id": "mia"}, user),
        )
    ]


def flights_on_many_days(_random: Random) -> Said:
    """No direct flight on any of these days."""
    return [
        one("search_direct_flight", {"origin": "JFK", "destination": "SEA", "date": f"2024-05-{n:02d}"}, "[]") for n in range(10, 19)
    ] + [one("search_direct_flight", {"origin": "JFK", "destination": "SEA", "date": "2024-05-20"}, '[{"flight_number": "HAT1"}]')]


def cards_that_are_refused(_random: Random) -> Said:
    return [one("charge", {"card": c, "amount": 12}, "Error: payment declined") for c in ("visa_1", "gift_2", "mc_3", "amex_4")] + [
        one("charge", {"card": "pp_5", "amount": 12}, '{"ok": true, "id": 7}')
    ]


def tickets_without_answers(_random: Random) -> Said:
    """Tickets are read one by one, none has a comment."""
    return [
        one(
            "get_ticket_comments",
            {"ticket_id": 100 + n},
            '{"comments": [], "next_page": null, "previous_page": null, "count": 0, "meta": {"has_more": false}, "links": {}}',
        )
        for n in range(15)
    ]


def many_users_same_answer(_random: Random) -> Said:
    """A license check, user by user."""
    said = json.dumps(
        {
            "license": "E3",
            "state": "enabled",
            "services": ["mail", "drive", "chat", "calendar"],
            "assigned_by": "group policy",
            "errors": [],
        },
        indent=1,
    )
    return [
        one("get_user_license", {"user": f"{w}@example.org"}, said)
        for w in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lea", "max", "nia"]
    ]


def null_checks_verbose(_random: Random) -> Said:
    said = "| count |\n|-------|\n| 0     |\n\n1 row in set"
    return [
        one("execute_sql", {"query": f"SELECT COUNT(*) AS count FROM {t} WHERE id IS NULL"}, said)
        for t in ["users", "orders", "items", "carts", "logs", "events", "tags", "files", "notes", "roles", "teams", "jobs"]
    ]


def null_checks_json(_random: Random) -> Said:
    said = json.dumps(
        {
            "columns": [{"name": "count", "type": "INTEGER"}],
            "rows": [[0]],
            "row_count": 1,
            "truncated": False,
            "bytes_processed": 10485760,
            "cache_hit": False,
        }
    )
    return [
        one("run_query", {"sql": f"SELECT COUNT(*) AS count FROM {t} WHERE id IS NULL"}, said)
        for t in ["users", "orders", "items", "carts", "logs", "events", "tags", "files", "notes", "roles", "teams", "jobs"]
    ]


def schema_between_queries(_random: Random) -> Said:
    schema = "CREATE TABLE users (id int, name text);\nCREATE TABLE orders (id int, uid int);\n"
    return [
        m
        for n in range(7)
        for m in (
            one("sql_db_schema", {"table_names": "users, orders"}, schema),
            one("sql_db_query", {"query": f"SELECT * FROM users WHERE id = {n}"}, f"[({n}, 'name {n}')]"),
        )
    ]


def sql_errors_then_right(_random: Random) -> Said:
    errs = [f"Error: no such column: {c}" for c in "abcdef"]
    return [one("sql_db_query", {"query": f"SELECT {c} FROM t"}, e) for c, e in zip("abcdef", errs, strict=True)] + [
        one("sql_db_query", {"query": "SELECT g FROM t"}, "[(1,)]")
    ]


def notebook_restart(_random: Random) -> Said:
    return [
        m
        for n in range(8)
        for m in (
            one("notebook_edit_cell", {"cell_id": f"c{n}", "new_source": f"x={n}"}, "Updated cell"),
            one("restart_kernel", NONE, "Kernel restarted"),
            one("run_all_cells", NONE, "NameError: name 'df' is not defined\nin cell 7\nstopped"),
        )
    ]


def cell_without_output(_random: Random) -> Said:
    """The next batch is taken; the cell says nothing; after some of them the size is looked at."""
    return [
        m
        for n in range(4)
        for m in (
            *[one("execute_code", {"code": "batch = next(it); out.append(f(batch))"}, "")] * 4,
            one("execute_code", {"code": "len(out)"}, f"{4 * n + 4}"),
        )
    ]


def overlapping_hits(_random: Random) -> Said:
    """The same three passages for most questions."""
    hits = "\n".join(f"[{i}] passage {i}: " + "lorem " * 8 for i in range(3))
    return [
        one("retrieve", {"query": q}, hits)
        for q in ("pension age", "retirement age", "age of pension", "when can I retire", "early retirement")
    ] + [one("retrieve", {"query": "deductions"}, "[9] other\n[8] more")]


def fetches_that_are_blocked(_random: Random) -> Said:
    """Sites that all answer with the same wall."""
    wall = "Just a moment...\nEnable JavaScript and cookies to continue\nVerifying you are human."
    return (
        [one("web_search", {"query": "best heat pump 2026"}, "1. a\n2. b\n3. c\n4. d")]
        + [
            one("web_fetch", {"url": f"https://{h}.example/review"}, wall)
            for h in ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta"]
        ]
        + [one("web_fetch", {"url": "https://open.example/review"}, "A review\nof pumps\nand more")]
    )


def memory_search_each_step(_random: Random) -> Said:
    """mem0: memories are searched before each step, none of them fits."""
    return [m for n in range(10) for m in (one("search_memories", {"query": f"user preference {n}"}, "No memories found."), edit(n))]


def subagents_same_prompt(_random: Random) -> Said:
    return [
        one("task", {"agent": "explorer", "prompt": "Continue the investigation and report new findings."}, f"finding {n}")
        for n in range(14)
    ]


def subagent_empty(_random: Random) -> Said:
    return [
        m
        for n in range(5)
        for m in (one("Task", {"prompt": "Fix the failing test.", "subagent_type": "fixer"}, "Done."), shell("npm test", f"{9 - n} failed"))
    ]


def cursor_in_state(_random: Random) -> Said:
    return [one("fetch_more", NONE, json.dumps({"rows": [n, n + 1], "has_more": True})) for n in range(30)]


def view_next(_random: Random) -> Said:
    return [one("view_file_next", {"path": "a.log"}, f"chunk {n}\n...") for n in range(30)]


def pages_of_equal_rows(_random: Random) -> Said:
    """The pages of a table whose rows are alike."""
    rows = json.dumps([{"sku": "A", "stock": 0, "active": True, "warehouse": "north", "supplier": "none"}] * 3)
    return [one("list_items", {"page": n}, rows) for n in range(1, 9)] + [one("list_items", {"page": 9}, "[]")]


def mcp_connect(_random: Random) -> Said:
    """Each tool of a server is looked up before it is used."""
    return [
        m
        for n in range(9)
        for m in (
            one("search_tools", {"query": f"tool {n}"}, f"tool_{n}: does\n{n}"),
            one("call_tool", {"name": f"tool_{n}", "args": {}}, "Success"),
        )
    ]


def blender_code(_random: Random) -> Said:
    return [one("execute_blender_code", {"code": f"add_cube({n})"}, "Code executed successfully: ") for n in range(30)]


def gaia_find_none(_random: Random) -> Said:
    return [
        one("find_on_page_ctrl_f", {"search_string": w}, f"Address: https://x\nThe search string '{w}' was not found on this page.")
        for w in NAMES
    ]


def bfcl_cd(_random: Random) -> Said:
    return [
        m
        for w in NAMES
        for m in (
            one("cd", {"folder": w}, '{"current_working_directory": "x"}'),
            one("ls", NONE, '{"current_directory_content": ["a.txt"]}'),
            one("cd", {"folder": ".."}, '{"current_working_directory": "/"}'),
        )
    ]


def toolbench_keys(_random: Random) -> Said:
    return [
        one("get_quote", {"symbol": w}, '{"error": "", "response": "{\'message\': \'You are not subscribed to this API.\'}"}')
        for w in NAMES[:6]
    ]


def retail_exchange(_random: Random) -> Said:
    prod = json.dumps({"name": "shoe", "variants": {f"{n}": {"price": n} for n in range(20)}})
    return [
        m
        for n in range(5)
        for m in (
            one("get_product_details", {"product_id": "p1"}, prod),
            f"Variant {n}?",
            one("calculate", {"expression": f"{n} + 1"}, f"{n + 1}"),
            f"That is {n}.",
        )
    ]


def telecom_toggle(_random: Random) -> Said:
    """tau2 telecom: one step, then the same check."""
    steps = [
        "toggle_airplane_mode",
        "reseat_sim_card",
        "toggle_data",
        "reset_apn",
        "reboot_device",
        "set_network_mode",
        "toggle_roaming",
        "disconnect_vpn",
    ]
    return [m for s in steps for m in (one(s, NONE, "Done."), one("run_speed_test", NONE, "No connection. Speed test failed to run."))]


def telecom_toggle_twice(_random: Random) -> Said:
    steps = [
        "toggle_airplane_mode",
        "toggle_airplane_mode",
        "toggle_data",
        "toggle_data",
        "reboot_device",
        "reboot_device",
        "toggle_roaming",
        "toggle_roaming",
    ]
    return [m for s in steps for m in (one(s, NONE, "Done."), one("check_status_bar", NONE, "No Service | Wi-Fi off | 40 %"))]


def api_creates(_random: Random) -> Said:
    return [
        one(
            "create_calendar_event",
            {"title": f"Slot {n}", "start": f"2026-01-{n:02d}T10:00:00Z"},
            '{"status": "confirmed", "kind": "calendar#event", "reminders": {"useDefault": true},  "attendees": [], "hangout": null}',
        )
        for n in range(1, 25)
    ]


def dedupe(_random: Random) -> Said:
    return [
        one(
            "find_duplicates",
            {"record_id": 1000 + n},
            '{"duplicates": [], "checked": 48211, "threshold": 0.92, "method": "minhash", "took_ms": 12, "warnings": []}',
        )
        for n in range(16)
    ]


def current_time(_random: Random) -> Said:
    return [
        m
        for n in range(6)
        for m in (one("get_current_time", NONE, f"2026-05-01T10:0{n}:00Z"), one("web_search", {"query": f"news {n}"}, f"1. {n}\n2. b{n}"))
    ]


def price_watch(_random: Random) -> Said:
    return [m for n in range(8) for m in (one("get_price", {"symbol": "ABC"}, f"{100 + n % 2}.00"), one("wait", {"minutes": 5}, "ok"))]


def ask_user(_random: Random) -> Said:
    return [m for n in range(9) for m in (one("ask_user", {"question": "Shall I go on?"}, "yes"), edit(n))]


def ask_user_alone(random: Random) -> Said:
    return [one("ask_user", {"question": "What is your next move?"}, f"{random.choice(['hit', 'stand'])}") for n in range(12)]


def confirm_each(_random: Random) -> Said:
    return [
        m
        for n in range(12)
        for m in (one("request_permission", {"action": "delete"}, "granted"), one("delete_file", {"path": f"{n}.tmp"}, "deleted"))
    ]


def handoff_pingpong(_random: Random) -> Said:
    """Writer and critic; the drafts differ."""
    return [
        m
        for n in range(8)
        for m in (
            one("transfer_to_critic", NONE, "Transferred to critic"),
            one("save_review", {"text": f"review {n}"}, "saved"),
            one("transfer_to_writer", NONE, "Transferred to writer"),
            one("save_draft", {"text": f"draft {n}"}, "saved"),
        )
    ]


WORK: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        tau_lookup,
        same_order_among_others,
        flights_on_many_days,
        cards_that_are_refused,
        tickets_without_answers,
        many_users_same_answer,
        null_checks_verbose,
        null_checks_json,
        schema_between_queries,
        sql_errors_then_right,
        notebook_restart,
        cell_without_output,
        overlapping_hits,
        fetches_that_are_blocked,
        memory_search_each_step,
        subagents_same_prompt,
        subagent_empty,
        cursor_in_state,
        view_next,
        pages_of_equal_rows,
        mcp_connect,
        blender_code,
        gaia_find_none,
        bfcl_cd,
        toolbench_keys,
        retail_exchange,
        telecom_toggle,
        telecom_toggle_twice,
        api_creates,
        dedupe,
        current_time,
        price_watch,
        ask_user,
        ask_user_alone,
        confirm_each,
        handoff_pingpong,
    )
}
