"""Reads and adds up the ledger records for a cost query, choosing the smallest records that have its dimensions.

Fleet sums come from daily rollups and hour summaries. Rows come from the same records if these have all dimensions of
the query. Otherwise rows come from day facts, and from lines for the hours outside whole days.

The current version of each hour is read once, first. All other reads are of these versions, so an hour that is
restated meanwhile does not change any part of the report. Rows and fleet sums are compared: if they differ, for
example because lines have expired, the query fails.

A report that needs more day facts than fit into the time of one response is read in parts. Each part has the rows of
its batches, whose figures add up over all parts to those of the report; fleet sums and coverage are the report's.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.costs_by_key import CostAccumulator, CostsByKey
from gpucost.core.errors import InvalidInputError, SourceError
from gpucost.core.hours import DAY, floor_day
from gpucost.core.ledger import CostSummary, Manifest, days_with_hours
from gpucost.core.query.cost_query import MAX_LINE_HOURS, CostQuery
from gpucost.core.query.dimensions import (
    DAY_DIMENSIONS,
    LINE_DIMENSIONS,
    SUMMARY_DIMENSIONS,
    GroupKey,
    key_of_fact,
    key_of_line,
    key_of_names,
)
from gpucost.core.query.grouping import CellKey
from gpucost.core.query.periods import Period
from gpucost.reports.records import PeriodCosts
from gpucost.reports.scoped import scoped_hours, scoped_rollups
from gpucost.storage.ports import PublishedHours, RollupReader

MAX_CELLS = 100_000
"""Most cells of one report."""
MAX_LINES = 500_000
"""Most lines that one report is summed from: half of what can be read in 30 seconds."""
MAX_PART_WORK = 400_000
"""Day facts and lines that one part of a report is summed from, a third of what can be read in 29 seconds."""
BATCH_WORK = 2_000
"""The requests of a batch of day facts take as long as reading this many of them."""
MAX_FACT_DAYS = 105
"""Most days of a cluster's facts that are read at once, where no part of a report may end within a cluster."""
MAX_SELECTED_UNITS = 5
"""Up to this many business units are read separately. For more, the records of all units are read."""
_BATCH = 7 * DAY

K = TypeVar("K")
RowSource = Literal["sums", "units", "facts", "lines"]


class ReadPlan(Struct, frozen=True):
    """Which records the rows are summed from."""

    whole_days: Period
    """The whole days whose fleet sums are read from daily rollups. Other hours are read one by one."""
    day_source: RowSource
    """Source of the rows of these days."""
    hour_source: RowSource
    """Source of the rows of the other hours."""
    units: tuple[str, ...] | None
    """Business units whose rows are read; None for all."""


def plan_reads(query: CostQuery, scope: Scope = FULL_ACCESS) -> ReadPlan:
    """Choose the records that answer a query with the fewest reads.

    Args:
        query: the cost query.
        scope: the business units that the caller may see.

    Raises:
        InvalidInputError: the query needs lines of too many hours. The message says how to narrow it.
    """
    dimensions, is_hourly = set(query.dimensions()), not query.has_rows_of_whole_days()
    units = _selected_units(query, scope)
    days = query.period.full_days()
    no_days = Period(query.period.end, query.period.end)
    if is_hourly and query.idle != "hidden":
        days = no_days  # idle costs are shared hour by hour
    if dimensions <= DAY_DIMENSIONS:
        if not is_hourly:
            return ReadPlan(days, "sums", "sums", units)
        return ReadPlan(no_days, "sums", "sums", None) if units is None else ReadPlan(days, "units", "units", units)
    if dimensions <= SUMMARY_DIMENSIONS:
        return ReadPlan(no_days, "sums", "sums", None) if is_hourly else ReadPlan(days, "facts", "sums", units)
    read_plan = ReadPlan(days, "lines" if is_hourly or dimensions & LINE_DIMENSIONS else "facts", "lines", units)
    hours = query.period.hours() - (read_plan.whole_days.hours() if read_plan.day_source == "facts" else 0)
    if hours > MAX_LINE_HOURS:
        raise QueryTooLargeError(
            f"this query needs the pods of {hours} hours, and {MAX_LINE_HOURS} is the maximum.",
            "Use granularity=day, group and filter by business_unit and namespace only, or shorten the period.",
        )
    return read_plan


def _selected_units(query: CostQuery, scope: Scope) -> tuple[str, ...] | None:
    """Return the business units that have to be read; None if all have to be, or if there are too many."""
    if scope.business_units is None and query.idle.startswith("shared"):
        return None  # each unit's share of idle costs depends on all units
    requested_units = tuple(unit for unit in query.units_in_filter() or () if scope.covers(unit))
    units = requested_units or tuple(sorted(scope.business_units or ()))
    return units if 0 < len(units) <= MAX_SELECTED_UNITS else None


def _plan_unit_reads(unit: str, query: CostQuery) -> ReadPlan:
    if set(query.dimensions()) <= DAY_DIMENSIONS:
        return ReadPlan(query.period.full_days(), "units", "units", (unit,))
    read_plan = plan_reads(query)
    return ReadPlan(
        read_plan.whole_days,
        "facts" if read_plan.day_source == "sums" else read_plan.day_source,
        "lines" if read_plan.hour_source == "sums" else read_plan.hour_source,
        (unit,),
    )


class QueryTooLargeError(InvalidInputError):
    """A query reads or returns too much.

    Attributes:
        problem: how much, and the maximum.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem


class InconsistentRowsError(SourceError):
    """The rows of a report do not add up to its fleet sums.

    Attributes:
        problem: which rows, and why.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem


class CostReader:
    """Reads hours and rollups for cost queries.

    Args:
        ledger: all hours.
        rollups: all rollups.
        scope: what the caller may see of them.
        max_part_work: day facts and lines after which a part of a report ends; None to read all at once.
    """

    def __init__(
        self, ledger: PublishedHours, rollups: RollupReader, scope: Scope, *, max_part_work: int | None = MAX_PART_WORK
    ) -> None:
        self._max_part_work = max_part_work
        self._ledger = scoped_hours(ledger, scope)
        self._rollups = scoped_rollups(rollups, scope)
        self._scope = scope

    def read(
        self,
        query: CostQuery,
        clusters: Sequence[str],
        observer: Callable[[datetime, CellKey, Costs], None] | None = None,
        *,
        first_batch: int = 0,
        has_whole_clusters: bool = False,
    ) -> PeriodCosts:
        """Read and add up what a query needs, or the next part of it.

        Args:
            query: the cost query.
            clusters: names of the clusters to read.
            observer: called for each cost as it is read, with the hour or day it belongs to.
            first_batch: `next_batch` of the part before.
            has_whole_clusters: whether all rows of a cluster have to be in one part. Shares of idle cost need it.

        Raises:
            InvalidInputError: the query reads too much. The message says how to narrow it.
            SourceError: rows and sums differ, for example because lines have expired.
        """
        read_plan = plan_reads(query, self._scope)
        max_work = self._max_part_work if read_plan.units is None else None  # few units are few facts
        has_whole_clusters = has_whole_clusters or query.idle != "hidden"
        if max_work is not None and has_whole_clusters and read_plan.day_source == "facts":
            fact_days = read_plan.whole_days.hours() // 24
            if fact_days > MAX_FACT_DAYS:
                raise QueryTooLargeError(
                    f"this query reads {fact_days} days of a cluster at once, and {MAX_FACT_DAYS} is the maximum.",
                    "Shorten the period, select one business_unit, or group and filter by business_unit and cluster "
                    "only.",
                )

        def part() -> "_Part":
            return _Part(first_batch, max_work, has_whole_clusters=has_whole_clusters)

        aggregation = _Aggregation(self._ledger, self._rollups, query, read_plan, observer, part())
        try:
            return aggregation.read_all(clusters)
        except (InconsistentRowsError, ArithmeticError):
            # An hour whose summary is rejected as implausible: its lines have to be excluded, too.
            unusable_hours = self._find_unusable_hours(query, clusters)
            if not unusable_hours:
                raise
        return _Aggregation(self._ledger, self._rollups, query, read_plan, observer, part(), unusable_hours).read_all(
            clusters
        )

    def _find_unusable_hours(self, query: CostQuery, clusters: Sequence[str]) -> frozenset[tuple[str, datetime]]:
        """Return hours whose manifests say that they have figures, but whose summaries were rejected as implausible."""
        unusable_hours = set()
        for cluster in clusters:
            manifests = self._ledger.manifests(cluster, query.period.start, query.period.end)
            for manifest, summary in zip(manifests, self._ledger.summaries_of(manifests), strict=True):
                if manifest.status != summary.manifest.status:
                    unusable_hours.add((cluster, manifest.hour))
        return frozenset(unusable_hours)

    def read_unit(self, unit: str, query: CostQuery, clusters: Sequence[str]) -> PeriodCosts:
        """Read one business unit's rows without the fleet's sums, which takes a fraction of the reads of `read`.

        Raises:
            AccessDeniedError: the caller may not see this business unit.
            InvalidInputError: the query reads too much. The message says how to narrow it.
        """
        self._scope.require(unit)
        aggregation = _Aggregation(
            self._ledger, self._rollups, query, _plan_unit_reads(unit, query), None, _Part(0, None)
        )
        return aggregation.read_unit(clusters)


class _Part:
    """Decides which batches of a report's records belong to one part of it.

    Batches have numbers in the order in which they are read: each week of days of each cluster, with the other hours of
    the cluster in its first week, or whole clusters. The versions of the hours decide them, so every part of a report
    has the same numbers.

    Args:
        first_batch: the first batch of the part.
        max_work: records after which the part ends, with the batch that is being read; None for no end.
        has_whole_clusters: whether a batch is a whole cluster.
    """

    def __init__(self, first_batch: int, max_work: int | None, *, has_whole_clusters: bool = False) -> None:
        self.first_batch = first_batch
        self.next_batch: int | None = None
        self._max_work = max_work
        self._has_whole_clusters = has_whole_clusters
        self._batch = -1
        self._work = 0

    def begins_cluster(self, cells: int) -> bool:
        """Begin a cluster, with its first batch; return whether the part has it.

        Args:
            cells: figures in memory.
        """
        return self._begin(cells)

    def begins_week(self, cells: int, *, is_first: bool) -> bool:
        """Begin a week of the cluster; return whether the part has it. The first one is in its first batch."""
        return self._is_read() if self._has_whole_clusters or is_first else self._begin(cells)

    def add_work(self, records: int) -> None:
        """Count records that were read."""
        self._work += records

    def _begin(self, cells: int) -> bool:
        self._batch += 1
        is_full = self._max_work is not None and (self._work >= self._max_work or cells > MAX_CELLS // 2)
        if is_full and self._batch > self.first_batch and self.next_batch is None:
            self.next_batch = self._batch
        return self._is_read()

    def _is_read(self) -> bool:
        return self._batch >= self.first_batch and self.next_batch is None


class _Aggregation:
    """Adds up the costs of one query while they are read."""

    def __init__(
        self,
        ledger: PublishedHours,
        rollups: RollupReader,
        query: CostQuery,
        read_plan: ReadPlan,
        observer: Callable[[datetime, CellKey, Costs], None] | None,
        part: _Part,
        unusable_hours: Collection[tuple[str, datetime]] = (),
    ) -> None:
        self._unusable_hours = unusable_hours
        self._ledger = ledger
        self._rollups = rollups
        self._query = query
        self._plan = read_plan
        self._observer = observer
        self._part = part
        self._dimensions = query.dimensions()
        self._cells = CostAccumulator[CellKey]()
        self._summary_costs: dict[tuple[datetime, str], CostsByKey[GroupKey]] = {}
        """Costs from the summaries of hours and days, by start of the row's period and cluster."""
        self._capacities: dict[tuple[datetime, str], list[CapacityCosts | None]] = {}
        self._period_starts: dict[datetime, datetime] = {}
        self._line_count = 0
        self._expected_costs: list[Costs] = []
        """What the rows of the part have to add up to: the costs of the fleet, or of the plan's business units."""
        self._costs = PeriodCosts()

    def read_all(self, clusters: Sequence[str]) -> PeriodCosts:
        """Read the clusters and return the sums.

        Raises:
            InconsistentRowsError: rows and fleet sums differ.
        """
        for cluster in clusters:
            self._read_cluster(cluster)
        self._add_up()
        return self._costs

    def _read_cluster(self, cluster: str) -> None:
        """Read one cluster's fleet sums and rows."""
        manifests = self._manifests(cluster)
        group_of = key_of_names(self._dimensions, cluster)
        group_of_unit = cache(lambda unit: group_of((unit, "")))
        has_rows = self._part.begins_cluster(len(self._cells.keys()))
        for edge in self._outside_whole_days():
            for week in _split_into_weeks(_manifests_in(edge, manifests)):
                for summary in self._ledger.summaries_of(week):
                    self._add_summary(summary, self._plan.hour_source, itemgetter(0), group_of, has_rows=has_rows)
                if has_rows:
                    self._read_rows(self._plan.hour_source, cluster, week)
                self._check_cell_count()
        day_manifests = _manifests_in(self._plan.whole_days, manifests)
        has_weeks = self._plan.day_source == "facts"  # the records of all other sources are read at once
        summaries = {summary.start: summary for summary in self._rollups.days_of(day_manifests)}
        for number, week in enumerate(_split_into_weeks(day_manifests) if has_weeks else [day_manifests]):
            has_rows = self._part.begins_week(len(self._cells.keys()), is_first=number == 0)
            for day in days_with_hours(manifest.hour for manifest in week):
                self._add_summary(summaries[day], self._plan.day_source, str, group_of_unit, has_rows=has_rows)
            if has_rows:
                self._read_rows(self._plan.day_source, cluster, week)
            self._check_cell_count()

    def read_unit(self, clusters: Sequence[str]) -> PeriodCosts:
        """Read the rows of the plan's business unit in the clusters, and return their sums; fleet sums are not read."""
        for cluster in clusters:
            self._read_unit_in_cluster(cluster)
        self._costs.cells = self._sums()
        if self._costs.currencies:
            self._costs.summed_totals.append(Totals(self._costs.cells.total(), None))
        return self._costs

    def _read_unit_in_cluster(self, cluster: str) -> None:
        """Read the unit's rows in one cluster, and the status of the cluster's hours."""
        manifests = self._manifests(cluster)
        self._costs.add_manifests(manifests)
        self._costs.currencies |= {manifest.currency for manifest in manifests if manifest.status != "incomplete"}
        for edge in self._outside_whole_days():
            self._read_rows(self._plan.hour_source, cluster, _manifests_in(edge, manifests))
        self._read_rows(self._plan.day_source, cluster, _manifests_in(self._plan.whole_days, manifests))

    def _manifests(self, cluster: str) -> list[Manifest]:
        """Return the versions of the hours that the report is made of."""
        period = self._query.period
        manifests = self._ledger.manifests(cluster, period.start, period.end)
        if self._unusable_hours:
            # Clearing the run ID makes rollups that include the hour invalid.
            manifests = [
                replace(manifest, status="incomplete", run_id="")
                if (cluster, manifest.hour) in self._unusable_hours
                else manifest
                for manifest in manifests
            ]
        newest = next((manifest for manifest in reversed(manifests) if manifest.status != "incomplete"), None)
        if newest is not None:
            self._costs.newest_manifests[cluster] = newest
        return manifests

    def _outside_whole_days(self) -> tuple[Period, ...]:
        period, days = self._query.period, self._plan.whole_days
        return (Period(period.start, days.start), Period(days.end, period.end)) if days.hours() else (period,)

    def _add_up(self) -> None:
        """Add up what `_read_cluster` read.

        Raises:
            InconsistentRowsError: rows and fleet sums differ.
        """
        costs, read_plan = self._costs, self._plan
        costs.cells, costs.next_batch = self._sums(), self._part.next_batch
        costs.capacities = {key: CapacityCosts.total_if_complete(parts) for key, parts in self._capacities.items()}
        if (read_plan.day_source, read_plan.hour_source, read_plan.units) == ("sums", "sums", None):
            return  # rows and sums are from one source
        row_sum = costs.cells.total()
        if row_sum != Costs.total(self._expected_costs):
            raise InconsistentRowsError(
                "the rows of the period do not add up to its sums, because lines of its hours have expired or are "
                "missing.",
                "Select whole days, or group and filter by business_unit and namespace only.",
            )
        if read_plan.units is not None:
            costs.filtered_out = Costs.total(part.costs for part in costs.summed_totals) - row_sum

    def _read_rows(self, source: RowSource, cluster: str, manifests: Sequence[Manifest]) -> None:
        """Read the rows of some hours; nothing for `sums`, whose rows are read with the fleet sums."""
        if source == "units":
            self._read_units(cluster, manifests)
        elif source == "facts":
            self._read_facts(cluster, manifests)
        elif source == "lines":
            self._read_lines(cluster, manifests)

    def _read_units(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        for unit in self._plan.units or ():
            key = tuple(cluster if name == "cluster" else unit for name in self._dimensions)
            for manifest, costs in self._rollups.unit_hours_of(manifests, unit):
                if costs is not None and costs != Costs():
                    self._add_costs(manifest.hour, cluster, key, costs)

    def _read_facts(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        key_of = key_of_fact(self._dimensions, cluster)
        for week in _split_into_weeks(manifests):
            for unit in self._plan.units or (None,):
                self._part.add_work(BATCH_WORK)
                for day, facts in self._rollups.facts_of(week, unit):
                    self._part.add_work(len(facts))
                    for fact, costs in facts.items():
                        self._add_costs(day, cluster, key_of(fact), costs)
            self._check_cell_count()

    def _read_lines(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        key_of = key_of_line(self._dimensions, cluster)
        for manifest in (manifest for manifest in manifests if manifest.status != "incomplete"):
            for unit in self._plan.units or (None,):
                lines = self._ledger.lines_of(manifest, unit)
                self._line_count += len(lines)
                self._part.add_work(len(lines))
                for line in lines:
                    self._add_costs(manifest.hour, cluster, key_of(line), line.costs())
            if self._line_count > MAX_LINES:
                raise QueryTooLargeError(
                    f"this query reads more than {MAX_LINES:,} pod-hours, the maximum.",
                    "Shorten the period, or select one cluster or one business_unit.",
                )
            self._check_cell_count()

    def _add_summary(
        self,
        summary: CostSummary[K],
        source: RowSource,
        unit_of: Callable[[K], str],
        group_of: Callable[[K], GroupKey],
        *,
        has_rows: bool,
    ) -> None:
        """Add the totals of an hour or a day, and its costs if these are the source of the rows of the part."""
        self._costs.add(summary)
        if summary.totals is None or not has_rows:
            return
        start, cluster = self._period_start(summary.start), summary.cluster
        self._capacities.setdefault((start, cluster), []).append(summary.totals.capacity)
        costs, total, units = summary.costs, summary.totals.costs, self._plan.units
        if units is not None:
            costs = costs.select(key for key in costs if unit_of(key) in units)
            total = costs.total()
        self._expected_costs.append(total)
        if source != "sums":
            return
        groups: CostsByKey[GroupKey] = (
            costs.group_by(group_of) if self._dimensions else CostsByKey([()], Costs.columns([total]))
        )
        # Tables with equal keys are added faster. So groups of different clusters are not in the same table.
        row = start, cluster if "cluster" in self._dimensions else self._cell_cluster(cluster)
        self._summary_costs[row] = self._summary_costs[row] + groups if row in self._summary_costs else groups
        if self._observer is not None:
            for group, group_costs in groups.items():
                self._observer(summary.start, self._cell_key(summary.start, cluster, group), group_costs)

    def _add_costs(self, moment: datetime, cluster: str, key: GroupKey, costs: Costs) -> None:
        cell = self._cell_key(moment, cluster, key)
        self._cells.add(cell, costs)
        if self._observer is not None:
            self._observer(moment, cell, costs)

    def _cell_key(self, moment: datetime, cluster: str, key: GroupKey) -> CellKey:
        return self._period_start(moment), self._cell_cluster(cluster), key

    def _cell_cluster(self, cluster: str) -> str:
        """Return the cluster of a cell, or "" if rows of all clusters are added up. Idle is shared per cluster."""
        return cluster if self._query.idle != "hidden" else ""

    def _period_start(self, moment: datetime) -> datetime:
        start = self._period_starts.get(moment)
        if start is None:
            start = self._period_starts[moment] = self._query.row_start(moment)
        return start

    def _check_cell_count(self) -> None:
        upper_bound = len(self._cells.keys()) + sum(map(len, self._summary_costs.values()))
        if upper_bound > MAX_CELLS and len(self._cells.keys() | self._summary_cells().keys()) > MAX_CELLS:
            raise QueryTooLargeError(
                f"the report would have more than {MAX_CELLS:,} rows.",
                "Shorten the period, use granularity=day or total, group by fewer dimensions, or select one cluster.",
            )

    def _sums(self) -> CostsByKey[CellKey]:
        return self._summary_cells() + self._cells.table()

    def _summary_cells(self) -> CostsByKey[CellKey]:
        def cells(start: datetime, cluster: str, groups: CostsByKey[GroupKey]) -> CostsByKey[CellKey]:
            cell_cluster = self._cell_cluster(cluster)
            return groups.group_by(lambda group: (start, cell_cluster, group))

        return CostsByKey.concatenate(cells(*row, groups) for row, groups in self._summary_costs.items())


def _manifests_in(period: Period, manifests: Iterable[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if period.start <= manifest.hour < period.end]


def _split_into_weeks(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """Split hours into batches of seven UTC days, which are held in memory at once."""
    for _, week in groupby(manifests, key=lambda manifest: (manifest.hour - floor_day(manifests[0].hour)) // _BATCH):
        yield [*week]
