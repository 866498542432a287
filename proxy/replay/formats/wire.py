"""Recordings in a wire format, read as the proxy reads it: by its dialect. What is to be found where in a log stands here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from proxy.dialects import Dialect
from proxy.errors import BadRequest
from proxy.models import Item, Role
from proxy.replay.formats.entries import encoded, name_of, quoted_text
from proxy.replay.recording import Note, Recording, Unreadable

# Members in which gateways and tracers keep the request, and the response.
_ASKED_IN = ("request", "body", "request_body", "requestBody", "kwargs", "input", "params", "json")
_ANSWERED_IN = ("response", "output", "response_body", "responseBody", "completion", "answer", "body")
_DEEPEST = 4

Found = Mapping[str, Any]


def request_in(value: Found, fits: Callable[[Found], bool]) -> Found | None:
    """The part of a log entry that is the request: the entry itself, or a member in which requests are kept."""
    return next((found for found in _within(value, _ASKED_IN, 0) if fits(found)), None)


def answer_in(value: Found, fits: Callable[[Found], bool]) -> Found | None:
    """The part of a log entry that is the answer, if there is one."""
    return next((found for found in _within(value, _ANSWERED_IN, 0) if fits(found)), None)


def _within(value: Found, names: Sequence[str], depth: int) -> Iterator[Found]:
    yield value
    for name in names if depth < _DEEPEST else ():
        if isinstance(value.get(name), dict):
            yield from _within(value[name], names, depth + 1)


def recorded(dialect: Dialect, id: str, body: Found, answer: Found | None = None) -> Recording:
    """A request, and the answer it got. Raises `Unreadable` for a request that the proxy could not read either."""
    try:
        request = dialect.parse(encoded(body))
    except BadRequest as error:
        raise Unreadable(error.message) from None
    items, notes = list(request.items), dict[int, Note]()
    read = dialect.read_answer(encoded(answer)) if answer is not None else None
    if read is not None and read.choices:
        choice = read.choices[0]
        notes[len(items)] = Note(read.usage, choice.finish)
        items.append(Item(Role.ASSISTANT, quoted_text(choice.text), choice.calls))
    asked = "model" in body and not notes
    follows, answered = name_of(body, "previous_response_id"), read.id if read is not None else None
    return Recording(
        id, tuple(items), request.tools, request.tools_raw, request.model, notes, asked=asked, follows=follows, answer=answered
    )
