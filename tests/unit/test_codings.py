"""Content codings undone piece by piece. What clients send is tried in `test_client`, answers in `tests/e2e/test_upstream_http.py`."""

import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.codings import CODINGS, CodingError, Decoder

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", sorted(CODINGS))
@given(parts=st.lists(st.binary(max_size=3_000), min_size=1, max_size=4), size=st.integers(1, 5_000))
def test_however_it_arrives_the_data_come_out(coding: str, parts: list[bytes], size: int) -> None:
    """Several pieces of packed data in a row, fed in any size: never an empty piece, and an end."""
    packed = b"".join([PACK[coding](part) for part in parts])
    decoder = Decoder(coding)

    got = [piece for start in range(0, len(packed), size) for piece in decoder.feed(packed[start : start + size])]
    decoder.end()
    assert b"".join(got) == b"".join(parts)
    assert all(got)


@pytest.mark.parametrize("window", [*range(9, 16), -15])
def test_deflated_data_of_any_window_come_out(window: int) -> None:
    """Their header names the window, and some come without a header."""
    packer = zlib.compressobj(wbits=window)
    decoder = Decoder("deflate")

    assert b"".join(decoder.feed(packer.compress(b"hello " * 99) + packer.flush())) == b"hello " * 99
    decoder.end()


@pytest.mark.parametrize("coding", sorted(CODINGS))
def test_a_step_gives_no_more_than_it_may(coding: str) -> None:
    """So that who counts can stop in time: 100 MB of nothing come in pieces."""
    packed = PACK[coding](bytes(100_000_000))

    assert len(next(iter(Decoder(coding).feed(packed)))) <= 256 * 128 * 1024


@pytest.mark.parametrize("coding", sorted(CODINGS))
@given(data=st.binary(min_size=1, max_size=100))
def test_any_bytes_are_data_or_an_error(coding: str, data: bytes) -> None:
    """Nothing else is raised."""
    decoder = Decoder(coding, most=2)
    try:
        list(decoder.feed(data))
        decoder.end()
    except CodingError as error:
        assert str(error).startswith(("no", "deflate data in more"))
