"""Work on screens: browsers, computers, terminals, games and robots. Much is done one step at a time and answered alike."""

import json
from random import Random

from tests.work.steps import NAMES, NONE, Pattern, Said, edit, one


def load_more(_random: Random) -> Said:
    """Playwright MCP without a snapshot in the answer: one button, clicked until all is there."""
    said = "### Ran Playwright code\n```js\nawait page.getByRole('button', { name: 'Load more' }).click();\n```"
    return [
        *[one("browser_click", {"element": "Load more button", "ref": "e54"}, said)] * 9,
        one("browser_snapshot", NONE, "### Page state\n" + "- item\n" * 90),
    ]


def load_more_looked_at(_random: Random) -> Said:
    said = "### Ran Playwright code\n```js\nawait page.getByRole('button', { name: 'Load more' }).click();\n```"
    return [
        m
        for n in range(12)
        for m in (
            one("browser_click", {"element": "Load more button", "ref": "e54"}, said),
            one("browser_snapshot", NONE, "### Page state\n" + "- item\n" * n),
        )
    ]


def browser_use_next(_random: Random) -> Said:
    """browser-use over MCP: the element keeps its number."""
    return [*[one("browser_click", {"index": 12}, "Clicked element 12")] * 9, one("browser_get_state", NONE, "page 10 of 10")]


def stagehand_act(_random: Random) -> Said:
    return [
        m
        for n in range(10)
        for m in (
            one("stagehand_act", {"action": "click the next month arrow"}, "Action performed: click the next month arrow"),
            one("stagehand_extract", NONE, f"Month {n}\nno free days\nnext"),
        )
    ]


def stagehand_only_act(_random: Random) -> Said:
    return [
        *[one("stagehand_act", {"action": "click the next month arrow"}, "Action performed: click the next month arrow")] * 8,
        one("stagehand_observe", NONE, "June 2027"),
    ]


def chrome_devtools(_random: Random) -> Said:
    """Chrome DevTools MCP: the answer holds a snapshot whose uids count on."""
    return [
        one(
            "click",
            {"uid": f"{n}_7"},
            f'Successfully clicked on the element\n## Latest page snapshot\nuid={n}_0 RootWebArea "Shop"\n uid={n}_8 text "{n}"',
        )
        for n in range(12)
    ]


def computer_tabs_ok(_random: Random) -> Said:
    return [
        *[one("computer", {"action": "key", "text": "Tab"}, "Pressed key: Tab")] * 14,
        one("computer", {"action": "screenshot"}, "image:99"),
    ]


def computer_clicks_and_shots(_random: Random) -> Said:
    """The screen takes a while: the same picture now and then."""
    out = []
    for n in range(10):
        out += [
            one("computer", {"action": "left_click", "coordinate": [100 + n, 40]}, ""),
            one("computer", {"action": "screenshot"}, f"image:{n // 2}"),
        ]
    return out


def computer_wait_for_install(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (one("computer", {"action": "wait", "duration": 5}, ""), one("computer", {"action": "screenshot"}, "image:11"))
    ] + [one("computer", {"action": "screenshot"}, "image:12")]


def spinner_clicks(_random: Random) -> Said:
    """A date picker: the arrow is clicked, each click answered with coordinates."""
    return [
        *[one("computer", {"action": "left_click", "coordinate": [512, 300]}, "Clicked at (512, 300)")] * 11,
        one("computer", {"action": "screenshot"}, "image:12"),
    ]


def fields_one_by_one(_random: Random) -> Said:
    return [
        m
        for n in range(15)
        for m in (one("click_element", {"selector": f"#f{n}"}, "ok"), one("type_text", {"selector": f"#f{n}", "text": "N/A"}, "ok"))
    ]


def evaluate_scroll(_random: Random) -> Said:
    """A page with endless scrolling: one script that says nothing."""
    step = one("browser_evaluate", {"function": "() => window.scrollBy(0, 2000)"}, "### Result\nundefined")
    return [m for n in range(12) for m in (step, one("browser_snapshot", NONE, "### Page\n" + f"- post {n}\n" * 4))]


def evaluate_scroll_blind(_random: Random) -> Said:
    step = one("browser_evaluate", {"function": "() => window.scrollBy(0, 2000)"}, "### Result\nundefined")
    return [*[step] * 8, one("browser_snapshot", NONE, "### Page\n- post\n- post")]


def back_and_forth(_random: Random) -> Said:
    """The list, a hit, back to the list: the list looks the same each time."""
    lst = "### Page\n" + "\n".join(f"- link {i}" for i in range(12))
    return [
        m
        for n in range(12)
        for m in (one("browser_click", {"ref": f"e{n}"}, f"### Page\n- title {n}\n- text"), one("browser_navigate_back", NONE, lst))
    ]


def goto_list_and_hit(_random: Random) -> Said:
    lst = "### Page\n" + "\n".join(f"- link {i}" for i in range(12))
    return [
        m
        for n in range(12)
        for m in (
            one("browser_navigate", {"url": "https://example.org/list"}, lst),
            one("browser_click", {"ref": f"e{n}"}, f"### Page\n- title {n}\n- text"),
        )
    ]


def tabs_list(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (
            one("browser_tabs", {"action": "list"}, "0: (current) Mail\n1: Docs\n2: CRM"),
            one("browser_tabs", {"action": "select", "index": 1}, "ok"),
            one("browser_type", {"ref": "e3", "text": f"row {n}"}, "ok"),
            one("browser_tabs", {"action": "select", "index": 0}, "ok"),
            one("browser_snapshot", NONE, f"mail {n}\nbody"),
        )
    ]


def console_messages(_random: Random) -> Said:
    """After each edit the page is reloaded and the console read, empty each time."""
    return [
        m
        for n in range(10)
        for m in (
            edit(n),
            one("browser_navigate", {"url": "http://localhost:3000"}, "### Page\n- app\n- root"),
            one("browser_console_messages", NONE, ""),
        )
    ]


def tmux_enter(_random: Random) -> Said:
    """A text installer: Enter many times, the screen in between."""
    return [m for n in range(12) for m in (one("send_keys", {"keys": "Enter"}, ""), one("read_screen", NONE, f"Step {n} of 12\n[ Next ]"))]


def tmux_enter_blind(_random: Random) -> Said:
    return [*[one("send_keys", {"keys": "Enter"}, "")] * 9, one("read_screen", NONE, "Installation complete\n$")]


def terminal_bench_keys(_random: Random) -> Said:
    """Terminal-Bench: keystrokes, an empty pane."""
    return [one("keystrokes", {"keystrokes": "", "wait": 30}, "root@box:/app# make\n")] * 7 + [
        one("keystrokes", {"keystrokes": "", "wait": 30}, "done\nroot@box#")
    ]


def less_pager(_random: Random) -> Said:
    return [one("send_input", {"session": 1, "input": " "}, f"line {40 * n}\nline {40 * n + 1}") for n in range(25)]


def gdb_next_ok(_random: Random) -> Said:
    return [m for n in range(10) for m in (one("debug_step_over", NONE, "ok"), one("debug_get_variable", {"name": "i"}, f"{n // 3}"))]


def debug_continue(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (one("debugger_continue", NONE, "Breakpoint 1 hit at app.py:10"), one("debugger_eval", {"expr": "state"}, f"{{'n': {n}}}"))
    ]


def debug_continue_alone(_random: Random) -> Said:
    return [*[one("debugger_continue", NONE, "Breakpoint 1 hit at app.py:10")] * 4, one("debugger_eval", {"expr": "n"}, "5")]


def move_north(_random: Random) -> Said:
    return [*[one("move", {"direction": "north"}, "You moved north.")] * 12, one("look", NONE, "A gate.")]


def move_robot(_random: Random) -> Said:
    return [*[one("move_forward", {"meters": 0.5}, "ok")] * 12, one("capture_image", NONE, "image:5")]


def robot_and_sensor(_random: Random) -> Said:
    return [m for n in range(12) for m in (one("drive", {"cm": 10}, "done"), one("read_distance", NONE, f"{200 - 10 * n} cm"))]


def minecraft_mine(_random: Random) -> Said:
    return [one("mine_block", {"type": "stone"}, "Mined 1 stone.")] * 16 + [one("inventory", NONE, "stone: 16")]


def alfworld(_random: Random) -> Said:
    return [
        one("act", {"action": f"open drawer {n}"}, f"You open the drawer {n}. The drawer {n} is open. In it, you see nothing.")
        for n in range(12)
    ]


def quiz(_random: Random) -> Said:
    return [one("next_question", NONE, f"Question {n}?") for n in range(1)] + [
        m for n in range(15) for m in (one("answer", {"text": "b"}, "Correct! +1"), one("next_question", NONE, f"Question {n + 1}?"))
    ]


def webarena_scroll(_random: Random) -> Said:
    return [one("scroll", {"direction": "down"}, f"[{n}] link 'a'\n[{n + 1}] link 'b'\n[x] end") for n in range(12)]


def gaia_page_down(_random: Random) -> Said:
    return [
        one("page_down", NONE, f"Address: https://x\nViewport position: Showing page {n} of 40.\n=====\ntext {n}") for n in range(1, 30)
    ]


def terminus_enter(_random: Random) -> Said:
    return [one("send_keystrokes", {"keystrokes": "\n", "duration": 5}, f"--More-- {n}\nline\nline") for n in range(12)]


def image_reviews(_random: Random) -> Said:
    said = json.dumps(
        {"verdict": "pass", "issues": [], "resolution": "1024x1024", "faces": 0, "nsfw": False, "text_detected": False, "quality": "high"}
    )
    return [one("inspect_image", {"url": f"https://cdn.example.org/{w}.png"}, said) for w in NAMES]


def undo_ten(_random: Random) -> Said:
    return [*[one("undo", NONE, "Undone.")] * 9, one("view", {"path": "a.py"}, "x\ny")]


def go_back_many(_random: Random) -> Said:
    return [*[one("browser_go_back", NONE, "Navigated back")] * 7, one("browser_snapshot", NONE, "### page\n- start\n- x")]


def zoom(_random: Random) -> Said:
    return [*[one("zoom_in", NONE, "Zoomed in")] * 7, one("screenshot", NONE, "image:1")]


def volume(_random: Random) -> Said:
    return [*[one("volume_up", NONE, "ok")] * 8, one("get_volume", NONE, "80")]


def add_to_cart(_random: Random) -> Said:
    return [*[one("add_to_cart", {"sku": "A"}, "Added to cart.")] * 4, one("view_cart", NONE, "A x4")]


WORK: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        load_more,
        load_more_looked_at,
        browser_use_next,
        stagehand_act,
        stagehand_only_act,
        chrome_devtools,
        computer_tabs_ok,
        computer_clicks_and_shots,
        computer_wait_for_install,
        spinner_clicks,
        fields_one_by_one,
        evaluate_scroll,
        evaluate_scroll_blind,
        back_and_forth,
        goto_list_and_hit,
        tabs_list,
        console_messages,
        tmux_enter,
        tmux_enter_blind,
        terminal_bench_keys,
        less_pager,
        gdb_next_ok,
        debug_continue,
        debug_continue_alone,
        move_north,
        move_robot,
        robot_and_sensor,
        minecraft_mine,
        alfworld,
        quiz,
        webarena_scroll,
        gaia_page_down,
        terminus_enter,
        image_reviews,
        undo_ten,
        go_back_many,
        zoom,
        volume,
        add_to_cart,
    )
}
