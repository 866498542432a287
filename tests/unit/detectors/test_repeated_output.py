"""A tool that gives the same output whatever it is asked."""

from collections.abc import Callable

import pytest

from proxy.models import Reason
from proxy.policy import Ladder, Policy, ToolRule
from tests.driver import House, Reply
from tests.loops import OFFERED, agent, bash, edit, note, only, read, rungs, search, with_waiting
from tests.transcripts import Call, called, together, user

ALONE = only(Reason.REPEATED_OUTPUT)
PAGE = "Results\n" + "\n".join(f"entry {n}" for n in "abcdef")


def page(number: int) -> Call:
    return called("read_file", {"path": "a", "page": number}, PAGE)


def label(number: int) -> Call:
    return bash("echo noop", "noop", description=f"attempt at it, {number}")


def sent(number: int, to: str = "peer", answer: str | None = None) -> Call:
    words = f"Please look at the report, wording {number}"
    return called("send_message", {"to": to, "message": words}, answer or f"sent: {words} (message_id: msg_{number}9f31a7c)")


STUCK: dict[str, Callable[[int], Call]] = {
    "the same page": page,
    "labels": label,
    "searches for nothing": lambda n: search(f"query {n}"),
    "a shell's searches": lambda n: bash(f"grep -rn word{n} src", ""),
    "one message, counted up": sent,
    "messages to one addressee": lambda n: called("send_message", {"to": "peer", "message": "abcdefghijklmnop"[n] * 9}, "delivered"),
    "the same page at another time": lambda n: called("read_file", {"page": n}, f"{PAGE}\nas of 2026-01-01 10:00:{n:02d}, took {n}.{n}s"),
    "labels of a change": lambda n: bash("git commit -m x", "nothing to do", description=f"try {n}"),
}


@pytest.mark.parametrize("kind", STUCK)
def test_it_is_told_at_the_sixth_and_stopped_at_the_tenth(kind: str) -> None:
    """Whatever the arguments, where they plainly do not matter."""
    assert rungs(ALONE, [STUCK[kind](n) for n in range(14)], tools=(*OFFERED, "xyzzy")) == (6, 10)


THINGS = [f"{first}{second}" for first in ("red", "green", "blue") for second in ("fox", "owl", "elk", "bee", "cod", "yak", "ant", "hen")]
LISTS: dict[str, Callable[[int], Call]] = {
    "services that are all well": lambda n: called("http_get", {"url": f"https://{THINGS[n]}.example.org/health"}, PAGE),
    "names that nobody uses": lambda n: bash(f"grep -rn {THINGS[n]}Helper src", ""),
    "days without a flight": lambda n: called("search_flights", {"date": f"2026-05-{n + 1:02d}"}, "[]"),
    "tickets without a comment": lambda n: called("get_ticket_comments", {"ticket_id": 100 + n}, PAGE),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_gone_through_has_the_ladder_for_waiting(kind: str) -> None:
    """Each call asks of another thing, and the list may be long: told at the sixth, stopped at the twentieth."""
    tools, patient = (*OFFERED, "http_get"), with_waiting(Reason.REPEATED_OUTPUT)
    assert rungs(patient, [LISTS[kind](n) for n in range(22)], tools=tools) in ((6, 20), (6, 21))
    assert rungs(patient, [LISTS[kind](n) for n in range(19)], tools=tools) == (6, None)
    assert rungs(patient, [LISTS[kind](n % 3) for n in range(14)], tools=tools) == (6, 10)
    assert rungs(ALONE, [LISTS[kind](n) for n in range(12)], tools=tools) in ((6, 10), (6, 11))  # without that ladder


def test_changes_of_the_world_in_between_are_no_kin() -> None:
    """`git add` says as little as `git status` and is what makes it worth looking again."""
    steps = [reply for n in range(12) for reply in (bash(f"git add {n}", ""), bash(f"git status --short {n}", ""))]
    assert rungs(ALONE, steps) == (None, None)


def test_an_unknown_tool_asked_the_same_under_other_labels() -> None:
    """Whatever it does, it was asked for one thing."""
    asked = [called("xyzzy", {"prompt": "Find it.", "description": f"try {n}"}, PAGE) for n in range(14)]
    assert rungs(ALONE, asked, tools=(*OFFERED, "xyzzy")) == (6, 10)
    others = [called("xyzzy", {"prompt": f"Find {THINGS[n]}."}, PAGE) for n in range(14)]
    assert rungs(ALONE, others, tools=(*OFFERED, "xyzzy")) == (6, None)


def test_clicks_whose_picture_never_changes() -> None:
    """What a step shows is more than "done"."""
    clicks = [called("click", {"x": n, "y": 7}, PAGE) for n in range(14)]
    assert rungs(ALONE, clicks, tools=(*OFFERED, "click")) == (6, 10)


@pytest.mark.parametrize("kind", STUCK)
def test_one_fewer_is_neither(kind: str) -> None:
    """Five times may be chance."""
    assert rungs(ALONE, [STUCK[kind](n) for n in range(5)], tools=(*OFFERED, "xyzzy")) == (None, None)
    assert rungs(ALONE, [STUCK[kind](n) for n in range(9)], tools=(*OFFERED, "xyzzy")) == (6, None)


WORK: dict[str, Callable[[int], Call]] = {
    "edits": edit,
    "new files": lambda n: called("write_file", {"path": f"{n}.txt", "content": "x" * n}, "The file was written.\nAll is well.\nGo on."),
    "notes": lambda n: note(f"{n}"),
    "checks that are all fine": lambda n: called("read_file", {"check": n}, "ok"),
    "tests that are all green": lambda n: bash(f"pytest tests/test_{n}.py", f"1 passed in 0.0{n}s"),
    "a batch": lambda n: bash(f"fastqc sample_{n}.fq", "done"),
    "a batch that says more": lambda n: bash(f"./process --sample {n}", "loading\nprocessing\nall is well"),
    "commands without a word": lambda n: bash(f"mkdir dir{n}", ""),
    "messages to many": lambda n: sent(n, to=f"customer {'abcdefghijklmnop'[n]}", answer="sent"),
    "comparisons without a difference": lambda n: bash(f"diff old/{n} new/{n}", ""),
    "waiting": lambda n: bash(f"sleep {n}", ""),
    "one call": lambda n: page(1),
    "failures": lambda n: called("read_file", {"page": n}, "Error: no such page\nhint: there are three\nbye"),
    "other outputs": lambda n: called("read_file", {"page": n}, f"{PAGE}\n{n * 7} entries"),
    "an unknown tool's ok": lambda n: called("xyzzy", {"n": n}, "ok"),
    "no result": lambda n: called("read_file", {"page": n}, None),
    "labels alone": lambda n: called("xyzzy", {"reason": f"{n}"}, "ok"),
    "messages to nobody": lambda n: called("send_message", {"message": f"{n}"}, "sent"),
}


@pytest.mark.parametrize("kind", WORK)
def test_work_that_answers_the_same(kind: str) -> None:
    """Where the same words mean another thing each time, or where it is another shape."""
    assert rungs(ALONE, [WORK[kind](n) for n in range(16)], tools=(*OFFERED, "xyzzy")) == (None, None)


@pytest.mark.parametrize(
    "between",
    [[read("b.txt")], [edit(1)], [together(note("x"), read("b.txt"))]],
    ids=["news", "a change", "beside"],
)
def test_progress_starts_it_afresh(between: list[Reply]) -> None:
    """Something new was told, or something was changed."""
    assert rungs(ALONE, [*[page(n) for n in range(5)], *between, *[page(n) for n in range(20, 25)]]) == (None, None)


def test_news_beside_it_counts_too() -> None:
    """The calls of one message happened at once."""
    assert rungs(ALONE, [together(page(n), read(f"{n}.txt")) for n in range(14)]) == (None, None)
    assert rungs(ALONE, [together(page(n), edit(n)) for n in range(14)]) == (None, None)


def test_what_brings_nothing_in_between_does_not_matter() -> None:
    """Notes, and things known long since; with pauses in between it is waiting."""
    assert rungs(ALONE, [reply for n in range(7) for reply in (page(n), note(f"{n}"))]) == (11, None)
    assert rungs(ALONE, [reply for n in range(7) for reply in (page(n), bash("sleep 3"))]) == (None, None)
    assert rungs(ALONE, [read("b.txt"), *[reply for n in range(11) for reply in (page(n), read("b.txt"))]]) == (12, 20)


def test_another_program_is_not_expected_to_answer_so() -> None:
    """The shell is one tool, what it runs is not."""
    loop = agent(ALONE)
    assert loop.play([bash(f"ps --level {n}", PAGE) for n in range(9)])[-1] == "ok"
    assert loop.step(bash("ls /", "bin\netc")).decision == "ok"


def test_a_search_for_something_else_may_find_it() -> None:
    """The tenth goes through; found nothing again, the run ends. One that only counts up is not awaited."""
    for result, decision in (("No results found", "stop"), ("a.py\nb.py", "ok")):
        loop = agent(ALONE)
        assert loop.play([search(f"name {n}") for n in range(9)])[-1] == "ok"
        assert loop.step(search("something else", result)).decision == "ok"
        assert loop.step(search("and more")).decision == decision
    assert rungs(ALONE, [search(f"name {n}") for n in range(12)]) == (6, 10)


def test_a_tool_of_which_nothing_is_known_is_only_told() -> None:
    """It may be working through a batch."""
    assert rungs(ALONE, [called("xyzzy", {"n": n}, PAGE) for n in range(14)], tools=("xyzzy",)) == (6, None)


def test_other_calls_go_through() -> None:
    """In a message with one that is withheld."""
    loop = agent(ALONE)
    loop.play([page(n) for n in range(9)])
    pruned = loop.step(together(page(10), bash("ls", "x")))
    assert (pruned.decision, pruned.given) == ("prune", together(bash("ls", "x")))


def test_a_result_that_the_client_blanked_is_still_known() -> None:
    """As it was first seen."""
    stub = "[Old tool result content cleared]"
    turns = [called("read_file", {"page": n}, f"{PAGE}\nat 10:00:0{n}") for n in range(9)]
    house = House(ALONE)
    for count in range(1, 10):
        x = house.ask(
            [user("go"), *[called("read_file", {"page": n}, stub) for n in range(count - 2)], *turns[max(count - 2, 0) : count]],
            page(count),
        )
        assert x.decision == ("nudge" if count == 6 else "stop" if count == 9 else "ok")


def test_a_stream_is_held_when_the_next_could_be_the_last() -> None:
    """Only then."""
    armed = [House(ALONE).begin([user("go"), *[page(n) for n in range(count)]], tools=OFFERED).plan.armed for count in (0, 1, 8, 9)]
    assert armed == [False, False, False, True]
    assert not House(ALONE).begin([user("go"), *[edit(n) for n in range(9)]], tools=OFFERED).plan.armed
    assert (
        not House(only(Reason.REPEATED_OUTPUT, Ladder(6, None)))
        .begin([user("go"), *[page(n) for n in range(30)]], tools=OFFERED)
        .plan.armed
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (only(Reason.REPEATED_OUTPUT, Ladder(None, 3)), (None, 3)),
        (only(Reason.REPEATED_OUTPUT, Ladder(2, None)), (2, None)),
        (only(Reason.REPEATED_OUTPUT, tools={"read_file": ToolRule(exempt=True)}), (None, None)),
        (only(Reason.REPEATED_OUTPUT, tools={"read_file": ToolRule(nudge_at=8, stop_at=12, sets_nudge=True, sets_stop=True)}), (8, 12)),
    ],
)
def test_its_rungs_are_the_operators(policy: Policy, expected: tuple[int | None, int | None]) -> None:
    """Each may be moved or taken away."""
    assert rungs(policy, [page(n) for n in range(14)]) == expected
