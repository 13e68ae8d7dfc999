"""The current month's spend by cluster and by business unit with a budget, and the projection to the month's end."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import to_decimal
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import DAY, HOUR, floor_day, month_bounds
from gpucost.core.ledger import costs_by_unit
from gpucost.core.query.periods import MIN_RUN_RATE_HOURS, ClusterSpend, counted_since, run_rate
from gpucost.features.alerting.ports import PartialMonthSpend
from gpucost.features.alerting.rule_kinds.budget import lowest_budget
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.reports.parameters import PublishedUntil
from gpucost.storage.ports import Clock, PublishedHours, Rollups, SettingsStore

# A month's spend in one cluster, and what it means for each business unit.

LOOK_BACK_FOR_UNITS = timedelta(days=7)
"""How far before the month a cluster's units are looked up while the month has little data."""


class ClusterMonth(Struct, frozen=True):
    """The month so far in one cluster."""

    spend: PartialMonthSpend
    start: datetime
    """The month's start."""
    has_left: bool = False
    earlier_units: frozenset[str] = frozenset()
    """Units that had costs in the week before the month, if the month has too little data to name its units."""
    is_summed: bool = True
    """Whether all parts of the month are summed, in the currency of the settings."""

    @property
    def units(self) -> Collection[str]:
        """The business units whose costs the cluster has."""
        return self.earlier_units | self.spend.spend_by_unit.keys()

    def of_unit(self, unit: str, since: datetime) -> ClusterSpend:
        """Return what a business unit spent in the cluster, whose hours count from a time on."""
        return ClusterSpend(
            self.spend.spend_by_unit.get(unit, Decimal(0)), self.spend.hours_with_data, since, self.has_left
        )


def earlier_units(rollups: Rollups, cluster: str, start: datetime, spend: PartialMonthSpend) -> frozenset[str]:
    """Return the units of the week before a month that has too little data; a cluster without data has units, too."""
    if spend.hours_with_data >= MIN_RUN_RATE_HOURS:
        return frozenset()
    days = rollups.days(cluster, start - LOOK_BACK_FOR_UNITS, start)
    return frozenset(unit for day in days for unit in day.costs)


class ClusterMonths(dict[str, ClusterMonth]):
    """The month so far, by cluster."""

    @property
    def units(self) -> set[str]:
        """The business units that have costs in any cluster."""
        return {unit for month in self.values() for unit in month.units}

    def spent(self, unit: str) -> Decimal | None:
        """Return what a unit spent; None if the month of one of its clusters is not known."""
        spends = self._spends(unit, lambda month: month.start)
        return None if spends is None else sum((spend.spent for spend in spends), Decimal(0))

    def run_rate(self, unit: str, until: datetime, end: datetime) -> Decimal | None:
        """Return the unit's run rate; None if too little is known."""
        first_hours = [month.spend.first_hour for month in self.values() if month.spend.first_hour is not None]
        first_hour = min(first_hours, default=None)
        spends = self._spends(unit, lambda month: counted_since(month.spend.first_hour, first_hour, month.start))
        return None if spends is None else run_rate(spends, until, end)

    def least_cost(self, unit: str, until: datetime, end: datetime) -> Decimal | None:
        """Return what the month costs at least: as the run rate, but hours before the first data of a cluster are free.

        If that exceeds a budget, the month does, whatever those hours cost.
        """
        spends = self._spends(unit, lambda month: month.spend.first_hour or month.start)
        return None if spends is None else run_rate(spends, until, end)

    def _spends(self, unit: str, since: Callable[[ClusterMonth], datetime]) -> list[ClusterSpend] | None:
        of_unit = [month for month in self.values() if unit in month.units]
        is_summed = all(month.is_summed for month in of_unit)
        return [month.of_unit(unit, since(month)) for month in of_unit] if is_summed else None


# Business units that have a budget.

BudgetStatus = Literal["exceeded", "projected", "within", "unknown"]


class UnitBudget(Struct, frozen=True):
    """A business unit's month against its budget. Amounts are of all clusters, also of those that left within it."""

    business_unit: str
    budget_usd: Decimal
    spent_usd: Decimal
    projected_usd: Decimal | None
    """The run rate; if that is not known, what the month costs at least, if that exceeds the budget."""

    @property
    def status(self) -> BudgetStatus:
        """Whether the spend, or else its projection, exceeds the budget."""
        if self.spent_usd > self.budget_usd:
            return "exceeded"
        if self.projected_usd is None:
            return "unknown"
        return "projected" if self.projected_usd > self.budget_usd else "within"


class MonthBudgets(Struct, frozen=True):
    """A month's budgets, the largest share of a budget first."""

    start: datetime
    end: datetime
    known_until: datetime
    """End of the hours whose cost counts as spent."""
    currency: str
    rows: tuple[UnitBudget, ...]


class BudgetService:
    """Compares the current month with the settings' budgets.

    Args:
        settings_store: has the clusters and budgets.
        rollups: reads the month's days.
        ledger: reads the hours that not all clusters have published yet.
        clock: the current time.
    """

    def __init__(
        self, settings_store: SettingsStore[SettingsDocument], rollups: Rollups, ledger: PublishedHours, *, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._ledger = ledger
        self._published_until = PublishedUntil(settings_store, ledger, clock)

    def current_month(self, scope: Scope) -> MonthBudgets:
        """Compare the current month of the units that the caller may see.

        Raises:
            InvalidInputError: the month has several currencies.
            SettingsMissingError: no settings yet.
        """
        stored = self._settings_store.current()
        settings = stored.settings
        until = self._published_until()
        start, end = month_bounds(until - HOUR)
        months = ClusterMonths(
            {
                cluster: self._cluster_month(cluster, start, until, has_left=settings.cluster(cluster) is None)
                for cluster in stored.clusters(start)
            }
        )
        currencies = set[str]().union(*(month.spend.currencies for month in months.values()))
        if len(currencies) > 1:
            raise InvalidInputError(
                f"this month has several currencies: {', '.join(sorted(currencies))}. Budgets need a single one"
            )
        units = {unit.name for unit in settings.business_units} | months.units
        rows = []
        for unit in sorted(filter(scope.covers, units)):
            budget = lowest_budget(settings.alerts.rules, unit, months=1)
            if budget is None:
                continue
            projected = months.run_rate(unit, until, end)
            if projected is None:
                least = months.least_cost(unit, until, end)
                projected = least if least is not None and least > budget else None
            spent = months.spent(unit) or Decimal(0)  # never None, because each of these months was summed
            rows.append(UnitBudget(unit, budget, spent, projected))
        rows.sort(key=lambda row: -max(row.spent_usd, row.projected_usd or row.spent_usd) / row.budget_usd)
        return MonthBudgets(start, end, until, next(iter(currencies), settings.pricing.currency), tuple(rows))

    def _cluster_month(self, cluster: str, start: datetime, until: datetime, *, has_left: bool) -> ClusterMonth:
        spend = self._month_until(cluster, start, until)
        return ClusterMonth(spend, start, has_left, earlier_units(self._rollups, cluster, start, spend))

    def _month_until(self, cluster: str, start: datetime, until: datetime) -> PartialMonthSpend:
        """Sum a cluster's month, without the hour that other clusters have not published yet."""
        last_day_end = floor_day(until - HOUR) + DAY
        days = self._rollups.days(cluster, start, last_day_end)
        month = PartialMonthSpend.sum_days(days)
        is_ahead = any(manifest.hour >= until for day in days[-1:] for manifest in day.manifests)
        if not is_ahead:
            return month
        spend, hours = dict(month.spend_by_unit), month.hours_with_data
        for summary in self._ledger.summaries(cluster, until, last_day_end):
            hours -= all(manifest.status != "incomplete" for manifest in summary.manifests)
            for unit, costs in costs_by_unit(summary).items():
                spend[unit] -= to_decimal(costs.allocated_usd)
        return PartialMonthSpend(spend, hours, month.currency, month.first_hour)
