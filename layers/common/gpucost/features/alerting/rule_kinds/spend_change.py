"""Spend change: today so far compared with the same hours of the same weekday in previous weeks.

The reference is the median, so that one unusual day, such as a holiday or an incident, does not matter. Amounts are
compared only if they were priced the same way. So each day is stored as first computed, with the price sources in
force, and a day under other price sources is compared in GPU-hours, at today's mean price. (With restated figures, list
prices would be compared with weeks that the bill has restated since, and the rule would fire every day.)
"""

from collections.abc import Sequence
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from gpucost.core.amounts import Costs, to_decimal
from gpucost.features.alerting.formatting import format_threshold, quantized_ratio, rounded_percent

MIN_WEEKS = 2
"""The median of fewer weeks is no reference."""


class SpendComparison(NamedTuple):
    """Today's spend and its reference."""

    today_usd: Decimal
    usual_usd: Decimal
    compares_gpu_hours: bool
    """Whether GPU-hours were compared, at today's mean price, because the price sources differ."""
    weeks_compared: int


class SpendThresholds(Struct, frozen=True):
    """A difference of more than this percentage and more than this amount, up or down."""

    percent: Decimal
    usd: Decimal

    def breached_by(self, comparison: SpendComparison | None) -> bool | None:
        """Whether today differs by more than both thresholds; None without a reference."""
        if comparison is None:
            return None
        difference = abs(comparison.today_usd - comparison.usual_usd)
        return difference > self.usd and difference * 100 > self.percent * comparison.usual_usd

    def describe(self, weeks: int, currency: str) -> str:
        """Describe the condition in plain text."""
        usd = format_threshold(self.usd, currency)
        return f"spend differs by > {self.percent:f}% and > {usd} from the same hours of the last {weeks} weeks"


def compare_with_previous_weeks(today: Costs, weeks: Sequence[tuple[Costs, bool]]) -> SpendComparison | None:
    """Compare today with previous weeks; None if fewer than two weeks have data.

    Args:
        today: a business unit's day to date.
        weeks: the same hours of previous weeks, each with whether its prices came from the same sources.
    """
    today_usd, today_gpu_hours = to_decimal(today.allocated_usd), to_decimal(today.allocated_gpu_hours)
    comparable = [to_decimal(week.allocated_usd) for week, has_same_sources in weeks if has_same_sources]
    if len(comparable) >= MIN_WEEKS:
        return SpendComparison(today_usd, median(comparable), compares_gpu_hours=False, weeks_compared=len(comparable))
    if len(weeks) < MIN_WEEKS or not today_gpu_hours:
        return None
    usual_usd = quantized_ratio(
        median([to_decimal(week.allocated_gpu_hours) for week, _ in weeks]) * today_usd, today_gpu_hours
    )
    return SpendComparison(today_usd, usual_usd, compares_gpu_hours=True, weeks_compared=len(weeks))


def notification_figures(comparison: SpendComparison) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    return {
        "today_usd": comparison.today_usd,
        "usual_usd": comparison.usual_usd,
        "change_percent": rounded_percent(comparison.today_usd - comparison.usual_usd, comparison.usual_usd),
        "weeks": Decimal(comparison.weeks_compared),
        "by_gpu_hours": Decimal(comparison.compares_gpu_hours),
    }
