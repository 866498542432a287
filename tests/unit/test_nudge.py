"""The words Lastcall adds for a model or a person."""

import re
from typing import Any

import pytest

from proxy.budgets import REASONS
from proxy.detectors import DETECTORS
from proxy.fingerprint import Fingerprints
from proxy.models import Allowance, Finding, Reason, Request
from proxy.nudge import (
    finish_tool,
    joined,
    local_message,
    nudge_text,
    stop_line,
    stopped_message,
    why,
    why_budget,
    wrap_up_instruction,
)
from proxy.policy import NudgeRule, Policy
from proxy.state import Nudge
from proxy.trail import read
from tests.transcripts import Turn, called, request, together, user

PRINTS = Fingerprints(b"s" * 32, loose=True)
SECRET_PATH = {"path": "/home/jo/secret.txt"}
LOOP = PRINTS.call("read_file", '{"path":"/home/jo/secret.txt"}')
# What some client takes for a reason to ask again, or to compact and go on.
RETRIED = re.compile(r"429|50[0-4]|529|token|overloaded|rate limit|server error|timeout|too long|context", re.IGNORECASE)


CALL_LOOPS = tuple(detector.reason for detector in DETECTORS)


def nudge(message: int = 0, *, reason: Reason = Reason.REPEATED_CALL, count: int = 3, calls: tuple[int, ...] = (LOOP,)) -> Nudge:
    return Nudge(message, -1, 1, 0, reason, "read_file", count, list(calls))


def text(*turns: Turn, policy: Policy | None = None, of: Nudge | None = None, tools: tuple[str, ...] = ("read_file",)) -> str:
    asked = request(*(turns or (user("go"), called("read_file", SECRET_PATH, "a line"))), tools=tools)
    return nudge_text(of or nudge(), asked, read(asked, PRINTS), policy or Policy())


def finding(reason: Reason = Reason.REPEATED_CALL, count: int = 5, calls: int = 1) -> Finding:
    return Finding(reason, "read_file", count, 3, 5, frozenset(range(calls)))


def test_a_nudge_says_what_was_called_how_often_and_what_came_back() -> None:
    """And that it is time to wrap up, and that "I cannot" is an answer."""
    said = text()
    assert said.startswith("[lastcall] read_file has now been called 3 times")
    for part in ('The last result began: "a line".', "likely all there is", "different step", "give your answer", "cannot be done"):
        assert part in said


@pytest.mark.parametrize("reason", CALL_LOOPS)
def test_a_nudge_never_holds_the_arguments(reason: Reason) -> None:
    """Whatever the loop."""
    said = text(of=nudge(reason=reason, calls=(LOOP, LOOP + 1)))
    assert said.startswith("[lastcall] ")
    assert "secret" not in said and "read_file" in said


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.CYCLE, "The same 2 tool calls, read_file among them, have now gone round 3 times"),
        (Reason.PARALLEL_REPEAT, "One message held 3 identical calls of read_file"),
        (Reason.SCATTERED_CALL, "read_file has now been called 3 times in the same way and returned the same each time"),
        (Reason.UNKNOWN_TOOL, "read_file is not among the tools"),
        (Reason.REPEATED_ERROR, "read_file has now failed 3 times with the same error"),
        (Reason.TOOL_FAILURES, "The last 3 steps with tool calls have all failed"),
        (Reason.REPEATED_OUTPUT, "read_file has now given the same output 3 times"),
        (Reason.POLL, "read_file has now been called 3 times in the same way."),
    ],
)
def test_a_nudge_names_the_shape_of_the_loop(reason: Reason, words: str) -> None:
    """Rounds are no repeats."""
    assert words in text(of=nudge(reason=reason, calls=(LOOP, LOOP + 1)))


@pytest.mark.parametrize(
    ("result", "quoted"),
    [
        ("one\ntwo\nthree", "one"),
        ("\n\n   first words  \nrest", "first words"),
        ("x" * 160, "x" * 160),
        ("x" * 161, "x" * 160 + "…"),
        ("{count} {0} %s", "{count} {0} %s"),
        ([{"type": "text", "text": "a part"}, {"type": "text", "text": "b"}], "a part"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "text", "text": "seen"}], "seen"),
        ("Command: cat secret.txt\nDirectory: (root)\nOutput: one  \ntwo\nError: (none)\nExit Code: 0\nProcess Group PGID: 42", "one"),
        ("Chunk ID: a1\nWall time: 1.0 seconds\nProcess exited with code 0\nOutput:\none\ntwo", "one"),
        ("\ud800 half a pair", None),
    ],
)
def test_the_first_line_of_the_result_is_quoted_and_cut(result: Any, quoted: str | None) -> None:
    """A long line is cut; what cannot be decoded is shown as it stands."""
    said = text(user("go"), called("read_file", SECRET_PATH, result))
    assert f'The last result began: "{quoted}".' in said if quoted else "half a pair" in said


@pytest.mark.parametrize("result", ["", "   \n  ", [], [{"type": "text", "text": None}], [{"type": "image_url"}, 5, None]])
def test_a_result_without_text_is_not_quoted(result: Any) -> None:
    """There is nothing to say about it."""
    assert "The last result" not in text(user("go"), called("read_file", SECRET_PATH, result))


def test_the_quoted_result_is_the_loops_own_and_from_before_the_nudge() -> None:
    """So that the text is the same in every later request."""
    turns: list[Turn] = [
        user("go"),
        together(called("read_file", SECRET_PATH, "first"), called("bash", {"c": "ls"}, "other")),
        called("bash", {"c": "ls"}, "other"),
        called("read_file", SECRET_PATH, "later"),
    ]
    assert 'began: "first"' in text(*turns, of=nudge(message=1))
    assert 'began: "later"' in text(*turns, of=nudge(message=2))
    assert "began" not in text(*turns, of=nudge(message=2, calls=(LOOP + 1,)))


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (Reason.REPEATED_ERROR, "Change what the error complains of"),
        (Reason.TOOL_FAILURES, "Find out why"),
        (Reason.REPEATED_OUTPUT, "Take one step of another kind"),
        (Reason.POLL, "make one call that waits longer"),
        (Reason.UNKNOWN_TOOL, "The tools are: read_file. Use one of these"),
    ],
)
def test_a_nudge_names_a_step_that_fits_the_loop(reason: Reason, step: str) -> None:
    """And that an answer is the other way on."""
    said = text(of=nudge(reason=reason))
    assert step in said
    assert "otherwise give your answer" in said


def test_a_long_list_of_tools_is_cut() -> None:
    """As are long names."""
    said = text(of=nudge(reason=Reason.UNKNOWN_TOOL), tools=("x" * 99, *[f"tool_{number}" for number in range(30)]))
    assert f"The tools are: {'x' * 64}, tool_0," in said
    assert "tool_10, …. Use" in said
    assert "tool_11" not in said


def test_a_nudge_at_a_users_text_quotes_no_result_ever() -> None:
    """There was none when it was given; a history that carries one later must not change its words."""
    assert "began" not in text(of=nudge(message=-1))


def test_the_first_finish_tool_on_offer_is_named() -> None:
    """In the order of the policy."""
    said = text(tools=("read_file", "submit", "attempt_completion"))
    assert "otherwise call attempt_completion with what you have" in said
    assert finish_tool(request(user("x"), tools=("read_file",)), Policy()) is None


def test_an_own_text_replaces_the_built_in_one() -> None:
    """Its names are filled in, and the mark stands before it."""
    policy = Policy(nudge=NudgeRule(text="{tool}/{count}/{result}/{finish_tool}/{reason} {{as is}}"))
    assert text(policy=policy) == "[lastcall] read_file/3/a line//repeated_call {as is}"
    assert text(policy=policy, tools=("finish",)) == "[lastcall] read_file/3/a line/finish/repeated_call {as is}"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding(), "read_file was asked for 5 times in the same way without anything new"),
        (finding(Reason.CYCLE, calls=3), "the same 3 tool calls went round 5 times without anything new"),
        (finding(Reason.PARALLEL_REPEAT, 16), "one message repeated the same call of read_file 16 times"),
        (finding(Reason.REPEATED_ERROR, 8), "read_file was asked for 8 times and failed with the same error each time"),
        (finding(Reason.OPERATOR), "read_file was asked for 5 times in the same way without anything new"),
        (Finding(Reason.REPEATED_CALL, "sub-agents", 3, None, 3, frozenset()), "sub-agents of this session were stopped 3 times"),
    ],
)
def test_why_a_run_was_stopped(found: Finding, words: str) -> None:
    """One clause for each shape."""
    assert why(found) == words


def budget(unit: str, limit: float, *, scope: str = "session", per: str = "", spent: float = 0) -> Allowance:
    return Allowance(REASONS[unit], unit, limit, spent, scope, per)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (budget("steps", 50), "this session's budget of 50 steps is used up"),
        (budget("steps", 1), "this session's budget of 1 step is used up"),
        (budget("steps", 0), "this session's budget of 0 steps is used up"),
        (budget("steps", 500), "this session's budget of steps is used up"),
        (budget("steps", 50, scope="team", per="day"), "the team's budget of 50 steps a day is used up"),
        (budget("tokens", 5_000_000), "too little is left of this session's budget of 5,000,000 for model usage"),
        (budget("tokens", 500_000), "too little is left of this session's budget for model usage"),
        (budget("input", 9_000, scope="parent"), "too little is left of the parent session's budget of 9,000 for model usage"),
        (budget("cost", 12.5, scope="team", per="month"), "too little is left of the team's budget of $12.5 a month for model usage"),
        (budget("deadline", 90.0), "the time of 90 seconds that this session had is over"),
        (budget("deadline", 1.5, scope="parent"), "the time that the parent session had is over"),
        (budget("deadline", 429.0), "the time that this session had is over"),
        (budget("calls", 4, scope="team"), "the team's limit of 4 requests at once is reached"),
        (Allowance(Reason.OPERATOR, "paused", 0, 0), "an operator paused this session"),
        (Allowance(Reason.OPERATOR, "stopped", 0, 0, "team"), "an operator stopped the team"),
        (budget("sessions", 500, scope="team"), "the team's limit of sessions at once is reached"),
    ],
)
def test_why_a_budget_ended_it(allowed: Allowance, words: str) -> None:
    """The limit is named unless a client could take it for a status."""
    assert why_budget(allowed) == words


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (budget("steps", 50), "Start a new session to go on, or have the limit raised."),
        (budget("steps", 50, scope="parent"), "Have the limit raised to go on."),
        (budget("calls", 0, scope="team"), "Have the limit raised to go on."),
        (
            Allowance(Reason.TEAM_BUDGET, "cost", 5, 5, "team", "day", 1_700_006_400.0),
            "It is renewed at 2023-11-15 00:00 UTC, or have the limit raised.",
        ),
    ],
)
def test_a_used_up_budget_says_what_can_be_done(allowed: Allowance, words: str) -> None:
    """By whom it can be mended, and when it mends itself."""
    assert stopped_message("c", allowed.reason, allowed) == f"Stopped by Lastcall: c. {words}"


def test_too_many_at_once_stops_nobody() -> None:
    """It passes."""
    allowed = budget("calls", 4, scope="team")
    assert stopped_message("c", allowed.reason, allowed) == "Held back by Lastcall: c. Try again when others have ended."


def test_a_notice_of_a_budget_has_a_mark_of_its_own() -> None:
    """And says how much of what is used."""
    allowed = budget("cost", 5, scope="team", per="day", spent=4.2)
    notice = Nudge(0, -1, 1, 0, Reason.TEAM_BUDGET, "cost", 0, [], 0, allowed)
    said = text(of=notice, policy=Policy(nudge=NudgeRule(text="own words")))
    assert said.startswith("[lastcall budget] 84 % of the team's budget of $5 a day is used.")
    assert said.endswith("a final answer.")
    assert text(of=notice, tools=("finish",)).endswith("calling finish.")


@pytest.mark.parametrize("number", [3, 5, 429, 500, 502, 503, 504, 529, 1_429, 50_000, 500_000, 2_000_000])
def test_no_error_text_reads_like_something_to_retry_or_to_compact(number: int) -> None:
    """Clients match words and digits of an error's message."""
    causes = [why(finding(reason, number)) for reason in CALL_LOOPS]
    for cause in causes:
        assert RETRIED.search(stopped_message(cause, Reason.CYCLE)) is None
    for unit in ("steps", "tokens", "cost", "deadline", "calls"):
        allowed = budget(unit, number)
        cause = why_budget(allowed)
        assert RETRIED.search(stopped_message(cause, allowed.reason, allowed)) is None
        assert RETRIED.search(local_message(cause, allowed.reason, allowed)) is None


def test_a_stop_says_how_to_go_on() -> None:
    """A new message ends a stop; a spent budget stays spent."""
    assert stopped_message("c", Reason.CYCLE) == "Stopped by Lastcall: c. Send a new message to go on."
    assert local_message("c", Reason.CYCLE).startswith("[lastcall stop] Lastcall stopped this run: c.\n")
    assert local_message("c", Reason.CYCLE).endswith(" Send a new message to go on.")
    assert local_message("c", Reason.STEP_BUDGET, budget("steps", 5)).endswith(" Start a new session to go on, or have the limit raised.")
    assert stopped_message("c", Reason.OPERATOR).endswith(" An operator can let it go on.")


def test_the_instruction_to_conclude_gets_firmer() -> None:
    """Up to the last wording, however many tries there are."""
    tries = [wrap_up_instruction("c", attempt) for attempt in range(6)]
    assert all(said.startswith("[lastcall stop] This run ends here: c. ") for said in tries)
    assert len(set(tries[:4])) == 4
    assert tries[3] == tries[4] == tries[5]


def test_paragraphs_are_joined_without_the_empty_ones() -> None:
    """One blank line apart."""
    assert joined(["", "a", "", stop_line("c")]) == "a\n\n[lastcall stop] Lastcall stopped this run: c."


def test_a_request_without_tools_names_none() -> None:
    """The text still stands."""
    bare: Request = request(user("x"), tools=())
    assert finish_tool(bare, Policy()) is None


TEXT_LOOPS = (Reason.REPEATED_TEXT, Reason.EMPTY_OUTPUT, Reason.TRUNCATED_OUTPUT, Reason.TOOL_MARKUP)


@pytest.mark.parametrize("reason", TEXT_LOOPS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_nudge_about_texts_names_what_was_wrong_and_a_next_step(reason: Reason, count: int) -> None:
    """Short, and an honest "I cannot" is welcome; nothing of a tool's result is quoted."""
    said = text(of=nudge(-1, reason=reason, count=count, calls=(9,)))
    assert said.startswith("[lastcall] The last ")
    assert said.endswith("If the task cannot be done, saying so and why is a good answer.")
    assert "a line" not in said
    assert len(said) < 420
    assert (str(count) in said) == (count > 1 or reason is Reason.REPEATED_TEXT)


def test_a_nudge_about_texts_names_the_finish_tool() -> None:
    """Where the request offers one."""
    for reason in (Reason.REPEATED_TEXT, Reason.EMPTY_OUTPUT, Reason.TOOL_MARKUP):
        assert "call submit" in text(of=nudge(-1, reason=reason), tools=("submit",))


def test_a_nudge_about_a_cut_answer_says_what_was_lost() -> None:
    """The call, or nothing new."""
    assert "the call of read_file in it is incomplete" in text(of=nudge(-1, reason=Reason.TRUNCATED_OUTPUT, count=1))
    of = Nudge(-1, -1, 1, 0, Reason.TRUNCATED_OUTPUT, "", 2, [9])
    assert "it said the same as before" in text(of=of)


@pytest.mark.parametrize("reason", TEXT_LOOPS)
def test_a_stop_for_texts_says_what_happened(reason: Reason) -> None:
    """In one clause that no client takes for a reason to ask again."""
    said = stop_line(why(Finding(reason, "", 4, 1, 4, frozenset({9}))))
    assert "4 times" in said
    assert not RETRIED.search(said)
