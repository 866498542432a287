"""Requests that begin with what an earlier one said."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import DIALECTS, Dialect
from proxy.errors import BadRequest
from proxy.fingerprint import Fingerprints
from proxy.growing import Readings
from proxy.models import Request
from proxy.trail import History, read

CHAT, MESSAGES, RESPONSES = DIALECTS["/chat/completions"], DIALECTS["/messages"], DIALECTS["/responses"]
LONG = "You are careful. " * 300  # a body that is worth finding again
PRINTS = Fingerprints(b"s" * 32, loose=True)


class Counted:
    """A dialect that counts what it reads as a whole."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.whole = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def parse(self, body: bytes) -> Request:
        self.whole += 1
        return self._dialect.parse(body)


def turn(dialect: Dialect, number: int) -> list[dict[str, Any]]:
    """One call and its result, as the dialect writes them."""
    path, said = json.dumps({"path": f"part {number}"}), f"content {number} é"
    match dialect.name:
        case "chat":
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": path}}
            return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": f"c{number}", "content": said}]
        case "messages":
            call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": number}}
            result = [{"type": "tool_result", "tool_use_id": f"c{number}", "content": said}, {"type": "text", "text": "go on"}]
            return [{"role": "assistant", "content": [call]}, {"role": "user", "content": result}]
        case _:
            call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": path}
            return [{"type": "reasoning", "id": "r"}, call, {"type": "function_call_output", "call_id": f"c{number}", "output": said}]


def body(dialect: Dialect, elements: Sequence[Any], before: dict[str, Any], after: dict[str, Any], indent: int | None = None) -> bytes:
    members = before | {dialect.listed: list(elements)} | after
    return json.dumps(members, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")


def history(dialect: Dialect, turns: int) -> list[Any]:
    return [{"role": "user", "content": LONG}, *[element for number in range(turns) for element in turn(dialect, number)]]


CACHED = {"cache_control": {"type": "ephemeral"}}


def marked(elements: Sequence[Any], markers: int) -> list[Any]:
    """The elements with markers for the provider's cache on the last ones that are no answer's."""
    found = list(elements)
    places = [at for at, element in enumerate(found) if isinstance(element, dict) and element.get("role", "assistant") != "assistant"]
    for at in places[-markers:] if markers else ():
        content = found[at].get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if content and isinstance(content, list):
            found[at] = found[at] | {"content": [*content[:-1], content[-1] | CACHED]}
    return found


def outcome(reader: Callable[[bytes], Request], raw: bytes) -> Request | str:
    """What reading a body comes to."""
    try:
        return reader(raw)
    except BadRequest as error:
        return str(error)


def same(one: Request, other: Request) -> bool:
    """Whether two requests say the same; what was worked out of them aside."""
    return all(getattr(one, name) == getattr(other, name) for name in one.__struct_fields__ if name != "groundwork")


def told(history: History) -> tuple[object, ...]:
    messages = history.messages
    calls = [[(call.fingerprint, call.id, call.content, call.item) for call in message.calls] for message in messages]
    return messages.answers, messages.made, calls, messages.times, messages.again, history.users, history.seed, history.same


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize("tools_first", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_what_came_before_is_not_read_again(dialect: Dialect, tools_first: bool, indent: int | None) -> None:
    """A growing conversation is read once as a whole, and what is read of it is what the whole says."""
    counted: Any = Counted(dialect)
    readings = Readings()
    tools = {"model": "m", "tools": [{"type": "function", "name": "read", "function": {"name": "read"}}]}
    before, after = (tools, {}) if tools_first else ({}, tools)

    for turns in range(1, 9):
        raw = body(dialect, history(dialect, turns), before, after, indent)
        grown, whole = readings.read(counted, raw, "me"), dialect.parse(raw)
        assert told(read(grown, PRINTS)) == told(read(whole, PRINTS))
        assert same(grown, whole)

    assert counted.whole == 1


def test_the_same_request_again_is_not_read_again() -> None:
    """A retry adds nothing."""
    counted: Any = Counted(CHAT)
    readings = Readings()
    raw = body(CHAT, history(CHAT, 3), {}, {})

    for _ in range(3):
        assert same(readings.read(counted, raw, "me"), CHAT.parse(raw))

    assert counted.whole == 1


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES], ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize("markers", [1, 2])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_marker_that_moves_on_leaves_what_stands_before_it(dialect: Dialect, markers: int, indent: int | None) -> None:
    """Clients mark the newest messages for the provider's cache, so that these come back without it: no others are read again."""
    counted: Any = Counted(dialect)
    readings = Readings()
    first = [{"role": "system", "content": LONG}, {"role": "user", "content": [CACHED | {"type": "text", "text": "go"}]}]

    for turns in range(2, 12):
        elements = marked(first + history(dialect, turns)[1:], markers)
        raw = body(dialect, elements, {}, {"tools": []}, indent)
        for _ in range(2):
            grown, whole = readings.read(counted, raw, "me"), dialect.parse(raw)
            assert told(read(grown, PRINTS)) == told(read(whole, PRINTS))
            assert same(grown, whole)

    assert counted.whole == 1


def test_a_marker_that_stays_where_it_is_is_like_any_other_member() -> None:
    """It stands before the newest few elements, however short they are."""
    counted: Any = Counted(CHAT)
    readings = Readings()
    stays = [{"role": "system", "content": LONG}, {"role": "user", "content": [CACHED | {"type": "text", "text": "go"}]}]

    for words in range(4, 9):
        raw = body(CHAT, [*stays, *[{"role": "user", "content": "a"}] * words], {}, {})
        assert same(readings.read(counted, raw, "me"), CHAT.parse(raw))

    assert counted.whole == 1


def test_a_marker_in_what_is_no_request_changes_no_complaint() -> None:
    """What is wrong with a body is said of the body."""
    readings = Readings()
    fine = marked(history(CHAT, 4), 1)
    for elements in ([*fine[:2], 7, *fine[2:]], [*fine[:-1], 7, fine[-1]], [*fine, 7], [7, *fine]):
        raw = body(CHAT, elements, {}, {})
        assert outcome(lambda raw: readings.read(CHAT, raw, "me"), raw) == outcome(CHAT.parse, raw)
    good = body(CHAT, fine, {}, {})
    readings.read(CHAT, good, "me")
    for raw in (body(CHAT, fine, {"model": 7}, {}), good.removesuffix(b"]}") + b', {"cache_control": }]}'):
        assert outcome(lambda raw: readings.read(CHAT, raw, "me"), raw) == outcome(CHAT.parse, raw)


MORE = '{"role": "user"}'


@pytest.mark.parametrize("odd", [f"x, {MORE}", f" {MORE}", f"}}, {MORE}", f",, {MORE}", f", {MORE},", ", ", ",", "x"])
def test_what_follows_must_be_further_elements(odd: str) -> None:
    """A body that goes on in any other way is no request, and the complaint is that of one of which nothing is known."""
    readings, known = Readings(), body(CHAT, history(CHAT, 3), {}, {"model": "m"})
    readings.read(CHAT, known, "me")
    end = known.rindex(b"]")
    raw = known[:end] + odd.encode() + known[end:]
    with pytest.raises(BadRequest) as whole:
        CHAT.parse(raw)
    with pytest.raises(BadRequest) as grown:
        readings.read(CHAT, raw, "me")
    assert str(grown.value) == str(whole.value)


def test_another_caller_is_read_for_himself() -> None:
    """Not even by the time it takes can a caller tell what others sent."""
    counted: Any = Counted(CHAT)
    readings = Readings()
    raw = body(CHAT, history(CHAT, 3), {}, {})

    readings.read(counted, raw, "me")
    readings.read(counted, raw, "you")

    assert counted.whole == 2


def test_what_is_held_has_bounds() -> None:
    """The oldest readings go first; a body beyond all bounds is not held at all."""
    counted: Any = Counted(CHAT)
    one = body(CHAT, history(CHAT, 3), {"model": "one"}, {})
    two = body(CHAT, history(CHAT, 3), {"model": "two", "user": LONG}, {})
    readings = Readings(room=3 * len(two))

    for raw in (one, two, one):
        readings.read(counted, raw, "me")
    assert counted.whole == 3

    small = Readings(room=len(one))
    for _ in range(2):
        small.read(counted, one, "me")
    assert counted.whole == 5


def test_short_bodies_are_read_as_a_whole() -> None:
    """They are read as quickly as they would be found."""
    counted: Any = Counted(CHAT)
    readings = Readings()
    raw = body(CHAT, [{"role": "user", "content": "hi"}], {}, {})

    for _ in range(2):
        readings.read(counted, raw, "me")

    assert counted.whole == 2


def test_identities_under_another_secret_are_made_anew() -> None:
    """What was worked out of a history stands for the identities it was made under."""
    readings, other = Readings(), Fingerprints(b"t" * 32, loose=True)
    read(readings.read(CHAT, body(CHAT, history(CHAT, 2), {}, {}), "me"), PRINTS)
    raw = body(CHAT, history(CHAT, 3), {}, {})

    assert told(read(readings.read(CHAT, raw, "me"), other)) == told(read(CHAT.parse(raw), other))


def test_an_answer_that_goes_on_is_read_with_its_beginning() -> None:
    """In Responses several items make one answer: what may belong to the last one is read with it."""
    counted: Any = Counted(RESPONSES)
    readings = Readings()
    first, *_, last = history(RESPONSES, 4)
    call = {"type": "function_call", "call_id": "x", "name": "read", "arguments": "{}"}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
    tools = {"type": "tool_search_output", "call_id": "s", "tools": [{"type": "function", "name": "found"}]}
    result = {"type": "function_call_output", "output": "x"}

    for elements in (
        [first, call],
        [first, call, call],
        [first, call, search],
        [first, call, search, last],
        [first, last],
        [first, last, tools],
        [first, last],
        [first, last, {"type": "function_call", "call_id": "y", "name": "read", "arguments": {}}],
        [first, last],
        [first, last, result],
        [first, last, result, call],
        [first, last],
        [first, last, {"type": "item_reference", "id": "msg_1"}],
    ):
        raw = body(RESPONSES, elements, {}, {})
        assert same(readings.read(counted, raw, "me"), RESPONSES.parse(raw))
    empty = body(RESPONSES, [], {"instructions": LONG}, {})
    for raw in (empty, empty, body(RESPONSES, [first], {"instructions": LONG}, {})):
        assert same(readings.read(counted, raw, "me"), RESPONSES.parse(raw))


@pytest.mark.parametrize(
    "odd", [b"\xef\xbb\xbf{", b'{"x": "\\ud800", ', b'{"mess\\u0061ges": [], '], ids=["mark", "half a pair", "escaped"]
)
def test_where_the_list_ends_may_not_be_told(odd: bytes) -> None:
    """Bodies that are only read with some patience are read so each time."""
    counted: Any = Counted(CHAT)
    readings = Readings()
    raw = body(CHAT, history(CHAT, 3), {}, {})
    raw = odd + raw[1:] if b"mess" not in odd else raw.replace(b'"messages"', b'"mess\\u0061ges"')

    for _ in range(2):
        assert same(readings.read(counted, raw, "me"), CHAT.parse(raw))

    assert counted.whole == 2


ODD = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50}}]},
    {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "A" * 50}}]},
    {"role": 7, "content": None},
    {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "tool", "content": "\ud800"},
    {"messages": [{"role": "user"}], "input": []},
    "no element",
]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_what_is_unusual_about_further_elements_is_seen(dialect: Dialect, odd: object) -> None:
    """Each is read, or refused, as the whole body says."""
    readings = Readings()
    readings.read(dialect, body(dialect, history(dialect, 2), {}, {}), "me")
    raw = body(dialect, [*history(dialect, 2), odd], {}, {})

    found, expected = outcome(lambda raw: readings.read(dialect, raw, "me"), raw), outcome(dialect.parse, raw)

    assert same(found, expected) if isinstance(found, Request) and isinstance(expected, Request) else found == expected


def spoiled(raw: bytes, dialect: Dialect, kind: str, at: int) -> bytes:
    """A body with something about it that clients do not write."""
    name = dialect.listed.encode()
    match kind:
        case "doubled":
            return raw[:-1] + b', "' + name + b'": [{"role": "user", "content": "x"}]}'
        case "nested":
            return b'{"x": ' + raw + b"," + raw[1:]
        case "comma":
            return raw.replace(b"}], ", b"},], ").replace(b"}\n ], ", b"},\n ], ")
        case "cut":
            return raw[: at % len(raw)]
        case _:
            at %= len(raw)
            return raw[:at] + kind.encode("latin-1") + raw[at + 1 :]


FAULTS = ["doubled", "nested", "comma", "cut", "", "]", "}", ",", '"', "\\", "\xff", "0"]
MEMBERS = [{"tools": []}, {"model": "y"}, {"model": 7}, {"user": "u"}, {"x": {"messages": [], "input": []}}]


@st.composite
def changes(draw: st.DrawFn) -> tuple[Dialect, list[bytes]]:
    """Bodies, each made of the one before: mostly by adding to its history, sometimes by anything else."""
    dialect = draw(st.sampled_from([CHAT, MESSAGES, RESPONSES]))
    elements = history(dialect, draw(st.integers(0, 3)))
    before: dict[str, Any] = {"model": "m"}
    after: dict[str, Any] = {"stop": [{"a": 1}], "tools": []}
    indent = draw(st.sampled_from([None, 1]))
    bodies, markers = [], draw(st.sampled_from([0, 0, 1, 2]))
    for number in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(["turn", "turn", "again", "odd", "fewer", "member", "fault"]))
        if kind == "turn":
            elements = elements + turn(dialect, 10 + number)
        elif kind == "odd":
            elements = [*elements, draw(st.sampled_from(ODD))]
        elif kind == "fewer":
            elements = elements[: draw(st.integers(0, len(elements)))]
        elif kind == "member":
            after = after | draw(st.sampled_from(MEMBERS))
        raw = body(dialect, marked(elements, markers), before, after, indent)
        bodies.append(spoiled(raw, dialect, draw(st.sampled_from(FAULTS)), draw(st.integers(0, 9_999))) if kind == "fault" else raw)
    return dialect, bodies


@settings(max_examples=150, deadline=None)
@given(changes(), st.data())
def test_whatever_changes_the_reading_is_that_of_the_whole(given: tuple[Dialect, list[bytes]], data: st.DataObject) -> None:
    """Further elements, fewer, others, other members, doubled ones, faults: each body is read as if it had come alone.

    Nor does a later one change what the request before it says, as long as that may still be looked at.
    """
    dialect, bodies = given
    readings = Readings()
    under_way: list[tuple[History, Request]] = []

    for raw in bodies:
        found, expected = outcome(lambda raw: readings.read(dialect, raw, "me"), raw), outcome(dialect.parse, raw)
        if isinstance(found, Request) and isinstance(expected, Request):
            assert same(found, expected)
            history = read(found, PRINTS)
            assert told(history) == told(read(expected, PRINTS))
            history.messages.over = data.draw(st.booleans())
            if not history.messages.over:
                under_way.append((history, expected))
        else:
            assert found == expected
    for history, expected in under_way:
        assert told(history) == told(read(expected, PRINTS))


def test_what_nobody_looks_at_any_more_is_added_to() -> None:
    """However long a conversation is, its next request costs what is new in it."""
    readings = Readings()
    earlier = read(readings.read(CHAT, body(CHAT, history(CHAT, 3), {}, {}), "me"), PRINTS).messages
    earlier.over = True

    messages = read(readings.read(CHAT, body(CHAT, history(CHAT, 4), {}, {}), "me"), PRINTS).messages

    assert len(messages) == 4
    assert all(getattr(messages, name) is getattr(earlier, name) for name in ("answers", "made", "fingerprints", "times", "line"))
