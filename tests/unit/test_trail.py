"""What a request's history says: who called what, what came back, who spoke."""

import json
from typing import Any

import msgspec
import pytest

from proxy.dialects import DIALECTS
from proxy.fingerprint import Fingerprints
from proxy.models import Item, Request, Role, ToolCall
from proxy.trail import (
    Entry,
    History,
    Step,
    Trail,
    answer_identity,
    asks_summary,
    from_person,
    head_of,
    is_side,
    is_stub,
    is_void,
    read,
)
from tests.transcripts import NO_ID, Turn, answered, called, request, said, system, together, user

PRINTS = Fingerprints(b"s" * 32, loose=True)


def history(*turns: Turn, **rest: Any) -> History:
    return read(request(*turns, **rest), PRINTS)


def results(*turns: Turn) -> list[list[str | None]]:
    """The results of the calls of each message, None where none has come."""
    return [[json.loads(call.content) if call.content else None for call in message.calls] for message in history(*turns).messages]


# ---- calls and results


def test_an_empty_history() -> None:
    """Nothing said, nothing called."""
    assert read(msgspec.structs.replace(request(), items=()), PRINTS).messages.answers == []
    empty = history(system=None)
    assert (empty.messages.answers, empty.users, empty.seed) == ([], (), 0)


def test_a_result_inside_an_answer_is_no_place_for_more() -> None:
    """What the provider ran itself has a result; text is only ever added to what the client brings."""
    ran = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}}
    showed = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {"stdout": "1"}}
    turns = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [ran, showed, {"type": "text", "text": "It is 1."}]}]
    messages = json.dumps({"model": "m", "messages": [*turns, turns[0]]}).encode()
    run = {"type": "mcp_call", "server_label": "w", "name": "s", "arguments": "{}", "output": "1"}
    items = json.dumps({"model": "m", "input": [turns[0], run, {"role": "assistant", "content": "It is 1."}, turns[0]]}).encode()

    for path, body in (("/messages", messages), ("/responses", items)):
        told = read(DIALECTS[path].parse(body), PRINTS)
        assert [(bool(message.calls and message.calls[0].content), message.last_item) for message in told.messages] == [
            (True, -1),
            (False, -1),
        ]
        assert told.users[-1].item == 4


def test_each_call_has_its_result() -> None:
    """Turn by turn, in parallel too; an unanswered call has none."""
    told = history(
        user("go"), called("a", result="1"), together(called("b", result="2"), called("c", result="3")), called("d", result=None)
    )
    assert [[(call.name, call.content, call.item) for call in message.calls] for message in told.messages] == [
        [("a", b'"1"', 3)],
        [("b", b'"2"', 5), ("c", b'"3"', 6)],
        [("d", b"", -1)],
    ]
    assert [(message.item, message.last_item) for message in told.messages] == [(2, 3), (4, 6), (7, -1)]


def test_messages_are_a_sequence() -> None:
    """Read one at a time, by place from either end, or several at once."""
    messages = history(user("go"), called("a"), said("b"), called("c")).messages
    assert [message.item for message in messages[:2]] == [2, 4]
    assert messages[-1] == messages[2] == list(messages)[2]
    assert len(messages) == 3
    with pytest.raises(IndexError):
        messages[3]


def test_results_in_another_order_find_their_calls() -> None:
    """By id."""
    calls = together(called("a", result=None, id="x"), called("b", result=None, id="y"))
    assert results(calls, answered("for y", "y"), answered("for x", "x")) == [["for x", "for y"]]


def test_an_id_that_comes_again_means_the_newest_call() -> None:
    """Some servers number calls from zero in every turn."""
    assert results(called(result="first", id="f:0"), called(result="second", id="f:0")) == [["first"], ["second"]]


def test_equal_ids_in_one_message_are_answered_in_order() -> None:
    """The first result belongs to the first call."""
    assert results(together(called(result="1", id="x"), called(result="2", id="x"))) == [["1", "2"]]


@pytest.mark.parametrize("call_ids", [[NO_ID, NO_ID], ["x", "y"], ["x", NO_ID], [NO_ID, "y"]])
@pytest.mark.parametrize("result_ids", [[None, None], ["x", "y"], ["x", None], [None, "y"]])
def test_missing_ids_leave_the_order(call_ids: list[str], result_ids: list[str | None]) -> None:
    """Ids may be null on either side: then results come in the order of the calls."""
    calls = together(*(called(result=None, id=id) for id in call_ids))
    assert results(calls, *(answered(str(place), id) for place, id in enumerate(result_ids))) == [["0", "1"]]


@pytest.mark.parametrize("id", ["x", "y", None])
def test_a_result_too_many_is_nobodys(id: str | None) -> None:
    """A second one for a call, one for no call, one for a call of an earlier turn; a nudge may still be put there."""
    told = history(called(result="old", id="y"), called(result="1", id="x"), answered("again", id))
    assert [[call.content for call in message.calls] for message in told.messages] == [[b'"old"'], [b'"1"']]
    assert told.messages[-1].last_item == len(request(called(), called(), answered("", None)).items) - 1
    assert results(said("no call"), answered("1", "x")) == [[]]


def test_an_answered_call_does_not_take_the_next_ones_result() -> None:
    """Once by order, then by id: each result goes to a call that still waits."""
    calls = together(called(result=None, id="x"), called(result=None, id="x"))
    assert results(calls, answered("1", None), answered("2", "x")) == [["1", "2"]]


def test_a_result_without_content_is_a_result() -> None:
    """The call has been answered, with nothing."""
    items = (
        Item(Role.ASSISTANT, calls=(ToolCall("x", "t", "{}"), ToolCall("y", "t", "{}"))),
        Item(Role.TOOL, b"", call_id="y", failed=True),
    )
    first, second = read(msgspec.structs.replace(request(), items=items), PRINTS).messages[0].calls
    assert (first.content, first.failed) == (b"", False)
    assert (second.content, second.failed, second.item) == (b'""', True, 1)


def test_ten_thousand_parallel_calls_are_matched_one_by_one() -> None:
    """In any order of the results, each to its own: this would not return in time if all were compared with all."""
    count = 10_000
    calls = together(*(called("t", {"n": number}, result=None, id=f"c{number}") for number in range(count)))
    backwards = [answered(str(number), f"c{number}") for number in reversed(range(count))]
    assert results(calls, *backwards) == [[str(number) for number in range(count)]]


# ---- who spoke


def test_user_texts_and_what_they_follow() -> None:
    """Where each stands, how many answers came before, and whether the nearest made no call."""
    told = history(user("go"), called("a"), user("reminder"), said("done"), user("next"), user("and"), said(None), user("?"))
    assert [(text.before, text.follows_answer) for text in told.users] == [(0, False), (1, False), (2, True), (2, True), (3, True)]


def test_the_seed_is_the_first_user_text() -> None:
    """However it is written, whatever follows."""
    seed = history(user("go")).seed
    assert seed == history(user(" go\n"), called("a"), user("x")).seed == history(user([{"type": "text", "text": "go"}]), system=None).seed
    assert seed != history(user("stop")).seed
    assert seed != 0


def test_an_answer_is_known_by_its_calls_or_its_text() -> None:
    """Ids, names and arguments; text beside calls may be dropped by clients and does not count."""

    def identity(turn: Turn) -> int:
        return history(turn).messages[0].answer

    assert identity(called("a", {"x": 1}, id="i")) == identity(called("a", {"x": 1.0}, id="i", text="thinking", result="other"))
    assert identity(said("done")) == identity(said(" done "))
    different: list[Turn] = [
        said("done"),
        said("undone"),
        said(None),
        called("a", {"x": 1}, id="i"),
        called("a", {"x": 1}, id="j"),
        called("a", {"x": 1}, id=NO_ID),
        called("a", {"x": 2}, id="i"),
        called("b", {"x": 1}, id="i"),
        together(called("a", {"x": 1}, id="i"), called("a", {"x": 1}, id="i")),
    ]
    assert len({identity(turn) for turn in different}) == len(different)


def test_an_answer_given_is_the_answer_that_comes_back() -> None:
    """The identity computed from an upstream's answer is the one read from the next history."""
    call = ToolCall("i", "a", '{"x":1}')
    told = history(called("a", {"x": 1}, id="i")).messages[0]
    assert answer_identity("text", (call,), PRINTS) == told.answer
    assert answer_identity("done", (), PRINTS) == history(said("done")).messages[0].answer


# ---- the whole


def test_a_request_sent_again_is_the_same() -> None:
    """Whatever the clock in its system text says."""
    turns: list[Turn] = [user("go"), called("a"), user("reminder")]
    assert history(*turns).same == history(*turns, system="at 12:00:01", stream=True).same


@pytest.mark.parametrize(
    "turns",
    [
        [user("go"), called("a", result="changed"), user("reminder")],
        [user("go"), called("a"), user("other")],
        [user("go"), called("a")],
        [user("go"), called("a"), user("reminder"), said("x")],
        [user("no"), called("a"), user("reminder")],
        [user("go"), called("b"), user("reminder")],
    ],
)
def test_a_request_that_grew_is_another(turns: list[Turn]) -> None:
    """One more message, a result or a text is something new."""
    assert history(*turns).same != history(user("go"), called("a"), user("reminder")).same


def test_what_frames_a_conversation() -> None:
    """System text, but for clock times in it, and the tools."""

    def head(text: str, *tools: str) -> int:
        return head_of(request(system=text, tools=tools), PRINTS)

    assert head("Be kind. It is 2026-01-05 12:30:01.", "a") == head("Be kind. It is 2026-01-05 12:30:02.", "a")
    assert (
        len({head("x", "a"), head("y", "a"), head("x", "b"), head("x"), head_of(request(system("y"), system="x", tools=("a",)), PRINTS)})
        == 5
    )


# ---- the newest message


A, B = Entry(1, "a", 10), Entry(2, "b", 20)


@pytest.mark.parametrize(
    ("trail", "newest"),
    [
        (Trail(), ()),
        (Trail(latest=(B,)), (B,)),
        (Trail((Step((A,)), Step((B,))), latest=(A,)), (B,)),
        (Trail((Step((A,)), Step(())), latest=(A,)), ()),
        (Trail((Step((A,)), Step((), after_compaction=True))), (A,)),
        (Trail((Step((), after_compaction=True),), latest=(B,)), (B,)),
        (Trail((Step((A,)), Step((B,), after_compaction=True))), (B,)),
    ],
)
def test_the_newest_message_of_a_trail(trail: Trail, newest: tuple[Entry, ...]) -> None:
    """The last one, also when it called nothing; before it, what a compaction took away, or what was delivered last."""
    assert trail.newest == newest


# ---- texts


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "continue",
        "Continue.",
        "please continue",
        "ok, go on!",
        "Yes, go ahead",
        "proceed …",
        "keep going please",
        "resume",
        "[Your previous response had no visible output. Continue.]",
        "Output token limit hit. Resume directly.",
        "Please continue from where you left off.",
        "Please continue working on the task on whatever approach you think is suitable.",
        "Continue the conversation from where we left off without asking.",
        "This session is being continued from a previous conversation that ran out of context.",
        "[ERROR] You did not use a tool in your previous response!",
        "You did not call any tool.",
        "Please always provide EXACTLY ONE action in triple backticks.",
        "Format error: expected one action.",
        "[Tool use interrupted]",
        "[Request interrupted by user for tool use]",
        "The previous session was interrupted because it got too long.",
        "[lastcall stop] Lastcall stopped this run.",
        "<system-reminder>Your todo list is empty.</system-reminder>",
        "<environment_details>\n# Time\n12:30\n</environment_details>\n\ncontinue",
        "<environment_context>" + "x" * 100_000 + "</environment_context>",
        "<system-reminder>a</system-reminder> <system-reminder>b</system-reminder>",
    ],
)
def test_what_no_person_wrote(text: str) -> None:
    """Empty texts, a bare "continue", and what clients write by themselves."""
    assert not from_person(text)


@pytest.mark.parametrize(
    "text",
    [
        "fix it",
        "continue with the second file",
        "go on holiday",
        "Why did you not use a tool?",
        "please run the tests again",
        "<system-reminder>x</system-reminder>\nnow do b",
        "<system-reminder>never closed",
        "<system-reminder>x</environment_details>",
        "no",
    ],
)
def test_what_a_person_wrote(text: str) -> None:
    """Anything else, also beside a reminder."""
    assert from_person(text)


@pytest.mark.parametrize("piece", ["<system-reminder>", "<system-reminder><environment_details>", "please ", "continue\n", "<"])
def test_a_hostile_text_is_read_to_its_end(piece: str) -> None:
    """Tags without end cost no more than their length: this would not return in time if they did."""
    from_person(piece * (2_000_000 // len(piece)))


@pytest.mark.parametrize(
    "text",
    [
        "Please summarize our conversation so far.",
        "Your task is to create a detailed summary of the conversation.",
        "Write a handoff for the next session.",
        "The context is full. Produce a compaction.",
        "Compact the history now.",
        "x" * 10_000 + "\nSummarise the work done.",
    ],
)
def test_a_request_for_a_summary(text: str) -> None:
    """As the last thing said, by word and object."""
    assert asks_summary(request(user("go"), called("a"), user(text)))
    assert not asks_summary(request(user(text), called("a")))


@pytest.mark.parametrize(
    ("asked", "side"),
    [
        (request(user("Please generate a short title for this conversation."), tools=()), True),
        (request(user("fix the bug"), system="You are a title generator. You output ONLY a thread title.", tools=()), True),
        (request(user("Summarize the conversation so far."), tools=("ls",)), True),
        (request(user("Generate a title for the page."), tools=("edit",)), False),
        (request(user("What is the title of this book?"), tools=()), False),
        (request(user("fix the bug"), tools=()), False),
        (request(system=None, tools=()), False),
    ],
)
def test_what_is_no_turn_of_the_conversation(asked: Request, side: bool) -> None:
    """A title, which takes no tools, and a summary, for which clients often leave them in."""
    assert is_side(asked) is side


def test_other_requests_ask_for_none() -> None:
    """No text, another text, or no request at all."""
    assert not asks_summary(request(system=None))
    assert not asks_summary(request(user("add a summary column to the table")))
    assert not asks_summary(request(user("go"), called("a", result="summary of the session")))


# ---- results that say nothing


@pytest.mark.parametrize(
    "content",
    [
        "[Old tool result content cleared]",
        "[output pruned: 12345 characters]",
        "<result omitted to save context>",
        "(elided)",
        [{"type": "text", "text": "[Old tool result content cleared]"}],
        ["[truncated]"],
    ],
)
def test_what_clients_leave_of_an_old_result(content: Any) -> None:
    """A short remark in brackets, as a string or as parts."""
    assert is_stub(json.dumps(content).encode())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "cleared",
        "[1, 2, 3]",
        "The file was removed.",
        "[" + "x" * 250 + " cleared]",
        "[" + "x" * 400 + " cleared]",
        {"removed": 1},
        5,
        [],
        [{"removed": 1}],
    ],
)
def test_what_is_no_stub(content: Any) -> None:
    """Results that speak for themselves."""
    assert not is_stub(json.dumps(content).encode())


def test_a_result_written_by_lastcall() -> None:
    """It carries a stop line."""
    assert is_void(b'"[lastcall stop] not executed"')
    assert is_void(b'[{"type":"text","text":"x\\n[lastcall stop] y"}]')
    assert not is_void(b'"[lastcall] a nudge"')


# ---- results that report a failure
