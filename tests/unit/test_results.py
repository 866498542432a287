"""What is kept of results, and when two are the same."""

import pytest

from proxy.outcomes import FAILED, WAITING
from tests.recorded import Recorded
from tests.transcripts import Call, Turn, called, together, user

GO = user("go")
CLEARED = "[Old tool result content cleared]"
LINES = "\n".join(f"line {n}" for n in range(20))


def look(number: int, result: str | None = "x", name: str = "search") -> Call:
    return called(name, {"q": number}, result)


def results(session: Recorded) -> list[int]:
    return [entry.result for step in session.place.trail.steps for entry in step.calls]


def kinds(session: Recorded) -> str:
    """The results as letters, in the order of their first appearance."""
    known: dict[int, str] = {}
    return "".join(known.setdefault(result, chr(ord("a") + len(known))) for result in results(session))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["one", "one", "two"], "aab"),
        (["took 1.2s", "took 3.4s", "took 12.0s"], "aaa"),
        (["id: msg_1a2b3c4d5e", "id: msg_9z8y7x6w5v"], "aa"),
        ([f"10:00:01 {LINES}", f"10:00:02 {LINES}"], "aa"),
        (["exit code 1", "exit code 2"], "ab"),
        (["offset 100", "offset 200"], "ab"),
        (["took 1.2s a", "took 3.4s b"], "ab"),
        (["took 1.2s", "nothing", "took 3.4s"], "aba"),
        (["took 1.2s", "took 1.2s", "took 3.4s"], "aaa"),
        ([f"took 1.2s {'x' * 5_000}", f"took 3.4s {'x' * 5_000}"], "ab"),
        ([f"{'x' * 5_000}", f"{'x' * 5_000}"], "aa"),
        (["short 1s", f"{'long ' * 100} 1s"], "ab"),
        (["short1s", f"{'long' * 100}1s"], "ab"),
    ],
)
def test_answers_of_one_tool_to_other_arguments(texts: list[str], expected: str) -> None:
    """Alike by their bytes, or where these differ by what is volatile alone; very long ones by their bytes only."""
    session = Recorded()
    session.live(GO, *[look(number, text) for number, text in enumerate(texts)])
    assert kinds(session) == expected


def test_answers_of_other_tools_are_not_compared() -> None:
    """Nor failures, whose complaint is compared instead."""
    session = Recorded()
    session.live(GO, look(1, "took 1.2s"), look(2, "took 3.4s", name="other"))
    assert kinds(session) == "ab"
    session = Recorded()
    session.live(GO, look(1, "Error: after 1.2s"), look(2, "Error: after 3.4s"))
    first, second = (entry for step in session.place.trail.steps for entry in step.calls)
    assert first.result != second.result
    assert first.error == second.error != 0
    assert first.flags & second.flags & FAILED


def test_an_answer_is_compared_with_what_was_first_seen() -> None:
    """A client that blanks old results hides nothing, once two were found to be the same."""
    session = Recorded()
    turns: list[Turn] = [GO, *[look(number, f"took {number}.5s") for number in range(3)]]
    session.live(*turns)
    blank: list[Turn] = [GO, *[look(number, CLEARED) for number in range(3)]]
    session.ask(*blank, look(3, "took 9.9s"))
    assert kinds(session) == "aaaa"
    session.ask(*blank, look(3, CLEARED), look(4, "took 8 apples"))
    assert kinds(session) == "aaaab"


def test_an_answer_whose_like_is_gone_is_known_by_its_bytes() -> None:
    """It was blanked before anything was compared with it."""
    session = Recorded()
    session.ask(GO, look(1, "took 1.5s"))
    session.ask(GO, look(1, CLEARED), look(2, "took 2.5s"))
    assert kinds(session) == "ab"


def test_equal_answers_stay_equal_when_one_of_them_gets_another_identity() -> None:
    """They get it together."""
    session = Recorded()
    session.live(GO, look(1, "took 1.5s"), look(2, "took 1.5s"), together(look(3, "took 2.5s"), look(4, "took 1.5s")))
    assert kinds(session) == "aaaa"


def test_a_history_joined_late_is_read_a_little_way_back() -> None:
    """Its newest messages, as far as a ladder could need them."""
    session = Recorded()
    session.ask(GO, *[look(number, "the same") for number in range(30)], look(99, "still running"))
    assert [result != 0 for result in results(session)] == [False] * 21 + [True] * 10
    assert session.place.trail.steps[-1].calls[0].flags & WAITING


def test_answers_that_arrive_in_one_request_are_compared_with_each_other() -> None:
    """None of them is known from before."""
    session = Recorded()
    session.ask(GO, look(1, "took 1.2s"), look(2, "other"), look(3, "took 3.4s"))
    assert kinds(session) == "aba"


def test_a_call_without_a_result_has_none() -> None:
    """Now, or ever."""
    session = Recorded()
    session.live(GO, look(1, None), look(2, None))
    assert results(session) == [0, 0]
