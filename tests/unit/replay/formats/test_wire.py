"""Where logs keep a request and its answer, and how the two become one recording."""

import pytest

from proxy.dialects.chat import Chat
from proxy.models import Item, Role
from proxy.replay.formats.wire import answer_in, recorded, request_in
from proxy.replay.recording import Unreadable


def test_requests_and_answers_are_found_where_gateways_put_them() -> None:
    """The entry itself first; never deeper than logs go."""
    entry = {"a": 1, "request": {"body": {"a": 2}}, "response": {"body": {"b": 3}}}
    assert request_in(entry, lambda found: "a" in found) == entry
    assert request_in(entry, lambda found: found.get("a") == 2) == {"a": 2}
    assert answer_in(entry, lambda found: "b" in found) == {"b": 3}
    deep: dict[str, object] = {"b": 1}
    for _ in range(6):
        deep = {"body": deep}
    assert answer_in(deep, lambda found: "b" in found) is None


def test_an_answer_is_what_comes_next() -> None:
    """Also one that says nothing; an error is none, and the request stays without one."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    empty = recorded(Chat(), "r", body, {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]})
    assert (empty.items[1], empty.notes[1].finish, empty.asked) == (Item(Role.ASSISTANT, b'""'), "stop", False)
    failed = recorded(Chat(), "r", body, {"error": {"message": "no"}})
    assert (len(failed.items), failed.asked) == (1, True)


def test_what_the_dialect_refuses_is_unreadable() -> None:
    """In its words."""
    with pytest.raises(Unreadable, match="messages"):
        recorded(Chat(), "r", {"messages": 3})
