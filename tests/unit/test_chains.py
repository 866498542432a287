"""Histories that the upstream keeps: what is remembered of them, and the trail that comes of it."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.budgets import Spending
from proxy.chains import Delivered, as_it_came, complete, in_place_of, recall, remember, standing, unanswered
from proxy.dialects.responses import Responses
from proxy.engine import Admission, Case, Result, Serve, admit, conclude, edits_of
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Action, Answer, Choice, Owed, Request, ToolCall, Usage
from proxy.policy import Policy
from proxy.state import MAX_ANSWERS, MAX_CALLS, Kept, Record, dump, load
from proxy.trail import read
from proxy.turns import newest, said_mark

PRINTS = Fingerprints(b"s" * 32, loose=True)
KEY = 7
TOOLS = [{"type": "function", "name": name} for name in ("ls", "cat")]
DONE = Choice("Done.")


def asked(*items: Any, **members: Any) -> Request:
    body = {"model": "m", "input": list(items), "tools": TOOLS, **members}
    return Responses().parse(json.dumps(body).encode())


def user(text: str = "go") -> dict[str, Any]:
    return {"role": "user", "content": text}


def output(call_id: str, text: str = "x") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def calls(*ids: str, name: str = "ls", text: str = "") -> Choice:
    return Choice(text, tuple(ToolCall(call_id, name, "{}") for call_id in ids))


@dataclass
class Session:
    """One session's record, as bytes between any two requests."""

    data: bytes | None = None
    now: float = 0.0
    case: Case = field(
        default_factory=lambda: Case(asked(), read(asked(), PRINTS), PRINTS, Policy(), Asker(), Record(0, 0), Place.nowhere())
    )

    def ask(self, *items: Any, **members: Any) -> Admission:
        """A request arrives."""
        self.now += 1
        request = asked(*items, **members)
        self.case = Case(request, read(request, PRINTS), PRINTS, Policy(), Asker(0, True, False, self.now), Record(0, 0), Place.nowhere())
        self.case.take(load(self.data, KEY))
        return admit(self.case, Spending())

    def answer(self, given: Delivered, plan: Admission | None = None) -> None:
        """Its answer goes out in full."""
        plan = plan or Admission()
        conclude(self.case, Result(self.now, True, given.choice.calls, nudge=plan.nudge, stop=plan.stop, given=given))
        self.data = dump(self.case.record)

    def turn(self, *items: Any, id: str, choice: Choice, **members: Any) -> Admission:
        plan = self.ask(*items, **members)
        self.answer(Delivered(id, choice), plan)
        return plan

    @property
    def trail(self) -> list[list[tuple[str, int]]]:
        """Each message's calls, by name and the number of their result in order of appearance, 0 without one."""
        numbers: dict[int, int] = {0: 0}
        return [
            [(entry.name, numbers.setdefault(entry.result, len(numbers))) for entry in step.calls] for step in self.case.place.trail.steps
        ]


@pytest.fixture
def session() -> Session:
    return Session()


def test_a_request_that_goes_on_from_nothing_has_no_past(session: Session) -> None:
    """Nor has one that goes on from what nobody remembers: it stands for itself."""
    session.turn(user(), id="r1", choice=calls("c1"))

    assert recall(session.case.record, asked(user()), PRINTS) is None
    session.ask(output("c9"), previous_response_id="elsewhere")
    assert session.trail == []
    assert session.case.history.remembered == 0


def test_results_find_their_calls_by_id(session: Session) -> None:
    """Whatever their order; a result of no call that was made belongs to none."""
    session.turn(user(), id="r1", choice=Choice("", (*calls("c1").calls, *calls("c2", name="cat").calls)))
    session.ask(output("c9", "?"), output("c2", "two"), output("c1", "one"), previous_response_id="r1")

    assert session.trail == [[("ls", 1), ("cat", 2)]]
    assert session.case.history.messages[0].calls[0].content == b'"one"'


def test_a_chain_is_one_lane_with_one_trail(session: Session) -> None:
    """Each request brings the results of the answer before it; results are compared without what changes by itself."""
    session.turn(user(), id="r1", choice=calls("c1"))
    for turn in range(1, 5):
        session.turn(
            output(f"c{turn}", f"took {turn}.5 seconds"), previous_response_id=f"r{turn}", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}")
        )
    session.ask(output("c5", "another"), previous_response_id="r5")

    assert session.trail == [[("ls", 1)]] * 4 + [[("ls", 2)]]
    assert len(session.case.record.lanes) == 1
    assert session.case.history.remembered == 5


def test_a_conversation_is_a_chain_without_names(session: Session) -> None:
    """Its newest answer is what a request goes on from, also when it is sent again."""
    session.turn(user(), id="r1", choice=calls("c1"), conversation="conv")
    for turn in range(1, 4):
        session.ask(output(f"c{turn}"), conversation="conv")
        session.turn(output(f"c{turn}"), conversation="conv", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}"))
    session.ask(output("c4"), conversation={"id": "conv"})

    assert session.trail == [[("ls", 1)]] * 4
    assert len(session.case.record.answers) == 1


def test_the_nudge_stays_where_the_upstream_keeps_it(session: Session) -> None:
    """It goes out with the result it stands behind, and in no later request; a request sent again carries it again."""
    session.turn(user(), id="r1", choice=calls("c1"))
    for turn in (1, 2):
        session.turn(output(f"c{turn}"), previous_response_id=f"r{turn}", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}"))
    nudged = session.turn(output("c3"), previous_response_id="r3", id="r4", choice=calls("c4"))
    again = session.ask(output("c3"), previous_response_id="r3")
    later = session.ask(output("c4"), previous_response_id="r4")

    assert [plan.action for plan in (nudged, again, later)] == [Action.NUDGE, Action.ALLOW, Action.ALLOW]
    assert [len(plan.edits.inserts) for plan in (nudged, again, later)] == [1, 1, 0]
    assert session.case.place.trail.nudged


def test_a_nudge_at_a_users_text_stays_too(session: Session) -> None:
    """Where the history holds no result."""
    session.turn(user(), id="r1", choice=calls("c1"))
    for turn in (1, 2):
        session.turn(output(f"c{turn}"), previous_response_id=f"r{turn}", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}"))
    session.turn(user("continue"), previous_response_id="r3", id="r4", choice=calls("c4"))
    nudged = session.ask(user("continue"), previous_response_id="r4")
    assert nudged.nudge is None or nudged.nudge.message == -1


def test_a_person_who_speaks_begins_a_run(session: Session) -> None:
    """Known by new text after an answer without calls; a mere "continue" is none, nor is a request sent again."""
    session.turn(user(), id="r1", choice=calls("c1"))
    session.turn(output("c1"), previous_response_id="r1", id="r2", choice=DONE)
    session.turn(user("continue"), previous_response_id="r2", id="r3", choice=calls("c2"))
    session.ask(output("c2"), previous_response_id="r3")
    assert session.trail == [[("ls", 1)], [], [("ls", 1)]]

    session.turn(output("c2"), previous_response_id="r3", id="r4", choice=DONE)
    for _ in range(2):
        session.turn(user("And now?"), previous_response_id="r4", id="r5", choice=calls("c3"))
    session.ask(output("c3"), previous_response_id="r5")
    assert session.trail == [[("ls", 1)]]


def test_branches_share_what_came_before_them(session: Session) -> None:
    """Two requests that go on from one answer are two lanes, each with the prefix."""
    session.turn(user(), id="r1", choice=calls("c1"))
    session.turn(output("c1"), previous_response_id="r1", id="a2", choice=calls("c2"))
    session.turn(output("c1"), previous_response_id="r1", id="b2", choice=calls("c3"))
    session.turn(output("c2"), previous_response_id="a2", id="a3", choice=DONE)
    session.ask(output("c3", "y"), previous_response_id="b2")

    assert session.trail == [[("ls", 1)], [("ls", 2)]]
    assert len(session.case.record.lanes) == 2


def test_an_old_answer_is_known_from_its_lane(session: Session) -> None:
    """Long after its own entry has gone; ids are forgotten, so its results are taken in order."""
    session.turn(user(), id="r0", choice=Choice("", (*calls("c0").calls, *calls("d0", name="cat").calls)))
    session.turn(output("c0"), output("d0", "z"), previous_response_id="r0", id="r1", choice=calls("c1"))
    for turn in range(1, MAX_ANSWERS + 4):
        session.turn(output(f"c{turn}", str(turn)), previous_response_id=f"r{turn}", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}"))
    session.ask(output("c0", "y"), output("d0", "z"), previous_response_id="r0")

    assert session.trail == [[("ls", 1), ("cat", 2)]]
    assert standing(session.case.record, session.case.request, PRINTS) is None


def test_a_long_chain_is_known_from_its_newest_calls(session: Session) -> None:
    """Of the dropped messages only their number is left."""
    session.turn(user(), id="r1", choice=calls("c1"))
    for turn in range(1, MAX_CALLS + 10):
        session.turn(output(f"c{turn}", str(turn)), previous_response_id=f"r{turn}", id=f"r{turn + 1}", choice=calls(f"c{turn + 1}"))
    session.ask(output(f"c{MAX_CALLS + 10}", "last"), previous_response_id=f"r{MAX_CALLS + 10}")

    assert session.case.history.remembered == MAX_CALLS + 10
    assert session.case.place.lane.offset > 0
    assert len(session.case.record.lanes) == 1
    seen = [step[0] for step in session.trail if step]
    assert MAX_CALLS <= len(seen) == len(set(seen))


def test_a_lane_that_is_lost_leaves_the_newest_answer(session: Session) -> None:
    """Its calls and their results are seen; what came before is not."""
    session.turn(user(), id="r1", choice=calls("c1"))
    session.turn(output("c1"), previous_response_id="r1", id="r2", choice=calls("c2"))
    record = load(session.data, KEY)
    record.lanes = []
    session.data = dump(record)
    session.ask(output("c2"), previous_response_id="r2")

    assert session.trail == [[("ls", 1)]]


def test_the_providers_own_calls_are_news_where_the_client_has_calls_too(session: Session) -> None:
    """They have no result to wait for; alone they leave the run ended."""
    search = ToolCall(None, "web_search", '{"q":1}')
    session.turn(user(), id="r1", choice=Choice("", calls("c1").calls, hosted=(search,)))
    session.turn(output("c1"), previous_response_id="r1", id="r2", choice=Choice("Found.", hosted=(search,)))
    assert session.trail == [[("ls", 1), ("web_search", 0)]]
    session.ask(user("Thanks. More?"), previous_response_id="r2")
    assert not any(session.trail)


def test_chains_of_one_session_are_lanes_of_their_own(session: Session) -> None:
    """Taken up in any order."""
    for task in ("a", "b"):
        session.turn(user(task), id=f"{task}1", choice=calls(f"{task}c"))
    for task in ("b", "a"):
        session.turn(output(f"{task}c"), previous_response_id=f"{task}1", id=f"{task}2", choice=calls(f"{task}d"))
    session.ask(output("bd"), previous_response_id="b2")

    assert session.trail == [[("ls", 1)], [("ls", 1)]]
    assert len(session.case.record.lanes) == 2


def test_items_of_a_root_request_stand_before_the_chain(session: Session) -> None:
    """A client may begin with a history of its own."""
    made = {"type": "function_call", "call_id": "c0", "name": "ls", "arguments": "{}"}
    session.turn(user(), made, output("c0"), id="r1", choice=calls("c1"))
    session.ask(output("c1"), made | {"call_id": "c2"}, output("c2"), previous_response_id="r1")

    assert [[name for name, _ in step] for step in session.trail] == [["ls"]] * 3
    assert len({result for step in session.trail for _, result in step}) <= 2


def said_before(session: Session) -> list[tuple[int, bool]]:
    case = session.case
    return [(turn.text, turn.empty) for turn in newest(case.request, case.history, case.place.lane, case.place.run, PRINTS)]


def test_texts_are_remembered_as_marks(session: Session) -> None:
    """Back to where a person spoke or a call was made, spelling of spaces aside; an empty answer is known for one."""
    same = said_mark("still  at it.", PRINTS)
    session.turn(user(), id="r1", choice=calls("c1"))
    session.turn(output("c1"), previous_response_id="r1", id="r2", choice=Choice("Still at it."))
    session.turn(user("continue"), previous_response_id="r2", id="r3", choice=Choice("Still  at it."))
    session.turn(user("continue"), previous_response_id="r3", id="r4", choice=Choice(""))
    session.ask(user("continue"), previous_response_id="r4")
    assert said_before(session) == [(same, False), (same, False), (said_mark("", PRINTS), True)]

    session.turn(user("And b.txt?"), previous_response_id="r4", id="r5", choice=Choice("Still at it."))
    assert said_before(session) == []
    session.ask(user("continue"), previous_response_id="r5")
    assert said_before(session) == [(same, False)]


def test_tokens_of_the_past_are_what_its_call_cost(session: Session) -> None:
    """Or, where nobody said, all bytes so far."""
    session.ask(user())
    session.answer(Delivered("r1", calls("c1"), tokens=110))
    session.ask(output("c1"), previous_response_id="r1")
    assert session.case.history.tokens == 110

    session.answer(Delivered("r2", DONE))
    size = session.case.request.text_bytes
    session.ask(user("More?"), previous_response_id="r2")
    assert session.case.history.tokens == 110 + size


def test_an_answer_as_it_came() -> None:
    """One without an id, or without anything in it, is none to go on from."""
    answer = Answer((calls("c1"),), Usage(100, 10), id="r1")

    assert as_it_came(answer, calls("c2").calls) == Delivered("r1", calls("c1"), 110, None, (Owed("c2"),))
    assert as_it_came(Answer((DONE,), id="r1"), ()) == Delivered("r1", DONE)
    assert as_it_came(Answer((DONE,)), ()) is None
    assert as_it_came(Answer(id="r1"), ()) is None


def test_unanswered_calls_are_known_by_kind() -> None:
    """Those without an id can be answered by nobody."""
    made = (
        ToolCall("a", "f", ""),
        ToolCall("b", "f", "", custom=True),
        ToolCall("c", "shell", "", kind="shell_call"),
        ToolCall(None, "f", ""),
    )

    assert unanswered(made) == (Owed("a"), Owed("b", "custom_tool_call"), Owed("c", "shell_call"))


def kept(**members: Any) -> Kept:
    return Kept(1, 0, 0, 0, 0, [], [], [], **members)


@pytest.mark.parametrize(
    ("withheld", "before", "members", "go_on_from", "owed"),
    [
        # the withheld answer is there, its calls are nobody's
        (Answer((calls("c1"),), id="up"), None, {"previous_response_id": "r1"}, "up", (Owed("c1"),)),
        # what the model said at last has the client's id: nothing to be told
        (Answer((DONE,), id="own"), None, {"previous_response_id": "r1"}, None, ()),
        # a call that the client was given after all
        (Answer((calls("f1", "c1"),), id="up"), None, {}, "up", (Owed("c1"),)),
        (Answer(id="up"), None, {}, "up", ()),
        # the upstream was never asked: results that it did not get, on top of what was owed
        (None, None, {"previous_response_id": "r1"}, "r1", (Owed("o1"),)),
        (None, kept(go_on_from="up", owed=[Owed("c1")]), {"previous_response_id": "s1"}, "up", (Owed("c1"), Owed("o1"))),
        (None, None, {}, "", (Owed("o1"),)),
        (Answer((DONE,)), kept(), {"previous_response_id": "r1"}, "r1", (Owed("o1"),)),
        # a conversation is always itself
        (None, None, {"conversation": "conv"}, None, (Owed("o1"),)),
        (Answer((calls("c1"),), id="up"), None, {"conversation": "conv"}, None, (Owed("c1"),)),
    ],
)
def test_an_answer_in_the_place_of_another(
    withheld: Answer | None, before: Kept | None, members: dict[str, Any], go_on_from: str | None, owed: tuple[Owed, ...]
) -> None:
    """Where the upstream goes on, and what it has to be told first."""
    request = asked(user("continue"), output("o1"), **members)

    given = in_place_of(withheld, "own", calls("f1", text="stopped"), before, request)

    assert (given.go_on_from, given.owed) == (go_on_from, owed)


def test_going_on_from_an_answer_of_lastcalls_is_going_on_from_the_withheld_one(session: Session) -> None:
    """With a result for its call; the answer that comes of it owes nothing."""
    session.turn(user(), id="r1", choice=calls("c1"))
    session.ask(output("c1"), previous_response_id="r1")
    session.answer(Delivered("own", Choice("stopped"), go_on_from="up", owed=(Owed("c2"),)))
    plan = session.turn(user("And now?"), previous_response_id="own", id="r2", choice=calls("c3"))
    later = session.ask(output("c3"), previous_response_id="r2")

    assert (plan.edits.go_on_from, plan.edits.owed, plan.edits.owed_text) == ("up", (Owed("c2"),), "[lastcall stop] not executed")
    assert (later.edits.go_on_from, later.edits.owed) == (None, ())


@pytest.mark.parametrize(("members", "alone"), [({"conversation": "conv"}, True), ({"previous_response_id": "r1"}, False)])
def test_a_conclusion_goes_on_where_the_withheld_answer_stands(session: Session, members: dict[str, Any], alone: bool) -> None:
    """A conversation has both the request and that answer, so only its results are sent; elsewhere the request is sent again."""
    session.turn(user(), id="r1", choice=calls("c1"), **({"conversation": "conv"} if alone else {}))
    plan = session.ask(output("c1"), **members)
    plan.serve = Serve.FINAL

    edits = edits_of(plan, session.case, attempt=0, withheld=calls("c2").calls)

    assert (edits.alone, edits.owed, edits.no_tools) == (alone, (Owed("c2"),) if alone else (), True)
    said = edits.owed_text if alone else edits.inserts[0].text
    assert "[lastcall stop] This run ends here" in said

    again = edits_of(plan, session.case, attempt=1, withheld=calls("c2").calls)
    assert (bool(again.asked), again.owed, bool(again.inserts)) == (alone, (), not alone)


def test_an_answer_made_in_the_background_is_known_once_it_is_there(session: Session) -> None:
    """By any of its names, once; until then it says nothing, which is no empty answer."""
    answers = [calls("c1"), Choice("", (), "queued")]
    session.turn(user(), id="r1", choice=answers[0])
    session.turn(output("c1"), id="r2", choice=answers[1], previous_response_id="r1")
    session.ask(output("c2"), previous_response_id="r2")
    assert (session.trail, session.case.turns()) == ([[("ls", 1)], []], [])

    record = load(session.data, KEY)
    made = Answer((calls("c2"),), Usage(70, 7), "r2", complete=True)
    assert not complete(record, ["r1"], made, 5, PRINTS)
    assert not complete(record, ["r2"], Answer(id="r2"), 5, PRINTS)
    assert complete(record, ["r2", "conv"], made, 5, PRINTS)
    assert not complete(record, ["r2", "conv"], made, 5, PRINTS)
    session.data = dump(record)
    session.ask(output("c2"), previous_response_id="r2")
    assert (session.trail, session.case.history.tokens) == ([[("ls", 1)], [("ls", 1)]], 77)


def test_answers_that_are_only_named_are_known(session: Session) -> None:
    """By any of their newest items; what stands before them in the request is the past, and their results follow."""
    history: list[dict[str, Any]] = [user()]
    for number in range(3):
        made = Choice("", calls(f"c{number}").calls, items=(f"rs{number}", f"fc{number}"))
        session.turn(*history, id=f"r{number}", choice=made)
        history += [{"type": "item_reference", "id": f"{kind}{number}"} for kind in ("rs", "fc")] + [output(f"c{number}")]
    plan = session.ask(*history)

    assert session.trail == [[("ls", 1)]] * 3
    assert (plan.action, [insert.item for insert in plan.edits.inserts]) == (Action.NUDGE, [3])
    session.answer(Delivered("r3", Choice("Done.", items=("msg3",))), plan)
    session.ask(*history, {"type": "item_reference", "id": "msg3"}, user("And now?"))
    assert (session.trail, session.case.place.run) == ([], 4)
    session.ask(user(), {"type": "item_reference", "id": "unknown"}, output("c9"))
    assert session.trail == []


def test_a_nudge_in_a_history_whose_answers_are_only_named_is_said_again_at_its_place(session: Session) -> None:
    """The results are the client's own, and it sends them without the nudge each time; until the answer before it is not known any more."""
    history: list[dict[str, Any]] = [user()]
    said = []
    for number in range(MAX_ANSWERS + 6):
        name = "ls" if number < 3 else f"t{number}"
        made = Choice("", calls(f"c{number}", name=name).calls, items=(f"fc{number}",))
        plan = session.turn(*history, id=f"r{number}", choice=made)
        said.append([insert.item for insert in plan.edits.inserts])
        history += [{"type": "item_reference", "id": f"fc{number}"}, output(f"c{number}", f"x{number if number > 2 else ''}")]

    assert said == [[]] * 3 + [[3]] * MAX_ANSWERS + [[]] * 3


def test_remembering_twice_changes_nothing(session: Session) -> None:
    """As a lost race does."""
    session.turn(user(), id="r1", choice=calls("c1"))
    record = load(session.data, KEY)
    before = dump(record)
    remember(record, session.case.request, session.case.history, PRINTS, Delivered("r1", calls("c1")), said_mark("", PRINTS))

    assert dump(record) == before
