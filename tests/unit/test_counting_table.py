"""The table of the README, row by row: what an agent does, and what each preset decides.

A transcript in, a list of decisions out, one for each request. `ok` runs on, `nudge` marks the request that is nudged, `stop` the answer
that is withheld; a list ends where the agent is stopped.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.budgets import Spending
from proxy.config import load
from proxy.models import Reason
from proxy.policy import Policy, policy_of
from tests.driver import Agent, House, Reply, steps
from tests.transcripts import Call, Turn, called, together, user

STANDARD, PLAIN = "standard", "plain"
LOOP = ["ok", "ok", "ok", "nudge", "stop"]


def rules(preset: str, more: str = "") -> Policy:
    return policy_of(load(f"policy: {{preset: {preset}{more}}}", {}).policy)


def read(result: str = "alpha", **arguments: Any) -> Call:
    return called("read_file", arguments or {"path": "a.txt"}, result)


def run_tests(result: str = "1 failed") -> Call:
    return called("bash", {"command": "pytest"}, result)


def edit(number: int) -> Call:
    return called("edit", {"old": number}, f"edited {number}")


def decided(preset: str, replies: Sequence[Reply]) -> list[str]:
    """The decisions on an agent that begins with one request of a person's."""
    return Agent(House(rules(preset)), user("go")).play(replies)


ROWS: dict[str, tuple[Sequence[Reply], list[str], list[str]]] = {
    "the same call, same result": ([read()] * 6, LOOP, LOOP),
    "the same call, every result new": ([read(f"line {n} of the log: {'abcde'[n]}") for n in range(5)], ["ok"] * 5, LOOP),
    "git status while things change": ([called("bash", {"command": "git status"}, f"M file{n}.py") for n in range(5)], ["ok"] * 5, LOOP),
    "tests, an edit between each": (
        [reply for n in range(5) for reply in (run_tests(), edit(n))],
        ["ok"] * 10,
        ["ok", "ok", "ok", "ok", "ok", "nudge", "ok", "ok", "stop"],
    ),
    "the same call between looks at other things": (
        [reply for n in range(8) for reply in (read(), read(f"part {n}", path=f"{n}.txt"))],
        ["ok"] * 7 + ["nudge"] + ["ok"] * 6 + ["stop"],
        ["ok", "ok", "ok", "ok", "ok", "nudge", "ok", "ok", "stop"],
    ),
    "an error again, with other arguments": (
        [read("Error: no such page", path="a", page=n) for n in range(8)],
        ["ok"] * 3 + ["nudge"] + ["ok"] * 3 + ["stop"],
        ["ok"] * 8,
    ),
    "waiting": ([called("bash", {"command": "sleep 60"}, "")] * 20, ["ok"] * 6 + ["nudge"] + ["ok"] * 12 + ["stop"], LOOP),
    "A, B, A, B, same results": (
        [read(), run_tests()] * 6,
        ["ok", "ok", "ok", "ok", "ok", "ok", "nudge", "ok", "ok", "stop"],
        ["ok", "ok", "ok", "ok", "ok", "nudge", "ok", "ok", "stop"],
    ),
    "another offset each time": ([read(f"page {n}", path="a", offset=100 * n) for n in range(8)], ["ok"] * 8, ["ok"] * 8),
    "another offset, the same page": ([read("EOF", path="a", offset=100 * n) for n in range(8)], ["ok"] * 8, ["ok"] * 8),
    "keys in another order": (
        [called("bash", '{"a": 1, "b": 2}', "x"), called("bash", '{"b":2,"a":1}', "x")] * 3,
        LOOP,
        LOOP,
    ),
    "a number as text, null for absent, blanks": (
        [called("bash", text, "x") for text in ('{"n": 5}', '{"n": "5"}', '{"n": 5, "m": null}', '{"n": " 5 "}', '{"n":5,"m":null}')],
        LOOP,
        ["ok"] * 5,
    ),
    "new arguments every time": ([called("bash", {"command": f"echo {n}"}, f"{n}") for n in range(20)], ["ok"] * 20, ["ok"] * 20),
    "an answer without calls": (["done"], ["ok"], ["ok"]),
    "a gate once more after its nudge": (
        [*[run_tests()] * 3, edit(1), run_tests(), edit(2), run_tests(), run_tests()],
        ["ok", "ok", "ok", "nudge", "ok", "ok", "ok", "stop"],
        ["ok", "ok", "ok", "nudge", "ok", "ok", "stop"],
    ),
    "the same call beside a new one in one message": (
        [*[read()] * 4, together(read(), edit(1)), "done"],
        ["ok", "ok", "ok", "nudge", "prune", "ok"],
        ["ok", "ok", "ok", "nudge", "prune", "ok"],
    ),
    "results that differ by the clock only": (
        [called("bash", {"command": "make"}, f"2026-01-01 10:00:0{n} ok in {n}.{n}s") for n in range(5)],
        LOOP,
        LOOP,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_standard_decides(row: str) -> None:
    """The default: results are looked at."""
    replies, standard, _ = ROWS[row]
    assert decided(STANDARD, replies) == standard


@pytest.mark.parametrize("row", ROWS)
def test_plain_decides(row: str) -> None:
    """The rule people say: the fifth time is one too many, whatever came back."""
    replies, _, plain = ROWS[row]
    assert decided(PLAIN, replies) == plain


@pytest.mark.parametrize("preset", [STANDARD, PLAIN])
def test_requests_that_never_carry_the_earlier_answers(preset: str) -> None:
    """One named session, the same body five times: nudge in the fourth request, stop in place of the fifth call."""
    house = House(rules(preset))
    assert [house.ask([user("go")], read()).decision for _ in range(5)] == LOOP


@pytest.mark.parametrize(("preset", "decisions"), [(STANDARD, ["ok"] * 5), (PLAIN, LOOP)])
def test_requests_that_carry_nothing_and_differ(preset: str, decisions: list[str]) -> None:
    """Other words each time are other histories; the plain rule counts over the whole session all the same."""
    house = House(rules(preset))
    assert [house.ask([user(f"go {n}")], read()).decision for n in range(5)] == decisions


@pytest.mark.parametrize("preset", [STANDARD, PLAIN])
@pytest.mark.parametrize(("repeats", "decision"), [(2, "ok"), (3, "nudge"), (5, "stop")])
def test_a_history_that_arrives_with_repeats(preset: str, repeats: int, decision: str) -> None:
    """With three it is nudged, with five it is stopped."""
    turns: list[Turn] = [user("go"), *[read()] * repeats]
    assert House(rules(preset)).ask(turns, edit(1)).decision == decision


@pytest.mark.parametrize(("preset", "decisions"), [(STANDARD, ["ok", "ok", "ok"]), (PLAIN, ["ok", "nudge", "stop"])])
def test_new_text_from_a_person(preset: str, decisions: list[str]) -> None:
    """Starts afresh; for the plain rule the whole session is one."""
    agent = Agent(House(rules(preset)), user("go"))
    agent.play([read(), read(), "done"])
    agent.turns.append(user("And once more."))
    assert agent.play([read()] * 3) == decisions


def test_the_plain_rule_nudges_a_loop_once_in_a_session() -> None:
    """The nudge of an earlier run still stands in the history; another loop gets its own."""
    agent = Agent(House(rules(PLAIN)), user("go"))
    assert agent.play([read(), read(), read(), "done"]) == ["ok", "ok", "ok", "nudge"]
    agent.turns.append(user("And once more."))
    assert agent.play([read(), "done"]) == ["ok", "ok"]
    agent.turns.append(user("And now the tests."))
    assert agent.play([run_tests()] * 5) == LOOP


def test_two_branches_with_two_calls_each() -> None:
    """Are not four."""
    house = House(rules(STANDARD))
    for lane in (1, 2):
        assert Agent(house, user("go"), lane=lane).play([read(), read(), "done"]) == ["ok"] * 3


@pytest.mark.parametrize(("preset", "decisions"), [(STANDARD, ["nudge", "ok", "stop"]), (PLAIN, ["nudge", "stop"])])
def test_a_summary_that_drops_the_history_does_not_reset(preset: str, decisions: list[str]) -> None:
    """The nudge is given once more, then the loop is stopped."""
    house = House(rules(preset))
    agent = Agent(house, user("go"))
    agent.play([read()] * 4)
    house.ask([*agent.turns, user("Please summarize the conversation so far.")], "Summary.")
    agent.turns = [user("Summary: a.txt was read.")]
    assert agent.play([edit(1), read(), read()]) == decisions


@pytest.mark.parametrize("preset", [STANDARD, PLAIN])
def test_an_agent_whose_arguments_are_always_new_ends_by_its_step_budget(preset: str) -> None:
    """Never nudged, and with an answer."""
    agent = Agent(House(rules(preset)), user("go"))
    decisions = [agent.step(called("bash", {"n": n}, str(n))).decision for n in range(9)]
    last = agent.step(called("bash", {"n": 9}, "9"), spending=Spending(last=steps(10, 9)))
    assert (decisions, last.decision, last.plan.reason) == (["ok"] * 9, "stop", Reason.STEP_BUDGET)
    assert isinstance(last.given, str)


def test_a_cycle_is_nudged_by_its_third_round_and_stopped_by_its_fifth() -> None:
    """Also where each call alone is in order."""
    policy = rules(STANDARD, ", detectors: {repeated_call: off}")
    played = Agent(House(policy), user("go")).play([read(), run_tests()] * 6)
    assert played == ["ok"] * 6 + ["nudge", "ok", "ok", "stop"]
