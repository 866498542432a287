"""Calendar windows: their names, when they reset, and what clocks that change do to them."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.windows import Per, Window, window

BERLIN = ZoneInfo("Europe/Berlin")
# One hour of summer time, half an hour of it, clocks that change at midnight, odd offsets, a date that was skipped.
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "America/Santiago", "America/Havana"),
    *("Asia/Kathmandu", "Pacific/Chatham", "Pacific/Apia", "Africa/Casablanca", "America/St_Johns"),
)


def at(text: str, zone: tzinfo = UTC, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("per", "name", "resets"),
    [
        (Per.MINUTE, "minute 2026-11-29T23:59+0000", "2026-11-30T00:00"),
        (Per.HOUR, "hour 2026-11-29T23+0000", "2026-11-30T00:00"),
        (Per.DAY, "day 2026-11-29+0000", "2026-11-30T00:00"),
        (Per.WEEK, "week 2026-11-23+0000", "2026-11-30T00:00"),
        (Per.MONTH, "month 2026-11-01+0000", "2026-12-01T00:00"),
    ],
)
def test_a_moment_and_its_windows(per: Per, name: str, resets: str) -> None:
    """The last second of a Sunday, in UTC."""
    assert window(per, at("2026-11-29T23:59:59.999"), UTC) == Window(name, at(resets))


@pytest.mark.parametrize("per", [Per.DAY, Per.WEEK, Per.MONTH])
def test_the_zone_decides_which_day_it_is(per: Per) -> None:
    """Late on 31 December in London it is the next day, week and month in Tokyo."""
    now = at("2028-12-31T20:00")

    assert window(per, now, ZoneInfo("Asia/Tokyo")).name == f"{per} 2029-01-01+0900"


def test_a_day_on_which_clocks_go_forward_has_23_hours() -> None:
    """From midnight to midnight, and not from midnight for 24 hours."""
    assert window(Per.DAY, at("2026-03-29T12:00", BERLIN), BERLIN).resets_at - at("2026-03-29T00:00", BERLIN) == 23 * 3600


def test_a_day_on_which_clocks_go_back_has_25_hours() -> None:
    """The hour that comes twice counts twice."""
    assert window(Per.DAY, at("2026-10-25T12:00", BERLIN), BERLIN).resets_at - at("2026-10-25T00:00", BERLIN) == 25 * 3600


def test_an_hour_shown_twice_is_two_hours() -> None:
    """Each with a name of its own, the first ending where the second begins."""
    first, second = (window(Per.HOUR, at("2026-10-25T02:30", BERLIN, fold), BERLIN) for fold in (0, 1))

    assert (first.name, second.name) == ("hour 2026-10-25T02+0200", "hour 2026-10-25T02+0100")
    assert second.resets_at - first.resets_at == 3600
    assert first.resets_at == at("2026-10-25T02:00", BERLIN, fold=1)


def test_a_midnight_that_is_skipped() -> None:
    """In Beirut clocks go from midnight to one: the day begins then."""
    zone = ZoneInfo("Asia/Beirut")
    changed = at("2024-03-30T22:00")

    assert window(Per.DAY, changed - 1, zone).resets_at == changed
    assert window(Per.DAY, changed, zone) == Window("day 2024-03-31+0300", at("2024-03-31T21:00"))


def test_a_date_shown_once_more_is_not_begun_again() -> None:
    """In Newfoundland clocks went back from one minute past midnight to the day before, whose budget must not reset twice."""
    zone = ZoneInfo("America/St_Johns")
    once_more = at("2006-10-28T23:30", zone, fold=1)

    assert window(Per.DAY, once_more, zone).name == "day 2006-10-29-0230"
    assert window(Per.DAY, at("2006-10-29T12:00", zone), zone).name == "day 2006-10-29-0230"


@given(
    per=st.sampled_from(Per),
    now=st.floats(at("2012-01-01"), at("2040-01-01")),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
)
def test_windows_follow_one_another_without_gap_or_overlap(per: Per, now: float, zone: ZoneInfo) -> None:
    """At its reset a window ends and another, of another name, begins; until then nothing changes."""
    current = window(per, now, zone)
    following = window(per, current.resets_at, zone)

    assert now < current.resets_at < following.resets_at
    assert following.name != current.name
    assert window(per, current.resets_at - 0.001, zone) == current
    assert window(per, (now + current.resets_at) / 2, zone) == current
