"""Top wasters: the workloads that waste most, since when they do, and which of their pods waste most."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import Costs
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import Line
from gpucost.core.hours import DAY, floor_day
from gpucost.core.ledger import Manifest
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.dimensions import GroupKey
from gpucost.core.query.grouping import CellKey, GroupRow
from gpucost.reports.cost_reader import MAX_PART_WORK, CostReader, QueryTooLargeError
from gpucost.reports.records import CostReport, PeriodCosts
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import PublishedHours, RollupReader

MAX_PODS = 10
"""Pods listed for each workload."""
_POD_PERIOD = 2 * DAY
"""Pods are listed only if they ran within this time before the period's end."""
DEFAULT_TOP_WASTERS, MAX_TOP_WASTERS = 20, 100


class TopWaster(Struct, frozen=True):
    """A workload and its waste."""

    row: GroupRow
    since: datetime | None
    """First of the consecutive UTC days with waste that end with the last such day in the period; None if none."""
    hour: datetime | None
    """The newest hour with figures in the period's last two days. `pods` are from this hour."""
    pods: tuple[Line, ...]
    """Pods with waste in that hour, most waste first; at most ten."""


class WasteReports:
    """Reads the waste of workloads.

    Args:
        ledger: all hours.
        rollups: all rollups.
        scope: what the caller may see of them.
        max_part_work: records after which a part of the report ends.
    """

    GROUP_BY: ClassVar = ("cluster", "business_unit", "namespace", "workload_kind", "workload")

    def __init__(
        self, ledger: PublishedHours, rollups: RollupReader, scope: Scope, *, max_part_work: int = MAX_PART_WORK
    ) -> None:
        self._ledger = scoped_hours(ledger, scope)
        self._reader = CostReader(ledger, rollups, scope, max_part_work=max_part_work)
        self._waste_days: dict[GroupKey, set[datetime]] = {}
        self._newest_manifests: dict[str, Manifest] = {}

    def read(self, query: CostQuery, clusters: Sequence[str], first_batch: int) -> PeriodCosts:
        """Read the costs of workloads, and remember the days on which each had waste.

        A part has all rows of its clusters, because the day since which there was waste needs all days.

        Raises:
            InvalidInputError: the query reads too much.
            SourceError: rows and sums differ, for example because lines have expired.
        """
        key_length = len(self.GROUP_BY)

        def record_waste_day(moment: datetime, cell: CellKey, costs: Costs) -> None:
            if costs.waste_usd > 0:
                _, _, key = cell
                self._waste_days.setdefault(key[:key_length], set()).add(floor_day(moment))

        try:
            period_costs = self._reader.read(
                query, clusters, record_waste_day, first_batch=first_batch, has_whole_clusters=True
            )
        except QueryTooLargeError as error:
            raise InvalidInputError(f"{error.problem} Shorten the period, or select one business_unit.") from error
        earliest = query.period.end - _POD_PERIOD
        self._newest_manifests = {
            name: manifest for name, manifest in period_costs.newest_manifests.items() if manifest.hour >= earliest
        }
        return period_costs

    def top_wasters(self, report: CostReport) -> list[TopWaster]:
        """Return the workloads of a page with pods that are read from the same versions of hours as their rows."""
        lines: dict[tuple[str, str], list[Line]] = {}
        top_wasters = []
        for row in report.rows:
            cluster, unit, *_ = key = tuple(row.group.values())
            newest = self._newest_manifests.get(cluster)
            if newest is not None and (cluster, unit) not in lines:
                lines[cluster, unit] = self._ledger.lines_of(newest, unit)
            pods = _top_pods(key, lines.get((cluster, unit), []))
            since = _first_waste_day(self._waste_days.get(key, set()), report.period.start)
            top_wasters.append(TopWaster(row, since, newest.hour if newest else None, pods))
        return top_wasters


def _top_pods(key: GroupKey, lines: Sequence[Line]) -> tuple[Line, ...]:
    _, unit, namespace, kind, workload = key
    wasting_lines = [
        line
        for line in lines
        if (line.business_unit, line.namespace, line.workload_kind, line.workload) == (unit, namespace, kind, workload)
        and line.waste_usd
    ]
    return tuple(sorted(wasting_lines, key=lambda line: (-(line.waste_usd or 0), line.pod))[:MAX_PODS])


def _first_waste_day(days: set[datetime], start: datetime) -> datetime | None:
    """Return the first of the consecutive days that end with the last day, but not before the period's start."""
    if not days:
        return None
    first = max(days)
    while first - DAY in days:
        first -= DAY
    return max(first, start)
