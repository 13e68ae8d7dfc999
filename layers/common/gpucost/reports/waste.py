"""Worst offenders: which workloads waste most, since when, and which of their pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from gpucost.core.access import Scope
from gpucost.core.hours import floor_day
from gpucost.core.ledger import Manifest
from gpucost.core.model import Costs, Line
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.dimensions import Key
from gpucost.core.query.grouping import Cell, QueryResult, Row
from gpucost.core.rollups import DAY
from gpucost.reports.period_totals import PeriodTotals
from gpucost.reports.reading import CostReader
from gpucost.reports.records import CostReport
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import ReportedHours, SummedVersions

MAX_PODS = 10
"""Pods shown of each workload."""
_RECENT = 2 * DAY
"""Before the period's end: pods of longer ago are not shown."""
DEFAULT_TOP_WASTERS, MAX_TOP_WASTERS = 20, 100


@dataclass(frozen=True, slots=True)
class TopWaster:
    """One workload and what it wasted."""

    row: Row
    since: datetime | None
    """The UTC day from which on it wasted on every day up to its last in the period; None: it wasted nothing."""
    hour: datetime | None
    """The newest hour of the period's last two days that has figures: the pods are of that hour."""
    pods: tuple[Line, ...]
    """Those that wasted in that hour, the worst first; at most ten."""


@dataclass(frozen=True, slots=True)
class WastePage:
    """A page of offenders."""

    report: CostReport
    top_wasters: list[TopWaster]


class WasteReports:
    """Finds who wasted most.

    Args:
        ledger: every hour.
        rollups: every day.
        scope: what of them the caller may see.
    """

    GROUP_BY: ClassVar = ("cluster", "business_unit", "namespace", "workload_kind", "workload")

    def __init__(self, ledger: ReportedHours, rollups: SummedVersions, scope: Scope) -> None:
        self._ledger = scoped_hours(ledger, scope)
        self._reader = CostReader(ledger, rollups, scope)
        self._days: dict[Key, set[datetime]] = {}
        self._newest: dict[str, Manifest] = {}

    def read(self, question: CostQuery, clusters: Sequence[str]) -> tuple[QueryResult, PeriodTotals]:
        """What workloads cost, noting the days on which each wasted."""
        count = len(self.GROUP_BY)

        def seen(moment: datetime, cell: Cell, costs: Costs) -> None:
            if costs.waste_usd > 0:
                self._days.setdefault(cell.key[:count], set()).add(floor_day(moment))

        read, known = self._reader.read(question, clusters, seen)
        end = question.period.end
        self._newest = {name: one for name, one in known.newest_manifests.items() if one.hour >= end - _RECENT}
        return read, known

    def page(self, report: CostReport) -> WastePage:
        """The offenders of a page, each with its pods, which are of the versions that its row is of."""
        lines: dict[tuple[str, str], list[Line]] = {}
        found = []
        for row in report.rows:
            cluster, unit, *_ = key = tuple(row.group.values())
            newest = self._newest.get(cluster)
            if newest is not None and (cluster, unit) not in lines:
                lines[cluster, unit] = self._ledger.lines_of(newest, unit)
            pods = _worst(key, lines.get((cluster, unit), []))
            since = _since(self._days.get(key, set()), report.period.start)
            found.append(TopWaster(row, since, newest.hour if newest else None, pods))
        return WastePage(report, found)


def _worst(key: Key, lines: Sequence[Line]) -> tuple[Line, ...]:
    _, unit, namespace, kind, workload = key
    own = [
        line
        for line in lines
        if (line.business_unit, line.namespace, line.workload_kind, line.workload) == (unit, namespace, kind, workload)
        and line.waste_usd
    ]
    return tuple(sorted(own, key=lambda line: (-(line.waste_usd or 0), line.pod))[:MAX_PODS])


def _since(days: set[datetime], start: datetime) -> datetime | None:
    """The first of the days without a gap up to the last of them."""
    if not days:
        return None
    first = max(days)
    while first - DAY in days:
        first -= DAY
    return max(first, start)
