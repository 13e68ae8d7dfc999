"""Parses OpenCost's windows and steps (core/pkg/opencost/window.go), in full UTC hours."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gpucost.core.hours import HOUR, MAX_YEAR, MIN_YEAR, floor_day, floor_hour, format_timestamp, parse_timestamp

DAY = timedelta(days=1)
_UNITS = {"m": timedelta(minutes=1), "h": HOUR, "d": DAY, "w": 7 * DAY}
_DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
_NAMED_STEPS = {"hour": HOUR, "day": DAY, "week": 7 * DAY, "month": DAY, "quarter": DAY}
"""OpenCost's names of steps. Months and quarters are computed from days."""
_UNIX_TIMES = re.compile(r"([0-9]{1,12})[,-]([0-9]{1,12})")
NAMED_WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
WINDOW_FORMATS = f"{', '.join(NAMED_WINDOWS)}, a duration like 12h or 7d, or two times with a comma"
_SECOND = timedelta(seconds=1)


def parse_window(text: str, now: datetime, published_until: Callable[[], datetime]) -> tuple[datetime, datetime]:
    """Parse a window and return its start and end.

    As in OpenCost, `7d` is today and the six previous days, and weeks begin on Sunday. No window contains hours that
    are not published yet, because rates would be too low: it ends with the newest published hour, and `12h` is the
    newest twelve. If no hour of the window is published, its end is its start.

    Args:
        text: of one of `WINDOW_FORMATS`.
        now: UTC.
        published_until: returns the end of the newest published hour.

    Raises:
        ValueError: unknown format, empty window, or not full hours. The message says what is allowed.
    """
    match = _DURATION.fullmatch(text)
    if match and match[2] in "mh":
        end = published_until()
        return _begin(text, end, now), end
    start, end = _named_window(text, now) or (_days(text, now) if match else _start_and_end(text))
    if not start < end:
        raise ValueError(f"{text!r} must end after its start.")
    if end > floor_hour(now) - HOUR:
        end = max(start, min(end, published_until()))
    return start, end


def parse_duration(text: str) -> timedelta:
    """Parse a duration of full hours: `1h`, `1d`, `1w`, `120m`.

    Raises:
        ValueError: not a duration of full hours. The message says what is allowed.
    """
    match = _DURATION.fullmatch(text)
    duration = int(match[1]) * _UNITS[match[2]] if match else timedelta()
    if duration < HOUR or duration % HOUR:
        raise ValueError(f"{text!r} is not a duration of full hours. Use for example 1h, 1d or 1w.")
    return duration


def parse_step(text: str) -> timedelta:
    """Parse a step: a duration of full hours, or a name such as `day`.

    Raises:
        ValueError: neither. The message says what is allowed.
    """
    return _NAMED_STEPS.get(text.strip().lower()) or parse_duration(text)


def _named_window(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    today, current_hour_end = floor_day(now), floor_hour(now) + HOUR
    sunday = start_of_week(today)
    month = today.replace(day=1)
    windows = {
        "today": (today, today + DAY),
        "yesterday": (today - DAY, today),
        "week": (sunday, current_hour_end),
        "lastweek": (sunday - 7 * DAY, sunday),
        "month": (month, current_hour_end),
        "lastmonth": ((month - DAY).replace(day=1), month),
    }
    return windows.get(text)


def start_of_week(day: datetime) -> datetime:
    """Return the Sunday on or before a day."""
    return day - DAY * ((day.weekday() + 1) % 7)


def _days(text: str, now: datetime) -> tuple[datetime, datetime]:
    end = floor_day(now) + DAY
    return _begin(text, end, now), end


def _begin(text: str, end: datetime, now: datetime) -> datetime:
    duration = parse_duration(text)
    if duration > now - datetime(MIN_YEAR, 1, 1, tzinfo=UTC):
        raise ValueError(f"{text!r} begins before {MIN_YEAR}")
    return end - duration


def _start_and_end(text: str) -> tuple[datetime, datetime]:
    if match := _UNIX_TIMES.fullmatch(text):
        try:
            first, last = (datetime.fromtimestamp(int(part), UTC) for part in match.groups())
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}") from None
        if not MIN_YEAR <= first.year <= last.year <= MAX_YEAR:
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}")
        return _full_hours(text, first, last)
    begin, comma, end = text.partition(",")
    if not comma:
        raise ValueError(f"{text!r} is not a window; allowed: {WINDOW_FORMATS}.")
    return _full_hours(text, parse_timestamp(begin), parse_timestamp(end))


def _full_hours(text: str, start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return a window in full hours.

    OpenCost's UI ends a day at 23:59:59, and the last 24 hours at the current second. The former is the end of the
    hour; the latter moves back to full hours, which does not change its length.
    """
    if end - floor_hour(end) == HOUR - _SECOND:
        end += _SECOND
    first, last = floor_hour(start), floor_hour(end)
    if start - first != end - last:
        last += HOUR if end > last else timedelta()
        raise ValueError(
            f"{text!r} does not start and end at full UTC hours. Costs are stored by hour. Use "
            f"{format_timestamp(first)},{format_timestamp(last)}."
        )
    return first, last
