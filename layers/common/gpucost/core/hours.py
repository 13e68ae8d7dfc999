"""UTC hours, days and months: parsing, formatting and rounding. An hour is `[hour, hour + 1h)`."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOUR_MS = 3_600_000
HOURS_PER_MONTH = 730
"""8,760 hours of a year ÷ 12, as on AWS's price pages."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
MIN_YEAR, MAX_YEAR = 1971, 9998
"""The years within which adding a time zone, an hour or a look-back never leaves the range of `datetime`."""


def parse_timestamp(text: str) -> datetime:
    """Parse an ISO 8601 timestamp with a time zone (`2026-11-19T10:00:00Z`) and convert it to UTC.

    Raises:
        ValueError: not an ISO 8601 timestamp, or one without a time zone; the message says what is allowed.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is not a UTC time like 2026-11-19T10:00:00Z")
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        raise ValueError(f"{text!r} is outside the years {MIN_YEAR} to {MAX_YEAR}")
    return moment.astimezone(UTC)


def parse_date_or_timestamp(text: str) -> datetime:
    """Parse a timestamp, or a date (`2026-11-19`) as its midnight in UTC.

    Raises:
        ValueError: neither; the message says what is allowed.
    """
    try:
        return parse_timestamp(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a UTC time like 2026-11-19T10:00:00Z or a day like 2026-11-19, of {MIN_YEAR} to "
            f"{MAX_YEAR}"
        ) from None


def parse_hour(text: str) -> datetime:
    """Parse the start of a UTC hour, or a date as its first hour.

    Raises:
        ValueError: not a timestamp, or not on the full hour.
    """
    moment = parse_date_or_timestamp(text)
    if floor_hour(moment) != moment:
        raise ValueError(f"{text!r} is not on the full hour; it is in the hour {format_timestamp(floor_hour(moment))}")
    return moment


def floor_hour(moment: datetime) -> datetime:
    """Round a time down to its hour."""
    return moment.replace(minute=0, second=0, microsecond=0)


def floor_day(moment: datetime) -> datetime:
    """Round a UTC time down to its day."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def month_of(moment: datetime) -> str:
    """Return the UTC month of a time, as `2026-10`."""
    return moment.astimezone(UTC).strftime("%Y-%m")


def month_bounds(moment: datetime) -> tuple[datetime, datetime]:
    """Return the start of a time's UTC month and the start of the next month."""
    start = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def parse_month(month: str) -> tuple[datetime, datetime]:
    """Parse a month (`2026-10`) into its start and the start of the next month.

    Raises:
        ValueError: not a month like 2026-10.
    """
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", month):
        raise ValueError(f"{month!r} is not a month like 2026-10")
    start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)
    return start, (start + timedelta(days=31)).replace(day=1)


def format_timestamp(moment: datetime) -> str:
    """Format a time as `2026-11-19T10:00:00Z`, the only format in which the product writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_epoch_ms(moment: datetime) -> int:
    """Return milliseconds since the epoch, which is Prometheus' resolution."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000 + delta.microseconds // 1_000


def hours_between(start: datetime, end: datetime) -> list[datetime]:
    """Return the start of every hour in `[start, end)`."""
    count = max(0, -((start - end) // HOUR))
    return [start + HOUR * offset for offset in range(count)]


def consecutive_runs(hours: Iterable[datetime]) -> list[list[datetime]]:
    """Group hours into runs of consecutive hours, in order."""
    runs: list[list[datetime]] = []
    for hour in sorted(hours):
        if runs and runs[-1][-1] + HOUR == hour:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs


def format_epoch_ms(milliseconds: int) -> str:
    """Format milliseconds since the epoch as `2026-11-19T10:00:00Z`."""
    return format_timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
