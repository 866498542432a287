"""What of an answer's tokens was cached, thought, heard or seen: chat completions and Responses tell it alike, under names of their own."""

from msgspec import Struct

from proxy.dialects.raw_json import Count
from proxy.models import Usage


class TokenDetails(Struct, gc=False):
    """Of the tokens read or of those produced, as the standard has it; each counts some of them."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    audio_tokens: Count | None = None
    image_tokens: Count | None = None


_NONE = TokenDetails()


def detailed_usage(spent: int, produced: int, read: TokenDetails | None, written: TokenDetails | None, tier: str | None) -> Usage:
    """The usage of an answer. spent, produced: all tokens read and all that it has; read, written: their details."""
    read, written = read or _NONE, written or _NONE
    cached = min(read.cached_tokens or 0, spent)
    return Usage(
        spent,
        produced,
        cached,
        min(written.reasoning_tokens or 0, produced),
        min(read.cache_write_tokens or 0, spent - cached),
        0,
        read.audio_tokens or 0,
        written.audio_tokens or 0,
        read.image_tokens or 0,
        written.image_tokens or 0,
        tier or "",
    )
