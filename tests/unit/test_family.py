"""Which sessions stand above which."""

import pytest

from proxy.errors import BadRequest
from proxy.family import MAX_DEPTH, Family, line_of
from proxy.state import VERSION, Record, load
from proxy.store import Account
from proxy.store.memory import MemoryStore

KEY = 7


def new() -> Record:
    return Record(VERSION, KEY)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 1_000.0, lambda size: bytes(size))


@pytest.mark.parametrize(
    ("parent", "above", "line"),
    [
        (None, (b"g",), ()),
        (b"s", (), ()),
        (b"p", (), (b"p",)),
        (b"p", (b"g", b"r"), (b"p", b"g", b"r")),
        (b"p", (b"s", b"r"), (b"p",)),
    ],
)
def test_a_line_ends_before_it_leads_back(parent: bytes | None, above: tuple[bytes, ...], line: tuple[bytes, ...]) -> None:
    """A session is not its own ancestor, whatever clients say."""
    assert line_of(b"s", parent, above) == line


async def test_what_was_settled_is_not_guessed_again(store: MemoryStore) -> None:
    """Another parent named later changes nothing."""
    family = Family(60.0)
    assert family.guess(b"s", b"p") == (b"p",)
    assert await family.above(store, b"p", b"g", new(), new=True) == ((b"g",), 1)
    assert family.guess(b"s", b"p") == (b"p", b"g")
    for _ in range(2):
        assert await family.above(store, b"s", b"p", new(), new=False) == ((), 0)
    assert family.guess(b"s", b"p") == ()


async def test_the_first_request_of_a_race_settles_it(store: MemoryStore) -> None:
    """Whichever process serves it; the other one's record is not taken for its own."""
    assert await Family(60.0).above(store, b"s", b"p", new(), new=True) == ((b"p",), 1)
    assert await Family(60.0).above(store, b"s", b"q", new(), new=True) == ((b"p",), 0)


async def test_what_is_remembered_is_bounded(store: MemoryStore) -> None:
    """The oldest goes."""
    family, nobody = Family(60.0), new()
    for number in range(8193):
        await family.above(store, number.to_bytes(4, "big"), None, nobody, new=True)
    assert (family.guess(bytes(4), b"p"), family.guess((8192).to_bytes(4, "big"), b"p")) == ((b"p",), ())


async def test_a_line_has_an_end(store: MemoryStore) -> None:
    """More cannot be charged, and less would be a way around a budget: what is further down is refused, in every process, from then on."""
    family = Family(60.0)
    for depth in range(MAX_DEPTH):
        line, _ = await family.above(store, b"s%d" % (depth + 1), b"s%d" % depth, new(), new=True)
        assert len(line) == depth + 1
    for session, parent in ((b"s9", b"s8"), (b"s10", b"s9"), (b"s11", b"s10")):
        with pytest.raises(BadRequest, match="more than 8 sessions above it; name a session further up in 'x-lastcall-parent'"):
            await family.above(store, session, parent, new(), new=True)
        family = Family(60.0)  # another process, which has seen none of them
        (kept,) = await store.peek([Account(session)])
        assert kept is not None
        record = load(kept.record, KEY)
        assert len(record.line) == MAX_DEPTH + 1
        with pytest.raises(BadRequest, match="more than 8"):
            await family.above(store, session, None, record, new=False)
