"""Which sessions stand above which: settled when a session is first seen, and kept in its record.

A child spends from every session above it. What a client says later changes nothing: else a session could leave a parent whose
budget is used up. A session with more above it than can be charged is refused, and so is whatever names it as its parent.
"""

from proxy.bounded import Bounded
from proxy.errors import BadRequest
from proxy.state import Record, dump, load
from proxy.store import Account, Store

MAX_DEPTH = 8  # sessions above one
_REMEMBERED = 8192

Line = tuple[bytes, ...]
"""The keys of the sessions above one, the nearest first."""


class Family:
    """What a process has seen of it: enough to ask every ledger in one round trip. The records are the truth. ttl: of a record, seconds."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lines: Bounded[bytes, Line] = Bounded(_REMEMBERED)

    async def above(self, store: Store, session: bytes, parent: bytes | None, record: Record, *, new: bool) -> tuple[Line, int]:
        """Who is above a session: by its record or, where that is new, by its request, which names the parent. Then it is written down at
        once, since those below it may begin before its first answer has ended; the version of the record, 0 for none of this request's.

        Raises `StoreUnavailable`, and `BadRequest` where more are above it than can be charged.
        """
        line, version = tuple(record.line), 0
        if new:
            line = await self._first(store, session, parent, record.key)
            if line:
                known = dump(Record(record.version, record.key, line=list(line[: MAX_DEPTH + 1])))
                done = await store.commit(session, record=known, version=0, settlements=[], links=[], ttl=self._ttl)
                if done.conflict:  # another request of the session was first
                    line = tuple(load(done.record, record.key).line)
                else:
                    version = done.version
        if len(line) > MAX_DEPTH:
            raise BadRequest(
                f"this session has more than {MAX_DEPTH} sessions above it; name a session further up in 'x-lastcall-parent'",
                code="lastcall_too_deep",
            )
        self._remember(session, line)
        return line, version

    async def _first(self, store: Store, session: bytes, parent: bytes | None, secret_id: int) -> Line:
        if parent is None:
            return ()
        above = self._lines.get(parent)
        if above is None:
            (found,) = await store.peek([Account(parent)])
            above = () if found is None else tuple(load(found.record, secret_id).line)
        return line_of(session, parent, above)

    def guess(self, session: bytes, parent: bytes | None) -> Line:
        """The line of a session as far as one can know before its record is at hand. parent: by the request."""
        found = self._lines.get(session)
        return found if found is not None else line_of(session, parent, self._lines.get(parent or b"", ()))

    def _remember(self, session: bytes, line: Line) -> None:
        if self._lines.get(session) == line:
            return
        self._lines.keep(session, line)


def line_of(session: bytes, parent: bytes | None, above: Line) -> Line:
    """The line of a session under a parent, whose own is `above`. One that leads back to the session ends before it."""
    if parent is None or parent == session:
        return ()
    line = (parent, *above)
    return line[: line.index(session)] if session in line else line
