"""Spend change: today so far against the same hours of the same weekday in the last weeks.

The reference is the median, so that one odd day, a holiday or an incident, moves nothing. Money is compared only where
it was found the same way: each day's figures are kept as they were first known, with the price sources in force, and
a day under other sources is compared in GPU-hours, at today's mean price. (Restated figures would not do: list prices
against weeks that the bill has restated since would fire every day.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from gpucost.core.money import ZERO
from gpucost.features.alerting.formatting import percent_of, ratio, threshold_money

MIN_WEEKS = 2
"""The median of fewer is no reference."""


class DayToDate(NamedTuple):
    """A unit from midnight to some hour's end."""

    usd: Decimal = ZERO
    gpu_hours: Decimal = ZERO


class SpendComparison(NamedTuple):
    """Today and its reference."""

    today_usd: Decimal
    usual_usd: Decimal
    by_gpu_hours: bool
    """Compared in GPU-hours, at today's mean price: the price sources differ."""
    weeks: int


@dataclass(frozen=True, slots=True)
class SpendThresholds:
    """Beyond so many percent and so much money, up or down."""

    percent: Decimal
    usd: Decimal

    def breached_by(self, seen: SpendComparison | None) -> bool | None:
        """Whether today differs by more than both; None without a reference."""
        if seen is None:
            return None
        off = abs(seen.today_usd - seen.usual_usd)
        return off > self.usd and off * 100 > self.percent * seen.usual_usd

    def describe(self, weeks: int, currency: str) -> str:
        """The rule as people read it."""
        usd = threshold_money(self.usd, currency)
        return f"spend differs by > {self.percent:f}% and > {usd} from the same hours of the last {weeks} weeks"


def compare(today: DayToDate, weeks: Sequence[tuple[DayToDate, bool]]) -> SpendComparison | None:
    """Today against its weeks; None where fewer than two are known.

    Args:
        today: so far.
        weeks: the same hours of past weeks, each with whether its prices came from the same sources.
    """
    alike = [one.usd for one, is_alike in weeks if is_alike]
    if len(alike) >= MIN_WEEKS:
        return SpendComparison(today.usd, median(alike), by_gpu_hours=False, weeks=len(alike))
    if len(weeks) < MIN_WEEKS or not today.gpu_hours:
        return None
    usual = ratio(median([one.gpu_hours for one, _ in weeks]) * today.usd, today.gpu_hours)
    return SpendComparison(today.usd, usual, by_gpu_hours=True, weeks=len(weeks))


def figures(seen: SpendComparison) -> dict[str, Decimal | None]:
    """What a notification says of a day."""
    return {
        "today_usd": seen.today_usd,
        "usual_usd": seen.usual_usd,
        "change_percent": percent_of(seen.today_usd - seen.usual_usd, seen.usual_usd),
        "weeks": Decimal(seen.weeks),
        "by_gpu_hours": Decimal(seen.by_gpu_hours),
    }
