"""The sessions' records that a process has at hand, so that it reads and encodes as little of them as it can."""

from proxy.bounded import Bounded
from proxy.state import Parts, Record, dump, load


class Records:
    """Those that this process wrote last: one that comes back as it was written is not read again, and only what is new is encoded.

    A record is handed out once, since whoever has it may change it.
    """

    def __init__(self, most: int = 256) -> None:
        self._written: Bounded[bytes, tuple[bytes, Record]] = Bounded(most)
        self._parts: Bounded[bytes, Parts] = Bounded(most)

    def load(self, session: bytes, data: bytes | None, key: int) -> Record:
        """`load`, for a session."""
        written = self._written.pop(session, None)
        if written is not None and written[0] == data and written[1].key == key:
            return written[1]
        return load(data, key)

    def dump(self, session: bytes, record: Record) -> bytes:
        """`dump`, for a session."""
        parts = self._parts.pop(session, None) or Parts()
        return dump(record, self._parts.keep(session, parts))

    def wrote(self, session: bytes, data: bytes, record: Record) -> None:
        """A session's record is in the store, as `data`; nobody changes it any more."""
        self._written.keep(session, (data, record))
