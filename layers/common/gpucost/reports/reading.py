"""Reads for a question the cheapest of the ledger's records that can answer it.

Fleet sums come from whole days and single hours. Rows come from the same records where those tell all dimensions, else
from day facts, and for the hours at a period's edges from lines. Which version of each hour is in force is read once,
and all else is what these versions say: whatever is put in force meanwhile is in no part of the answer. Both are read,
so both are compared: an answer whose rows do not add up to its sums, because lines are gone, is never given.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import sub
from typing import Literal

from gpucost.core.access import EVERYTHING, Scope
from gpucost.core.errors import InvalidInputError, SourceError
from gpucost.core.fixed_point import NOTHING, CostTable, Quanta, costs_of, plus, total, wholes
from gpucost.core.hours import floor_day
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Capacity, Costs
from gpucost.core.query.cost_query import HOURS_OF_LINES, CostQuery
from gpucost.core.query.dimensions import FROM_DAYS, FROM_LINES, FROM_SUMMARIES, Key, key_of_fact, key_of_line
from gpucost.core.query.grouping import Cell, QueryResult, fold
from gpucost.core.query.periods import Period, begin_of
from gpucost.core.rollups import DAY, DaySummary
from gpucost.reports.period_totals import PeriodTotals
from gpucost.reports.scoped import scoped_hours, scoped_rollups
from gpucost.storage.ports import ReportedHours, SummedVersions

MAX_CELLS = 100_000
"""Figures held in memory at once."""
MAX_LINES = 500_000
"""Lines that one answer may be summed from: half of what 30 seconds allow."""
MAX_FACT_DAYS = 105
"""Cluster-days of all units' facts that one answer may be summed from: three clusters for 35 days."""
MAX_SELECTED_UNITS = 5
"""Business units that are read one by one; of more, all are."""
_PARTS = 20_000
"""Figures that wait to be added up."""
_CHUNK = 7 * DAY

RowSource = Literal["sums", "units", "facts", "lines"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Which records rows are made of."""

    whole_days: Period
    """The whole days whose fleet sums are read as days; the other hours' are read one by one."""
    day_source: RowSource
    """What the rows of those days are made of."""
    hour_source: RowSource
    units: tuple[str, ...] | None
    """Read only these business units' rows; None: all."""


def plan_reads(question: CostQuery, scope: Scope = EVERYTHING) -> ReadPlan:
    """The cheapest way to answer.

    Args:
        question: what is asked.
        scope: whose business units may be read.

    Raises:
        InvalidInputError: it would read too many hours of lines; says what to narrow.
    """
    needed, is_hourly = set(question.dimensions()), question.granularity == "hour"
    units = _units(question, scope)
    days = question.period.whole_days()
    none = Period(question.period.end, question.period.end)
    if is_hourly and question.idle != "hidden":
        days = none  # who bears what nobody held is worked out hour by hour
    if needed <= FROM_DAYS:
        if not is_hourly:
            return ReadPlan(days, "sums", "sums", units)
        return ReadPlan(none, "sums", "sums", None) if units is None else ReadPlan(days, "units", "units", units)
    if needed <= FROM_SUMMARIES:
        return ReadPlan(none, "sums", "sums", None) if is_hourly else ReadPlan(days, "facts", "sums", units)
    found = ReadPlan(days, "lines" if is_hourly or needed & FROM_LINES else "facts", "lines", units)
    hours = question.period.hours() - (found.whole_days.hours() if found.day_source == "facts" else 0)
    if hours > HOURS_OF_LINES:
        raise InvalidInputError(
            f"by hour, these dimensions are answered for at most {HOURS_OF_LINES} hours at once; ask for "
            "granularity=day, group and filter by business_unit and namespace alone, or shorten the period"
        )
    return found


def _units(question: CostQuery, scope: Scope) -> tuple[str, ...] | None:
    """The business units that alone need to be read, where they are few."""
    if scope.units is None and question.idle.startswith("shared"):
        return None  # who bears what depends on everybody
    asked = tuple(unit for unit in question.only_units() or () if scope.covers(unit))
    units = asked or tuple(sorted(scope.units or ()))
    return units if 0 < len(units) <= MAX_SELECTED_UNITS else None


def _plan_of_unit(unit: str, question: CostQuery) -> ReadPlan:
    if set(question.dimensions()) <= FROM_DAYS:
        return ReadPlan(question.period.whole_days(), "units", "units", (unit,))
    planned = plan_reads(question)
    return ReadPlan(
        planned.whole_days,
        "facts" if planned.day_source == "sums" else planned.day_source,
        "lines" if planned.hour_source == "sums" else planned.hour_source,
        (unit,),
    )


class InconsistentRowsError(SourceError):
    """Rows do not add up to the sums that they are rows of."""


class CostReader:
    """Reads hours and their rollups for one question.

    Args:
        ledger: every hour.
        rollups: every day.
        scope: what of them the caller may see.
    """

    def __init__(self, ledger: ReportedHours, rollups: SummedVersions, scope: Scope) -> None:
        self._ledger = scoped_hours(ledger, scope)
        self._rollups = scoped_rollups(rollups, scope)
        self._scope = scope

    def read(
        self, question: CostQuery, clusters: Sequence[str], seen: Callable[[datetime, Cell, Costs], None] | None = None
    ) -> tuple[QueryResult, PeriodTotals]:
        """What the question needs.

        Args:
            question: what is to be answered.
            clusters: whose hours.
            seen: is told of every figure as it is read, with the hour or the day that it is of.

        Raises:
            InvalidInputError: too much; says what to narrow.
            SourceError: rows and sums do not agree, as lines are no longer kept.
        """
        planned = plan_reads(question, self._scope)
        if planned.day_source == "facts" and planned.units is None:
            asked = len(clusters) * (planned.whole_days.hours() // 24)
            if asked > MAX_FACT_DAYS:
                raise InvalidInputError(
                    f"the answer would be summed from {asked} days of clusters, at most {MAX_FACT_DAYS} are; shorten "
                    "the period, name one cluster or one business_unit, or group and filter by these two alone"
                )
        reading = _Aggregation(self._ledger, self._rollups, question, planned, seen)
        try:
            return reading.read_all(clusters)
        except (InconsistentRowsError, ArithmeticError):
            # Rows of an hour whose sums are beyond reason: what its lines say is left out as well.
            unusable = self._unusable(question, clusters)
            if not unusable:
                raise
        return _Aggregation(self._ledger, self._rollups, question, planned, seen, unusable).read_all(clusters)

    def _unusable(self, question: CostQuery, clusters: Sequence[str]) -> frozenset[tuple[str, datetime]]:
        """Hours of which the figures are beyond reason, though their manifests say that there are some."""
        found = set()
        for cluster in clusters:
            manifests = self._ledger.manifests(cluster, question.period.start, question.period.end)
            for manifest, summary in zip(manifests, self._ledger.summaries_of(manifests), strict=True):
                if manifest.status != summary.status:
                    found.add((cluster, manifest.hour))
        return frozenset(found)

    def read_unit(self, unit: str, question: CostQuery, clusters: Sequence[str]) -> tuple[QueryResult, PeriodTotals]:
        """One business unit's rows, with nothing of the fleet: a fraction of what `read` costs.

        Raises:
            AccessDeniedError: the caller may not see it.
            InvalidInputError: too much; says what to narrow.
        """
        self._scope.require(unit)
        found = _Aggregation(self._ledger, self._rollups, question, _plan_of_unit(unit, question), None)
        for cluster in clusters:
            found.read_rows(cluster)
        return found.rows()


class _Aggregation:
    """What is read for one answer."""

    def __init__(
        self,
        ledger: ReportedHours,
        rollups: SummedVersions,
        question: CostQuery,
        planned: ReadPlan,
        seen: Callable[[datetime, Cell, Costs], None] | None,
        unusable: Collection[tuple[str, datetime]] = (),
    ) -> None:
        self._unusable = unusable
        self._ledger = ledger
        self._rollups = rollups
        self._question = question
        self._plan = planned
        self._seen = seen
        self._dimensions = question.dimensions()
        self._cells: dict[Cell, list[Costs]] = {}
        self._days: dict[tuple[datetime, str], CostTable[str]] = {}
        """By row's period and cluster, days' sums by unit."""
        self._capacities: dict[tuple[datetime, str], list[Capacity | None]] = {}
        self._begins: dict[datetime, datetime] = {}
        self._keys: dict[tuple[str, str, str], Key] = {}
        self._parts = 0
        self._lines = 0
        self.known = PeriodTotals(planned.units)

    def read_all(self, clusters: Sequence[str]) -> tuple[QueryResult, PeriodTotals]:
        """Read clusters, and what comes of it.

        Raises:
            RowsDisagreeError: as `answer`.
        """
        for cluster in clusters:
            self.read(cluster)
        return self.answer()

    def read(self, cluster: str) -> None:
        """Read one cluster: the fleet's sums and the rows."""
        manifests = self._manifests(cluster)
        for edge in self._edges():
            for week in _weeks(_within(edge, manifests)):
                self._read_hours(cluster, week)
                self._fold()
        own = _within(self._plan.whole_days, manifests)
        for day in self._rollups.days_of(own):
            if self.known.add_day(day) and day.totals is not None:
                self._capacity(cluster, day.day, day.totals.capacity)
                if self._plan.day_source == "sums":
                    self._add_units(cluster, day)
        self._read_rows(self._plan.day_source, cluster, own)
        self._fold()

    def read_rows(self, cluster: str) -> None:
        """Read one cluster's rows alone, and where its hours stand."""
        manifests = self._manifests(cluster)
        self.known.add_manifests(manifests)
        self.known.currencies |= {one.currency for one in manifests if one.status != "incomplete"}
        for edge in self._edges():
            self._read_rows(self._plan.hour_source, cluster, _within(edge, manifests))
        self._read_rows(self._plan.day_source, cluster, _within(self._plan.whole_days, manifests))
        if any(one.status != "incomplete" for one in manifests):
            self.known.capacities.append(None)

    def rows(self) -> tuple[QueryResult, PeriodTotals]:
        """What `read_rows` read."""
        cells = self._sums()
        if self.known.capacities:
            self.known.costs += costs_of([total(cells.values())])
        return QueryResult(cells), self.known

    def _manifests(self, cluster: str) -> list[Manifest]:
        """The versions that the answer is of."""
        period = self._question.period
        found = self._ledger.manifests(cluster, period.start, period.end)
        # Without a run, no sum that was made of the hour fits it.
        found = [
            replace(one, status="incomplete", run_id="") if (cluster, one.hour) in self._unusable else one
            for one in found
        ]
        self.known.newest_manifests.update((cluster, one) for one in found if one.status != "incomplete")
        return found

    def _edges(self) -> tuple[Period, ...]:
        period, days = self._question.period, self._plan.whole_days
        return (Period(period.start, days.start), Period(days.end, period.end)) if days.hours() else (period,)

    def answer(self) -> tuple[QueryResult, PeriodTotals]:
        """What `read` read.

        Raises:
            RowsDisagreeError: its parts do not agree.
        """
        cells, planned = self._sums(), self._plan
        if (planned.day_source, planned.hour_source, planned.units) == ("sums", "sums", None):
            return QueryResult(cells, self._known_capacities()), self.known  # one source: there is nothing to compare
        detailed = total(cells.values())
        of_units, of_all = wholes([self.known.unit_costs(), Costs.total(self.known.costs)])
        if detailed != of_units:
            raise InconsistentRowsError(
                "rows and sums of the period do not agree: single lines of its hours are no longer kept, or lost; ask "
                "for whole days, or group and filter by business_unit and namespace alone"
            )
        beside = NOTHING if planned.units is None else tuple(map(sub, of_all, detailed))
        return QueryResult(cells, self._known_capacities(), beside), self.known

    def _known_capacities(self) -> dict[tuple[datetime, str], Capacity | None]:
        return {
            key: None if None in parts else Capacity.total(part for part in parts if part is not None)
            for key, parts in self._capacities.items()
        }

    def _read_hours(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        for summary in self._ledger.summaries_of(manifests):
            if self.known.add_hour(summary) and summary.totals is not None:
                self._capacity(cluster, summary.hour, summary.totals.capacity)
                if self._plan.hour_source == "sums":
                    self._add_namespaces(cluster, summary)
        self._read_rows(self._plan.hour_source, cluster, manifests)

    def _read_rows(self, source: RowSource, cluster: str, manifests: Sequence[Manifest]) -> None:
        if source == "units":
            self._read_units(cluster, manifests)
        elif source == "facts":
            self._read_facts(cluster, manifests)
        elif source == "lines":
            self._read_lines(cluster, manifests)

    def _read_units(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        for unit in self._plan.units or ():
            key = tuple(cluster if name == "cluster" else unit for name in self._dimensions)
            for hour in self._rollups.unit_hours_of(manifests, unit):
                if hour.costs is not None and hour.costs != Costs():
                    self._add(hour.manifest.hour, cluster, key, hour.costs)

    def _read_facts(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        key_of = key_of_fact(self._dimensions, cluster)
        for week in _weeks(manifests):
            for unit in self._plan.units or (None,):
                for day, facts in self._rollups.facts_of(week, unit):
                    for fact, costs in facts.items():
                        self._add(day, cluster, key_of(fact), costs)
            self._fold()

    def _read_lines(self, cluster: str, manifests: Sequence[Manifest]) -> None:
        key_of = key_of_line(self._dimensions, cluster)
        for manifest in (one for one in manifests if one.status != "incomplete"):
            for unit in self._plan.units or (None,):
                lines = self._ledger.lines_of(manifest, unit)
                self._lines += len(lines)
                for line in lines:
                    self._add(manifest.hour, cluster, key_of(line), line.costs())
            if self._lines > MAX_LINES:
                raise InvalidInputError(
                    f"the answer would be summed from more than {MAX_LINES:,} pods' hours; shorten the period, or "
                    "name one cluster or one business_unit"
                )
            self._fold()

    def _add_units(self, cluster: str, day: DaySummary) -> None:
        if not self._dimensions:
            if day.totals is not None:
                self._add(day.day, cluster, (), day.totals.costs)
            return
        units = CostTable.of(day.units)
        if self._plan.units is not None:
            units = units.only(self._plan.units)
        if "business_unit" not in self._dimensions:
            units = units.as_one("")
        where = self._begin(day.day), cluster if "cluster" in self._dimensions else self._owner(cluster)
        self._days[where] = self._days[where] + units if where in self._days else units
        if self._seen is not None:
            for unit, costs in units.items():
                self._seen(day.day, self._cell(day.day, cluster, self._key(cluster, unit, "")), costs)

    def _add_namespaces(self, cluster: str, summary: HourSummary) -> None:
        if not self._dimensions:
            if summary.totals is not None:
                self._add(summary.hour, cluster, (), summary.totals.costs)
            return
        wanted = self._plan.units
        for (unit, namespace), costs in summary.groups.items():
            if wanted is None or unit in wanted:
                self._add(summary.hour, cluster, self._key(cluster, unit, namespace), costs)

    def _key(self, cluster: str, unit: str, namespace: str) -> Key:
        known = self._keys.get((cluster, unit, namespace))
        if known is None:
            names = {"business_unit": unit, "namespace": namespace, "cluster": cluster}
            known = self._keys[cluster, unit, namespace] = tuple(names[name] for name in self._dimensions)
        return known

    def _add(self, moment: datetime, cluster: str, key: Key, costs: Costs) -> None:
        cell = self._cell(moment, cluster, key)
        self._cells.setdefault(cell, []).append(costs)
        self._parts += 1
        if self._seen is not None:
            self._seen(moment, cell, costs)

    def _cell(self, moment: datetime, cluster: str, key: Key) -> Cell:
        return Cell(self._begin(moment), self._owner(cluster), key)

    def _owner(self, cluster: str) -> str:
        """Clusters are told apart where each has something of its own to share."""
        return cluster if self._question.idle != "hidden" else ""

    def _begin(self, moment: datetime) -> datetime:
        found = self._begins.get(moment)
        if found is None:
            found = self._begins[moment] = begin_of(moment, self._question.granularity, self._question.period)
        return found

    def _capacity(self, cluster: str, moment: datetime, capacity: Capacity | None) -> None:
        self._capacities.setdefault((self._begin(moment), cluster), []).append(capacity)

    def _fold(self) -> None:
        most = len(self._cells) + sum(map(len, self._days.values()))
        if most > MAX_CELLS and len(self._cells.keys() | self._of_days().keys()) > MAX_CELLS:
            raise InvalidInputError(
                f"the answer would have more than {MAX_CELLS:,} rows; shorten the period, ask for granularity=day or "
                "total, group by less, or name one cluster"
            )
        if self._parts > 2 * len(self._cells) + _PARTS:
            self._cells = {cell: [costs] for cell, costs in fold(self._cells).items()}
            self._parts = len(self._cells)

    def _sums(self) -> dict[Cell, Quanta]:
        sums = self._of_days()
        for cell, quanta in CostTable.of(fold(self._cells)).quanta.items():
            sums[cell] = plus(sums[cell], quanta) if cell in sums else quanta
        return sums

    def _of_days(self) -> dict[Cell, Quanta]:
        return {
            Cell(begin, self._owner(cluster), self._key(cluster, unit, "")): quanta
            for (begin, cluster), units in self._days.items()
            for unit, quanta in units.quanta.items()
        }


def _within(span: Period, manifests: Iterable[Manifest]) -> list[Manifest]:
    return [one for one in manifests if span.start <= one.hour < span.end]


def _weeks(manifests: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """As many hours as are held in memory at once, whole days together."""
    for _, found in groupby(manifests, key=lambda one: (one.hour - floor_day(manifests[0].hour)) // _CHUNK):
        yield [*found]
