"""A month's spend in one cluster, and what it means for each business unit."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from gpucost.core.run_rate import MIN_RUN_RATE_HOURS, ClusterSpend, counted_since, run_rate
from gpucost.features.alerting.ports import PartialMonthSpend
from gpucost.storage.ports import Rollups

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
