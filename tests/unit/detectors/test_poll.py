"""Waiting, and the same call in a row with changing results."""

import pytest

from proxy.effects import Effect
from proxy.models import Reason
from proxy.policy import DEFAULT_LADDERS, Counting, Ladder, Policy, ToolRule
from tests.driver import House, Reply
from tests.loops import OFFERED, bash, only, read, rungs
from tests.transcripts import Call, called, together, user

ALONE = only(Reason.POLL)
STANDARD = Policy()


def status(result: str, job: str = "j1") -> Call:
    return called("job_status", {"job_id": job}, result)


WAITING: list[Call] = [
    bash("sleep 100"),
    bash("sleep 60; tail -n 5 scan.log", "37 %"),
    called("wait_for_build", {"id": 1}, "…"),
    called("process", {"action": "poll", "session_id": "s1"}, "output: nothing"),
    called("write_stdin", {"session_id": 1, "chars": ""}, ""),
    status("running"),
    status('{"status": "in_progress"}'),
]


@pytest.mark.parametrize("call", WAITING, ids=lambda call: call.name)
@pytest.mark.parametrize("policy", [ALONE, STANDARD], ids=["alone", "standard"])
def test_waiting_is_told_at_the_sixth_and_stopped_at_the_twentieth(call: Call, policy: Policy) -> None:
    """By what it does or by what it is told, and on no other ladder."""
    assert rungs(policy, [call] * 25, tools=(*OFFERED, "wait_for_build", "process", "write_stdin")) == (6, 20)


def test_a_step_that_is_told_done_is_given_as_much_time() -> None:
    """A menu by its arrow keys; what shows what it did is an ordinary call."""
    both = Policy(ladders={reason: DEFAULT_LADDERS[reason] for reason in (Reason.REPEATED_CALL, Reason.POLL)})
    assert rungs(both, [called("press_key", {"key": "Down"}, "Pressed Down")] * 30) == (6, 20)
    assert rungs(both, [called("press_key", {"key": "Down"}, "a page\nof many\nlines")] * 30) == (3, 5)


def test_one_fewer_is_neither() -> None:
    """Five slices of waiting are work."""
    assert rungs(STANDARD, [bash("sleep 100")] * 5) == (None, None)
    assert rungs(STANDARD, [status("running")] * 19) == (6, None)


def test_a_change_starts_afresh() -> None:
    """The job moves, if slowly."""
    assert rungs(ALONE, [status(f"running\n{n // 4} of 9 parts done") for n in range(36)]) == (10, None)


def test_what_waited_and_is_over_is_an_ordinary_call() -> None:
    """Asking again and again for what is done."""
    assert rungs(STANDARD, [*[status("running")] * 4, *[status("done")] * 9]) == (7, 9)


def test_rounds_of_waiting_climb_the_ladder_for_waiting() -> None:
    """A pause and a look, in turn."""
    assert rungs(STANDARD, [bash("sleep 30"), bash("gh run view 7", "in_progress")] * 22)[1] is not None
    rounds: list[Reply] = [bash("sleep 30"), bash("tail -3 build.log", "compiling")] * 25
    nudge, stop = rungs(STANDARD, rounds)
    assert (nudge, stop) == (12, 40)


def test_without_it_waiting_counts_as_any_call() -> None:
    """Off is off."""
    assert rungs(only(Reason.REPEATED_CALL), [bash("sleep 100")] * 9) == (3, 5)
    cycles = only(Reason.CYCLE)
    assert rungs(cycles, [bash("sleep 30"), bash("tail -3 build.log", "compiling")] * 9)[1] == 10


def test_what_the_operator_says_of_a_tool() -> None:
    """A poll that nothing shows to be one, with rungs of its own; and one that is none."""
    rule = ToolRule(effect=Effect.POLL, nudge_at=4, stop_at=7, sets_nudge=True, sets_stop=True)
    assert rungs(Policy(tools={"read_file": rule}), [read()] * 9) == (4, 7)
    assert rungs(Policy(tools={"read_file": ToolRule(effect=Effect.POLL)}), [read()] * 25) == (6, 20)
    assert rungs(Policy(tools={"job_status": ToolRule(effect=Effect.READ)}), [status("running")] * 9) == (3, 5)
    assert rungs(Policy(tools={"job_status": ToolRule(exempt=True)}), [status("running")] * 25) == (None, None)


def test_a_call_in_a_row_with_changing_results_is_told_once() -> None:
    """At the tenth, and never stopped: paging may be right."""
    assert rungs(ALONE, [read("log", f"line {n}") for n in range(60)]) == (10, None)
    assert rungs(ALONE, [read("log", f"line {n % 3}") for n in range(60)])[0] == 10


@pytest.mark.parametrize(
    "replies",
    [
        [read("log", f"line {n}") for n in range(9)],
        [reply for n in range(20) for reply in (read("log", f"line {n}"), read(f"{n}"))],
        [together(read("log", f"line {n}"), read(f"{n}")) for n in range(20)],
        [called("read_file", {"path": "log"}, None)] * 12,
        [called("search", {"q": "x"}, f"{n}") for n in range(12)],
        [read()] * 12,
    ],
    ids=["nine", "others between", "others beside", "no results", "an exempt tool", "one result"],
)
def test_other_rows_are_not_told(replies: list[Reply]) -> None:
    """Fewer, not in a row, without a result, of an exempt tool, without a change."""
    assert rungs(only(Reason.POLL, tools={"search": ToolRule(exempt=True)}), replies) == (None, None)


def test_the_second_rung_may_be_taken_away() -> None:
    """Then such a row is nothing."""
    rows: list[Reply] = [read("log", f"line {n}") for n in range(30)]
    assert rungs(only(Reason.POLL, changing_nudge_at=None), rows) == (None, None)
    assert rungs(only(Reason.POLL, changing_nudge_at=3), rows) == (3, None)


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then, and only for calls that wait."""
    turns = [bash("sleep 100")] * 19
    armed = [House(ALONE).begin([user("go"), *turns[:count]], tools=OFFERED).plan.armed for count in (1, 18, 19)]
    assert armed == [False, False, True]
    assert not House(ALONE).begin([user("go"), *[read()] * 19], tools=OFFERED).plan.armed
    assert not House(only(Reason.POLL, Ladder(6, None))).begin([user("go"), *turns], tools=OFFERED).plan.armed


@pytest.mark.parametrize("counting", list(Counting))
def test_under_every_way_of_counting(counting: Counting) -> None:
    """Waiting has its own ladder, however repeats are counted."""
    assert rungs(only(Reason.POLL, counting=counting), [bash("sleep 100")] * 25) == (6, 20)


def test_other_calls_of_the_message_go_through() -> None:
    """Only the one that waits is withheld."""
    assert rungs(ALONE, [*[bash("sleep 100")] * 19, together(bash("sleep 100"), read())]) == (6, None)
