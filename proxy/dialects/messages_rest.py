"""Held events of a messages stream with calls left out: the others go on as they came, under numbers without a gap.

Editing rather than writing anew keeps what stands between calls (signed thinking, tools of the provider's) and how it was streamed.
"""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from proxy.dialects import notice as lastcall
from proxy.dialects import sse
from proxy.dialects.messages_stream import END
from proxy.dialects.raw_json import FIELDS, UNREADABLE, members_of, object_of, read, whole
from proxy.models import Notice


class _Numbered(Struct, gc=False):
    index: Any = None


_NUMBERED = Decoder(_Numbered)


def without_blocks(held: Sequence[bytes], gone: Collection[int], notice: Notice, *, called: bool) -> bytes | None:
    """The events without the blocks of these numbers, the notice in the last one; None where they do not reach the stream's end.

    called: calls are left in the message, before or among these events; else it ends as text does.
    """
    if not any(END in event and sse.name_of(event) in (END, b"") for event in held):
        return None
    return b"".join([edited for event in held if (edited := _edited(event, gone, notice, called))])


def _edited(event: bytes, gone: Collection[int], notice: Notice, called: bool) -> bytes:
    """One event; b"" where it belongs to a block that is gone."""
    data = sse.data_of(event)
    if data is None:
        return event
    try:
        number = whole(read(_NUMBERED, data).index)
        members = read(FIELDS, data)
    except UNREADABLE:
        return event
    kind = bytes(members.get("type", b""))
    if number is not None:
        before = sum(1 for block in gone if block < number)
        if number in gone or not before:
            return b"" if number in gone else event
        members["index"] = Raw(encode(number - before))
    elif kind == b'"message_delta"' and not called:
        members["delta"] = Raw(object_of(members_of(members.get("delta", b"")) | {"stop_reason": Raw(b'"end_turn"')}))
    elif kind == b'"message_stop"':
        members["lastcall"] = lastcall.raw(notice)
    else:
        return event
    return b"event: %b\ndata: %b\n\n" % (kind.strip(b'"'), object_of(members))
