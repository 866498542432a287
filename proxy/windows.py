"""Windows of the calendar: the minute, hour, day, week or month of a stated time zone that a moment falls into.

A budget per day starts anew when the day does where its owner lives, not 24 hours after somebody's first call. Pure: the moment and the
zone come in as arguments.

Days, weeks and months run from the midnight that begins one date to that of another, however long that is: 23 hours or 25 where clocks
change. Hours and minutes follow the clock on the wall; the hour that a clock shows twice is two hours. A name holds the window's start
with its offset from UTC, so that no two windows share one.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import assert_never

import msgspec

_DAY = timedelta(days=1)


class Per(StrEnum):
    """How long a window is."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class Window(msgspec.Struct, frozen=True, gc=False):
    """One stretch of the calendar: `day 2026-11-29+0100`. resets_at: epoch seconds, when the next one begins."""

    name: str
    resets_at: float


def window(per: Per, now: float, zone: tzinfo) -> Window:
    """The window that `now` (epoch seconds) falls into. Weeks begin on Monday."""
    local = datetime.fromtimestamp(now, zone)
    match per:
        case Per.MINUTE:
            return _by_the_clock(per, local, "%Y-%m-%dT%H:%M", 60)
        case Per.HOUR:
            return _by_the_clock(per, local, "%Y-%m-%dT%H", 3600)
        case Per.DAY:
            return _by_dates(per, now, local.date(), lambda day: day + _DAY, zone)
        case Per.WEEK:
            return _by_dates(per, now, local.date() - local.weekday() * _DAY, lambda day: day + 7 * _DAY, zone)
        case Per.MONTH:
            return _by_dates(per, now, local.date().replace(day=1), _next_month, zone)
        case _:
            assert_never(per)


def _by_the_clock(per: Per, local: datetime, form: str, length: int) -> Window:
    """Counted in the offset that holds now: where it changes within an hour, what comes after is another window."""
    past = local.minute * 60 + local.second if per is Per.HOUR else local.second
    began = local.timestamp() - past - local.microsecond / 1e6
    return Window(f"{per} {local.strftime(form)}{_offset(local)}", round(began) + length)


def _by_dates(per: Per, now: float, first: date, after: Callable[[date], date], zone: tzinfo) -> Window:
    began, ends = _midnight(first, zone), _midnight(after(first), zone)
    if now >= ends.timestamp():  # clocks that go back over midnight show the old date once more: the new day has begun all the same
        began, ends = ends, _midnight(after(after(first)), zone)
    return Window(f"{per} {began:%Y-%m-%d}{_offset(began)}", ends.timestamp())


def _midnight(day: date, zone: tzinfo) -> datetime:
    """The first moment of a date. One that the clocks skip is the moment at which they do."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC).astimezone(zone)


def _next_month(first: date) -> date:
    return first.replace(year=first.year + 1, month=1) if first.month == 12 else first.replace(month=first.month + 1)


def _offset(local: datetime) -> str:
    return local.strftime("%z")
