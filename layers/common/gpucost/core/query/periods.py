"""Periods of reports: `[start, end)` in UTC, their rows by granularity, and the run rate to a period's end."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from gpucost.core.amounts import WIDE_CONTEXT, quantize
from gpucost.core.errors import ParameterError
from gpucost.core.hours import DAY, HOUR, floor_day, floor_hour, format_timestamp, parse_date_or_timestamp

Granularity = Literal["hour", "day", "week", "month", "total"]
MAX_LENGTHS: dict[Granularity, timedelta] = {
    "hour": 35 * DAY,
    "day": 100 * DAY,
    "week": 371 * DAY,
    "month": 731 * DAY,
    "total": 371 * DAY,
}
"""The longest period of one response, by granularity."""
WINDOWS = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
_DURATION = re.compile(r"([1-9][0-9]{0,3})([hd])", re.ASCII)
DEFAULT_WINDOW = "24h"
"""The window of a query without a period."""
_ALLOWED_WINDOWS = f"24h, 7d (any number of hours or days), {', '.join(WINDOWS)}"


@dataclass(frozen=True, slots=True)
class Period:
    """`[start, end)`, of full UTC hours."""

    start: datetime
    end: datetime
    parameter: Literal["end", "window", "default"] = field(default="end", compare=False)
    """The parameter to name in an error about the period; `default` if it came from no parameter."""

    def full_days(self) -> "Period":
        """Return the period of full UTC days within it; `(end, end)` without any."""
        first, last = floor_day(self.start + DAY - HOUR), floor_day(self.end)
        return Period(first, last) if first < last else Period(self.end, self.end)

    def hours(self) -> int:
        """Return the number of its hours."""
        return max(0, (self.end - self.start) // HOUR)


def parse_period(
    start: str | None,
    end: str | None,
    window: str | None,
    now: datetime,
    parse: Callable[[str, str], datetime] | None = None,
    published_until: Callable[[], datetime] | None = None,
) -> Period:
    """Parse a period from a window, or from a start and an end; the default window without parameters.

    Args:
        start: the parameter's text.
        end: the parameter's text.
        window: the parameter's text.
        now: the current time.
        parse: parses start and end from name and text; None for full hours.
        published_until: returns the end of the hours that have figures, where windows end; None for all ended hours.

    Raises:
        ParameterError: a parameter is missing or invalid; says what is allowed.
    """
    if window is not None:
        surplus = next((name for name, text in (("start", start), ("end", end)) if text is not None), None)
        if surplus is not None:
            raise ParameterError(surplus, "is not allowed with window; pass either start and end, or window")
        return replace(parse_window(window, now, published_until), parameter="window")
    if start is None and end is None:
        return replace(parse_window(DEFAULT_WINDOW, now, published_until), parameter="default")
    if start is None:
        raise ParameterError("start", f"required with end; pass start and end, or window: {_ALLOWED_WINDOWS}")
    if end is None:
        raise ParameterError("end", f"required with start; pass start and end, or window: {_ALLOWED_WINDOWS}")
    parse = parse or parse_hour_parameter
    first, last = parse("start", start), parse("end", end)
    if last <= first:
        raise ParameterError(
            "end", f"must be after start ({format_timestamp(first)}), but is {format_timestamp(last)}; pass a later end"
        )
    return Period(first, last)


def parse_window(text: str, now: datetime, published_until: Callable[[], datetime] | None = None) -> Period:
    """Parse a window relative to now.

    `24h` is the last 24 hours that have ended, without the newest one while it is computed. `7d` is the last seven UTC
    days, including these hours of today. Weeks begin on Monday. In the first hour of a day, `today` is that hour, which
    has no figures yet.

    Raises:
        ParameterError: not a window; says what is allowed.
    """
    if text not in WINDOWS and not _DURATION.fullmatch(text):
        raise ParameterError("window", f"{text!r} is not a window; allowed: {_ALLOWED_WINDOWS}")
    ended, today = floor_hour(now) if published_until is None else published_until(), floor_day(now)
    week, month = today - today.weekday() * DAY, today.replace(day=1)
    if match := _DURATION.fullmatch(text):
        number = int(match[1])
        return (
            Period(ended - number * HOUR, ended)
            if match[2] == "h"
            else _period_until_now(today - (number - 1) * DAY, ended)
        )
    if text == "today":
        return _period_until_now(today, ended)
    if text == "yesterday":
        return Period(today - DAY, today)
    if text == "week":
        return _period_until_now(week, ended)
    if text == "lastweek":
        return Period(week - 7 * DAY, week)
    if text == "month":
        return _period_until_now(month, ended)
    return Period((month - DAY).replace(day=1), month)


def check_period_length(period: Period, granularity: Granularity) -> None:
    """Reject a period that is too long for one response.

    Raises:
        ParameterError: says how long it may be, and which granularity allows more.
    """
    longest = MAX_LENGTHS[granularity]
    if period.end - period.start > longest:
        longer = next(((name, length) for name, length in MAX_LENGTHS.items() if length > longest), None)
        hint = f"; granularity={longer[0]} allows {longer[1].days} days" if longer else ""
        raise ParameterError(
            period.parameter,
            f"with granularity={granularity} a period has at most {longest.days} days{hint}; shorten the period",
        )


def row_start(moment: datetime, granularity: Granularity, period: Period) -> datetime:
    """Return the start of a time's row; a row never begins before the period."""
    if granularity == "hour":
        return floor_hour(moment)
    if granularity == "total":
        return period.start
    return max(_floor_to_granularity(moment, granularity), period.start)


def row_end(begin: datetime, granularity: Granularity, period: Period) -> datetime:
    """Return the end of the row that begins at a time; a row never ends after the period."""
    if granularity == "total":
        return period.end
    if granularity == "hour":
        return begin + HOUR
    if granularity == "month":
        return min((_floor_to_granularity(begin, "month") + 32 * DAY).replace(day=1), period.end)
    return min(_floor_to_granularity(begin, granularity) + (DAY if granularity == "day" else 7 * DAY), period.end)


def previous_period(period: Period) -> Period:
    """Return the previous period of the same length; for a calendar month, the previous month."""
    start, end = period.start, period.end
    if start == _floor_to_granularity(start, "month") and end == (start + 32 * DAY).replace(day=1):
        return Period((start - DAY).replace(day=1), start)
    return Period(start - (end - start), start)


def _floor_to_granularity(moment: datetime, granularity: Granularity) -> datetime:
    day = floor_day(moment)
    if granularity == "week":
        return day - day.weekday() * DAY
    return day.replace(day=1) if granularity == "month" else day


def _period_until_now(start: datetime, ended: datetime) -> Period:
    return Period(start, max(ended, start + HOUR))


def parse_moment_parameter(name: str, text: str) -> datetime:
    """Parse a parameter that is a UTC timestamp, or a date as its midnight.

    Raises:
        ParameterError: neither; says what is allowed.
    """
    try:
        return parse_date_or_timestamp(text)
    except ValueError as error:
        raise ParameterError(name, str(error)) from None


def parse_hour_parameter(name: str, text: str) -> datetime:
    """Parse a parameter that is a full UTC hour, or a date as its first hour.

    Raises:
        ParameterError: neither; says what is allowed.
    """
    moment = parse_moment_parameter(name, text)
    if floor_hour(moment) != moment:
        raise ParameterError(
            name,
            f"{format_timestamp(moment)} is not on a full UTC hour; it is in the hour "
            f"{format_timestamp(floor_hour(moment))}",
        )
    return moment


# The run rate: what a period will cost at the mean hourly cost so far.
#
#     run rate = spent + spent ÷ hours with data × hours of the period without data, for each cluster
#
# Hours without data are unknown: they are assumed to cost as much as those with data, also those before the first data
# of the fleet. A cluster that joined a fleet with data had no cost before, and one that left has none any more. There
# is no run rate before a day of hours has data, or if fewer than half of the hours so far have data, in any cluster of
# the sum.

MIN_RUN_RATE_HOURS = 24


class ClusterSpend(Struct, frozen=True):
    """What was spent in one cluster in a period so far."""

    spent: Decimal
    hours_with_data: int
    since: datetime
    """When the cluster joined: its first recorded hour in the period. The start of the period if none is recorded."""
    has_left: bool = False


def counted_since(first_hour: datetime | None, fleet_first_hour: datetime | None, start: datetime) -> datetime:
    """Return since when a cluster's hours of a period count.

    A cluster that joined a fleet with data had no cost before. If the data of the whole fleet begin later than a day
    after the period's start, nothing is known of the hours before in any cluster.

    Args:
        first_hour: the cluster's first recorded hour in the period.
        fleet_first_hour: that of all clusters.
        start: the period's start.
    """
    if first_hour is None or fleet_first_hour is None or fleet_first_hour - start > MIN_RUN_RATE_HOURS * HOUR:
        return start
    return first_hour


def estimate_so_far(clusters: Sequence[ClusterSpend], until: datetime) -> Decimal:
    """Return the part of the run rate that is of hours so far without data.

    Args:
        clusters: those of a run rate that is known.
        until: as there.
    """
    total = Decimal(0)
    for cluster in clusters:
        missing = 0 if cluster.has_left else (until - cluster.since) // HOUR - cluster.hours_with_data
        if missing > 0:
            total += quantize(WIDE_CONTEXT.divide(cluster.spent * missing, Decimal(cluster.hours_with_data)))
    return total


def run_rate(clusters: Sequence[ClusterSpend], until: datetime, end: datetime) -> Decimal | None:
    """Project a period's cost over all clusters; None if too few hours have data.

    Args:
        clusters: of the sum; a business unit's are those in which it held GPUs.
        until: end of the newest hour that should have data.
        end: end of the period.
    """
    total = Decimal(0)
    for cluster in clusters:
        if cluster.has_left:
            total += cluster.spent
            continue
        period_hours, hours_so_far = (end - cluster.since) // HOUR, (until - cluster.since) // HOUR
        if cluster.hours_with_data < MIN_RUN_RATE_HOURS or 2 * cluster.hours_with_data < hours_so_far:
            return None
        total += quantize(WIDE_CONTEXT.divide(cluster.spent * period_hours, Decimal(cluster.hours_with_data)))
    return total
