"""Sums over all hours of a report's period: fleet costs and capacity, coverage, currencies and versions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from gpucost.core.amounts import Capacity, Costs, Totals, quantize
from gpucost.core.errors import InvalidInputError
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Coverage
from gpucost.core.rollups import DaySummary, costs_by_unit
from gpucost.reports.records import PeriodCoverage


@dataclass(slots=True)
class PeriodTotals:
    """Adds up hours and days while they are read."""

    selected_units: tuple[str, ...] | None = None
    """Business units to sum separately from the fleet; None sums the fleet only."""
    costs: list[Costs] = field(default_factory=list)
    capacities: list[Capacity | None] = field(default_factory=list)
    costs_by_unit: dict[str, list[Costs]] = field(default_factory=dict)
    coverages: list[Coverage] = field(default_factory=list)
    currencies: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    """Versions of all hours read. Any change of a figure changes one of them."""
    hour_counts: Counter[str] = field(default_factory=Counter)
    """Number of recorded hours by cluster."""
    complete_hours: int = 0
    newest_manifests: dict[str, Manifest] = field(default_factory=dict)
    """The newest hour with figures, by cluster."""

    def add_hour(self, summary: HourSummary) -> bool:
        """Add an hour and return whether it has figures."""
        self._add_coverage(summary.cluster, summary.hour, summary.version, summary.coverage)
        if summary.totals is None or summary.status == "incomplete":
            return False
        self.complete_hours += summary.status == "complete"
        self.currencies.add(summary.currency)
        self.costs.append(summary.totals.costs)
        self.capacities.append(summary.totals.capacity)
        if self.selected_units is not None:
            self._add_units(costs_by_unit(summary))
        return True

    def add_day(self, day: DaySummary) -> bool:
        """Add a day and return whether it has figures."""
        self.add_manifests(day.hours)
        if day.totals is None:
            return False
        self.currencies |= {hour.currency for hour in day.hours if hour.status != "incomplete"}
        self.costs.append(day.totals.costs)
        self.capacities.append(day.totals.capacity)
        self._add_units(day.units)
        return True

    def add_manifests(self, manifests: Sequence[Manifest]) -> None:
        """Add the status, version and coverage of hours, without their figures."""
        for manifest in manifests:
            self._add_coverage(manifest.cluster, manifest.hour, manifest.version, manifest.coverage)
            self.complete_hours += manifest.status == "complete"

    def _add_coverage(self, cluster: str, hour: datetime, version: int, coverage: Coverage | None) -> None:
        self.versions.add(f"{cluster} {hour.isoformat()} {version}")
        self.hour_counts[cluster] += 1
        if coverage is not None:
            self.coverages.append(coverage)

    def unit_costs(self) -> Costs:
        """Return the costs of the selected business units, or of all if none are selected."""
        if self.selected_units is None:
            return Costs.total(self.costs)
        return Costs.total(costs for parts in self.costs_by_unit.values() for costs in parts)

    def _add_units(self, units: Mapping[str, Costs]) -> None:
        for unit in self.selected_units or ():
            if unit in units:
                self.costs_by_unit.setdefault(unit, []).append(units[unit])

    def totals(self) -> Totals | None:
        """Return exact sums, or None if no hour has figures. The capacity is None if any hour's is."""
        if not self.costs:
            return None
        return Totals(Costs.total(self.costs), Capacity.total_if_complete(self.capacities))

    def currency(self, default: str) -> str:
        """Return the currency of all amounts.

        Args:
            default: returned if no hour has figures.

        Raises:
            InvalidInputError: the hours have several currencies, which cannot be added up.
        """
        if len(self.currencies) > 1:
            raise InvalidInputError(
                f"the period has amounts in {' and '.join(sorted(self.currencies))}, which cannot be added up. "
                "Select one cluster, or a period before or after the change of currency."
            )
        return next(iter(self.currencies), default)

    def coverage(self, hours_expected: int) -> PeriodCoverage:
        """Return how much of the period has been measured."""
        return PeriodCoverage(
            hours_expected=hours_expected,
            hours_complete=self.complete_hours,
            allocation=_mean([coverage.allocation for coverage in self.coverages]),
            utilization=_mean(
                [coverage.utilization for coverage in self.coverages if coverage.utilization is not None]
            ),
        )


def _mean(shares: Sequence[Decimal]) -> Decimal | None:
    return quantize(sum(shares, Decimal(0)) / len(shares)) if shares else None
