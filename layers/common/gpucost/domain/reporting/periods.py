"""Periods of reports: `[start, end)` in UTC, given by dates, times or a window, and cut into rows by a granularity."""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from gpucost.domain.hours import HOUR, floor_day, floor_hour, format_instant, parse_instant
from gpucost.domain.rollups import DAY
from gpucost.errors import ParameterError

Granularity = Literal["hour", "day", "week", "month", "total"]
LONGEST: dict[Granularity, timedelta] = {
    "hour": 35 * DAY,
    "day": 100 * DAY,
    "week": 371 * DAY,
    "month": 731 * DAY,
    "total": 371 * DAY,
}
"""The longest period of one answer, by granularity."""
WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
_LENGTH = re.compile(r"([1-9][0-9]{0,3})([hd])", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ALLOWED = f"24h, 7d (any number of hours or days), {', '.join(WINDOWS)}"


@dataclass(frozen=True, slots=True)
class Period:
    """`[start, end)`, of full UTC hours."""

    start: datetime
    end: datetime
    given_by: str = field(default="end", compare=False)
    """The parameter to change where it is too long."""

    def whole_days(self) -> "Period":
        """The UTC days that lie in it as a whole; `(end, end)` where there is none."""
        first, last = floor_day(self.start + DAY - HOUR), floor_day(self.end)
        return Period(first, last) if first < last else Period(self.end, self.end)

    def hours(self) -> int:
        """How many hours it has."""
        return max(0, (self.end - self.start) // HOUR)


def parse_period(start: str | None, end: str | None, window: str | None, now: datetime) -> Period:
    """Read a period from its parameters: either a window, or a start and an end.

    Raises:
        ParameterError: which parameter is missing or wrong, and what is allowed.
    """
    if window is not None:
        given = next((name for name, text in (("start", start), ("end", end)) if text is not None), None)
        if given is not None:
            raise ParameterError(given, "goes without window: give one of the two")
        return replace(window_of(window, now), given_by="window")
    if start is None:
        raise ParameterError("start", f"is needed and missing; or give window: {_ALLOWED}")
    if end is None:
        raise ParameterError("end", f"is needed and missing; or give window: {_ALLOWED}")
    first, last = _moment("start", start), _moment("end", end)
    if last <= first:
        raise ParameterError("end", "must be after start")
    return Period(first, last)


def window_of(text: str, now: datetime) -> Period:
    """A window that is relative to now.

    `24h` are the last 24 hours that have ended; `7d` the last seven UTC days, today with the hours of it that have
    ended included; weeks begin on Monday. In the first hour of a day, `today` is that hour, which has no figures yet.

    Raises:
        ParameterError: not a window; says what is allowed.
    """
    ended, today = floor_hour(now), floor_day(now)
    week, month = today - today.weekday() * DAY, today.replace(day=1)
    if found := _LENGTH.fullmatch(text):
        number = int(found[1])
        return Period(ended - number * HOUR, ended) if found[2] == "h" else _until(today - (number - 1) * DAY, ended)
    if text == "today":
        return _until(today, ended)
    if text == "yesterday":
        return Period(today - DAY, today)
    if text == "week":
        return _until(week, ended)
    if text == "lastweek":
        return Period(week - 7 * DAY, week)
    if text == "month":
        return _until(month, ended)
    if text == "lastmonth":
        return Period((month - DAY).replace(day=1), month)
    raise ParameterError("window", f"{text!r} is not a window; allowed: {_ALLOWED}")


def check_length(period: Period, granularity: Granularity) -> None:
    """Refuse a period that is too long for one answer.

    Raises:
        ParameterError: how long it may be, and which granularity takes more.
    """
    longest = LONGEST[granularity]
    if period.end - period.start > longest:
        more = next(((name, most) for name, most in LONGEST.items() if most > longest), None)
        hint = f"; granularity={more[0]} takes {more[1].days} days" if more else ""
        raise ParameterError(
            period.given_by, f"one answer covers at most {longest.days} days of this kind{hint}; shorten it"
        )


def begin_of(moment: datetime, granularity: Granularity, period: Period) -> datetime:
    """Start of the row in which a moment lies: a row never begins before the period that was asked for."""
    if granularity == "hour":
        return floor_hour(moment)
    if granularity == "total":
        return period.start
    return max(_floor(moment, granularity), period.start)


def end_of(begin: datetime, granularity: Granularity, period: Period) -> datetime:
    """End of the row that begins there: a row never ends after the period that was asked for."""
    if granularity == "total":
        return period.end
    if granularity == "hour":
        return begin + HOUR
    if granularity == "month":
        return min((_floor(begin, "month") + 32 * DAY).replace(day=1), period.end)
    return min(_floor(begin, granularity) + (DAY if granularity == "day" else 7 * DAY), period.end)


def period_before(period: Period) -> Period:
    """The period of the same length before one; of a calendar month, the month before it."""
    start, end = period.start, period.end
    if start == _floor(start, "month") and end == (start + 32 * DAY).replace(day=1):
        return Period((start - DAY).replace(day=1), start)
    return Period(start - (end - start), start)


def _floor(moment: datetime, granularity: Granularity) -> datetime:
    day = floor_day(moment)
    if granularity == "week":
        return day - day.weekday() * DAY
    return day.replace(day=1) if granularity == "month" else day


def _until(start: datetime, ended: datetime) -> Period:
    return Period(start, max(ended, start + HOUR))


def parse_moment(name: str, text: str) -> datetime:
    """Read a parameter that is a UTC time, or a day for its first moment.

    Raises:
        ParameterError: it is neither; says what is allowed.
    """
    try:
        return parse_instant(f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text)
    except (ValueError, OverflowError):
        raise ParameterError(
            name, f"{text!r} is not a UTC time like 2026-11-19T10:00:00Z or a day like 2026-11-19, of 1971 to 9998"
        ) from None


def _moment(name: str, text: str) -> datetime:
    moment = parse_moment(name, text)
    if floor_hour(moment) != moment:
        raise ParameterError(
            name, f"{format_instant(moment)} is not on a full UTC hour; it lies in {format_instant(floor_hour(moment))}"
        )
    return moment
