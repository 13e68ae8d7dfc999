"""The ledger as a caller may see it: whatever a report reads, reads this, so that no report can forget a filter.

For one who may not see the whole fleet, hours and days hold only that caller's business units, sums are sums of those,
and nothing says what the fleet has or costs: the answer closes on allocated = effective + waste + unmeasured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Never

from gpucost.core.access import Scope
from gpucost.core.errors import AccessDeniedError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import HourSummary, Manifest, Restatement
from gpucost.core.model import ClusterCharge, Costs, Line, NodeHour, Totals
from gpucost.core.rollups import DaySummary, FactKey, UnitHour
from gpucost.storage.ports import ReportedHours, SummedVersions


def scoped_hours(ledger: ReportedHours, scope: Scope) -> ReportedHours:
    """The hours that a scope covers."""
    return ledger if scope.is_fleet else _ScopedHours(ledger, scope)


def scoped_rollups(rollups: SummedVersions, scope: Scope) -> SummedVersions:
    """Sums of what a scope covers."""
    return rollups if scope.is_fleet else _ScopedRollups(rollups, scope)


def _refuse() -> Never:
    raise AccessDeniedError("this is answered to those who may see all business units; your roles cover some")


@dataclass(frozen=True, slots=True)
class _ScopedHours:
    """Of `ReportedHours`, what some business units may see."""

    ledger: ReportedHours
    scope: Scope

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        found = self.ledger.manifest(cluster, hour)
        return None if found is None else replace(found, notes=())

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [replace(one, notes=()) for one in self.ledger.manifests(cluster, start, end)]

    def latest(self, cluster: str) -> Manifest | None:
        found = self.ledger.latest(cluster)
        return None if found is None else replace(found, notes=())

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        return {}  # they name nodes, pods and namespaces of anybody

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        return [self._summary(one) for one in self.ledger.summaries_of(manifests)]

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        found = self.manifests(cluster, hour, hour + HOUR)
        return [line for one in found for line in self.lines_of(one, business_unit)]

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        if business_unit is not None:
            self.scope.require(business_unit)
            return self.ledger.lines_of(manifest, business_unit)
        return [line for unit in sorted(self.scope.units or ()) for line in self.ledger.lines_of(manifest, unit)]

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        _refuse()

    def nodes(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        _refuse()

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        _refuse()

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        _refuse()

    def _summary(self, summary: HourSummary) -> HourSummary:
        groups = {key: costs for key, costs in summary.groups.items() if self.scope.covers(key[0])}
        return replace(summary, groups=groups, totals=_totals(summary.totals, groups.values()))


@dataclass(frozen=True, slots=True)
class _ScopedRollups:
    """Of `SummedVersions`, what some business units may see; of the versions it tells what it is told of them."""

    rollups: SummedVersions
    scope: Scope

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        return [self._day(one) for one in self.rollups.days_of(manifests)]

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[UnitHour]:
        self.scope.require(business_unit)
        return self.rollups.unit_hours_of(manifests, business_unit)

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        if business_unit is not None:
            self.scope.require(business_unit)
        return [
            (day, {key: costs for key, costs in facts.items() if self.scope.covers(key.business_unit)})
            for day, facts in self.rollups.facts_of(manifests, business_unit)
        ]

    def _day(self, day: DaySummary) -> DaySummary:
        units = {unit: costs for unit, costs in day.units.items() if self.scope.covers(unit)}
        return replace(day, units=units, totals=_totals(day.totals, units.values()))


def _totals(totals: Totals | None, groups: Iterable[Costs]) -> Totals | None:
    """Sums of the groups, with nothing of the fleet; None where the hours have no figures."""
    return None if totals is None else Totals(Costs.total(groups), None)
