"""Following Responses streams, and what is left of a held one."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from proxy.dialects.responses_render import Standing
from proxy.dialects.responses_stream import ResponsesReader, last_response
from proxy.dialects.sse import Splitter, data_of
from proxy.models import Action, Head, Notice, Reason, ToolCall, Usage

HEAD = Head("resp_1", "m", 1)
NOTICE = Notice(action=Action.STOP, reason=Reason.CYCLE, message="why")
USAGE = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": name, "arguments": "{}", "status": "completed"}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def stream(*items: dict[str, Any], end: str = "response.completed", numbered: bool = True) -> list[bytes]:
    """A stream of whole items: its beginning, three events an item, its end."""
    response = {"id": "resp_1", "object": "response", "model": "m", "created_at": 1, "x_vendor": [1.0], "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
    for index, item in enumerate(items):
        place = {"output_index": index}
        events.append({"type": "response.output_item.added", **place, "item": item | {"status": "in_progress"}})
        events.append({"type": "response.x", **place, "x_event": 1})
        events.append({"type": "response.output_item.done", **place, "item": item})
    events.append({"type": end, "response": response | {"output": list(items), "usage": USAGE, "status": end.rpartition(".")[2]}})
    return [event(one.pop("type"), **({"sequence_number": at} if numbered else {}), **one) for at, one in enumerate(events)]


def followed(events: Iterable[bytes]) -> ResponsesReader:
    reader = ResponsesReader()
    for one in events:
        reader.feed(one)
    return reader


def read(written: bytes) -> list[Any]:
    return [json.loads(data_of(one) or b"") for one in Splitter().feed(written)]


def rest(events: list[bytes], first_held: int, *dropped: int) -> list[Any]:
    """What goes out in place of the events from `first_held` on."""
    reader = followed(events[: first_held + 1])
    sent = reader.sent()
    for one in events[first_held + 1 :]:
        reader.feed(one)
    return read(reader.rest(HEAD, events[first_held:], dropped, NOTICE, sent))


def test_nothing_is_held_before_a_call() -> None:
    """Nor is a comment, ever; the end is."""
    reader = ResponsesReader()
    held = []
    for one in [*stream(REASONING, said("a"), call("ls")), b": ping\n\n", b"data: [DONE]\n\n"]:
        reader.feed(one)
        held.append(reader.holds_call)

    assert held == [False] * 7 + [True] * 4 + [False, True]
    assert followed(stream(said("a"))).holds_call


@pytest.mark.parametrize(
    ("kind", "member", "item"),
    [
        ("function_call_arguments", "arguments", call("ls")),
        ("custom_tool_call_input", "input", {"type": "custom_tool_call", "id": "ctc", "call_id": "ls", "name": "ls", "input": "{}"}),
    ],
)
@pytest.mark.parametrize("verb", ["delta", "done"])
def test_a_call_that_is_not_announced_is_held_from_its_first_argument(kind: str, member: str, item: dict[str, Any], verb: str) -> None:
    """Some servers begin with what it asks for. Left out, it is in no event, nor in the last one."""
    asks = event(f"response.{kind}.{verb}", output_index=0, item_id=item["id"], **{"delta" if verb == "delta" else member: "{}"})
    begun, *_, done, last = stream(item)
    assert not followed([begun]).holds_call
    assert followed([begun, asks]).holds_call
    assert followed([begun, asks, done, last]).begun == {"ls": 1}
    written = rest([begun, asks, done, last], 1, 0)
    assert ([one["type"] for one in written], item["id"] in json.dumps(written)) == (["response.completed"], False)


def test_a_call_without_a_name_is_counted_once_it_has_one() -> None:
    """It is held all the same."""
    reader = followed([event("response.output_item.added", output_index=0, item=call("ls") | {"name": ""})])
    assert (reader.begun, reader.holds_call) == ({}, True)

    reader.feed(event("response.output_item.done", output_index=0, item=call("ls")))
    reader.feed(event("response.output_item.done", output_index=0, item=call("other")))
    assert reader.begun == {"ls": 1}


def test_pieces_count_where_the_item_itself_is_empty() -> None:
    """Some servers never repeat them; parts are put together in their order."""
    place = {"item_id": "msg", "output_index": 0}
    reader = followed(
        [
            event("response.output_item.added", output_index=0, item=said("") | {"content": []}),
            event("response.output_text.delta", **place, content_index=1, delta="b"),
            event("response.output_text.delta", **place, content_index=0, delta="a"),
            event("response.output_text.delta", **place, content_index=0, delta=""),
            event("response.output_text.done", **place, content_index=0, text="never mind"),
            event("response.output_text.done", **place, content_index=2, text="c"),
            event("response.output_text.done", **place, content_index=3, text=""),
            event("response.output_item.done", output_index=0, item=said("") | {"content": []}),
            event("response.output_item.added", output_index=1, item=call("ls") | {"arguments": ""}),
            event("response.function_call_arguments.delta", output_index=1, delta='{"a"'),
            event("response.function_call_arguments.delta", output_index=1, delta=":1}"),
            event("response.function_call_arguments.done", output_index=1, arguments="never mind"),
            event("response.output_item.done", output_index=1, item=call("ls") | {"arguments": ""}),
            event("response.reasoning_text.delta", output_index=2, delta="hm"),
            event("response.reasoning_text.done", output_index=2, text="hm"),
        ]
    )

    (choice,) = reader.answer().choices
    assert choice.text == "a\nb\nc"
    assert choice.calls == (ToolCall("ls", "ls", '{"a":1}'),)
    assert not reader.answer().complete


def test_an_item_whose_keys_are_no_utf8_is_an_empty_one() -> None:
    """Nothing that an upstream sends may raise; what comes after it is read."""
    begun = event("response.output_item.added", output_index=0, item=call("ls")).replace(b'"arguments"', b'"\x80arguments"')
    asked = event("response.function_call_arguments.delta", output_index=0, item_id="fc_ls", delta="{}")
    assert [one.calls for one in followed([begun, asked]).answer().choices] == [()]


def test_an_event_without_a_place_belongs_to_the_latest_item() -> None:
    """One that begins an item begins another when the latest is done."""
    reader = followed(
        [
            event("response.output_item.added", item=said("") | {"id": None, "content": []}),
            event("response.output_text.delta", delta="a"),
            event("response.output_item.done", item=said("a") | {"id": None}),
            event("response.output_item.added", item=call("ls") | {"id": None, "arguments": ""}),
            event("response.function_call_arguments.delta", delta="{}"),
        ]
    )

    assert [(choice.text, choice.calls) for choice in reader.answer().choices] == [("a", (ToolCall("ls", "ls", "{}"),))]


@pytest.mark.parametrize("end", ["response.completed", "response.incomplete", "response.failed"])
def test_every_last_event_ends_the_stream(end: str) -> None:
    """With its usage; a failure is an error."""
    answer = followed(stream(said("a"), end=end)).answer()

    assert (answer.complete, answer.error, answer.usage) == (True, end == "response.failed", Usage(5, 2))
    assert answer.choices[0].finish == end.rpartition(".")[2]


def test_an_end_that_says_nothing_is_one() -> None:
    """What the stream's own events said stands."""
    answer = followed([*stream(said("a"))[:-1], event("response.completed", response=None)]).answer()

    assert (answer.complete, answer.choices[0].text, answer.choices[0].finish) == (True, "a", "completed")


def test_errors_are_seen_wherever_they_stand() -> None:
    """As an event, or as an object without a name."""
    assert followed([event("error", code="x", message="y")]).answer().error
    assert followed([b'data: {"error":{"message":"no"}}\n\n']).answer().error
    assert followed([b"event: error\ndata: {}\n\n"]).answer().error
    assert not followed([event("keepalive")]).answer().error


def test_items_at_the_end_alone_are_taken_from_there() -> None:
    """Once: those that had events of their own are known by place or id."""
    whole = stream(said("a"), call("ls"))
    assert [call.name for call in followed([whole[0], whole[-1]]).answer().choices[0].calls] == ["ls"]

    moved = [whole[0], event("response.output_item.done", output_index=7, item=call("ls")), whole[-1]]
    assert followed(moved).begun == {"ls": 1}
    unended = [*whole[:5], whole[-1]]
    assert followed(unended).answer().choices[0].calls == (ToolCall("ls", "ls", "{}"),)


def test_rest_leaves_out_all_events_of_a_call() -> None:
    """What remains is numbered and placed anew, byte for byte as it was otherwise, and its last event repeats just that."""
    events = stream(said("a"), call("x"), REASONING, call("y"))

    left = rest(events, 4, 0)

    assert [(one["type"], one.get("output_index")) for one in left] == [
        ("response.output_item.added", 1),
        ("response.x", 1),
        ("response.output_item.done", 1),
        ("response.output_item.added", 2),
        ("response.x", 2),
        ("response.output_item.done", 2),
        ("response.completed", None),
    ]
    assert [one["sequence_number"] for one in left] == list(range(4, 11))
    assert [one["x_event"] for one in left if one["type"] == "response.x"] == [1, 1]
    response = left[-1]["response"]
    assert response["output"] == [said("a"), REASONING, call("y")]
    assert (response["x_vendor"], response["usage"]) == ([1.0], USAGE)
    assert response["lastcall"] == left[-1]["lastcall"]


def test_rest_keeps_what_it_cannot_read_and_adds_no_numbers() -> None:
    """Comments, terminators, events of servers that do not count."""
    events = [*stream(call("x"), call("y"), numbered=False), b": ping\n\n", b"data: [DONE]\n\n"]
    reader = followed(events)

    written = reader.rest(HEAD, events, [1], NOTICE, Standing())

    assert b"sequence_number" not in written
    assert written.endswith(b": ping\n\ndata: [DONE]\n\n")
    assert b'"y"' not in written
    assert followed(Splitter().feed(written)).begun == {"x": 1}


def test_rest_of_a_stream_whose_last_event_repeats_nothing() -> None:
    """It goes on repeating nothing."""
    events = [*stream(call("x"), call("y"))[:-1], event("response.completed", response={"id": "resp_1"})]

    left = rest(events, 1, 1)

    assert left[-1]["response"] == {"id": "resp_1", "lastcall": left[-1]["lastcall"]}
    assert {one["item"]["name"] for one in left if "item" in one} == {"x"}


def test_rest_of_a_stream_that_was_cut_is_brought_to_an_end() -> None:
    """What was open is closed, and the last event repeats what is left."""
    events = stream(REASONING, call("x"), call("x"), call("x"))
    left = rest(events[:8], 7, 1)
    assert [(one["type"], one.get("output_index")) for one in left] == [("response.completed", None)]
    assert left[0]["response"]["output"] == [REASONING, call("x")]
    assert left[0]["response"]["x_vendor"] == [1.0]

    open_item = call("y") | {"arguments": "", "status": "in_progress"}
    cut = [*stream(call("x"))[:4], event("response.output_item.added", output_index=1, sequence_number=4, item=open_item)]
    cut.append(event("response.function_call_arguments.delta", output_index=1, sequence_number=5, delta="{}"))
    left = rest(cut, 1, 0)
    assert [(one["type"], one.get("output_index"), one["sequence_number"]) for one in left] == [
        ("response.output_item.added", 0, 1),
        ("response.function_call_arguments.delta", 0, 2),
        ("response.output_item.done", 0, 3),
        ("response.completed", None, 4),
    ]
    assert left[-1]["response"]["output"] == [call("y")]


def test_standing_shows_what_went_out() -> None:
    """Not the event that is withheld."""
    reader = followed(stream(said("a"), call("x"))[:5])

    assert reader.sent().number == 4
    assert [item.index for item in reader.sent().shown] == [0]
    assert [item.index for item in reader.sent(withheld=False).shown] == [0, 1]
    assert reader.sent(withheld=False).number == 5
    assert reader.sent().spoke
    assert ResponsesReader().sent() == Standing()
    unfinished = followed([*stream(REASONING)[:2], *stream(REASONING, call("x"))[4:5]]).sent()
    assert [(item.open, json.loads(item.raw)["id"]) for item in unfinished.shown] == [(True, "rs")]


@pytest.mark.parametrize(
    ("event", "response"),
    [
        (b'event: response.completed\ndata: {"type": "response.completed", "response": {"id": 1 }}\n\n', b'{"id": 1 }'),
        (b'event: response.failed\ndata: {"response": {}}\n\n', b"{}"),
        (b'data: {"type": "response.incomplete"}\n\n', b""),
        (b'event: response.created\ndata: {"type": "response.created", "response": {"note": "response.completed"}}\n\n', b""),
        (b"event: response.completed\ndata: {\n\n", b""),
        (b": response.completed\n\n", b""),
        (b"data: {}\n\n", b""),
    ],
)
def test_the_last_event_of_a_stream_carries_the_response(event: bytes, response: bytes) -> None:
    """To the byte; no other does, whatever it speaks of."""
    assert last_response(event) == response
