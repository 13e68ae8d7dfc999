"""What business units spent this month and today, read cheaply enough for every tick of a large fleet.

A month is summed in parts of seven days. On every tick, the current part is summed again, and one of the others: the
first that is missing, or the next in turn. So a restated or backfilled day counts within five hours. The remaining
parts keep their last sums. A day to date is stored as first computed, for the same weekday of later weeks.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from gpucost.core.amounts import Costs
from gpucost.core.hours import HOUR, floor_day, month_bounds
from gpucost.core.ledger import DaySummary
from gpucost.core.rollups import DAY, costs_by_unit
from gpucost.core.run_rate import run_rate
from gpucost.features.alerting.cluster_months import ClusterMonth, earlier_units, spends_of_unit
from gpucost.features.alerting.ports import DayToDateSpend, PartialMonthSpend, RuleInputs
from gpucost.features.alerting.rule_evaluation import firing_policy
from gpucost.features.alerting.rule_kinds import budget as budget_rule
from gpucost.features.alerting.rule_kinds import spend_change
from gpucost.features.alerting.rule_kinds.budget import Budget, BudgetBasis
from gpucost.features.alerting.rule_kinds.spend_change import SpendThresholds
from gpucost.features.alerting.scope_update import Finding, ScopeUpdate
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import BudgetRule, SpendChangeRule
from gpucost.features.alerting.state_machine import FiringPolicy
from gpucost.features.alerting.subjects import Subject
from gpucost.storage.ports import StoredSettings

MONTH_PART_LENGTH = timedelta(days=7)
WEEK = timedelta(days=7)
PROJECTION_KEEP_FIRING_HOURS = 24
"""For how long a projection must stay below its threshold to resolve: it changes with every hour."""


_ABSENT = DayToDateSpend({}, "")
"""The day of a cluster that did not exist yet, or not any more."""


class _ClusterDays(NamedTuple):
    """A cluster's day to date, and the same part of the same weekday in previous weeks. None if not known."""

    today: DayToDateSpend | None
    weeks: Sequence[DayToDateSpend | None]
    units_today: frozenset[str]

    @property
    def units(self) -> set[str]:
        """The business units whose costs the cluster has or had."""
        return {unit for day in (self.today, *self.weeks) if day for unit in day.costs_by_unit} | self.units_today


class SpendRuleEvaluator:
    """Evaluates spend rules on one tick.

    Args:
        inputs: what rules read.
        stored_settings: the document, and the clusters that left it.
        at: the tick's full hour; figures are expected up to an hour before it.
    """

    def __init__(self, inputs: RuleInputs, stored_settings: StoredSettings[SettingsWithAlerts], at: datetime) -> None:
        self._inputs = inputs
        self._stored_settings = stored_settings
        self._settings = stored_settings.settings
        self._at = at
        self._expected_until = at - HOUR
        self._newest_expected_hour = at - 2 * HOUR
        self._months: dict[str, ClusterMonth] = {}
        self._current_days: dict[str, DaySummary | None] = {}
        self._days_to_date: dict[str, DayToDateSpend | None] = {}
        self._previous_days_to_date: dict[tuple[str, int], DayToDateSpend | None] = {}

    # ------------------------------------------------------------ budgets

    def budget_findings(self, rule_name: str, rule: BudgetRule, update: ScopeUpdate) -> Iterator[Finding]:
        """Evaluate a budget rule: one finding for each business unit, basis and percentage.

        A unit has none while the month of one of its clusters has amounts in several currencies, or a part that is not
        summed yet. The months of clusters that left the settings count.
        """
        start, end = month_bounds(self._newest_expected_hour)
        month = f"{start:%Y-%m}"
        for alert in update.alerts_of_rule(rule_name):
            if not alert.subject.detail.startswith(month):
                update.discard_alert(alert)  # its month is over
        months = {cluster: self._month_to_date(cluster, start) for cluster in self._clusters(rule, start)}
        units = {unit for to_date in months.values() for unit in to_date.units}
        units |= {alert.subject.business_unit for alert in update.alerts_of_rule(rule_name)}
        for unit in sorted(unit for unit in units if rule.scope.has_unit(unit)):
            spends = spends_of_unit(months, unit)
            if spends is None:
                continue
            projected = run_rate(spends, self._expected_until, end)
            spent = sum((spend.spent for spend in spends), Decimal(0))
            yield from self._unit_budget_findings(rule, unit, month, spent, projected)

    def _unit_budget_findings(
        self, rule: BudgetRule, unit: str, month: str, spent: Decimal, projected: Decimal | None
    ) -> Iterator[Finding]:
        effective_rule = rule.for_subject(Subject(business_unit=unit))
        budget = Budget(effective_rule.monthly_usd, effective_rule.percents)
        figures = budget_rule.notification_figures(spent, projected, budget)
        bases: list[tuple[BudgetBasis, Decimal | None]] = [("spent", spent)]
        if effective_rule.projection:
            bases.append(("projected", projected))
        for basis, amount in bases:
            highest = None if amount is None else budget.highest_reached(amount)
            percents = effective_rule.percents if basis == "spent" else (max(effective_rule.percents),)
            policy = (
                firing_policy(effective_rule)
                if basis == "spent"
                else FiringPolicy(effective_rule.for_hours, PROJECTION_KEEP_FIRING_HOURS)
            )
            for percent in percents:
                is_breach = None if amount is None else budget.is_reached(amount, percent)
                subject = Subject(business_unit=unit, detail=f"{month} {basis} {percent:f}%")
                # Money that is spent says more than a projection of it, and 100% more than 80%.
                is_history_only = (highest is not None and percent < highest) or (
                    basis == "projected" and budget.is_reached(spent, percent)
                )
                yield Finding(
                    subject, self._at, is_breach, budget.describe(percent, basis, self._currency), figures,
                    self._currency, policy, is_history_only=is_history_only,
                )  # fmt: skip

    def _clusters(self, rule: BudgetRule | SpendChangeRule, since: datetime) -> list[str]:
        """Return a rule's clusters, also those that left the settings after a time."""
        return [cluster for cluster in self._stored_settings.clusters(since) if rule.scope.has_cluster(cluster)]

    def _month_to_date(self, cluster: str, start: datetime) -> ClusterMonth:
        if cluster not in self._months:
            self._months[cluster] = self._sum_month_to_date(cluster, start)
        return self._months[cluster]

    def _sum_month_to_date(self, cluster: str, start: datetime) -> ClusterMonth:
        """Sum a month from its parts."""
        newest = (self._newest_expected_hour - start) // MONTH_PART_LENGTH
        stored = [self._inputs.spend_store.month_part(cluster, start, number) for number in range(newest)]
        in_turn = ((self._at - start) // HOUR) % newest if newest else 0
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
        spend = PartialMonthSpend(units, hours, self._currency, first_hour)
        return ClusterMonth(
            spend,
            start,
            has_left=self._settings.cluster(cluster) is None,
            earlier_units=earlier_units(self._inputs.rollups, cluster, start, spend),
            is_summed=is_summed and currencies <= {self._currency},
        )

    def _sum_month_part(self, cluster: str, start: datetime, number: int) -> PartialMonthSpend:
        """Sum a part of a month again, and store the sums."""
        part_start = start + MONTH_PART_LENGTH * number
        part_end = min(part_start + MONTH_PART_LENGTH, floor_day(self._newest_expected_hour) + DAY)
        days = self._inputs.rollups.days(cluster, part_start, part_end)
        if days and days[-1].start == floor_day(self._newest_expected_hour):
            self._current_days[cluster] = days[-1]
        part = PartialMonthSpend.sum_days(days)
        self._inputs.spend_store.put_month_part(cluster, start, number, part)
        return part

    # ------------------------------------------------------------ today against previous weeks

    def spend_change_findings(self, rule_name: str, rule: SpendChangeRule, update: ScopeUpdate) -> Iterator[Finding]:
        """Evaluate a spend-change rule: one finding for each business unit.

        A unit has none while an hour of today is missing in one of its clusters, and no reference in a week in which
        such a cluster has no sums. Clusters that left the settings since count.
        """
        weeks = range(1, rule.weeks + 1)
        days = {
            cluster: _ClusterDays(
                self._day_to_date(cluster), [self._day_to_date_weeks_ago(cluster, number) for number in weeks],
                frozenset(current.costs if (current := self._current_days.get(cluster)) else ()),
            )
            for cluster in self._clusters(rule, self._newest_expected_hour - WEEK * rule.weeks)
        }  # fmt: skip
        units = {unit for cluster_days in days.values() for unit in cluster_days.units}
        units |= {alert.subject.business_unit for alert in update.alerts_of_rule(rule_name)}
        for unit in sorted(unit for unit in units if rule.scope.has_unit(unit)):
            subject = Subject(business_unit=unit)
            effective_rule = rule.for_subject(subject)
            of_unit = [cluster_days for cluster_days in days.values() if unit in cluster_days.units]
            today = [cluster_days.today for cluster_days in of_unit if cluster_days.today]
            if len(today) < len(of_unit):
                continue
            references = []
            for number in range(rule.weeks):
                week = [day for cluster_days in of_unit if (day := cluster_days.weeks[number])]
                if len(week) == len(of_unit) and any(
                    cluster_days.weeks[number] not in (None, _ABSENT) for cluster_days in days.values()
                ):
                    has_same_sources = all(
                        day == _ABSENT or day.pricing_fingerprint == self._pricing_fingerprint for day in week
                    )
                    references.append((_unit_costs(week, unit), has_same_sources))
            comparison = spend_change.compare_with_previous_weeks(_unit_costs(today, unit), references)
            thresholds = SpendThresholds(effective_rule.percent, effective_rule.usd)
            note = (
                "price sources differ: compared in GPU-hours, at today's mean price"
                if comparison and comparison.compares_gpu_hours
                else ""
            )
            yield Finding(
                subject, self._at, thresholds.breached_by(comparison),
                thresholds.describe(effective_rule.weeks, self._currency),
                spend_change.notification_figures(comparison) if comparison else {}, self._currency,
                firing_policy(effective_rule), note=note,
            )  # fmt: skip

    def save_days_to_date(self) -> None:
        """Store today's sums for later weeks."""
        for cluster, sums in self._days_to_date.items():
            if sums is not None and sums != _ABSENT:
                self._inputs.spend_store.put_day_to_date(cluster, self._newest_expected_hour, sums)

    def _day_to_date(self, cluster: str) -> DayToDateSpend | None:
        """Return a cluster's day up to the newest expected hour; None if one of its hours is missing."""
        if cluster not in self._days_to_date:
            self._days_to_date[cluster] = self._sum_day_to_date(cluster)
        return self._days_to_date[cluster]

    def _sum_day_to_date(self, cluster: str) -> DayToDateSpend | None:
        start = floor_day(self._newest_expected_hour)
        if cluster not in self._current_days:
            days = self._inputs.rollups.days(cluster, start, start + DAY)
            self._current_days[cluster] = days[-1] if days else None
        day = self._current_days[cluster]
        if day is None or day.totals is None:
            has_left = day is None and self._settings.cluster(cluster) is None
            return _ABSENT if has_left else None
        published = [manifest.hour for manifest in day.manifests if manifest.status != "incomplete"]
        hours = [hour for hour in published if hour <= self._newest_expected_hour]
        if hours != self._expected_hours(day) or day.currencies != {self._currency}:
            return None
        units = dict(day.costs)
        if day.manifests[-1].hour > self._newest_expected_hour:  # it was closed before this tick arrived
            for summary in self._inputs.ledger.summaries(cluster, self._expected_until, start + DAY):
                for unit, costs in costs_by_unit(summary).items():
                    units[unit] = units[unit] - costs
        return DayToDateSpend(units, self._pricing_fingerprint)

    def _expected_hours(self, day: DaySummary) -> list[datetime]:
        """Return today's hours of a cluster: all, or from when it joined, or until it left the settings."""
        first, until = day.start, self._expected_until
        recorded = [manifest.hour for manifest in day.manifests]
        if recorded[0] > first and not self._inputs.ledger.manifests(day.cluster, first - WEEK, first):
            first = recorded[0]
        if self._settings.cluster(day.cluster) is None:
            until = min(until, recorded[-1] + HOUR)
        return [first + HOUR * number for number in range((until - first) // HOUR)]

    def _day_to_date_weeks_ago(self, cluster: str, weeks: int) -> DayToDateSpend | None:
        """Return the same part of a day some weeks ago; None if it was never summed, though the cluster existed."""
        key = (cluster, weeks)
        if key not in self._previous_days_to_date:
            hour = self._newest_expected_hour - WEEK * weeks
            sums = self._inputs.spend_store.day_to_date(cluster, hour)
            if sums is None and not self._inputs.ledger.manifests(cluster, floor_day(hour), hour + HOUR):
                sums = _ABSENT
            self._previous_days_to_date[key] = sums
        return self._previous_days_to_date[key]

    @property
    def _currency(self) -> str:
        return self._settings.pricing.currency

    @cached_property
    def _pricing_fingerprint(self) -> str:
        return pricing_fingerprint(self._settings)


def pricing_fingerprint(settings: SettingsWithAlerts) -> str:
    """Describe how prices are found (sources, split and currency, not the prices), to detect that this changed."""
    pricing = settings.pricing
    return f"{pricing.currency} {'>'.join(pricing.ordered_sources)} {pricing.split}"


def _unit_costs(days: list[DayToDateSpend], unit: str) -> Costs:
    return Costs.total(day.costs_by_unit[unit] for day in days if unit in day.costs_by_unit)
