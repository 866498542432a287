"""Recordings led through the engine: the same decisions as for a live agent, and what is counted of them."""

import pytest

from proxy.models import Reason, Role, Usage
from proxy.policy import Counting, Ladder, Mode, OnStop, Policy
from proxy.replay.recording import Note, Recording
from proxy.replay.walk import Act, Walk, prints_for, walk
from tests.driver import Agent, House, Reply
from tests.transcripts import Plain, Turn, called, request, said, together, user

ASK = user("Where is it?")


def recording(*turns: Turn, notes: dict[int, Note] | None = None, restarts: dict[int, int] | None = None, asked: bool = False) -> Recording:
    read = request(*turns)
    return Recording("r", read.items, read.tools, read.tools_raw, notes=notes or {}, restarts=restarts or {}, asked=asked)


def walked(*turns: Turn, policy: Policy | None = None, **options: object) -> Walk:
    policy = policy or Policy()
    return walk(recording(*turns, **options), policy, prints_for(policy))  # type: ignore[arg-type]


def made(turn: Turn) -> Reply:
    """A turn of the model's, as the reply that it was."""
    assert not isinstance(turn, Plain)
    return turn


def marks(found: Walk) -> list[tuple[str, int]]:
    return [(str(mark.act), mark.call) for mark in found.marks]


def test_the_third_call_is_nudged_and_the_fifth_stopped() -> None:
    """The first stop of a run is the one that counts, however the recording goes on."""
    found = walked(ASK, *[called()] * 9, said("Enough."))
    assert marks(found) == [("nudge", 3), ("stop", 5)]
    (nudge,), (stop,) = found.of(Act.NUDGE), found.of(Act.STOP)
    assert (nudge.turn, nudge.reason, nudge.tool, nudge.count, nudge.limit) == (4, "repeated_call", "read_file", 3, 5)
    assert (stop.turn, stop.count) == (5, 5)
    assert (found.turns, found.calls) == (10, 9)


def test_work_is_left_alone() -> None:
    """Results that change, edits in between."""
    steps = [called("bash", result=f"{number} failed") for number in range(9)]
    assert marks(walked(ASK, *steps, *[called("edit", {"at": at}) for at in range(9)], said("Done."))) == []


@pytest.mark.parametrize(
    "replies",
    [
        [called()] * 8,
        [called(result="a"), called(result="a"), called(result="b"), *[called(result="b")] * 6],
        [called("read_file"), called("bash")] * 7,
        [called("edit"), *[called()] * 3, called("edit", {"n": 1}), *[called()] * 4],
        [together(called("read_file", {"at": at}), called("bash")) for at in range(8)],
        [together(*[called()] * 20)] * 2,
    ],
)
def test_decisions_are_those_on_a_live_agent(replies: list[Reply]) -> None:
    """Turn by turn up to the first stop, whatever the shape."""
    live = Agent(House(), ASK).play(replies)
    found = walked(ASK, *[reply for reply in replies if not isinstance(reply, str)])
    last = {mark.turn: str(mark.act) for mark in found.marks}
    assert [last.get(turn, "ok") for turn in range(1, len(live) + 1)] == live


def test_a_person_who_speaks_again_begins_a_new_run() -> None:
    """What follows is judged again; the call that was stopped gets less patience."""
    found = walked(ASK, *[called()] * 7, said("It is not there."), user("Look again."), *[called()] * 4, said("No."))
    assert marks(found) == [("nudge", 3), ("stop", 5), ("stop", 10)]


def test_calls_left_out_of_a_message_are_left_out_with_their_results() -> None:
    """The rest of the message went to the client, and the next request has it so; a second time the run ends."""
    message: Turn = together(*[called("bash")] * 17, called("edit"), called("read_file"))
    once = walked(ASK, message, said("Well."))
    assert marks(once) == [("prune", 16), ("nudge", 19)]
    assert once.of(Act.PRUNE)[0].reason == "parallel_repeat"
    assert [act for act, _ in marks(walked(ASK, message, message, said("Well.")))] == ["prune", "nudge", "stop"]


def test_a_request_without_an_answer_is_decided_on_too() -> None:
    """As in a log of requests alone: the third call is in its history."""
    turns: list[Turn] = [ASK, *[called()] * 3]
    assert marks(walked(*turns, asked=True)) == [("nudge", 3)]
    assert marks(walked(*turns)) == []
    assert walked(*turns, said("So."), asked=True).turns == 4


def test_after_a_compaction_the_run_goes_on() -> None:
    """The history begins anew with a summary; what was counted before it still counts, as for a live agent."""
    before: list[Turn] = [ASK, *[called(id=f"old{number}") for number in range(3)]]
    after: list[Turn] = [user("Summary: read_file was called."), *[called(id=f"new{number}") for number in range(6)]]
    house = House()
    decisions = [house.ask(line[:end], made(line[end])).decision for line in (before, after) for end in range(1, len(line))]
    anew = len(request(*before).items)
    last = {mark.turn: str(mark.act) for mark in walked(*before, *after, restarts={anew: anew + 1}).marks}
    first_stop = decisions.index("stop") + 1
    assert [last.get(turn, "ok") for turn in range(1, first_stop + 1)] == decisions[:first_stop]
    assert "nudge" in decisions


def test_what_an_agent_says_again_and_again_is_told_and_stopped_too() -> None:
    """Texts without calls, between a client's own remarks; as for a live agent."""
    text, remark = "I will now look at the settings and then tell you what I found.", user("[ERROR] You did not use a tool")
    found = walked(ASK, *[turn for _ in range(7) for turn in (said(text), remark)])
    assert [(str(mark.act), mark.turn, mark.reason) for mark in found.marks] == [
        ("nudge", 4, "repeated_text"),
        ("stop", 5, "repeated_text"),
    ]


def test_markup_in_a_text_would_be_mended() -> None:
    """Where no tool can be called."""
    found = walk(Recording("r", request(ASK, said('<tool_call>\n{"name": "ls"}'), tools=()).items), Policy(), prints_for(Policy()))
    assert [(str(mark.act), mark.reason) for mark in found.marks] == [("mend", "tool_markup")]


def test_the_policy_decides_as_if_it_were_enforced() -> None:
    """Observing, counting otherwise, with other ladders."""
    steps = [call for number in range(6) for call in (called(), called("edit", {"n": number}))]
    assert marks(walked(ASK, *[called()] * 6, policy=Policy(mode=Mode.OBSERVE))) == [("nudge", 3), ("stop", 5)]
    assert marks(walked(ASK, *steps, policy=Policy(counting=Counting.CUMULATIVE))) == [("nudge", 5), ("stop", 9)]
    assert marks(walked(ASK, *[called()] * 9, policy=Policy(ladders={Reason.REPEATED_CALL: Ladder(None, 7)}))) == [("stop", 7)]


def test_tokens_are_those_of_the_log() -> None:
    """A stop spares the later calls of its run; its wrap-up reads the history once more."""
    turns: list[Turn] = [ASK, *[called()] * 7]
    answers = [place for place, item in enumerate(request(*turns).items) if item.role is Role.ASSISTANT]
    notes = {place: Note(Usage(100 * number, 10)) for number, place in enumerate(answers, 1)}
    found = walked(*turns, notes=notes)
    assert (found.tokens, found.saved, found.estimated) == (2870, 610 + 710 - 500, False)
    without = walked(*turns, notes=notes, policy=Policy(on_stop=OnStop.MESSAGE))
    assert (marks(without), without.saved) == (marks(found), 610 + 710)
    assert marks(walked(*turns, notes=notes, policy=Policy(on_stop=OnStop.ERROR))) == marks(found)


def test_tokens_are_estimated_where_the_log_has_none() -> None:
    """From sizes, and it is said."""
    found = walked(ASK, *[called(result="x" * 4_000)] * 9)
    assert found.estimated
    assert found.tokens > 36_000
    assert 0 < found.saved < found.tokens
