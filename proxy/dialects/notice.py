"""The `lastcall` object: how a notice stands in a body, the same in every dialect."""

import msgspec

from proxy.models import Notice

KEYS = (
    "action",
    "reason",
    "detector",
    "tool",
    "count",
    "limit",
    "scope",
    "spent",
    "resets_at",
    "session",
    "degraded",
    "last_error",
    "trail",
    "message",
)


def render(notice: Notice) -> dict[str, object]:
    """The members of the `lastcall` object in their documented order, None where one does not apply; `held` only where it does."""
    members = {key: getattr(notice, key) for key in KEYS}
    return members if notice.held is None else members | {"held": notice.held}


def member(notice: Notice | None) -> dict[str, object]:
    """`{"lastcall": …}` to merge into an object; empty without a notice."""
    return {} if notice is None else {"lastcall": render(notice)}


def raw(notice: Notice) -> msgspec.Raw:
    """The object as JSON."""
    return msgspec.Raw(msgspec.json.encode(render(notice)))
