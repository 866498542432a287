"""Tool calls of chat completions: whole ones, and fragments of every faulty kind."""

import json
from typing import Any

import msgspec
import pytest

from proxy.dialects.chat_calls import CallMerger, WireCall, read_calls
from proxy.models import ToolCall


def called(id: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("tool_calls", "calls"),
    [
        ([called("a", "ls", "{}"), called("b", "ls", "x")], (ToolCall("a", "ls", "{}"), ToolCall("b", "ls", "x"))),
        ([called(None, "ls", "{}")], (ToolCall(None, "ls", "{}"),)),
        ([called("", "ls", "{}")], (ToolCall(None, "ls", "{}"),)),
        ([{"id": "c", "type": "custom", "custom": {"name": "run", "input": "x = 1"}}], (ToolCall("c", "run", "x = 1", True),)),
        ([{"function": {"name": "ls", "arguments": {"a": 1}}}], (ToolCall(None, "ls", '{"a": 1}'),)),
        ([{"function": {"name": "ls", "arguments": None}}, {"function": {"name": 3}}], (ToolCall(None, "ls", ""), ToolCall(None, "", ""))),
        (
            [{"id": "x", "function": None}, 5, called("b", "ls", "{}")],
            (ToolCall("x", "", ""), ToolCall(None, "", ""), ToolCall("b", "ls", "{}")),
        ),
        (None, ()),
        ("ls", ()),
        ([], ()),
    ],
)
def test_calls_are_read_whatever_their_shape(tool_calls: Any, calls: tuple[ToolCall, ...]) -> None:
    """Positions stay, arguments that are no text keep their JSON, nothing is refused."""
    assert read_calls(json.dumps(tool_calls).encode()) == calls


def test_legacy_call_comes_last() -> None:
    """The one function_call of old models has no id."""
    legacy = b'{"name":"weather","arguments":"{}"}'

    assert read_calls(b"", legacy) == (ToolCall(None, "weather", "{}"),)
    assert read_calls(b"null", b"null") == ()


A, B = ToolCall("a", "read", '{"p":1}'), ToolCall("b", "grep", '{"q":2}')
ANON = [ToolCall(None, "read", '{"p":1}'), ToolCall(None, "read", '{"p":1}')]


def part(index: Any = None, id: Any = None, name: Any = None, arguments: Any = "") -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        pytest.param(
            [
                part(0, "a", "read"),
                part(1, "b", "grep"),
                part(0, arguments='{"p"'),
                part(1, arguments='{"q":'),
                part(0, arguments=":1}"),
                part(1, arguments="2}"),
            ],
            [A, B],
            id="interleaved",
        ),
        pytest.param(
            [part(None, "a", "read"), part(arguments='{"p":1}'), part(None, "b", "grep"), part(arguments='{"q":2}')], [A, B], id="no index"
        ),
        pytest.param(
            [part(0, "a", "read"), part(0, arguments='{"p":1}'), part(0, "b", "grep"), part(0, arguments='{"q":2}')], [A, B], id="both at 0"
        ),
        pytest.param([part(1, "a", "read", '{"p":1}'), part(2, "b", "grep", '{"q":2}')], [A, B], id="from 1"),
        pytest.param(
            [part(0, "a", "read"), part(1, "b", "grep"), part(0, "a", None, '{"p":1}'), part(0, "b", "", '{"q":2}')], [A, B], id="by id"
        ),
        pytest.param([part(0, None, "read", '{"p":'), part(0, None, None, "1}"), part(1, None, "read", '{"p":1}')], ANON, id="null ids"),
        pytest.param([part(None, "", "read", '{"p":1}'), part(None, "", "read", '{"p":1}')], ANON, id="neither id nor index"),
        pytest.param([part(0, None, "read", '{"p":1}'), part(0, None, "read", '{"p":1}')], ANON, id="whole calls at 0 without ids"),
        pytest.param(
            [part(0, None, "read", {"p": 1}), part(0, None, "read", {"p": 1})], [ToolCall(None, "read", '{"p": 1}')] * 2, id="objects"
        ),
        pytest.param([part(0, "a", "read", '{"p":1}'), part(1, "a", "read", '{"p":1}')], [A, A], id="same id, two places"),
        pytest.param([part(0, "a", "read", '{"p":1}'), part(0, "a", "read", '{"p":1}')], [A, A], id="same id, same place, both whole"),
        pytest.param(
            [part(0, "a", "read", "{"), part(0, "a", "read", '"p":'), part(0, "a", "read", "1}"), part(0, "a", "read")],
            [A],
            id="all repeated",
        ),
        pytest.param([part(0, "a", "read", '{"p":'), part(0, "z1", None, "1"), part(0, "z2", None, "}")], [A], id="an id a fragment"),
        pytest.param([part(0, None, "read", '{"p":'), part(0, "a", None, "1}")], [A], id="late id"),
        pytest.param([part(0, "a", None), part(0, None, "read", '{"p":1}')], [A], id="late name"),
        pytest.param([part(0, "a", "read", '{"p":'), part(7, None, None, "1}")], [A], id="unknown index continues the latest"),
        pytest.param([part(0, "a", "read", '{"p":1}'), part(1, "b"), part(1, None, "grep", '{"q":2}')], [A, B], id="id before name"),
        pytest.param(
            [part(0, None, "read"), part(0, None, "grep")], [ToolCall(None, "read", ""), ToolCall(None, "grep", "")], id="another name"
        ),
        pytest.param(
            [part(0, "a", "read", '{"p":{}'), part(0, "a", "read", "}")], [ToolCall("a", "read", '{"p":{}}')], id="no whole object yet"
        ),
        pytest.param([part(arguments='{"p":1}')], [ToolCall(None, "", '{"p":1}')], id="never named"),
        pytest.param([{}, part(0)], [], id="nothing said"),
    ],
)
def test_fragments_find_their_call(fragments: list[dict[str, Any]], calls: list[ToolCall]) -> None:
    """Every known fault of ids and indices gives the calls that the model made."""
    begun: dict[str, int] = {}
    merger = CallMerger(begun)

    for fragment in fragments:
        merger.add(msgspec.json.decode(json.dumps(fragment), type=WireCall))

    assert list(merger.calls()) == calls
    assert sum(begun.values()) == len([call for call in calls if call.name])


def test_begun_counts_names_at_their_first_fragment() -> None:
    """Before any argument has come."""
    begun: dict[str, int] = {}
    merger = CallMerger(begun)

    merger.add(msgspec.json.decode(json.dumps(part(0, "a", "read")), type=WireCall))
    merger.add(msgspec.json.decode(json.dumps(part(1, "b", "read")), type=WireCall))

    assert begun == {"read": 2}
