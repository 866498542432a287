"""The rows, as a table and as JSON."""

import json

from rich.console import Console

from proxy.replay.document import Fault
from proxy.replay.report import Row, document, summary, table
from proxy.replay.walk import Act, Mark, Walk

NUDGE = Mark(Act.NUDGE, 3, 4, "repeated_call", "ls", 3, 5)
STOP = Mark(Act.STOP, 5, 5, "repeated_call", "ls", 5, 5)
STOPPED = Row("f.jsonl", "chat", "[red]r1", Walk(9, 1_200, (NUDGE, STOP), 5_000, 1_234, True))
ALONE = Row("f.jsonl", "chat", "r2", Walk(2, 1, (), 1_000, 0, False))
NUDGED = Row("f.jsonl", "chat", "r3", Walk(9, 8, (NUDGE,) * 5, 1_000, 0, True))


def printed(*rows: Row) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table(rows))
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in captured.get().splitlines()]


def test_the_table_says_what_would_happen_where() -> None:
    """Names are shown as they are; an estimate is marked."""
    assert printed(STOPPED, ALONE) == [
        ["run", "calls", "findings", "nudge at", "stop at", "tokens saved"],
        ["[red]r1", "1,200", "repeated_call ls x5", "3", "5", "~1,234"],
        ["r2", "1"],
    ]


def test_a_cell_does_not_grow_without_end() -> None:
    """The first places are enough."""
    assert printed(NUDGED)[1][3] == "3, 3, 3 and 2 more"
    many = [Mark(Act.NUDGE, at, at, "repeated_call", f"t{at}", 3, 5) for at in range(5)]
    assert printed(Row("f", "chat", "r", Walk(1, 1, tuple(many), 1, 0, False)))[1][2].endswith(", repeated_call t2 x3 and 2 more")


def test_the_sum_says_what_its_numbers_mean() -> None:
    """And only what there is to say."""
    assert summary([ALONE]) == "1 run, 1 call: 0 would be stopped, 0 only nudged, 1 left alone."
    assert summary([STOPPED, NUDGED, ALONE]).splitlines() == [
        "3 runs, 1,209 calls: 1 would be stopped, 1 only nudged, 1 left alone.",
        "Tokens: 1,234 of 7,000 would not be spent (~ estimated from sizes, where the log has no usage).",
        "After a nudge or a stop the run goes on as recorded: what counts is a run's first stop, and the nudges before it.",
    ]
    exact = Row("f", "chat", "r", Walk(9, 9, (STOP,), 10, 5, False))
    assert "Tokens: 5 of 10 would not be spent." in summary([exact])


def test_json_holds_all_of_it() -> None:
    """Plain values for programs."""
    told = json.loads(json.dumps(document([STOPPED, ALONE], [Fault("g", 3, "not JSON")])))
    assert told["total"] == {
        "runs": 2,
        "calls": 1_201,
        "stopped": 1,
        "nudged": 1,
        "nudged_only": 0,
        "tokens": 6_000,
        "tokens_saved": 1_234,
    }
    assert told["runs"][0]["stops"] == [
        {"act": "stop", "call": 5, "turn": 5, "reason": "repeated_call", "tool": "ls", "count": 5, "limit": 5}
    ]
    assert told["runs"][1]["nudges"] == []
    assert told["left_out"] == [{"file": "g", "line": 3, "message": "not JSON"}]
