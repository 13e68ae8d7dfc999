"""What units spent this month and today, read so that an hour's tick stays cheap however large the fleet.

A month is summed in parts of seven days. The part under way is summed anew on every tick; of the others one, which is
missing or whose turn it is, so that a restated or backfilled day counts within five hours, and the rest are taken as
they were last summed. A day so
far is kept as it was first known, for the same weekday of later weeks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property

from gpucost.core.hours import HOUR, floor_day, month_bounds
from gpucost.core.money import ZERO
from gpucost.core.rollups import DAY, DaySummary, costs_by_unit
from gpucost.features.alerting.evaluation import firing_policy
from gpucost.features.alerting.model import Subject
from gpucost.features.alerting.ports import AlertSources, ClusterDayToDate, MonthPart
from gpucost.features.alerting.rules import budget as budgets
from gpucost.features.alerting.rules import spend_change as spend
from gpucost.features.alerting.rules.budget import Basis, Budget, ClusterSpend
from gpucost.features.alerting.rules.spend_change import DayToDate, SpendThresholds
from gpucost.features.alerting.scope_update import Finding, ScopeUpdate
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import BudgetRule, SpendChangeRule
from gpucost.features.alerting.state_machine import FiringPolicy

PART = timedelta(days=7)
WEEK = timedelta(days=7)
PROJECTION_KEPT = 24
"""Hours for which a projection must stay below its threshold before it counts as resolved: it moves with every hour."""


@dataclass(frozen=True, slots=True)
class MonthToDate:
    """One cluster's month to date; None where its amounts are of several currencies, or a part was never summed."""

    units: Mapping[str, Decimal]
    hours_known: int


class SpendEvaluation:
    """One tick's view of months and days.

    Args:
        sources: what rules look at.
        settings: the document.
        at: the tick's full hour; hours are known until an hour before it.
    """

    def __init__(self, sources: AlertSources, settings: AlertingSettings, at: datetime) -> None:
        self._sources = sources
        self._settings = settings
        self._at = at
        self._known_until = at - HOUR
        self._newest = at - 2 * HOUR
        self._months: dict[str, MonthToDate | None] = {}
        self._days: dict[str, DaySummary | None] = {}
        self._todays: dict[str, ClusterDayToDate | None] = {}
        self._references: dict[tuple[str, int], ClusterDayToDate | None] = {}

    # ------------------------------------------------------------ budgets

    def budget_findings(self, name: str, rule: BudgetRule, decisions: ScopeUpdate) -> Iterator[Finding]:
        """Findings of a budget rule: one of each unit, basis and percentage."""
        start, end = month_bounds(self._newest)
        month = f"{start:%Y-%m}"
        for alert in decisions.alerts(name):
            if not alert.subject.detail.startswith(month):
                decisions.discard(alert)  # its month is over
        clusters = [one.name for one in self._settings.clusters if rule.scope.has_cluster(one.name)]
        months = [self._month(cluster, start) for cluster in clusters]
        if any(one is None for one in months):
            return
        known = [one for one in months if one is not None]
        units = {unit for one in known for unit in one.units}
        units |= {alert.subject.business_unit for alert in decisions.alerts(name)}
        for unit in sorted(unit for unit in units if rule.scope.has_unit(unit)):
            parts = [ClusterSpend(one.units.get(unit, ZERO), one.hours_known) for one in known]
            projected = budgets.project(parts, start, self._known_until, end)
            yield from self._passed(rule, unit, month, sum((part.spent for part in parts), ZERO), projected)

    def _passed(
        self, rule: BudgetRule, unit: str, month: str, spent: Decimal, projected: Decimal | None
    ) -> Iterator[Finding]:
        own = rule.for_subject(Subject(business_unit=unit))
        budget = Budget(own.monthly_usd, own.percents)
        figures = budgets.figures(spent, projected, budget)
        bases: list[tuple[Basis, Decimal | None]] = [("spent", spent)]
        if own.projection:
            bases.append(("projected", projected))
        for basis, amount in bases:
            highest = None if amount is None else budget.highest_reached(amount)
            percents = own.percents if basis == "spent" else (max(own.percents),)
            policy = firing_policy(own) if basis == "spent" else FiringPolicy(own.for_hours, PROJECTION_KEPT)
            for percent in percents:
                breaches = None if amount is None else budget.is_reached(amount, percent)
                subject = Subject(business_unit=unit, detail=f"{month} {basis} {percent:f}%")
                # What is spent already says more than where it leads.
                is_muted = (highest is not None and percent < highest) or (
                    basis == "projected" and budget.is_reached(spent, percent)
                )
                yield Finding(
                    subject, self._at, breaches, budget.describe(percent, basis, self._currency), figures,
                    self._currency, policy, is_muted=is_muted,
                )  # fmt: skip

    def _month(self, cluster: str, start: datetime) -> MonthToDate | None:
        if cluster not in self._months:
            self._months[cluster] = self._sum_month(cluster, start)
        return self._months[cluster]

    def _sum_month(self, cluster: str, start: datetime) -> MonthToDate | None:
        newest = (self._newest - start) // PART
        stored = [self._sources.spend.month_part(cluster, start, number) for number in range(newest)]
        turn = ((self._at - start) // HOUR) % newest if newest else 0
        anew = {newest, next((number for number, part in enumerate(stored) if part is None), turn)}
        units: dict[str, Decimal] = {}
        hours, currencies = 0, set()
        for number in range(newest + 1):
            part = self._sum_part(cluster, start, number) if number in anew else stored[number]
            if part is None:
                return None  # the next tick sums it
            for unit, amount in part.units.items():
                units[unit] = units.get(unit, ZERO) + amount
            hours += part.hours_with_data
            currencies |= {part.currency} - {""}
        return MonthToDate(units, hours) if currencies <= {self._currency} else None

    def _sum_part(self, cluster: str, start: datetime, number: int) -> MonthPart:
        """Sum some days anew, and keep what they came to."""
        begin = start + PART * number
        end = min(begin + PART, floor_day(self._newest) + DAY)
        days = self._sources.rollups.days(cluster, begin, end)
        if days and days[-1].day == floor_day(self._newest):
            self._days[cluster] = days[-1]
        units: dict[str, Decimal] = {}
        for day in days:
            for unit, costs in day.units.items():
                units[unit] = units.get(unit, ZERO) + costs.allocated_usd
        known = [one for day in days for one in day.hours if one.status != "incomplete"]
        currencies = sorted({one.currency for one in known})
        part = MonthPart(units, len(known), "+".join(currencies))
        self._sources.spend.put_month_part(cluster, start, number, part)
        return part

    # ------------------------------------------------------------ today against the last weeks

    def spend_change_findings(self, name: str, rule: SpendChangeRule, decisions: ScopeUpdate) -> Iterator[Finding]:
        """Findings of a spend-change rule: one of each unit. Nothing is found while a cluster's day has holes."""
        clusters = [one.name for one in self._settings.clusters if rule.scope.has_cluster(one.name)]
        today = [self._today(cluster) for cluster in clusters]
        if not today or any(one is None for one in today):
            return
        known = [one for one in today if one is not None]
        weeks = []
        for number in range(1, rule.weeks + 1):
            then = [self._reference(cluster, number) for cluster in clusters]
            if all(one is not None for one in then):
                weeks.append([one for one in then if one is not None])
        units = {unit for one in known for unit in one.units} | {unit for w in weeks for one in w for unit in one.units}
        units |= {alert.subject.business_unit for alert in decisions.alerts(name)}
        for unit in sorted(unit for unit in units if rule.scope.has_unit(unit)):
            subject = Subject(business_unit=unit)
            own = rule.for_subject(subject)
            past = [(_of(week, unit), all(one.price_sources == self._pricing for one in week)) for week in weeks]
            seen = spend.compare(_of(known, unit), past)
            thresholds = SpendThresholds(own.percent, own.usd)
            note = (
                "price sources differ: compared in GPU-hours, at today's mean price"
                if seen and seen.by_gpu_hours
                else ""
            )
            yield Finding(
                subject, self._at, thresholds.breached_by(seen), thresholds.describe(own.weeks, self._currency),
                spend.figures(seen) if seen else {}, self._currency, firing_policy(own), note=note,
            )  # fmt: skip

    def save_days_to_date(self) -> None:
        """Keep today's sums for later weeks."""
        for cluster, sums in self._todays.items():
            if sums is not None:
                self._sources.spend.put_day_to_date(cluster, self._newest, sums)

    def _today(self, cluster: str) -> ClusterDayToDate | None:
        """A cluster's day to the newest hour that should be known; None where one of its hours is not."""
        if cluster not in self._todays:
            self._todays[cluster] = self._sum_today(cluster)
        return self._todays[cluster]

    def _sum_today(self, cluster: str) -> ClusterDayToDate | None:
        start = floor_day(self._newest)
        if cluster not in self._days:
            found = self._sources.rollups.days(cluster, start, start + DAY)
            self._days[cluster] = found[-1] if found else None
        day = self._days[cluster]
        if day is None or day.totals is None:
            return None
        hours = [one.hour for one in day.hours if one.status != "incomplete" and one.hour <= self._newest]
        expected = [start + HOUR * i for i in range((self._newest - start) // HOUR + 1)]
        if hours != expected or {one.currency for one in day.hours} != {self._currency}:
            return None
        units = {unit: DayToDate(costs.allocated_usd, costs.allocated_gpu_hours) for unit, costs in day.units.items()}
        if day.hours[-1].hour > self._newest:  # closed before this tick was heard
            for summary in self._sources.ledger.summaries(cluster, self._known_until, start + DAY):
                for unit, costs in costs_by_unit(summary).items():
                    own = units[unit]
                    units[unit] = DayToDate(own.usd - costs.allocated_usd, own.gpu_hours - costs.allocated_gpu_hours)
        return ClusterDayToDate(units, self._pricing)

    def _reference(self, cluster: str, weeks: int) -> ClusterDayToDate | None:
        key = (cluster, weeks)
        if key not in self._references:
            self._references[key] = self._sources.spend.day_to_date(cluster, self._newest - WEEK * weeks)
        return self._references[key]

    @property
    def _currency(self) -> str:
        return self._settings.pricing.currency

    @cached_property
    def _pricing(self) -> str:
        """Tells this way of pricing from others: sources, splits and discounts, not the prices themselves."""
        return pricing_fingerprint(self._settings)


def pricing_fingerprint(settings: AlertingSettings) -> str:
    """The way that prices are found, in a few words that change when it does."""
    section = settings.pricing
    return f"{section.currency} {'>'.join(section.ordered_sources)} {section.split}"


def _of(day: list[ClusterDayToDate], unit: str) -> DayToDate:
    own = [one.units[unit] for one in day if unit in one.units]
    return DayToDate(sum((one.usd for one in own), ZERO), sum((one.gpu_hours for one in own), ZERO))
