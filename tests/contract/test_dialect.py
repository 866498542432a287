"""The contract of `Dialect` and `StreamReader`, run on every dialect in the table.

A dialect brings its samples in `tests/golden/<name>/`: requests (`*.request.json`), whole answers (`*.body.json`) and recorded shapes of
streams (`*.sse`), the latter two with what they say (`*.answer.json`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS, Dialect
from proxy.dialects.sse import Splitter
from proxy.errors import BadRequest
from proxy.models import Action, Answer, Begun, Edits, Head, Insert, Item, Notice, Reason, Request, Role, ToolCall, Usage, text_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HEAD = Head("id-1", "m", 1_767_225_600)
NOTICE = Notice(action=Action.STOP, reason=Reason.CYCLE, message="[lastcall stop] why")
NOTE = "[lastcall] línea “quoted” \U0001f600\n"


def samples(pattern: str) -> list[Any]:
    """Every golden file of that pattern with its dialect."""
    return [
        pytest.param(dialect, path, id=f"{dialect.name}-{path.name.removesuffix(pattern[1:])}")
        for dialect in DIALECTS.values()
        for path in sorted((GOLDEN / dialect.name).glob(pattern))
    ]


def edits_for(request: Request) -> Iterator[Edits]:
    """Each edit alone, and all at once."""
    inserts = tuple(Insert(position, NOTE) for position in range(len(request.items)))
    yield from (Edits(inserts=(insert,)) for insert in inserts)
    yield from (Edits(no_tools=True), Edits(force_tool=request.tools[0]), Edits(ask_usage=True), Edits(max_output=17))
    yield Edits(inserts, no_tools=True, ask_usage=True, max_output=17)


def unknown(value: Any) -> list[Any]:
    """All members whose names begin with `x_`, wherever they stand."""
    if isinstance(value, dict):
        return [entry for key, inner in value.items() for entry in ([(key, inner)] if key.startswith("x_") else unknown(inner))]
    return [entry for inner in value for entry in unknown(inner)] if isinstance(value, list) else []


def without_note(item: Item) -> str:
    assert NOTE in text_of(item.content)
    return text_of(item.content).replace(NOTE, "").strip()


def streamed(dialect: Dialect, chunks: list[bytes]) -> Answer:
    splitter, reader = Splitter(), dialect.reader()
    for event in [event for chunk in chunks for event in splitter.feed(chunk)]:
        reader.feed(event)
    reader.feed(splitter.rest())
    return reader.answer()


def expected(path: Path) -> Answer:
    return msgspec.json.decode(path.with_name(path.name.split(".")[0] + ".answer.json").read_bytes(), type=Answer)


@pytest.mark.parametrize(("dialect", "path"), samples("*.request.json"))
def test_the_service_tier_that_is_asked_for_is_read(dialect: Dialect, path: Path) -> None:
    """ "" without a wish, or with one that is no text."""
    body = json.loads(path.read_bytes())

    tiers = [dialect.parse(json.dumps(body | more).encode()).tier for more in ({}, {"service_tier": "flex"}, {"service_tier": 3})]
    assert tiers == ["", "flex", ""]


@pytest.mark.parametrize("dialect", [pytest.param(dialect, id=dialect.name) for dialect in DIALECTS.values()])
def test_dialect_brings_samples(dialect: Dialect) -> None:
    """Without them nothing below would be tested."""
    assert {suffix for path in (GOLDEN / dialect.name).iterdir() for suffix in [path.suffixes[-1]]} == {".json", ".sse"}
    assert list((GOLDEN / dialect.name).glob("*.request.json"))
    assert list((GOLDEN / dialect.name).glob("*.body.json"))


@pytest.mark.parametrize(("dialect", "path"), samples("*.request.json"))
def test_rewriting_without_edits_returns_the_same_body(dialect: Dialect, path: Path) -> None:
    """Byte-identical, since it is the same object."""
    body = path.read_bytes()

    assert dialect.rewrite(dialect.parse(body), Edits()) is body


def says_more(item: Item) -> bool:
    """Whether there is text beside the note."""
    return bool(text_of(item.content).replace(NOTE, "").strip())


@pytest.mark.parametrize(("dialect", "path"), samples("*.request.json"))
def test_edits_keep_everything_else(dialect: Dialect, path: Path) -> None:
    """Unknown members, roles, calls and tools survive every edit, and what remains is a request.

    Where a dialect puts a note beside tool results, it reads as user text of its own.
    """
    request = dialect.parse(path.read_bytes())

    for edits in edits_for(request):
        edited = dialect.parse(dialect.rewrite(request, edits))
        assert unknown(json.loads(edited.body)) == unknown(json.loads(request.body))
        assert (edited.model, edited.tools, edited.tools_raw, edited.hints) == (
            request.model,
            request.tools,
            request.tools_raw,
            request.hints,
        )
        kept, were = ([item for item in one.items if item.role is not Role.USER or says_more(item)] for one in (edited, request))
        for item, before in zip(kept, were, strict=True):
            assert (item.role, item.calls, item.call_id, item.failed) == (before.role, before.calls, before.call_id, before.failed)
            assert item.content == before.content or without_note(item) == text_of(before.content).strip()
        notes = sum(text_of(item.content).count(NOTE) for item in edited.items)
        promised = [insert for insert in edits.inserts if request.items[insert.item].role is not Role.ASSISTANT]
        assert len(promised) <= notes <= len(edits.inserts)


@pytest.mark.parametrize(("dialect", "path"), samples("*.request.json"))
def test_edits_do_what_they_say(dialect: Dialect, path: Path) -> None:
    """Each is seen when the edited body is read again."""
    request = dialect.parse(path.read_bytes())

    def edited(**members: Any) -> Request:
        return dialect.parse(dialect.rewrite(request, Edits(**members)))

    last = len(request.items) - 1
    assert text_of(edited(inserts=(Insert(last, NOTE),)).items[-1].content).endswith(NOTE)
    assert edited(no_tools=True).tools_off
    assert not edited(no_tools=True, force_tool=request.tools[0]).tools_off
    assert edited(ask_usage=True).wants_usage
    assert edited(max_output=17).max_output == 17


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
def test_recorded_streams_say_what_they_said(dialect: Dialect, path: Path) -> None:
    """The same when fed whole, byte by byte and in odd pieces."""
    stream = path.read_bytes()

    assert streamed(dialect, [stream]) == expected(path)
    for size in (1, 7, 64):
        assert streamed(dialect, [stream[start : start + size] for start in range(0, len(stream), size)]) == expected(path)


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
def test_calls_are_counted_as_they_begin(dialect: Dialect, path: Path) -> None:
    """At the end the count is that of the answer's calls, and everything from the first call on was to be held."""
    reader = dialect.reader()
    for event in Splitter().feed(path.read_bytes()):
        reader.feed(event)
        assert reader.holds_call or not reader.begun or event.startswith(b":")

    names = [call.name for choice in reader.answer().choices for call in choice.calls]
    assert reader.begun == {name: names.count(name) for name in names}


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
def test_hiding_usage_hides_nothing_else(dialect: Dialect, path: Path) -> None:
    """The answer is the same but for its usage."""
    events = Splitter().feed(path.read_bytes())

    kept = streamed(dialect, [dialect.without_usage(event) for event in events])
    assert msgspec.structs.replace(kept, usage=None) == msgspec.structs.replace(expected(path), usage=None)


@pytest.mark.parametrize(("dialect", "path"), samples("*.body.json"))
def test_whole_answers_say_what_they_said(dialect: Dialect, path: Path) -> None:
    """Text, calls, finish reasons, usage and head."""
    assert dialect.read_answer(path.read_bytes()) == expected(path)


@pytest.mark.parametrize(("dialect", "path"), samples("*.body.json"))
def test_pruning_takes_out_those_calls_only(dialect: Dialect, path: Path) -> None:
    """Any one call, or all of them: the others stay in place, and an answer without calls ends as text."""
    body = path.read_bytes()
    calls = dialect.read_answer(body).choices[0].calls

    for position in range(len(calls)):
        kept = dialect.read_answer(dialect.prune(body, [(0, position)], NOTICE))
        assert [call.name for call in kept.choices[0].calls] == [call.name for index, call in enumerate(calls) if index != position]
    none = dialect.prune(body, {(0, position) for position in range(len(calls))}, NOTICE)
    assert dialect.read_answer(none).choices[0].calls == ()
    assert json.loads(none)["lastcall"]["reason"] == "cycle"


@pytest.mark.parametrize("dialect", [pytest.param(dialect, id=dialect.name) for dialect in DIALECTS.values()])
def test_own_answers_read_back(dialect: Dialect) -> None:
    """What Lastcall writes is complete, says the text and carries the notice."""
    whole = dialect.completion(HEAD, "why", Usage(5, 2), NOTICE, 2)
    tail = dialect.stream_tail(Begun(HEAD), "why", (ToolCall("a", "ls", "{}"),), Usage(5, 2), NOTICE)

    for answer in (dialect.read_answer(whole), streamed(dialect, [dialect.keep_alive, tail])):
        assert answer.complete
        assert {choice.text for choice in answer.choices} == {"why"}
        assert (answer.id, answer.model, answer.usage) == ("id-1", "m", Usage(5, 2))
        assert answer.created in (None, HEAD.created)  # not every dialect tells
    assert json.loads(whole)["lastcall"]["message"] == NOTICE.message
    assert b'"lastcall"' in tail
    assert streamed(dialect, [dialect.stream_error("lastcall_cycle", "why", NOTICE)]).error
    assert json.loads(dialect.error(400, "lastcall_cycle", "why", NOTICE))["lastcall"]["reason"] == "cycle"


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
def test_what_each_event_said_adds_up_to_the_text(dialect: Dialect, path: Path) -> None:
    """Of the first choice; text that only the stream's last event holds was said by none."""
    events, reader, said = Splitter().feed(path.read_bytes()), dialect.reader(), ""
    for event in events:
        reader.feed(event)
        said += reader.said
    answer = reader.answer()
    text = answer.choices[0].text if answer.choices else ""
    assert "".join(said.split()) in ("".join(text.split()), "")


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
def test_a_stream_can_be_ended_in_the_place_of_any_of_its_texts(dialect: Dialect, path: Path) -> None:
    """What went out before is kept and nothing of what was withheld; the rest follows, well-formed."""
    events = Splitter().feed(path.read_bytes())
    for withheld in range(len(events)):
        reader, before = dialect.reader(), dialect.reader()
        for event in events[: withheld + 1]:
            reader.feed(event)
        if not reader.said or reader.begun:
            continue
        for event in events[:withheld]:
            before.feed(event)
        known = before.answer()
        said = known.choices[0].text if known.choices else ""
        tail = dialect.stream_tail(Begun(HEAD, started=withheld > 0, sent=reader.sent()), "why", (), None, NOTICE)
        ended = streamed(dialect, [*events[:withheld], tail])
        assert ended.complete
        assert "".join(ended.choices[0].text.split()) == "".join(f"{said}why".split())


def mutated(data: st.DataObject, original: bytes) -> bytes:
    """Some bytes replaced, removed or added."""
    position = data.draw(st.integers(0, len(original)))
    removed = data.draw(st.integers(0, 12))
    return original[:position] + data.draw(st.binary(max_size=6)) + original[position + removed :]


@pytest.mark.parametrize(("dialect", "path"), samples("*.request.json"))
@given(data=st.data())
def test_any_bytes_are_a_request_or_a_bad_one(dialect: Dialect, path: Path, data: st.DataObject) -> None:
    """No other exception, however the bytes came about; what was read can be edited."""
    body = mutated(data, path.read_bytes()) if data.draw(st.booleans()) else data.draw(st.binary(max_size=200))
    try:
        request = dialect.parse(body)
    except BadRequest as refused:
        assert refused.status == 400
        return
    dialect.rewrite(request, Edits(inserts=tuple(Insert(index, NOTE) for index in range(len(request.items))), no_tools=True, max_output=5))


@pytest.mark.parametrize(("dialect", "path"), samples("*.sse"))
@given(data=st.data())
def test_any_bytes_can_be_followed(dialect: Dialect, path: Path, data: st.DataObject) -> None:
    """A reader never raises, nor does hiding usage, reading or pruning an answer."""
    stream = mutated(data, path.read_bytes())
    events = Splitter().feed(stream)

    assert streamed(dialect, [stream]) is not None
    for event in events:
        assert len(dialect.without_usage(event)) <= len(event)
        dialect.read_answer(event.removeprefix(b"data: "))
        dialect.prune(event.removeprefix(b"data: "), [(0, 0)], NOTICE)
