"""The details of an answer's tokens."""

from proxy.dialects.token_details import TokenDetails, detailed_usage
from proxy.models import Usage


def test_details_are_parts_of_what_they_are_of() -> None:
    """What is cached and what is written to the cache is input, what is thought is output: none of them is more than that."""
    read = TokenDetails(cached_tokens=60, cache_write_tokens=70, audio_tokens=3, image_tokens=4)
    written = TokenDetails(reasoning_tokens=90, audio_tokens=5, image_tokens=6)

    assert detailed_usage(100, 50, read, written, "flex") == Usage(
        100, 50, 60, 50, 40, audio_input=3, audio_output=5, image_input=4, image_output=6, tier="flex"
    )


def test_what_is_not_told_is_none() -> None:
    """Details may be missing, and so may any of them."""
    assert detailed_usage(100, 50, None, None, None) == Usage(100, 50)
    assert detailed_usage(100, 50, TokenDetails(), TokenDetails(cached_tokens=9), "") == Usage(100, 50)
