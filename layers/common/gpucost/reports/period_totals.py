"""What a period's hours say beside their rows: sums of the fleet, coverage, currency, versions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpucost.core.errors import InvalidInputError
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Capacity, Costs, Coverage, Totals
from gpucost.core.money import quantize
from gpucost.core.rollups import DaySummary, by_unit
from gpucost.reports.records import PeriodCoverage


@dataclass(slots=True)
class PeriodTotals:
    """What is added up while hours and days are read."""

    selected_units: tuple[str, ...] | None = None
    """The business units whose sums are needed beside the fleet's."""
    costs: list[Costs] = field(default_factory=list)
    capacities: list[Capacity | None] = field(default_factory=list)
    costs_by_unit: dict[str, list[Costs]] = field(default_factory=dict)
    coverages: list[Coverage] = field(default_factory=list)
    currencies: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    """Of every hour that was read: whatever changes a figure changes one of them."""
    hour_counts: Counter[str] = field(default_factory=Counter)
    """How many of each cluster have a record."""
    complete_hours: int = 0
    newest_manifests: dict[str, Manifest] = field(default_factory=dict)
    """Of each cluster's hours the newest one with figures."""

    def add_hour(self, summary: HourSummary) -> bool:
        """Add an hour; whether it has figures."""
        self._add_coverage(summary.cluster, summary.hour, summary.version, summary.coverage)
        if summary.totals is None or summary.status == "incomplete":
            return False
        self.complete_hours += summary.status == "complete"
        self.currencies.add(summary.currency)
        self.costs.append(summary.totals.costs)
        self.capacities.append(summary.totals.capacity)
        if self.selected_units is not None:
            self._add_units(by_unit(summary))
        return True

    def add_day(self, day: DaySummary) -> bool:
        """Add a day; whether it has figures."""
        self.add_manifests(day.hours)
        if day.totals is None:
            return False
        self.currencies |= {one.currency for one in day.hours if one.status != "incomplete"}
        self.costs.append(day.totals.costs)
        self.capacities.append(day.totals.capacity)
        self._add_units(day.units)
        return True

    def add_manifests(self, manifests: Sequence[Manifest]) -> None:
        """Add where hours stand, without their figures."""
        for one in manifests:
            self._add_coverage(one.cluster, one.hour, one.version, one.coverage)
            self.complete_hours += one.status == "complete"

    def _add_coverage(self, cluster: str, hour: datetime, version: int, coverage: Coverage | None) -> None:
        self.versions.add(f"{cluster} {hour.isoformat()} {version}")
        self.hour_counts[cluster] += 1
        if coverage is not None:
            self.coverages.append(coverage)

    def unit_costs(self) -> Costs:
        """What the units that are needed cost, or all."""
        if self.selected_units is None:
            return Costs.total(self.costs)
        return Costs.total(costs for parts in self.costs_by_unit.values() for costs in parts)

    def _add_units(self, units: Mapping[str, Costs]) -> None:
        for unit in self.selected_units or ():
            if unit in units:
                self.costs_by_unit.setdefault(unit, []).append(units[unit])

    def totals(self) -> Totals | None:
        """Exact sums; the capacity is unknown as soon as one hour's is."""
        if not self.costs:
            return None
        known = [capacity for capacity in self.capacities if capacity is not None]
        complete = len(known) == len(self.capacities)
        return Totals(Costs.total(self.costs), Capacity.total(known) if complete else None)

    def currency(self, otherwise: str) -> str:
        """The one of all amounts.

        Args:
            otherwise: the settings', where no hour has figures.

        Raises:
            InvalidInputError: there are several, which are never added up.
        """
        if len(self.currencies) > 1:
            raise InvalidInputError(
                f"the period has hours in {' and '.join(sorted(self.currencies))}, which are never added up; "
                "ask for one cluster, or for the time before or after the change"
            )
        return next(iter(self.currencies), otherwise)

    def coverage(self, hours_expected: int) -> PeriodCoverage:
        """How much of the period is known."""
        return PeriodCoverage(
            hours_expected=hours_expected,
            hours_complete=self.complete_hours,
            allocation=_mean([coverage.allocation for coverage in self.coverages]),
            utilization=_mean([seen.utilization for seen in self.coverages if seen.utilization is not None]),
        )


def _mean(values: Sequence[Decimal]) -> Decimal | None:
    return quantize(sum(values, Decimal(0)) / len(values)) if values else None
