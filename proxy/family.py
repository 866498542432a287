"""Which sessions stand above which: settled when a session is first seen, and kept in its record.

A child spends from every session above it. What a client says later changes nothing: else a session could leave a parent whose
budget is used up.
"""

from proxy.errors import BadRequest
from proxy.state import load
from proxy.store import Account, Store

MAX_DEPTH = 8  # sessions above one
_REMEMBERED = 8192

Line = tuple[bytes, ...]
"""The keys of the sessions above one, the nearest first."""


class Family:
    """What a process has seen of it: enough to ask every ledger in one round trip. The records are the truth."""

    def __init__(self) -> None:
        self._lines: dict[bytes, Line] = {}

    def known(self, session: bytes) -> Line | None:
        return self._lines.get(session)

    async def first(self, store: Store, session: bytes, parent: bytes | None, secret_id: int) -> Line:
        """Who is above a session seen for the first time. parent: by its request. Raises `StoreUnavailable`, and as `check_depth`."""
        if parent is None:
            return ()
        above = self.known(parent)
        if above is None:
            (found,) = await store.peek([Account(parent)])
            above = () if found is None else tuple(load(found.record, secret_id).line)
        line = line_of(session, parent, above)
        check_depth(line)
        return line

    def guess(self, session: bytes, parent: bytes | None) -> Line:
        """The line of a session as far as one can know before its record is at hand. parent: by the request."""
        found = self._lines.get(session)
        return found if found is not None else line_of(session, parent, self._lines.get(parent or b"", ()))

    def remember(self, session: bytes, line: Line) -> None:
        if self._lines.get(session) == line:
            return
        if len(self._lines) >= _REMEMBERED:
            del self._lines[next(iter(self._lines))]
        self._lines[session] = line


def line_of(session: bytes, parent: bytes | None, above: Line) -> Line:
    """The line of a session under a parent, whose own is `above`. One that leads back to the session ends before it."""
    if parent is None or parent == session:
        return ()
    line = (parent, *above)
    return line[: line.index(session)] if session in line else line


def check_depth(line: Line) -> None:
    """Raises `BadRequest` for a session with more above it than can be charged."""
    if len(line) > MAX_DEPTH:
        raise BadRequest(
            f"this session has {len(line)} sessions above it, and {MAX_DEPTH} is the most; "
            "name a session further up in 'x-lastcall-parent'",
            code="lastcall_too_deep",
        )
