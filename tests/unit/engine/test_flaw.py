"""What is wrong with the text of one answer, and what only looks so."""

from typing import Any

import pytest

from proxy.engine import Case, watch_of
from proxy.engine.flaw import flaw_of
from proxy.fingerprint import Fingerprints
from proxy.lanes import Asker, Place
from proxy.models import Answer, Choice, Reason, ToolCall
from proxy.policy import Expectation, Ladder, Policy
from proxy.state import Record
from proxy.trail import read
from tests.transcripts import Turn, called, request, said, user

PRINTS = Fingerprints(b"s" * 32, loose=True)
CALL = '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>'
CALLS_ONLY = Policy(ladders={Reason.REPEATED_CALL: Ladder(3, 5)})


def case(*turns: Turn, policy: Policy | None = None, expects: Expectation | None = None, **fields: Any) -> Case:
    asked = request(*(turns or (user("do it"),)), **({"tools": ()} | fields))
    made = Case(asked, read(asked, PRINTS), PRINTS, policy or Policy(), Asker(), Record(1, 1), Place.nowhere(), expects)
    made.take(Record(1, 1))
    return made


def flaw(text: str, of: Case | None = None, *calls: ToolCall, choices: int = 1) -> tuple[Reason, str, bool] | None:
    found = flaw_of(of or case(), Answer((Choice(text, calls, "stop"),) * choices, complete=True))
    return None if found is None else (found.finding.reason, found.clean, found.again)


def test_markup_is_a_flaw_where_no_tool_can_be_called() -> None:
    """What is good of the answer is kept; it is asked for again."""
    expected = (Reason.TOOL_MARKUP, "Let me look.", True)
    assert flaw(f"Let me look.\n\n{CALL}") == expected
    assert flaw(f"Let me look.\n\n{CALL}", case(tools=("bash",), tool_choice="none")) == expected
    assert flaw(f"Let me look.\n\n{CALL}", case(tools=("bash",))) is None


def test_a_stray_closer_is_left_out_and_nothing_is_asked_again() -> None:
    """The answer stands."""
    assert flaw("All done.]<]minimax[>[</tool_call>") == (Reason.TOOL_MARKUP, "All done.", False)


@pytest.mark.parametrize(
    "turns",
    [
        (user("How does a <tool_call> of Qwen look?"),),
        (user("Answer with <tool_call> blocks."), said("Yes."), user("go")),
        (user("Show me the raw tool call format."),),
        (user("Which special tokens does it have?"),),
    ],
)
def test_markup_that_the_request_speaks_of_is_wanted(turns: tuple[Turn, ...]) -> None:
    """The user asks about it, or the client's own protocol is made of it; once or several times."""
    assert flaw(CALL, case(*turns)) is None
    assert flaw(f"{CALL}\n\n{CALL}", case(*turns)) is None


def test_markup_that_the_system_text_asks_for_is_the_clients_own() -> None:
    """Agents that speak their tools as text offer none."""
    assert flaw(CALL, case(system="Call a tool as <tool_call>{...}</tool_call>.")) is None


def test_what_tools_returned_asks_for_nothing() -> None:
    """Files hold markup too."""
    assert flaw(CALL, case(user("go"), called("bash", result="<tool_call>"))) is not None


def test_a_passage_without_end_is_a_flaw() -> None:
    """It is cut where it begins, with tools or without, and not asked for again."""
    expected = (Reason.REPEATED_TEXT, "Sure.", False)
    assert flaw("Sure.\n" + "curd " * 50) == expected
    assert flaw("Sure.\n" + "curd " * 50, case(tools=("bash",))) == expected
    assert flaw("curd " * 50, case(user("say curd 50 times"))) is None
    assert flaw("curd " * 50, case(policy=Policy(ladders={Reason.REPEATED_TEXT: Ladder(3, None)}))) is None


def test_an_answer_must_be_what_its_stage_expects() -> None:
    """All of it and nothing else; what it makes calls is not looked at."""
    expecting = case(expects=Expectation(("VERDICT:",), ("DRAFT",)), tools=("bash",))
    assert flaw("VERDICT: good", expecting) is None
    assert flaw("good", expecting) == (Reason.EXPECT, "good", True)
    assert flaw("VERDICT: DRAFT", expecting) == (Reason.EXPECT, "VERDICT: DRAFT", True)
    assert flaw("good", expecting, ToolCall("1", "bash", "{}")) is None


def test_several_choices_and_empty_answers_have_no_flaw() -> None:
    """The first are samples, the second have a detector."""
    assert flaw(CALL, choices=2) is None
    assert flaw("") is None
    assert flaw_of(case(), Answer()) is None


def test_off_is_off() -> None:
    """A detector without a ladder does nothing."""
    assert flaw(CALL, case(policy=CALLS_ONLY)) is None
    assert flaw("curd " * 50, case(policy=CALLS_ONLY)) is None


def test_a_stream_is_watched_only_where_its_text_can_be_wrong() -> None:
    """Before it goes out only where no tool can be called."""
    watches = [watch_of(one) for one in (case(), case(tools=("bash",)), case(policy=CALLS_ONLY), case(n=2))]
    assert [None if watch is None else watch.first for watch in watches] == [True, False, None, None]


def test_a_request_without_any_text_of_a_user_asks_for_nothing() -> None:
    """There is nobody to ask."""
    assert flaw(CALL, case(said("Hm."))) is not None
