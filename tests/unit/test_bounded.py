"""Dictionaries that stay small."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.bounded import Bounded


@given(st.integers(1, 140), st.lists(st.integers(0, 200), max_size=400))
def test_it_holds_the_newest_and_no_more_than_it_may(most: int, keys: list[int]) -> None:
    """What was kept last is there, in the order in which it came first; an entry that is kept anew makes nobody leave."""
    kept = Bounded[int, int](most)
    for number, key in enumerate(keys):
        before = dict(kept)
        assert kept.keep(key, number) == number
        assert len(kept) <= most
        assert kept[key] == number
        if key in before or len(before) < most:
            assert dict(kept) == before | {key: number}
        else:
            assert list(kept) == [*list(before)[most // 64 + 1 :], key]


def test_most_of_what_came_last_is_still_there() -> None:
    """However many there were: a small part leaves at once."""
    kept = Bounded[int, int](800)
    for number in range(10_000):
        kept.keep(number, number)
    assert 787 <= len(kept) <= 800
    assert list(kept) == list(range(10_000 - len(kept), 10_000))
