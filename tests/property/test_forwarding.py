"""However a recorded stream is cut into chunks, the client gets the same bytes and the same is held back."""

import asyncio
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS, Dialect
from proxy.forwarding import Forwarder
from proxy.models import Answer, Reason
from proxy.policy import Ladder, Policy

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
STREAMS = {
    f"{dialect.name}-{path.stem}": (dialect, path.read_bytes())
    for dialect in DIALECTS.values()
    for path in sorted((GOLDEN / dialect.name).glob("*.sse"))
}
ONE_CALL_IS_TOO_MANY = Policy(ladders={Reason.PARALLEL_REPEAT: Ladder(None, 1)})

streams = st.sampled_from(sorted(STREAMS))
places = st.lists(st.integers(0, 100_000), max_size=24)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(marks)]


def follow(
    dialect: Dialect, chunks: list[bytes], *, policy: Policy | None = None, armed: bool, strip: bool = False, objects: bool = False
) -> tuple[bytes, bytes, bool, bool, bool, Answer]:
    out: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    forwarder = Forwarder(
        dialect,
        policy or Policy(),
        armed=armed,
        strip_usage=strip,
        mute=False,
        write=write,
        ending=lambda _: None,
        objects=lambda _: objects,
    )

    async def run() -> None:
        for chunk in chunks:
            await forwarder.take(chunk)
            if forwarder.cut:
                break
        await forwarder.finish()

    asyncio.run(run())
    return b"".join(out), b"".join(forwarder.held), forwarder.holding, forwarder.spoke, forwarder.cut, forwarder.reader.answer()


@given(streams, places, st.booleans())
def test_no_chunking_changes_a_byte(name: str, places: list[int], armed: bool) -> None:
    """What went out and what is held are together the stream."""
    dialect, stream = STREAMS[name]
    out, held, *_ = follow(dialect, cut(stream, places), armed=armed)

    assert out + held == stream


@given(streams, places, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_no_chunking_changes_the_outcome(name: str, places: list[int], armed: bool, strip: bool, strict: bool, objects: bool) -> None:
    """Held, cut, stripped: all of it depends on the stream alone."""
    policy = ONE_CALL_IS_TOO_MANY if strict else Policy()
    dialect, stream = STREAMS[name]
    whole = follow(dialect, [stream], policy=policy, armed=armed, strip=strip, objects=objects)

    assert follow(dialect, cut(stream, places), policy=policy, armed=armed, strip=strip, objects=objects) == whole


@given(streams, places)
def test_an_armed_stream_lets_no_call_out(name: str, places: list[int]) -> None:
    """Read by itself, what went out makes no call."""
    dialect, stream = STREAMS[name]
    out, *_ = follow(dialect, cut(stream, places), armed=True)
    reader = dialect.reader()
    for event in out.split(b"\n\n"):
        reader.feed(event + b"\n\n")

    assert [call for choice in reader.answer().choices for call in choice.calls] == []
