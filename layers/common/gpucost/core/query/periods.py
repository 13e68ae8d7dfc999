"""Periods of reports: `[start, end)` in UTC, given by dates, times or a window, and cut into rows by a granularity."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from gpucost.core.errors import ParameterError
from gpucost.core.hours import HOUR, floor_day, floor_hour, format_timestamp, parse_date_or_timestamp
from gpucost.core.rollups import DAY

Granularity = Literal["hour", "day", "week", "month", "total"]
MAX_LENGTHS: dict[Granularity, timedelta] = {
    "hour": 35 * DAY,
    "day": 100 * DAY,
    "week": 371 * DAY,
    "month": 731 * DAY,
    "total": 371 * DAY,
}
"""The longest period of one answer, by granularity."""
WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
_DURATION = re.compile(r"([1-9][0-9]{0,3})([hd])", re.ASCII)
DEFAULT_WINDOW = "24h"
"""What a question without a period is about."""
_ALLOWED = f"24h, 7d (any number of hours or days), {', '.join(WINDOWS)}"


@dataclass(frozen=True, slots=True)
class Period:
    """`[start, end)`, of full UTC hours."""

    start: datetime
    end: datetime
    parameter: Literal["end", "window", "default"] = field(default="end", compare=False)
    """The parameter to change where it is too long; `default` where there was none."""

    def whole_days(self) -> "Period":
        """The UTC days that lie in it as a whole; `(end, end)` where there is none."""
        first, last = floor_day(self.start + DAY - HOUR), floor_day(self.end)
        return Period(first, last) if first < last else Period(self.end, self.end)

    def hours(self) -> int:
        """How many hours it has."""
        return max(0, (self.end - self.start) // HOUR)


def parse_period(
    start: str | None,
    end: str | None,
    window: str | None,
    now: datetime,
    parse: Callable[[str, str], datetime] | None = None,
) -> Period:
    """Read a period from its parameters: a window, or a start and an end; the default window where none is there.

    Args:
        start: as it came.
        end: as it came.
        window: as it came.
        now: the time now.
        parse: reads start and end by their names; without, they are full hours.

    Raises:
        ParameterError: which parameter is missing or wrong, and what is allowed.
    """
    if window is not None:
        surplus = next((name for name, text in (("start", start), ("end", end)) if text is not None), None)
        if surplus is not None:
            raise ParameterError(surplus, "is not allowed with window; pass either start and end, or window")
        return replace(parse_window(window, now), parameter="window")
    if start is None and end is None:
        return replace(parse_window(DEFAULT_WINDOW, now), parameter="default")
    if start is None:
        raise ParameterError("start", f"required with end; pass start and end, or window: {_ALLOWED}")
    if end is None:
        raise ParameterError("end", f"required with start; pass start and end, or window: {_ALLOWED}")
    parse = parse or parse_hour_parameter
    first, last = parse("start", start), parse("end", end)
    if last <= first:
        raise ParameterError("end", "must be after start")
    return Period(first, last)


def parse_window(text: str, now: datetime) -> Period:
    """A window that is relative to now.

    `24h` are the last 24 hours that have ended; `7d` the last seven UTC days, today with the hours of it that have
    ended included; weeks begin on Monday. In the first hour of a day, `today` is that hour, which has no figures yet.

    Raises:
        ParameterError: not a window; says what is allowed.
    """
    ended, today = floor_hour(now), floor_day(now)
    week, month = today - today.weekday() * DAY, today.replace(day=1)
    if match := _DURATION.fullmatch(text):
        number = int(match[1])
        return Period(ended - number * HOUR, ended) if match[2] == "h" else _until(today - (number - 1) * DAY, ended)
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
    longest = MAX_LENGTHS[granularity]
    if period.end - period.start > longest:
        more = next(((name, most) for name, most in MAX_LENGTHS.items() if most > longest), None)
        hint = f"; granularity={more[0]} takes {more[1].days} days" if more else ""
        raise ParameterError(
            period.parameter, f"one answer covers at most {longest.days} days of this kind{hint}; shorten it"
        )


def row_start(moment: datetime, granularity: Granularity, period: Period) -> datetime:
    """Start of the row in which a moment lies: a row never begins before the period that was asked for."""
    if granularity == "hour":
        return floor_hour(moment)
    if granularity == "total":
        return period.start
    return max(_floor(moment, granularity), period.start)


def row_end(begin: datetime, granularity: Granularity, period: Period) -> datetime:
    """End of the row that begins there: a row never ends after the period that was asked for."""
    if granularity == "total":
        return period.end
    if granularity == "hour":
        return begin + HOUR
    if granularity == "month":
        return min((_floor(begin, "month") + 32 * DAY).replace(day=1), period.end)
    return min(_floor(begin, granularity) + (DAY if granularity == "day" else 7 * DAY), period.end)


def previous_period(period: Period) -> Period:
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


def parse_moment_parameter(name: str, text: str) -> datetime:
    """Read a parameter that is a UTC time, or a day for its first moment.

    Raises:
        ParameterError: it is neither; says what is allowed.
    """
    try:
        return parse_date_or_timestamp(text)
    except ValueError as error:
        raise ParameterError(name, str(error)) from None


def parse_hour_parameter(name: str, text: str) -> datetime:
    """Read a parameter that is a full UTC hour, or a day for its first hour.

    Raises:
        ParameterError: it is neither; says what is allowed.
    """
    moment = parse_moment_parameter(name, text)
    if floor_hour(moment) != moment:
        raise ParameterError(
            name,
            f"{format_timestamp(moment)} is not on a full UTC hour; it lies in {format_timestamp(floor_hour(moment))}",
        )
    return moment
