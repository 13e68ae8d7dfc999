"""UTC hours: the unit of record is one cluster and one hour, `[hour, hour + 1h)`."""

import re
from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
MIN_YEAR, MAX_YEAR = 1971, 9998
"""Times that a zone, an hour or a look-back can be added to without leaving the calendar."""


def parse_timestamp(text: str) -> datetime:
    """Read an ISO 8601 instant with a zone (`2026-11-19T10:00:00Z`) as UTC.

    Raises:
        ValueError: not an ISO 8601 time, or one without a zone; the message says what is allowed.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is not a UTC time like 2026-11-19T10:00:00Z")
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        raise ValueError(f"{text!r} lies outside the years {MIN_YEAR} to {MAX_YEAR}")
    return moment.astimezone(UTC)


def parse_date_or_timestamp(text: str) -> datetime:
    """Read an instant, or a day (`2026-11-19`) for its first moment, UTC.

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
    """Read the start of a UTC hour, or a day for its first hour.

    Raises:
        ValueError: not a time, or not on the full hour.
    """
    moment = parse_date_or_timestamp(text)
    if floor_hour(moment) != moment:
        raise ValueError(
            f"{text!r} is not on the full hour; the hour it lies in is {format_timestamp(floor_hour(moment))}"
        )
    return moment


def floor_hour(moment: datetime) -> datetime:
    """The start of the hour in which a moment lies."""
    return moment.replace(minute=0, second=0, microsecond=0)


def floor_day(moment: datetime) -> datetime:
    """The start of the UTC day in which a moment lies."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def month_of(moment: datetime) -> str:
    """The UTC month in which a moment lies, as `2026-10`."""
    return moment.astimezone(UTC).strftime("%Y-%m")


def month_bounds(moment: datetime) -> tuple[datetime, datetime]:
    """First moment of a UTC month, and of the next one."""
    start = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def parse_month(month: str) -> tuple[datetime, datetime]:
    """A month's first hour, and the next month's.

    Raises:
        ValueError: not a month like 2026-10.
    """
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", month):
        raise ValueError(f"{month!r} is not a month like 2026-10")
    start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)
    return start, (start + timedelta(days=31)).replace(day=1)


def format_timestamp(moment: datetime) -> str:
    """`2026-11-19T10:00:00Z`, the one form in which times leave the system."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, exact (Prometheus' own resolution)."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000 + delta.microseconds // 1_000


def hours_between(start: datetime, end: datetime) -> list[datetime]:
    """Every hour start in `[start, end)`."""
    count = max(0, -((start - end) // HOUR))
    return [start + HOUR * i for i in range(count)]


def format_epoch_ms(milliseconds: int) -> str:
    """Milliseconds since the epoch as `2026-11-19T10:00:00Z`."""
    return format_timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
