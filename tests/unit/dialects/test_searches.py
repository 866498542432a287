"""Searches of the web that a provider makes while it answers: how many a request names, how many an answer says were made."""

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS

CHAT, MESSAGES, RESPONSES = (DIALECTS[path] for path in ("/chat/completions", "/messages", "/responses"))
SAID = [{"role": "user", "content": "what is new?"}]
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("dialect", "members", "most"),
    [
        (MESSAGES, {"tools": [SEARCH | {"max_uses": 5}, {"name": "ls", "input_schema": {}}]}, 5),
        (MESSAGES, {"tools": [SEARCH]}, 0),
        (MESSAGES, {"tools": [SEARCH | {"max_uses": "many"}]}, 0),
        (MESSAGES, {"tools": [{"name": "web_search", "input_schema": {}, "max_uses": 5}]}, 0),
        (MESSAGES, {}, 0),
        (RESPONSES, {"tools": [{"type": "web_search"}], "max_tool_calls": 4}, 4),
        (RESPONSES, {"tools": [{"type": "web_search_preview"}]}, 0),
        (RESPONSES, {"tools": [{"type": "file_search"}], "max_tool_calls": 4}, 0),
        (RESPONSES, {"tools": [{"type": "function", "name": "web_search_it"}], "max_tool_calls": 4}, 0),
        (CHAT, {"web_search_options": {"search_context_size": "low"}}, 1),
        (CHAT, {"web_search_options": {}, "n": 3}, 3),
        (CHAT, {"web_search_options": None}, 0),
    ],
)
def test_what_a_request_names(dialect: Any, members: dict[str, Any], most: int) -> None:
    """A bound where there is one; nothing where a model may search as often as it likes."""
    body = {"model": "m", ("input" if dialect is RESPONSES else "messages"): SAID, "max_tokens": 9} | members
    request = dialect.parse(json.dumps(body).encode())
    assert (request.searches, request.searched) == (most, dialect is CHAT and most > 0)


@pytest.mark.parametrize(
    ("dialect", "answer", "made"),
    [
        (MESSAGES, {"content": [], "usage": {"input_tokens": 1, "output_tokens": 1, "server_tool_use": {"web_search_requests": 3}}}, 3),
        (MESSAGES, {"content": [], "usage": {"input_tokens": 1, "output_tokens": 1, "server_tool_use": None}}, 0),
        (CHAT, {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "num_search_queries": 2}}, 2),
        (CHAT, {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "server_tool_use": {"web_search_requests": 4}}}, 4),
        (CHAT, {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"web_search_requests": 5}}}, 5),
        (CHAT, {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}, 0),
    ],
)
def test_what_an_answer_reports(dialect: Any, answer: dict[str, Any], made: int) -> None:
    """In any of the spellings."""
    assert dialect.read_answer(json.dumps(answer).encode()).usage.searches == made


def test_what_a_response_shows() -> None:
    """Its usage does not say: its items do. Looking at a page that was found is no search."""
    actions = [{"type": "search", "query": "a"}, {"type": "open_page", "url": "u"}, {"type": "search", "query": "b"}, None]
    items = [{"type": "web_search_call", "id": f"ws_{place}", "action": action} for place, action in enumerate(actions)]
    body = {"id": "r", "status": "completed", "output": items, "usage": {"input_tokens": 1, "output_tokens": 1}}
    usage = RESPONSES.read_answer(json.dumps(body).encode()).usage
    assert usage is not None and usage.searches == 3


def test_a_stream_tells_how_many_at_its_end() -> None:
    """What its beginning said stays where the end says nothing."""
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "server_tool_use": {"web_search_requests": 1}}}}
    reader = MESSAGES.reader()
    told = []
    for usage in ({"output_tokens": 3}, {"output_tokens": 9, "server_tool_use": {"web_search_requests": 2}}):
        for event in (start, {"type": "message_delta", "delta": {}, "usage": usage}):
            reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        answer = reader.answer().usage
        assert answer is not None
        told.append(answer.searches)
    assert told == [1, 2]
