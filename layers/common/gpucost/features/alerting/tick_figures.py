"""What rules read on a tick; spend is read cheaply enough for every tick of a large fleet.

A month is summed in parts of seven days. On every tick, the current part is summed again, and one of the others: the
first that is missing, or the next in turn. So a restated or backfilled day counts within five hours. The remaining
parts keep their last sums. A day to date is stored as first computed, for the same weekday of later weeks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from gpucost.core.hours import DAY, HOUR, floor_day, floor_hour, month_bounds
from gpucost.core.ledger import DaySummary, costs_by_unit
from gpucost.features.alerting.month_budgets import ClusterMonth, ClusterMonths, earlier_units
from gpucost.features.alerting.muting import time_zone_of
from gpucost.features.alerting.ports import ABSENT_DAY, DayToDateSpend, PartialMonthSpend, RuleInputs
from gpucost.features.alerting.rule_kinds.base import Rule, RuleScope
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.runtime.messages import AlertTick
from gpucost.storage.ports import StoredSettings

MONTH_PART_LENGTH = timedelta(days=7)
WEEK = timedelta(days=7)


class ClusterDays(NamedTuple):
    """A cluster's day to date, and the same part of the same weekday in previous weeks. None if not known."""

    today: DayToDateSpend | None
    weeks: Sequence[DayToDateSpend | None]
    units_today: frozenset[str]

    @property
    def units(self) -> set[str]:
        """The business units whose costs the cluster has or had."""
        return {unit for day in (self.today, *self.weeks) if day for unit in day.costs_by_unit} | self.units_today


class TickFigures:
    """The figures of one tick. Figures are read on first use.

    Args:
        inputs: what rules read.
        stored_settings: the document, and the clusters that left it.
        message: the tick. Figures are expected up to an hour before its full hour.
    """

    def __init__(
        self, inputs: RuleInputs, stored_settings: StoredSettings[SettingsDocument], message: AlertTick
    ) -> None:
        self.inputs = inputs
        self.stored_settings = stored_settings
        self.settings = stored_settings.settings
        self.at = floor_hour(message.scheduled_time)
        self.clusters = message.clusters
        self.currency = self.settings.pricing.currency
        self._expected_until = self.at - HOUR
        self.newest_expected_hour = self.at - 2 * HOUR
        self._months: dict[str, ClusterMonth] = {}
        self._current_days: dict[str, DaySummary | None] = {}
        self._days_to_date: dict[str, DayToDateSpend | None] = {}
        self._previous_days_to_date: dict[tuple[str, int], DayToDateSpend | None] = {}

    def time_zone_of(self, rule: Rule) -> tzinfo:
        """Return a rule's time zone."""
        return time_zone_of(self.settings.alerts, rule)

    def clusters_since(self, scope: RuleScope, since: datetime) -> list[str]:
        """Return a rule's clusters, also those that left the settings after a time."""
        return [cluster for cluster in self.stored_settings.clusters(since) if scope.has_cluster(cluster)]

    @cached_property
    def pricing_fingerprint(self) -> str:
        """How prices are found."""
        return pricing_fingerprint(self.settings)

    def months_to_date(self, scope: RuleScope, start: datetime) -> ClusterMonths:
        """Return the month so far in a rule's clusters."""
        return ClusterMonths(
            {cluster: self._month_to_date(cluster, start) for cluster in self.clusters_since(scope, start)}
        )

    def spent_and_projected(self, months: ClusterMonths, unit: str) -> tuple[Decimal, Decimal | None] | None:
        """Return what a unit spent in a month, and its run rate, or what it costs at least if that is not known.

        None if a cluster's month is not known.
        """
        spent = months.spent(unit)
        if spent is None:
            return None
        _, end = month_bounds(self.newest_expected_hour)
        projected = months.run_rate(unit, self._expected_until, end)
        return spent, months.least_cost(unit, self._expected_until, end) if projected is None else projected

    def days_to_date(self, scope: RuleScope, weeks: int) -> list[ClusterDays]:
        """Return today so far, and the same hours of previous weeks, in each of a rule's clusters."""
        days = []
        for cluster in self.clusters_since(scope, self.newest_expected_hour - WEEK * weeks):
            today = self._day_to_date(cluster)
            previous = [self._day_to_date_weeks_ago(cluster, number) for number in range(1, weeks + 1)]
            current = self._current_days.get(cluster)
            days.append(ClusterDays(today, previous, frozenset(current.costs if current else ())))
        return days

    def _month_to_date(self, cluster: str, start: datetime) -> ClusterMonth:
        if cluster not in self._months:
            self._months[cluster] = self._sum_month_to_date(cluster, start)
        return self._months[cluster]

    def _sum_month_to_date(self, cluster: str, start: datetime) -> ClusterMonth:
        """Sum a month from its parts."""
        newest = (self.newest_expected_hour - start) // MONTH_PART_LENGTH
        stored = [self.inputs.spend_store.month_part(cluster, start, number) for number in range(newest)]
        in_turn = ((self.at - start) // HOUR) % newest if newest else 0
        first_missing = next((number for number, part in enumerate(stored) if part is None), in_turn)
        units: dict[str, Decimal] = {}
        hours, currencies, first_hour = 0, set[str](), None
        is_summed = True
        for number in range(newest + 1):
            part = self._sum_month_part(cluster, start, number) if number in {newest, first_missing} else stored[number]
            if part is None:
                is_summed = False  # the next tick sums it
                continue
            for unit, amount in part.spend_by_unit.items():
                units[unit] = units.get(unit, Decimal(0)) + amount
            hours += part.hours_with_data
            currencies |= part.currencies
            first_hour = first_hour or part.first_hour
        spend = PartialMonthSpend(units, hours, self.currency, first_hour)
        return ClusterMonth(
            spend,
            start,
            has_left=self.settings.cluster(cluster) is None,
            earlier_units=earlier_units(self.inputs.rollups, cluster, start, spend),
            is_summed=is_summed and currencies <= {self.currency},
        )

    def _sum_month_part(self, cluster: str, start: datetime, number: int) -> PartialMonthSpend:
        """Sum a part of a month again, and store the sums."""
        part_start = start + MONTH_PART_LENGTH * number
        part_end = min(part_start + MONTH_PART_LENGTH, floor_day(self.newest_expected_hour) + DAY)
        days = self.inputs.rollups.days(cluster, part_start, part_end)
        if days and days[-1].start == floor_day(self.newest_expected_hour):
            self._current_days[cluster] = days[-1]
        part = PartialMonthSpend.sum_days(days)
        self.inputs.spend_store.put_month_part(cluster, start, number, part)
        return part

    def save_days_to_date(self) -> None:
        """Store today's sums for later weeks."""
        for cluster, sums in self._days_to_date.items():
            if sums is not None and sums != ABSENT_DAY:
                self.inputs.spend_store.put_day_to_date(cluster, self.newest_expected_hour, sums)

    def _day_to_date(self, cluster: str) -> DayToDateSpend | None:
        """Return a cluster's day up to the newest expected hour; None if one of its hours is missing."""
        if cluster not in self._days_to_date:
            self._days_to_date[cluster] = self._sum_day_to_date(cluster)
        return self._days_to_date[cluster]

    def _sum_day_to_date(self, cluster: str) -> DayToDateSpend | None:
        start = floor_day(self.newest_expected_hour)
        if cluster not in self._current_days:
            days = self.inputs.rollups.days(cluster, start, start + DAY)
            self._current_days[cluster] = days[-1] if days else None
        day = self._current_days[cluster]
        if day is None or day.totals is None:
            has_left = day is None and self.settings.cluster(cluster) is None
            return ABSENT_DAY if has_left else None
        published = [manifest.hour for manifest in day.manifests if manifest.status != "incomplete"]
        hours = [hour for hour in published if hour <= self.newest_expected_hour]
        if hours != self._expected_hours(day) or day.currencies != {self.currency}:
            return None
        units = dict(day.costs)
        if day.manifests[-1].hour > self.newest_expected_hour:  # it was closed before this tick arrived
            for summary in self.inputs.ledger.summaries(cluster, self._expected_until, start + DAY):
                for unit, costs in costs_by_unit(summary).items():
                    units[unit] = units[unit] - costs
        return DayToDateSpend(units, self.pricing_fingerprint)

    def _expected_hours(self, day: DaySummary) -> list[datetime]:
        """Return today's hours of a cluster: all, or from when it joined, or until it left the settings."""
        first, until = day.start, self._expected_until
        recorded = [manifest.hour for manifest in day.manifests]
        if recorded[0] > first and not self.inputs.ledger.manifests(day.cluster, first - WEEK, first):
            first = recorded[0]
        if self.settings.cluster(day.cluster) is None:
            until = min(until, recorded[-1] + HOUR)
        return [first + HOUR * number for number in range((until - first) // HOUR)]

    def _day_to_date_weeks_ago(self, cluster: str, weeks: int) -> DayToDateSpend | None:
        """Return the same part of a day some weeks ago; None if it was never summed, though the cluster existed."""
        key = (cluster, weeks)
        if key not in self._previous_days_to_date:
            hour = self.newest_expected_hour - WEEK * weeks
            sums = self.inputs.spend_store.day_to_date(cluster, hour)
            if sums is None and not self.inputs.ledger.manifests(cluster, floor_day(hour), hour + HOUR):
                sums = ABSENT_DAY
            self._previous_days_to_date[key] = sums
        return self._previous_days_to_date[key]


def pricing_fingerprint(settings: SettingsDocument) -> str:
    """Describe how prices are found (sources, split and currency, not the prices), to detect that this changed."""
    pricing = settings.pricing
    return f"{pricing.currency} {'>'.join(pricing.ordered_sources)} {pricing.split}"
