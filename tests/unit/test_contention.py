"""A record that others write too is decided on anew, and given up when every race is lost."""

from proxy.contention import written
from proxy.store import Committed


class Contended:
    """A record that others replace a number of times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.tried: list[tuple[bytes | None, int, bool]] = []
        self.seen: list[bytes | None] = []

    async def commit(self, record: bytes | None, version: int, first: bool) -> Committed:
        self.tried.append((record, version, first))
        if len(self.tried) <= self.times:
            return Committed(True, b"other %d" % len(self.tried), version + 1)
        return Committed(False, record, version + 1)

    async def anew(self, standing: bytes | None) -> bytes | None:
        self.seen.append(standing)
        return b"mine on " + (standing or b"")


async def test_a_record_alone_is_written_at_once() -> None:
    """With what counts whoever wins."""
    store = Contended(0)
    assert await written(store.commit, store.anew, b"mine", 7) == b"mine"
    assert (store.tried, store.seen) == ([(b"mine", 7, True)], [])


async def test_whoever_comes_second_decides_on_what_stands_there() -> None:
    """What counts in any case was counted with the first."""
    store = Contended(2)
    assert await written(store.commit, store.anew, b"mine", 7) == b"mine on other 2"
    assert store.tried == [(b"mine", 7, True), (b"mine on other 1", 8, False), (b"mine on other 2", 9, False)]


async def test_a_record_is_given_up_after_enough_lost_races() -> None:
    """Others go on."""
    store = Contended(99)
    assert await written(store.commit, store.anew, b"mine", 0) is None
    assert len(store.tried) == 16


async def test_nothing_is_written_where_there_is_nothing_any_more() -> None:
    """What stands there now needs no change."""
    store = Contended(99)

    async def nothing(_: bytes | None) -> None:
        return None

    assert await written(store.commit, nothing, b"mine", 0) is None
    assert len(store.tried) == 1
