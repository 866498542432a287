"""Request bodies, as far as the dialects agree: reading one as a whole, its faults in our words, and the members that may name a session.

Only the list that makes a body a request has to be what its dialect says, and `model`, where it is there, a string. Any other value of a
wrong type is read as absent and passed on: judging it is the upstream's business.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from proxy.dialects.raw_json import UNREADABLE, Shape, plain, read, text
from proxy.errors import BadRequest

TOO_DEEP = "the body is nested too deeply to be read: send a flatter one"
LONGEST_HINT = 512

U = TypeVar("U")
G = TypeVar("G")


class Hinted(Struct, gc=False):
    """The members of every dialect's body that may name a session or a user, and the service tier."""

    session_id: Raw = Raw()
    litellm_session_id: Raw = Raw()
    prompt_cache_key: Raw = Raw()
    user: Raw = Raw()
    conversation: Raw = Raw()
    conversation_id: Raw = Raw()
    metadata: Raw = Raw()
    client_metadata: Raw = Raw()
    service_tier: Raw = Raw()


class _Metadata(Struct, gc=False):
    session_id: Any = None
    sessionId: Any = None
    user_id: Any = None


class _ClientMetadata(Struct, gc=False):
    session_id: Any = None
    thread_id: Any = None
    parent_thread_id: Any = None
    sent_by: Any = msgspec.field(default=None, name="x-codex-parent-thread-id")


_METADATA = Shape(_Metadata)
_CLIENT_METADATA = Shape(_ClientMetadata)


def tier_of(wire: Hinted) -> str:
    """The service tier that is asked for, "" for none."""
    return text(plain(wire.service_tier)) or ""


def hints_of(wire: Hinted) -> dict[str, str]:
    """Those that are texts, by name, `metadata.…` and `client_metadata.…` for the ones inside these."""
    metadata = _METADATA.one(wire.metadata)
    hints: dict[str, Any] = {
        "session_id": plain(wire.session_id),
        "litellm_session_id": plain(wire.litellm_session_id),
        "prompt_cache_key": plain(wire.prompt_cache_key),
        "user": plain(wire.user),
        "conversation": _id_of(plain(wire.conversation)),
        "conversation_id": plain(wire.conversation_id),
        "metadata.session_id": metadata.session_id,
        "metadata.sessionId": metadata.sessionId,
        "metadata.user_id": metadata.user_id,
    }
    if wire.client_metadata:
        client = _CLIENT_METADATA.one(wire.client_metadata)
        hints["client_metadata.session_id"] = client.session_id
        hints["client_metadata.thread_id"] = client.thread_id
        hints["client_metadata.parent_thread_id"] = client.parent_thread_id or client.sent_by
    return {key: value for key, value in hints.items() if isinstance(value, str) and 0 < len(value) <= LONGEST_HINT}


def _id_of(value: Any) -> Any:
    """The value, or the id of the object that stands in its place."""
    return value.get("id") if isinstance(value, dict) else value


def read_body(body: bytes, usual: Decoder[U], general: Decoder[G], required: str) -> U | G:
    """The body by the first decoder, which is quick and strict, else by the second. Raises `BadRequest`, naming the place.

    required: the member without which it is no request, a list of message objects.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is not UTF-8 (at byte {error.start}): encode it as UTF-8") from None
    try:
        return usual.decode(body)
    except UNREADABLE:
        pass  # something unusual somewhere, or a fault to be named
    try:
        return read(general, body)
    except msgspec.ValidationError as error:
        raise BadRequest(_misfit(str(error), required)) from None
    except msgspec.DecodeError as error:
        fault = str(error).removeprefix("JSON is malformed: ")
        raise BadRequest(f"the body is not valid JSON: {fault}; send one JSON object") from None
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None


def read_more(elements: bytes, usual: Decoder[U]) -> U | None:
    """Elements of a body's list by themselves; None for what has to be read with all of the body."""
    try:
        if not elements.isascii():
            elements.decode()
        return usual.decode(elements)
    except (UnicodeDecodeError, *UNREADABLE):
        return None


_KINDS = {
    "array": "a list of message objects",
    "object": "an object",
    "str": "a string",
    "str | array | null": "a string or a list of item objects",
}


def _misfit(complaint: str, required: str) -> str:
    """Says in our words what msgspec says as "Expected `object`, got `int` - at `$.messages[3]`"."""
    if "missing required field" in complaint:
        return f"`{required}` is missing: send a list of message objects"
    match = re.fullmatch(r"Expected `([\w |]+)`, got `(\w+)`(?: - at `\$\.(\S+)`)?", complaint)
    if match is None:
        return f"the body cannot be read: {complaint}; send a number of a sensible size"
    expected, got, place = match.groups()
    subject = f"`{place}`" if place else "the body"
    kind = _KINDS[expected]
    return f"{subject} is of type {got}: send {kind}"
