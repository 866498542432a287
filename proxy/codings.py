"""Content codings undone piece by piece: of what clients send, and of answers of upstreams that were asked for none.

What comes out of a step is bounded, so that whoever counts it can stop in time. Pure.
"""

import zlib
from collections.abc import Iterator

import zstandard

CODINGS = frozenset({"gzip", "x-gzip", "deflate", "zstd"})
_STEP = 1024  # bytes decoded at once: four of zstd can stand for 128 KiB, of the others each for one
_LARGEST_WINDOW = 1 << 27
_HALF_BYTE, _DEFLATE = 0x0F, 8  # the lower half of a zlib header's first byte names the method; the upper one is the window


class CodingError(ValueError):
    """What came is not what it is said to be. Says how, to follow "is"."""


class Decoder:
    """One body. Feed it all of it, then call `end`.

    coding: one of `CODINGS`. most: members of gzip data or frames of zstd data, each of which costs far more than its few bytes; None for
    any number.
    """

    __slots__ = ("_coding", "_most", "_piece", "_pieces")

    def __init__(self, coding: str, most: int | None = None) -> None:
        self._coding = coding
        self._most = most
        self._piece: zlib._Decompress | zstandard.ZstdDecompressionObj | None = None
        self._pieces = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes add, never empty. Raises `CodingError`."""
        try:
            for start in range(0, len(data), _STEP):
                part = data[start : start + _STEP]
                while part:  # data may be several pieces, one behind another
                    piece = self._piece or self._begun(part)
                    if decoded := piece.decompress(part):
                        yield decoded
                    ended = piece.eof
                    part, self._piece = (piece.unused_data, None) if ended else (b"", piece)
        except (zlib.error, zstandard.ZstdError) as error:
            raise CodingError(f"not {self._coding} data, as content-encoding says it is") from error

    def end(self) -> None:
        """Raises `CodingError` when a piece has not come to its end."""
        if self._piece is not None:
            raise CodingError(f"no complete {self._coding} data, as content-encoding says it is")

    def _begun(self, start: bytes) -> "zlib._Decompress | zstandard.ZstdDecompressionObj":
        self._pieces += 1
        if self._most is not None and self._pieces > self._most:
            raise CodingError(f"{self._coding} data in more than {self._most} pieces; compress it as one")
        if self._coding == "zstd":
            return zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
        # Either of the two headers, or none: some send `deflate` without its own.
        return zlib.decompressobj(47 if self._coding != "deflate" or start[0] & _HALF_BYTE == _DEFLATE else -15)
