"""The `lastcall` object."""

import msgspec

from proxy.dialects import notice as lastcall
from proxy.models import Action, Notice, Reason

NOTICE = Notice(action=Action.STOP, reason=Reason.REPEATED_CALL, message="[lastcall stop] why", tool="ls", count=5)


def test_every_field_of_a_notice_is_shown() -> None:
    """A field added to the notice must find its place in the object."""
    assert sorted((*lastcall.KEYS, "held")) == sorted(Notice.__struct_fields__)


def test_fields_that_do_not_apply_are_null() -> None:
    """The object always has all its keys, in the documented order."""
    shown = msgspec.json.decode(lastcall.raw(NOTICE))

    assert list(shown) == list(lastcall.KEYS)
    assert shown["action"] == "stop"
    assert shown["count"] == 5
    assert shown["limit"] is None
    assert shown["trail"] == []


def test_without_a_notice_there_is_no_member() -> None:
    """Nothing is merged into an object that has nothing to say."""
    assert lastcall.member(None) == {}
    assert list(lastcall.member(NOTICE)) == ["lastcall"]
