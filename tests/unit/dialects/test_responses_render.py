"""What Lastcall itself writes in Responses, as bytes; `test_responses.py` shows that clients accept it."""

import json
from typing import Any

from proxy.dialects.responses_render import Part, Shown, Standing, completion, stream_error, stream_tail
from proxy.dialects.responses_stream import ResponsesReader
from proxy.dialects.sse import Splitter, data_of
from proxy.models import Action, Answer, Begun, Choice, Head, Notice, Reason, ToolCall, Usage

HEAD = Head("resp_1", "m", 5)
NOTICE = Notice(action=Action.STOP, reason=Reason.STEP_BUDGET, message="over", limit=50)
CALLS = (ToolCall("a", "ls", "{}"), ToolCall("b", "run", "x", True))


def tail(text: str = "bye", calls: tuple[ToolCall, ...] = (), *, started: bool = False, standing: Standing | None = None) -> list[Any]:
    written = stream_tail(Begun(HEAD, started=started, sent=standing), text, calls, Usage(10, 4), NOTICE)
    return [json.loads(data_of(event) or b"") for event in Splitter().feed(written)]


def test_tail_reads_back_as_what_it_was_given() -> None:
    """Text, then calls."""
    reader = ResponsesReader()
    for event in Splitter().feed(stream_tail(Begun(HEAD), "bye", CALLS, Usage(10, 4), None)):
        reader.feed(event)

    answer = reader.answer()
    named = answer.choices[0].items
    assert answer == Answer((Choice("bye", CALLS, "completed", items=named),), Usage(10, 4), "resp_1", "m", 5, True)
    assert [id.partition("_lastcall_")[0] for id in named] == ["msg", "fc", "ctc"]


def test_every_item_is_written_alike_in_all_its_places() -> None:
    """When it is done and in the last event; what was announced is the same item."""
    events = tail(calls=CALLS)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]

    assert events[-1]["response"]["output"] == done
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert len({item["id"] for item in done}) == 3
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_the_last_event_and_its_response_carry_the_notice() -> None:
    """A client that looks at only one of them sees it."""
    *others, last = tail()

    assert last["lastcall"] == last["response"]["lastcall"]
    assert not any("lastcall" in event or "lastcall" in event.get("response", {}) for event in others)


def test_what_is_open_is_closed_first() -> None:
    """Parts, then their item; what follows takes the next place. The response stays the one it was."""
    raw = b'{"type":"message","id":"m1","content":[]}'
    shown = (Shown(0, b'{"type":"reasoning"}'), Shown(1, raw, True, (Part(0, "text", "a"), Part(1, "refusal", "b"))))
    events = tail(started=True, standing=Standing(7, b'{"id":"resp_1","x_vendor":1,"status":"in_progress"}', shown, True))

    assert [event["type"].removeprefix("response.") for event in events[:5]] == [
        "output_text.done",
        "content_part.done",
        "refusal.done",
        "content_part.done",
        "output_item.done",
    ]
    assert [event["sequence_number"] for event in events] == list(range(7, 7 + len(events)))
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.added"] == [2]
    response = events[-1]["response"]
    assert (response["x_vendor"], response["status"], response["usage"]["total_tokens"]) == (1, "completed", 14)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "message"]


def test_a_failure_before_any_event_begins_the_response_first() -> None:
    """Comments may have kept the stream alive until then."""
    first, last = [json.loads(data_of(event) or b"") for event in Splitter().feed(stream_error("c", "why", NOTICE, Begun(HEAD)))]

    assert [event["type"] for event in (first, last)] == ["response.created", "response.failed"]
    assert [event["sequence_number"] for event in (first, last)] == [0, 1]
    assert {event["response"]["id"] for event in (first, last)} == {"resp_1"}


def test_text_that_goes_on_after_other_text_is_a_paragraph_of_its_own() -> None:
    """A part joins the one before it with a line end, so one of two goes."""
    (message,) = tail("\n\nbye", started=True, standing=Standing(spoke=True))[-1]["response"]["output"]

    assert message["content"][0]["text"] == "\nbye"


def test_minted_ids_differ_between_answers_and_are_the_same_each_time() -> None:
    """Rendering again gives the same bytes; another answer never repeats an id."""
    calls = (ToolCall(None, "ls", "{}"),)
    first, again, other = (json.loads(completion(Head(id, "m", 5), "", None, NOTICE, calls)) for id in ("a", "a", "b"))

    assert first == again
    assert first["output"][0]["call_id"].startswith("call_")
    assert {first["output"][0][key] for key in ("id", "call_id")} & {other["output"][0][key] for key in ("id", "call_id")} == set()
