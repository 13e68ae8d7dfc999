"""Parses OpenCost's windows and steps (core/pkg/opencost/window.go), in full UTC hours."""

import re
from datetime import UTC, datetime, timedelta

from gpucost.core.hours import HOUR, MAX_YEAR, MIN_YEAR, floor_day, floor_hour, parse_timestamp

DAY = timedelta(days=1)
_UNITS = {"m": timedelta(minutes=1), "h": HOUR, "d": DAY, "w": 7 * DAY}
_DURATION = re.compile(r"([0-9]{1,6})([mhdw])")
_UNIX_TIMES = re.compile(r"([0-9]{1,12})[,-]([0-9]{1,12})")
NAMED_WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
WINDOW_FORMATS = f"{', '.join(NAMED_WINDOWS)}, a duration like 12h or 7d, or two times with a comma"


def parse_window(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Parse a window and return its start and end.

    As in OpenCost, `7d` is today and the six previous days, `12h` is the current hour and the eleven previous ones, and
    weeks begin on Sunday. `week` and `month` end with the current hour.

    Args:
        text: of one of `WINDOW_FORMATS`.
        now: UTC.

    Raises:
        ValueError: unknown format, empty window, or not full hours. The message says what is allowed.
    """
    start, end = _named_or_relative(text, now) or _start_and_end(text)
    if floor_hour(start) != start or floor_hour(end) != end:
        raise ValueError(f"{text!r} does not start and end at full UTC hours. Costs are stored by hour.")
    if not start < end:
        raise ValueError(f"{text!r} must end after its start.")
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


def _named_or_relative(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    today, current_hour_end = floor_day(now), floor_hour(now) + HOUR
    sunday = today - DAY * ((today.weekday() + 1) % 7)
    month = today.replace(day=1)
    windows = {
        "today": (today, today + DAY),
        "yesterday": (today - DAY, today),
        "week": (sunday, current_hour_end),
        "lastweek": (sunday - 7 * DAY, sunday),
        "month": (month, current_hour_end),
        "lastmonth": ((month - DAY).replace(day=1), month),
    }
    if text in windows:
        return windows[text]
    if match := _DURATION.fullmatch(text):
        duration = parse_duration(text)
        if duration > now - datetime(MIN_YEAR, 1, 1, tzinfo=UTC):
            raise ValueError(f"{text!r} begins before {MIN_YEAR}")
        end = current_hour_end if match[2] in "mh" else today + DAY
        return end - duration, end
    return None


def _start_and_end(text: str) -> tuple[datetime, datetime]:
    if match := _UNIX_TIMES.fullmatch(text):
        try:
            first, last = (datetime.fromtimestamp(int(part), UTC) for part in match.groups())
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}") from None
        if not MIN_YEAR <= first.year <= last.year <= MAX_YEAR:
            raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}")
        return first, last
    begin, comma, end = text.partition(",")
    if not comma:
        raise ValueError(f"{text!r} is not a window; allowed: {WINDOW_FORMATS}.")
    return parse_timestamp(begin), parse_timestamp(end)
