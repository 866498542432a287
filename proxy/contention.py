"""Writing a record that others write too: whoever comes second looks at what stands there then, and decides once more."""

from collections.abc import Awaitable, Callable

from proxy.store import Committed

_CONFLICTS = 16  # lost races in a row before a record is given up

Commit = Callable[[bytes | None, int, bool], Awaitable[Committed]]
Anew = Callable[[bytes | None], Awaitable[bytes | None]]


async def written(commit: Commit, anew: Anew, record: bytes | None, version: int) -> bytes | None:
    """The record that the store took, None where there was none to write or every race was lost. Raises `StoreUnavailable`.

    commit: `Store.commit` of a record at a version; True with the first, which also brings what counts whoever wins. anew: the record to
    write in the place of the one that stands there now, None for none any more.
    """
    done = await commit(record, version, True)
    return await written_anew(commit, anew, done) if done.conflict else record


async def written_anew(commit: Commit, anew: Anew, lost: Committed) -> bytes | None:
    """The same for whoever lost the first race, to what stands there now."""
    for _ in range(_CONFLICTS - 1):
        record = await anew(lost.record)
        if record is None:
            return None
        done = await commit(record, lost.version, False)
        if not done.conflict:
            return record
        lost = done
    return None
